"""The asyncio face of the producer; `tools/blocking_faces.py` derives the blocking one from it."""

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Unpack

from headwater.client.errors import AbortableTransactionError, FatalTransactionError
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.producer.async_send_waits import AsyncSendWaits
from headwater.client.producer.bulk import SentMany, Table
from headwater.client.producer.futures import OnDelivery, RecordMetadata, SendFuture
from headwater.client.producer.interceptors import ProducerInterceptor
from headwater.client.producer.partitioner import Partitioner
from headwater.client.producer.producer_core import ProducerCore, WouldBlockError
from headwater.client.producer.serializers import Serializer, SerializerName
from headwater.client.waits import older_name
from headwater.config.client import ProducerSettings
from headwater.config.client_options import ProducerOptions
from headwater.errors import KafkaError
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness

if TYPE_CHECKING:
    from headwater.client.consumer.record import Offsets

log = logging.getLogger(__name__)


class Producer:
    """Sends records on the event loop that it is first used on.

    ```python
    async with Producer(bootstrap_servers="localhost:9092") as producer:
        future = await producer.send("orders", b"42", key=b"customer-7")
        stored = await producer.send_and_wait("orders", b"43")
        print(stored.offset)
    ```

    Settings are Kafka's, with underscores; `profile` is "durable", "throughput" or "latency".
    In addition: `key_serializer` and `value_serializer` (a function, or "string", "bytes", "int",
    "long", "double", "uuid", "json"), `partitioner` (a function of topic, key, value and number of
    partitions) and `interceptors`.
    """

    def __init__(
        self,
        *positional: Never,
        key_serializer: Serializer | SerializerName | None = None,
        value_serializer: Serializer | SerializerName | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Unpack[ProducerOptions],
    ) -> None:
        ProducerSettings.refuse_positional(type(self).__name__, positional)
        self._core = ProducerCore(
            settings,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            clock=clock,
            network=network,
            randomness=randomness,
        )
        self._waits = AsyncSendWaits(self, self._core)
        # blocking: if type(self).send is Producer.send and (fast := self._waits.fast_send()):
        # blocking:     self._fast_send = fast  # also where `send` is replaced by another
        # blocking:     vars(self)["send"] = fast  # without the frame of the method

    @property
    def settings(self) -> ProducerSettings:
        """The settings in use: those given, and defaults for the rest."""
        return self._core.settings

    async def start(self) -> None:
        """Start the producer; the first call of any other method does so as well."""
        await self._waits.start()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """Send a record; waits only for metadata and for room in the buffer.

        The future returns the partition and offset of the stored record, or raises its error.

        Args:
            topic: The topic to write to.
            value: Bytes, or what `value_serializer` takes; None is a null (a tombstone).
            key: Bytes, or what `key_serializer` takes. Records of one key go to one partition.
            partition: The partition; by default the key or the partitioner decides.
            headers: Pairs of a name and bytes.
            timestamp: Milliseconds since 1970; the time of this call by default.
            on_delivery: Called with (metadata, error), one of them None, on the event loop; it must
                not block.
        """
        if not self._core.started:
            await self._waits.start()
        try:
            return self._core.send(topic, value, key, partition, headers, timestamp, on_delivery)
        except WouldBlockError as waiting:
            record, callback, full = waiting.record, waiting.on_delivery, waiting.full
        return await self._waits.deliver(record, callback, full)

    async def send_and_wait(
        self, topic: str, value: Any = None, key: Any = None, **options: Any
    ) -> RecordMetadata:
        """Send one record and wait until it is stored; accepts the arguments of `send`."""
        return await self._waits.result(await self.send(topic, value, key, **options))

    async def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        """Send values without keys, in order and in bulk: the fastest way.

        Each value goes to a partition that `send` would choose; the returned future covers all of
        them.
        """
        if not self._core.sends_one_by_one:
            return await self._waits.send_many(topic, values)
        sent = SentMany()
        for value in values:
            future, index, _ = await self.send(topic, value)
            sent.add(future, index, 1)
        return sent

    async def send_table(
        self, topic: str, table: Table, *, key: str | None = None, value: str = "value"
    ) -> SentMany:
        """Send the rows of an Arrow table; `key` and `value` name columns of bytes or text."""
        return await self._waits.send_table(topic, table, key, value)

    async def flush(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the blocking face has it
        **renamed: float | None,
    ) -> None:
        """Wait until every record sent so far is stored or has failed.

        Raises TimedOutError after `timeout` seconds; the records may still be stored.
        """
        await self._waits.flush(older_name("flush", renamed) if renamed else timeout)

    # -- transactions

    async def init_transactions(self) -> None:
        """Prepare the producer for transactions; needs `transactional_id`.

        Fences the producer that used this transactional id before, and waits until what it left
        open is aborted.
        """
        await self._waits.transact(lambda its: its.init())

    async def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on are visible together, or never."""
        await self._waits.transact_now(lambda its: its.begin())

    async def commit_transaction(self) -> None:
        """Send what is left and commit.

        Raises AbortableTransactionError if a record could not be stored: call
        `abort_transaction()`. RetriableTransactionError: call it again. FatalTransactionError:
        close the producer.
        """
        await self._waits.transact(lambda its: its.commit())

    async def abort_transaction(self) -> None:
        """Abort: consumers with `isolation_level="read_committed"` never see its records."""
        await self._waits.transact(lambda its: its.abort())

    async def send_offsets_to_transaction(
        self, offsets: "Offsets", group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit the offsets of a consumer together with the transaction.

        Args:
            offsets: The next offset to read, by partition.
            group_metadata: What `group_metadata()` of the consumer returns.
        """
        await self._waits.transact(lambda its: its.send_offsets(offsets, group_metadata))

    def transaction(self) -> "TransactionBlock":
        """Return a block that commits at its end and aborts on an exception.

        The first one calls `init_transactions()`.
        """
        return TransactionBlock(self)

    # -- facts

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return list(range((await self._waits.topic(topic)).count))

    def explain(self) -> str:
        """Explain the settings that are not at their defaults: their origin, and why."""
        return self._core.settings.explain()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this producer, under Kafka's names."""
        return self._core.metrics()

    async def close(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the blocking face has it
        **renamed: float | None,
    ) -> None:
        """Flush and close every connection; records not stored after `timeout` seconds fail."""
        await self._waits.close(older_name("close", renamed) if renamed else timeout)

    async def __aenter__(self) -> "Producer":
        await self._waits.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class TransactionBlock:
    """One transaction of a producer, as a block."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def __aenter__(self) -> None:
        producer = self._producer
        if not producer._core.initialized:
            await producer.init_transactions()
        await producer.begin_transaction()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        producer = self._producer
        if error is None:
            try:
                await producer.commit_transaction()
            except AbortableTransactionError:
                await producer.abort_transaction()
                raise
        elif not isinstance(error, FatalTransactionError):
            try:
                await producer.abort_transaction()
            except KafkaError as problem:
                log.warning("a transaction was not aborted: %s", problem)
