"""A range of a partition as Arrow: exactly its records, exactly Spark's types."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headwater.client.errors import CorruptRecordError
from headwater.client.partition_reader import Aborted, FetchedBatches, OutOfRange
from headwater.config.client import ConsumerSettings
from headwater.model import TopicPartition
from headwater.pipelines.arrow_rows import schema
from headwater.pipelines.topic_source.offsets import OffsetRange
from headwater.pipelines.topic_source.range_reader import DataLossError, RangeReader
from headwater.records.builder import build_batch
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record


class Answers:
    """Brokers that answer from a list: what real ones cannot be made to send."""

    settings = ConsumerSettings.of({"bootstrap_servers": "localhost:1"})

    def __init__(self, *answers):
        self.left = list(answers)
        self.asked = []

    def fetcher(self, where, timeout_ms):
        assert where == TopicPartition("t", 3)
        return self

    def request(self, offset, max_bytes):
        self.asked.append(offset)

    def receive(self):
        return self.left.pop(0)

    def close(self):
        assert not self.left


def batch(first, *values, headers=(), timestamp=1000, **options):
    rows = [
        Record(offset=n, value=value, timestamp=timestamp, headers=headers)
        for n, value in enumerate(values, start=first)
    ]
    return bytes(build_batch(rows, base_offset=first, leader_epoch=0, now=0, **options))


def piece(*batches, aborted=None):
    return FetchedBatches(memoryview(b"".join(batches)), aborted)


def read(brokers, start, end, *, headers=False, fail=True):
    reader = RangeReader(brokers, headers=headers, fail_on_data_loss=fail, timeout_ms=1000)
    found = list(reader.read(OffsetRange("t", 3, start, end)))
    return pa.Table.from_batches(found, schema(headers=headers))


def offsets(table):
    return table.column("offset").to_pylist()


def test_the_columns_are_those_of_spark():
    table = read(Answers(piece(batch(5, b"a"))), 5, 6)
    assert table.to_pylist() == [
        {
            "key": None, "value": b"a", "topic": "t", "partition": 3, "offset": 5,
            "timestamp": datetime.fromtimestamp(1, UTC), "timestampType": 0,
        }
    ]  # fmt: skip


def test_the_broker_is_asked_until_the_end_is_passed_and_not_once_more():
    brokers = Answers(piece(batch(0, b"a", b"b")), piece(batch(2, b"c"), batch(3, b"d")))
    assert offsets(read(brokers, 0, 4)) == [0, 1, 2, 3]
    assert brokers.asked == [0, 2]


def test_what_a_batch_holds_before_and_after_the_range_is_left_out():
    values = [b"x"] * 10
    assert offsets(read(Answers(piece(batch(0, *values))), 3, 6)) == [3, 4, 5]


def test_gaps_left_by_compaction_are_no_loss():
    brokers = Answers(piece(batch(7, b"a"), batch(20, b"b")))
    assert offsets(read(brokers, 0, 10)) == [7]


def test_a_range_may_hold_no_record_at_all():
    assert offsets(read(Answers(piece(batch(20, b"b"))), 0, 10)) == []


def transactional(first, value, producer):
    return batch(
        first, value, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(offset, producer, *, commit):
    made = build_marker(Marker(producer, 0, commit, 0), now=0)
    made[:8] = offset.to_bytes(8)
    return bytes(made)


def test_read_committed_ends_although_the_last_record_is_never_shown():
    log = (
        transactional(0, b"aborted", 1),
        transactional(1, b"kept", 2),
        marker(2, 1, commit=False),
        marker(3, 2, commit=True),
        transactional(4, b"aborted too", 1),
        marker(5, 1, commit=False),
    )
    aborted = [Aborted(1, 0), Aborted(1, 4)]
    table = read(Answers(piece(*log, aborted=aborted)), 0, 6)
    assert table.column("value").to_pylist() == [b"kept"]


def test_read_committed_drops_transactions_that_overlap_and_end_out_of_order():
    log = (
        transactional(0, b"aborted", 1),
        transactional(1, b"aborted first", 2),
        marker(2, 2, commit=False),
        transactional(3, b"kept", 3),
        marker(4, 1, commit=False),
        marker(5, 3, commit=True),
    )
    table = read(Answers(piece(*log, aborted=[Aborted(2, 1), Aborted(1, 0)])), 0, 6)
    assert table.column("value").to_pylist() == [b"kept"]


def test_read_uncommitted_shows_everything_but_markers():
    log = (transactional(0, b"a", 1), marker(1, 1, commit=False))
    assert offsets(read(Answers(piece(*log)), 0, 2)) == [0]


def test_retention_that_overtook_the_query_fails_it_with_what_is_lost_and_what_to_do():
    with pytest.raises(DataLossError) as problem:
        read(Answers(OutOfRange(earliest=50, latest=90)), 10, 80)
    assert "t-3: offsets 10 to 49 were deleted" in problem.value.message
    assert "failOnDataLoss=false" in problem.value.message


def test_without_fail_on_data_loss_it_goes_on_at_the_earliest(caplog):
    brokers = Answers(OutOfRange(earliest=50, latest=52), piece(batch(50, b"a", b"b")))
    assert offsets(read(brokers, 10, 52, fail=False)) == [50, 51]
    assert "offsets 10 to 49 were deleted" in caplog.text


def test_a_range_that_is_gone_as_a_whole_is_empty_then(caplog):
    assert offsets(read(Answers(OutOfRange(50, 90)), 10, 20, fail=False)) == []
    assert "offsets 10 to 19 were deleted" in caplog.text


def test_a_log_that_ends_too_early_was_cut_or_is_another():
    with pytest.raises(DataLossError, match="the partition ends at 5"):
        read(Answers(OutOfRange(earliest=0, latest=5)), 10, 20)


def test_bytes_without_a_whole_batch_are_an_error_and_no_endless_loop():
    with pytest.raises(CorruptRecordError, match="hold no whole batch"):
        read(Answers(piece(batch(0, b"a")[:-1])), 0, 1)


def test_headers_are_null_where_a_record_has_none():
    log = piece(batch(0, b"a", headers=[("k", b"v"), ("n", None)]), batch(1, b"b"), batch(2, b"c"))
    found = read(Answers(log), 0, 3, headers=True).column("headers").to_pylist()
    assert found == [[{"key": "k", "value": b"v"}, {"key": "n", "value": None}], None, None]
    assert read(Answers(piece(batch(0, b"a"))), 0, 1, headers=True)["headers"].to_pylist() == [None]


def test_a_time_beyond_microseconds_is_null_and_stops_nobody():
    log = piece(batch(0, b"a", timestamp=2**62), batch(1, b"b", timestamp=-5))
    found = read(Answers(log), 0, 2).column("timestamp").to_pylist()
    assert found[0] is None
    assert found[1].microsecond == 995_000


def test_the_time_of_the_log_is_told_as_such():
    log = piece(batch(0, b"a", timestamp_type=1))
    assert read(Answers(log), 0, 1).column("timestampType").to_pylist() == [1]


def test_large_records_are_handed_over_in_batches_of_some_megabytes():
    log = piece(*(batch(n, bytes(1024 * 1024)) for n in range(5)))
    reader = RangeReader(Answers(log), headers=False, fail_on_data_loss=True, timeout_ms=1)
    sizes = [found.num_rows for found in reader.read(OffsetRange("t", 3, 0, 5))]
    assert sizes == [2, 2, 1]
