import pytest

from headwater.errors import KafkaError
from headwater.records.batch import read_header
from headwater.records.builder import build_batch
from headwater.records.control import Marker, build_marker, read_marker
from headwater.records.record import Record, decode_records

NOW = 1_700_000_000_000


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_comes_back_as_it_was_written(commit):
    marker = Marker(2**63 - 1, 2**15 - 1, commit, 2**31 - 1)
    assert read_marker(build_marker(marker, NOW)) == marker


def test_a_marker_is_a_transactional_control_batch_without_sequence():
    batch = build_marker(Marker(5, 1, commit=True, coordinator_epoch=3), NOW)
    header = read_header(batch)
    assert (header.transactional, header.control, header.base_sequence) == (True, True, -1)
    record = decode_records(batch)[0]
    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x03"


def test_a_marker_of_another_layout_is_read_as_well():
    marker = Marker(5, 1, commit=True, coordinator_epoch=3)
    usual = decode_records(build_marker(marker, NOW))[0]
    for options in ({"codec": 1}, {"headers": [("h", b"v")]}):
        record = usual._replace(headers=options.pop("headers", ()))
        other = build_batch(
            [record], now=NOW, producer_id=5, producer_epoch=1, control=True, **options
        )
        assert read_marker(other) == marker


def control(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([Record(key=key, value=value)], now=NOW, control=True)


def test_other_control_records_are_no_markers():
    assert read_marker(control(b"\x00\x00\x00\x02", b"leader change")) is None
    assert read_marker(control(b"\x00\x00\x00\x63", None)) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, None), (b"\x00\x00\x00", b""), (b"\x00\x00\x00\x01", b"\x00\x00\x00")]
)
def test_a_cut_control_record_is_corruption(key, value):
    with pytest.raises(KafkaError):
        read_marker(control(key, value))
