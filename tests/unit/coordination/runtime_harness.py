"""A group coordinator on a clock, a log and timers that a test controls."""

from dataclasses import dataclass, field

from headwater.config.broker import BrokerSettings
from headwater.coordination.group_coordinator import group_coordinator, offsets_topic
from headwater.coordination.groups.commands import Heartbeat, JoinGroup, SyncGroup
from headwater.coordination.groups.offsets import CommitOffsets, FetchOffsets, NewOffset
from headwater.coordination.groups.rebalances import Rebalances
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import GroupShard
from headwater.model import ZERO_UUID
from headwater.records.batch import batches
from headwater.records.builder import build_batch
from headwater.records.control import build_marker
from headwater.records.record import Record


@dataclass
class Clock:
    """A clock that moves only on request, with its timers."""

    ms: int = 0
    timers: list["Timer"] = field(default_factory=list)

    def monotonic_ms(self):
        return self.ms

    def wall_ms(self):
        return self.ms + 1_700_000_000_000

    def call_later(self, delay_s, call):
        timer = Timer(self.ms + round(delay_s * 1000), call)
        self.timers.append(timer)
        return timer

    def advance(self, ms):
        end = self.ms + ms
        while due := [it for it in self.timers if it.at_ms <= end and not it.cancelled]:
            timer = min(due, key=lambda it: it.at_ms)
            self.timers.remove(timer)
            self.ms = max(self.ms, timer.at_ms)
            timer.call()
        self.ms = end


@dataclass(eq=False)
class Timer:
    at_ms: int
    call: object
    cancelled: bool = False

    def cancel(self):
        self.cancelled = True


class MemoryLog:
    """One partition, as a list of batches."""

    def __init__(self):
        self.batches = []
        self.next_offset = 0
        self.committed = 0
        self.failure = None
        self.reads = 0
        self.largest = 1 << 20

    def largest_batch(self, partition):
        return self.largest

    def stage(self, partition, records, now_ms, producer=None):
        if self.failure is not None:
            raise self.failure
        rows = [Record(i, now_ms, key, value, ()) for i, (key, value) in enumerate(records)]
        of_producer = {}
        if producer is not None:
            of_producer = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "transactional": True,
            }
        batch = build_batch(rows, base_offset=self.next_offset, now=now_ms, **of_producer)
        return self.add(batch, len(rows))

    def stage_marker(self, partition, marker, now_ms, transaction_version):
        if self.failure is not None:
            raise self.failure
        batch = build_marker(marker, now_ms)
        batch[:8] = self.next_offset.to_bytes(8)
        return self.add(batch, 1)

    def add(self, batch, count):
        self.batches.append((self.next_offset, bytes(batch)))
        self.next_offset += count
        return self.next_offset

    def read(self, partition, offset, max_bytes, done):
        self.reads += 1
        chunk = b""
        for _, batch in self.batches:
            ((_, header),) = batches(batch)
            if header.next_offset > offset and (not chunk or len(chunk) + len(batch) <= max_bytes):
                chunk += batch
        done(chunk)

    def end(self, partition):
        return self.next_offset

    def high_watermark(self, partition):
        return self.committed


class FixedIds:
    def __init__(self):
        self.given = 0

    def uuid(self):
        self.given += 1
        return self.given.to_bytes(16, "big")

    def below(self, limit):
        return 0


class Topics:
    """Every topic exists, with one partition."""

    def partition_count(self, topic):
        return 1

    def topic_id(self, topic):
        return bytes(15) + b"1"


class Harness:
    """A group coordinator over one partition."""

    def __init__(self, log=None, topics=None):
        self.log = log or MemoryLog()
        self.clock = Clock()
        self.answers = []
        self.rebalances = Rebalances()
        self.loop = group_coordinator(
            offsets_topic(BrokerSettings.load(None, {})),
            GroupSettings(),
            log=self.log,
            topics=topics or Topics(),
            clock=self.clock,
            randomness=FixedIds(),
            call_later=self.clock.call_later,
            rebalances=self.rebalances,
        )

    def elected(self):
        self.loop.elected(0, 1)
        self.clock.advance(0)
        return self

    def commit_all(self):
        self.log.committed = self.log.next_offset
        self.loop.high_watermark_advanced(0, self.log.committed)

    def submit(self, command, argument):
        self.loop.submit("g", command, argument, self.answers.append)

    def join(self, group="g", subscription=b"", member_id="", instance_id=None):
        protocols = (("range", subscription),)
        command = JoinGroup(
            group, member_id, instance_id, "consumer", protocols, 10_000, 60_000, "c", "/h", False, False
        )  # fmt: skip
        self.submit(GroupShard.join, command)

    def rejoin(self, joined, subscription=b""):
        self.join("g", subscription, joined.member_id)
        self.commit_all()

    def sync(self, joined, group="g", assignment=b""):
        assignments = {joined.member_id: assignment}
        command = SyncGroup(
            group, joined.member_id, None, joined.generation, None, None, assignments
        )
        self.submit(GroupShard.sync, command)

    def heartbeat(self, joined, group="g"):
        self.submit(
            GroupShard.heartbeat, Heartbeat(group, joined.member_id, None, joined.generation)
        )

    def commit(self, offset, partition=0):
        new = NewOffset("t", ZERO_UUID, partition, offset, -1, "")
        self.submit(GroupShard.commit, CommitOffsets("g", "", None, -1, (new,)))

    def fetch(self):
        self.submit(GroupShard.fetch_offsets, FetchOffsets("g", None))
