"""Uses of the clients for a type checker: each `# error: CODE` must be found, and nothing else.

Never run; `test_typing.py` gives it to mypy.
"""

import json
from typing import Any, assert_type

import headwater
from headwater import aio


def text(data: bytes) -> str:
    return data.decode()


def consumers() -> None:
    plain = headwater.Consumer(bootstrap_servers="localhost:9092", group_id="billing")
    assert_type(plain, headwater.Consumer[bytes, bytes])
    for record in plain.poll(1.0):
        assert_type(record.value, bytes | None)
    typed = headwater.Consumer(
        bootstrap_servers=["a:1", "b:1"], key_deserializer=text, value_deserializer=len
    )
    assert_type(typed, headwater.Consumer[str, int])
    for one in typed:
        assert_type(one.key, str | None)
        assert_type(one.value, int | None)
    named = headwater.Consumer(bootstrap_servers="a:1", value_deserializer="json")
    assert_type(named, headwater.Consumer[Any, Any])
    headwater.Consumer(bootstrap_servers="a:1", value_deserializer=json.loads)
    headwater.Consumer(group_id="billing")  # error: call-overload
    headwater.Consumer(bootstrap_servers="a:1", groupid="billing")  # error: call-overload
    headwater.Consumer(bootstrap_servers="a:1", value_deserializer="yaml")  # error: call-overload
    headwater.Consumer(bootstrap_servers="a:1", auto_offset_reset="first")  # error: call-overload
    plain.process(print, order="value")  # error: arg-type


def producers() -> None:
    producer = headwater.Producer(bootstrap_servers="a:1", acks=1, linger_ms=5, profile="latency")
    producer.send("orders", b"42").result().offset.bit_length()
    headwater.Producer()  # error: call-arg
    headwater.Producer(bootstrap_servers="a:1", linger="5")  # error: call-arg
    headwater.Producer(bootstrap_servers="a:1", linger_ms="soon")  # error: arg-type
    headwater.Producer(bootstrap_servers="a:1", compression_type="brotli")  # error: arg-type


async def asynchronous() -> None:
    async with aio.Consumer(bootstrap_servers="a:1", value_deserializer=text) as consumer:
        assert_type(consumer, aio.Consumer[bytes, str])
        async for record in consumer:
            assert_type(record.value, str | None)
    async with aio.Producer(bootstrap_servers="a:1") as producer:
        await producer.send_and_wait("orders", b"42")
        await producer.flush(timeout="soon")  # error: arg-type
