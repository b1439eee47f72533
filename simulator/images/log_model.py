"""What a log must have after a start, from what was done to it before the crash.

`durable` and `written` are promises: a record below them survives a power cut, or the death of the
process. Everything else that is found must be something that was once handed to the log, in a write
that did not fail.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from headwater.log.partition_log import PartitionLog
from headwater.log.settings import LogSettings
from headwater.model import TopicPartition, Uuid
from headwater.records.batch import CRC_START, HEADER, BatchHeader, batches, read_header
from headwater.records.checksum import crc32c
from headwater.records.control import read_marker
from headwater.records.header_fields import CRC
from headwater.records.record import decode_records

READ_BYTES = 1 << 20
NEVER = 1 << 62
Pair = tuple[bytes | None, bytes | None]


class ModelBatch(NamedTuple):
    """A batch as it is in a log."""

    header: BatchHeader
    content: bytes

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_offset

    @property
    def pairs(self) -> Mapping[int, Pair]:
        """Key and value of each record by offset; none for a marker."""
        return _pairs_of(self.content)


@lru_cache(maxsize=1000)  # the same batches are in most images of a play
def _pairs_of(content: bytes) -> Mapping[int, Pair]:
    header = read_header(content)
    if header.control or not header.count:
        return {}
    return {row.offset: (row.key, row.value) for row in decode_records(content)}


def batch_of(content: bytes) -> ModelBatch:
    """Return the batch in these bytes."""
    return ModelBatch(read_header(content), content)


def read_log(log: PartitionLog, start: int) -> list[ModelBatch]:
    """Return every batch from `start` on, read as a consumer does."""
    found: list[ModelBatch] = []
    offset = start
    while (piece := log.read(offset, log.log_end_offset, READ_BYTES, True)) is not None:
        data = bytes(piece.load_now() or piece.load())
        before = offset
        for position, header in batches(data):
            found.append(ModelBatch(header, data[position : position + header.size]))
            offset = header.next_offset
        if offset == before:
            break
    return found


class _Last(NamedTuple):
    """The last record of a key."""

    offset: int
    expires_ms: int
    """From when on compaction may remove it."""


class LogModel:
    """The log of one topic id."""

    def __init__(self, at: TopicPartition, topic_id: Uuid, settings: LogSettings) -> None:
        self.at = at
        self.topic_id = topic_id
        self.settings = settings
        self.acked: list[ModelBatch] = []
        """What readers may have seen, in order."""
        self.tried: dict[int, set[bytes]] = {}
        """Everything that was handed to the log, by base offset, without failed writes."""
        self.written = 0
        self.durable = 0
        self.kept_from = 0
        """Retention and DeleteRecords may have removed everything below this offset."""
        self.stored_start = 0
        """The start of an acknowledged DeleteRecords."""
        self.high_watermark = 0
        """What all replicas have: compaction goes up to here, and no truncation below."""

    def fork(self) -> "LogModel":
        """Return a copy that can go another way."""
        copy = LogModel(self.at, self.topic_id, self.settings)
        copy.acked, copy.tried = self.acked[:], {base: {*rows} for base, rows in self.tried.items()}
        copy.written, copy.durable = self.written, self.durable
        copy.kept_from, copy.stored_start = self.kept_from, self.stored_start
        copy.high_watermark = self.high_watermark
        return copy

    def hand_over(self, content: bytes) -> None:
        """Note a batch that is about to be written."""
        self.tried.setdefault(read_header(content).base_offset, set()).add(content)

    def wrote(self, contents: Sequence[bytes]) -> None:
        """Note that batches are in the log."""
        self.acked += map(batch_of, contents)
        self.written = self.acked[-1].end

    def take_back(self, contents: Sequence[bytes]) -> None:
        """Note that a write has failed: its batches must not come back in place of later ones."""
        for content in contents:
            self.tried[read_header(content).base_offset].discard(content)

    def cut(self, offset: int) -> None:
        """Give up everything at and above `offset`."""
        self.acked = [row for row in self.acked if row.base < offset]
        self.tried = {base: rows for base, rows in self.tried.items() if base < offset}
        self.written, self.durable = min(self.written, offset), min(self.durable, offset)
        self.kept_from = min(self.kept_from, offset)
        self.stored_start = min(self.stored_start, offset)
        self.high_watermark = min(self.high_watermark, offset)

    def continue_from(self, log: PartitionLog) -> None:
        """Go on with a log that was started again: what it lacks is gone for good."""
        end, known = log.log_end_offset, self.durable
        found = read_log(log, min(max(known, log.segments.start_offset), end))
        self.cut(end)
        self.acked = [row for row in self.acked if row.end <= known]
        self.acked += [row for row in found if row.base >= known]
        self.written = end
        self.kept_from = max(self.kept_from, log.log_start_offset)

    def problems(self, log: PartitionLog, now_ms: int, *, lossy: bool) -> Iterator[str]:
        """Yield what is wrong with a log after a start; a power cut is `lossy`."""
        promised = self.durable if lossy else self.written
        if log.failure is not None:
            yield f"I10: is offline: {log.failure}"
            return
        if log.log_end_offset < promised:
            yield f"I1: ends at {log.log_end_offset}, {promised} was promised"
            return
        if log.log_start_offset > max(self.kept_from, self.stored_start):
            yield f"I1: starts at {log.log_start_offset}, {self.kept_from} must be there"
        if log.log_start_offset < self.stored_start:
            yield f"DeleteRecords: starts at {log.log_start_offset}, not {self.stored_start}"
        # Producers and transactions also follow from batches below the log's start, as long as
        # their segment is there. A start that is stored above `promised` hides some of them.
        held = read_log(log, log.segments.start_offset)
        found = [row for row in held if row.end > log.log_start_offset]
        yield from self._wrong_batches(log, found, promised, now_ms)
        yield from self._wrong_states(log, held, promised)

    def falsified(self, log: PartitionLog, *, whole: bool) -> Iterator[str]:
        """Yield what a reader of a damaged log takes for true, and was never written.

        The CRC of a batch does not cover its first bytes (offset, length, leader epoch). Only checksums
        of the segment do: with them, the `whole` batch is compared, and the end of the log.
        """
        ends = (read_header(row).next_offset for rows in self.tried.values() for row in rows)
        if whole and log.failure is None and log.log_end_offset > max(ends, default=0):
            yield f"B41: ends at {log.log_end_offset}, and nothing was written up to there"
        written = {row for rows in self.tried.values() for row in rows}
        bodies = {row[CRC_START:] for row in written}
        by_offset = self._tried_pairs()
        anywhere = {pair for pairs in by_offset.values() for pair in pairs}
        for row in read_log(log, log.segments.start_offset):
            if crc32c(row.content[CRC_START:]) != HEADER.unpack_from(row.content)[CRC]:
                continue  # every reader sees that
            if self.settings.compacted:
                wrong = any(
                    pair not in (by_offset.get(at, ()) if whole else anywhere)
                    for at, pair in row.pairs.items()
                )
            else:
                wrong = (
                    row.content not in written if whole else row.content[CRC_START:] not in bodies
                )
            if wrong:
                yield f"B41: the batch at {row.base} is not what was written"

    def _wrong_batches(
        self, log: PartitionLog, found: list[ModelBatch], promised: int, now_ms: int
    ) -> Iterator[str]:
        ends = [log.log_start_offset, *(row.end for row in found)]
        if ends != sorted(ends) or ends[-1] > log.log_end_offset:
            yield f"I2: offsets are out of order: {ends}"
        if self.settings.compacted:
            yield from self._wrong_records(found, promised, log.cleaned_end, now_ms)
        else:
            yield from self._wrong_bytes(found, promised)
            if found and ends[-1] != log.log_end_offset:
                yield f"I2: the last batch ends at {ends[-1]}, the log at {log.log_end_offset}"
        for row in found:
            if log.epochs.epoch_at(row.base) != row.header.leader_epoch:
                yield f"I8: the epoch at {row.base} is {log.epochs.epoch_at(row.base)}"

    def _wrong_bytes(self, found: list[ModelBatch], promised: int) -> Iterator[str]:
        there = {row.base: row.content for row in found}
        for row in found:
            if row.content not in self.tried.get(row.base, ()):
                yield f"I10: the batch at {row.base} was never written"
        for row in self.acked:
            required = self.kept_from <= row.base and row.end <= promised
            if required and there.get(row.base) != row.content:
                yield f"I1: the batch at {row.base} is gone"

    def _wrong_records(
        self, found: list[ModelBatch], promised: int, cleaned_end: int, now_ms: int
    ) -> Iterator[str]:
        tried = self._tried_pairs()
        there = {offset: pair for row in found for offset, pair in row.pairs.items()}
        for offset, pair in there.items():
            if pair not in tried.get(offset, ()):
                yield f"I10: the record at {offset} was never written"
        cleaned: dict[bytes | None, int] = {}
        for offset, (key, _) in there.items():
            if offset < cleaned_end and key in cleaned:
                yield f"I9: {key!r} is at {cleaned[key]} and {offset}, below {cleaned_end}"
            cleaned[key] = offset
        for key, last in self._last_of_keys(promised).items():
            if last.offset in there:
                continue
            if now_ms < last.expires_ms:
                yield f"I9: the last value of {key!r}, at {last.offset}, is gone"
            elif any(offset < last.offset for offset, pair in there.items() if pair[0] == key):
                yield f"I9: {key!r} was deleted at {last.offset} and has an older value"

    def _tried_pairs(self) -> dict[int, set[Pair]]:
        tried: dict[int, set[Pair]] = {}
        for contents in self.tried.values():
            for content in contents:
                for offset, pair in batch_of(content).pairs.items():
                    tried.setdefault(offset, set()).add(pair)
        return tried

    def _last_of_keys(self, promised: int) -> dict[bytes | None, _Last]:
        rows = [row for row in self.acked if self.kept_from <= row.base and row.end <= promised]
        last: dict[bytes | None, _Last] = {}
        for row in rows:
            if not row.header.transactional or _outcome(rows, row):
                gone_ms = row.header.max_timestamp + self.settings.delete_retention_ms
                for offset, (key, value) in row.pairs.items():
                    last[key] = _Last(offset, NEVER if value is not None else gone_ms)
        return last

    def _wrong_states(
        self, log: PartitionLog, held: list[ModelBatch], promised: int
    ) -> Iterator[str]:
        """Compare producers and transactions with a replay of what the log must have."""
        end, start = log.log_end_offset, log.segments.start_offset
        rows = [row for row in self.acked if row.end <= promised]
        rows += [row for row in held if row.base >= promised]
        open_at: dict[int, int] = {}
        last: dict[int, tuple[int, int]] = {}
        aborted: set[tuple[int, int, int]] = set()
        for row in rows:
            producer = row.header.producer_id
            if row.header.control:
                first = open_at.pop(producer, None)
                marker = read_marker(row.content)
                if (
                    first is not None
                    and marker is not None
                    and not marker.commit
                    and first >= start
                ):
                    aborted.add((producer, first, row.base))
            elif producer >= 0:
                last[producer] = (row.header.base_sequence + row.end - row.base - 1, row.base)
                if row.header.transactional:
                    open_at.setdefault(producer, row.base)
        for producer, (sequence, base) in last.items():
            state = log.producers.get(producer)
            if base >= start and (state is None or state.last_sequence != sequence):
                yield f"I3: producer {producer} is at {state}, not {sequence}"
            if state is not None and base >= start:
                opened = open_at.get(producer, -1)
                if (state.transaction_start >= 0) != (opened >= 0):
                    yield f"I6: producer {producer} has {state.transaction_start}, not {opened}"
        if not self.settings.compacted:
            known = rows[0].base if rows else end
            yield from _unlisted(log, aborted, start, known)


def _unlisted(
    log: PartitionLog, aborted: set[tuple[int, int, int]], start: int, known: int
) -> Iterator[str]:
    """Yield the aborted transactions that a log does not list: producer, first and last offset.

    One that began below `known`, where the model knows no batches any more, keeps its first offset.
    """
    listed = {
        (row.producer_id, row.last_offset): row.first_offset
        for row in log.aborted_transactions(start, log.log_end_offset)
    }
    for producer, first, last in sorted(aborted):
        found = listed.get((producer, last))
        if found is None or known <= found != first:
            yield f"I6: aborted transaction {producer, first, last} is not listed"


def _outcome(rows: Sequence[ModelBatch], data: ModelBatch) -> bool:
    """Return whether the transaction of a batch is committed."""
    for row in rows:
        own = row.header.control and row.header.producer_id == data.header.producer_id
        if own and row.base > data.base:
            marker = read_marker(row.content)
            return marker is not None and marker.commit
    return False
