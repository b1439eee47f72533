"""Drives a group shard by hand: a virtual clock, replies by name, and a mirror fed with its records."""

from headwater.coordination.deadlines import Now
from headwater.coordination.groups import records
from headwater.coordination.groups.classic import GroupOutcome
from headwater.coordination.groups.commands import (
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Left,
    RebalanceStarted,
    Synced,
    SyncGroup,
)
from headwater.coordination.groups.offsets import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    NewOffset,
    OffsetsDeleted,
    WantedTopic,
)
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import GroupShard, ListGroups
from headwater.coordination.groups.states import GroupState
from headwater.errors import E
from headwater.model import ZERO_UUID, TopicPartition

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
WALL_START = 1_700_000_000_000
DEFAULTS = GroupSettings()


class NoTopics:
    """A cluster without topics."""

    def partition_count(self, topic: str) -> int:
        return 0

    def topic_id(self, topic: str) -> None:
        return None


class Driver:
    """One shard, its clock, and everything it ever answered."""

    def __init__(self, settings: GroupSettings = DEFAULTS) -> None:
        self.settings = settings
        self.monotonic_ms = 0
        self.wall_skew_ms = WALL_START
        self.ids = 0
        self.tokens = 0
        self.waiting: set[int] = set()
        self.answers: dict[int, object] = {}
        self.rebalances: list[RebalanceStarted] = []
        self.log: list[records.CoordinatorRecord] = []
        self.shard = self._new_shard()
        self.run(self.shard.loaded(self.now))

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, NoTopics(), self._new_id)

    def _new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}-{self.ids}"

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, self.monotonic_ms + self.wall_skew_ms)

    def token(self) -> int:
        self.tokens += 1
        self.waiting.add(self.tokens)
        return self.tokens

    def run(self, outcome: GroupOutcome) -> None:
        for record in outcome.records:
            stored = records.decode(*records.encode(record))
            assert stored == record
            self.log.append(record)
            self.shard.replay(record)
        self.rebalances += [it for it in outcome.effects if isinstance(it, RebalanceStarted)]
        for token, answer in outcome.replies:
            assert isinstance(token, int)
            assert token in self.waiting, f"token {token} was answered twice"
            self.waiting.discard(token)
            self.answers[token] = answer

    def advance(self, ms: int) -> None:
        end = self.monotonic_ms + ms
        while (at := self.shard.next_deadline()) is not None and at <= end:
            self.monotonic_ms = max(at, self.monotonic_ms)
            self.run(self.shard.expire(self.now))
        self.monotonic_ms = end

    def restart(self) -> None:
        """The broker dies: only the log is left."""
        self.waiting.clear()
        self.shard = self.replayed()
        self.run(self.shard.loaded(self.now))

    def replayed(self) -> GroupShard:
        fresh = self._new_shard()
        for record in self.log:
            fresh.replay(record)
        return fresh

    def state(self, group: str = "g") -> GroupState:
        return self.shard.groups[group].state

    # Commands. Each returns the token; `x_now` asserts that the answer is there and returns it.

    def join(
        self,
        member: str = "",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"meta"),),
        *,
        client: str = "c",
        group: str = "g",
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        needs_member_id: bool = False,
        may_skip: bool = True,
        reason: str | None = None,
    ) -> int:
        token = self.token()
        command = JoinGroup(
            group, member, instance, protocol_type, protocols, session_ms, rebalance_ms,
            client, "/1.2.3.4", needs_member_id, may_skip, reason,
        )  # fmt: skip
        self.run(self.shard.join(self.now, command, token))
        return token

    def sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        group: str = "g",
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        token = self.token()
        command = SyncGroup(
            group, member, instance, generation, protocol_type, protocol, assignments or {}
        )
        self.run(self.shard.sync(self.now, command, token))
        return token

    def heartbeat(
        self, member: str, generation: int, instance: str | None = None, group: str = "g"
    ) -> E:
        token = self.token()
        self.run(
            self.shard.heartbeat(self.now, Heartbeat(group, member, instance, generation), token)
        )
        answer = self.answers[token]
        assert isinstance(answer, E)
        return answer

    def leave(self, *leavers: Leaver, group: str = "g") -> Left:
        token = self.token()
        self.run(self.shard.leave(self.now, LeaveGroup(group, leavers), token))
        answer = self.answers[token]
        assert isinstance(answer, Left)
        return answer

    def delete_topic(self, topic):
        for step in self.shard.topics_deleted({topic: None}) or ():
            self.run(step)

    def commit(
        self,
        offset: int = 5,
        member: str = "",
        generation: int = -1,
        *,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        instance: str | None = None,
        group: str = "g",
        retention_ms: int = -1,
        unknown: E = E.ILLEGAL_GENERATION,
    ) -> E:
        token = self.token()
        new = NewOffset(topic, ZERO_UUID, partition, offset, -1, metadata)
        command = CommitOffsets(group, member, instance, generation, (new,), retention_ms, unknown)
        self.run(self.shard.commit(self.now, command, token))
        answer = self.answers[token]
        assert isinstance(answer, list)
        (error,) = answer
        assert isinstance(error, E)
        return error

    def committed(self, topic: str = "t", partition: int = 0, group: str = "g") -> int | None:
        token = self.token()
        command = FetchOffsets(group, (WantedTopic(topic, ZERO_UUID, (partition,)),))
        self.run(self.shard.fetch_offsets(self.now, command, token))
        answer = self.answers[token]
        assert isinstance(answer, list)
        found = answer[0].offsets[0]
        return None if found is None else int(found.offset)

    def delete_group(self, group: str = "g") -> E:
        token = self.token()
        self.run(self.shard.delete_group(self.now, group, token))
        answer = self.answers[token]
        assert isinstance(answer, E)
        return answer

    def delete_offsets(self, *partitions: TopicPartition, group: str = "g") -> OffsetsDeleted:
        token = self.token()
        self.run(self.shard.delete_offsets(self.now, DeleteOffsets(group, partitions), token))
        answer = self.answers[token]
        assert isinstance(answer, OffsetsDeleted)
        return answer

    def list_groups(self, states: tuple[str, ...] = (), kinds: tuple[str, ...] = ()) -> list[str]:
        token = self.token()
        command = ListGroups(frozenset(map(str.lower, states)), frozenset(map(str.lower, kinds)))
        self.run(self.shard.list_groups(self.now, command, token))
        answer = self.answers[token]
        assert isinstance(answer, list)
        return sorted(group.group_id for group in answer)

    # Answers

    def joined(self, token: int) -> Joined:
        answer = self.answers[token]
        assert isinstance(answer, Joined)
        return answer

    def synced(self, token: int) -> Synced:
        answer = self.answers[token]
        assert isinstance(answer, Synced)
        return answer

    # Flows

    def form(self, *clients: str, group: str = "g") -> list[str]:
        """A Stable group of dynamic members, the first one leading; their ids."""
        tokens = [self.join(client=client, group=group) for client in clients]
        self.advance(self.settings.initial_rebalance_delay_ms * (len(clients) + 1))
        members = [self.joined(token).member_id for token in tokens]
        self.sync_all(members, self.joined(tokens[0]).generation, group=group)
        return members

    def sync_all(self, members: list[str], generation: int, group: str = "g") -> None:
        tokens = [self.sync(member, generation, group=group) for member in members[1:]]
        shares = {member: b"for " + member.encode() for member in members}
        tokens.append(self.sync(members[0], generation, shares, group=group))
        assert all(self.synced(token).error is E.NONE for token in tokens)
