"""DeleteRecords: moves the start of logs forward on every replica."""

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps
from headwater.errors import E, KafkaError
from headwater.replication.replica import Replica
from headwater.security.rights import DELETE_TOPIC
from headwater.wire.messages.topics import DeleteRecordsRequest, DeleteRecordsResponse

UP_TO_HIGH_WATERMARK = -1

_LowWatermark = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle_delete_records(
    context: Context, request: Request, body: DeleteRecordsRequest
) -> Steps[None]:
    """Move log starts forward; reply when every live replica has followed."""
    call = _Deletion(context, request, body)
    try:
        for topic in body.topics:
            yield from call.add_topic(topic)
    except BaseException:
        call.unwatch()
        raise
    call.reply_or_wait()


class _Pending:
    """What a request waits for in one partition, which it may name several times."""

    __slots__ = ("marks", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self.marks: list[_LowWatermark] = []


class _Deletion:
    """A pending DeleteRecords request: watches its partitions, and checks again those that changed."""

    def __init__(self, context: Context, request: Request, body: DeleteRecordsRequest) -> None:
        self.context = context
        self.request = request
        self.deadline_ms = context.clock.monotonic_ms() + max(0, body.timeout_ms)
        self.response = DeleteRecordsResponse()
        self.waiting: dict[Replica, _Pending] = {}
        self.answered = False
        self._woken: dict[Replica, None] = {}
        # Whether all topics were added.
        self._is_whole = False

    def add_topic(self, topic: DeleteRecordsRequest.DeleteRecordsTopic) -> Steps[None]:
        """Start with one topic; a partition is watched before it is checked."""
        answer = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
        self.response.topics.append(answer)
        yield
        for wanted in topic.partitions:
            mark = _LowWatermark(partition_index=wanted.partition_index, low_watermark=-1)
            answer.partitions.append(mark)
            try:
                replica = self._start(topic.name, wanted.partition_index)
                offset = _advance(replica, wanted.offset)
            except KafkaError as refused:
                mark.error_code = refused.code
            else:
                pending = self.waiting.setdefault(replica, _Pending())
                pending.offset = max(pending.offset, offset)
                pending.marks.append(mark)
                replica.watchers[self] = None
                self._check(replica)
            yield

    def _start(self, topic: str, partition: int) -> Replica:
        context = self.context
        if not context.permits(self.request, DELETE_TOPIC, topic):
            raise KafkaError(DELETE_TOPIC.refusal)
        return context.replicas.leader(topic, partition)

    def reply_or_wait(self) -> None:
        """Reply if every replica has followed, else wait."""
        self._is_whole = True
        self.recheck()
        if self.waiting:
            self.request.on_gone = self._abandon
            self.context.park(self.deadline_ms, self)

    def wake(self, replica: Replica) -> None:
        """A follower fetched, the start was stored, or the replica does not lead any more."""
        self._woken[replica] = None
        if self._is_whole:
            self.context.tick.recheck_soon(self)

    def recheck(self) -> None:
        """Reply if every replica has followed."""
        woken, self._woken = self._woken, {}
        for replica in woken:
            if replica in self.waiting:
                self._check(replica)
        if not self.waiting:
            self._answer()

    def _check(self, replica: Replica) -> None:
        if self._is_done(replica):
            del self.waiting[replica]
            replica.watchers.pop(self, None)

    def _is_done(self, replica: Replica) -> bool:
        """Set the result of a partition, if it has one.

        A leader that was deposed does not know whether the next one has heard of the new start.
        """
        pending = self.waiting[replica]
        try:
            replica.require_leader()
        except KafkaError as refused:
            for mark in pending.marks:
                mark.error_code = refused.code
            return True
        low = replica.leading.low_watermark(self.context.metadata.brokers)
        if low < pending.offset:
            return False
        for mark in pending.marks:
            mark.low_watermark = low
        return True

    def expired(self) -> None:
        """Reply with a timeout for the partitions that have not."""
        for pending in self.waiting.values():
            for mark in pending.marks:
                mark.error_code = E.REQUEST_TIMED_OUT
        self._answer()

    def unwatch(self) -> None:
        """Stop waiting."""
        for replica in self.waiting:
            replica.watchers.pop(self, None)
        self.waiting = {}

    def _abandon(self) -> None:
        """The client has left: nobody needs the answer."""
        self.answered = True
        self.unwatch()

    def _answer(self) -> None:
        if not self.answered:
            self.answered = True
            self.unwatch()
            self.request.on_gone = None
            self.request.reply_in_turns(self.response)


def _advance(replica: Replica, offset: int) -> int:
    """Move the log's start to `offset`, -1 for everything that is committed."""
    if offset == UP_TO_HIGH_WATERMARK:
        offset = replica.high_watermark
    replica.leading.delete_records(offset)
    return offset
