"""Batches of one partition from one fetch response, decoded on demand.

The broker is not trusted: a damaged batch raises an error that names its partition and offset.
Control batches are skipped, and with read_committed the batches of aborted transactions as well.
"""

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import CorruptRecordError, SerializationError
from headwater.errors import KafkaError
from headwater.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
    RawHeader,
)
from headwater.records.codec import ColumnReader, decode_run, read_end
from headwater.records.control import read_marker
from headwater.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC_BYTE,
    PRODUCER_ID,
)
from headwater.records.rules import INT64_MAX
from headwater.wire.messages.fetch import FetchResponse

ENOUGH_BYTES = 2 * 1024 * 1024
"""Columns are returned once they have this many bytes, so that they stay in the CPU caches."""
Reshape = Callable[[ConsumerRecord], ConsumerRecord]


class Aborted(NamedTuple):
    """A producer whose batches from an offset on are dropped, up to its marker."""

    producer_id: int
    first_offset: int


_first_offset = attrgetter("first_offset")


def aborted_in(row: FetchResponse.PartitionData) -> list[Aborted]:
    """Return the aborted transactions in a response."""
    return [Aborted(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]


class CompletedFetch:
    """The part of one fetch response for one partition."""

    __slots__ = (
        "_aborted",
        "_at",
        "_buf",
        "_check_crcs",
        "_dropped",
        "_epoch",
        "_head",
        "_next",
        "_opened",
        "_pending",
        "_reshape",
        "_run_end",
        "_version",
        "end_epoch",
        "end_offset",
        "size",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        buf: memoryview,
        *,
        aborted: list[Aborted] | None,
        check_crcs: bool,
        reshape: Reshape | None = None,
    ) -> None:
        self.state = state
        self.size = len(buf)
        self.end_offset, self.end_epoch = read_end(buf, state.fetch_offset, state.fetch_epoch)
        """Where the next fetch continues."""
        self._version = state.version
        self._head = (state.topic, state.partition)
        self._buf = buf
        self._at = 0
        self._opened = 0
        self._next = 0
        self._run_end = 0
        self._epoch = -1
        self._pending: list[ConsumerRecord] = []
        self._check_crcs = check_crcs
        self._reshape = reshape
        # None: nothing is filtered. Brokers list transactions in the order in which they ended.
        self._aborted = None if aborted is None else deque(sorted(aborted, key=_first_offset))
        self._dropped: set[int] = set()

    @property
    def stale(self) -> bool:
        """Whether the partition was given up or moved by a seek since the request."""
        return self._version != self.state.version or self.state.leaving

    @property
    def exhausted(self) -> bool:
        """Whether every byte was taken."""
        return self._at == self.size and not self._pending

    @property
    def has_decoded(self) -> bool:
        """Whether `take_records` has a record that needs neither decoding nor a deserializer."""
        return bool(self._pending) and self._reshape is None

    def shape_as(self, reshape: Reshape | None) -> None:
        """Deserialize the remaining records with `reshape`; None for bytes."""
        self._reshape = reshape

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Return up to `limit` records, empty if none is left, and advance the position."""
        state = self.state
        if not self._pending and not self._open_next(state, limit):
            return []
        if not self._next and len(self._pending) <= limit:
            records, self._pending = self._pending, []
        else:
            records = self._pending[self._next : self._next + limit]
            self._next += len(records)
            if self._next == len(self._pending):
                self._pending, self._next = [], 0
        if self._reshape is not None:
            records = self._reshaped(records, self._reshape)
        after = records[-1][2] + 1
        state.position = after if self._pending else max(after, self._run_end)
        state.epoch = self._epoch
        return records

    def take_columns(self, reader: ColumnReader, limit: int, last: int = INT64_MAX) -> None:
        """Add batches to `reader` until it has `limit` records, enough bytes, or all up to `last`."""
        state = self.state
        if self._pending:  # a batch that `take_records` has returned in part
            self._at, self._pending, self._next = self._opened, [], 0
        while reader.count < limit and reader.size < ENOUGH_BYTES:
            header = self._next_shown(state)
            if header is None:
                return
            try:
                self._at, state.position, state.epoch = reader.add_run(
                    self._buf,
                    self._at,
                    self._check_crcs,
                    from_offset=state.position or 0,
                    rows=limit,
                    size=ENOUGH_BYTES,
                    last=last,
                )
            except KafkaError as damage:
                raise self._corrupt(header[BASE_OFFSET], damage) from damage

    def _open_next(self, state: PartitionState, wanted: int) -> bool:
        """Decode batches until some records can be returned."""
        while (header := self._next_shown(state)) is not None:
            self._opened = self._at
            try:
                self._at, self._run_end, self._epoch, self._pending = decode_run(
                    self._buf,
                    self._at,
                    self._check_crcs,
                    ConsumerRecord,
                    self._head,
                    from_offset=state.position or 0,
                    wanted=wanted,
                )
            except KafkaError as damage:
                raise self._corrupt(header[BASE_OFFSET], damage) from damage
            if self._pending:
                return True
            state.position = self._run_end
        return False

    def _next_shown(self, state: PartitionState) -> RawHeader | None:
        """Return the header of the next batch visible to users; skip the others."""
        while (header := self._header()) is not None:
            if not header[ATTRIBUTES] & (CONTROL | TRANSACTIONAL) or self._shown(header):
                return header
            self._at += header[LENGTH] + OVERHEAD
            state.position = max(
                state.position or 0, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            )
        return None

    def _header(self) -> RawHeader | None:
        """Return the header of the next whole batch; brokers may cut off the last one."""
        left = self.size - self._at
        if left < HEADER_SIZE:
            return None
        header: RawHeader = HEADER.unpack_from(self._buf, self._at)
        return header if header[LENGTH] + OVERHEAD <= left or header[MAGIC_BYTE] != MAGIC else None

    def _shown(self, header: RawHeader) -> bool:
        """Return whether a control or transactional batch is visible; update the aborted list."""
        if self._aborted is None:
            return not header[ATTRIBUTES] & CONTROL
        producer_id, last = header[PRODUCER_ID], header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        while self._aborted and self._aborted[0].first_offset <= last:
            self._dropped.add(self._aborted.popleft().producer_id)
        if producer_id not in self._dropped:
            return not header[ATTRIBUTES] & CONTROL
        if header[ATTRIBUTES] & CONTROL:
            size = max(header[LENGTH] + OVERHEAD, HEADER_SIZE)
            try:
                marker = read_marker(self._buf[self._at : self._at + size])
            except KafkaError as damage:
                raise self._corrupt(header[BASE_OFFSET], damage) from damage
            if marker is not None and not marker.commit:
                self._dropped.discard(producer_id)
        return False

    def _reshaped(self, records: list[ConsumerRecord], reshape: Reshape) -> list[ConsumerRecord]:
        """Deserialize; on failure, return the records before the bad one first."""
        done: list[ConsumerRecord] = []
        for record in records:
            try:
                done.append(reshape(record))
            except SerializationError:
                if not done:
                    self.state.position = record.offset
                    self._pending = [*records, *self._pending[self._next :]]
                    self._next = 0
                    raise
                rest = records[len(done) :]
                self._pending, self._next = [*rest, *self._pending[self._next :]], 0
                break
        return done

    def _corrupt(self, offset: int, damage: KafkaError) -> CorruptRecordError:
        state = self.state
        return CorruptRecordError(
            f"{state.key}: the batch at offset {offset} cannot be read: {damage.message}. Poll "
            f"again to fetch it again, or seek past it to skip it",
            damage.code,
        )
