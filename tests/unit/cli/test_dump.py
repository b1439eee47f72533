import json
from pathlib import Path

from click.testing import CliRunner, Result

from headwater.cli.app import command
from headwater.cli.dump import bytes_text, time_text
from headwater.coordination.groups.records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    encode,
)
from headwater.records.batch import assign
from headwater.records.builder import build_batch
from headwater.records.compression import Codec
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record

NOW = 1_700_000_000_000


def segment(path: Path, *batches: bytes | bytearray) -> Path:
    file = path / "00000000000000000000.log"
    file.write_bytes(b"".join(batches))
    return file


def dump(file: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["log", "dump", str(file), *options])


def two_batches() -> tuple[bytearray, bytearray]:
    first = build_batch(
        [Record(key=b"k", value=b"v", headers=(("h", b"\xff"),)), Record(value=b"line\nbreak")],
        now=NOW,
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=4,
    )
    second = build_batch([Record(key=b"\xfe", value=None)], now=NOW)
    assign(second, 2, 5)
    return first, second


def test_batches_and_records_are_readable(tmp_path: Path) -> None:
    result = dump(segment(tmp_path, *two_batches()))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("offsets 0-1  records 2  position 0  size ")
    assert "codec zstd" in lines[0]
    assert lines[0].endswith("producer 7/1  sequence 4-5")
    assert lines[1:3] == [
        '  0  2023-11-14T22:13:20.000Z  key "k"  value "v"  headers h=0xff',
        r'  1  2023-11-14T22:13:20.000Z  key null  value "line\nbreak"',
    ]
    assert "epoch 5" in lines[3]
    assert lines[4] == "  2  2023-11-14T22:13:20.000Z  key 0xfe  value null"


def test_json_has_one_batch_a_line(tmp_path: Path) -> None:
    result = dump(segment(tmp_path, *two_batches()), "--json")
    first, second = map(json.loads, result.output.splitlines())
    assert (first["base_offset"], first["last_offset"], first["codec"]) == (0, 1, "zstd")
    assert first["records"][0]["headers"] == [["h", {"hex": "ff"}]]
    assert second["records"] == [
        {
            "offset": 2,
            "timestamp": NOW,
            "key": {"hex": "fe"},
            "value": None,
            "headers": [],
            "meaning": None,
        }
    ]


def test_records_can_be_left_out(tmp_path: Path) -> None:
    assert len(dump(segment(tmp_path, *two_batches()), "--no-records").output.splitlines()) == 2


def test_records_of_the_offsets_topic_say_what_they_mean(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    stored = StoredGroup("consumer", 3, "range", "m", NOW)
    said = [
        OffsetRecord("readers", "clicks", 2, CommittedOffset(41)),
        OffsetRecord("readers", "clicks", 2, None),
        GroupRecord("readers", stored),
        GroupRecord("readers", None),
    ]
    pairs = [*map(encode, said), (b"\x00\x63?", None)]
    records = [Record(key=key, value=value) for key, value in pairs]
    result = dump(segment(folder, build_batch(records, now=NOW)))
    time = "2023-11-14T22:13:20.000Z"
    assert result.output.splitlines()[1:] == [
        f"  0  {time}  group readers: clicks-2 at offset 41",
        f"  1  {time}  group readers: clicks-2 deleted",
        f"  2  {time}  group readers: generation 3, 0 members",
        f"  3  {time}  group readers: deleted",
        f'  4  {time}  key "\\x00c?"  value null',
    ]


def test_the_end_of_a_transaction_is_named(tmp_path: Path) -> None:
    result = dump(segment(tmp_path, build_marker(Marker(7, 0, True, 0), NOW)))
    assert "transactional  control" in result.output.splitlines()[0]
    assert result.output.splitlines()[1].endswith("  commit")


def test_a_torn_tail_is_told_after_the_whole_batches(tmp_path: Path) -> None:
    first, second = two_batches()
    result = dump(segment(tmp_path, first, second[:-1]))
    assert result.exit_code == 1
    assert result.stdout.startswith("offsets 0-1")
    assert f"at position {len(first)}: 1 bytes of the batch are missing" in result.stderr


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    batch = two_batches()[0]
    batch[-1] ^= 1
    result = dump(segment(tmp_path, batch))
    assert result.exit_code == 1
    assert "the checksum of the batch at offset 0 is wrong" in result.stderr


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    result = dump(segment(tmp_path, bytes(4096)))
    assert result.exit_code == 1
    assert "not a record batch of format 2" in result.stderr


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(b"")
    assert "name the .log file beside it" in dump(index).stderr


def test_times_no_calendar_reaches_are_numbers() -> None:
    assert time_text(-1) == "none"
    assert time_text(2**62) == str(2**62)
    assert time_text(0) == "1970-01-01T00:00:00.000Z"


def test_bytes_are_text_where_they_can_be() -> None:
    assert bytes_text("é".encode()) == '"é"'
    assert bytes_text(b"\x80") == "0x80"
    assert bytes_text(None) == "null"
