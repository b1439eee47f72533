"""One broker's lane of a fetcher: its connection, its fetch session and how its requests fare."""

import asyncio
from collections.abc import Callable

from headwater.client.backoff import Backoff
from headwater.client.consumer.fetching.fetch_session import FetchSession, FetchTarget
from headwater.model import TopicPartition
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.fetch import FetchResponse

HASTE_MS = 1000
"""For so long after a switch to another connection requests wait only briefly at the broker."""


class Switched(Exception):
    """The lane asks for something else now."""


class FetchLane:
    """One broker's connection, session and task."""

    def __init__(self, backoff: Callable[[], Backoff]) -> None:
        self.session = FetchSession()
        self.connection: ClientConnection | None = None
        self.spare: ClientConnection | None = None
        """The one before a `switch`; an answer that nobody waits for may still come there."""
        self.reply: asyncio.Future[tuple[FetchResponse, int]] | None = None
        self.switched_ms = -HASTE_MS
        self.changed = asyncio.Event()
        self.parked_since_ms = -1
        """Since when a request has been under way; -1 while none is."""
        self.asked: dict[TopicPartition, FetchTarget] = {}
        self.failing_since_ms = -1
        """Since when requests fail; -1 while they do not."""
        self.problem: Exception | None = None
        self._new_backoff = backoff
        self._backoff: Backoff | None = None
        """Since a request failed; None after one that did not."""
        self.task: asyncio.Task[None] | None = None

    def succeeded(self) -> None:
        """A request was answered."""
        self._backoff = None
        self.failing_since_ms = -1

    def rest_ms(self) -> float:
        """How long to wait after one more failure."""
        if self._backoff is None:
            self._backoff = self._new_backoff()
        return self._backoff.next_ms()

    def switch(self, now: int) -> None:
        """Leave the request under way to itself and ask on the other connection.

        Where that is busy as well, its answer is near: requests wait only briefly after a switch.
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
        """Let go of the connections; the next one begins a new session."""
        for connection in (self.connection, self.spare):
            if connection is not None:
                connection.close()
        self.connection = self.spare = None
        self.session.restart()
