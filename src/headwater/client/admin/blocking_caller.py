"""Runs the calls of the blocking admin on the clients' loop thread, while the caller waits."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from headwater.client.admin.admin_core import AdminCore
from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.errors import ForkedError, LoopDiedError

T = TypeVar("T")


class BlockingCaller:
    """Runs the calls of one admin on the loop thread, from any thread."""

    def __init__(self, core: AdminCore) -> None:
        self._core = core
        self._forked: ForkedError | None = None
        self.thread: LoopThread = register(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._forked is not None:
            work.close()
            raise self._forked
        try:
            return self.thread.call(work)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # without the frames of this package

    def close(self, timeout: float | None = None) -> None:
        """Close every connection."""
        unregister(self)
        if self._forked is not None:
            return
        try:
            self.thread.call(self._core.calls.close(), timeout)
        except LoopDiedError:
            self._core.calls.detach()  # the connections ended with the loop
            raise

    def forked(self) -> None:
        """In a child process: fail every call, because the connections belong to the parent."""
        self._forked = forked_error("Admin")
        self._core.calls.detach()
