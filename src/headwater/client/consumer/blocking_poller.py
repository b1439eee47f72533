"""Runs the calls of the blocking consumer on the clients' loop thread, one thread at a time.

Records that have arrived are taken in the caller's own thread, without the loop. Ctrl-C may
interrupt between any two statements; `handover` then keeps what the caller did not get.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headwater.client.blocking import LoopThread, forked_error, register, unregister
from headwater.client.consumer.consumer_core import ConsumerCore
from headwater.client.consumer.listener import ListenerCall
from headwater.client.consumer.record import ConsumerRecord
from headwater.client.errors import ConcurrentUseError, IllegalStateError, LoopDiedError
from headwater.client.unclosed import end_when_dropped

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON_MS = 20
"""How long a poll waits for the next fetch response before it does other work."""
_THREAD = "thread"


class BlockingPoller:
    """Runs the core of one consumer for `owner`, the face that the application holds."""

    def __init__(self, owner: object, core: ConsumerCore) -> None:
        self._core = core
        self._forked = False
        self._claim: dict[str, int] = {}
        """The thread that is using the consumer."""
        self._listening = False
        """Whether that thread is inside the rebalance listener."""
        self._flowing = False
        """Whether the last poll found records."""
        self._finalizer: weakref.finalize[..., Any] | None = None  # a fork may come before it
        self.thread: LoopThread = register(self)
        self.thread.call(_on_loop(core.start))
        self._finalizer = end_when_dropped(owner, "Consumer", self.thread.loop, core.abandon)

    def start(self) -> None:
        """Do nothing: it started when it was created."""

    # -- calls

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call of the core."""
        self._core.check_usable()
        outermost = self._enter()
        try:
            if outermost:
                self._core.handover.check()
            return self.thread.call(work())
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # without the frames of this package
        finally:
            if outermost:
                self._leave()

    def run_now(self, work: Callable[[], T]) -> T:
        """Run a call of the core that does not wait."""
        return self.run(lambda: _on_loop(work))

    def _enter(self) -> bool:
        """Claim the consumer for this thread; False inside a listener, which may use it too.

        The claim is one atomic step; a claim left by an interruption belongs to this thread.
        """
        here = threading.get_ident()
        if self._claim.setdefault(_THREAD, here) != here:
            raise ConcurrentUseError(
                "another thread uses this consumer at the moment: give each thread its own, or "
                "let one thread poll and hand the records over"
            )
        return not self._listening

    def _leave(self) -> None:
        self._listening = self._core.polling = False
        self._claim.clear()

    # -- polling

    def poll(self, take: Callable[[], T], timeout_s: float | None) -> T | None:
        """Wait until `take` returns something or the time is over.

        The caller sets `handover.open` to False right before it returns the records.
        """
        if not self._enter():
            raise IllegalStateError(
                "poll() inside a rebalance listener: let the poll() that called it return first"
            )
        try:
            self._core.handover.begin()
            self._core.polling = True
            return self._find(take, timeout_s)
        except BaseException as problem:
            self._core.handover.check()
            if type(problem) is KeyboardInterrupt:
                raise KeyboardInterrupt from None  # without the frames of this package
            raise
        finally:
            self._leave()

    def _find(self, take: Callable[[], T], timeout_s: float | None) -> T | None:
        core = self._core
        if found := self._take_if_nothing_due(take):
            return found
        deadline = core.deadline(timeout_s)
        if self._flowing and (found := self._wait_briefly(take, deadline)):
            return found
        core.check_usable()
        self._flowing = False
        while True:
            core.poll_wakeup.clear()
            call, limit_ms = self.thread.call(core.run_due_work(deadline))
            if call is not None:
                self._call_listener(call)
                continue
            if (found := self._take(take)) or not limit_ms:
                return found
            if core.poll_wakeup.wait_in_thread(limit_ms / 1000) and (
                found := self._take_if_nothing_due(take)
            ):
                return found

    def _wait_briefly(self, take: Callable[[], T], deadline_ms: int) -> T | None:
        """Wait briefly after a poll that found records: the next ones are probably in flight."""
        wakeup = self._core.poll_wakeup
        wakeup.clear()
        if found := self._take_if_nothing_due(take):
            return found
        soon_ms = min(_SOON_MS, self._core.left_ms(deadline_ms))
        return self._take_if_nothing_due(take) if wakeup.wait_in_thread(soon_ms / 1000) else None

    def _take_if_nothing_due(self, take: Callable[[], T]) -> T | None:
        return self._take(take) if self._core.nothing_due else None

    def _take(self, take: Callable[[], T]) -> T | None:
        if not (found := take()):
            return None
        if self._core.fetching_stalled:
            self.thread.post(self._core.resume_fetching)
        self._flowing = True
        return found

    def next_record(self) -> ConsumerRecord[Any, Any]:
        """Return the next record; the caller sets `handover.open` to False before it returns it."""
        while True:
            records = self.poll(self._core.ready.take_record, None)
            if records:
                return records[0]

    # -- the listener

    def _call_listener(self, call: ListenerCall) -> None:
        """Call the listener; the next poll repeats a call that Ctrl-C interrupted."""
        self._listening = True
        self._core.polling = False
        try:
            if self._core.listener is not None:
                call.invoke(self._core.listener)
        except Exception:
            self.thread.call(_on_loop(lambda: self._core.listener_called(call)))
            raise
        finally:
            self._listening = False
            self._core.polling = True
        self.thread.call(_on_loop(lambda: self._core.listener_called(call)))

    def call_leaving_listener(self) -> None:
        """Call the listener for all partitions, before the consumer leaves its group."""
        call = self._core.leaving_call()
        if call is None or self._core.listener is None:
            return
        try:
            call.invoke(self._core.listener)
        except Exception:
            log.exception("the rebalance listener raised; the consumer leaves its group anyway")

    # -- the end

    def wakeup(self) -> None:
        """End a waiting poll. Safe from any thread."""
        self._core.request_wakeup()
        self.thread.post(self._core.wake_poll)

    def close(self, timeout: float | None = None) -> None:
        self._core.handover.check()
        self.call_leaving_listener()
        unregister(self)
        if self._forked:
            return  # the loop, the connections and the membership belong to the parent
        try:
            self.thread.call(self._core.close(timeout))
        except LoopDiedError:
            self._detach()  # the connections ended with the loop
            raise
        self._detach()

    def forked(self) -> None:
        """In a child process: let every call fail with ForkedError."""
        self._claim, self._listening, self._forked = {}, False, True
        self._core.make_unusable(forked_error("Consumer"))
        self._detach()

    def _detach(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()


async def _on_loop(work: Callable[[], T]) -> T:
    return work()
