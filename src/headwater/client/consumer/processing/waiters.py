"""How `process` runs its workers: as threads for the blocking consumer, as tasks for asyncio.

`Processing` is written once, as coroutines over a `ProcessWaiter`. The coroutines of `BlockingWaiter` block
their thread and never suspend, so `run_blocking` runs them like plain functions.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headwater.client.consumer.record import ConsumerRecord

if TYPE_CHECKING:
    from headwater.client.consumer.blocking import Consumer
    from headwater.client.consumer.consumer import Consumer as AsyncConsumer
    from headwater.client.consumer.processing.process import Processing

T = TypeVar("T")
Work = Callable[[Any], object]
AsyncWork = Callable[[Any], Awaitable[object]]
Job = Callable[[], Coroutine[Any, Any, None]]

_LAST_COMMIT_S = 5.0
"""How long a cancelled `process` may take to commit what is finished."""


class ProcessWaiter(Protocol):
    """The part of a face that `Processing` needs."""

    @property
    def consumer(self) -> Any:
        """The consumer that polls; `call` awaits its methods where they are coroutines."""

    @property
    def producer_class(self) -> Any:
        """The producer of the same face."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Guards the lanes, which workers share."""

    def notify(self) -> None:
        """Let every `wait_for` check its condition again."""

    async def wait_for(self, ready: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until `ready`, which runs under the lock, or until the time is over."""

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a method of a client or a listener and wait for its result."""

    async def work(self, record: ConsumerRecord[Any, Any]) -> TypeError | None:
        """Call the application's function; return an error if it is of the wrong kind."""

    async def run_workers(
        self, worker: Job, count: int, feed: Job, stop: Callable[[], None]
    ) -> None:
        """Run `count` workers and `feed`; when `feed` ends, `stop` the workers and wait."""

    def contains(self, problem: BaseException) -> bool:
        """Whether a worker reports `problem` as a failure instead of passing it on."""

    async def finish_cancelled(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the last steps of a `process` that is being cancelled."""

    def start(self, work: Coroutine[Any, Any, None]) -> Awaitable[None] | None:
        """Run `work` inside a call of the rebalance listener."""


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    work.close()
    raise RuntimeError("a coroutine of a blocking client waited for an event loop")


class BlockingWaiter:
    """Workers are threads."""

    def __init__(self, consumer: "Consumer[Any, Any]", work: Work) -> None:
        given: object = work
        if not callable(given) or inspect.iscoroutinefunction(work):
            raise _not_a_function(work)
        self.consumer = consumer
        self._work = work
        self._changed = threading.Condition()
        self.lock: AbstractContextManager[object] = self._changed

    def run(self, processing: "Processing") -> int:
        return run_blocking(processing.run())

    @property
    def producer_class(self) -> Any:
        from headwater.client.producer.blocking import Producer

        return Producer

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    async def wait_for(self, ready: Callable[[], bool], timeout_s: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(ready, timeout_s)

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return function(*args, **options)

    async def work(self, record: ConsumerRecord[Any, Any]) -> TypeError | None:
        result = self._work(record)
        if not inspect.iscoroutine(result):
            return None
        result.close()
        return _not_a_function(self._work)

    async def run_workers(
        self, worker: Job, count: int, feed: Job, stop: Callable[[], None]
    ) -> None:
        threads = [
            threading.Thread(
                target=lambda: run_blocking(worker()),
                name=f"headwater-worker-{number}",
                daemon=True,
            )
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            await feed()
        finally:
            stop()
            for thread in threads:
                thread.join()

    def contains(self, problem: BaseException) -> bool:
        return True  # raised in a worker thread, it would end only that thread

    async def finish_cancelled(self, work: Coroutine[Any, Any, None]) -> None:
        await work

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        run_blocking(work)


class AsyncWaiter:
    """Workers are tasks."""

    def __init__(self, consumer: "AsyncConsumer[Any, Any]", work: AsyncWork) -> None:
        given: object = work
        if not callable(given):  # the first record shows whether its result can be awaited
            raise _not_a_coroutine_function(work)
        self.consumer = consumer
        self._work = work
        self._changed = asyncio.Event()
        self.lock: AbstractContextManager[object] = contextlib.nullcontext()

    async def run(self, processing: "Processing") -> int:
        return await processing.run()

    @property
    def producer_class(self) -> Any:
        from headwater.client.producer.producer import Producer

        return Producer

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for(self, ready: Callable[[], bool], timeout_s: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not ready():
                    await self._changed.wait()

    async def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return await result if inspect.isawaitable(result) else result

    async def work(self, record: ConsumerRecord[Any, Any]) -> TypeError | None:
        result: object = self._work(record)
        if not inspect.isawaitable(result):
            return _not_a_coroutine_function(self._work)
        await result
        return None

    async def run_workers(
        self, worker: Job, count: int, feed: Job, stop: Callable[[], None]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(worker())
            try:
                await feed()
            finally:
                stop()

    def contains(self, problem: BaseException) -> bool:
        if not isinstance(problem, Exception | asyncio.CancelledError):
            return False
        task = asyncio.current_task()  # cancelled itself, or something that it awaited?
        return task is None or not task.cancelling()

    async def finish_cancelled(self, work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_COMMIT_S):
                await work

    def start(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        return work


def _not_a_function(work: object) -> TypeError:
    return TypeError(
        f"process() runs its work in threads and needs a function, not {work!r}: make it a plain def, "
        "or use headwater.aio.Consumer for an async def"
    )


def _not_a_coroutine_function(work: object) -> TypeError:
    return TypeError(
        f"process() of headwater.aio awaits its work and needs a coroutine function, not {work!r}: "
        "make it an async def, or use headwater.Consumer for a plain def"
    )
