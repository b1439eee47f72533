"""Costs of the records room: the hot-path check, the walk, codecs of records, in microseconds.

Run: `python benchmarks/micro/records.py`. Best of several rounds (the machine is shared); one JSON
line with the ratios first. `check` is to be read beside `crc`, which it contains; the record codecs
beside those of kafka-python (Python) and aiokafka (C).
"""

import json
import sys
import timeit
from collections.abc import Callable

import aiokafka.record.default_records as aio
import kafka.record.default_records as kafka_python

from headwater.records.batch import CRC_START
from headwater.records.builder import build_batch
from headwater.records.checksum import crc32c
from headwater.records.compression import Codec, compress, decompress
from headwater.records.record import Record, decode_records
from headwater.records.rewrite import prepare
from headwater.records.rules import BatchRules
from headwater.records.validation import check_batch, check_records

NOW = 1_700_000_000_000
RULES = BatchRules()
MANY = 600


def microseconds(work: Callable[[], object], rounds: int = 7) -> float:
    """The best time of one call."""
    timer = timeit.Timer(work)
    calls, taken = timer.autorange()
    return round(min([taken, *timer.repeat(rounds, calls)]) / calls * 1e6, 3)


def records_of(count: int, size: int) -> list[Record]:
    """Records as clients send them, with values of `size` bytes."""
    return [Record(place, NOW + place, b"key", b"v" * size) for place in range(count)]


def batch_costs(size: int, producer_id: int) -> dict[str, float]:
    """Check of one single-record batch of about `size` bytes, alone and with the walk."""
    epoch_or_none = 0 if producer_id >= 0 else -1
    batch = memoryview(
        build_batch(
            records_of(1, size - 72),
            now=NOW,
            producer_id=producer_id,
            producer_epoch=epoch_or_none,
            base_sequence=epoch_or_none,
        )
    )
    header = check_batch(batch, RULES, NOW)
    return {
        "crc": microseconds(lambda: crc32c(batch[CRC_START:])),
        "check": microseconds(lambda: check_batch(batch, RULES, NOW)),
        "prepare": microseconds(lambda: prepare(batch, header, RULES, NOW)),
    }


def record_costs() -> dict[str, float]:
    """Per record of 100 bytes in a batch of many."""
    records = records_of(MANY, 100)
    batch = memoryview(build_batch(records, now=NOW))
    header = check_batch(batch, RULES, NOW)
    costs = {
        "walk": microseconds(lambda: check_records(batch, header, RULES, NOW)),
        "decode": microseconds(lambda: decode_records(batch)),
        "encode": microseconds(lambda: build_batch(records, now=NOW)),
    }
    for name, library in (("kafka_python", kafka_python), ("aiokafka", aio)):
        costs[f"decode_{name}"] = microseconds(
            lambda library=library: list(library.DefaultRecordBatch(bytes(batch)))
        )
        costs[f"encode_{name}"] = microseconds(lambda library=library: _encode(library, records))
    return {name: round(cost / MANY, 3) for name, cost in costs.items()}


def _encode(library, records: list[Record]) -> object:
    builder = library.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, timestamp, key, value, _ in records:
        builder.append(offset, timestamp, key, value, [])
    return builder.build()


def codec_rates() -> dict[str, tuple[float, float]]:
    """Megabytes of records per second, in and out, by codec."""
    line = b'{"id": %d, "name": "somebody", "amount": 12.5, "city": "Zurich"}\n'
    data = b"".join(line % number for number in range(16_000))
    rates = {}
    for codec in list(Codec)[1:]:
        packed = compress(codec, data)
        in_us = microseconds(lambda codec=codec: compress(codec, data), 2)
        out_us = microseconds(lambda codec=codec, p=packed: decompress(codec, p, len(data)), 2)
        rates[codec.name.lower()] = (round(len(data) / in_us), round(len(data) / out_us))
    return rates


def main() -> None:
    """Measure and print."""
    small, large = batch_costs(200, 7), batch_costs(16 << 10, 7)
    per_record = record_costs()
    result = {
        "ratios": {
            "decode to kafka-python": round(
                per_record["decode"] / per_record["decode_kafka_python"], 2
            ),
            "encode to kafka-python": round(
                per_record["encode"] / per_record["encode_kafka_python"], 2
            ),
            "check less crc, 16 KiB to 200 B": round(
                (large["check"] - large["crc"]) / (small["check"] - small["crc"]), 2
            ),
        },
        "batch of 200 B, us": small,
        "batch of 16 KiB, us": large,
        "per record of 100 B, us": per_record,
        "codecs, MB/s in and out": codec_rates(),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
