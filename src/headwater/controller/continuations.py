"""What the controller does once a write is durable or a broker has answered.

Plain values, not closures, so that everything outstanding can be printed and compared. A command is
named by its token; None means that no client waits.
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


@dataclass(frozen=True, slots=True)
class SendInSyncSets:
    """Answer the leader that asked for in-sync sets, and tell every broker of them."""

    partitions: tuple[TopicPartition, ...]
    token: int


@dataclass(frozen=True, slots=True)
class AwaitConfigChange:
    """Answer the command once this broker has applied the config notification just written."""

    token: int


@dataclass(frozen=True, slots=True)
class DeleteReplicas:
    """Delete the replicas of a topic whose deletion is marked now."""

    topic: str


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """Forget a topic: the last of its nodes is gone."""

    topic: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """Do nothing: another write of the same batch decides."""


AfterWrite: TypeAlias = (
    SendPartitionStates
    | SendInSyncSets
    | AwaitConfigChange
    | DeleteReplicas
    | ForgetTopic
    | Nothing
)


@dataclass(frozen=True, slots=True)
class Release:
    """Let the command wait for one thing less."""

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
class NoteReplicaRemoved:
    """Note that a broker answered a request to delete a replica that has moved away."""

    at: TopicPartition
    broker_id: int


AfterSend: TypeAlias = Release | NoteReplicasDeleted | NoteReplicaRemoved


@dataclass(frozen=True, slots=True)
class RememberEpochs:
    """Store the epochs of live brokers: leaders and in-sync sets hold for these lives now."""

    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class EndIntroduction:
    """Tell a broker that joined that it has heard of all its replicas."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FinishReassignments:
    """Delete the replicas that moves have dropped, and those that the `ready` ones leave behind."""

    dropped: tuple[tuple[TopicPartition, int], ...] = ()
    ready: tuple[TopicPartition, ...] = ()


AfterAllWrites: TypeAlias = RememberEpochs | EndIntroduction | FinishReassignments
