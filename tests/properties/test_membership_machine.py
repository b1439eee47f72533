"""A member of a group under any order of answers: it always finds its way, and tells it in order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.client.consumer.group.membership import Due, Membership, MemberState, PollAction
from headwater.client.consumer.listener import ListenerCall, RebalanceEvent
from headwater.errors import E
from headwater.model import NO_GENERATION, TopicPartition

PLACES = [TopicPartition("t", number) for number in range(4)]
FAILURES = st.sampled_from(
    [
        E.REBALANCE_IN_PROGRESS,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
        E.NOT_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ]
)


class Group(RuleBasedStateMachine):
    """The application's view: what it was told it has."""

    cooperative = False

    def __init__(self):
        super().__init__()
        self.now = 0
        self.generation = 0
        self.member = Membership(
            heartbeat_ms=10, poll_interval_ms=1000, cooperative=self.cooperative
        )
        self.member.wants("start")
        self.told = set()
        self.known = NO_GENERATION  # the generation of the last share that it was told
        self.subscription = 0
        self.sent = None  # the subscription in the request to join, once that is sent

    @rule()
    def poll(self):
        self.member.polled(self.now)
        step = self.member.next(["t"])
        if isinstance(step, ListenerCall):
            self.hear(step)
            self.member.listener_called(step)
        elif step is PollAction.JOIN:
            self.sent = None
            assert self.member.state is MemberState.JOINING
            if not self.cooperative:
                assert not self.told

    @property
    def waits_for_the_others(self):
        return self.member.state is MemberState.JOINING and self.sent is not None

    def hear(self, call):
        changed = set(call.partitions)
        if call.event is RebalanceEvent.ASSIGNED:
            assert not changed & self.told
            self.told |= changed
            self.known = self.member.generation
        else:
            assert changed <= self.told
            assert changed
            self.told -= changed

    @rule()
    def subscribe_to_something_else(self):
        self.subscription += 1
        self.member.wants("other topics")

    @precondition(lambda self: self.member.state is MemberState.JOINING and self.sent is None)
    @rule()
    def send_join(self):
        assert self.member.asks()
        self.sent = self.subscription

    @precondition(lambda self: self.waits_for_the_others)
    @rule(leads=st.booleans())
    def join_answered(self, leads):
        self.generation += 1
        leader = "me" if leads else "other"
        assert self.member.joined(E.NONE, self.generation, "me", leader) is None
        assert self.member.leading == leads

    @precondition(lambda self: self.waits_for_the_others)
    @rule(problem=FAILURES | st.just(E.MEMBER_ID_REQUIRED))
    def join_refused(self, problem):
        assert self.member.joined(problem, -1, "me", "") is None
        assert self.member.busy

    @precondition(lambda self: self.member.state is MemberState.SYNCING)
    @rule(share=st.lists(st.sampled_from(PLACES), unique=True))
    def sync_answered(self, share):
        assert self.member.synced(E.NONE, share, self.now) is None

    @precondition(lambda self: self.member.state is MemberState.SYNCING)
    @rule(problem=FAILURES)
    def sync_refused(self, problem):
        assert self.member.synced(problem, [], self.now) is None
        assert self.member.busy

    @precondition(lambda self: self.member.state in (MemberState.JOINING, MemberState.SYNCING))
    @rule()
    def connection_broke(self):
        self.member.interrupted()

    @rule(problem=FAILURES | st.just(E.NONE))
    def heartbeat_answered(self, problem):
        assert self.member.heard(problem) is None

    @rule(ms=st.integers(1, 30))
    def time_passes(self, ms):
        self.now += ms
        due = self.member.tick(self.now)
        if due is Due.TOO_LATE:
            self.member.left("too late")

    @invariant()
    def a_member_out_of_its_group_sends_no_heartbeats(self):
        if self.member.state is not MemberState.MEMBER:
            assert self.member.next_deadline() is None
        else:
            assert self.member.generation >= 0

    @invariant()
    def work_counts_only_for_a_share_that_the_application_knows(self):
        generation, member_id = self.member.told
        if not self.cooperative:
            assert generation == self.known
        assert generation >= self.known
        assert bool(member_id) == (generation != NO_GENERATION)

    @invariant()
    def the_application_is_never_told_less_than_it_may_read(self):
        waiting = {
            name
            for call in self.member._calls
            if call.event is RebalanceEvent.ASSIGNED
            for name in call.partitions
        }
        assert set(self.member.owned) - waiting <= self.told

    def teardown(self):
        """Left alone by failures, it ends up a member with what it was given and wanted last."""
        for _ in range(50):
            if self.waits_for_the_others:
                self.join_answered(False)
            elif self.member.state is MemberState.JOINING:
                self.send_join()
            elif self.member.state is MemberState.SYNCING:
                self.sync_answered(PLACES[:2])
            elif self.member.busy:
                self.poll()
        assert self.member.state is MemberState.MEMBER
        assert set(self.member.owned) == self.told
        assert self.sent == self.subscription


class CooperativeGroup(Group):
    cooperative = True


Group.TestCase.settings = CooperativeGroup.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestEagerMember = Group.TestCase
TestCooperativeMember = CooperativeGroup.TestCase
