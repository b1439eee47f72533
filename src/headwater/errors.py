"""The one error table: code, name, whether a client may retry, and a sentence for people.

Domain code raises `KafkaError(E.X, "what happened and what to do")`. Exactly two places translate
it to the wire: the per-partition loop of a handler, and dispatch.
"""

from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.client.admin.groups import GroupNotEmptyError as GroupNotEmptyError
    from headwater.client.consumer.fetching.arrow import ArrowMissingError as ArrowMissingError
    from headwater.client.consumer.processing.process import ProcessingError as ProcessingError
    from headwater.client.errors import AbortableTransactionError as AbortableTransactionError
    from headwater.client.errors import AuthenticationError as AuthenticationError
    from headwater.client.errors import AuthorizationError as AuthorizationError
    from headwater.client.errors import BufferExhaustedError as BufferExhaustedError
    from headwater.client.errors import ClientError as ClientError
    from headwater.client.errors import ClosedError as ClosedError
    from headwater.client.errors import CommitFailedError as CommitFailedError
    from headwater.client.errors import ConcurrentUseError as ConcurrentUseError
    from headwater.client.errors import CorruptRecordError as CorruptRecordError
    from headwater.client.errors import DeliveryTimeoutError as DeliveryTimeoutError
    from headwater.client.errors import FatalTransactionError as FatalTransactionError
    from headwater.client.errors import FencedInstanceIdError as FencedInstanceIdError
    from headwater.client.errors import ForkedError as ForkedError
    from headwater.client.errors import IllegalStateError as IllegalStateError
    from headwater.client.errors import InvalidTopicError as InvalidTopicError
    from headwater.client.errors import LogTruncationError as LogTruncationError
    from headwater.client.errors import LoopDiedError as LoopDiedError
    from headwater.client.errors import NetworkError as NetworkError
    from headwater.client.errors import NoOffsetForPartitionError as NoOffsetForPartitionError
    from headwater.client.errors import NotEnoughReplicasError as NotEnoughReplicasError
    from headwater.client.errors import NoTokenError as NoTokenError
    from headwater.client.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from headwater.client.errors import OutOfOrderSequenceError as OutOfOrderSequenceError
    from headwater.client.errors import ProducerFencedError as ProducerFencedError
    from headwater.client.errors import RecordTooLargeError as RecordTooLargeError
    from headwater.client.errors import RetriableTransactionError as RetriableTransactionError
    from headwater.client.errors import SerializationError as SerializationError
    from headwater.client.errors import TimedOutError as TimedOutError
    from headwater.client.errors import TransactionAbortedError as TransactionAbortedError
    from headwater.client.errors import UnknownTopicOrPartitionError as UnknownTopicOrPartitionError
    from headwater.client.errors import WakeupError as WakeupError
    from headwater.client.offsets_sql import SkippedRecordsError as SkippedRecordsError
    from headwater.client.offsets_sql import StaleOffsetsError as StaleOffsetsError
    from headwater.config.keys import ConfigError as ConfigError


