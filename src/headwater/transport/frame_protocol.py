"""The server end of one stream: bytes in, whole frames out, in order and within bounds.

A frame is passed on as positions in the receive buffer, so that a produce request can be written to
the disk from the bytes the kernel put there. This object owns the buffer; slices of it are valid
until `before_reuse` returns. Memory grows with the bytes received, never with the length a peer
claims. A frame for which the memory budget has no room waits (`transport/memory.py`).
"""

import asyncio
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Any, cast

from headwater.transport.memory import MemoryBudget

FIRST_BUFFER = 16 * 1024
RESTING_BUFFER = 64 * 1024
ROOMY_BUFFER = 256 * 1024
"""The largest buffer of a peer that keeps filling its buffer."""
GROWTH_STEP = 1024 * 1024
MAPPED_BUFFER = GROWTH_STEP + 4096
"""Larger buffers are mapped, so that they grow without a copy: the kernel moves their pages."""
TRUST = 15
"""The buffer grows to at most this many times the bytes received of an announced frame."""
TURN_FRAMES = 64
TURN_BYTES = 1024 * 1024
SMALLEST_FRAME = 8
"""The size of a request without content; tokens of SASL may be smaller."""
UNLIMITED = 1 << 62

_read_size = Struct(">i").unpack_from


class FrameProtocol(asyncio.BufferedProtocol):
    """Receives frames, and limits the share of a tick that one peer gets."""

    # Python stops optimizing attributes of an object that has more than thirty of them in a dict.
    __slots__ = (
        "_counted",
        "_end",
        "_holds",
        "_start",
        "_turn_pending",
        "buffer",
        "bytes_in",
        "bytes_out",
        "frames_read",
        "in_turn",
        "lending",
        "max_frame",
        "memory",
        "min_frame",
        "on_frame",
        "transport",
        "view",
    )

    def __init__(
        self,
        max_frame: int,
        on_frame: Callable[[Any, int, int], None],
        memory: MemoryBudget | None = None,
    ) -> None:
        self.max_frame = max_frame
        self.min_frame = SMALLEST_FRAME
        self.memory = memory or MemoryBudget(UNLIMITED)
        self.on_frame = on_frame
        """Called with each whole frame: `buffer[start:end]`, valid until `before_reuse`."""
        self.buffer: bytearray | mmap = bytearray(FIRST_BUFFER)
        self.view = memoryview(self.buffer)
        self.transport: asyncio.Transport | None = None
        self.frames_read = 0
        # Bytes of frames passed on, and of responses; updated when the buffer is rewound or sent.
        self.bytes_in = 0
        self.bytes_out = 0
        # Whether frames are being passed on: responses that are ready are sent at the turn's end.
        self.in_turn = False
        self._start = 0
        self._end = 0
        # What the memory budget counts: the size that the buffer has, or is about to get.
        self._counted = FIRST_BUFFER
        self._holds = 0
        # Whether the transport is inside `get_buffer`: until it has read, it must not be paused,
        # closed or written to.
        self.lending = False
        self._turn_pending = False

    # -- for subclasses

    def turn_ended(self) -> None:
        """Send the responses that are ready: all frames of this turn were passed on."""

    def before_reuse(self) -> None:
        """Release every slice: the buffer is about to be overwritten."""

    def frame_refused(self, size: int) -> bytes:
        """The peer announced a frame of an impossible size; the stream is closed after this.

        Return what to send before.
        """
        return b""

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for the next bytes."""
        end = self._end
        if not end:
            return self.view
        if end == len(self.buffer):
            self.lending = True
            try:
                self._make_room()
            finally:
                self.lending = False
        return self.view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the frames that are complete."""
        self._end += nbytes
        if not self._holds:
            self._run_turn()
            if self._end == len(self.buffer) and not self._holds:
                self._ask_for_room()
        else:
            self._pause_if_held()  # the hold may have come while room was made

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the memory of the connection."""
        self.memory.leave(self)

    def pause_writing(self) -> None:
        """Stop passing on frames: the peer reads its answers too slowly."""
        self.hold()

    def resume_writing(self) -> None:
        """Pass on frames again: the peer has caught up."""
        self.release()

    # -- back-pressure

    def hold(self) -> None:
        """Pass on no further frames until `release`; each hold needs its own release."""
        self._holds += 1
        if self._holds == 1 and self.transport is not None:
            if self.lending:
                asyncio.get_running_loop().call_soon(self._pause_if_held)
            else:
                self.transport.pause_reading()

    def _pause_if_held(self) -> None:
        if self._holds and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def release(self) -> None:
        """Undo one `hold`."""
        self._holds -= 1
        if self._holds == 0 and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
            self._schedule_turn()

    @property
    def held(self) -> bool:
        """Whether frames wait."""
        return self._holds > 0

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes were received and not passed on."""
        return self._end - self._start

    def put_back(self, start: int) -> None:
        """Hold, and pass on the frame at `start` again after `release`; only for `on_frame`."""
        self._start = start - 4
        self.frames_read -= 1
        self.hold()
        self.turn_ended()

    def give_up_buffer(self) -> int:
        """Receive into a new buffer, so that slices of this one stay valid; return its size.

        The turn that passed on the current frame ends.
        """
        size = len(self.buffer)
        self._replace(FIRST_BUFFER)
        self.turn_ended()
        self.in_turn = False
        self._schedule_turn()
        return size

    def rewind(self) -> None:
        """Reuse the buffer from its start if every frame was passed on; no slice may be in use."""
        if self._start == self._end:
            self.bytes_in += self._end
            self._start = self._end = 0

    def shrink(self) -> None:
        """Replace a large buffer by a small one while it is empty."""
        if len(self.buffer) > RESTING_BUFFER and self._start == self._end:
            self.before_reuse()
            self._replace(FIRST_BUFFER)

    def close(self) -> None:
        """Close the stream after the written bytes are sent."""
        if self.lending:
            asyncio.get_running_loop().call_soon(self.close)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    def abort(self) -> None:
        """Abort the stream: the peer broke the protocol."""
        if self.transport is not None:
            self._start = self._end = -1
            self.transport.abort()

    # -- memory

    def missing(self) -> int:
        """Return the number of missing bytes of the unfinished frame."""
        rest = self._end - self._start
        return 4 + _read_size(self.buffer, self._start)[0] - rest if rest >= 4 else 4 - rest

    def progress(self) -> int | None:
        """Return about how many bytes were received; None while this end does not read."""
        if self._holds or self._end == self._start:
            return None
        return self.received()

    def received(self) -> int:
        """Return a number that grows with each byte received."""
        return self.frames_read * RESTING_BUFFER + self._end - self._start

    def memory_granted(self) -> None:
        """Continue with the frame that waited for memory."""
        self._make_room()
        self.release()

    def _ask_for_room(self) -> None:
        """Ask for the memory that the unfinished frame needs; stop reading until it is granted."""
        rest, capacity = self._end - self._start, len(self.buffer)
        if rest == 0 or self._fits_otherwise(rest, capacity):
            return
        larger = self._larger(rest, capacity)
        if larger <= RESTING_BUFFER:
            return
        if not self.memory.ask(self, larger - capacity):
            self.hold()
        elif isinstance(self.buffer, mmap):
            self._count(larger)  # it grows in `get_buffer`, when the stream has let go of it
        else:
            self._make_room()

    def _count(self, size: int) -> None:
        self.memory.charge(self, size - self._counted)
        self._counted = size

    def _fits_otherwise(self, rest: int, capacity: int) -> bool:
        """Return whether a rewind makes enough room, or the buffer may grow for a busy peer."""
        if not self._start:
            return False
        return rest <= capacity // 2 or (capacity < ROOMY_BUFFER and not self.memory.tight)

    # -- turns and buffers

    def _run_turn(self) -> None:
        """Pass on whole frames, up to the limits of a turn. The caller has checked for holds."""
        buffer = self.buffer
        start, end = self._start, self._end
        last_frame, last_start = self.frames_read + TURN_FRAMES, start + TURN_BYTES
        self.in_turn = True
        try:
            while end - start >= 4:
                size = _read_size(buffer, start)[0]
                if size < self.min_frame or size > self.max_frame:
                    self._refuse(size)
                    return
                frame_end = start + 4 + size
                if frame_end > end:
                    break
                self.frames_read += 1
                self._start = frame_end
                self.on_frame(self, start + 4, frame_end)
                if self._start != frame_end:
                    return
                start = frame_end
                if start == end or self._holds:
                    break
                if self.frames_read == last_frame or start > last_start:
                    self._schedule_turn()
                    break
            self.turn_ended()
        finally:
            self.in_turn = False

    def _schedule_turn(self) -> None:
        if not self._turn_pending:
            self._turn_pending = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_pending = False
        if not self._holds and self.transport is not None and not self.transport.is_closing():
            self._run_turn()
            if self._end == len(self.buffer) and not self._holds:
                self._ask_for_room()

    def _make_room(self) -> None:
        rest, capacity = self._end - self._start, len(self.buffer)
        if self._start and capacity < ROOMY_BUFFER and not self.memory.tight:
            # Slices of the old buffer stay valid, so the tick need not end.
            self._replace(2 * capacity)
            return
        self.before_reuse()
        if rest == 0:
            self.bytes_in += self._end
            self._start = self._end = 0
        elif self._start and rest <= capacity // 2:
            self.bytes_in += self._start
            self.view[:rest] = self.view[self._start : self._end]
            self._start, self._end = 0, rest
        else:
            self._grow(self._larger(rest, capacity))

    def _larger(self, rest: int, capacity: int) -> int:
        wanted = 4 + _read_size(self.buffer, self._start)[0] if rest >= 4 else 0
        if wanted <= capacity:
            return capacity * 2 if rest == capacity else capacity
        trusted = max(min(TRUST * rest, MAPPED_BUFFER), 2 * rest, RESTING_BUFFER)
        return min(max(wanted, RESTING_BUFFER), trusted)

    def _grow(self, capacity: int) -> None:
        """Make room for `capacity` bytes from the unfinished frame on."""
        buffer = self.buffer
        if isinstance(buffer, mmap):
            try:
                self.view.release()
                buffer.resize(self._start + capacity)
            except (BufferError, OSError):  # a request keeps slices, or the kernel has no room
                self.view = memoryview(buffer)
            else:
                self.view = memoryview(buffer)
                self._count(len(buffer))
                return
        self._replace(capacity)

    def _replace(self, capacity: int) -> None:
        """Switch to a new buffer: the old one lives as long as slices of it do."""
        rest = self._end - self._start
        fresh = _new_buffer(max(capacity, rest + 4096))
        view = memoryview(fresh)
        view[:rest] = self.view[self._start : self._end]
        self._count(len(fresh))
        self.bytes_in += self._start
        self.buffer, self.view = fresh, view
        self._start, self._end = 0, rest

    def _refuse(self, size: int) -> None:
        farewell = self.frame_refused(size)
        if farewell and self.transport is not None:
            self.hold()
            self.transport.write(farewell)
            self.transport.close()
        else:
            self.abort()


def _new_buffer(size: int) -> bytearray | mmap:
    if size > MAPPED_BUFFER:
        return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    return bytearray(size)


def starts_with(buffer: bytearray | mmap, prefix: bytes, at: int) -> bool:
    """Return whether the bytes at a position of a receive buffer are `prefix`."""
    return buffer.find(prefix, at, at + len(prefix)) == at
