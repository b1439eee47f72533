"""A group shard under any order of joins, syncs, crashes, leaves, commits, silence and restarts."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.coordination.groups.classic import ClassicGroup
from headwater.coordination.groups.commands import Joined, Leaver
from headwater.coordination.groups.group_deadlines import JOIN_PHASE, SESSION, SYNC_PHASE
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import OFFSET_CHECK
from headwater.coordination.groups.states import GroupState
from headwater.errors import E
from tests.unit.coordination.group_driver import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver

GROUPS = st.sampled_from(["g", "h"])
INSTANCES = st.sampled_from([None, None, "one", "two"])
PROTOCOLS = st.sampled_from(
    [
        (("range", b"a"),),
        (("range", b"b"), ("sticky", b"b")),
        (("sticky", b"c"), ("range", b"c")),
        (("other", b""),),
    ]
)
PICK = st.integers(0, 7)


class GroupShardMachine(RuleBasedStateMachine):
    """Clients that do anything, and what must hold whatever they do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, str | None]] = []  # group, member id, instance id
        self.asked: dict[int, tuple[str, str | None]] = {}
        self.leaders: dict[tuple[ClassicGroup, int], str] = {}
        self.generations: dict[ClassicGroup, int] = {}

    @initialize(delay_ms=st.sampled_from([DELAY_MS, 2 * SESSION_MS]))
    def start(self, delay_ms):
        """An id that nobody joins with may expire while a new group waits for its members."""
        self.driver = Driver(GroupSettings(max_size=5, initial_rebalance_delay_ms=delay_ms))

    def pick(self, place: int) -> tuple[str, str, str | None]:
        return self.seen[-1 - place % len(self.seen)] if self.seen else ("g", "ghost", None)

    def generation(self, group: str, offset: int = 0) -> int:
        known = self.driver.shard.groups.get(group)
        return (known.current.number if known else 0) + offset

    @rule(
        group=GROUPS,
        instance=INSTANCES,
        protocols=PROTOCOLS,
        needs=st.booleans(),
        skip=st.booleans(),
    )
    def join(self, group, instance, protocols, needs, skip):
        token = self.driver.join(
            "", instance, protocols, group=group, needs_member_id=needs, may_skip=skip
        )
        self.asked[token] = group, instance

    @rule(place=PICK, protocols=PROTOCOLS)
    def rejoin(self, place, protocols):
        group, member, instance = self.pick(place)
        self.asked[self.driver.join(member, instance, protocols, group=group)] = group, instance

    @rule(place=PICK, stale=st.sampled_from([0, 0, 0, -1]))
    def sync(self, place, stale):
        group, member, instance = self.pick(place)
        shares = {each: each.encode() for _, each, _ in self.seen}
        self.driver.sync(
            member, self.generation(group, stale), shares, instance=instance, group=group
        )

    @rule(group=GROUPS)
    def everyone_does_what_a_client_does(self, group):
        """Rejoin and sync as well-behaved clients would, so that Stable is reached often."""
        known = self.driver.shard.groups.get(group)
        if known is None:
            return
        for member in list(known.members.by_id.values()):
            if known.state is GroupState.PREPARING_REBALANCE and member.join_token is None:
                token = self.driver.join(
                    member.member_id, member.instance_id, member.protocols, group=group
                )
                self.asked[token] = group, member.instance_id
        for member_id in list(known.members.by_id):
            if known.state is GroupState.COMPLETING_REBALANCE:
                self.driver.sync(member_id, known.current.number, {member_id: b"x"}, group=group)

    @rule(place=PICK, stale=st.sampled_from([0, 0, 1]))
    def heartbeat(self, place, stale):
        group, member, instance = self.pick(place)
        self.driver.heartbeat(member, self.generation(group, stale), instance, group)

    @rule(places=st.lists(PICK, min_size=1, max_size=3), by_instance=st.booleans())
    def leave(self, places, by_instance):
        group = self.pick(places[0])[0]
        picked = [self.pick(place) for place in places]
        leavers = [
            Leaver("" if by_instance and instance else member, instance)
            for of, member, instance in picked
            if of == group
        ]
        self.driver.leave(*leavers, group=group)

    @rule(group=GROUPS)
    def everybody_leaves(self, group):
        """Except for those who have an id and did not join with it."""
        known = self.driver.shard.groups.get(group)
        if known is not None:
            self.driver.leave(*[Leaver(one) for one in known.members.by_id], group=group)

    @rule(place=PICK, offset=st.integers(0, 100), simple=st.booleans())
    def commit(self, place, offset, simple):
        group, member, instance = self.pick(place)
        if simple:
            self.driver.commit(offset, group=group)
            return
        before = self.driver.committed(group=group)
        error = self.driver.commit(
            offset, member, self.generation(group), instance=instance, group=group
        )
        expected = offset if error is E.NONE else before
        assert self.driver.committed(group=group) == expected

    @rule(ms=st.sampled_from([0, 1, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, ms):
        self.driver.advance(ms)

    @rule(group=GROUPS)
    def delete(self, group):
        self.driver.delete_group(group)

    @rule()
    def restart(self):
        self.driver.restart()

    @invariant()
    def answers_are_consistent(self):
        """No two leaders in a generation, and generations only grow while the shard lives."""
        for token in [token for token in self.asked if token in self.driver.answers]:
            group, instance = self.asked.pop(token)
            answer = self.driver.answers[token]
            assert isinstance(answer, Joined)
            if answer.error in (E.NONE, E.MEMBER_ID_REQUIRED):
                self.seen.append((group, answer.member_id, instance))
            if answer.error is not E.NONE or answer.skip_assignment or not answer.members:
                continue
            assert answer.leader == answer.member_id
            era = (self.driver.shard.groups[group], answer.generation)
            assert self.leaders.setdefault(era, answer.leader) == answer.leader

    @invariant()
    def generations_grow(self):
        for group in self.driver.shard.groups.values():
            assert group.current.number >= self.generations.get(group, 0)
            self.generations[group] = group.current.number

    @invariant()
    def every_waiting_token_is_parked(self):
        parked = self.driver.shard.parked()
        assert len(parked) == len(set(parked))
        assert set(parked) == self.driver.waiting

    @invariant()
    def the_log_gives_the_hard_state(self):
        fresh = self.driver.replayed()
        assert fresh.stored == self.driver.shard.stored
        assert fresh.offsets == self.driver.shard.offsets

    @invariant()
    def what_is_stable_is_stored(self):
        for group_id, group in self.driver.shard.groups.items():
            if group.state is GroupState.STABLE:
                stored = group.current.to_stored(group.state_timestamp)
                assert stored == self.driver.shard.stored[group_id]

    @invariant()
    def every_state_with_members_has_a_deadline(self):
        deadlines = self.driver.shard._deadlines
        for group_id, group in self.driver.shard.groups.items():
            if group.state is GroupState.PREPARING_REBALANCE:
                assert (group_id, JOIN_PHASE, "") in deadlines
            if group.state is GroupState.COMPLETING_REBALANCE:
                assert (group_id, SYNC_PHASE, "") in deadlines
            if group.state is GroupState.EMPTY:
                assert not group.members.by_id
            if group.state is GroupState.STABLE:
                assert group.members.leader in group.members
                for member_id in group.members.by_id:
                    assert (group_id, SESSION, member_id) in deadlines

    @invariant()
    def no_deadline_outlives_its_group(self):
        for group_id, what, _ in self.driver.shard._deadlines._at:
            assert what == OFFSET_CHECK or group_id in self.driver.shard.groups

    def teardown(self):
        """Everyone falls silent: every token is answered and every group empties."""
        self.driver.advance(20 * REBALANCE_MS)
        assert self.driver.waiting == set()
        for group in self.driver.shard.groups.values():
            assert group.state is GroupState.EMPTY


GroupShardMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_group_shard_keeps_its_promises = GroupShardMachine.TestCase
