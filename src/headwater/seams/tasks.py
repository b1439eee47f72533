"""Background work: named tasks whose death is reported, and calls that leave the loop thread."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from headwater.seams.files import run_side_by_side

T = TypeVar("T")
log = logging.getLogger(__name__)


class Tasks(Protocol):
    """Work beside the request path."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run a coroutine; if it dies, that is logged with its name, never silent."""

    def in_thread(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run a blocking call (fsync, unlink, recompression) off the loop thread."""

    def run_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run blocking calls and return when all are done; only where the loop has nothing to do."""

    def close(self) -> None:
        """Wait for the calls under way and give the threads back."""


class LoopTasks:
    """Tasks on the running asyncio loop, blocking calls on a small pool of threads."""

    def __init__(self, threads: int = 2) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start and keep a reference until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def in_thread(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Hand over to the pool."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="headwater-files")
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def run_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Side by side: a disk takes many flushes at once about as quickly as one."""
        run_side_by_side(calls)

    def close(self) -> None:
        """End the pool."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            log.error("background task %s died", task.get_name(), exc_info=failure)
