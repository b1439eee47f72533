"""Commands to the controller, and their outcomes.

A command is answered exactly once, with one outcome for each item, in the order of the request.
Partial failure is normal: each outcome has its own error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Generic, TypeVar

from headwater.errors import E, KafkaError
from headwater.model import NO_LEADER, ZERO_UUID, TopicPartition, Uuid

R = TypeVar("R")

BROKER_DEFAULT = -1
"""Leaves a number of partitions or replicas to the broker's settings."""


class ResourceKind(IntEnum):
    """What a config belongs to, with its number in the protocol."""

    TOPIC = 2
    BROKER = 4


class ConfigOperation(IntEnum):
    """What an incremental change does to a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """The result for one topic; ids and counts are set if it exists or would exist."""

    name: str | None
    error: E = E.NONE
    message: str | None = None
    topic_id: Uuid = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1

    @classmethod
    def refused(
        cls, name: str | None, why: KafkaError, topic_id: Uuid = ZERO_UUID
    ) -> "TopicOutcome":
        return cls(name, why.code, why.message, topic_id)


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """The result for the configs of one resource."""

    kind: int
    name: str
    error: E = E.NONE
    message: str | None = None


class Command(Generic[R]):
    """A request to the controller; R is the type of its answer."""

    __slots__ = ()

    timeout_ms: int

    def refusal(self, why: KafkaError) -> R:
        """The answer that refuses the whole command."""
        raise NotImplementedError

    def overdue(self, outcome: Any, why: KafkaError) -> Any:
        """The answer if the timeout passes after the decision but before it is carried out."""
        return [
            one if one.error is not E.NONE else replace(one, error=why.code, message=why.message)
            for one in outcome
        ]


# -- topics


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A topic to create; -1 leaves counts to the broker, `assignments` places every replica.

    `internal` marks the broker's own topics, which clients may not create. `clamped` limits the
    replication factor to the number of live brokers.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)
    internal: bool = False
    clamped: bool = False


@dataclass(frozen=True, slots=True)
class CreateTopics(Command[list[TopicOutcome]]):
    """Create topics; a name that appears twice is refused both times."""

    topics: Sequence[TopicCreation]
    timeout_ms: int = 60_000
    validate_only: bool = False

    def refusal(self, why: KafkaError) -> list[TopicOutcome]:
        return [TopicOutcome.refused(topic.name, why) for topic in self.topics]


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command[list[TopicOutcome]]):
    """Delete topics by name; a topic with an entry in `ids` only if it still has that id."""

    names: Sequence[str]
    timeout_ms: int = 60_000
    ids: Mapping[str, Uuid] = field(default_factory=dict)

    def refusal(self, why: KafkaError) -> list[TopicOutcome]:
        return [
            TopicOutcome.refused(name, why, self.ids.get(name, ZERO_UUID)) for name in self.names
        ]


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic to grow to `total` partitions; `assignments` places the new ones."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[list[TopicOutcome]]):
    topics: Sequence[MorePartitions]
    timeout_ms: int = 60_000
    validate_only: bool = False

    def refusal(self, why: KafkaError) -> list[TopicOutcome]:
        return [TopicOutcome.refused(topic.name, why) for topic in self.topics]


# -- configs


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    name: str
    operation: int
    value: str | None = None


@dataclass(frozen=True, slots=True)
class AlteredResource:
    """A resource, with a replacement of all its overrides or with edits to them.

    A broker's name is its id, or empty for the default of all brokers.
    """

    kind: int
    name: str
    replacement: Mapping[str, str | None] | None = None
    edits: Sequence[ConfigEdit] = ()


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[list[ConfigOutcome]]):
    """Change overrides, each resource by replacement or by edits."""

    resources: Sequence[AlteredResource]
    validate_only: bool = False
    timeout_ms: int = 60_000

    def refusal(self, why: KafkaError) -> list[ConfigOutcome]:
        return [
            ConfigOutcome(resource.kind, resource.name, why.code, why.message)
            for resource in self.resources
        ]


# -- users


@dataclass(frozen=True, slots=True)
class CredentialChange:
    """A credential of a user with one SCRAM mechanism to store; None deletes the present one."""

    user: str
    mechanism: str
    credential: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserOutcome:
    """The result for one user."""

    user: str
    error: E = E.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterUsers(Command[list[UserOutcome]]):
    """Store and delete SCRAM credentials, at most one of each user."""

    changes: Sequence[CredentialChange]
    timeout_ms: int = 60_000

    def refusal(self, why: KafkaError) -> list[UserOutcome]:
        return [UserOutcome(one.user, why.code, why.message) for one in self.changes]


# -- quotas


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Quotas of one entity to set, or to remove if None; `shown` names the entity in the log."""

    entity: tuple[str, str]
    shown: str
    quotas: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class QuotaOutcome:
    """The result for one entity."""

    error: E = E.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AlterQuotas(Command[list[QuotaOutcome]]):
    """Change quotas of users, client ids and addresses, each entity once."""

    changes: Sequence[QuotaChange]
    timeout_ms: int = 60_000

    def refusal(self, why: KafkaError) -> list[QuotaOutcome]:
        return [QuotaOutcome(why.code, why.message) for _ in self.changes]


