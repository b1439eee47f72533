"""Bytes as Kafka's own serializers write them."""

import uuid

import pytest

from headwater.client.producer.serializers import BY_NAME


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("string", "é", b"\xc3\xa9"),
        ("bytes", bytearray(b"x"), b"x"),
        ("int", -2, b"\xff\xff\xff\xfe"),
        ("long", 1, b"\0\0\0\0\0\0\0\1"),
        ("double", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        ("uuid", uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ("json", {"a": ["é", None]}, '{"a":["é",null]}'.encode()),
    ],
)
def test_each_kind_is_written_like_javas(name, value, written) -> None:
    assert BY_NAME[name](value) == written
