"""CPU of a fetch inside the broker, without sockets: frames fed to a real connection.

    python -m benchmarks.micro.fetch_path [--profile] [word of the case]...

Everything between the receive buffer and the transport is in the figure; what a socket would send is
not read. A case runs in turns, and the lowest and the median turn are printed. Compare figures of one
run only.
"""

import asyncio
import cProfile
import logging
import pstats
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

import uvloop
from benchmarks.micro.produce_path import Sink, until_written

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.process import system_seams
from headwater.broker.server_connection import ServerConnection
from headwater.config.broker import BrokerSettings
from headwater.controller.commands import CreateTopics, TopicCreation, TopicOutcome
from headwater.model import Uuid
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire.framing import request_frame
from headwater.wire.messages.fetch import FetchRequest
from headwater.wire.messages.produce import ProduceRequest

BATCHES = 1000
BATCH_RECORDS = 60
BATCH_BYTES = 62_000
"""At most, with records of 1 KiB."""
TURNS = 100
REQUESTS = 200
"""In each turn."""


class Case(NamedTuple):
    """A shape of fetches."""

    name: str
    version: int
    max_bytes: int
    isolation_level: int = 0
    partitions: int = 1


CASES = [
    Case("1 MiB, old", 11, 1 << 20),
    Case("1 MiB, new", 18, 1 << 20),
    Case("1 MiB, new, read_committed", 18, 1 << 20, 1),
    Case("64 KiB, new", 18, 64 << 10),
    Case("10 partitions of 64 KiB, new", 18, 64 << 10, partitions=10),
]


async def measure(case: Case, profile: cProfile.Profile | None) -> list[float]:
    """Microseconds of CPU for one request, in each turn."""
    with tempfile.TemporaryDirectory(prefix="headwater-micro-") as folder:
        settings = {"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = BrokerServer(BrokerSettings.load(None, settings), system_seams())
        await broker.start()
        created: asyncio.Future[list[TopicOutcome]] = asyncio.get_running_loop().create_future()
        broker.context.controller.submit(
            CreateTopics([TopicCreation("t", case.partitions, 1)]), created.set_result
        )
        topic = (await created)[0].topic_id
        peer = ServerConnection(broker.context, "PLAINTEXT", broker.parts.dispatch.frame)
        peer.connection_made(Sink())
        for index in range(case.partitions):
            _feed(broker, peer, _fill(topic, index))
        await until_written(broker, "t", case.partitions)
        for index in range(case.partitions):
            fill = _fill(topic, index)
            for _ in range(BATCHES // case.partitions):
                _feed(broker, peer, fill)
        step = case.max_bytes // BATCH_BYTES * BATCH_RECORDS
        rounds = BATCHES // case.partitions * BATCH_RECORDS // step
        frames = [_fetch(case, topic, rank % rounds * step) for rank in range(REQUESTS)]
        took = []
        for turn in range(-1, TURNS):
            if turn == 0 and profile is not None:
                profile.enable()
            started = time.process_time()
            for frame in frames:
                _feed(broker, peer, frame)
            if turn >= 0:
                took.append((time.process_time() - started) / REQUESTS * 1e6)
        if profile is not None:
            profile.disable()
        await broker.stop()
        return took


def _fill(topic_id: Uuid, index: int) -> bytes:
    now = int(time.time() * 1000)
    records = [Record(timestamp=now, value=b"x" * 1024)] * BATCH_RECORDS
    data = ProduceRequest.TopicProduceData(
        topic_id=topic_id,
        partition_data=[
            ProduceRequest.PartitionProduceData(
                index=index, records=bytes(build_batch(records, now=now))
            )
        ],
    )
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    return bytes(request_frame(0, 13, 7, "micro", request))


def _fetch(case: Case, topic_id: Uuid, offset: int) -> bytes:
    topic = FetchRequest.FetchTopic(
        partitions=[
            FetchRequest.FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=case.max_bytes
            )
            for index in range(case.partitions)
        ]
    )
    if case.version >= 13:
        topic.topic_id = topic_id
    else:
        topic.topic = "t"
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=case.max_bytes * case.partitions,
        isolation_level=case.isolation_level,
        session_epoch=-1,
        topics=[topic],
    )
    return bytes(request_frame(1, case.version, 7, "micro", request))


def _feed(broker: BrokerServer, peer: ServerConnection, data: bytes) -> None:
    at, end = 0, len(data)
    while at < end:
        room = peer.get_buffer(65536)
        taken = min(len(room), end - at)
        room[:taken] = data[at : at + taken]
        peer.buffer_updated(taken)
        at += taken
    broker.context.tick.flush()


def main() -> None:
    """Print a line a case."""
    logging.disable(logging.CRITICAL)
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    for case in CASES:
        if not all(word in case.name for word in words):
            continue
        profile = cProfile.Profile() if "--profile" in sys.argv else None
        took = uvloop.run(measure(case, profile))
        print(f"{case.name:<32} {min(took):7.1f} {statistics.median(took):7.1f} µs", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(50)


if __name__ == "__main__":
    main()
