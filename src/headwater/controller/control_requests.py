"""Builds control requests (LeaderAndIsr, UpdateMetadata, StopReplica) from the state. Pure."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from headwater.controller.state import ClusterState, LiveBroker, PartitionRegistration, TopicState
from headwater.model import LEADER_DURING_DELETE, TopicPartition
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse: TypeAlias = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse

INCREMENTAL = 1
FULL = 2
"""The last of a series: with it, all replicas of the broker have been sent to it."""

_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class ControllerIdentity(NamedTuple):
    """The controller's fields in every control request, and the listener it uses."""

    controller_id: int
    controller_epoch: int
    listener: str


def leader_and_isr(
    identity: ControllerIdentity,
    to: LiveBroker,
    state: ClusterState,
    partitions: Sequence[TopicPartition],
    *,
    new: bool = False,
    kind: int = INCREMENTAL,
) -> LeaderAndIsrRequest:
    """Tell a broker which of `partitions` it leads or follows."""
    request = LeaderAndIsrRequest(
        controller_id=identity.controller_id,
        controller_epoch=identity.controller_epoch,
        broker_epoch=to.epoch,
        type=kind,
    )
    leaders: set[int] = set()
    for topic, indexes in _by_topic(state, partitions):
        leaders.update(topic.partitions[index].leader for index in indexes)
        request.topic_states.append(
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partition_states=[
                    _leadership(index, topic.partitions[index], new, to.broker_id)
                    for index in indexes
                ],
            )
        )
    request.live_leaders = [
        _live_leader(identity, state.brokers[leader])
        for leader in sorted(leaders)
        if leader in state.brokers
    ]
    return request


def _leadership(
    index: int, partition: PartitionRegistration, new: bool, to: int
) -> LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    return LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        partition_epoch=partition.version,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
        is_new=new or (to in partition.adding and to not in partition.isr),
        leader_recovery_state=int(partition.recovering),
        elr=list(partition.elr),
    )


def _live_leader(
    identity: ControllerIdentity, broker: LiveBroker
) -> LeaderAndIsrRequest.LeaderAndIsrLiveLeader:
    endpoints = broker.node.endpoints
    chosen = next((end for end in endpoints if end.listener == identity.listener), endpoints[0])
    return LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
        broker_id=broker.broker_id, host_name=chosen.host, port=chosen.port
    )


def update_metadata(
    identity: ControllerIdentity,
    to: Iterable[LiveBroker],
    state: ClusterState,
    partitions: Sequence[TopicPartition],
) -> list[UpdateMetadataRequest]:
    """Tell brokers the leaders of `partitions` and all live brokers, for their clients.

    The requests share what they say: it is made once, however many brokers there are.
    """
    topic_states = [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=topic.name,
            topic_id=topic.topic_id,
            partition_states=[
                _metadata(index, topic.partitions[index], state, topic.deleting)
                for index in indexes
            ],
            partition_count=topic.partition_count,
        )
        for topic, indexes in _by_topic(state, partitions)
    ]
    live_brokers = [_live_broker(broker) for broker in state.brokers.values()]
    return [
        UpdateMetadataRequest(
            controller_id=identity.controller_id,
            controller_epoch=identity.controller_epoch,
            broker_epoch=broker.epoch,
            topic_states=topic_states,
            live_brokers=live_brokers,
        )
        for broker in to
    ]


def _metadata(
    index: int, partition: PartitionRegistration, state: ClusterState, deleting: bool
) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=partition.controller_epoch,
        leader=LEADER_DURING_DELETE if deleting else partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.version,
        replicas=list(partition.replicas),
        offline_replicas=[one for one in partition.replicas if one not in state.brokers],
        elr=list(partition.elr),
        last_known_leader=partition.last_known_leader,
    )


def _live_broker(broker: LiveBroker) -> UpdateMetadataRequest.UpdateMetadataBroker:
    return UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataRequest.UpdateMetadataEndpoint(
                port=end.port,
                host=end.host,
                listener=end.listener,
                security_protocol=_PROTOCOLS.get(end.security_protocol, 0),
            )
            for end in broker.node.endpoints
        ],
        rack=broker.node.rack,
    )


def delete_replicas(
    identity: ControllerIdentity, to: LiveBroker, topic: TopicState, indexes: Iterable[int]
) -> StopReplicaRequest:
    """Tell a broker to delete its replicas of these partitions."""
    return StopReplicaRequest(
        controller_id=identity.controller_id,
        controller_epoch=identity.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=[
            StopReplicaRequest.StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=[
                    StopReplicaRequest.StopReplicaPartitionState(
                        partition_index=index,
                        leader_epoch=LEADER_DURING_DELETE,
                        delete_partition=True,
                    )
                    for index in indexes
                ],
            )
        ],
    )


def remove_replicas(
    identity: ControllerIdentity,
    to: LiveBroker,
    state: ClusterState,
    partitions: Sequence[TopicPartition],
) -> StopReplicaRequest:
    """Tell a broker to delete its replicas of partitions that other brokers keep."""
    return StopReplicaRequest(
        controller_id=identity.controller_id,
        controller_epoch=identity.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=[
            StopReplicaRequest.StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=[
                    StopReplicaRequest.StopReplicaPartitionState(
                        partition_index=index,
                        leader_epoch=topic.partitions[index].leader_epoch,
                        delete_partition=True,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(state, partitions)
        ],
    )


def _by_topic(
    state: ClusterState, partitions: Sequence[TopicPartition]
) -> Iterable[tuple[TopicState, list[int]]]:
    for name, members in groupby(partitions, key=lambda at: at.topic):
        yield state.topics[name], [at.partition for at in members]