# -- partitions


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The in-sync set that a leader proposes, and the state that the proposal is based on.

    With the zero id, the topic is identified by name. `isr` pairs each member with the epoch of its
    registration, -1 where the leader does not know it. `keeps_records` says that a replica which leaves
    the set can only not write: its disk is full and has not failed.
    """

    topic: str
    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    recovering: bool = False
    keeps_records: bool = False


@dataclass(frozen=True, slots=True)
class IsrOutcome:
    """The result of a proposal: an error, or the stored state."""

    error: E = E.NONE
    leader: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovering: bool = False
    elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """An error for the whole request, or one outcome for each proposal."""

    error: E = E.NONE
    outcomes: Sequence[IsrOutcome] = ()


@dataclass(frozen=True, slots=True)
class AlterPartition(Command[IsrAnswer]):
    """A leader proposes in-sync sets (KIP-497)."""

    broker_id: int
    broker_epoch: int
    proposals: Iterable[IsrProposal]
    timeout_ms: int = 60_000

    def refusal(self, why: KafkaError) -> IsrAnswer:
        return IsrAnswer(why.code)

    def overdue(self, outcome: IsrAnswer, why: KafkaError) -> IsrAnswer:
        """Refuse: the outcome of the write is unknown, so the leader must ask again."""
        return self.refusal(why)


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """The result for one partition."""

    at: TopicPartition
    error: E = E.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionsAnswer:
    """An error for the whole request, or one outcome for each partition."""

    error: E = E.NONE
    message: str | None = None
    outcomes: Sequence[Any] = ()


class PartitionsCommand(Command[PartitionsAnswer]):
    """A command that is refused as a whole, or has an outcome for each partition."""

    __slots__ = ()

    def refusal(self, why: KafkaError) -> PartitionsAnswer:
        return PartitionsAnswer(why.code, why.message)

    def overdue(self, outcome: PartitionsAnswer, why: KafkaError) -> PartitionsAnswer:
        return PartitionsAnswer(outcomes=Command.overdue(self, outcome.outcomes, why))


@dataclass(frozen=True, slots=True)
class ElectLeaders(PartitionsCommand):
    """Elect the preferred leaders or, if `unclean`, any live replica; None means all partitions."""

    partitions: Sequence[TopicPartition] | None
    unclean: bool = False
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The target replicas of a partition; None cancels its reassignment."""

    at: TopicPartition
    replicas: Sequence[int] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments(PartitionsCommand):
    """Begin or cancel reassignments: all of them or none."""

    partitions: Sequence[Reassignment]
    allow_factor_change: bool = True
    timeout_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A reassignment in progress; `replicas` includes those being added and those being removed."""

    at: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListReassignments(PartitionsCommand):
    """List the reassignments in progress; None means all partitions."""

    partitions: Sequence[TopicPartition] | None
    timeout_ms: int = 60_000

    def overdue(self, outcome: PartitionsAnswer, why: KafkaError) -> PartitionsAnswer:
        """Return the outcome: a list waits for nothing."""
        return outcome


@dataclass(frozen=True, slots=True)
class HandoverAnswer:
    """An error, or the partitions that the broker still leads because nobody else can."""

    error: E = E.NONE
    remaining: Sequence[TopicPartition] = ()


@dataclass(frozen=True, slots=True)
class ControlledShutdown(Command[HandoverAnswer]):
    """A broker that is about to stop asks to hand over what it leads."""

    broker_id: int
    broker_epoch: int
    timeout_ms: int = 30_000

    def refusal(self, why: KafkaError) -> HandoverAnswer:
        return HandoverAnswer(why.code)

    def overdue(self, outcome: HandoverAnswer, why: KafkaError) -> HandoverAnswer:
        """Return the error: the store or a broker has not answered, so others may not lead yet."""
        return HandoverAnswer(why.code)
