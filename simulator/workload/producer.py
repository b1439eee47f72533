"""Producers: idempotent ones that retry forever, and plain ones that may write twice."""

import asyncio
from collections import deque
from typing import NamedTuple

from headwater.errors import E
from headwater.model import TopicPartition
from headwater.records.builder import build_batch
from headwater.records.compression import Codec
from headwater.records.record import Record
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from simulator.cluster import Cluster
from simulator.incarnations import Attempt, Incarnation
from simulator.invariants import PartitionPromises, Promises, Value
from simulator.workload.client import Client, Disturbed

IN_FLIGHT = 5
BY_ID = 13
VERSIONS = (3, 7, 9, 12, BY_ID)
SIZES = (0, 10, 100, 300, 700)
LARGE = 4000
"""Bytes of a record: several sectors, and still less than the smallest segment."""


class _Batch(NamedTuple):
    values: list[Value]
    codec: Codec


class Producer(Client):
    """Writes unique values to one partition until all are sent."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        name: str,
        at: TopicPartition,
        *,
        acks: int,
        once: bool,
        batches: int,
    ) -> None:
        super().__init__(cluster, promises, name)
        self._at = at
        self._name = promises.names[at.topic]
        self._topic_id = b""
        """The topic of the last write."""
        self._acks = acks
        self._once = once
        self._version = self.chance.choice(VERSIONS)
        self._left = batches
        self._number = 0
        self._waiting: deque[_Batch] = deque()
        """Batches that are not known to be in the log, in order."""
        self._producer_id = -1
        self._epoch = -1
        self._sequence = 0
        """The sequence of the first waiting record."""
        self._power_cuts = cluster.node.power_cuts
        self._known: Incarnation = self._name.newest
        """The newest topic of this name when the producer id was taken."""

    @property
    def _books(self) -> PartitionPromises:
        return self.promises.partitions[self._at]

    async def run(self) -> None:
        """Send everything, with retries."""
        while self._left or self._waiting:
            self._fill()
            try:
                await self._send()
            except Disturbed:
                await self.back_off()
            await self.pause(400)
        self.disconnect()

    def _fill(self) -> None:
        wanted = self.chance.randrange(1, IN_FLIGHT + 1)
        while self._left and len(self._waiting) < wanted:
            self._left -= 1
            count = self.chance.choice((1, 1, 2, 6))
            sizes = SIZES if count > 1 else (*SIZES, LARGE)
            values = [self._value(self.chance.choice(sizes)) for _ in range(count)]
            codec = self.chance.choice((Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4))
            self._waiting.append(_Batch(values, codec))

    def _value(self, size: int) -> Value:
        value = Value(self.name, self._number, self._once, self.chance.randbytes(size))
        self._number += 1
        self._books.sent[value.encode()] = value
        return value

    async def _send(self) -> None:
        if self._once and self._producer_id < 0:
            await self._take_id()
        if self._acks == 0:
            await self._tell_all()
            return
        topic_id = await self._find_topic()
        connection = await self.connection()
        sequence, calls, attempts = self._sequence, [], []
        for batch in self._waiting:
            request = self._request(batch, sequence, topic_id)
            attempts.append(self._attempt(batch, topic_id))
            calls.append(self.call_on(connection, request, ProduceResponse, newest=self._version))
            sequence += len(batch.values)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        now_us = self.cluster.scheduler.now_us
        for answer, attempt in zip(answers, attempts, strict=True):
            if isinstance(answer, BaseException):
                attempt.broken_off(now_us)
            else:
                attempt.answered(now_us)
        for answer, attempt in zip(answers, attempts, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            self._take(answer, attempt)

    async def _find_topic(self) -> bytes:
        """Return the id of the topic; drop what waited for an earlier topic of its name."""
        topic_id = await self.topic_id(self._at.topic)
        if self._topic_id and self._topic_id != topic_id:
            self._give_up()
        self._topic_id = topic_id
        if not self._waiting or (self._once and self._producer_id < 0):
            raise Disturbed
        return topic_id

    def _give_up(self) -> None:
        """Start again with new records: the topic of the old ones is gone."""
        self._waiting.clear()
        self._producer_id = -1

    def _attempt(self, batch: _Batch, topic_id: bytes) -> Attempt:
        by_id = self._version >= BY_ID
        attempt = Attempt(topic_id if by_id else None, self.cluster.scheduler.now_us)
        self.promises.attempt(self._at.topic, [one.encode() for one in batch.values], attempt)
        return attempt

    async def _tell_all(self) -> None:
        """Send everything once, with acks=0."""
        topic_id = await self._find_topic()
        connection = await self.connection()
        while self._waiting:
            batch = self._waiting.popleft()
            self._attempt(batch, topic_id).broken_off(self.cluster.scheduler.now_us)
            request = self._request(batch, -1, topic_id)
            connection.tell(request, connection.version_for(request, self._version))

    async def _take_id(self) -> None:
        answer = await self.call(
            InitProducerIdRequest(transactional_id=None), InitProducerIdResponse
        )
        self.check(answer.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequence = 0
        self._power_cuts = self.cluster.node.power_cuts
        self._known = self._name.newest
        self.promises.producer_id_given(self._producer_id, self.name)

    def _request(self, batch: _Batch, sequence: int, topic_id: bytes) -> ProduceRequest:
        now_ms = self.cluster.clock.wall_ms()
        records = [
            Record(timestamp=now_ms, key=b"k", value=value.encode()) for value in batch.values
        ]
        content = build_batch(
            records,
            now=now_ms,
            codec=batch.codec,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence if self._once else -1,
        )
        data = ProduceRequest.PartitionProduceData(index=self._at.partition, records=bytes(content))
        topic = ProduceRequest.TopicProduceData(
            name=self._at.topic, topic_id=topic_id, partition_data=[data]
        )
        return ProduceRequest(acks=self._acks, timeout_ms=10_000, topic_data=[topic])

    def _take(self, answer: ProduceResponse, attempt: Attempt) -> None:
        """Handle the answer to the first waiting batch."""
        result = answer.responses[0].partition_responses[0]
        error = self.check(result.error_code, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID)
        if error is not E.NONE:
            self._lost_track(error)
        batch = self._waiting.popleft()
        self._sequence += len(batch.values)
        incarnation = self._name.target(attempt)
        if incarnation is not None:
            values = [value.encode() for value in batch.values]
            incarnation.partitions[self._at.partition].acknowledge(result.base_offset, values)

    def _lost_track(self, error: E) -> None:
        """Check that only a power failure or a new topic made the broker lose this producer."""
        if self._known is not self._name.newest:
            self._give_up()
        elif self._books.synced or self._power_cuts == self.cluster.node.power_cuts:
            self.promises.complain(f"I3: {self.name} at {self._at}: {error.name}")
        self._producer_id = -1
        raise Disturbed(error.name)
