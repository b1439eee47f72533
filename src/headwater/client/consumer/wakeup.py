"""Wakes a waiting poll: an asyncio task on the loop, or a thread outside it.

Waiting for the loop through a future costs a task, a future and two thread switches. Here a thread
waits for a lock that the loop releases. Only the loop calls `set`, and one task or thread at a
time waits, so the lock needs no other guard: a waiter calls `clear`, tries once more, and only
then waits; anything that arrives after `clear` ends the wait.
"""

import asyncio
import threading


class Wakeup:
    """Set whenever poll() should try again."""

    def __init__(self) -> None:
        self._set = False
        self._waiter: asyncio.Future[None] | None = None
        self._released = threading.Lock()
        self._released.acquire()

    def set(self) -> None:
        """End the wait, or the next one. On the loop only."""
        self._set = True
        if self._waiter is not None:
            self._end_wait()
        if self._released.locked():
            self._released.release()

    def clear(self) -> None:
        """Drop earlier calls of `set`; try once more before you wait."""
        self._set = False
        self._released.acquire(blocking=False)

    async def wait(self, limit_s: float) -> None:
        """Wait in a task until `set` is called or the time is over."""
        if self._set:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(limit_s, self._end_wait)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def wait_in_thread(self, limit_s: float) -> bool:
        """Wait in a thread until `set` is called; return False if the time is over first."""
        return self._released.acquire(timeout=limit_s)

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
