"""Reading without a group: from either end, from an offset, from a time."""

import threading

from tests.compat.broker_under_test import BASE_TIME, BrokerUnderTest
from tests.compat.checks import check
from tests.compat.client import BEGINNING, END, Client, Message, Start


def _offsets(client: Client, topic: str, start: Start, count: int) -> list[int]:
    return [record.offset for record in client.consume(topic, start, count)]


@check("read from start")
def from_start(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    broker.fill(topic, 10)
    received = client.consume(topic, BEGINNING, 10)
    assert [r.offset for r in received] == list(range(10))
    assert [r.timestamp for r in received] == [BASE_TIME + n * 1000 for n in range(10)]


@check("read from end")
def from_end(client: Client, broker: BrokerUnderTest) -> None:
    """Nobody can see when a client has found the end: new records come until it reads one."""
    topic = broker.topic()
    broker.fill(topic, 10)
    read: list[int] = []
    reader = threading.Thread(target=lambda: read.extend(_offsets(client, topic, END, 1)))
    reader.start()
    while reader.is_alive():
        broker.hand.produce(topic, [Message(b"new")])
        reader.join(0.1)
    assert len(read) == 1
    assert read[0] >= 10


@check("read from offset")
def from_offset(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    broker.fill(topic, 10)
    assert _offsets(client, topic, Start("offset", 7), 3) == [7, 8, 9]


@check("read from time")
def from_time(client: Client, broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    broker.fill(topic, 10)
    assert _offsets(client, topic, Start("time", BASE_TIME + 4500), 5) == [5, 6, 7, 8, 9]
