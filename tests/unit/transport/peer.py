"""A receiving end without sockets: bytes go in by the piece, frames come out."""

import asyncio
from typing import Any

from headwater.transport.frame_protocol import FrameProtocol


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.closed = False
        self.aborted = False
        self.written: list[bytes] = []

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))


class Peer(FrameProtocol):
    """Keeps what it was told, and slices of the buffer until it must let go of them."""

    def __init__(self, max_frame: int = 1 << 20) -> None:
        super().__init__(max_frame, Peer.take)
        self.frames: list[bytes] = []
        self.turns: list[int] = []
        self.refused: list[int] = []
        self.slices: list[tuple[memoryview, bytes]] = []
        self.connection_made(FakeTransport())

    def take(self, start: int, end: int) -> None:
        piece = self.view[start:end]
        self.frames.append(bytes(piece))
        self.slices.append((piece, bytes(piece)))

    def turn_ended(self) -> None:
        self.turns.append(self.frames_read)

    def before_reuse(self) -> None:
        self.check_slices()
        self.slices.clear()

    def rewind(self) -> None:
        """The owner says that nobody holds a slice any more."""
        self.check_slices()
        self.slices.clear()
        super().rewind()

    def frame_refused(self, size: int) -> bytes:
        self.refused.append(size)
        return b""

    def check_slices(self) -> None:
        """No byte of a frame may change before `before_reuse`."""
        for piece, content in self.slices:
            assert bytes(piece) == content, "a slice was overwritten while it was in use"

    def feed(self, data: bytes) -> int:
        """Receive as a loop does: as much as fits, while reading is on; the bytes taken."""
        taken = 0
        while taken < len(data) and self.transport.reading and not self.transport.is_closing():
            room = self.get_buffer(-1)
            assert len(room) > 0
            piece = data[taken : taken + len(room)]
            room[: len(piece)] = piece
            self.buffer_updated(len(piece))
            del room  # as streams do before they ask again
            taken += len(piece)
        return taken


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4) + content
