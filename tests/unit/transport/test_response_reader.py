"""Frames of the client end: whole, in order, however the bytes come."""

import pytest

from headwater.transport.response_reader import INBOX, TRUSTED, ResponseReader
from headwater.wire.primitives import WireError


def feed(replies, data, piece):
    frames = []
    while data:
        room = replies.room()
        size = min(piece, len(room), len(data))
        room[:size] = data[:size]
        frames += replies.received(size)
        data = data[size:]
    return frames


def framed(*bodies):
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


BODIES = [b"", b"a", bytes(range(256)) * 100, b"z" * (INBOX + 5), b"y" * (3 * INBOX), b"end"]


@pytest.mark.parametrize("piece", [1, 7, 4096, INBOX, 10**7])
def test_frames_come_out_as_they_went_in(piece) -> None:
    bodies = BODIES if piece > 1 else BODIES[:3]
    assert [bytes(frame) for frame in feed(ResponseReader(), framed(*bodies), piece)] == bodies


def test_a_frame_in_use_is_not_overwritten_by_the_next() -> None:
    replies, bodies = ResponseReader(), [bytes([n]) * (2 * INBOX) for n in range(20)]
    frames = [frame for body in bodies for frame in feed(replies, framed(body), 10**6)]
    assert [bytes(frame) for frame in frames] == bodies


def test_memory_of_a_frame_that_was_let_go_serves_again() -> None:
    replies = ResponseReader()
    for number in range(50):
        (frame,) = feed(replies, framed(bytes([number]) * (2 * INBOX)), 10**6)
        assert frame[0] == frame[-1] == number
        del frame
    assert len(replies._spares) == 1


def test_a_frame_larger_than_trusted_grows_with_what_comes() -> None:
    replies, body = ResponseReader(), b"x" * (TRUSTED + INBOX)
    assert feed(replies, framed(body)[: INBOX + 1], 10**6) == []
    assert len(replies._large) == TRUSTED
    assert bytes(feed(ResponseReader(), framed(body), 10**6)[0]) == body


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_impossible_sizes_are_refused(size) -> None:
    replies = ResponseReader()
    room = replies.room()
    room[:4] = size.to_bytes(4, signed=True)
    with pytest.raises(WireError, match="is the most"):
        replies.received(4)
