"""What coordinators are asked in a transaction, and what their answers mean. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from headwater.client.consumer.record import OffsetAndMetadata
from headwater.client.errors import CommitFailedError, failure
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.producer.sequences import ProducerIdAndEpoch
from headwater.errors import E, KafkaError, error_of
from headwater.model import TopicPartition
from headwater.wire.messages.producers import InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

TransactionAnswer = (
    InitProducerIdResponse
    | AddPartitionsToTxnResponse
    | AddOffsetsToTxnResponse
    | TxnOffsetCommitResponse
    | EndTxnResponse
)

FENCED = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH})
UNMAPPED = frozenset({E.INVALID_PRODUCER_ID_MAPPING})
"""The coordinator has forgotten the transactional id: only a new epoch helps."""
_COORDINATOR_GONE = frozenset(
    {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION}
)
_MEMBERSHIP = frozenset(
    {E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.STALE_MEMBER_EPOCH, E.REBALANCE_IN_PROGRESS}
)
_ABORTABLE = UNMAPPED | {
    E.TRANSACTION_ABORTABLE,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.OPERATION_NOT_ATTEMPTED,
    E.UNKNOWN_PRODUCER_ID,
    E.FENCED_INSTANCE_ID,
    E.OFFSET_METADATA_TOO_LARGE,
    E.INVALID_COMMIT_OFFSET_SIZE,
    E.INVALID_TOPIC_EXCEPTION,
}


class Verdict(Enum):
    """What to do after an answer."""

    DONE = "send the next request, if there is one"
    RETRY = "send the same request again"
    RETRY_SOON = "send it again after a short rest: the last transaction is being completed"
    FIND_COORDINATOR = "find the coordinator and send it again"


class TransactionRefusal(NamedTuple):
    """An answer that repetitions would not change."""

    error: KafkaError
    abortable: bool
    """Whether the producer can go on after it has aborted the transaction."""


def verdict_of(code: E) -> Verdict:
    """Return whether to repeat a request that was answered with `code`."""
    if code in _COORDINATOR_GONE:
        return Verdict.FIND_COORDINATOR
    if code == E.CONCURRENT_TRANSACTIONS:
        return Verdict.RETRY_SOON
    return Verdict.RETRY if code.retriable else Verdict.DONE


def refusal(code: E, codes: Mapping[TopicPartition, E] | None) -> TransactionRefusal:
    """Return the error for an answer with `code`; `codes` names the partitions it is about."""
    about = ", ".join(str(name) for name, each in (codes or {}).items() if each == code)
    said = f"{about}: {code.text}" if about else code.text
    if code in _MEMBERSHIP:
        text = f"the group has given the partitions to other members ({said})"
        return TransactionRefusal(CommitFailedError(text, code), abortable=True)
    return TransactionRefusal(failure(code, said), code in _ABORTABLE)


def first_problem(codes: Iterable[E]) -> E:
    """Return the code that decides: one that calls for a repetition comes after all others."""
    problems = [code for code in codes if code != E.NONE]
    return min(problems, key=_rank, default=E.NONE)


def _rank(code: E) -> int:
    if code in FENCED:
        return 0
    if code == E.OPERATION_NOT_ATTEMPTED:
        return 3
    return 1 if verdict_of(code) is Verdict.DONE else 2


def partition_codes(
    answer: AddPartitionsToTxnResponse | TxnOffsetCommitResponse,
) -> dict[TopicPartition, E]:
    """Return the result of each partition."""
    if isinstance(answer, TxnOffsetCommitResponse):
        return {
            TopicPartition(topic.name, row.partition_index): error_of(row.error_code)
            for topic in answer.topics
            for row in topic.partitions
        }
    return {
        TopicPartition(topic.name, row.partition_index): error_of(row.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def add_partitions_request(
    transactional_id: str, identity: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Return the request that adds partitions to the transaction."""
    topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
    for name, number in partitions:
        topic = topics.setdefault(
            name, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[])
        )
        topic.partitions.append(number)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=list(topics.values()),
    )


def offsets_request(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Return the request that commits offsets together with the transaction."""
    topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
    for (name, number), row in offsets.items():
        topic = topics.setdefault(
            name, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=[])
        )
        topic.partitions.append(
            TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=list(topics.values()),
    )
