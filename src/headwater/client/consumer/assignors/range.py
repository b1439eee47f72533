"""Each topic for itself: members get runs of partitions, the first ones one more where need be.

Topics with equally many partitions and the same members are shared alike, so that records of one
key in two such topics meet at one member.
"""

from collections.abc import Mapping, Sequence

from headwater.client.consumer.assignors.assignor import Assignor, GroupMember, Shares, subscribers
from headwater.model import TopicPartition


class RangeAssignor(Assignor):
    """Runs of partitions, topic by topic."""

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Sequence[GroupMember]) -> Shares:
        """For each topic `count / members` in a row, as Java's does."""
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
