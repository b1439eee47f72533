"""The errors of clients: one class per kind of failure, under Kafka's names.

Every class is a `KafkaError` with a code, so `except KafkaError` catches all of them; `failure`
returns the class for a code from the wire.
"""

import logging
from collections.abc import Iterable, Sequence

from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition

log = logging.getLogger(__name__)

STALE_METADATA = frozenset(
    {
        E.NOT_LEADER_OR_FOLLOWER,
        E.REPLICA_NOT_AVAILABLE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.INCONSISTENT_TOPIC_ID,
        E.LEADER_NOT_AVAILABLE,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.KAFKA_STORAGE_ERROR,
        E.OFFSET_NOT_AVAILABLE,
    }
)
"""Codes that mean: the leader has moved or is not ready. Refresh the metadata and retry."""


class ClientError(KafkaError):
    """The base class of errors that clients raise themselves."""

    CODE = E.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None, code: E | None = None) -> None:
        super().__init__(self.CODE if code is None else code, message)


class TimedOutError(ClientError, TimeoutError):
    """A call did not finish in time; the message names the time and the setting."""

    CODE = E.REQUEST_TIMED_OUT


class DeliveryTimeoutError(TimedOutError):
    """A record was not acknowledged within delivery.timeout.ms; it may or may not be stored."""


class BufferExhaustedError(TimedOutError):
    """buffer.memory had no room within max.block.ms."""


class RecordTooLargeError(ClientError, ValueError):
    """A record is larger than max.request.size, or than the broker accepts."""

    CODE = E.MESSAGE_TOO_LARGE


class SerializationError(ClientError, ValueError):
    """A serializer or deserializer failed; its own exception is the cause."""

    CODE = E.INVALID_RECORD


class ClosedError(ClientError):
    """The client is closed, or was closed before the record was sent."""

    CODE = E.OPERATION_NOT_ATTEMPTED


class ForkedError(ClientError):
    """The client was created in a parent process; create one after the fork."""

    CODE = E.OPERATION_NOT_ATTEMPTED


class LoopDiedError(ClientError):
    """An internal error in the client's background work; see its `__cause__`."""


class NetworkError(ClientError):
    """No broker could be reached."""

    CODE = E.NETWORK_EXCEPTION


class NoTokenError(NetworkError):
    """No token could be obtained, so no broker was asked; a retry may succeed."""


class UnknownTopicOrPartitionError(ClientError):
    """There is no such topic, or no such partition of it."""

    CODE = E.UNKNOWN_TOPIC_OR_PARTITION


class InvalidTopicError(ClientError):
    """The topic name is not valid."""

    CODE = E.INVALID_TOPIC_EXCEPTION


class AuthorizationError(ClientError):
    """An ACL is missing."""

    CODE = E.TOPIC_AUTHORIZATION_FAILED


class AuthenticationError(ClientError):
    """A broker refused the login; the message says what to check. A retry does not help."""

    CODE = E.SASL_AUTHENTICATION_FAILED


class IllegalStateError(ClientError, RuntimeError):
    """The call does not fit the earlier calls; the message says what to do."""

    CODE = E.INVALID_REQUEST


class AbortableTransactionError(ClientError):
    """The transaction cannot commit: abort it and begin another one. `__cause__` says why."""

    CODE = E.TRANSACTION_ABORTABLE


class FatalTransactionError(ClientError):
    """The producer cannot go on: close it, and create another one if that makes sense."""

    CODE = E.INVALID_TXN_STATE


class ProducerFencedError(FatalTransactionError):
    """A newer producer has taken over."""

    CODE = E.PRODUCER_FENCED


class RetriableTransactionError(TimedOutError):
    """A call did not finish within max.block.ms and continues: repeat the same call."""


class TransactionAbortedError(ClientError):
    """The record was not sent before its transaction was aborted."""

    CODE = E.OPERATION_NOT_ATTEMPTED


class OutOfOrderSequenceError(ClientError):
    """The broker lost a batch before this one."""

    CODE = E.OUT_OF_ORDER_SEQUENCE_NUMBER


class NotEnoughReplicasError(ClientError):
    """Fewer replicas are in sync than min.insync.replicas requires."""

    CODE = E.NOT_ENOUGH_REPLICAS


class CommitFailedError(ClientError):
    """The group has given the partitions to other members; the message says why."""

    CODE = E.ILLEGAL_GENERATION


