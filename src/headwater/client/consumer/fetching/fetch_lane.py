"""One broker's lane of a fetcher: its connection, its fetch session and its failures."""

import asyncio
from collections.abc import Callable

from headwater.client.backoff import Backoff
from headwater.client.consumer.fetching.fetch_session import FetchSession, FetchTarget
from headwater.model import TopicPartition
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.fetch import FetchResponse

HASTE_MS = 1000
"""For this long after a switch to another connection, the broker holds requests only briefly."""


class Switched(Exception):
    """The lane needs a different request now."""


class FetchLane:
    """One broker's connection, session and task."""

    def __init__(self, backoff: Callable[[], Backoff]) -> None:
        self.session = FetchSession()
        self.connection: ClientConnection | None = None
        self.spare: ClientConnection | None = None
        """The connection before a `switch`; an abandoned answer may still arrive there."""
        self.reply: asyncio.Future[tuple[FetchResponse, int]] | None = None
        self.switched_ms = -HASTE_MS
        self.changed = asyncio.Event()
        self.parked_since_ms = -1
        """Since when a request has been in flight; -1 while none is."""
        self.asked: dict[TopicPartition, FetchTarget] = {}
        self.failing_since_ms = -1
        """Since when requests fail; -1 while they do not."""
        self.problem: Exception | None = None
        self._new_backoff = backoff
        self._backoff: Backoff | None = None
        """Set after a failed request; None after a successful one."""
        self.task: asyncio.Task[None] | None = None

    def succeeded(self) -> None:
        """Note an answered request."""
        self._backoff = None
        self.failing_since_ms = -1

    def rest_ms(self) -> float:
        """Note a failure and return how long to wait."""
        if self._backoff is None:
            self._backoff = self._new_backoff()
        return self._backoff.next_ms()

    def switch(self, now: int) -> None:
        """Abandon the request in flight and use the other connection.

        If that one is busy as well, its answer is near: requests wait only briefly after a switch.
        """
        if self.reply is None or self.reply.done() or self.connection is None:
            return
        if self.spare is not None and self.spare.is_open and self.spare.unanswered:
            return
        self.connection, self.spare = self.spare, self.connection
        self.switched_ms = now
        self.session.replace()
        self.reply.set_exception(Switched)

    def drop(self) -> None:
        """Drop the connections; the next one begins a new session."""
        for connection in (self.connection, self.spare):
            if connection is not None:
                connection.close()
        self.connection = self.spare = None
        self.session.restart()
