"""The runtime serves any shard: here one that counts, in a topic and with records of its own."""

from typing import NamedTuple

import pytest

from headwater.coordination.coordinators import Coordinators
from headwater.coordination.runtime_loop import CoordinatorRuntime
from headwater.coordination.shard import InternalTopic, Outcome, TooLarge
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from tests.unit.coordination.runtime_harness import Clock, Harness, MemoryLog, Topics

COUNTERS = InternalTopic("__counters", 1, 1, {"cleanup.policy": "compact"})
AT = TopicPartition(COUNTERS.name, 0)
IDLE_MS = 1_000


class Counted(NamedTuple):
    name: str
    total: int


class TextCodec:
    def encode(self, record):
        return record.name.encode(), str(record.total).encode()

    def decode(self, key, value):
        return None if key.startswith(b"?") else Counted(key.decode(), int(value))


class CounterShard:
    """Adds numbers up by name; an idle counter starts again at zero."""

    def __init__(self):
        self.totals = {}
        self.deadline = None
        self.waiting = []

    def add(self, now, change, token):
        name, amount = change
        out = Outcome()
        total = self.totals.get(name, 0) + amount
        out.records.append(Counted(name, total))
        out.effects.append((name, amount))
        out.reply(token, total)
        self.deadline = now.monotonic_ms + IDLE_MS
        return out

    def wait(self, now, name, token):
        self.waiting.append(token)
        return Outcome()

    def replay(self, record):
        self.totals[record.name] = record.total

    def loaded(self, now):
        return Outcome()

    def expire(self, now):
        self.deadline = None
        return Outcome(records=[Counted(name, 0) for name in self.totals])

    def next_deadline(self):
        return self.deadline

    def topics_deleted(self, topics):
        known = [name for name in topics if name in self.totals]
        return iter([Outcome(records=[Counted(name, 0)]) for name in known]) if known else None

    def survives_loss_of(self, records):
        return True

    def too_large(self, records):
        return TooLarge(E.MESSAGE_TOO_LARGE, "a counter")

    def withdraw(self, now, records):
        return Outcome()

    def parked(self):
        return self.waiting

    def summary(self):
        return f"{len(self.totals)} counters"


class Counting:
    """A broker with two coordinators: one of groups and one that counts."""

    def __init__(self, log=None):
        self.groups = Harness().elected()
        self.log = log or MemoryLog()
        self.clock = Clock()
        self.effects = []
        self.answers = []
        self.runtime = CoordinatorRuntime(
            COUNTERS,
            lambda leader_epoch: CounterShard(),
            TextCodec(),
            log=self.log,
            topics=Topics(),
            clock=self.clock,
            call_later=self.clock.call_later,
            on_effect=self.effects.append,
        )
        self.coordinators = Coordinators()
        self.coordinators.add(self.groups.loop)
        self.coordinators.add(self.runtime)
        self.coordinators.elected(AT, 1)
        self.clock.advance(0)

    def add(self, name, amount):
        self.runtime.submit(name, CounterShard.add, (name, amount), self.answers.append)

    def commit_all(self):
        self.coordinators.high_watermark_advanced(AT, self.log.next_offset)

    def totals(self):
        return self.runtime._shards[0].shard.totals


def test_its_answers_wait_for_its_own_high_watermark():
    counting = Counting()
    counting.add("a", 2)
    counting.add("a", 3)
    assert counting.effects == [("a", 2), ("a", 3)]
    counting.coordinators.high_watermark_advanced(TopicPartition("__consumer_offsets", 0), 9)
    assert counting.answers == []
    counting.commit_all()
    assert counting.answers == [2, 5]
    assert counting.groups.answers == []


def test_it_is_loaded_from_its_own_records_and_skips_those_it_does_not_know():
    counting = Counting()
    counting.add("a", 2)
    counting.add("?", 7)
    again = Counting(counting.log)
    assert again.totals() == {"a": 2}
    assert again.runtime._shards[0].skipped_records == 1


def test_it_has_deadlines_of_its_own():
    counting = Counting()
    counting.add("a", 2)
    counting.clock.advance(IDLE_MS)
    assert counting.totals() == {"a": 0}


def test_a_refused_append_that_it_survives_does_not_load_it_again():
    counting = Counting()
    counting.add("a", 2)
    shard = counting.runtime._shards[0]
    counting.log.failure = KafkaError(E.NOT_ENOUGH_REPLICAS)
    counting.add("a", 3)
    assert counting.runtime._shards[0] is shard
    assert counting.totals() == {"a": 2}
    assert [answer.code for answer in counting.answers] == [E.COORDINATOR_NOT_AVAILABLE]


def test_thousands_of_topics_deleted_at_once_take_one_turn_of_a_shard():
    counting = Counting()
    counting.add("topic-3", 2)
    counting.clock.advance(0)
    turns = []
    counting.runtime.turns.add = counting.groups.loop.turns.add = turns.append
    counting.coordinators.topics_deleted({"topic-2": None})
    assert not turns, "no shard has a state of it"
    counting.coordinators.topics_deleted({f"topic-{number}": None for number in range(10_000)})
    assert len(turns) == 1
    for turn in turns:
        turn()
    assert counting.totals() == {"topic-3": 0}
    assert len(turns) == 2


def test_the_table_reports_to_the_coordinator_of_the_topic():
    counting = Counting()
    counting.add("a", 2)
    former = counting.runtime._shards[0]
    counting.coordinators.append_failed(AT)
    assert counting.runtime._shards[0] is not former
    counting.clock.advance(0)
    counting.coordinators.topics_deleted({"a": None})
    counting.clock.advance(0)
    assert counting.totals() == {"a": 0}
    counting.runtime.submit("a", CounterShard.wait, "a", counting.answers.append)
    counting.coordinators.resigned(AT)
    assert counting.answers[-1].code is E.NOT_COORDINATOR
    with pytest.raises(KafkaError, match="not the coordinator"):
        counting.add("a", 1)
    counting.coordinators.elected(TopicPartition("orders", 0), 1)
    assert 0 not in counting.runtime._shards
    counting.coordinators.close()
    with pytest.raises(KafkaError, match="not the coordinator"):
        counting.groups.commit(1)
