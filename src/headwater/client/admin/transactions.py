"""Transactions and producers: list, describe, abort what hangs."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from headwater.client.admin.arguments import as_list, as_names, checked_text, whole_number
from headwater.client.admin.calls import AdminCalls
from headwater.client.cluster import Node
from headwater.client.connections import TRANSACTION
from headwater.client.consumer.group.consumer_protocol import by_topic
from headwater.client.consumer.record import topic_partition, topic_partitions
from headwater.client.errors import failure
from headwater.errors import E, KafkaError
from headwater.model import NO_OFFSET, TopicPartition
from headwater.wire.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
)
from headwater.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_NO_TIMESTAMP = -1
_ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """What the coordinator knows of a transactional id."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    """When the open transaction began; None if none is open."""
    partitions: tuple[TopicPartition, ...]
    """Where the coordinator still has to end the transaction."""


_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class ProducerState(NamedTuple):
    """What a partition remembers of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    """The epoch of the coordinator that ended the last transaction; -1 if none has."""
    transaction_start: int | None
    """The first offset of the open transaction; None if none is open."""


class TransactionAdmin:
    """Lists and describes transactions and producers; aborts a transaction in one partition."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def supports_transactions(self) -> bool:
        needed = (InitProducerIdRequest(), EndTxnRequest(), TxnOffsetCommitRequest())

        async def attempt() -> bool:
            cluster = self._calls.cluster
            await cluster.refresh()
            for node in list(cluster.nodes.values()):
                connection = await cluster.connection(node)
                try:
                    for request in needed:
                        connection.version_for(request)
                except KafkaError as lacking:
                    if lacking.code is not E.UNSUPPORTED_VERSION:
                        raise
                    return False
            return True

        return await self._calls.retry("the versions of the brokers", attempt)

    # -- at coordinators

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        request = ListTransactionsRequest(
            state_filters=as_names("list_transactions", states),
            producer_id_filters=[
                whole_number("a producer id", one, 64)
                for one in as_list("list_transactions", producer_ids)
            ],
        )
        if longer_than_ms is not None:
            request.duration_filter = whole_number("longer_than_ms", longer_than_ms, 64)
        if id_pattern is not None:
            request.transactional_id_pattern = checked_text("id_pattern", id_pattern)

        async def attempt() -> list[TransactionListing]:
            await self._calls.cluster.refresh()
            nodes = list(self._calls.cluster.nodes.values())
            asked = [self._transactions_at(node, request) for node in nodes]
            # Brokers count the time of transactions that have ended, too.
            return [
                row
                for rows in await asyncio.gather(*asked)
                for row in rows
                if longer_than_ms is None or row.state in _OPEN_STATES
            ]

        return sorted(await self._calls.retry("the list of transactions", attempt))

    async def _transactions_at(
        self, node: Node, request: ListTransactionsRequest
    ) -> list[TransactionListing]:
        answer = await self._calls.cluster.ask(node, request, ListTransactionsResponse)
        await self._calls.raise_refusals([(f"broker {node.id}", answer.error_code, None)])
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise failure(
                E.INVALID_REQUEST,
                f"broker {node.id} knows no transaction state {unknown}: write Ongoing, for example",
            )
        return [
            TransactionListing(
                row.transactional_id, node.id, row.producer_id, row.transaction_state
            )
            for row in answer.transaction_states
        ]

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        wanted = dict.fromkeys(as_names("describe_transactions", transactional_ids))
        found = await asyncio.gather(*(self._describe(one) for one in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _describe(self, transactional_id: str) -> TransactionDescription:
        cluster = self._calls.cluster

        async def attempt() -> TransactionDescription:
            node = await cluster.coordinator(transactional_id, TRANSACTION)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            try:
                answer = await cluster.ask(node, request, DescribeTransactionsResponse)
                row = answer.transaction_states[0]
                if row.error_code == E.TRANSACTIONAL_ID_NOT_FOUND:
                    text = f"there is no transactional id {transactional_id}"
                    raise failure(row.error_code, text)
                await self._calls.raise_refusals([(transactional_id, row.error_code, None)])
            except BaseException:
                cluster.forget_coordinator(transactional_id, TRANSACTION)
                raise
            return _description(node.id, row)

        return await self._calls.retry(f"the description of {transactional_id}", attempt)

    # -- at the brokers of partitions

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        broker_id: int | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        wanted = topic_partitions(as_list("describe_producers", partitions))

        async def attempt() -> dict[TopicPartition, tuple[ProducerState, ...]]:
            asked = [
                self._producers_at(node, names)
                for node, names in (await self._nodes_of(wanted, broker_id)).items()
            ]
            return {
                name: found for rows in await asyncio.gather(*asked) for name, found in rows.items()
            }

        found = await self._calls.retry("the description of producers", attempt)
        return {name: found[name] for name in wanted}

    async def _nodes_of(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[Node, list[TopicPartition]]:
        """Return the brokers to ask: the leaders, or the given broker."""
        cluster = self._calls.cluster
        await cluster.metadata({name.topic for name in partitions}, fresh=True)
        await cluster.check_exist(partitions)
        found: dict[Node, list[TopicPartition]] = {}
        for name in partitions:
            node = cluster.leader(name) if broker_id is None else cluster.nodes.get(broker_id)
            if node is None and broker_id is None:
                raise failure(E.LEADER_NOT_AVAILABLE, f"{name} has no leader")
            if node is None:
                raise failure(E.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
            found.setdefault(node, []).append(name)
        return found

    async def _producers_at(
        self, node: Node, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions).items()
            ]
        )
        answer = await self._calls.cluster.ask(node, request, DescribeProducersResponse)
        rows = {
            TopicPartition(topic.name, row.partition_index): row
            for topic in answer.topics
            for row in topic.partitions
        }
        await self._calls.raise_refusals(
            (str(name), row.error_code, row.error_message) for name, row in rows.items()
        )
        return {name: tuple(map(_producer, row.active_producers)) for name, row in rows.items()}

    async def abort_transaction(
        self, partition: TopicPartition | tuple[str, int], producer: ProducerState
    ) -> None:
        name = topic_partition(partition)
        if not isinstance(producer, ProducerState):
            raise TypeError(
                f"abort_transaction takes a ProducerState of describe_producers, not {producer!r}"
            )
        request = WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    # No coordinator has ended a transaction of this producer: 0 is not above any epoch.
                    coordinator_epoch=max(producer.coordinator_epoch, 0),
                    topics=[
                        WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                            name=name.topic, partition_indexes=[name.partition]
                        )
                    ],
                )
            ]
        )

        async def attempt() -> None:
            for node in await self._nodes_of([name]):
                answer = await self._calls.cluster.ask(node, request, WriteTxnMarkersResponse)
                await self._calls.raise_refusals(
                    (f"{topic.name}-{row.partition_index}", row.error_code, None)
                    for marker in answer.markers
                    for topic in marker.topics
                    for row in topic.partitions
                )

        await self._calls.retry(f"the abort of a transaction in {name}", attempt)


def _description(
    coordinator_id: int, row: DescribeTransactionsResponse.TransactionState
) -> TransactionDescription:
    over = row.transaction_start_time_ms == _NO_TIMESTAMP or row.transaction_state in _ENDED
    return TransactionDescription(
        row.transactional_id,
        coordinator_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        None if over else row.transaction_start_time_ms,
        tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in row.topics
                for number in topic.partitions
            )
        ),
    )


def _producer(row: DescribeProducersResponse.ProducerState) -> ProducerState:
    start = row.current_txn_start_offset
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        row.coordinator_epoch,
        None if start == NO_OFFSET else start,
    )
