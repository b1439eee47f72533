"""The fetches of a follower from one leader: builds requests and interprets answers. Pure.

One instance serves one connection to one leader, with any number of partitions. A partition is
*ready*, *busy* (its log is being truncated or flushed) or *delayed* after a failure. Only ready ones
are fetched, so one partition never stops the others. The leader keeps the partitions in a fetch
session (KIP-227): a request lists what changed since the last one, and no step iterates over the
partitions that did not change.

An answer is valid only for the state in which it was requested: a partition whose leader epoch or
offset changed while the fetch was in flight ignores it.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headwater.errors import E
from headwater.model import NO_EPOCH, TopicPartition, Uuid
from headwater.replication.following import LogPosition
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

FULL_EPOCH = 0
MAX_LISTED = 500
"""The most partitions added to a session by one request, to bound the request and its answer."""
FIRST_BACKOFF_MS = 25
"""The first delay is short: a new leader is often asked before it knows that it leads."""
_LAST_EPOCH = 2**31 - 1

_Key: TypeAlias = tuple[Uuid, int]
_PartitionAnswer: TypeAlias = FetchResponse.PartitionData

SESSION_ERRORS = frozenset(
    {
        E.FETCH_SESSION_ID_NOT_FOUND,
        E.INVALID_FETCH_SESSION_EPOCH,
        E.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The leader has dropped the session: the next request is a full one."""


# -- effects


class AppendFetched(NamedTuple):
    """Append the batches and apply the leader's offsets: both logs agree up to here."""

    topic_partition: TopicPartition
    leader_epoch: int
    records: "bytes | memoryview | None"
    high_watermark: int
    log_start: int


class CutDiverging(NamedTuple):
    """This log diverges from the leader's, whose records of `epoch` end at `end`."""

    topic_partition: TopicPartition
    leader_epoch: int
    epoch: int
    end: int


class RestartLog(NamedTuple):
    """The leader has deleted what follows this log: restart at the start of the leader's log."""

    topic_partition: TopicPartition
    leader_epoch: int
    start: int


class ReportError(NamedTuple):
    """The leader refuses the partition, which is delayed."""

    topic_partition: TopicPartition
    error: int


FetchEffect: TypeAlias = AppendFetched | CutDiverging | RestartLog | ReportError


# -- partitions


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """One partition that is fetched from this machine's leader."""

    topic_partition: TopicPartition
    key: _Key
    leader_epoch: int
    position: LogPosition
    busy: bool = False
    delayed_until_ms: int | None = None
    failures: int = 0
    """The number of consecutive failures, of the leader or of the disk."""
    session: int = -1
    """The session that has the partition, with this leader epoch and position."""
    listed_epoch: int = NO_EPOCH
    listed_position: LogPosition | None = None
    listed_in: int = 0
    """The number of the request that listed it so: answers to earlier ones begin elsewhere."""
    grows_from: int = 0
    """The number of the request since which it has only grown, by what this leader epoch sent."""
    missed: bool = False
    """Whether an answer was ignored: the session does not send its high watermark again."""

    @property
    def ready(self) -> bool:
        return not self.busy and self.delayed_until_ms is None

    @property
    def is_as_listed(self) -> bool:
        return self.listed_epoch == self.leader_epoch and self.listed_position == self.position

    @property
    def has_grown(self) -> bool:
        """Whether it was listed in this leader epoch, and nothing has been cut off since."""
        listed = self.listed_position
        in_epoch = self.listed_epoch == self.leader_epoch
        return in_epoch and listed is not None and listed.end <= self.position.end


class FollowerLimits(NamedTuple):
    """The `replica.fetch.*` settings of a fetch."""

    max_bytes: int
    response_max_bytes: int
    min_bytes: int
    wait_max_ms: int


