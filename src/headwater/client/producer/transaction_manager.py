"""The transactions of one producer, as a machine without clock, socket or event loop.

    UNINITIALIZED ─► INITIALIZING ─► READY ─► IN_TRANSACTION ─► COMMITTING ─► READY
                                                  │                │
                                                  ├─► ABORTING ◄── ABORTABLE_ERROR

`next_request` returns what to ask a coordinator now, at most one request at a time; `answered` takes
the answer. A request without an answer is repeated as it was: coordinators know repetitions.

With transaction.version 2 a partition becomes a part of the transaction by the first batch or offset
sent to it, and the end of each transaction increments the epoch. Before that version, the producer
adds partitions first, and increments the epoch itself after it has lost a batch: the numbers after a
lost batch would not follow those that the broker knows.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum

from headwater.client.consumer.record import OffsetAndMetadata
from headwater.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortedError,
    failure,
)
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.producer.accumulator import ProducerBatch
from headwater.client.producer.sequences import NO_PRODUCER_ID, ProducerIdAndEpoch
from headwater.client.producer.transaction_answers import (
    FENCED,
    UNMAPPED,
    TransactionAnswer,
    Verdict,
    add_partitions_request,
    first_problem,
    offsets_request,
    partition_codes,
    refusal,
    verdict_of,
)
from headwater.client.producer.transactional_sequences import TransactionalSequences
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_SEQUENCE, TopicPartition
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)
from headwater.wire.schema import Struct

ADDS_IMPLICITLY = 2
"""The transaction.version from which partitions need not be added by requests of their own."""
_FATAL_FOR_BATCHES = FENCED - {E.INVALID_PRODUCER_EPOCH} | {
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.UNSUPPORTED_VERSION,
}


class ManagerState(Enum):
    """The states of a transactional producer."""

    UNINITIALIZED = "not initialized: call init_transactions() first"
    INITIALIZING = "being initialized"
    READY = "not in a transaction: call begin_transaction() first"
    IN_TRANSACTION = "in a transaction: commit or abort it first"
    COMMITTING = "committing: repeat commit_transaction() to wait for it"
    ABORTING = "aborting: repeat abort_transaction() to wait for it"
    ABORTABLE_ERROR = "in a transaction that must be aborted: call abort_transaction()"
    FATAL_ERROR = "unusable: close it"


_S = ManagerState
_BEFORE = {
    _S.INITIALIZING: {_S.UNINITIALIZED},
    _S.READY: {_S.INITIALIZING, _S.COMMITTING, _S.ABORTING},
    _S.IN_TRANSACTION: {_S.READY},
    _S.COMMITTING: {_S.IN_TRANSACTION},
    _S.ABORTING: {_S.IN_TRANSACTION, _S.ABORTABLE_ERROR},
    _S.ABORTABLE_ERROR: {_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTING},
    _S.FATAL_ERROR: set(ManagerState) - {_S.FATAL_ERROR},
}
"""The states from which a state may be entered."""
_ENDING = (_S.COMMITTING, _S.ABORTING)
_MOST_UNKNOWN = 8
"""How often a coordinator may not know a partition whose offset is to be committed: it may be new to
that broker, or deleted."""


class OffsetsToSend:
    """Offsets of a group that are not in the transaction yet; empty once they are."""

    def __init__(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        self.group = group
        self.left = dict(offsets)
        self.unknown = 0
        """How often the coordinator did not know one of the partitions."""


class TransactionManager:
    """One transactional producer."""

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.state = _S.UNINITIALIZED
        self.error: KafkaError | None = None
        """Why the transaction must be aborted, or the producer closed."""
        self.retry_reason: KafkaError | None = None
        """Why the last request is sent again."""
        self.newest_version = 0
        """The transaction.version of the cluster."""
        self.version = 0
        """The transaction.version of the current transaction."""
        self._timeout_ms = timeout_ms
        self.sequences = TransactionalSequences()
        self._wanted: dict[TopicPartition, None] = {}
        self._adding: list[TopicPartition] = []
        """Partitions in a request that was sent: it is repeated until it is answered."""
        self._added: set[TopicPartition] = set()
        self._adding_group: str | None = None
        """A group in a request that was sent: it is repeated until it is answered."""
        self._groups: set[str] = set()
        """Groups whose offsets were added to the transaction."""
        self._offsets: deque[OffsetsToSend] = deque()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.error = None
        self.started = False
        """Whether the coordinator may know of this transaction."""
        self._ended = False
        self._lost_batch = False
        self._unmapped = False
        """Whether the coordinator has forgotten the transactional id."""
        self._wanted.clear()
        self._adding.clear()
        self._added.clear()
        self._adding_group = None
        self._groups.clear()
        self._offsets.clear()
        self._use_version(self.newest_version)

    def _use_version(self, version: int) -> None:
        self.version = version
        self.sequences.first_is_zero = self.adds_implicitly

    # -- calls of the application

    def begin_init(self) -> None:
        """Request a producer id; fences earlier producers of this transactional id."""
        if self.state is not _S.INITIALIZING:
            self._enter(_S.INITIALIZING, "init_transactions()")

    def begin(self) -> None:
        """Begin a transaction."""
        self._enter(_S.IN_TRANSACTION, "begin_transaction()")

    def begin_commit(self) -> None:
        """Commit once all batches are stored."""
        if self.state is not _S.COMMITTING:
            self._enter(_S.COMMITTING, "commit_transaction()")

    def begin_abort(self) -> None:
        """Abort once no batch is in flight."""
        if self.state is not _S.ABORTING:
            if self.state not in _BEFORE[_S.ABORTING]:
                self._raise_refusal("abort_transaction()")
            self.state = _S.ABORTING
            self._forget_unsent()

    def add_offsets(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> OffsetsToSend:
        """Add the offsets of a group to the transaction."""
        if self.state is not _S.IN_TRANSACTION:
            self._raise_refusal("send_offsets_to_transaction()")
        pending = OffsetsToSend(group, offsets)
        if pending.left:
            self._offsets.append(pending)
        return pending

    def holds(self, pending: OffsetsToSend) -> bool:
        """Return whether `pending` waits to be sent or answered."""
        return pending in self._offsets

    def check_send(self) -> None:
        """Raise an error unless records may be sent."""
        if self.state is not _S.IN_TRANSACTION:
            self._raise_refusal("send()")

    def _enter(self, state: ManagerState, call: str) -> None:
        if self.state not in _BEFORE[state]:
            self._raise_refusal(call)
        self.state = state

    def _raise_refusal(self, call: str) -> None:
        if self.error is not None:
            raise self.error
        raise IllegalStateError(
            f"{call} does not fit: the producer {self.transactional_id} is {self.state.value}"
        )

    # -- batches

    @property
    def adds_implicitly(self) -> bool:
        """Whether the first batch or offset adds its partition to the transaction."""
        return self.version >= ADDS_IMPLICITLY

    @property
    def newest_produce(self) -> int:
        """The newest version of Produce that fits the current transaction.version."""
        return 12 if self.adds_implicitly else 11

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether batches of a partition may be sent; request to add it if not."""
        if self.adds_implicitly or partition in self._added:
            return True
        if self.state in (_S.IN_TRANSACTION, _S.COMMITTING) and partition not in self._adding:
            self._wanted[partition] = None
        return False

    def batch_sent(self) -> None:
        """Note that a batch of the transaction is in flight."""
        self.started = True

    def batch_failed(self, batch: ProducerBatch, problem: KafkaError) -> None:
        """Note that a batch of the transaction cannot be stored."""
        if self.state in (_S.READY, _S.FATAL_ERROR) or isinstance(problem, TransactionAbortedError):
            return
        self._lost_batch |= batch.base_sequence != NO_SEQUENCE
        if problem.code in _FATAL_FOR_BATCHES:
            self._fail(problem)
        else:
            self._unmapped |= problem.code in UNMAPPED
            if self.state is not _S.ABORTING:
                self._must_abort(problem)

    def _must_abort(self, cause: KafkaError) -> None:
        if self.state is _S.ABORTABLE_ERROR:
            return
        assert self.state in _BEFORE[_S.ABORTABLE_ERROR]
        self.state = _S.ABORTABLE_ERROR
        self.error = AbortableTransactionError(
            f"the transaction of {self.transactional_id} cannot commit: {cause}; call "
            f"abort_transaction() and begin again",
            cause.code,
        )
        self.error.__cause__ = cause
        self._forget_unsent()

    def _fail(self, cause: KafkaError) -> None:
        if self.state is _S.FATAL_ERROR:
            return
        self.state = _S.FATAL_ERROR
        if cause.code in FENCED:
            self.error = ProducerFencedError(
                f"a newer producer with the transactional.id {self.transactional_id} has taken over, "
                f"or a transaction was open for longer than transaction.timeout.ms "
                f"({self._timeout_ms} ms): close this producer"
            )
        else:
            self.error = FatalTransactionError(
                f"the producer {self.transactional_id} cannot go on: {cause}; close it", cause.code
            )
        self.error.__cause__ = cause
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        self._wanted.clear()
        self._offsets.clear()

    # -- requests

    def next_request(self, *, drained: bool) -> Struct | None:
        """Return the next request; `drained` says whether every batch is stored or has failed."""
        if self.state is _S.FATAL_ERROR:
            return None
        if self.state is _S.INITIALIZING:
            self._use_version(self.newest_version)
            return self._init_request(NO_PRODUCER_ID)
        if not self._adding and self._wanted:
            self._adding = list(self._wanted)
            self._wanted.clear()
        if self._adding:
            return add_partitions_request(
                self.transactional_id, self.sequences.identity, self._adding
            )
        if self._adding_group is not None:
            return self._add_group_request(self._adding_group)
        if self._offsets:
            return self._next_offsets(self._offsets[0])
        if self.state in _ENDING and drained:
            return self._next_end()
        return None

    def newest_version_of(self, request: Struct) -> int:
        """Return the newest version in which `request` fits the current transaction.version."""
        if isinstance(request, InitProducerIdRequest):
            return 5
        if request.__schema__.api_key == AddPartitionsToTxnResponse.__schema__.api_key:
            return 3  # later ones are for brokers
        return 5 if self.adds_implicitly else 4

    def _init_request(self, identity: ProducerIdAndEpoch) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )

    def _next_offsets(self, pending: OffsetsToSend) -> Struct:
        identity, group = self.sequences.identity, pending.group
        if self.adds_implicitly:
            self.started = True
        elif group.group_id not in self._groups:
            self._adding_group = group.group_id
            return self._add_group_request(group.group_id)
        return offsets_request(self.transactional_id, identity, group, pending.left)

    def _add_group_request(self, group_id: str) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.sequences.identity.producer_id,
            producer_epoch=self.sequences.identity.epoch,
            group_id=group_id,
        )

    def _next_end(self) -> Struct | None:
        """Return the request that ends the transaction, or increments the epoch."""
        identity = self.sequences.identity
        if self.started and not self._ended and not self._unmapped:
            return EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=self.state is _S.COMMITTING,
            )
        upgraded = self.version < ADDS_IMPLICITLY <= self.newest_version
        if self._lost_batch or self._unmapped or upgraded:
            return self._init_request(identity)
        self.state = _S.READY
        self._begin_anew()
        return None

    # -- answers

    def answered(self, answer: TransactionAnswer) -> Verdict:
        """Apply the answer to the last request; return what to do next."""
        self.retry_reason = None
        if isinstance(answer, InitProducerIdResponse):
            return self._initialized(answer)
        if isinstance(answer, AddPartitionsToTxnResponse):
            return self._partitions_added(answer)
        if isinstance(answer, AddOffsetsToTxnResponse):
            return self._group_added(answer)
        if isinstance(answer, TxnOffsetCommitResponse):
            return self._offsets_added(answer)
        return self._end_answered(answer)

    def refused(self, problem: KafkaError) -> None:
        """Handle a request that no coordinator takes: FindCoordinator or a version was refused."""
        if problem.code == E.GROUP_AUTHORIZATION_FAILED and self.state is _S.IN_TRANSACTION:
            self._must_abort(problem)
        else:
            self._fail(problem)

    def _initialized(self, answer: InitProducerIdResponse) -> Verdict:
        code = error_of(answer.error_code)
        if code == E.NONE:
            self.sequences.identified(answer.producer_id, answer.producer_epoch)
            self.state = _S.READY
            self._begin_anew()
            return Verdict.DONE
        return self._judge(code)

    def _partitions_added(self, answer: AddPartitionsToTxnResponse) -> Verdict:
        codes = partition_codes(answer)
        code = first_problem(codes.values())
        if code == E.NONE:
            self.started = True
            self._added.update(self._adding)
            self._adding.clear()
            return Verdict.DONE
        verdict = self._judge(code, codes)
        refused = verdict is Verdict.RETRY and self.state not in (_S.IN_TRANSACTION, _S.COMMITTING)
        if verdict is Verdict.DONE or refused:  # maybe for good: a deleted topic is not awaited
            self._adding.clear()
        return verdict

    def _group_added(self, answer: AddOffsetsToTxnResponse) -> Verdict:
        code = error_of(answer.error_code)
        if code == E.NONE:
            self.started = True
            if self._adding_group is not None:
                self._groups.add(self._adding_group)
            self._adding_group = None
            return Verdict.DONE
        verdict = self._judge(code)
        if verdict is Verdict.DONE:
            self._adding_group = None
        return verdict

    def _offsets_added(self, answer: TxnOffsetCommitResponse) -> Verdict:
        if not self._offsets:
            return Verdict.DONE  # the transaction is being aborted
        pending, codes = self._offsets[0], partition_codes(answer)
        for partition, code in codes.items():
            if code == E.NONE:
                pending.left.pop(partition, None)
        if not pending.left:
            self._offsets.popleft()
            return Verdict.DONE
        code = first_problem(codes.values())
        if code == E.UNKNOWN_TOPIC_OR_PARTITION:
            pending.unknown += 1
            if pending.unknown == _MOST_UNKNOWN:
                self._must_abort(refusal(code, codes).error)
                return Verdict.DONE
        return Verdict.RETRY if code == E.NONE else self._judge(code, codes)

    def _end_answered(self, answer: EndTxnResponse) -> Verdict:
        code = error_of(answer.error_code)
        if code == E.INVALID_TXN_STATE and self.adds_implicitly and self.state is _S.COMMITTING:
            # The epoch still fits, so no newer producer did this.
            self._must_abort(failure(code, f"it was open for over {self._timeout_ms} ms"))
            return Verdict.DONE
        if code != E.NONE:
            return self._judge(code)
        self._ended = True
        if answer.producer_id >= 0:
            self.sequences.identified(answer.producer_id, answer.producer_epoch)
            self._lost_batch = False
        return Verdict.DONE

    def _judge(self, code: E, codes: Mapping[TopicPartition, E] | None = None) -> Verdict:
        verdict = verdict_of(code)
        problem = refusal(code, codes)
        if verdict is not Verdict.DONE:
            self.retry_reason = problem.error
            return verdict
        self._unmapped |= code in UNMAPPED
        if not problem.abortable or self.state is _S.INITIALIZING:
            self._fail(problem.error)
        elif self.state is not _S.ABORTING or not self._unmapped:
            self._must_abort(problem.error)
        return Verdict.DONE