class E(IntEnum):
    """Kafka's error codes. `E.X.retriable` and `E.X.text` complete the row."""

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool, text: str) -> "E":
        """Create the member: an int that is the code."""
        row = int.__new__(cls, code)
        row._value_ = code
        row.retriable = retriable
        row.text = text
        return row

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, False, "unexpected error in the broker; see its log"
    NONE = 0, False, "nothing went wrong"
    OFFSET_OUT_OF_RANGE = 1, False, "the offset is below the start or above the end of the partition; choose one in between or reset the position"
    CORRUPT_MESSAGE = 2, True, "a record batch arrived damaged (its checksum, size or form is wrong); send it again"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "this broker has no such topic or partition; check the name, or create it"
    INVALID_FETCH_SIZE = 4, False, "the fetch asked for an impossible number of bytes"
    LEADER_NOT_AVAILABLE = 5, True, "the partition has no leader at this moment; try again shortly"
    NOT_LEADER_OR_FOLLOWER = 6, True, "this broker does not lead the partition (or hold a replica); refresh the metadata and ask the leader"
    REQUEST_TIMED_OUT = 7, True, "the request was not finished within its timeout; it may or may not have taken effect"
    BROKER_NOT_AVAILABLE = 8, False, "the broker is not available"
    REPLICA_NOT_AVAILABLE = 9, True, "the replica is not available on this broker; refresh the metadata"
    MESSAGE_TOO_LARGE = 10, False, "the batch is larger than max.message.bytes of the topic; send smaller batches or raise the limit"
    STALE_CONTROLLER_EPOCH = 11, False, "the controller that sent this has been replaced by a newer one"
    OFFSET_METADATA_TOO_LARGE = 12, False, "the metadata committed with the offset is longer than offset.metadata.max.bytes"
    NETWORK_EXCEPTION = 13, True, "the connection broke before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "the coordinator is still reading its state from the log; try again shortly"
    COORDINATOR_NOT_AVAILABLE = 15, True, "the coordinator is not available yet; try again shortly"
    NOT_COORDINATOR = 16, True, "this broker is not the coordinator; look it up again"
    INVALID_TOPIC_EXCEPTION = 17, False, "the topic name is not allowed, or the operation is not allowed on this topic"
    RECORD_LIST_TOO_LARGE = 18, False, "the batches of the request do not fit into one segment of the log; send fewer records at once"
    NOT_ENOUGH_REPLICAS = 19, True, "fewer replicas are in sync than min.insync.replicas asks for; nothing was written"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "the records were written, but fewer replicas are in sync than min.insync.replicas asks for"
    INVALID_REQUIRED_ACKS = 21, False, "acks must be 0, 1 or -1 (all)"
    ILLEGAL_GENERATION = 22, False, "the generation is not the group's current one; join the group again"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "the member supports none of the group's assignment strategies, or has another protocol type"
    INVALID_GROUP_ID = 24, False, "the group id is empty or not allowed"
    UNKNOWN_MEMBER_ID = 25, False, "the group does not know this member; join the group again"
    INVALID_SESSION_TIMEOUT = 26, False, "the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms"
    REBALANCE_IN_PROGRESS = 27, False, "the group is being rebalanced; join it again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "the offset commit is too large to be stored"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "you are not allowed to do this with the topic; ask for an ACL"
    GROUP_AUTHORIZATION_FAILED = 30, False, "you are not allowed to do this with the group; ask for an ACL"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "you are not allowed to do this with the cluster; ask for an ACL"
    INVALID_TIMESTAMP = 32, False, "a record's timestamp is further from the broker's clock than the topic allows"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "the broker does not offer this SASL mechanism; use one of those it listed"
    ILLEGAL_SASL_STATE = 34, False, "the request does not fit the state of authentication"
    UNSUPPORTED_VERSION = 35, False, "the broker does not support this version of the request; choose one from ApiVersions"
    TOPIC_ALREADY_EXISTS = 36, False, "a topic with this name already exists"
    INVALID_PARTITIONS = 37, False, "the number of partitions is not allowed; it must be positive and can only grow"
    INVALID_REPLICATION_FACTOR = 38, False, "the replication factor is not positive, or greater than the number of live brokers"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "the replica assignment names unknown or repeated brokers, or leaves partitions out"
    INVALID_CONFIG = 40, False, "a config key is unknown or its value is not allowed"
    NOT_CONTROLLER = 41, True, "this broker is not the controller; look it up again"
    INVALID_REQUEST = 42, False, "the request is not valid; see the broker's log for what is wrong"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "the stored format of the messages does not allow this"
    POLICY_VIOLATION = 44, False, "the request breaks a rule set by the operators of this cluster"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "the batch does not follow the producer's last one; a batch in between was lost"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "the batch is a duplicate, too old for its offset to be known"
    INVALID_PRODUCER_EPOCH = 47, False, "a newer instance of this producer is active, or its epoch is out of date"
    INVALID_TXN_STATE = 48, False, "the transaction is in a state that does not allow this"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "the producer id does not belong to this transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "the transaction timeout is not positive, or greater than transaction.max.timeout.ms"
    CONCURRENT_TRANSACTIONS = 51, True, "another change of this transaction is in progress; try again shortly"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "the transaction coordinator that sent this has been replaced by a newer one"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "you are not allowed to use this transactional id; ask for an ACL"
    SECURITY_DISABLED = 54, False, "security features are switched off on this broker"
    OPERATION_NOT_ATTEMPTED = 55, False, "the operation was not attempted, because another one in the request failed"
    KAFKA_STORAGE_ERROR = 56, True, "the disk under the partition failed or is full; another replica may lead soon"
    LOG_DIR_NOT_FOUND = 57, False, "the broker has no such log folder"
    SASL_AUTHENTICATION_FAILED = 58, False, "authentication failed; check the user, the password and the mechanism"
    UNKNOWN_PRODUCER_ID = 59, False, "the partition does not remember this producer; its records may have been removed"
    REASSIGNMENT_IN_PROGRESS = 60, False, "the partitions are being reassigned; wait until that ends, or cancel it"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "delegation tokens are switched off on this broker: set delegation.token.secret.key"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "there is no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "only the owner or a renewer may do this with the delegation token"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "delegation tokens need a client that has authenticated, and not with a delegation token"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "you are not allowed to do this with delegation tokens; ask for an ACL"
    DELEGATION_TOKEN_EXPIRED = 66, False, "the delegation token has expired; ask for a new one"
    INVALID_PRINCIPAL_TYPE = 67, False, "the principal type is not allowed here"
    NON_EMPTY_GROUP = 68, False, "the group still has members; stop them first"
    GROUP_ID_NOT_FOUND = 69, False, "there is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "the broker has forgotten the fetch session; start a new one"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "the fetch session is at another epoch; start a new one"
    LISTENER_NOT_FOUND = 72, True, "the leader has no listener of the name you are connected to; check listeners on every broker"
    TOPIC_DELETION_DISABLED = 73, False, "deletion of topics is switched off; set delete.topic.enable=true"
    FENCED_LEADER_EPOCH = 74, True, "the request carries an older leader epoch than the broker's; refresh the metadata"
    UNKNOWN_LEADER_EPOCH = 75, True, "the request carries a newer leader epoch than the broker knows yet; try again shortly"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "the request version does not support this compression codec; use a newer client"
    STALE_BROKER_EPOCH = 77, False, "the broker has registered again since; its older epoch is fenced"
    OFFSET_NOT_AVAILABLE = 78, True, "the leader does not know yet how far its log is committed; try again shortly"
    MEMBER_ID_REQUIRED = 79, False, "join again with the member id that this answer carries"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "the preferred leader is not available; try again when its broker is back"
    GROUP_MAX_SIZE_REACHED = 81, False, "the group has as many members as group.max.size allows"
    FENCED_INSTANCE_ID = 82, False, "another member has taken over this group.instance.id; stop this one or give it its own id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "no replica that may lead is available"
    ELECTION_NOT_NEEDED = 84, True, "the partition already has the right leader"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "no reassignment of the partition is in progress"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "the group is subscribed to this topic; stop it or unsubscribe first"
    INVALID_RECORD = 87, False, "a record is not acceptable: damaged, without a key in a compacted topic, or of an old format"
    UNSTABLE_OFFSET_COMMIT = 88, True, "an open transaction holds offsets of this group; try again when it has ended"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "the quota is used up; try again after the throttle time"
    PRODUCER_FENCED = 90, False, "a newer producer with this transactional id has taken over; stop this one"
    RESOURCE_NOT_FOUND = 91, False, "there is no such resource"
    DUPLICATE_RESOURCE = 92, False, "the resource already exists, or appears twice in the request"
    UNACCEPTABLE_CREDENTIAL = 93, False, "the credential is not acceptable; check its name, mechanism and iterations"
    INCONSISTENT_VOTER_SET = 94, False, "sender and receiver disagree about who the voters are"
    INVALID_UPDATE_VERSION = 95, False, "the update is based on an older version; read the state again and repeat it"
    FEATURE_UPDATE_FAILED = 96, False, "the features could not be updated"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "the controller could not read the forwarded principal; check that all brokers build it alike"
    SNAPSHOT_NOT_FOUND = 98, False, "there is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "the position is not inside the file or snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "this broker knows no topic with this id; refresh the metadata"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "a broker with this id is already running; give each broker its own node.id"
    BROKER_ID_NOT_REGISTERED = 102, False, "no broker with this id is registered"
    INCONSISTENT_TOPIC_ID = 103, True, "the topic was deleted and recreated with another id; refresh the metadata"
    INCONSISTENT_CLUSTER_ID = 104, False, "the request is meant for another cluster; check the address"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "there is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "the fetch session uses topic ids where names were used before, or the reverse; start a new one"
    INELIGIBLE_REPLICA = 107, False, "the replica may not be in sync: its broker is fenced, stopping or unknown"
    NEW_LEADER_ELECTED = 108, False, "the controller has chosen another leader in the meantime"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "the offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, False, "the member's epoch is out of date; it must give up its partitions and join again"
    UNRELEASED_INSTANCE_ID = 111, False, "another member still holds this group.instance.id; wait until it has left"
    UNSUPPORTED_ASSIGNOR = 112, False, "the broker does not offer this assignor; choose one of group.consumer.assignors"
    STALE_MEMBER_EPOCH = 113, False, "the member's epoch is older than the group's; wait for the next heartbeat and repeat it"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "the request went to the wrong kind of listener (broker or controller)"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "this kind of listener does not serve the request"
    UNKNOWN_CONTROLLER_ID = 116, False, "the controller id is not known"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "the telemetry subscription is out of date; ask for it again"
    TELEMETRY_TOO_LARGE = 118, False, "the telemetry is larger than the broker allows"
    INVALID_REGISTRATION = 119, False, "the controller refused the registration of the broker"
    TRANSACTION_ABORTABLE = 120, False, "this transaction must be aborted; a new one may then begin"
    INVALID_RECORD_STATE = 121, False, "the record is not in a state that allows this acknowledgement"
    SHARE_SESSION_NOT_FOUND = 122, True, "the broker has forgotten the share session; start a new one"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "the share session is at another epoch; start a new one"
    FENCED_STATE_EPOCH = 124, False, "the share coordinator knows a newer state epoch"
    INVALID_VOTER_KEY = 125, False, "the voter's directory id does not match"
    DUPLICATE_VOTER = 126, False, "the voter is already in the set"
    VOTER_NOT_FOUND = 127, False, "the voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "the regular expression cannot be compiled; the broker takes RE2 syntax"
    REBOOTSTRAP_REQUIRED = 129, False, "the client is connected to an unexpected cluster or node; it must bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, False, "the topology of the streams application is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "the topology epoch does not match the group's"
    STREAMS_TOPOLOGY_FENCED = 132, False, "the topology is older than the group's; update this instance of the application"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "the broker has reached its limit of share sessions; try again later"
    GROUP_DELETION_FAILED = 134, False, "the group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "the description of the topology could not be stored"
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "no controller with this id is registered"
    # fmt: on