class FollowerFetch:
    """The partitions that one connection fetches from one leader."""

    def __init__(self, replica_id: int, backoff_ms: int) -> None:
        # Never changed: requests share it.
        self._replica_state = FetchRequest.ReplicaState(replica_id=replica_id)
        self._backoff_ms = backoff_ms
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        self._by_key: dict[_Key, FollowedPartition] = {}
        # Partitions whose entry in the session may have to change, in the order they came.
        self._changed: dict[_Key, None] = {}
        # Those that are not known to have caught up; a throttle may put them off.
        self._lagging: dict[TopicPartition, FollowedPartition] = {}
        self._delayed: list[tuple[int, int, FollowedPartition]] = []
        self._sequence = 0
        # Our own number of the session; the leader's id and epoch of it.
        self._session = 0
        self._session_id = 0
        self._session_epoch = FULL_EPOCH
        self._has_no_session = False
        """Whether the leader granted none to the last full request."""
        self._listed = 0
        """How many partitions the session has."""
        self.urgent = False
        """Whether a partition became ready that the fetch in flight does not include."""
        self.requests = 0
        """How many fetches were made: the number of the last one."""
        # The request that began the session; how many partitions were forgotten to be listed again.
        self._first_request = 1
        self._relisted = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._partitions

    # -- what is followed

    def follow(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        leader_epoch: int,
        position: LogPosition,
    ) -> None:
        """Fetch the partition from `position` on, as a follower in `leader_epoch`."""
        self.unfollow(topic_partition)
        key = topic_id, topic_partition.partition
        before = self._by_key.get(key)
        followed = FollowedPartition(topic_partition, key, leader_epoch, position)
        if before is not None:
            followed.session = before.session
        self._partitions[topic_partition] = self._by_key[key] = followed
        self._lagging[topic_partition] = followed
        self._changed[key] = None
        self.urgent = True

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """Stop fetching the partition."""
        followed = self._partitions.pop(topic_partition, None)
        self._lagging.pop(topic_partition, None)
        if followed is not None:
            followed.busy = True
            self._changed[followed.key] = None

    def epoch_of(self, topic_partition: TopicPartition) -> int:
        """Return the epoch that the partition is followed in, -1 if it is not."""
        followed = self._partitions.get(topic_partition)
        return NO_EPOCH if followed is None else followed.leader_epoch

    # -- what happened to a partition

    def moved(self, topic_partition: TopicPartition, position: LogPosition) -> None:
        """Fetch from `position`, the written end of the log, unless a failure delays it."""
        followed = self._partitions.get(topic_partition)
        if followed is not None:
            self.urgent = self.urgent or followed.busy
            followed.busy = False
            followed.position = position
            if followed.session != self._session or not followed.is_as_listed:
                self._changed[followed.key] = None

    def hold(self, topic_partition: TopicPartition) -> None:
        """Fetch nothing until `moved`: the log is being truncated or flushed."""
        followed = self._partitions.get(topic_partition)
        if followed is not None and not followed.busy:
            followed.busy = True
            self._changed[followed.key] = None

    def delay(self, now_ms: int, topic_partition: TopicPartition) -> None:
        """Fetch the partition again after a delay that grows with its failures."""
        followed = self._partitions.get(topic_partition)
        if followed is not None and followed.delayed_until_ms is None:
            self._delay_until(now_ms + backoff(self._backoff_ms, followed.failures), followed)
            followed.failures += 1

    def _delay_until(self, due_ms: int, followed: FollowedPartition) -> None:
        followed.delayed_until_ms = due_ms
        self._sequence += 1
        heapq.heappush(self._delayed, (due_ms, self._sequence, followed))
        self._changed[followed.key] = None

    def lags(self, topic_partition: TopicPartition, lag: int) -> None:
        """The log is so far behind the leader's high watermark."""
        followed = self._partitions.get(topic_partition)
        if followed is None or lag <= 0:
            self._lagging.pop(topic_partition, None)
        else:
            self._lagging[topic_partition] = followed

    def put_off_lagging(self, due_ms: int, is_throttled: Callable[[TopicPartition], bool]) -> None:
        """Fetch nothing until then for the partitions that lag and are throttled."""
        for at, followed in list(self._lagging.items()):
            if followed.ready and is_throttled(at):
                del self._lagging[at]
                self._delay_until(due_ms, followed)

    def next_due_ms(self) -> int | None:
        """Return when the first delayed partition is due."""
        return self._delayed[0][0] if self._delayed else None

    def end_delays(self, now_ms: int) -> None:
        """Let the partitions that are due be fetched again."""
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, _, followed = heapq.heappop(self._delayed)
            followed.delayed_until_ms = None
            if self._partitions.get(followed.topic_partition) is followed:
                self._lagging[followed.topic_partition] = followed
                self._changed[followed.key] = None
                self.urgent = True

    # -- asking

    @property
    def in_session(self) -> bool:
        """Whether a second request may be sent while the first waits: it ends the wait."""
        return self._session_id != 0

    def next_request(
        self, now_ms: int, broker_epoch: int, limits: FollowerLimits
    ) -> FetchRequest | None:
        """Return the next fetch, None if no partition is ready."""
        self.end_delays(now_ms)
        self.requests += 1
        listed, forgotten = self._changes()
        self.urgent = bool(self._relisted)
        if not self._listed:
            self._reset_session()
            if not self.urgent:
                return None
            self._first_request, self.urgent = self.requests, False
            listed, forgotten = self._changes()
        is_full, epoch = self._session_id == 0, self._session_epoch
        if not is_full:
            self._session_epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        # The answer to the first request has the session, which every later one needs.
        at_once = is_full and not self._has_no_session
        state = self._replica_state
        if state.replica_epoch != broker_epoch:
            replica_id = state.replica_id
            state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch)
            self._replica_state = state
        return FetchRequest(
            replica_state=state,
            max_wait_ms=0 if at_once else limits.wait_max_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_max_bytes,
            session_id=self._session_id,
            session_epoch=epoch,
            topics=_by_topic(listed, limits.max_bytes),
            forgotten_topics_data=[] if is_full else _forgotten(forgotten),
        )

    def _changes(self) -> tuple[list[FollowedPartition], list[_Key]]:
        """List what changes in the session: new, moved and removed partitions."""
        listed: list[FollowedPartition] = []
        forgotten: list[_Key] = []
        added = 0
        later: list[_Key] = []
        changed, self._changed = self._changed, {}
        self._relisted = 0
        for key in changed:
            followed = self._by_key[key]
            missed = followed.missed and followed.session == self._session
            followed.missed = False
            if not followed.ready or missed:
                if followed.session == self._session:
                    followed.session = -1
                    self._listed -= 1
                    forgotten.append(key)
                if self._partitions.get(followed.topic_partition) is not followed:
                    del self._by_key[key]
                elif followed.ready:
                    self._relisted += 1
                    later.append(key)
                continue
            if followed.session != self._session:
                if added == MAX_LISTED:
                    later.append(key)
                    continue
                added += 1
                self._listed += 1
                followed.session = self._session
                followed.grows_from = self.requests
            elif followed.is_as_listed:
                continue
            elif not followed.has_grown:
                followed.grows_from = self.requests
            followed.listed_epoch = followed.leader_epoch
            followed.listed_position = followed.position
            followed.listed_in = self.requests
            listed.append(followed)
        self._changed.update(dict.fromkeys(later))
        return listed, forgotten

    # -- what came back

    def answered(self, now_ms: int, response: FetchResponse, request: int) -> Iterator[FetchEffect]:
        """Yield the effects of the answer to a request; the session continues, or starts again."""
        if request < self._first_request:
            return
        if response.error_code:
            self._reset_session()
            return
        if not self._session_id:
            self._session_id = response.session_id
            self._session_epoch = 1
            self._has_no_session = not response.session_id
        for topic in response.responses:
            for answer in topic.partitions:
                followed = self._by_key.get((topic.topic_id, answer.partition_index))
                if followed is None or followed.session != self._session:
                    continue
                if followed.ready and followed.is_as_listed and followed.listed_in <= request:
                    yield self._effect(now_ms, followed, answer)
                elif followed.ready and followed.has_grown and followed.grows_from <= request:
                    yield from self._mark(followed, answer)
                else:
                    followed.missed = True
                    self._changed[followed.key] = None
        if not self._session_id:
            self._reset_session()

    def failed(self) -> None:
        """No answer came: the state of the leader's session is unknown."""
        self._reset_session()

    def _effect(
        self, now_ms: int, followed: FollowedPartition, answer: _PartitionAnswer
    ) -> FetchEffect:
        at, epoch = followed.topic_partition, followed.leader_epoch
        if answer.error_code == E.NONE:
            diverging = answer.diverging_epoch
            if diverging.epoch >= 0:
                self.hold(at)
                return CutDiverging(at, epoch, diverging.epoch, diverging.end_offset)
            followed.failures = 0
            return AppendFetched(
                at, epoch, answer.records, answer.high_watermark, answer.log_start_offset
            )
        if answer.error_code == E.OFFSET_OUT_OF_RANGE and self._lost(followed, answer):
            self.hold(at)
            return RestartLog(at, epoch, answer.log_start_offset)
        self.delay(now_ms, at)
        return ReportError(at, answer.error_code)

    def _mark(self, followed: FollowedPartition, answer: _PartitionAnswer) -> Iterator[FetchEffect]:
        """Yield the high watermark of an answer whose records are there already: it comes only once."""
        if answer.error_code == E.NONE and answer.diverging_epoch.epoch < 0:
            yield AppendFetched(
                followed.topic_partition, followed.leader_epoch, None, answer.high_watermark,
                answer.log_start_offset,
            )  # fmt: skip

    def _lost(self, followed: FollowedPartition, answer: _PartitionAnswer) -> bool:
        """Whether the leader's log begins after this one, or this one has no record to keep."""
        start, position = answer.log_start_offset, followed.position
        return start >= 0 and (position.end < start or position.last_epoch == NO_EPOCH)

    # -- the session

    def _reset_session(self) -> None:
        """List every partition again; answers to what was asked before count for nothing."""
        self._first_request = self.requests + 1
        self._session += 1
        self._session_id, self._session_epoch = 0, FULL_EPOCH
        self._listed = 0
        # Those that had no room in the last request come first.
        self._changed.update(dict.fromkeys(self._by_key))


def backoff(limit_ms: int, failures: int) -> int:
    """Return how long to wait after a number of failures: doubled each time, up to the limit."""
    return min(limit_ms, FIRST_BACKOFF_MS << min(failures, 20))


def _by_topic(listed: list[FollowedPartition], max_bytes: int) -> list[FetchRequest.FetchTopic]:
    topics: dict[Uuid, FetchRequest.FetchTopic] = {}
    for followed in listed:
        topic_id, index = followed.key
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id)
        end, last_epoch, start = followed.position
        topic.partitions.append(
            FetchRequest.FetchPartition(
                partition=index,
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=end,
                last_fetched_epoch=last_epoch,
                log_start_offset=start,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(keys: list[_Key]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[Uuid, FetchRequest.ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(
            topic_id, FetchRequest.ForgottenTopic(topic_id=topic_id)
        ).partitions.append(index)
    return list(topics.values())
