"""Producing: codecs, keys, headers, nulls, large records, idempotence."""

import base64
import functools
import random
from contextlib import suppress

from tests.compat.broker_under_test import BrokerUnderTest
from tests.compat.checks import check, refused
from tests.compat.client import BEGINNING, CODECS, Client, Message, Refused
from tests.compat.raw import stored_batches


def _round_trip(client: Client, topic: str, messages: list[Message]) -> None:
    received = client.consume(topic, BEGINNING, len(messages))
    assert [r.sent() for r in received] == [(m.key, m.value, m.headers) for m in messages]
    assert [r.offset for r in received] == list(range(len(messages)))


def _codec_round_trip(codec: str, client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    messages = [Message(f"{n:03} {'headwater ' * 40}".encode()) for n in range(50)]
    client.produce(topic, messages, codec=codec)
    _round_trip(client, topic, messages)
    stored = {batch.codec for batch in stored_batches(broker.bootstrap, topic)}
    assert stored == {codec}, f"asked for {codec}, stored as {stored}"


for _codec in CODECS:
    check(f"produce {_codec}")(functools.partial(_codec_round_trip, _codec))


@check("keys, headers, nulls")
def keys_headers_nulls(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    messages = [
        Message(b"a value alone"),
        Message(b"value", key=b"key"),
        Message(b"headers", key=b"key", headers=(("one", b"1"), ("two", b"2"), ("one", b"3"))),
        Message(None, key=b"key"),
    ]
    if client.null_headers:
        messages.append(Message(b"a header of null", headers=(("none", None),)))
    if client.binary_safe:
        every_byte = bytes(range(256))
        messages.append(Message(every_byte, key=every_byte, headers=(("all", every_byte),)))
        messages.append(Message(b"", key=b"", headers=(("", b""),)))
    client.produce(topic, messages)
    _round_trip(client, topic, messages)


def _incompressible(size: int) -> bytes:
    return base64.b85encode(random.Random(1).randbytes(size))[:size]


@check("1 MB records")
def megabyte_records(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic(max_message_bytes="2000000")
    messages = [Message(_incompressible(1_000_000))] * 3
    for message in messages:
        client.produce(topic, [message])
    _round_trip(client, topic, messages)


@check("too large is refused")
def too_large(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic(max_message_bytes="1000")
    large = [Message(_incompressible(2000))]
    if client.names_errors:
        with refused(client, "MESSAGE_TOO_LARGE"):
            client.produce(topic, large)
    else:
        with suppress(Refused):  # some tools tell a failed delivery in no way at all
            client.produce(topic, large)
    assert broker.end(topic) == 0


@check("idempotent produce")
def idempotent(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    messages = [Message(f"{n}".encode()) for n in range(2000)]
    client.produce(topic, messages, idempotent=True)
    _round_trip(client, topic, messages)
    expected = 0
    for batch in stored_batches(broker.bootstrap, topic):
        assert batch.producer_id >= 0
        assert batch.base_sequence == expected
        expected += batch.count
    assert expected == len(messages)
