"""The promises of the broker, what clients saw, and the invariants that connect them.

The numbers are those of the list of invariants: I1 acknowledged records stay, I2 an offset is
used once, I3 idempotent producers write once and in order, I4 no client reads above the high
watermark, I12 committed offsets do not go back, I18 a topic shows nothing of an earlier topic of
its name. A process crash excuses nothing. A power failure excuses only the loss of a tail that was
never acknowledged as synced (`forgive`).
"""

from collections.abc import Callable, Mapping
from functools import partial

from headwater.model import TopicPartition
from simulator.incarnations import Attempt, Incarnation, Name
from simulator.partition_promises import CommitPromises, Complain, PartitionPromises, Value

__all__ = ["FAR_OFFSET", "CommitPromises", "PartitionPromises", "Promises", "Value"]

FAR_OFFSET = 1 << 62


class Promises:
    """All promises to the clients of a run."""

    def __init__(self, complain: Complain, *, all_synced: bool) -> None:
        self.complain = complain
        self.all_synced = all_synced
        self.names: dict[str, Name] = {}
        self.partitions: dict[TopicPartition, PartitionPromises] = {}
        """The promises of the newest topic of each name."""
        self.commits: dict[tuple[str, int], CommitPromises] = {}
        self.topics: dict[str, int] = {}
        """Partition counts of topics that certainly exist and that no client deletes."""
        self.committed_end: Callable[[TopicPartition], int] = lambda _: FAR_OFFSET
        """Returns where the committed part of a partition ends: no consumer may get more."""
        self._producer_ids: dict[int, str] = {}

    def add_topic(
        self, name: str, partitions: int, *, synced: bool, forgetful: bool = False
    ) -> None:
        """Add a topic whose records are watched; a forgetful one drops its oldest records."""
        self.topics[name] = partitions
        self.begin(name, partitions, synced=synced, forgetful=forgetful, now_us=0)

    def begin(
        self, name: str, partitions: int, *, synced: bool, forgetful: bool, now_us: int
    ) -> Incarnation:
        """Note the request to create a watched topic; an earlier one may have had its name."""
        lives = self.names.setdefault(name, Name())
        incarnation = Incarnation(name, now_us)
        for index in range(partitions):
            at = TopicPartition(name, index)
            books = PartitionPromises(at, self.complain, synced or self.all_synced)
            books.may_start_at = FAR_OFFSET if forgetful else 0
            if at in self.partitions:
                books.sent = self.partitions[at].sent
            books.may_hold = partial(lives.may_hold, incarnation)
            self.partitions[at] = books
            incarnation.partitions.append(books)
        lives.incarnations.append(incarnation)
        return incarnation

    def told_ids(self, topic_ids: Mapping[str, bytes]) -> None:
        """Note topic ids that a client learned."""
        for name, lives in self.names.items():
            if name in topic_ids:
                lives.with_id(topic_ids[name])

    def attempt(self, name: str, values: list[bytes], attempt: Attempt) -> None:
        """Note an attempt to send these records."""
        attempts = self.names[name].attempts
        for value in values:
            attempts.setdefault(value, []).append(attempt)

    def acknowledged(self) -> int:
        """The number of acknowledged records, of all topics ever."""
        return sum(
            len(books.acknowledged)
            for lives in self.names.values()
            for topic in lives.incarnations
            for books in topic.partitions
        )

    def created_again(self) -> int:
        """How many topics took the name of another one, as far as anybody was told."""
        return sum(
            topic.topic_id is not None
            for lives in self.names.values()
            for topic in lives.incarnations[1:]
        )

    def written_again(self) -> int:
        """The number of recreated topics that acknowledged records."""
        return sum(
            any(books.acknowledged for books in topic.partitions)
            for lives in self.names.values()
            for topic in lives.incarnations[1:]
        )

    def commits_of(self, group: str, partition: int) -> CommitPromises:
        """Return the commits of a group for a partition."""
        key = (group, partition)
        if key not in self.commits:
            self.commits[key] = CommitPromises(
                f"{group}/{partition}", self.complain, self.all_synced
            )
        return self.commits[key]

    def producer_id_given(self, producer_id: int, producer: str) -> None:
        """Check that an id belongs to one producer forever."""
        owner = self._producer_ids.setdefault(producer_id, producer)
        if owner != producer:
            self.complain(f"I3: producer id {producer_id} given to {owner} and to {producer}")
