"""The partition machine with several followers against what must always hold."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwater.replication.effects import AdvanceHW, ProposeIsr
from headwater.replication.partition import Partition

LAG_MS = 100
REPLICAS = (1, 2, 3, 4)
FOLLOWERS = st.sampled_from(REPLICAS[1:])


class LeaderWithFollowers(RuleBasedStateMachine):
    """A leader whose followers fetch, lag, leave and come back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.partition = Partition(1, LAG_MS, 1)
        self.partition.led(0, 0, 0, REPLICAS, (1,), 0)
        self.has = dict.fromkeys(REPLICAS[1:], 0)
        """What each follower really has: at least what it fetched last."""
        self.fetched: dict[int, int] = {}
        self.marks: list[int] = []
        self.proposals: list[ProposeIsr] = []

    @initialize(others=st.sets(FOLLOWERS))
    def begin(self, others) -> None:
        """Some followers are in sync from the start, the others have to earn it."""
        self.take(self.partition.led(0, 1, 1, REPLICAS, (1, *others), 0))

    def take(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceHW):
                self.marks.append(effect.high_watermark)
            else:
                self.proposals.append(effect)

    @rule(count=st.integers(1, 20))
    def append(self, count) -> None:
        self.take(self.partition.appended(self.now, self.partition.log_end + count))

    @rule(replica=FOLLOWERS, share=st.integers(0, 100))
    def fetch(self, replica, share) -> None:
        """A follower asks from its end, then gets some of what the leader has."""
        self.fetched[replica] = self.has[replica]
        self.take(self.partition.follower_fetched(self.now, replica, self.has[replica], 0))
        missing = self.partition.log_end - self.has[replica]
        self.has[replica] += missing * share // 100

    @rule(passed=st.integers(1, 2 * LAG_MS))
    def time_passes(self, passed) -> None:
        self.now += passed
        self.take(self.partition.lag_checked(self.now))

    @precondition(lambda self: self.proposals)
    @rule(stored=st.booleans())
    def controller_answers(self, stored) -> None:
        proposal = self.proposals.pop(0)
        if stored and proposal.partition_epoch == self.partition.partition_epoch:
            epoch = proposal.partition_epoch + 1
            self.take(self.partition.isr_stored(self.now, tuple(proposal.isr), epoch))
        else:
            self.take(self.partition.isr_refused(self.now))

    @rule()
    def elected_again(self) -> None:
        """The same leader in a new epoch: followers must report again."""
        partition = self.partition
        self.proposals.clear()
        self.fetched.clear()
        isr = sorted(partition.isr)
        self.take(
            partition.led(
                self.now,
                partition.leader_epoch + 1,
                partition.partition_epoch + 1,
                REPLICAS,
                isr,
                partition.log_end,
            )
        )

    @invariant()
    def everyone_who_counts_has_what_is_committed(self) -> None:
        for replica in self.partition.isr - {1}:
            assert self.has[replica] >= self.partition.high_watermark

    @invariant()
    def the_mark_was_shown_by_everyone_who_counts(self) -> None:
        raised_now = self.marks and self.marks[-1] == self.partition.high_watermark
        if raised_now and len(self.fetched) == len(REPLICAS) - 1:
            ends = [self.fetched[replica] for replica in self.partition.isr - {1}]
            assert min([self.partition.log_end, *ends]) >= self.partition.high_watermark

    @invariant()
    def the_mark_only_grows(self) -> None:
        assert self.marks == sorted(set(self.marks))
        assert self.partition.high_watermark <= self.partition.log_end

    @invariant()
    def the_leader_is_in_sync_and_proposals_stay_within_the_replicas(self) -> None:
        assert 1 in self.partition.isr <= set(REPLICAS)
        for proposal in self.proposals:
            assert 1 in proposal.isr <= set(REPLICAS)


TestLeaderWithFollowers = LeaderWithFollowers.TestCase
TestLeaderWithFollowers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
