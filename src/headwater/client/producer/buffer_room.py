"""Callers that wait for room in buffer.memory, served in the order in which they came."""

from collections.abc import Callable

from headwater.client.errors import BufferExhaustedError
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.locking import Lock
from headwater.client.producer.sender_loop import Sender
from headwater.seams.clock import Clock

Wake = Callable[[], object]


class BufferRoom:
    """The free memory of one producer."""

    def __init__(self, accumulator: Accumulator, clock: Clock) -> None:
        self._accumulator = accumulator
        self._clock = clock

    def begin_wait(self, size: int, wake: Wake, lock: Lock, sender: Sender) -> None:
        """Call `wake` when there is room for `size` bytes; until then no batch lingers.

        A quarter of the buffer must be free: a producer that is faster than its broker then fills
        many batches at a time instead of one.
        """
        accumulator = self._accumulator
        need = max(size, accumulator.batch_size, accumulator.buffer_memory // 4)
        with lock:
            accumulator.starved[wake] = need
            sender.wake()
        self.wake_waiters()

    def end_wait(self, wake: Wake, waited_ms: int, sender: Sender) -> None:
        self._accumulator.starved.pop(wake, None)
        sender.metrics.room_waits.add(self._clock.monotonic_ms(), waited_ms)
        self.wake_waiters()

    def wake_waiters(self) -> None:
        """Wake the callers for whom there is room; called whenever a batch is done."""
        for wake, need in list(self._accumulator.starved.items()):
            if not self._accumulator.has_room(need):
                return
            wake()

    def exhausted(self, when: str) -> BufferExhaustedError:
        accumulator = self._accumulator
        return BufferExhaustedError(
            f"no room in the buffer {when}: {accumulator.used} of {accumulator.buffer_memory} bytes "
            f"(buffer.memory) wait to be sent. Send more slowly, raise buffer_memory, or find out "
            f"why the brokers do not accept more"
        )
