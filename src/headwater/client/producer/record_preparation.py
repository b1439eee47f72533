"""Turns the arguments of `send` into a record of bytes: interceptors, checks, serializers."""

from collections.abc import Callable, Sequence
from typing import Any

from headwater.client.producer.accumulator import record_bound
from headwater.client.producer.checks import checked_record, too_large
from headwater.client.producer.futures import NO_PARTITION, BatchFuture, OnDelivery, SendFuture
from headwater.client.producer.interceptors import Interceptors, ProducerInterceptor, ProducerRecord
from headwater.client.producer.serializers import Serializer, named_serializer, serialized
from headwater.client.waits import call_guarded
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError
from headwater.model import NO_OFFSET

_USUAL = (None, (), None)
"""Partition, headers and timestamp of most records."""


class RecordPreparation:
    """Prepares the records of one producer before they are appended to batches."""

    def __init__(
        self,
        settings: ProducerSettings,
        key_serializer: Serializer | str | None,
        value_serializer: Serializer | str | None,
        interceptors: Sequence[ProducerInterceptor],
        wall_ms: Callable[[], int],
    ) -> None:
        self._limits = (
            (settings.max_request_size, "max.request.size"),
            (settings.buffer_memory, "buffer.memory"),
        )
        self._serialize_key = named_serializer("key_serializer", key_serializer)
        self._serialize_value = named_serializer("value_serializer", value_serializer)
        self._interceptors = Interceptors(interceptors) if interceptors else None
        self._wall_ms = wall_ms

    @property
    def intercepts(self) -> bool:
        return self._interceptors is not None

    @property
    def serializes_values(self) -> bool:
        return self._serialize_value is not None

    @property
    def changes_records(self) -> bool:
        """Whether a record of plain bytes may be changed."""
        return self.intercepts or self.serializes_values or self._serialize_key is not None

    def prepared(
        self, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> tuple[ProducerRecord, OnDelivery | None] | None:
        """Return a record of bytes and its callback; None if an interceptor dropped the record."""
        chain = self._interceptors
        if chain is not None:
            changed = chain.on_send(record)
            if changed is None:
                return None
            record = changed
            on_delivery = chain.around(on_delivery)
        try:
            if record[3:] != _USUAL or type(record.topic) is not str:
                record = checked_record(record)
            record = self._as_bytes(record)
            self._check_size(record)
        except KafkaError as refused:
            if chain is not None:
                chain.on_acknowledgement(None, refused)
            raise
        return record, on_delivery

    def value_serializer(self, topic: str) -> Callable[[Any], bytes | None]:
        """Return a function that turns a value for `topic` into bytes."""
        return lambda value: serialized("value", self._serialize_value, value, topic)

    def _as_bytes(self, record: ProducerRecord) -> ProducerRecord:
        topic, value, key, partition, headers, timestamp = record
        if key is not None:
            key = serialized("key", self._serialize_key, key, topic)
        if value is not None:
            value = serialized("value", self._serialize_value, value, topic)
        if timestamp is None:
            timestamp = self._wall_ms()
        return ProducerRecord(topic, value, key, partition, headers, timestamp)

    def _check_size(self, record: ProducerRecord) -> None:
        size = record_bound(record.key, record.value, record.headers)
        for limit, name in self._limits:
            if size > limit:
                raise too_large(size, name, limit)


def dropped_future(record: ProducerRecord, on_delivery: OnDelivery | None) -> SendFuture:
    """Return the future of a record that an interceptor dropped: done, without a partition."""
    future = BatchFuture(str(record.topic), NO_PARTITION)
    future.succeed(NO_OFFSET, -1)
    if on_delivery is not None:
        call_guarded("an on_delivery callback", on_delivery, future.metadata(0, -1), None)
    return SendFuture((future, 0, -1))
