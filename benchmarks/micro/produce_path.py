"""CPU of a produce request inside the broker, without sockets: frames fed to real connections.

    python -m benchmarks.micro.produce_path [--profile] [word of the case]...

Everything between the receive buffer and the transport is in the figure, the write to the page
cache included. Compare figures of one run only.
"""

import asyncio
import cProfile
import logging
import pstats
import sys
import tempfile
import time
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import uvloop

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.process import system_seams
from headwater.broker.server_connection import ServerConnection
from headwater.config.broker import BrokerSettings
from headwater.controller.commands import CreateTopics, TopicCreation, TopicOutcome
from headwater.model import Uuid
from headwater.records.builder import build_batch
from headwater.records.checksum import crc32c
from headwater.records.record import Record
from headwater.wire.framing import request_frame
from headwater.wire.messages.produce import ProduceRequest

VALUE = b"x" * 100
PRODUCER = Struct(">qhi")
CHECKSUM = Struct(">I")


class Case(NamedTuple):
    """A shape of load."""

    name: str
    records: int
    version: int
    acks: int
    connections: int
    depth: int
    requests: int
    partitions: int = 1
    """In each request."""
    spread: bool = False
    """Each connection writes to a partition of its own."""
    idempotent: bool = False


CASES = [
    Case("1 record, 100 connections, old", 1, 7, 1, 100, 1, 100_000),
    Case("1 record, 100 connections, new", 1, 13, -1, 100, 1, 100_000, idempotent=True),
    Case("1 record, 100 connections, spread", 1, 7, 1, 100, 1, 50_000, spread=True),
    Case("1 record, 10 connections x 5, old", 1, 7, 1, 10, 5, 100_000),
    Case("1 record, 10 connections x 5, new", 1, 13, -1, 10, 5, 100_000, idempotent=True),
    Case("16 KiB, 10 connections, old", 140, 7, 1, 10, 1, 10_000),
    Case("16 KiB, 10 connections, new", 140, 13, -1, 10, 1, 10_000, idempotent=True),
    Case("64 KiB, 10 connections, old", 560, 7, 1, 10, 1, 3_000),
    Case("1 MiB, 4 connections, old", 9000, 7, 1, 4, 1, 400),
    Case("10 partitions, 10 connections, old", 1, 7, 1, 10, 1, 10_000, 10),
    Case("10 partitions, 10 connections, new", 1, 13, -1, 10, 1, 10_000, 10, idempotent=True),
    Case("50 partitions, 10 connections, old", 1, 7, 1, 10, 1, 3_000, 50),
    Case("50 partitions, 10 connections, new", 1, 13, -1, 10, 1, 3_000, 50, idempotent=True),
]
WARM_UP = 20
"""Rounds before the clock starts."""


class Sink(asyncio.Transport):
    """Takes answers and forgets them."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """A peer on this machine."""
        return ("127.0.0.1", 1) if name == "peername" else default

    def is_closing(self) -> bool:
        """Never."""
        return False

    def write(self, data: object) -> None:
        """Nobody reads it."""

    def writelines(self, list_of_data: object) -> None:
        """Nobody reads them."""

    def abort(self) -> None:
        """Nothing to end."""

    def close(self) -> None:
        """Nothing to end."""

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


async def measure(case: Case, profile: cProfile.Profile | None) -> float:
    """Microseconds of CPU for one request."""
    with tempfile.TemporaryDirectory(prefix="headwater-micro-") as folder:
        settings = {"log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = BrokerServer(BrokerSettings.load(None, settings), system_seams())
        await broker.start()
        created: asyncio.Future[list[TopicOutcome]] = asyncio.get_running_loop().create_future()
        partitions = case.connections if case.spread else case.partitions
        broker.context.controller.submit(
            CreateTopics([TopicCreation("t", partitions, 1)]), created.set_result
        )
        topic = (await created)[0].topic_id
        rounds = case.requests // (case.connections * case.depth)
        loads = [_load(case, topic, rank, rounds) for rank in range(case.connections)]
        peers = [_peer(broker) for _ in range(case.connections)]
        turns = list(zip(*loads, strict=True))
        _feed(broker, peers, turns[:1])
        await until_written(broker, "t", partitions)
        _feed(broker, peers, turns[1:WARM_UP])
        started = time.process_time()
        if profile is not None:
            profile.enable()
        _feed(broker, peers, turns[WARM_UP:])
        if profile is not None:
            profile.disable()
        took = time.process_time() - started
        await broker.stop()
        return took / (rounds * case.connections * case.depth) * 1e6


async def until_written(broker: BrokerServer, topic: str, partitions: int) -> None:
    """Return when each partition has its first batches: those wait for the file of epochs."""
    for index in range(partitions):
        replica = broker.context.replicas.get(topic, index)
        assert replica is not None
        while not replica.log_end_offset:  # noqa: ASYNC110 - a file thread saves the epoch
            await asyncio.sleep(0.001)


def _load(case: Case, topic_id: Uuid, rank: int, rounds: int) -> list[bytes]:
    """What one connection sends in each round."""
    count = (rounds + WARM_UP) * case.depth
    if not case.idempotent:
        return [_request(case, topic_id, rank, -1) * case.depth] * (rounds + WARM_UP)
    sent = [_request(case, topic_id, rank, place) for place in range(count)]
    return [b"".join(sent[at : at + case.depth]) for at in range(0, count, case.depth)]


def _request(case: Case, topic_id: Uuid, rank: int, place: int) -> bytes:
    batch = _batch(case.records, rank if place >= 0 else -1, place * case.records)
    partitions = [rank] if case.spread else range(case.partitions)
    data = ProduceRequest.TopicProduceData(
        partition_data=[
            ProduceRequest.PartitionProduceData(index=index, records=batch) for index in partitions
        ]
    )
    if case.version >= 13:
        data.topic_id = topic_id
    else:
        data.name = "t"
    request = ProduceRequest(acks=case.acks, timeout_ms=30_000, topic_data=[data])
    return bytes(request_frame(0, case.version, 7, "micro", request))


@lru_cache(maxsize=4)
def _template(records: int) -> bytes:
    now = int(time.time() * 1000)
    return bytes(build_batch([Record(timestamp=now, value=VALUE)] * records, now=now))


def _batch(records: int, producer_id: int, sequence: int) -> bytes:
    if producer_id < 0:
        return _template(records)
    batch = bytearray(_template(records))
    PRODUCER.pack_into(batch, 43, producer_id, 0, sequence)
    CHECKSUM.pack_into(batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def _peer(broker: BrokerServer) -> ServerConnection:
    peer = ServerConnection(broker.context, "PLAINTEXT", broker.parts.dispatch.frame)
    peer.connection_made(Sink())
    return peer


def _feed(
    broker: BrokerServer, peers: list[ServerConnection], turns: list[tuple[bytes, ...]]
) -> None:
    for turn in turns:
        for peer, data in zip(peers, turn, strict=True):
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
        print(f"{case.name:<36} {took:7.2f} us", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    main()
