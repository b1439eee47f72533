"""Background work: named tasks whose failure is logged, and blocking calls on threads.

Each kind of call has a lane with its own threads, so that a queue of slow calls (a codec) never
delays others (a flush that a client waits for).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, Protocol, TypeVar

from headwater.seams.files import run_side_by_side

T = TypeVar("T")
log = logging.getLogger(__name__)


class Lane(Enum):
    """The kind of a blocking call; each kind has its own threads."""

    JOURNAL = "journal"
    """Changes of metadata."""
    FLUSH = "flush"
    """Flushes, including those that acknowledgments wait for."""
    READ = "read"
    """Reads for fetches of data that is not in the page cache."""
    CODEC = "codec"
    """Recompression and checks of large batches; a stop drops queued ones."""
    FILES = "files"
    """Truncations, renames of folders, checkpoints."""
    CLEANING = "cleaning"
    """Waiting for cleaning workers; a stop ends the workers first."""
    REMOVAL = "removal"
    """Removal of the files of deleted partitions; no request waits for it."""
    KEYS = "keys"
    """Fetches of the keys of identity providers; a stop waits for none."""
    HANDSHAKE = "handshake"
    """Steps of the handshakes of TLS; a stop waits for none."""


class Tasks(Protocol):
    """Work outside of the request path."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run a coroutine; if it raises, the error is logged with its name."""

    def in_thread(self, call: Callable[[], T], lane: Lane = Lane.FILES) -> "asyncio.Future[T]":
        """Run a blocking call (fsync, unlink, recompression) off the loop thread."""

    def run_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run blocking calls and return when all are done; only while the loop may block."""

    def close(self) -> None:
        """Wait for the calls that write to the disk, and end the threads.

        Calls for clients (codec, read, keys, handshake) that have not begun are cancelled: none is
        left.
        """


MOST_CLEANED_AT_ONCE = 32
_DROPPED = (Lane.CODEC, Lane.READ, Lane.KEYS, Lane.HANDSHAKE)


def _threads(lane: Lane) -> int:
    match lane:
        case Lane.JOURNAL | Lane.REMOVAL:
            return 1
        case Lane.CODEC:
            return min(8, max(2, len(os.sched_getaffinity(0))))
        case Lane.HANDSHAKE:
            return min(4, max(1, len(os.sched_getaffinity(0)) - 1))
        case Lane.FLUSH | Lane.READ:
            return 4
        case Lane.FILES | Lane.KEYS:
            return 2
        case Lane.CLEANING:
            return MOST_CLEANED_AT_ONCE


class LoopTasks:
    """Tasks on the running asyncio loop, blocking calls on a few threads for each lane."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._pools: dict[Lane, ThreadPoolExecutor] = {}

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start the coroutine and keep a reference until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def in_thread(self, call: Callable[[], T], lane: Lane = Lane.FILES) -> "asyncio.Future[T]":
        """Run the call on one of the lane's threads."""
        pool = self._pools.get(lane)
        if pool is None:
            name = f"headwater-{lane.value}"
            pool = self._pools[lane] = ThreadPoolExecutor(_threads(lane), thread_name_prefix=name)
        return asyncio.get_running_loop().run_in_executor(pool, call)

    def run_all(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run the calls in parallel: many flushes take a disk about as long as one."""
        run_side_by_side(calls)

    def close(self) -> None:
        """End the pools."""
        for lane in _DROPPED:
            if lane in self._pools:
                self._pools.pop(lane).shutdown(wait=False, cancel_futures=True)
        for pool in self._pools.values():
            pool.shutdown(wait=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            log.error("background task %s died", task.get_name(), exc_info=failure)
