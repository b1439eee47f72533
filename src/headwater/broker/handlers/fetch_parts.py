"""One partition of a fetch, the bytes found for it, and the response under construction."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from headwater.broker.context import Context
from headwater.broker.fetch_session import FetchPartition, Key
from headwater.broker.handlers.leader_hints import newest_leader
from headwater.errors import E, KafkaError
from headwater.log.slices import FileSlice, SliceStream
from headwater.model import NO_EPOCH
from headwater.replication.replica import Replica
from headwater.seams.files import Buffer
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

FIRST_WITH_LEADER_HINT = 16

TopicAnswer: TypeAlias = FetchResponse.FetchableTopicResponse
Divergence: TypeAlias = FetchResponse.EpochEndOffset
Loaded: TypeAlias = bytes | SliceStream


@dataclass(slots=True, eq=False)
class Part:
    """One partition of a fetch and its result."""

    want: FetchPartition
    replica: Replica | None
    failure: KafkaError | None
    divergence: Divergence | None = None
    found: FileSlice | None = None
    preferred: int = -1
    """The replica from which the consumer reads instead."""
    records: Buffer | list[Buffer] | SliceStream | None = None

    def fail(self, failure: Exception) -> None:
        """Set the error of the partition: its bytes cannot be read."""
        if isinstance(failure, KafkaError):
            self.failure = failure
        elif isinstance(failure, OSError) and self.replica is not None:
            self.failure = self.replica.read_failed(failure)
        else:
            self.failure = KafkaError(E.UNKNOWN_SERVER_ERROR, str(failure))

    @property
    def news(self) -> bool:
        """Return whether an incremental response must include it even without changed offsets."""
        return bool(self.records) or self.is_urgent

    @property
    def is_urgent(self) -> bool:
        """Whether the reader must not wait for more before it hears of this."""
        return self.failure is not None or self.divergence is not None or self.preferred >= 0


def add_wanted(
    wanted: dict[Key, FetchPartition],
    topic: str | bytes,
    partitions: Iterable[FetchRequest.FetchPartition],
) -> None:
    """Add what a request wants of partitions; of one that it names again, the last counts.

    Otherwise a partition that is named thousands of times would be checked so often after each write.
    """
    for partition in partitions:
        key = topic, partition.partition
        wanted[key] = FetchPartition(
            key,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )


class Answers:
    """The response of a fetch under construction."""

    __slots__ = ("hinted", "served", "topics")

    def __init__(self) -> None:
        self.topics: dict[str | bytes, TopicAnswer] = {}
        # Leaders whose addresses the client needs.
        self.hinted: set[int] = set()
        # The partitions with records, of a session.
        self.served: list[FetchPartition] = []


def load(piece: FileSlice, most: int) -> Loaded | Exception:
    """Return the bytes of a cold range, or the exception: a bad disk must not fail other parts."""
    try:
        return piece.load_up_to(most)
    except (OSError, KafkaError) as failure:
        return failure


def topic_answer(topic: str | bytes) -> TopicAnswer:
    """Return an empty response for a topic, by name or id as in the request."""
    if isinstance(topic, bytes):
        return TopicAnswer(topic_id=topic)
    return TopicAnswer(topic=topic)


def divergence(replica: Replica, want: FetchPartition) -> Divergence | None:
    """Return where the client's log diverges from this log, if it does (KIP-595)."""
    if want.last_fetched_epoch > replica.leader_epoch:
        raise KafkaError(E.UNKNOWN_LEADER_EPOCH)  # the reader has seen a newer leader
    epoch, end = replica.offset_for_epoch(want.last_fetched_epoch)
    if end < 0:
        raise KafkaError(E.OFFSET_OUT_OF_RANGE, "the last fetched epoch is unknown to this log")
    if epoch == NO_EPOCH:
        raise KafkaError(E.OFFSET_OUT_OF_RANGE)  # an epoch that this log has not reached
    if want.fetch_offset < replica.log_start_offset:
        raise KafkaError(E.OFFSET_OUT_OF_RANGE)  # the reader's epoch is older
    if epoch < want.last_fetched_epoch or end < want.fetch_offset:
        return Divergence(epoch=epoch, end_offset=end)
    return None


def aborted_transactions(
    part: Part, replica: Replica
) -> list[FetchResponse.AbortedTransaction] | None:
    """Return the aborted transactions among the records of a read_committed consumer.

    Without the whole list, the consumer gets the error and no records.
    """
    if not part.records or part.found is None:
        return []
    try:
        aborted = replica.aborted_transactions(part.want.fetch_offset, part.found)
    except (OSError, KafkaError) as failure:
        part.fail(failure)
        part.records = None
        return None
    return [
        FetchResponse.AbortedTransaction(producer_id=row.producer_id, first_offset=row.first_offset)
        for row in aborted
    ]


def hint_leader(
    context: Context,
    part: Part,
    answer: FetchResponse.PartitionData,
    version: int,
    hinted: set[int],
) -> None:
    """Add the current leader for a client that asked the wrong broker (KIP-951)."""
    if version < FIRST_WITH_LEADER_HINT or answer.error_code not in (
        E.NOT_LEADER_OR_FOLLOWER,
        E.FENCED_LEADER_EPOCH,
    ):
        return
    topic, index = part.want.key
    name = context.metadata.name_of.get(topic, "") if isinstance(topic, bytes) else topic
    leader, epoch = newest_leader(context, name, index)
    answer.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    hinted.add(leader)
