"""Sends control requests from this broker's controller to another broker, on their own connection.

A request is repeated until the broker answers it or its registration ends. Requests are idempotent:
they carry epochs and describe a state, not a step.
"""

import asyncio
import logging
from functools import partial
from typing import cast

from headwater.broker.peers import Address, Peers
from headwater.controller.channel_loop import OnReply
from headwater.controller.control_requests import ControlRequest, ControlResponse
from headwater.controller.state import LiveBroker
from headwater.errors import KafkaError
from headwater.seams.timers import Timer
from headwater.wire.apis import API, key_of
from headwater.wire.schema import Struct

log = logging.getLogger("headwater.controller")

RETRY_S = 0.1


class ControlConnection:
    """Delivers control requests to one registration of another broker."""

    def __init__(
        self, peers: Peers, broker: LiveBroker, listeners: tuple[str, ...], timeout_ms: int
    ) -> None:
        self._broker_id = broker.broker_id
        address = _address(broker, listeners)
        self._connection = peers.open(broker.broker_id, "control", lambda _: address)
        self._timeout_ms = timeout_ms
        self._retry: Timer | None = None
        self._waiting: OnReply | None = None
        self._failing = False
        self._closed = False

    def receive(self, message: ControlRequest, on_reply: OnReply) -> None:
        """Deliver a request; `on_reply` gets None only after `close`."""
        self._waiting = on_reply
        self._send(message)

    def close(self) -> None:
        """Give up: the broker is gone."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._reply(None)
        self._connection.close()

    def _send(self, message: ControlRequest) -> None:
        self._retry = None
        answer = API[key_of(type(message))].response
        self._connection.send(
            message, answer, partial(self._answered, message), timeout_ms=self._timeout_ms
        )

    def _answered(self, message: ControlRequest, result: Struct | KafkaError) -> None:
        if self._closed:
            self._reply(None)
        elif isinstance(result, KafkaError):
            if not self._failing:
                log.warning("control requests are repeated: %s", result.message)
            self._failing = True
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(RETRY_S, self._send, message)
        else:
            if self._failing:
                log.info("broker %d answers control requests again", self._broker_id)
            self._failing = False
            self._reply(cast("ControlResponse", result))

    def _reply(self, response: ControlResponse | None) -> None:
        on_reply, self._waiting = self._waiting, None
        if on_reply is not None:
            on_reply(response)


def _address(broker: LiveBroker, listeners: tuple[str, ...]) -> Address:
    """The address of the first of these listeners that the broker has."""
    by_name = {
        end.listener: Address(end.host, end.port, end.listener) for end in broker.node.endpoints
    }
    return next(
        (by_name[name] for name in listeners if name in by_name), next(iter(by_name.values()))
    )
