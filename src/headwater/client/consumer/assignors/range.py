"""Assigns each topic separately: members get contiguous ranges, the first ones one more if needed.

Topics with the same number of partitions and the same members are assigned alike, so that records
with one key in two such topics reach the same member.
"""

from collections.abc import Mapping, Sequence

from headwater.client.consumer.assignors.assignor import Assignor, GroupMember, Shares, subscribers
from headwater.model import TopicPartition


class RangeAssignor(Assignor):
    """Contiguous ranges of partitions, topic by topic."""

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """Assign `count / members` consecutive partitions of each topic, as Java does."""
        shares: Shares = {member.member_id: [] for member in members}
        for topic, wanting in sorted(subscribers(members).items()):
            count = partitions.get(topic, 0)
            each, more = divmod(count, len(wanting))
            first = 0
            for number, member in enumerate(wanting):
                after = first + each + (number < more)
                shares[member.member_id] += [TopicPartition(topic, n) for n in range(first, after)]
                first = after
        return shares
