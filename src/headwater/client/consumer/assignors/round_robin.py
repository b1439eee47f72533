"""Assigns the partitions of all topics to the members in turn."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from headwater.client.consumer.assignors.assignor import Assignor, GroupMember, Shares
from headwater.model import TopicPartition


class RoundRobinAssignor(Assignor):
    """One partition each, in turn; members without a subscription to the topic are skipped."""

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """Assign the partitions in the order of topics and numbers, as Java's assignor does."""
        shares: Shares = {member.member_id: [] for member in members}
        turns = cycle(sorted(members, key=lambda one: one.rank))
        wanted = frozenset[str]().union(*(member.topics for member in members))
        for topic in sorted(wanted & partitions.keys()):
            for number in range(partitions[topic]):
                taker = next(member for member in turns if topic in member.topics)
                shares[taker.member_id].append(TopicPartition(topic, number))
        return shares
