"""Callers that wait for room in buffer.memory, in the order in which they came."""

from collections.abc import Callable

from headwater.client.errors import BufferExhaustedError
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.locking import Lock
from headwater.client.producer.sender_loop import Sender
from headwater.seams.clock import Clock

RoomNotice = Callable[[], object]


class RoomWaits:
    """That part of a producer."""

    _accumulator: Accumulator
    _clock: Clock
    _lock: Lock
    _sender: Sender

    def _want_room(self, size: int, notice: RoomNotice) -> None:
        """Call `notice` when there is room for `size` bytes; until then no batch lingers.

        A quarter of the buffer must be free: a producer that outruns its broker then fills many
        batches at a time instead of one.
        """
        accumulator = self._accumulator
        need = max(size, accumulator.batch_size, accumulator.buffer_memory // 4)
        with self._lock:
            accumulator.starved[notice] = need
            self._sender.wake()
        self._room_freed()

    def _room_wait_ended(self, notice: RoomNotice, waited_ms: int) -> None:
        self._accumulator.starved.pop(notice, None)
        self._sender.metrics.room_waits.add(self._clock.monotonic_ms(), waited_ms)
        self._room_freed()

    def _room_freed(self) -> None:
        """A batch is done: tell those who wait, in the order in which they came."""
        for notice, need in list(self._accumulator.starved.items()):
            if not self._accumulator.has_room(need):
                return
            notice()

    def _no_room(self, when: str) -> BufferExhaustedError:
        accumulator = self._accumulator
        return BufferExhaustedError(
            f"no room {when}: {accumulator.used} of "
            f"the {accumulator.buffer_memory} bytes of buffer.memory wait to be sent. Send slower, "
            f"raise buffer_memory, or see why the brokers do not take more"
        )
