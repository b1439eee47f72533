"""The producer's lock, which knows its owner: a signal handler may run while it is held.

Take it by `with lock`, or in half the time by a call of `acquire` inside a `try` whose `finally`
releases it: between a call of `acquire` and a `try`, Ctrl-C could leave it locked forever. If
Ctrl-C ends the wait of `acquire`, there is nothing to release, and `release` raises RuntimeError.
"""

import threading
from typing import Any, Protocol, cast


class Lock(Protocol):
    """threading.RLock, as far as the producer uses it."""

    def __enter__(self) -> bool: ...

    def __exit__(self, *error: Any) -> None: ...

    def acquire(self) -> bool:
        """Wait for the lock and take it."""

    def release(self) -> None:
        """Release the lock; RuntimeError if the calling thread does not hold it."""

    def _is_owned(self) -> bool:
        """Whether the calling thread holds the lock."""


def new_lock() -> Lock:
    """Return a new lock. One thread never takes it twice: callers check and raise `interrupted`."""
    return cast(Lock, threading.RLock())


def interrupted(what: str) -> RuntimeError:
    """Return the error for a signal handler that calls a producer whose lock it interrupted."""
    return RuntimeError(
        f"{what} was called by a signal handler that interrupted send() or flush() of the same "
        f"producer, which must go on first: set a flag in the handler and act on it outside"
    )
