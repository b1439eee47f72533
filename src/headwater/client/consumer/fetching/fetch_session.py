"""A fetch session with one broker: after the first request only changes are sent (KIP-227). Pure."""

from typing import NamedTuple

from headwater.errors import E
from headwater.model import Uuid
from headwater.wire.messages.fetch import FetchRequest

_FULL = 0
_LAST_EPOCH = 2**31 - 1
_SESSION_ERRORS = frozenset(
    {
        E.FETCH_SESSION_ID_NOT_FOUND,
        E.INVALID_FETCH_SESSION_EPOCH,
        E.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchTarget(NamedTuple):
    """The fetch parameters of one partition."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    leader_epoch: int
    last_epoch: int
    version: int
    """For the client only; not sent to the broker."""


_PartitionKey = tuple[Uuid, str, int]


class FetchSession:
    """The session's partitions, as last sent to the broker."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = _FULL
        self._told: dict[_PartitionKey, FetchTarget] = {}

    def fill(self, request: FetchRequest, wanted: list[FetchTarget], max_bytes: int) -> None:
        """Fill `request` with the changes since the last one."""
        now: dict[_PartitionKey, FetchTarget] = {
            (row.topic_id, row.topic, row.partition): row for row in wanted
        }
        request.session_id, request.session_epoch = self._id, self._epoch
        told = {} if self._epoch == _FULL else self._told
        news = [row for key, row in now.items() if not _same(told.get(key), row)]
        request.topics = _topics(news, max_bytes)
        request.forgotten_topics_data = _forgotten([key for key in told if key not in now])
        self._told = now

    def answered(self, error: int, session_id: int) -> bool:
        """Apply the session part of a response; return False if a full request must follow."""
        if error in _SESSION_ERRORS:
            self.restart()
            return False
        self._id = session_id
        self._epoch = _FULL if not session_id else self._epoch % _LAST_EPOCH + 1
        return True

    def restart(self) -> None:
        """Send everything again: the broker or the connection is new."""
        self._id, self._epoch = 0, _FULL

    def replace(self) -> None:
        """Send everything again; the broker closes the session that this one replaces."""
        self._epoch = _FULL


def _same(told: FetchTarget | None, row: FetchTarget) -> bool:
    return told is not None and told[:-1] == row[:-1]


def _topics(rows: list[FetchTarget], max_bytes: int) -> list[FetchRequest.FetchTopic]:
    topics: dict[str, FetchRequest.FetchTopic] = {}
    for row in rows:
        topic = topics.get(row.topic)
        if topic is None:
            topic = FetchRequest.FetchTopic(topic=row.topic, topic_id=row.topic_id, partitions=[])
            topics[row.topic] = topic
        topic.partitions.append(
            FetchRequest.FetchPartition(
                partition=row.partition,
                current_leader_epoch=row.leader_epoch,
                fetch_offset=row.offset,
                last_fetched_epoch=row.last_epoch,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(keys: list[_PartitionKey]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[tuple[Uuid, str], FetchRequest.ForgottenTopic] = {}
    for topic_id, name, partition in keys:
        topic = topics.setdefault(
            (topic_id, name),
            FetchRequest.ForgottenTopic(topic=name, topic_id=topic_id, partitions=[]),
        )
        topic.partitions.append(partition)
    return list(topics.values())
