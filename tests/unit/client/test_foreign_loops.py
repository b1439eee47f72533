"""An asyncio client that another event loop uses says so: there, nothing would end its waits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater import aio
from headwater.client.waits import check_loop
from headwater.errors import IllegalStateError
from headwater.testing import Broker

Make = Callable[..., Any]
Use = Callable[[Any], Coroutine[Any, Any, object]]


async def begun(make: Make, use: Use) -> Any:
    client = make()
    await use(client)
    return client


async def send(producer: aio.Producer) -> None:
    await producer.send_and_wait("orders", b"x")


async def subscribe_and_poll(consumer: aio.Consumer) -> None:
    await consumer.subscribe(["orders"])
    await consumer.poll(0.01)


CALLS: list[tuple[type, Use, list[Use]]] = [
    (
        aio.Producer,
        send,
        [
            send,
            lambda its: its.send("orders", b"x"),
            lambda its: its.send("orders", 1),
            lambda its: its.send("unknown", b"x"),
            lambda its: its.send_many("orders", [b"x"]),
            lambda its: its.flush(),
            lambda its: its.close(),
        ],
    ),
    (
        aio.Consumer,
        subscribe_and_poll,
        [
            lambda its: its.poll(60),
            lambda its: anext(aiter(its)),
            lambda its: its.commit(),
            lambda its: its.process(print),
            lambda its: its.close(),
        ],
    ),
    (
        aio.Admin,
        lambda its: its.list_topics(),
        [lambda its: its.list_topics(), lambda its: its.close()],
    ),
]


@pytest.mark.parametrize(("kind", "begin", "calls"), CALLS)
def test_a_client_is_refused_in_another_loop(kind: type, begin: Use, calls: list[Use]) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap}
        if kind is aio.Consumer:
            settings |= {"group_id": "g"}
        if kind is aio.Producer:
            settings |= {"value_serializer": lambda value: value if value != 1 else b"one"}
        own, other = asyncio.new_event_loop(), asyncio.new_event_loop()
        client = own.run_until_complete(begun(lambda: kind(**settings), begin))
        said = rf"this {kind.__name__} was started in another event loop, .*create one in each loop"
        for call in calls:
            with pytest.raises(IllegalStateError, match=said):
                other.run_until_complete(asyncio.wait_for(call(client), 10))
        other.close()
        own.run_until_complete(begin(client))
        own.run_until_complete(client.close())
        own.close()


def test_a_loop_that_is_closed_is_named_as_the_reason() -> None:
    own = asyncio.new_event_loop()
    own.close()

    async def check() -> None:
        with pytest.raises(IllegalStateError, match="another event loop, which is closed: create"):
            check_loop("Admin", own)

    asyncio.run(check())
