import pytest

from headwater.errors import E, KafkaError
from headwater.records.record import Record, encode_records
from tests.unit.log.compaction.support import SECRET, key_map  # noqa: F401

ALL = 1 << 40


def area_of(*pairs, base_timestamp=0):
    records = [Record(key=key, value=value, timestamp=at) for at, (key, value) in enumerate(pairs)]
    return encode_records(records, base_timestamp)


def test_the_last_offset_of_a_key_wins(key_map):  # noqa: F811
    keys = key_map.KeyMap(10, 0.9, SECRET)
    area = area_of((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    assert keys.add_records(area, 3, 100, 0) == -1
    assert len(keys) == 2
    kept = keys.keep_records(area, 3, 100, 0, 102, True)
    assert kept.area == area[len(area_of((b"a", b"1"))) :]
    assert (kept.kept, kept.tombstones, kept.max_timestamp) == (2, 0, 2)


@pytest.mark.parametrize("key", [b"", b"k", b"k" * 15, b"k" * 16, b"k" * 17, b"k" * 5000])
def test_keys_of_any_length_are_told_apart(key_map, key):  # noqa: F811
    keys = key_map.KeyMap(10, 0.9, SECRET)
    keys.add_records(area_of((key, b""), (key + b"x", b""), (b"y" + key, b"")), 3, 0, 0)
    assert len(keys) == 3
    assert keys.keep_records(area_of((key, b"")), 1, 0, 0, 9, True).kept == 1
    assert keys.keep_records(area_of((key + b"x", b"")), 1, 0, 0, 9, True).kept == 0


def test_records_below_the_start_are_not_mapped(key_map):  # noqa: F811
    keys = key_map.KeyMap(10, 0.9, SECRET)
    assert keys.add_records(area_of((b"a", b""), (b"b", b""), (b"c", b"")), 3, 7, 9) == -1
    assert len(keys) == 1


def test_a_full_map_says_which_record_has_no_room(key_map):  # noqa: F811
    keys = key_map.KeyMap(3, 0.7, SECRET)
    area = area_of((b"a", b""), (b"b", b""), (b"a", b""), (b"c", b""), (b"d", b""))
    assert keys.capacity == 2
    assert keys.add_records(area, 5, 50, 0) == 53
    assert len(keys) == 2
    # Keys that the map has need no room.
    assert keys.add_records(area_of((b"b", b""), (b"a", b"")), 2, 60, 0) == -1


def test_a_map_at_its_capacity_finds_every_key(key_map):  # noqa: F811
    keys = key_map.KeyMap(1000, 1.0, SECRET)
    rows = [(b"%d" % at, b"") for at in range(1000)]
    assert keys.add_records(area_of(*rows), 1000, 0, 0) == -1
    assert keys.keep_records(area_of(*rows), 1000, 0, 0, ALL, True).area is None
    assert keys.keep_records(area_of(*rows[:500]), 500, -1, 0, ALL, True).kept == 0


def test_what_is_kept(key_map):  # noqa: F811
    keys = key_map.KeyMap(10, 0.9, SECRET)
    area = area_of((b"a", b"1"), (None, b"2"), (b"b", None))
    keys.add_records(area, 3, 0, 0)
    assert keys.keep_records(area, 3, 0, 0, 2, True)[1:3] == (2, 1)
    assert keys.keep_records(area, 3, 0, 0, 2, False)[1:3] == (1, 0)
    # Above the last mapped offset everything remains, even a record without a key.
    assert keys.keep_records(area, 3, 0, 0, -1, False) == (None, 3, 1, 2)
    assert keys.keep_records(area, 3, 0, 0, 0, False)[1:3] == (3, 1)
    # A key that was not mapped is not known to have a newer value.
    assert keys.keep_records(area_of((b"z", b"1")), 1, 0, 0, 2, True).area is None


def test_times_wrap_as_in_java(key_map):  # noqa: F811
    keys = key_map.KeyMap(10, 0.9, SECRET)
    newest = (1 << 63) - 1
    area = encode_records([Record(key=b"a", value=b"", timestamp=newest)], -(1 << 63))
    assert keys.keep_records(area, 1, 0, -(1 << 63), -1, True).max_timestamp == newest


@pytest.mark.parametrize("damage", ["cut", "short", "long", "key", "endless", "count"])
def test_damaged_records_are_refused(key_map, damage):  # noqa: F811
    area = bytearray(area_of((b"key", b"value"), (b"other", b"value")))
    match damage:
        case "cut":
            del area[-8:]
        case "short":
            area[0] = 0
        case "long":
            area[0] = 126
        case "key":
            area[4] = 120
        case "endless":
            area[0:5] = b"\xff" * 5
        case "count":
            del area[len(area) // 2 :]
    for call in (
        lambda keys: keys.add_records(bytes(area), 2, 0, 0),
        lambda keys: keys.keep_records(bytes(area), 2, 0, 0, 9, True),
    ):
        with pytest.raises(KafkaError) as refused:
            call(key_map.KeyMap(10, 0.9, SECRET))
        assert refused.value.code is E.INVALID_RECORD
