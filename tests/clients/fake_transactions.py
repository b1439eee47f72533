"""A transaction coordinator for the scriptable cluster, in both generations of the protocol.

    transactions = FakeTransactions(cluster, version=2)
    transactions.fault = lambda call: "no answer" if call.number == 3 else None

It keeps what Apache Kafka's coordinator keeps of each transactional id, and knows which offsets of
each log are committed. All brokers serve it; clients find `cluster.coordinator`.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headwater.errors import E
from headwater.records.batch import TRANSACTIONAL, RawHeader
from headwater.records.header_fields import ATTRIBUTES, BASE_SEQUENCE, PRODUCER_EPOCH, PRODUCER_ID
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headwater.wire.schema import Struct
from tests.clients.fake_cluster import Cut, FakeBroker, FakeCluster, Fault

Where = tuple[str, int]


class Call(NamedTuple):
    """A request that arrived at the coordinator or, with offsets, at the group's."""

    number: int
    """Of all such requests, from 1 on."""
    request: Struct


@dataclass
class Identity:
    """What the coordinator knows of one transactional id."""

    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    partitions: set[Where] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    before_bump: tuple[int, int] | None = None
    """The id and epoch that the last bump of the producer replaced."""


class FakeTransactions:
    """The transactions of a cluster."""

    def __init__(self, cluster: FakeCluster, version: int = 2) -> None:
        self.cluster = cluster
        self.version = version
        self.fault: Callable[[Call], Fault] = lambda _: None
        self.completing = 0
        """How many requests after the end of a transaction are told to wait."""
        self.generation = 1
        """The generation of every group; offsets of another one are refused."""
        self.ids: dict[str, Identity] = {}
        self.calls: list[Struct] = []
        self.committed: defaultdict[Where, set[int]] = defaultdict(set)
        """The visible offsets of each partition."""
        self.offsets: dict[tuple[str, str, int], int] = {}
        """The committed offsets by group and partition."""
        self._open: dict[tuple[int, Where], int] = {}
        self._pending: dict[int, dict[tuple[str, str, int], int]] = defaultdict(dict)
        self._busy: dict[str, int] = {}
        self._next_id = 1000
        cluster.features["transaction.version"] = version
        cluster.check_append = self._check_append
        for schema, handler in (
            (InitProducerIdRequest, self._init),
            (AddPartitionsToTxnRequest, self._add_partitions),
            (AddOffsetsToTxnRequest, self._add_offsets),
            (TxnOffsetCommitRequest, self._commit_offsets),
            (EndTxnRequest, self._end),
        ):
            cluster.handlers[schema.__schema__.api_key or 0] = (schema, self._faulty(handler))

    def visible(self, topic: str, partition: int) -> list[bytes | None]:
        """What a consumer with read_committed sees."""
        values = self.cluster.values(topic, partition)
        return [values[offset] for offset in sorted(self.committed[topic, partition])]

    def time_out(self, name: str) -> None:
        """Abort the open transaction of `name`, as after transaction.timeout.ms."""

        def abort() -> None:
            self.ids[name].epoch += 1
            self._finish(self.ids[name], commit=False)

        self.cluster.do(abort)

    def _faulty(self, handler: Callable[[Any, E], Struct]) -> Callable[[FakeBroker, Any], Any]:
        """Apply faults: a code refuses without effect, ("after", code) refuses after the effect."""

        def answer(broker: FakeBroker, request: Any) -> Struct | None:
            self.calls.append(request)
            fault = self.fault(Call(len(self.calls), request))
            if fault == "cut before":
                raise Cut
            if isinstance(fault, E):
                return handler(request, fault)
            answered = handler(request, E.NONE)
            if fault == "cut after":
                raise Cut
            if fault == "no answer":
                return None
            return handler(request, fault[1]) if isinstance(fault, tuple) else answered

        return answer

    # -- what the coordinator answers

    def _init(self, request: InitProducerIdRequest, refused: E) -> InitProducerIdResponse:
        if refused:
            return InitProducerIdResponse(error_code=refused)
        name = request.transactional_id
        assert name
        known = self.ids.get(name)
        if known is None:
            self._next_id += 1
            known = self.ids[name] = Identity(self._next_id)
            return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=0)
        given = (request.producer_id, request.producer_epoch)
        if given != (-1, -1) and given == known.before_bump:
            return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)
        if given != (-1, -1) and given != (known.producer_id, known.epoch):
            return InitProducerIdResponse(error_code=E.PRODUCER_FENCED)
        if known.state == "Ongoing":
            known.epoch += 1
            self._finish(known, commit=False)
            return InitProducerIdResponse(error_code=E.CONCURRENT_TRANSACTIONS)
        known.before_bump = given if given != (-1, -1) else None
        known.epoch += 1
        known.state = "Empty"
        return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _problem(self, name: str, producer_id: int, epoch: int) -> E:
        known = self.ids.get(name)
        if known is None or known.producer_id != producer_id:
            return E.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != epoch:
            return E.PRODUCER_FENCED
        if self._busy.get(name, 0) > 0:
            self._busy[name] -= 1
            return E.CONCURRENT_TRANSACTIONS
        return E.NONE

    def _add_partitions(
        self, request: AddPartitionsToTxnRequest, refused: E
    ) -> AddPartitionsToTxnResponse:
        name = request.v3_and_below_transactional_id
        assert self.version < 2
        code = refused or self._problem(
            name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        if code == E.NONE:
            known = self.ids[name]
            known.state = "Ongoing"
            known.partitions |= {
                (topic.name, number)
                for topic in request.v3_and_below_topics
                for number in topic.partitions
            }
        rows = AddPartitionsToTxnResponse
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                rows.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        rows.AddPartitionsToTxnPartitionResult(
                            partition_index=number, partition_error_code=code
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _add_offsets(self, request: AddOffsetsToTxnRequest, refused: E) -> AddOffsetsToTxnResponse:
        name = request.transactional_id
        assert self.version < 2
        code = refused or self._problem(name, request.producer_id, request.producer_epoch)
        if code == E.NONE:
            self.ids[name].state = "Ongoing"
            self.ids[name].groups.add(request.group_id)
        return AddOffsetsToTxnResponse(error_code=code)

    def _commit_offsets(
        self, request: TxnOffsetCommitRequest, refused: E
    ) -> TxnOffsetCommitResponse:
        name = request.transactional_id
        code = refused or self._problem(name, request.producer_id, request.producer_epoch)
        if code == E.NONE and request.generation_id not in (-1, self.generation):
            code = E.ILLEGAL_GENERATION
        if code == E.NONE and self.version < 2 and request.group_id not in self.ids[name].groups:
            code = E.INVALID_TXN_STATE
        rows = TxnOffsetCommitResponse
        if code == E.NONE:
            known = self.ids[name]
            known.state = "Ongoing"
            known.groups.add(request.group_id)
            pending = self._pending[known.producer_id]
            for topic in request.topics:
                for row in topic.partitions:
                    key = (request.group_id, topic.name, row.partition_index)
                    pending[key] = row.committed_offset
        return TxnOffsetCommitResponse(
            topics=[
                rows.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        rows.TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=code
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _end(self, request: EndTxnRequest, refused: E) -> EndTxnResponse:
        if refused:
            return EndTxnResponse(error_code=refused)
        known = self.ids.get(request.transactional_id)
        if known is None or known.producer_id != request.producer_id:
            return EndTxnResponse(error_code=E.INVALID_PRODUCER_ID_MAPPING)
        ended = "CompleteCommit" if request.committed else "CompleteAbort"
        repeated = self.version >= 2 and request.producer_epoch == known.epoch - 1
        if repeated and known.state in ("CompleteCommit", "CompleteAbort"):
            code = E.NONE if known.state == ended else E.INVALID_TXN_STATE
            return self._end_answer(known, code)
        if known.epoch != request.producer_epoch:
            return EndTxnResponse(error_code=E.PRODUCER_FENCED)
        if self.version < 2 and known.state != "Ongoing":
            code = E.NONE if known.state == ended else E.INVALID_TXN_STATE
            return EndTxnResponse(error_code=code)
        if known.state != "Ongoing" and request.committed:
            return EndTxnResponse(error_code=E.INVALID_TXN_STATE)
        if self.version >= 2:
            known.epoch += 1
        self._finish(known, commit=request.committed)
        self._busy[request.transactional_id] = self.completing
        return self._end_answer(known, E.NONE)

    def _end_answer(self, known: Identity, code: E) -> EndTxnResponse:
        if self.version < 2 or code:
            return EndTxnResponse(error_code=code)
        return EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _finish(self, known: Identity, *, commit: bool) -> None:
        """Write the markers."""
        known.state = "CompleteCommit" if commit else "CompleteAbort"
        known.before_bump = None
        for where in known.partitions:
            log = self.cluster.logs[where]
            if known.producer_id in log.producers and self.version >= 2:
                log.producers[known.producer_id].fence(known.epoch)
            begun = self._open.pop((known.producer_id, where), None)
            if commit and begun is not None:
                self.committed[where] |= {
                    offset
                    for offset, owner in enumerate(log.owners)
                    if owner == known.producer_id and offset >= begun
                }
        pending = self._pending.pop(known.producer_id, {})
        if commit:
            self.offsets.update(pending)
        known.partitions.clear()
        known.groups.clear()

    # -- what the leaders of partitions check

    def _check_append(self, topic: str, partition: int, header: RawHeader) -> E:
        producer_id, epoch = header[PRODUCER_ID], header[PRODUCER_EPOCH]
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return E.NONE
        name = next(n for n, known in self.ids.items() if known.producer_id == producer_id)
        known = self.ids[name]
        if epoch != known.epoch:
            return E.INVALID_PRODUCER_EPOCH
        if self.version >= 2:
            if self._busy.get(name, 0) > 0:
                self._busy[name] -= 1
                return E.CONCURRENT_TRANSACTIONS
            log = self.cluster.logs[topic, partition]
            if producer_id not in log.producers and header[BASE_SEQUENCE]:
                return E.OUT_OF_ORDER_SEQUENCE_NUMBER
            known.partitions.add((topic, partition))
            known.state = "Ongoing"
        elif (topic, partition) not in known.partitions:
            return E.INVALID_TXN_STATE
        end = len(self.cluster.logs[topic, partition].values)
        self._open.setdefault((producer_id, (topic, partition)), end)
        return E.NONE
