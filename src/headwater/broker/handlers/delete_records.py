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
    for topic in body.topics:
        yield from call.add_topic(topic)
    call.finish_or_wait()


class _Deletion:
    """A pending DeleteRecords request: watches its partitions until all are done."""

    def __init__(self, context: Context, request: Request, body: DeleteRecordsRequest) -> None:
        self.context = context
        self.request = request
        self.deadline_ms = context.clock.monotonic_ms() + max(0, body.timeout_ms)
        self.response = DeleteRecordsResponse()
        self.waiting: list[tuple[Replica, int, _LowWatermark]] = []
        self.watched: dict[Replica, None] = {}
        self.answered = False

    def add_topic(self, topic: DeleteRecordsRequest.DeleteRecordsTopic) -> Steps[None]:
        """Start with one topic."""
        answer = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
        self.response.topics.append(answer)
        for wanted in topic.partitions:
            mark = _LowWatermark(partition_index=wanted.partition_index, low_watermark=-1)
            answer.partitions.append(mark)
            try:
                replica = self._start(topic.name, wanted.partition_index)
                offset = _advance(replica, wanted.offset)
                if not self._finished(replica, offset, mark):
                    self.waiting.append((replica, offset, mark))
            except KafkaError as refused:
                mark.error_code = refused.code
            yield

    def _start(self, topic: str, partition: int) -> Replica:
        context = self.context
        if not context.permits(self.request, DELETE_TOPIC, topic):
            raise KafkaError(DELETE_TOPIC.refusal)
        return context.replicas.leader(topic, partition)

    def finish_or_wait(self) -> None:
        """Reply if every replica has followed, else watch."""
        self.recheck()
        if self.waiting:
            self.watched = {replica: None for replica, _, _ in self.waiting}
            for replica in self.watched:
                replica.watchers[self] = None
            self.context.park(self.deadline_ms, self)

    def wake(self, replica: Replica) -> None:
        """A follower fetched."""
        self.context.tick.recheck_soon(self)

    def recheck(self) -> None:
        """Reply if every replica has followed."""
        self._drop_finished()
        if not self.waiting:
            self._answer()

    def expired(self) -> None:
        """Reply with a timeout for the partitions that have not."""
        for _, _, mark in self.waiting:
            mark.error_code = E.REQUEST_TIMED_OUT
        self._answer()

    def _drop_finished(self) -> None:
        self.waiting = [row for row in self.waiting if not self._finished(*row)]

    def _finished(self, replica: Replica, offset: int, mark: _LowWatermark) -> bool:
        low = replica.leading.low_watermark(self.context.metadata.brokers)
        if low >= offset:
            mark.low_watermark = low
        return low >= offset

    def _answer(self) -> None:
        if not self.answered:
            self.answered = True
            for replica in self.watched:
                replica.watchers.pop(self, None)
            self.request.reply_in_turns(self.response)


def _advance(replica: Replica, offset: int) -> int:
    """Move the log's start to `offset`, -1 for everything that is committed."""
    if offset == UP_TO_HIGH_WATERMARK:
        offset = replica.high_watermark
    replica.leading.delete_records(offset)
    return offset
