"""LeaderAndIsr, UpdateMetadata, StopReplica: requests of the controller to brokers.

A controller sends the same requests to its own broker and to all others. A request of an older
controller, or to an earlier registration of this broker, is refused.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from headwater.broker.context import Context
from headwater.broker.request import Replier
from headwater.controller.control_requests import FULL
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.replication.leader_and_isr import LeaderAndIsr
from headwater.replication.replicas import IsCurrent
from headwater.wire.messages.control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

log = logging.getLogger("headwater.state-change")

PARTITIONS_PER_STEP = 10
"""How many partitions of a LeaderAndIsr are applied at once: new ones take files, a few milliseconds."""


# -- LeaderAndIsr


def handle_leader_and_isr(context: Context, request: Replier, body: LeaderAndIsrRequest) -> None:
    """Lead or follow partitions; the settings of their topics are read before their logs open."""

    def learned() -> None:
        context.replicas.when_applicable(partitions, apply)

    def apply() -> None:
        _Application(context, body, applied).step()

    def applied(response: LeaderAndIsrResponse) -> None:
        # A log that another topic of the name left behind moves aside first.
        context.replicas.when_applicable(partitions, lambda: request.reply(response))

    partitions = [
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in body.topic_states
        for state in topic.partition_states
    ]
    context.configs.learn([topic.topic_name for topic in body.topic_states], learned)


class _Application:
    """A LeaderAndIsr that is applied a few partitions at a time: a new one may need files."""

    def __init__(
        self,
        context: Context,
        body: LeaderAndIsrRequest,
        done: Callable[[LeaderAndIsrResponse], None],
    ) -> None:
        self._context = context
        self._body = body
        self._done = done
        self._response = LeaderAndIsrResponse()
        self._left: deque[Callable[[], None]] = deque()
        for topic in body.topic_states:
            errors = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id)
            self._response.topics.append(errors)
            for state in topic.partition_states:
                self._left.append(partial(self._apply, topic, state, errors))

    def step(self) -> None:
        """Apply some partitions, then let the loop run; answer after the last one."""
        body = self._body
        # A newer controller may have been heard of since the step before.
        refusal = self._refusal()
        if refusal is not E.NONE:
            self._done(LeaderAndIsrResponse(error_code=refusal))
            return
        try:
            for _ in range(min(PARTITIONS_PER_STEP, len(self._left))):
                self._left.popleft()()
            if not self._left:
                self._finish()
        except Exception:
            log.exception("a LeaderAndIsr of controller epoch %d failed", body.controller_epoch)
            self._response.error_code = E.UNKNOWN_SERVER_ERROR
            self._left.clear()
        if self._left:
            asyncio.get_running_loop().call_soon(self.step)
        else:
            self._done(self._response)

    def _apply(
        self,
        topic: LeaderAndIsrRequest.LeaderAndIsrTopicState,
        state: LeaderAndIsrRequest.LeaderAndIsrPartitionState,
        errors: LeaderAndIsrResponse.LeaderAndIsrTopicError,
    ) -> None:
        errors.partition_errors.append(
            LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                partition_index=state.partition_index,
                error_code=_apply(self._context, topic, state, self._is_current),
            )
        )

    def _refusal(self) -> E:
        body = self._body
        return self._context.control.refuse(body.controller_epoch, body.broker_epoch)

    def _is_current(self) -> bool:
        return self._refusal() is E.NONE

    def _finish(self) -> None:
        context, body = self._context, self._body
        context.changed()
        if body.type == FULL:
            gone = context.metadata.end_series(body.controller_epoch, body.broker_epoch)
            if gone:
                context.topics_deleted(gone)
            _set_strays_aside(context)
            context.control.assignment_known.set()
        context.control.on_applied()


def _set_strays_aside(context: Context) -> None:
    """Stop serving partitions that moved to other brokers while this one was not registered.

    The controller does not wait for a broker that is away, and does not name these partitions to it.
    """
    for replica in list(context.replicas):
        at = replica.topic_partition
        known = context.metadata.partition(*at)
        if (
            known is not None
            and context.metadata.topic_id(at.topic) == replica.topic_id
            and context.node_id not in known.replicas
            and known.leader_epoch > replica.leader_epoch
        ):
            context.replicas.set_aside(at)
            context.log_dir_moves.cancel(at)


def _apply(
    context: Context,
    topic: LeaderAndIsrRequest.LeaderAndIsrTopicState,
    state: LeaderAndIsrRequest.LeaderAndIsrPartitionState,
    is_current: IsCurrent,
) -> E:
    decided = LeaderAndIsr(
        TopicPartition(topic.topic_name, state.partition_index),
        topic.topic_id,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        state.is_new,
        tuple(state.elr),
    )
    code = context.replicas.apply(decided, is_current)
    log.debug(
        "%s: leader %d in epoch %d, in sync %s, by controller epoch %d: %s",
        decided.topic_partition,
        decided.leader,
        decided.leader_epoch,
        decided.isr,
        context.control.controller_epoch,
        code.name,
    )
    return code


# -- UpdateMetadata


def handle_update_metadata(
    context: Context, request: Replier, body: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Update the live brokers, the topics and the leaders of their partitions."""
    refusal = context.control.refuse(body.controller_epoch, body.broker_epoch)
    if refusal is E.NONE:
        removed = context.metadata.apply(body)
        context.isr_proposals.controller_changed()
        context.markers.brokers_changed()
        if context.forwarding is not None:
            context.forwarding.controller_changed()
        _learn_in_sync_sets(context, body)
        context.changed()
        known = context.metadata.topics
        deleted = dict.fromkeys(at.topic for at in removed if at.topic not in known)
        if deleted:
            context.topics_deleted(deleted)
        context.control.metadata_known.set()
        context.control.on_applied()
    return UpdateMetadataResponse(error_code=refusal)


def _learn_in_sync_sets(context: Context, body: UpdateMetadataRequest) -> None:
    """Pass on in-sync sets that were stored although their leader here got no answer (KAFKA-2729)."""
    for topic in body.topic_states:
        for state in topic.partition_states:
            if state.leader == context.node_id:
                replica = context.replicas.get(topic.topic_name, state.partition_index)
                if replica is not None and replica.topic_id == topic.topic_id:
                    replica.leading.isr_stored(
                        state.isr, state.leader_epoch, state.zk_version, state.elr
                    )


# -- StopReplica


def handle_stop_replica(
    context: Context, request: Replier, body: StopReplicaRequest
) -> StopReplicaResponse | None:
    """Stop serving partitions, and delete their logs where the topic is deleted."""
    refusal = context.control.refuse(body.controller_epoch, body.broker_epoch)
    if refusal is not E.NONE:
        return StopReplicaResponse(error_code=refusal)
    stopped = [
        (TopicPartition(topic.topic_name, state.partition_index), state.delete_partition)
        for topic in body.topic_states
        for state in topic.partition_states
    ]

    def done(failures: Mapping[TopicPartition, OSError]) -> None:
        for at, failure in failures.items():
            log.error("%s cannot be removed: %s", at, failure)
        request.reply(
            StopReplicaResponse(
                partition_errors=[
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=at.topic,
                        partition_index=at.partition,
                        error_code=E.KAFKA_STORAGE_ERROR if at in failures else E.NONE,
                    )
                    for at, _ in stopped
                ]
            )
        )

    context.replicas.stop(stopped, done)
    for at, delete in stopped:
        if delete:
            context.log_dir_moves.cancel(at)
    context.changed()
    return None
