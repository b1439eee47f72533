"""The controller's next steps, once a write is durable or a broker has answered.

They are plain values, not closures, so that everything outstanding can be printed and compared. A
token identifies a command; None means that no client waits.
"""

from dataclasses import dataclass
from typing import TypeAlias

from headwater.model import TopicPartition


@dataclass(frozen=True, slots=True)
class SendPartitionStates:
    """Send the states of partitions to brokers; they are durable now."""

    partitions: tuple[TopicPartition, ...]
    token: int | None
    new: bool = False
    silent: tuple[int, ...] = ()
    """Brokers that the command does not wait for."""


@dataclass(frozen=True, slots=True)
class SendInSyncSets:
    """Answer the leader that proposed in-sync sets, and send them to every broker."""

    partitions: tuple[TopicPartition, ...]
    token: int


@dataclass(frozen=True, slots=True)
class AwaitConfigChange:
    """Answer the command once this broker has applied the config notification just written."""

    token: int


@dataclass(frozen=True, slots=True)
class DeleteReplicas:
    """Delete the replicas of a topic: the mark of its deletion is durable."""

    topic: str


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """Forget a topic: the last of its nodes is gone."""

    topic: str


@dataclass(frozen=True, slots=True)
class NoteEpochs:
    """Note that these epochs of brokers are in the store."""

    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """Do nothing: a later write of the same series has the next step."""


AfterWrite: TypeAlias = (
    SendPartitionStates
    | SendInSyncSets
    | AwaitConfigChange
    | DeleteReplicas
    | ForgetTopic
    | NoteEpochs
    | Nothing
)


@dataclass(frozen=True, slots=True)
class Release:
    """Reduce by one what the command waits for."""

    token: int | None


@dataclass(frozen=True, slots=True)
class NoteReplicasDeleted:
    """Note that a broker answered a request to delete replicas of a topic.

    An attempt takes several requests; `last` marks the final one.
    """

    topic: str
    broker_id: int
    attempt: int
    last: bool


@dataclass(frozen=True, slots=True)
class NoteReplicasRemoved:
    """Note that a broker answered a request to delete replicas that have moved away."""

    partitions: tuple[TopicPartition, ...]
    broker_id: int


@dataclass(frozen=True, slots=True)
class NoteAlive:
    """Note that a broker which may take over partitions of a stopping one has answered, or is gone."""

    broker_id: int
    token: int


AfterSend: TypeAlias = Release | NoteReplicasDeleted | NoteReplicasRemoved | NoteAlive


@dataclass(frozen=True, slots=True)
class RememberEpochs:
    """Store the epochs of live brokers: all leaders and in-sync sets are valid for them now."""

    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class EndIntroduction:
    """Tell a broker that joined that all its replicas have been sent to it."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FinishReassignments:
    """Delete replicas that no longer belong to a partition.

    `dropped` are those of a reassignment that was changed or cancelled, `ready` the partitions whose
    new replicas are all in sync.
    """

    dropped: tuple[tuple[TopicPartition, int], ...] = ()
    ready: tuple[TopicPartition, ...] = ()


AfterAllWrites: TypeAlias = RememberEpochs | EndIntroduction | FinishReassignments
