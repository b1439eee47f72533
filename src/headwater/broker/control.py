"""The receiving end of the controller's channel: who leads what, and what everybody should know.

The local controller and, later, a remote one come through the same calls with the same messages.
A message of an older controller, or for an earlier life of this broker, changes nothing.
"""

import logging
from collections.abc import Callable, Iterable

from headwater.broker.context import Context
from headwater.controller.control_requests import ControlRequest, ControlResponse
from headwater.errors import E
from headwater.model import CONSUMER_OFFSETS, TopicPartition
from headwater.replication.partition import Role
from headwater.replication.replicas import LeaderAndIsr
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger("headwater.state-change")


class Control:
    """Applies the controller's messages to this broker."""

    def __init__(self, context: Context, topics_gone: Callable[[Iterable[str]], None]) -> None:
        self._context = context
        self._topics_gone = topics_gone
        self._controller_epoch = -1
        self.broker_epoch = -1
        """The epoch of this broker's registration; -1 until it is known."""

    def receive(self, message: ControlRequest) -> ControlResponse:
        """Apply one message; the answer goes back to the controller."""
        match message:
            case LeaderAndIsrRequest():
                return self._leader_and_isr(message)
            case UpdateMetadataRequest():
                return self._update_metadata(message)
            case StopReplicaRequest():
                return self._stop_replica(message)

    def _refusal(self, controller_epoch: int, broker_epoch: int) -> E:
        if controller_epoch < self._controller_epoch:
            return E.STALE_CONTROLLER_EPOCH
        if -1 < broker_epoch < self.broker_epoch:
            return E.STALE_BROKER_EPOCH
        self._controller_epoch = controller_epoch
        return E.NONE

    # -- LeaderAndIsr

    def _leader_and_isr(self, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        refusal = self._refusal(message.controller_epoch, message.broker_epoch)
        response = LeaderAndIsrResponse(error_code=refusal)
        if refusal is not E.NONE:
            return response
        for topic in message.topic_states:
            errors = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id)
            response.topics.append(errors)
            for state in topic.partition_states:
                code = self._apply(topic, state)
                errors.partition_errors.append(
                    LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        partition_index=state.partition_index, error_code=code
                    )
                )
        self._context.changed()
        return response

    def _apply(
        self,
        topic: LeaderAndIsrRequest.LeaderAndIsrTopicState,
        state: LeaderAndIsrRequest.LeaderAndIsrPartitionState,
    ) -> E:
        context = self._context
        decided = LeaderAndIsr(
            TopicPartition(topic.topic_name, state.partition_index),
            topic.topic_id,
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            tuple(state.replicas),
            tuple(state.isr),
            state.is_new,
        )
        known = context.replicas.get(*decided.topic_partition)
        led = known is not None and known.partition.role is Role.LEADER
        epoch = -1 if known is None else known.partition.leader_epoch
        code = context.replicas.apply(decided)
        log.debug(
            "%s: leader %d in epoch %d, in sync %s, by controller epoch %d: %s",
            decided.topic_partition,
            decided.leader,
            decided.leader_epoch,
            decided.isr,
            self._controller_epoch,
            code.name,
        )
        if code is E.NONE and topic.topic_name == CONSUMER_OFFSETS:
            if state.leader == context.node_id and (not led or state.leader_epoch > epoch):
                context.groups.elected(state.partition_index, state.leader_epoch)
            elif state.leader != context.node_id and led:
                context.groups.resigned(state.partition_index)
        return code

    # -- UpdateMetadata

    def _update_metadata(self, message: UpdateMetadataRequest) -> UpdateMetadataResponse:
        refusal = self._refusal(message.controller_epoch, message.broker_epoch)
        if refusal is E.NONE:
            removed = self._context.metadata.apply(message)
            self._context.changed()
            known = self._context.metadata.topics
            gone = dict.fromkeys(at.topic for at in removed if at.topic not in known)
            if gone:
                self._topics_gone(gone)
        return UpdateMetadataResponse(error_code=refusal)

    # -- StopReplica

    def _stop_replica(self, message: StopReplicaRequest) -> StopReplicaResponse:
        refusal = self._refusal(message.controller_epoch, message.broker_epoch)
        response = StopReplicaResponse(error_code=refusal)
        if refusal is not E.NONE:
            return response
        for topic in message.topic_states:
            for state in topic.partition_states:
                at = TopicPartition(topic.topic_name, state.partition_index)
                code = self._stop(at, state.delete_partition)
                response.partition_errors.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=at.topic, partition_index=at.partition, error_code=code
                    )
                )
        self._context.changed()
        return response

    def _stop(self, at: TopicPartition, delete: bool) -> E:
        if at.topic == CONSUMER_OFFSETS:
            self._context.groups.resigned(at.partition)
        try:
            self._context.replicas.stop(at, delete)
        except OSError as failure:
            log.error("%s cannot be removed: %s", at, failure)
            return E.KAFKA_STORAGE_ERROR
        return E.NONE
