"""Balanced assignments that move as few partitions as possible.

Members keep what they had, up to a fair share; the rest goes to the members with the fewest. Then
single partitions move until no two members differ by more than one, as far as their subscriptions
allow. The cooperative assignor never assigns a partition that another member still owns: that
member gives it up first, and a second rebalance assigns it.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

from headwater.client.consumer.assignors.assignor import Assignor, GroupMember, Shares
from headwater.model import TopicPartition
from headwater.wire import codec
from headwater.wire.messages.sticky import StickyUserData
from headwater.wire.primitives import WireError

_GENERATION = struct.Struct(">i")


class StickyAssignor(Assignor):
    """Sticky and eager: members send what they had as user data."""

    name = "sticky"

    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """Keep what can be kept, then balance."""
        claims = [(member, *self.claim(member)) for member in members]
        return _Sharing(partitions, members, _kept(partitions, claims)).shares()

    def claim(self, member: GroupMember) -> tuple[Sequence[TopicPartition], int]:
        """Return what a member had, and in which generation."""
        try:
            told, _ = codec.decode(StickyUserData, 1, member.user_data or b"", 0)
        except WireError:
            return (), -1
        had = [
            TopicPartition(topic.topic, number)
            for topic in told.previous_assignment
            for number in topic.partitions
        ]
        return had, told.generation

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Encode what this member had, in the format of Java's sticky assignor."""
        topics: dict[str, StickyUserData.TopicAssignment] = {}
        for topic, number in owned:
            row = topics.setdefault(
                topic, StickyUserData.TopicAssignment(topic=topic, partitions=[])
            )
            row.partitions.append(number)
        told = StickyUserData(previous_assignment=list(topics.values()), generation=generation)
        return codec.encode_bytes(told, 1)


class CooperativeStickyAssignor(StickyAssignor):
    """Sticky, and members continue to read what they keep while the group rebalances."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """Return the sticky assignment without partitions that other members must give up first."""
        shares = super().assign(partitions, members)
        owners = {name: one.member_id for one in members for name in self.claim(one)[0]}
        contested = _contested(members)
        return {
            member_id: [
                name
                for name in share
                if name in contested or owners.get(name, member_id) == member_id
            ]
            for member_id, share in shares.items()
        }

    def claim(self, member: GroupMember) -> tuple[Sequence[TopicPartition], int]:
        """Return what a member owns; old clients send the generation as user data."""
        generation = member.generation
        if generation < 0 and len(member.user_data or b"") >= _GENERATION.size:
            (generation,) = _GENERATION.unpack_from(member.user_data or b"")
        return member.owned, generation

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Encode the generation, for leaders that do not read it from the subscription."""
        return _GENERATION.pack(generation)


Claim = tuple[GroupMember, Sequence[TopicPartition], int]


def _contested(members: Sequence[GroupMember]) -> set[TopicPartition]:
    """Return the partitions that several members claim: only the newest claim is valid."""
    seen: set[TopicPartition] = set()
    twice: set[TopicPartition] = set()
    for member in members:
        for name in member.owned:
            (twice if name in seen else seen).add(name)
    return twice


def _kept(partitions: Mapping[str, int], claims: Iterable[Claim]) -> dict[TopicPartition, str]:
    """Return what each member may keep: the newest claim wins, two of the same age cancel out."""
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, had, generation in claims:
        for name in had:
            if name.topic not in member.topics or name.partition >= partitions.get(name.topic, 0):
                continue
            age, _ = newest.get(name, (generation - 1, None))
            if generation > age:
                newest[name] = (generation, member.member_id)
            elif generation == age:
                newest[name] = (generation, None)
    return {name: owner for name, (_, owner) in newest.items() if owner is not None}


class _Sharing:
    """The state of one assignment while it is computed."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        members: Sequence[GroupMember],
        kept: Mapping[TopicPartition, str],
    ) -> None:
        self._members = sorted(members, key=lambda one: one.rank)
        self._topics = {member.member_id: member.topics for member in members}
        self._shares: dict[str, set[TopicPartition]] = {one: set() for one in self._topics}
        wanted = frozenset[str]().union(*self._topics.values())
        self._all = [
            TopicPartition(topic, number)
            for topic in sorted(wanted & partitions.keys())
            for number in range(partitions[topic])
        ]
        for name, owner in kept.items():
            self._shares[owner].add(name)
        self._kept = kept

    def shares(self) -> Shares:
        """Return the result, with the partitions of each member in order."""
        if len(set(self._topics.values())) == 1:
            self._even_out_alike()
        else:
            self._fill(name for name in self._all if name not in self._kept)
            self._even_out()
        return {member_id: sorted(share) for member_id, share in self._shares.items()}

    def _even_out_alike(self) -> None:
        """Balance equal subscriptions: each member gets `least`, `more` of them one extra."""
        least, more = divmod(len(self._all), len(self._members))
        free = [name for name in self._all if name not in self._kept]
        by_size = sorted(self._members, key=lambda one: -len(self._shares[one.member_id]))
        quotas = {
            member.member_id: least + (number < more) for number, member in enumerate(by_size)
        }
        for member_id, share in self._shares.items():
            surplus = sorted(share)[quotas[member_id] :]
            share.difference_update(surplus)
            free += surplus
        free.sort()
        for member in self._members:
            share = self._shares[member.member_id]
            lacking = quotas[member.member_id] - len(share)
            share.update(free[:lacking])
            del free[:lacking]

    def _takers(self, name: TopicPartition) -> list[str]:
        return [one.member_id for one in self._members if name.topic in one.topics]

    def _fill(self, free: Iterable[TopicPartition]) -> None:
        """Assign free partitions, those with few subscribers first, to the members with least."""
        takers = {
            topic: self._takers(TopicPartition(topic, 0)) for topic in {n.topic for n in self._all}
        }
        for name in sorted(free, key=lambda one: (len(takers[one.topic]), one)):
            taker = min(takers[name.topic], key=lambda one: len(self._shares[one]))
            self._shares[taker].add(name)

    def _even_out(self) -> None:
        """Move single partitions while that reduces the difference between two members."""
        moved = True
        while moved:
            moved = any(self._moved_from(one.member_id) for one in self._members)

    def _moved_from(self, giver: str) -> bool:
        for name in sorted(self._shares[giver]):
            taker = min(self._takers(name), key=lambda one: len(self._shares[one]))
            if len(self._shares[taker]) + 1 < len(self._shares[giver]):
                self._shares[giver].remove(name)
                self._shares[taker].add(name)
                return True
        return False
