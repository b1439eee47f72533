"""The word that something came: for a task that waits on the loop, or for a thread that waits beside it.

A thread that waits for the loop through a future pays for a task, a future and two hand-overs. Here
it waits for a lock that the loop lets go of. The loop alone calls `set`, and one thread at a time
listens, so that the lock needs no other guard: whoever listens looks at what came after `hush` and
before it waits, and what comes later rings.
"""

import asyncio
import threading


class Arrival:
    """Set whenever poll() should look again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._bell = threading.Lock()
        self._bell.acquire()

    def set(self) -> None:
        """On the loop: something came."""
        self._event.set()
        if self._bell.locked():
            self._bell.release()

    # -- for a task

    def clear(self) -> None:
        """Forget what came; look once more before `wait`."""
        self._event.clear()

    async def wait(self) -> None:
        """Until something comes."""
        await self._event.wait()

    # -- for a thread

    def hush(self) -> None:
        """Forget what came; look once more before `listen`."""
        self._bell.acquire(blocking=False)

    def listen(self, timeout_s: float) -> bool:
        """Wait until something comes; False when the time is over."""
        return self._bell.acquire(timeout=timeout_s)
