"""Channels from the controller to brokers: one request at a time, in order, answered once.

The controller's own broker has the same kind of channel as any other and gets the same requests. A
channel belongs to one registration of a broker: a broker that registers again gets a new one. Requests
to a broker that has no channel, or that goes away, are answered with None.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from headwater.controller.control_requests import ControlRequest, ControlResponse
from headwater.controller.state import LiveBroker
from headwater.errors import E
from headwater.wire.messages.control import LeaderAndIsrResponse, StopReplicaResponse

log = logging.getLogger(__name__)

OnReply: TypeAlias = Callable[[ControlResponse | None], None]
Receiver: TypeAlias = Callable[[ControlRequest, OnReply], None]
"""Takes a request and answers through the callback, at once or later, exactly once."""


class RemoteReceiver(Protocol):
    """Delivers requests to another broker; repeats each one until the broker answers it."""

    def receive(self, message: ControlRequest, on_reply: OnReply) -> None:
        """Deliver a request; it is answered with None only after `close`."""

    def close(self) -> None:
        """Give up the request in flight: the broker is gone."""


class Channels:
    """One channel for each live broker; `connect` opens the connection to another broker."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        connect: Callable[[LiveBroker], RemoteReceiver],
    ) -> None:
        self._call_soon = call_soon
        self._connect = connect
        self._channels: dict[int, _Channel] = {}
        self._remote: dict[LiveBroker, RemoteReceiver] = {}

    def follow(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Keep one channel for each of these registrations; close the channels of all other brokers.

        The channel that `attach` made for this broker stays.
        """
        for live in [live for live in self._remote if brokers.get(live.broker_id) != live]:
            self.detach(live.broker_id)
            self._remote.pop(live).close()
        for live in brokers.values():
            if live.broker_id not in self._channels:
                receiver = self._remote[live] = self._connect(live)
                self.attach(live.broker_id, receiver.receive)

    def attach(self, broker_id: int, receiver: Receiver) -> None:
        """Deliver requests for `broker_id` to `receiver` from now on."""
        self.detach(broker_id)
        self._channels[broker_id] = _Channel(broker_id, receiver, self._call_soon)

    def detach(self, broker_id: int) -> None:
        """Answer the broker's pending requests with None: it cannot be reached."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def send(self, broker_id: int, message: ControlRequest, on_reply: OnReply) -> None:
        """Queue a request; `on_reply` is called later, never inside this call."""
        channel = self._channels.get(broker_id)
        if channel is None:
            self._call_soon(lambda: on_reply(None))
        else:
            channel.send(message, on_reply)


class _Channel:
    def __init__(
        self,
        broker_id: int,
        receiver: Receiver,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._broker_id = broker_id
        self._receiver = receiver
        self._call_soon = call_soon
        self._queue: deque[tuple[ControlRequest, OnReply]] = deque()
        self._busy = False
        self._closed = False

    def send(self, message: ControlRequest, on_reply: OnReply) -> None:
        self._queue.append((message, on_reply))
        if not self._busy:
            self._busy = True
            self._call_soon(self._next)

    def close(self) -> None:
        """Answer the queued requests with None, after the one in flight."""
        self._closed = True
        if not self._busy:
            self._busy = True
            self._call_soon(self._next)

    def _next(self) -> None:
        if not self._queue:
            self._busy = False
            return
        message, on_reply = self._queue.popleft()
        if self._closed:
            self._replied(on_reply, None)
            return
        try:
            self._receiver(message, lambda response: self._replied(on_reply, response))
        except Exception:
            log.exception("broker %d failed to apply %s", self._broker_id, type(message).__name__)
            self._replied(on_reply, None)

    def _replied(self, on_reply: OnReply, response: ControlResponse | None) -> None:
        self._call_soon(self._next)
        on_reply(response)


def error_of(response: ControlResponse | None) -> E:
    """The first error in a response; BROKER_NOT_AVAILABLE if there is no response."""
    if response is None:
        return E.BROKER_NOT_AVAILABLE
    codes = [response.error_code]
    if isinstance(response, StopReplicaResponse):
        codes += [one.error_code for one in response.partition_errors]
    elif isinstance(response, LeaderAndIsrResponse):
        codes += [one.error_code for topic in response.topics for one in topic.partition_errors]
    return next((_ERRORS.get(code, E.UNKNOWN_SERVER_ERROR) for code in codes if code), E.NONE)


_ERRORS = {int(error): error for error in E}
