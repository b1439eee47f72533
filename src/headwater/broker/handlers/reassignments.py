"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from collections.abc import Iterable
from itertools import groupby

from headwater.broker.context import Context
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained, finish
from headwater.controller.commands import (
    AlterReassignments,
    ElectLeaders,
    ListReassignments,
    OngoingReassignment,
    PartitionOutcome,
    PartitionsAnswer,
    Reassignment,
)
from headwater.errors import E
from headwater.model import TopicPartition
from headwater.wire.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

PREFERRED, UNCLEAN = 0, 1
"""The types of an election."""

FIRST_WITH_ERROR = 1
"""The first version with an error for the whole request."""

_TopicResponse = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_PartitionResponse = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
_OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_OngoingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


# -- ElectLeaders


def handle_elect_leaders(
    context: Context, request: Request, body: ElectLeadersRequest
) -> Steps[ElectLeadersResponse | None]:
    """Elect preferred leaders, from version 1 also unclean ones; no list means all partitions."""
    wanted = None
    if body.topic_partitions is not None:
        wanted = yield from _named(body)
    if body.election_type not in (PREFERRED, UNCLEAN):
        refusal = PartitionsAnswer(E.INVALID_REQUEST)
        return (yield from _elected(refusal, wanted or (), request.version))
    command = ElectLeaders(wanted, body.election_type == UNCLEAN, body.timeout_ms)

    def reply(answer: PartitionsAnswer) -> None:
        request.reply_in_turns(_elected(answer, wanted or (), request.version))

    context.controller.submit(command, reply)
    return None


def refuse_election(request: Request, body: ElectLeadersRequest, error: E) -> ElectLeadersResponse:
    """The answer that refuses the whole request."""
    wanted = finish(_named(body))
    return finish(_elected(PartitionsAnswer(error), wanted, request.version))


def _named(body: ElectLeadersRequest) -> Steps[list[TopicPartition]]:
    wanted = []
    for topic in drained(body.topic_partitions or []):
        for index in topic.partitions:
            wanted.append(TopicPartition(topic.topic, index))
            yield
    return wanted


def _elected(
    answer: PartitionsAnswer, wanted: Iterable[TopicPartition], version: int
) -> Steps[ElectLeadersResponse]:
    """The answer; an error of the whole request also appears with each partition."""
    response = ElectLeadersResponse()
    outcomes: Iterable[PartitionOutcome] = answer.outcomes
    if version >= FIRST_WITH_ERROR:
        response.error_code = answer.error
    if answer.error is not E.NONE:
        why = answer.message or answer.error.text
        outcomes = [PartitionOutcome(at, answer.error, why) for at in wanted]
    for topic, members in groupby(outcomes, key=lambda one: one.at.topic):
        result = ElectLeadersResponse.ReplicaElectionResult(topic=topic)
        response.replica_election_results.append(result)
        for one in members:
            result.partition_result.append(
                ElectLeadersResponse.ElectionResult(
                    partition_id=one.at.partition,
                    error_code=one.error,
                    error_message=one.message,
                )
            )
            yield
    return response


# -- AlterPartitionReassignments


def handle_alter_partition_reassignments(
    context: Context, request: Request, body: AlterPartitionReassignmentsRequest
) -> Steps[None]:
    """Start or cancel the move of partitions; one refusal refuses all."""
    wanted = []
    for topic in drained(body.topics):
        for one in topic.partitions:
            wanted.append(
                Reassignment(TopicPartition(topic.name, one.partition_index), one.replicas)
            )
            yield

    def reply(answer: PartitionsAnswer) -> None:
        request.reply_in_turns(_altered(body, answer))

    allow = body.allow_replication_factor_change
    context.controller.submit(AlterReassignments(wanted, allow, body.timeout_ms), reply)


def _altered(
    body: AlterPartitionReassignmentsRequest, answer: PartitionsAnswer
) -> Steps[AlterPartitionReassignmentsResponse]:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=answer.error,
        error_message=answer.message,
    )
    for topic, members in groupby(answer.outcomes, key=lambda one: one.at.topic):
        result = _TopicResponse(name=topic)
        response.responses.append(result)
        for one in members:
            result.partitions.append(
                _PartitionResponse(
                    partition_index=one.at.partition,
                    error_code=one.error,
                    error_message=one.message,
                )
            )
            yield
    return response


# -- ListPartitionReassignments


def handle_list_partition_reassignments(
    context: Context, request: Request, body: ListPartitionReassignmentsRequest
) -> Steps[None]:
    """List the moves in progress; no list means all partitions."""
    named: list[TopicPartition] = []
    wanted = None if body.topics is None else named
    for topic in drained(body.topics or []):
        for index in topic.partition_indexes:
            named.append(TopicPartition(topic.name, index))
            yield

    def reply(answer: PartitionsAnswer) -> None:
        request.reply_in_turns(_listed(answer))

    context.controller.submit(ListReassignments(wanted, body.timeout_ms), reply)


def _listed(answer: PartitionsAnswer) -> Steps[ListPartitionReassignmentsResponse]:
    response = ListPartitionReassignmentsResponse(
        error_code=answer.error, error_message=answer.message
    )
    ongoing: Iterable[OngoingReassignment] = answer.outcomes
    for topic, members in groupby(ongoing, key=lambda one: one.at.topic):
        result = _OngoingTopic(name=topic)
        response.topics.append(result)
        for one in members:
            result.partitions.append(
                _OngoingPartition(
                    partition_index=one.at.partition,
                    replicas=list(one.replicas),
                    adding_replicas=list(one.adding),
                    removing_replicas=list(one.removing),
                )
            )
            yield
    return response
