"""CPU of a produce request inside the broker, without sockets: frames fed to real connections.

    python -m benchmarks.micro.produce_path [--profile]

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
from typing import NamedTuple

import uvloop

from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.process import system_seams
from headwater.broker.server_connection import ServerConnection
from headwater.config.broker import BrokerSettings
from headwater.controller.commands import CreateTopics, TopicCreation, TopicOutcome
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire.framing import request_frame
from headwater.wire.messages.produce import ProduceRequest

VALUE = b"x" * 100


class Case(NamedTuple):
    """A shape of load."""

    name: str
    records: int
    version: int
    acks: int
    connections: int
    depth: int
    requests: int


CASES = [
    Case("1 record, 100 connections, old", 1, 7, 1, 100, 1, 100_000),
    Case("1 record, 100 connections, new", 1, 13, -1, 100, 1, 100_000),
    Case("1 record, 10 connections x 5, old", 1, 7, 1, 10, 5, 100_000),
    Case("16 KiB, 10 connections, old", 140, 7, 1, 10, 1, 10_000),
    Case("64 KiB, 10 connections, old", 560, 7, 1, 10, 1, 3_000),
]


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
        frame = await _frame(broker, case)
        peers = [_peer(broker) for _ in range(case.connections)]
        _feed(broker, peers, frame * case.depth, case.depth, 1000)
        started = time.process_time()
        if profile is not None:
            profile.enable()
        _feed(broker, peers, frame * case.depth, case.depth, case.requests)
        if profile is not None:
            profile.disable()
        took = time.process_time() - started
        await broker.stop()
        return took / case.requests * 1e6


async def _frame(broker: BrokerServer, case: Case) -> bytes:
    created: asyncio.Future[list[TopicOutcome]] = asyncio.get_running_loop().create_future()
    broker.context.controller.submit(CreateTopics([TopicCreation("t", 1, 1)]), created.set_result)
    (topic,) = await created
    now = int(time.time() * 1000)
    batch = build_batch([Record(timestamp=now, value=VALUE)] * case.records, now=now)
    by_id = case.version >= 13
    partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    data = ProduceRequest.TopicProduceData(partition_data=[partition])
    if by_id:
        data.topic_id = topic.topic_id
    else:
        data.name = "t"
    request = ProduceRequest(acks=case.acks, timeout_ms=30_000, topic_data=[data])
    return bytes(request_frame(0, case.version, 7, "micro", request))


def _peer(broker: BrokerServer) -> ServerConnection:
    peer = ServerConnection(broker.context, "PLAINTEXT", broker.parts.dispatch.frame)
    peer.connection_made(Sink())
    return peer


def _feed(
    broker: BrokerServer, peers: list[ServerConnection], data: bytes, depth: int, requests: int
) -> None:
    source = memoryview(data)
    while requests > 0:
        for peer in peers:
            at = 0
            while at < len(source):
                room = peer.get_buffer(65536)
                taken = min(len(room), len(source) - at)
                room[:taken] = source[at : at + taken]
                peer.buffer_updated(taken)
                at += taken
            requests -= depth
        broker.context.tick.flush()


def main() -> None:
    """Print a line a case."""
    logging.disable(logging.CRITICAL)
    for case in CASES:
        profile = cProfile.Profile() if "--profile" in sys.argv else None
        took = uvloop.run(measure(case, profile))
        print(f"{case.name:<36} {took:7.2f} us")
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    main()
