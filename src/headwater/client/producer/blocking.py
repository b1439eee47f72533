"""The blocking face of the producer.

Derived from `producer.py` by `python -m tools.blocking_faces`; do not edit.
"""

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Unpack

from headwater.client.errors import AbortableTransactionError, FatalTransactionError
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.client.producer.blocking_send_waits import BlockingSendWaits
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
    """Sends records, from any number of threads.

    ```python
    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("orders", b"42", key=b"customer-7")
        stored = producer.send_and_wait("orders", b"43")
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
        self._waits = BlockingSendWaits(self, self._core)
        if type(self).send is Producer.send and (fast := self._waits.fast_send()):
            self._fast_send = fast  # also where `send` is replaced by another
            vars(self)["send"] = fast  # without the frame of the method

    @property
    def settings(self) -> ProducerSettings:
        """The settings in use: those given, and defaults for the rest."""
        return self._core.settings

    def start(self) -> None:
        """Start the producer; the first call of any other method does so as well."""
        self._waits.start()

    def send(
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
            on_delivery: Called with (metadata, error), one of them None, on the client's loop
                thread; it must not block.
        """
        if not self._core.started:
            self._waits.start()
        try:
            return self._core.send(topic, value, key, partition, headers, timestamp, on_delivery)
        except WouldBlockError as waiting:
            record, callback, full = waiting.record, waiting.on_delivery, waiting.full
        return self._waits.deliver(record, callback, full)

    def send_and_wait(
        self, topic: str, value: Any = None, key: Any = None, **options: Any
    ) -> RecordMetadata:
        """Send one record and wait until it is stored; accepts the arguments of `send`."""
        return self._waits.result(self.send(topic, value, key, **options))

    def send_many(self, topic: str, values: Iterable[Any]) -> SentMany:
        """Send values without keys, in order and in bulk: the fastest way.

        Each value goes to a partition that `send` would choose; the returned future covers all of
        them.
        """
        if not self._core.sends_one_by_one:
            return self._waits.send_many(topic, values)
        sent = SentMany()
        for value in values:
            future, index, _ = self.send(topic, value)
            sent.add(future, index, 1)
        return sent

    def send_table(
        self, topic: str, table: Table, *, key: str | None = None, value: str = "value"
    ) -> SentMany:
        """Send the rows of an Arrow table; `key` and `value` name columns of bytes or text."""
        return self._waits.send_table(topic, table, key, value)

    def flush(
        self,
        timeout: float | None = None,
        **renamed: float | None,
    ) -> None:
        """Wait until every record sent so far is stored or has failed.

        Raises TimedOutError after `timeout` seconds; the records may still be stored.
        """
        self._waits.flush(older_name("flush", renamed) if renamed else timeout)

    # -- transactions

    def init_transactions(self) -> None:
        """Prepare the producer for transactions; needs `transactional_id`.

        Fences the producer that used this transactional id before, and waits until what it left
        open is aborted.
        """
        self._waits.transact(lambda its: its.init())

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on are visible together, or never."""
        self._waits.transact_now(lambda its: its.begin())

    def commit_transaction(self) -> None:
        """Send what is left and commit.

        Raises AbortableTransactionError if a record could not be stored: call
        `abort_transaction()`. RetriableTransactionError: call it again. FatalTransactionError:
        close the producer.
        """
        self._waits.transact(lambda its: its.commit())

    def abort_transaction(self) -> None:
        """Abort: consumers with `isolation_level="read_committed"` never see its records."""
        self._waits.transact(lambda its: its.abort())

    def send_offsets_to_transaction(
        self, offsets: "Offsets", group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit the offsets of a consumer together with the transaction.

        Args:
            offsets: The next offset to read, by partition.
            group_metadata: What `group_metadata()` of the consumer returns.
        """
        self._waits.transact(lambda its: its.send_offsets(offsets, group_metadata))

    def transaction(self) -> "TransactionBlock":
        """Return a block that commits at its end and aborts on an exception.

        The first one calls `init_transactions()`.
        """
        return TransactionBlock(self)

    # -- facts

    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return list(range((self._waits.topic(topic)).count))

    def explain(self) -> str:
        """Explain the settings that are not at their defaults: their origin, and why."""
        return self._core.settings.explain()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of this producer, under Kafka's names."""
        return self._core.metrics()

    def close(
        self,
        timeout: float | None = None,
        **renamed: float | None,
    ) -> None:
        """Flush and close every connection; records not stored after `timeout` seconds fail."""
        self._waits.close(older_name("close", renamed) if renamed else timeout)

    def __enter__(self) -> "Producer":
        self._waits.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class TransactionBlock:
    """One transaction of a producer, as a block."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __enter__(self) -> None:
        producer = self._producer
        if not producer._core.initialized:
            producer.init_transactions()
        producer.begin_transaction()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        producer = self._producer
        if error is None:
            try:
                producer.commit_transaction()
            except AbortableTransactionError:
                producer.abort_transaction()
                raise
        elif not isinstance(error, FatalTransactionError):
            try:
                producer.abort_transaction()
            except KafkaError as problem:
                log.warning("a transaction was not aborted: %s", problem)