class FencedInstanceIdError(CommitFailedError):
    """Another consumer with the same group.instance.id has taken over; this one must stop."""

    CODE = E.FENCED_INSTANCE_ID


class NoOffsetForPartitionError(ClientError):
    """No committed offset, and auto.offset.reset is none."""

    CODE = E.OFFSET_OUT_OF_RANGE


class OffsetOutOfRangeError(NoOffsetForPartitionError):
    """The position is outside the log, and auto.offset.reset is none."""


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated below the position, and auto.offset.reset is none."""


class CorruptRecordError(ClientError):
    """A batch from a broker cannot be read; the message names its partition and offset."""

    CODE = E.CORRUPT_MESSAGE


class WakeupError(ClientError):
    """wakeup() was called while poll() waited."""

    CODE = E.OPERATION_NOT_ATTEMPTED


class ConcurrentUseError(ClientError):
    """Two threads use one consumer at the same time."""

    CODE = E.OPERATION_NOT_ATTEMPTED


_CLASSES: dict[E, type[ClientError]] = {
    E.MESSAGE_TOO_LARGE: RecordTooLargeError,
    E.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
    E.REQUEST_TIMED_OUT: TimedOutError,
    E.NETWORK_EXCEPTION: NetworkError,
    E.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicOrPartitionError,
    E.INVALID_TOPIC_EXCEPTION: InvalidTopicError,
    E.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    E.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    E.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    E.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    E.TRANSACTION_ABORTABLE: AbortableTransactionError,
    E.PRODUCER_FENCED: ProducerFencedError,
    E.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequenceError,
    E.FENCED_INSTANCE_ID: FencedInstanceIdError,
    E.NOT_ENOUGH_REPLICAS: NotEnoughReplicasError,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicasError,
}


def unanswered(addresses: str, problem: Exception) -> str:
    """Return why no broker has answered at the addresses, or why none was asked."""
    if isinstance(problem, NoTokenError):
        return str(problem)
    return f"no broker answers at {addresses}: {problem}"


def failure(code: int, message: str | None = None) -> ClientError:
    """Return the error for a code from the wire."""
    row = error_of(code)
    return _CLASSES.get(row, ClientError)(message or row.text, row)


def no_such_topic(*names: str) -> UnknownTopicOrPartitionError:
    """Return the message for topics that do not exist."""
    said = ", ".join(map(repr, names))
    subject = f"topic {said} does" if len(names) == 1 else f"topics {said} do"
    return UnknownTopicOrPartitionError(
        f"{subject} not exist; create with: headwater topics create {' '.join(names)}"
    )


def no_such_partition(name: TopicPartition, count: int) -> UnknownTopicOrPartitionError:
    """Return the message for a missing partition of a topic with `count` partitions."""
    return UnknownTopicOrPartitionError(
        f"partition {name} does not exist: topic {name.topic!r} has {count} "
        f"partition{'s' if count != 1 else ''}, numbered from 0; add more with: "
        f"headwater topics alter {name.topic} --partitions {name.partition + 1}"
    )


def internal_error(where: str, fault: BaseException) -> LoopDiedError:
    """Log a bug in background work; return the error for the call that depends on it."""
    log.error("internal error of the client in %s", where, exc_info=fault)
    error = LoopDiedError(f"internal error of the client in {where}: {fault!r}")
    error.__cause__ = fault
    return error


def refusal_in(problems: Iterable[BaseException | None]) -> AuthenticationError | None:
    """Return a refused login, which no other broker accepts."""
    return next((one for one in problems if isinstance(one, AuthenticationError)), None)


def distrust_in(failures: Sequence[Exception]) -> KafkaError | None:
    """Return the last failure if the settings fit no broker: none is trusted, or none has TLS."""
    found = [
        one for one in failures if isinstance(one, KafkaError) and one.code is E.INVALID_CONFIG
    ]
    return found[-1] if found and len(found) == len(failures) else None


def raise_bug_of(problems: Iterable[BaseException | None]) -> None:
    """Raise LoopDiedError for bugs, which neither a broker nor the network caused."""
    for problem in problems:
        if problem is not None and not isinstance(problem, KafkaError | OSError):
            raise LoopDiedError(
                f"internal error of the client while it processed metadata: {problem!r}"
            ) from problem