class KafkaError(Exception):
    """A refusal with Kafka's code; the message says what happened and what to do."""

    def __init__(self, code: E, message: str | None = None) -> None:
        super().__init__(message or code.text)
        self.code = code

    @property
    def message(self) -> str:
        """The sentence for the client."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by state: the constructors of subclasses take different arguments."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[KafkaError], args: tuple[object, ...], state: dict[str, object]
) -> KafkaError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


def error_of(code: int) -> E:
    """The error of a code on the wire; UNKNOWN_SERVER_ERROR for one that is not in the table."""
    row = E._value2member_map_.get(code, E.UNKNOWN_SERVER_ERROR)
    return row if isinstance(row, E) else E.UNKNOWN_SERVER_ERROR


_ELSEWHERE = {
    "AbortableTransactionError": "headwater.client.errors",
    "ArrowMissingError": "headwater.client.consumer.fetching.arrow",
    "AuthenticationError": "headwater.client.errors",
    "AuthorizationError": "headwater.client.errors",
    "BufferExhaustedError": "headwater.client.errors",
    "ClientError": "headwater.client.errors",
    "ClosedError": "headwater.client.errors",
    "CommitFailedError": "headwater.client.errors",
    "ConcurrentUseError": "headwater.client.errors",
    "ConfigError": "headwater.config.keys",
    "CorruptRecordError": "headwater.client.errors",
    "DeliveryTimeoutError": "headwater.client.errors",
    "FatalTransactionError": "headwater.client.errors",
    "FencedInstanceIdError": "headwater.client.errors",
    "ForkedError": "headwater.client.errors",
    "GroupNotEmptyError": "headwater.client.admin.groups",
    "IllegalStateError": "headwater.client.errors",
    "InvalidTopicError": "headwater.client.errors",
    "LogTruncationError": "headwater.client.errors",
    "LoopDiedError": "headwater.client.errors",
    "NetworkError": "headwater.client.errors",
    "NoTokenError": "headwater.client.errors",
    "NoOffsetForPartitionError": "headwater.client.errors",
    "NotEnoughReplicasError": "headwater.client.errors",
    "OffsetOutOfRangeError": "headwater.client.errors",
    "OutOfOrderSequenceError": "headwater.client.errors",
    "ProcessingError": "headwater.client.consumer.processing.process",
    "ProducerFencedError": "headwater.client.errors",
    "RecordTooLargeError": "headwater.client.errors",
    "RetriableTransactionError": "headwater.client.errors",
    "SerializationError": "headwater.client.errors",
    "SkippedRecordsError": "headwater.client.offsets_sql",
    "StaleOffsetsError": "headwater.client.offsets_sql",
    "TimedOutError": "headwater.client.errors",
    "TransactionAbortedError": "headwater.client.errors",
    "UnknownTopicOrPartitionError": "headwater.client.errors",
    "WakeupError": "headwater.client.errors",
}
"""The errors of clients by name, so that `headwater.errors` has every error that can be caught."""


if not TYPE_CHECKING:  # which sees the imports above, and reports a name that does not exist

    def __getattr__(name: str) -> Any:
        """Load an error of the clients on first use: this module must not import them."""
        if name not in _ELSEWHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_ELSEWHERE]
