"""The word that something came: for a task that waits on the loop, or for a thread that waits beside it.

A thread that waits for the loop through a future pays for a task, a future and two hand-overs. Here
it waits for a lock that the loop lets go of. The loop alone calls `set`, and one thread at a time
listens, so that the lock needs no other guard: whoever listens looks at what came after `hush` and
before it waits, and what comes later rings.
"""

import asyncio
import threading


class Wakeup:
    """Set whenever poll() should look again."""

    def __init__(self) -> None:
        self._came = False
        self._waiter: asyncio.Future[None] | None = None
        self._bell = threading.Lock()
        self._bell.acquire()

    def set(self) -> None:
        """On the loop: something came."""
        self._came = True
        if self._waiter is not None:
            self._end_wait()
        if self._bell.locked():
            self._bell.release()

    # -- for a task, one at a time

    def clear(self) -> None:
        """Forget what came; look once more before `wait`."""
        self._came = False

    async def wait(self, limit_s: float) -> None:
        """Until something comes, or the time is over."""
        if self._came:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(limit_s, self._end_wait)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- for a thread

    def hush(self) -> None:
        """Forget what came; look once more before `listen`."""
        self._bell.acquire(blocking=False)

    def listen(self, timeout_s: float) -> bool:
        """Wait until something comes; False when the time is over."""
        return self._bell.acquire(timeout=timeout_s)
