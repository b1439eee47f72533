"""TxnOffsetCommit: offsets of a group that become visible when a transaction commits.

The group's coordinator stores them as pending. Before the first of them, the coordinator of the
transaction confirms that the group's partition belongs to it, or adds it.
"""

from collections.abc import Iterable
from functools import partial
from itertools import chain, repeat

from headwater.broker.context import Context
from headwater.broker.handlers.group_offsets import (
    PIECE,
    OffsetTopics,
    new_offset,
    partition_errors,
)
from headwater.broker.handlers.shard_calls import Gather, call_shard
from headwater.broker.request import Request
from headwater.broker.turns import Steps
from headwater.coordination.groups.offsets import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    NewOffset,
)
from headwater.coordination.groups.shard import GroupShard
from headwater.coordination.shard import TransactionalProducer
from headwater.errors import E, KafkaError
from headwater.model import CONSUMER_OFFSETS
from headwater.replication.replica import Replica
from headwater.replication.replica_host import TransactionalWrite
from headwater.security.rights import READ_GROUP, READ_TOPIC
from headwater.wire.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse

FIRST_WITH_LOADING = 2
FIRST_WITH_ABORTABLE = 4
FIRST_THAT_ADDS = 5
FIRST_WITH_TOPIC_ID = 6
BYTES_PER_OFFSET = 500
"""The memory that an offset of a decoded request takes while its transaction is verified."""


def handle_txn_offset_commit(
    context: Context, request: Request, body: TxnOffsetCommitRequest
) -> Steps[TxnOffsetCommitResponse | None]:
    """Store offsets that become visible with the transaction."""
    if not context.permits(request, READ_GROUP, body.group_id):
        return refuse_txn_commit(request, body, READ_GROUP.refusal)
    if not body.group_id:
        return refuse_txn_commit(request, body, E.INVALID_GROUP_ID)
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    topics = OffsetTopics(context, request, READ_TOPIC, by_id=by_id)
    offsets: list[NewOffset] = []
    errors: list[E] = []
    for topic in body.topics:
        found = topics.find(topic.name, topic.topic_id)
        yield
        for partition in topic.partitions:
            error = topics.refuse_partition(found, partition.partition_index)
            errors.append(error)
            if error is E.NONE:
                offsets.append(new_offset(found, partition))
            yield
    if not offsets:
        return _response(body, errors)
    _Commit(context, request, body, offsets, errors).verify()
    return None


def transactional_id_of_commit(request: Request, body: TxnOffsetCommitRequest) -> str:
    """Return the resource to check."""
    return body.transactional_id


def refuse_txn_commit(
    request: Request, body: TxnOffsetCommitRequest, error: E
) -> TxnOffsetCommitResponse:
    """Return the response with the same error for every offset."""
    return _response(body, repeat(error))


class _Commit:
    """A pending request."""

    def __init__(
        self,
        context: Context,
        request: Request,
        body: TxnOffsetCommitRequest,
        offsets: list[NewOffset],
        errors: list[E],
    ) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._offsets = offsets
        self._errors = errors
        self._producer = TransactionalProducer(body.producer_id, body.producer_epoch)

    def verify(self) -> None:
        """Commit once the transaction's coordinator knows of the group's partition."""
        body, version = self._body, self._request.version
        try:
            replica = self._replica()
        except KafkaError:
            self._refuse(E.NOT_COORDINATOR)
            return
        write = TransactionalWrite(
            body.transactional_id, version >= FIRST_THAT_ADDS, version >= FIRST_WITH_ABORTABLE
        )

        hold_bytes = self._request.connection.hold_bytes
        size = BYTES_PER_OFFSET * len(self._offsets)

        def verified(refused: KafkaError | None) -> None:
            hold_bytes(-size)
            if refused is None:
                self._request.reply_in_turns(self._submit(replica))
            else:
                self._refuse(_as_group_error(refused.code))

        hold_bytes(size)
        replica.verifications.verify(*self._producer, write, verified)

    def _replica(self) -> Replica:
        partition = self._context.groups.partition_of(self._body.group_id)
        if partition is None:
            raise KafkaError(E.NOT_COORDINATOR)
        return self._context.replicas.leader(CONSUMER_OFFSETS, partition)

    def _submit(self, replica: Replica) -> Steps[TxnOffsetCommitResponse | None]:
        """Give the offsets to the shard in pieces, as long as the transaction is open."""
        starts = range(0, len(self._offsets), PIECE)
        gather = Gather(len(starts), self._committed)
        for place, start in enumerate(starts):
            piece = tuple(self._offsets[start : start + PIECE])
            put = gather.slot(place)
            if start and not replica.verifications.in_transaction(*self._producer):
                put([E.INVALID_TXN_STATE] * len(piece))
                continue
            call_shard(
                self._context,
                self._body.group_id,
                GroupShard.commit_in_transaction,
                CommitOffsetsInTransaction(self._command(piece), self._producer),
                partial(_all, len(piece)),
                put,
            )
            for _ in piece:
                yield
        return None

    def _command(self, offsets: tuple[NewOffset, ...]) -> CommitOffsets:
        body = self._body
        return CommitOffsets(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id,
            offsets,
        )

    def _committed(self, answers: list[list[E]]) -> None:
        rest = chain.from_iterable(answers)
        self._reply([next(rest) if error is E.NONE else error for error in self._errors])

    def _refuse(self, error: E) -> None:
        self._reply([error if known is E.NONE else known for known in self._errors])

    def _reply(self, errors: list[E]) -> None:
        if self._request.version < FIRST_WITH_LOADING:
            errors = [
                E.COORDINATOR_NOT_AVAILABLE if it is E.COORDINATOR_LOAD_IN_PROGRESS else it
                for it in errors
            ]
        self._request.reply_in_turns(_response(self._body, errors))


def _all(count: int, error: E) -> list[E]:
    return [error] * count


def _as_group_error(error: E) -> E:
    """Map a lost connection to an error after which clients retry without another lookup."""
    return E.COORDINATOR_LOAD_IN_PROGRESS if error is E.NETWORK_EXCEPTION else error


def _response(body: TxnOffsetCommitRequest, errors: Iterable[E]) -> TxnOffsetCommitResponse:
    topics = partition_errors(
        body.topics,
        errors,
        TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
        TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
    )
    return TxnOffsetCommitResponse(topics=topics)
