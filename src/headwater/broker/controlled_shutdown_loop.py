"""Hands over leadership before the broker stops, so that writes pause only for a moment."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headwater.broker.context import Context
from headwater.controller.commands import ControlledShutdown, HandoverAnswer
from headwater.errors import E, KafkaError, error_of
from headwater.model import NO_LEADER, TopicPartition
from headwater.wire.messages.control import ControlledShutdownRequest, ControlledShutdownResponse

log = logging.getLogger("headwater.server")

ATTEMPTS = 3
PAUSE_S = 0.5
"""The pause between two attempts; a new controller may be elected meanwhile."""
TIMEOUT_MS = 10_000
SHOWN = 20
"""How many partitions the log line names."""


async def hand_over_leadership(context: Context) -> None:
    """Ask the controller to move leadership to other brokers; give up after some attempts."""
    if not context.settings.controlled_shutdown_enable or len(context.metadata.brokers) < 2:
        return
    why = "no controller is known"
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        if context.metadata.controller_id == NO_LEADER:
            continue
        answer = await _ask(context)
        if answer.error is E.NONE:
            _report([*answer.remaining, *_without_another_replica(context)])
            return
        why = f"{answer.error.name}, {answer.error.text}"
        if answer.error is E.REQUEST_TIMED_OUT:
            break  # what was decided may still be carried out; asking again would only take longer
    log.warning(
        "stopping without handing over what this broker leads: %s; "
        "other brokers take over when its session ends",
        why,
    )


async def _ask(context: Context) -> HandoverAnswer:
    answered: asyncio.Future[HandoverAnswer] = asyncio.get_running_loop().create_future()
    epoch = context.control.broker_epoch
    if context.metadata.controller_id == context.node_id:
        command = ControlledShutdown(context.node_id, epoch, TIMEOUT_MS)
        context.controller.submit(command, answered.set_result)
        return await answered
    connection = context.peers.open(context.metadata.controller_id, "controlled shutdown")
    request = ControlledShutdownRequest(broker_id=context.node_id, broker_epoch=epoch)
    connection.send(request, ControlledShutdownResponse, _received(answered), timeout_ms=TIMEOUT_MS)
    try:
        return await answered
    finally:
        connection.close()


def _received(
    answered: "asyncio.Future[HandoverAnswer]",
) -> Callable[[ControlledShutdownResponse | KafkaError], None]:
    def received(response: ControlledShutdownResponse | KafkaError) -> None:
        if answered.done():
            return
        if isinstance(response, KafkaError):
            answered.set_result(HandoverAnswer(response.code))
            return
        remaining = [
            TopicPartition(one.topic_name, one.partition_index)
            for one in response.remaining_partitions
        ]
        answered.set_result(HandoverAnswer(error_of(response.error_code), remaining))

    return received


def _without_another_replica(context: Context) -> list[TopicPartition]:
    """What this broker leads alone; the controller does not name it, as in Kafka."""
    return [
        replica.topic_partition
        for replica in context.replicas
        if replica.is_leader
        and (known := context.metadata.partition(*replica.topic_partition)) is not None
        and list(known.replicas) == [context.node_id]
    ]


def _report(remaining: Sequence[TopicPartition]) -> None:
    if not remaining:
        log.info("other brokers lead now what this broker led")
        return
    more = f" and {len(remaining) - SHOWN} more" if len(remaining) > SHOWN else ""
    log.warning(
        "%d partitions have no other live in-sync replica, and no leader until this broker "
        "returns: %s%s",
        len(remaining),
        ", ".join(map(str, remaining[:SHOWN])),
        more,
    )
