"""CPU of a follower's fetch at both ends, without sockets: two brokers in one process.

    python -m benchmarks.micro.follower_path [--profile] [word of the case]...

A producer writes to the leader, the leader answers the follower's fetch, the follower appends and
fetches again, and the producer is acknowledged. Everything but the kernel's share of the sockets is
in the figure, which is for one such round. Compare figures of one run only.
"""

import asyncio
import cProfile
import logging
import pstats
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Protocol

import uvloop
from benchmarks.micro.produce_path import Sink

from headwater.broker.follower_loop import ReplicaFetcher
from headwater.broker.lifecycle_loop import BrokerServer
from headwater.broker.peers import PeerConnection
from headwater.broker.process import system_seams
from headwater.broker.server_connection import ServerConnection
from headwater.config.broker import BrokerSettings
from headwater.controller.commands import CreateTopics, TopicCreation, TopicOutcome
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.replication.replica import Replica
from headwater.security.principals import BROKER, Principal
from headwater.transport.client_connection import ClientConnection
from headwater.wire.apis import API, FETCH
from headwater.wire.framing import request_frame
from headwater.wire.messages.produce import ProduceRequest

LEADER, FOLLOWER = 1, 2


class Case(NamedTuple):
    """What a producer sends before the follower's next fetch is answered."""

    name: str
    records: int
    batches: int
    rounds: int


CASES = [
    Case("1 record", 1, 1, 4000),
    Case("4 batches of 16 KiB", 140, 4, 2000),
    Case("16 batches of 64 KiB", 560, 16, 300),
]
WARM_UP = 50


class Receiving(Protocol):
    """An end of a stream."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes."""


class Pipe(Sink):
    """Copies what is written to the other end, in the next round of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.other: Receiving | None = None

    def write(self, data: object) -> None:
        """Deliver later, as a socket does."""
        self.writelines([data])

    def writelines(self, list_of_data: object) -> None:
        """Deliver later, in one piece where it fits."""
        whole = b"".join(list_of_data)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(self._deliver, whole)

    def get_write_buffer_size(self) -> int:
        """Nothing waits here."""
        return 0

    def _deliver(self, data: bytes) -> None:
        assert self.other is not None
        at, end = 0, len(data)
        while at < end:
            room = self.other.get_buffer(65536)
            taken = min(len(room), end - at)
            room[:taken] = data[at : at + taken]
            self.other.buffer_updated(taken)
            at += taken


async def _broker(folder: Path, node_id: int) -> tuple[BrokerServer, Replica]:
    settings = {
        "log.dirs": str(folder),
        "node.id": str(node_id),
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    broker = BrokerServer(BrokerSettings.load(None, settings), system_seams())
    await broker.start()
    created: asyncio.Future[list[TopicOutcome]] = asyncio.get_running_loop().create_future()
    creation = CreateTopics([TopicCreation("t", 1, 1)])
    broker.context.controller.submit(creation, created.set_result)
    await created
    replica = broker.context.replicas.get("t", 0)
    assert replica is not None
    return broker, replica


def _stream(leader: BrokerServer) -> PeerConnection:
    """A connection of the follower to the leader, authenticated and open."""
    there = ServerConnection(leader.context, "PLAINTEXT", leader.parts.dispatch.frame)
    here = ClientConnection("leader", "fetcher", 30.0)
    to_leader, to_follower = Pipe(), Pipe()
    to_leader.other, to_follower.other = there, here
    there.connection_made(to_follower)
    here.connection_made(to_leader)
    there.principal = Principal(BROKER, str(FOLLOWER))
    here._served = {FETCH: API[FETCH].served}
    connection = leader.context.peers.open(LEADER, "fetcher", lambda _: None)
    connection._stream = here
    return connection


async def measure(case: Case, profile: cProfile.Profile | None) -> float:
    """Microseconds of CPU for one round."""
    with tempfile.TemporaryDirectory(prefix="headwater-micro-") as folder:
        leader, led = await _broker(Path(folder) / "1", LEADER)
        follower, following = await _broker(Path(folder) / "2", FOLLOWER)
        pair = [LEADER, FOLLOWER]
        led.carry_out(led.partition.led(0, led.leader_epoch, 100, pair, pair, 0))
        following.partition.followed(LEADER, led.leader_epoch, 100, pair, pair)
        following.topic_id = led.topic_id
        fetcher = ReplicaFetcher(follower.context, _stream(leader), LEADER, 0)
        fetcher.follow(following)
        producer = ServerConnection(leader.context, "PLAINTEXT", leader.parts.dispatch.frame)
        producer.connection_made(Sink())
        frames = _request(case, led) * case.batches
        await _rounds(producer, frames, led, case, WARM_UP)
        started = time.process_time()
        if profile is not None:
            profile.enable()
        await _rounds(producer, frames, led, case, case.rounds)
        if profile is not None:
            profile.disable()
        took = time.process_time() - started
        fetcher.close()
        await leader.stop()
        await follower.stop()
        return took / case.rounds * 1e6


async def _rounds(
    producer: ServerConnection, frames: bytes, led: Replica, case: Case, rounds: int
) -> None:
    feed = Pipe()
    feed.other = producer
    for _ in range(rounds):
        end = led.log_end_offset + case.records * case.batches
        feed._deliver(frames)
        while led.high_watermark < end:  # noqa: ASYNC110 - rounds of the loop are what is measured
            await asyncio.sleep(0)


def _request(case: Case, led: Replica) -> bytes:
    now = int(time.time() * 1000)
    batch = bytes(build_batch([Record(timestamp=now, value=b"x" * 100)] * case.records, now=now))
    data = ProduceRequest.TopicProduceData(
        topic_id=led.topic_id,
        partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    return bytes(request_frame(0, 13, 7, "micro", request))


def main() -> None:
    """Print a line a case."""
    logging.disable(logging.CRITICAL)
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    for case in CASES:
        if not all(word in case.name for word in words):
            continue
        profile = cProfile.Profile() if "--profile" in sys.argv else None
        print(f"{case.name:32} {uvloop.run(measure(case, profile)):8.1f} µs of CPU")
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
