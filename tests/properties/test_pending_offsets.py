"""Offsets committed in transactions against a scan of the log, through restarts and reloads.

Of several commits of one partition the last in the log wins, as soon as its transaction is
committed.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.coordination.groups.offsets import (
    UNSTABLE,
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    FetchOffsets,
    NewOffset,
    WantedTopic,
)
from headwater.coordination.groups.shard import GroupShard
from headwater.coordination.shard import TransactionalProducer
from headwater.errors import E
from headwater.model import ZERO_UUID, TopicPartition
from headwater.records.control import Marker
from tests.unit.coordination.runtime_harness import Harness

PARTITIONS = range(3)
PRODUCERS = st.integers(1, 3)
OFFSETS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 99), min_size=1)


class GroupWithTransactions(RuleBasedStateMachine):
    """One group, plain commits and those of three producers."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness().elected()
        self.order = 0
        # By partition: the place in the log and the offset; None is a deletion.
        self.committed: dict[int, tuple[int, int]] = {}
        self.pending: dict[int, dict[int, tuple[int, int]]] = {}

    def answer(self) -> object:
        self.harness.commit_all()
        return self.harness.answers.pop()

    @staticmethod
    def command(offsets) -> CommitOffsets:
        new = tuple(NewOffset("t", ZERO_UUID, at, offset, -1, "") for at, offset in offsets.items())
        return CommitOffsets("g", "", None, -1, new)

    def ordered(self, offsets) -> dict[int, tuple[int, int]]:
        self.order += 1
        return {at: (self.order, offset) for at, offset in offsets.items()}

    @rule(offsets=OFFSETS)
    def commit(self, offsets) -> None:
        self.harness.submit(GroupShard.commit, self.command(offsets))
        assert set(self.answer()) == {E.NONE}
        self.committed |= self.ordered(offsets)

    @rule(producer=PRODUCERS, offsets=OFFSETS)
    def commit_in_transaction(self, producer, offsets) -> None:
        command = CommitOffsetsInTransaction(
            self.command(offsets), TransactionalProducer(producer, 0)
        )
        self.harness.submit(GroupShard.commit_in_transaction, command)
        assert set(self.answer()) == {E.NONE}
        self.pending[producer] = self.pending.get(producer, {}) | self.ordered(offsets)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end(self, producer, commit) -> None:
        marker = Marker(producer, 0, commit, 0)
        self.harness.loop.end_transaction(0, marker, 0, self.harness.answers.append)
        assert self.answer() is None
        for at, row in self.pending.pop(producer, {}).items():
            if commit and row > self.committed.get(at, (-1, -1)):
                self.committed[at] = row

    @rule(at=st.sampled_from(PARTITIONS))
    def delete(self, at) -> None:
        command = DeleteOffsets("g", (TopicPartition("t", at),))
        self.harness.submit(GroupShard.delete_offsets, command)
        self.answer()
        self.committed.pop(at, None)
        for offsets in self.pending.values():
            offsets.pop(at, None)

    @rule()
    def delete_group(self) -> None:
        self.harness.submit(GroupShard.delete_group, "g")
        self.answer()
        self.committed.clear()
        self.pending.clear()

    @rule()
    def delete_topic(self) -> None:
        self.harness.loop.topics_deleted({"t": None})
        self.harness.clock.advance(1)
        self.harness.commit_all()
        self.committed.clear()
        self.pending.clear()

    @rule()
    def load_again(self) -> None:
        self.harness.loop.elected(0, 2)
        self.harness.clock.advance(1)

    @invariant()
    def offsets_are_those_of_a_scan(self) -> None:
        unstable = {at for offsets in self.pending.values() for at in offsets}
        for require_stable in (False, True):
            wanted = (WantedTopic("t", ZERO_UUID, list(PARTITIONS)),)
            self.harness.submit(GroupShard.fetch_offsets, FetchOffsets("g", wanted, require_stable))
            ((topic),) = self.answer()
            for at, found in zip(topic.partitions, topic.offsets, strict=True):
                if require_stable and at in unstable:
                    assert found is UNSTABLE
                else:
                    known = None if found is None else found.offset
                    assert known == self.committed.get(at, (0, None))[1]


TestGroupWithTransactions = GroupWithTransactions.TestCase
TestGroupWithTransactions.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
