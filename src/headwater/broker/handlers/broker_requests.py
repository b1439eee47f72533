"""AlterPartition, ControlledShutdown: requests of brokers to the controller."""

from collections.abc import Iterator

from headwater.broker.context import Context
from headwater.broker.request import Replier
from headwater.broker.turns import Steps
from headwater.controller.commands import (
    AlterPartition,
    ControlledShutdown,
    HandoverAnswer,
    IsrAnswer,
    IsrOutcome,
    IsrProposal,
)
from headwater.errors import E
from headwater.model import ZERO_UUID
from headwater.wire.messages.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

# -- AlterPartition


def handle_alter_partition(context: Context, request: Replier, body: AlterPartitionRequest) -> None:
    """Store the in-sync sets that a leader proposes.

    0-1: topics by name. 2: by id. 3: with the broker epoch of each member.
    """

    def reply(answer: IsrAnswer) -> None:
        request.reply_in_turns(_altered(body, answer))

    command = AlterPartition(body.broker_id, body.broker_epoch, _proposals(body))
    context.controller.submit(command, reply)


def _proposals(body: AlterPartitionRequest) -> Iterator[IsrProposal]:
    for topic in body.topics:
        for one in topic.partitions:
            members = [
                (member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs
            ]
            yield IsrProposal(
                topic.topic_name,
                topic.topic_id,
                one.partition_index,
                one.leader_epoch,
                one.partition_epoch,
                members or [(broker_id, -1) for broker_id in one.new_isr],
                bool(one.leader_recovery_state),
                one.keeps_records,
            )


def _altered(body: AlterPartitionRequest, answer: IsrAnswer) -> Steps[AlterPartitionResponse]:
    response = AlterPartitionResponse(error_code=answer.error)
    if answer.error is not E.NONE:
        return response
    outcomes = iter(answer.outcomes)
    for topic in body.topics:
        result = AlterPartitionResponse.AlterPartitionTopicResult(
            topic_name=topic.topic_name, topic_id=topic.topic_id
        )
        response.topics.append(result)
        for one in topic.partitions:
            by_name = topic.topic_id == ZERO_UUID
            result.partitions.append(
                _altered_partition(one.partition_index, next(outcomes), by_name)
            )
            yield
    return response


def _altered_partition(
    index: int, outcome: IsrOutcome, by_name: bool
) -> AlterPartitionResponse.AlterPartitionResult:
    error = outcome.error
    if by_name and error is E.INELIGIBLE_REPLICA:
        error = E.OPERATION_NOT_ATTEMPTED  # as versions without ids call it
    return AlterPartitionResponse.AlterPartitionResult(
        partition_index=index,
        error_code=error,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=int(outcome.recovering),
        partition_epoch=outcome.partition_epoch,
        elr=list(outcome.elr),
    )


# -- ControlledShutdown


def handle_controlled_shutdown(
    context: Context, request: Replier, body: ControlledShutdownRequest
) -> None:
    """Move leadership away from a broker that is about to stop."""

    def reply(answer: HandoverAnswer) -> None:
        response = ControlledShutdownResponse(
            error_code=answer.error,
            remaining_partitions=[
                ControlledShutdownResponse.RemainingPartition(
                    topic_name=at.topic, partition_index=at.partition
                )
                for at in answer.remaining
            ],
        )
        request.reply(response)

    context.controller.submit(ControlledShutdown(body.broker_id, body.broker_epoch), reply)
