"""What a fetch wants of one partition, what was found there, and the answer as it comes together."""

from dataclasses import dataclass
from typing import TypeAlias

from headwater.broker.fetch_session import FetchPartition
from headwater.errors import E, KafkaError
from headwater.log.slices import FileSlice, SliceStream
from headwater.model import NO_EPOCH
from headwater.replication.replica import Replica
from headwater.seams.files import Buffer
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

TopicAnswer: TypeAlias = FetchResponse.FetchableTopicResponse
Divergence: TypeAlias = FetchResponse.EpochEndOffset
Loaded: TypeAlias = bytes | SliceStream


@dataclass(slots=True, eq=False)
class Part:
    """One partition of a fetch: what is wanted and what was found."""

    want: FetchPartition
    replica: Replica | None
    failure: KafkaError | None
    divergence: Divergence | None = None
    found: FileSlice | None = None
    records: Buffer | list[Buffer] | SliceStream | None = None

    def fail(self, failure: Exception) -> None:
        """The bytes cannot be read."""
        if isinstance(failure, KafkaError):
            self.failure = failure
        elif isinstance(failure, OSError) and self.replica is not None:
            self.failure = self.replica.read_failed(failure)
        else:
            self.failure = KafkaError(E.UNKNOWN_SERVER_ERROR, str(failure))

    @property
    def news(self) -> bool:
        """Whether an incremental answer must mention it whatever its marks are."""
        return bool(self.records) or self.failure is not None or self.divergence is not None


def wanted_of(topic: str | bytes, partition: FetchRequest.FetchPartition) -> FetchPartition:
    """What a request wants of one partition."""
    return FetchPartition(
        (topic, partition.partition),
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )


class Answers:
    """The answer of a fetch as it comes together."""

    __slots__ = ("hinted", "topics")

    def __init__(self) -> None:
        self.topics: dict[str | bytes, TopicAnswer] = {}
        self.hinted: set[int] = set()


def load(piece: FileSlice, most: int) -> Loaded | Exception:
    """The bytes of a cold range, or why there are none: one bad disk must not spoil the rest."""
    try:
        return piece.load_up_to(most)
    except (OSError, KafkaError) as failure:
        return failure


def topic_answer(topic: str | bytes) -> TopicAnswer:
    """An empty answer for a topic that is named as the client named it."""
    if isinstance(topic, bytes):
        return TopicAnswer(topic_id=topic)
    return TopicAnswer(topic=topic)


def divergence(replica: Replica, want: FetchPartition) -> Divergence | None:
    """Where the client's history leaves this log's, if it does (KIP-595)."""
    epoch, end = replica.offset_for_epoch(want.last_fetched_epoch)
    if end < 0:
        raise KafkaError(E.OFFSET_OUT_OF_RANGE, "the log does not know the epoch fetched last")
    if epoch == NO_EPOCH:
        raise KafkaError(E.OFFSET_OUT_OF_RANGE)  # an epoch that this log has not reached
    if want.fetch_offset < replica.log_start_offset:
        raise KafkaError(E.OFFSET_OUT_OF_RANGE)  # whatever the reader has instead, it is too old
    if epoch < want.last_fetched_epoch or end < want.fetch_offset:
        return Divergence(epoch=epoch, end_offset=end)
    return None
