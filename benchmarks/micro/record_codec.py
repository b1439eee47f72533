"""Costs of the clients' record codec, per record, for both implementations.

Run: `python benchmarks/micro/record_codec.py [--size 100]`. The best of many rounds, one JSON line:
microseconds per record, or for columns millions of records per second.
"""

import argparse
import json
import time
from array import array
from collections.abc import Callable
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import Any

from headwater.records.builder import build_batch
from headwater.records.columns import Column
from headwater.records.record import Record, decode_records

NOW = 1_700_000_000_000
COUNT = 140
"""Records in a batch of batch.size 16384, at 100 bytes each."""
LIMIT = 1 << 30
ROUNDS = 500

Work = Callable[[], object]


def best_us(work: Work, records: int) -> float:
    """Microseconds per record in the quickest of many rounds: the others measure other load."""
    quickest = 1e9
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        quickest = min(quickest, time.perf_counter() - start)
    return round(quickest / records * 1e6, 4)


def sending(codec: ModuleType, value: bytes) -> dict[str, float]:
    """append, append with a key, extend and encode_columns, each with its share of finish."""
    values = [value] * COUNT
    keys = [b"key-%06d" % number for number in range(COUNT)]
    table = Column(
        array("i", accumulate([len(value)] * COUNT, initial=0)).tobytes(), b"".join(values)
    )

    def filled(fill: Callable[[Any], object]) -> Work:
        def work() -> object:
            writer = codec.BatchWriter(LIMIT)
            fill(writer)
            return writer.finish(0, None, 7, 0, 0)

        return work

    def append(writer: Any) -> None:
        put = writer.append
        for each in values:
            put(NOW, None, each)

    def append_keys(writer: Any) -> None:
        put = writer.append
        for key in keys:
            put(NOW, key, value)

    return {
        "append": best_us(filled(append), COUNT),
        "append_key": best_us(filled(append_keys), COUNT),
        "extend": best_us(filled(lambda writer: writer.extend(NOW, values, 0)), COUNT),
        "encode_columns": best_us(
            filled(lambda writer: codec.encode_columns(writer, NOW, None, table, COUNT)), COUNT
        ),
    }


def reading(codec: ModuleType, value: bytes) -> dict[str, float]:
    """decode_batch with and without keys and headers, and decode_columns of a megabyte."""
    records = [Record(0, NOW + number // 9, None, value) for number in range(COUNT)]
    rich = [Record(0, NOW, b"key-%06d" % number, value, (("h", b"1"),)) for number in range(COUNT)]
    plain = bytes(build_batch(records, now=NOW))
    full = bytes(build_batch(rich, now=NOW))
    many = plain * (1 << 20 >> 14)
    columns = best_us(lambda: codec.decode_columns(many), len(many) // len(plain) * COUNT)
    return {
        "decode_batch": best_us(lambda: codec.decode_batch(plain), COUNT),
        "decode_batch_key_header": best_us(lambda: codec.decode_batch(full), COUNT),
        "decode_records": best_us(lambda: decode_records(plain), COUNT),
        "decode_columns": columns,
        "decode_columns_million_per_s": round(1 / columns, 2),
    }


def hashing(codec: ModuleType) -> dict[str, float]:
    """murmur2 of a key of ten bytes."""
    keys = [b"key-%06d" % number for number in range(1000)]

    def work() -> None:
        murmur2 = codec.murmur2
        for key in keys:
            murmur2(key)

    return {"murmur2": best_us(work, len(keys))}


def main() -> None:
    """Measure what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    value = b"v" * parser.parse_args().size
    results = {}
    for name in ("codec.pure", "_codec"):
        try:
            codec = import_module(f"headwater.records.{name}")
        except ImportError:
            continue
        results[name] = {**sending(codec, value), **reading(codec, value), **hashing(codec)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
