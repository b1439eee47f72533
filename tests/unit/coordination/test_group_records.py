"""The bytes of `__consumer_offsets`, byte by byte as Kafka writes them."""

import pytest

from headwater.coordination.groups.records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    decode,
    encode,
)
from headwater.wire.codec import WireError

KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
MEMBER = StoredMember("m", "i", "c", "/h", 60_000, 10_000, b"sub", b"ass")
GROUP = StoredGroup("consumer", 2, "range", "m", 5, (MEMBER,))


def test_a_commit_is_written_with_its_topic_id():
    topic_id = bytes(range(16))
    record = OffsetRecord("g", "t", 3, CommittedOffset(5, 1, "m", 100, -1, topic_id))
    value = bytes.fromhex("0004 0000000000000005 00000001 02 6d 0000000000000064 01 00 10")
    assert encode(record) == (KEY, value + topic_id)
    assert decode(KEY, value + topic_id) == record


def test_a_commit_with_its_own_retention_is_written_in_the_version_that_can_say_so():
    record = OffsetRecord("g", "t", 3, CommittedOffset(5, -1, "m", 100, 200))
    value = bytes.fromhex("0001 0000000000000005 0001 6d 0000000000000064 00000000000000c8")
    assert encode(record) == (KEY, value)
    assert decode(KEY, value) == record


@pytest.mark.parametrize(
    "value",
    [
        "0000 0000000000000005 0001 6d 0000000000000064",
        "0002 0000000000000005 0001 6d 0000000000000064",
        "0003 0000000000000005 ffffffff 0001 6d 0000000000000064",
    ],
)
@pytest.mark.parametrize("kind", ["0000", "0001"])
def test_older_commits_are_read(value, kind):
    key = bytes.fromhex(kind) + KEY[2:]
    expected = OffsetRecord("g", "t", 3, CommittedOffset(5, -1, "m", 100))
    assert decode(key, bytes.fromhex(value)) == expected


def test_a_group_is_written_in_version_3():
    key, value = encode(GroupRecord("g", GROUP))
    assert key == bytes.fromhex("0002 0001 67")
    assert value is not None
    assert value[:2] == b"\x00\x03"
    assert decode(key, value) == GroupRecord("g", GROUP)


def test_a_group_of_version_0_takes_the_session_timeout_for_both():
    value = bytes.fromhex(
        "0000 0001 78 00000001 ffff ffff 000000010001 6d 0001 63 0001 68 00002710 00000000 00000000"
    )
    record = decode(b"\x00\x02\x00\x01g", value)
    assert isinstance(record, GroupRecord)
    assert record.stored is not None
    assert record.stored.members[0][:6] == ("m", None, "c", "h", 10_000, 10_000)
    assert record.stored.state_timestamp == -1


def test_a_null_value_deletes():
    assert decode(KEY, None) == OffsetRecord("g", "t", 3, None)
    assert encode(GroupRecord("g", None)) == (b"\x00\x02\x00\x01g", None)


@pytest.mark.parametrize("key", ["0003 0001 67", "0010 0001 67", "", "00"])
def test_records_of_other_kinds_are_not_ours(key):
    assert decode(bytes.fromhex(key), b"\x00\x00") is None


@pytest.mark.parametrize("value", ["", "00", "0009 00", "0003 0000"])
def test_a_damaged_value_is_an_error_of_the_wire(value):
    with pytest.raises(WireError):
        decode(KEY, bytes.fromhex(value))
