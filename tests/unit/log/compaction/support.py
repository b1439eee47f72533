"""What the tests of compaction share: both key maps, and logs written batch by batch."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from headwater.log.compaction import passes
from headwater.log.compaction.jobs import CleaningJob, LastBatch, SourceSegment
from headwater.log.compaction.passes import CleaningPass
from headwater.log.partition_log import PartitionLog
from headwater.log.settings import LogSettings
from headwater.records.builder import build_batch
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record, decode_records
from headwater.seams.files import OsFiles
from tests.unit.log.support import NOW, flush, stage, stored

COMPACTED = LogSettings(cleanup_policy="compact", retention_ms=-1)
SECRET = bytes(range(16))
_BUILT = find_spec("headwater.log.compaction._key_map") is not None

BOTH_MAPS = [
    pytest.param("pure_key_map", id="pure"),
    pytest.param(
        "_key_map",
        id="compiled",
        marks=pytest.mark.skipif(not _BUILT, reason="no C compiler has built the key map"),
    ),
]


def use_key_map(monkeypatch, name):
    module = import_module(f"headwater.log.compaction.{name}")
    monkeypatch.setattr(passes, "make_key_map", module.KeyMap)
    monkeypatch.setattr(passes, "bytes_per_key", module.BYTES_PER_KEY)
    return module


@pytest.fixture(params=BOTH_MAPS)
def key_map(request, monkeypatch):
    return use_key_map(monkeypatch, request.param)


def write(log: PartitionLog, *pairs, now=NOW, leader=0, **kind) -> None:
    """Append one batch of (key, value) pairs; a value of None is a tombstone."""
    records = [Record(key=key, value=value) for key, value in pairs]
    if kind.get("producer_id", -1) >= 0:
        kind.setdefault("producer_epoch", 0)
    stage(log, memoryview(build_batch(records, now=now, **kind)), leader, now)
    log.write_staged()


def end_transaction(log: PartitionLog, producer_id, *, commit, epoch=0, now=NOW) -> int:
    marker = Marker(producer_id, epoch, commit, 0)
    offset, _ = log.staging.stage_marker(build_marker(marker, now), 0, now)
    log.write_staged()
    return offset


def job_of(log: PartitionLog, first_dirty=0, now_ms=NOW, **more) -> CleaningJob:
    """A pass over all sealed segments."""
    sealed = list(log.segments)[:-1]
    end = log.segments.active.base_offset
    settings = log.settings
    limits = {
        "segment_bytes": settings.segment_bytes,
        "index_interval_bytes": settings.index_interval_bytes,
        "producers": {
            row.producer_id: LastBatch(row.window[-1][3] if row.window else -1, row.epoch)
            for row in log.producers
        },
    }
    return CleaningJob(
        log.directory,
        [SourceSegment(segment.base_offset, segment.size) for segment in sealed],
        end,
        first_dirty,
        now_ms,
        SECRET,
        later_aborted=log.segments.aborted_transactions(end, end),
        **{**limits, **more},
    )


def cleaned(log: PartitionLog, dirs, first_dirty=0, now_ms=NOW, **more) -> CleaningPass:
    """Roll, flush, run one pass, and swap its segments in."""
    if log.segments.active.size:
        log.roll(now_ms)
    flush(log, dirs)
    cleaning = CleaningPass(OsFiles(), job_of(log, first_dirty, now_ms, **more))
    for group in cleaning.run():
        log.replace_segments(*group)
    return cleaning


def records_of(log: PartitionLog, start=None) -> list[Record]:
    """The records that a consumer gets, markers left out."""
    found = []
    for _, _, data in stored(log, start=start):
        if not data[22] & 0x20:
            found += decode_records(data)
    return found


def contents(log: PartitionLog) -> list[tuple[int, bytes, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records_of(log)]
