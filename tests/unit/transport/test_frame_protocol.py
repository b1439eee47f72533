"""The receiving end: frames by position, a buffer with one owner, bounds on what a peer can take."""

import asyncio
import functools

import pytest

from headwater.transport.frame_protocol import (
    FIRST_BUFFER,
    MAPPED_BUFFER,
    RESTING_BUFFER,
    TURN_BYTES,
    TURN_FRAMES,
)
from tests.unit.transport.peer import Peer, frame


def on_a_loop(test):
    """Run the test on an event loop: turns that are put off need one."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        async def body():
            result = test(*args, **kwargs)
            if asyncio.iscoroutine(result):
                await result

        asyncio.run(body())

    return run


async def quiet(peer: Peer) -> None:
    """Let every turn that was put off run."""
    while peer._turn_pending:  # noqa: ASYNC110 - there is nobody to set an event
        await asyncio.sleep(0)


def content(number: int, size: int = 10) -> bytes:
    return number.to_bytes(8) + b"x" * (size - 8)


@on_a_loop
def test_whole_frames_are_taken_at_once_and_halves_wait():
    peer = Peer()
    one, two = content(1), content(2, 5000)
    peer.feed(frame(one) + frame(two)[:100])
    assert peer.frames == [one]
    peer.feed(frame(two)[100:])
    assert peer.frames == [one, two]


@on_a_loop
def test_a_size_that_comes_in_pieces():
    peer = Peer()
    for byte in frame(content(1)):
        peer.feed(bytes([byte]))
    assert peer.frames == [content(1)]


@on_a_loop
def test_a_frame_larger_than_the_buffer():
    peer = Peer()
    large = content(1, 300_000)
    peer.feed(frame(content(0)) + frame(large) + frame(content(2)))
    assert peer.frames == [content(0), large, content(2)]


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, 1001, 2**31 - 1])
def test_an_impossible_size_ends_the_stream_before_anything_is_allocated(size):
    @on_a_loop
    def body():
        peer = Peer(max_frame=1000)
        peer.feed(size.to_bytes(4, signed=True))
        assert peer.refused == [size]
        assert peer.transport.aborted
        assert len(peer.buffer) == FIRST_BUFFER

    body()


@on_a_loop
def test_frames_before_an_impossible_one_are_taken_and_none_after_it():
    peer = Peer()
    peer.feed(frame(content(1)) + b"\xff\xff\xff\xff" + frame(content(2)))
    assert peer.frames == [content(1)]


@on_a_loop
def test_the_smallest_and_the_largest_frame_pass():
    peer = Peer(max_frame=1000)
    peer.feed(frame(content(1, 8)) + frame(content(2, 1000)))
    assert [len(taken) for taken in peer.frames] == [8, 1000]


@pytest.mark.parametrize("received", [0, 100, FIRST_BUFFER, 100_000, 1_000_000, 5_000_000])
def test_memory_follows_the_bytes_received_not_the_size_announced(received):
    @on_a_loop
    def body():
        peer = Peer(max_frame=100 << 20)
        peer.feed((100 << 20).to_bytes(4) + bytes(received))
        peer.get_buffer(-1)  # what the loop asks for next
        assert len(peer.buffer) <= max(FIRST_BUFFER, 16 * (received + 4))
        assert peer.frames == []

    body()


@on_a_loop
def test_the_buffer_starts_at_its_front_again_once_nobody_needs_it():
    peer = Peer()
    for number in range(2000):
        peer.feed(frame(content(number, 100)))
        peer.rewind()
    assert len(peer.buffer) == FIRST_BUFFER
    assert len(peer.frames) == 2000


@on_a_loop
def test_without_rewinding_slices_stay_good_until_before_reuse():
    peer = Peer()
    for number in range(5000):
        peer.feed(frame(content(number, 50 + number % 100)))
    assert [int.from_bytes(taken[:8]) for taken in peer.frames] == list(range(5000))
    assert len(peer.buffer) <= 512 * 1024


@pytest.mark.parametrize("reaction", ["hold", "close"])
def test_a_transport_that_asks_for_room_is_not_stopped_before_it_has_read(reaction):
    """libuv reads into the room and then calls back; a stop in between ends the process."""

    @on_a_loop
    async def body():
        peer = Peer()
        data = memoryview(frame(content(1)) * 100_000)
        peer.before_reuse = lambda: peer.held or getattr(peer, reaction)()
        while not peer.held and not peer.transport.closed:
            room = peer.get_buffer(-1)
            assert peer.transport.reading
            assert not peer.transport.closed
            size = min(len(room), 1000)
            room[:size], data = data[:size], data[size:]
            peer.buffer_updated(size)
            await asyncio.sleep(0)
        if reaction == "hold":
            assert not peer.transport.reading
            peer.release()
            assert peer.transport.reading

    body()


@on_a_loop
def test_rewinding_leaves_half_a_frame_where_it_is():
    peer = Peer()
    data = frame(content(1)) + frame(content(2, 200))
    peer.feed(data[:60])
    peer.rewind()
    peer.feed(data[60:])
    assert peer.frames == [content(1), content(2, 200)]


# -- turns


@on_a_loop
async def test_a_turn_takes_so_many_frames_and_the_rest_comes_in_the_next_ones():
    peer = Peer()
    peer.feed(b"".join(frame(content(number)) for number in range(500)))
    assert peer.turns[0] == TURN_FRAMES
    await quiet(peer)
    assert len(peer.frames) == 500
    assert max(b - a for a, b in zip([0, *peer.turns], peer.turns, strict=False)) <= TURN_FRAMES


@on_a_loop
async def test_a_turn_takes_so_many_bytes():
    peer = Peer(max_frame=4 << 20)
    large = content(0, 3 * TURN_BYTES)
    peer.feed(frame(large))  # grows the buffer
    peer.rewind()
    data = b"".join(frame(content(number, TURN_BYTES // 2)) for number in range(6))
    peer.feed(data)
    await quiet(peer)
    assert len(peer.frames) == 7


# -- holding back


@on_a_loop
async def test_a_held_peer_is_not_read_and_its_frames_wait():
    peer = Peer()
    peer.hold()
    assert not peer.transport.reading
    assert peer.feed(frame(content(1))) == 0
    peer.release()
    assert peer.transport.reading
    peer.feed(frame(content(1)))
    await quiet(peer)
    assert peer.frames == [content(1)]


@on_a_loop
async def test_a_hold_in_the_middle_of_a_turn_keeps_the_next_frames():
    peer = Peer()
    take = peer.on_frame

    def hold_after_first(peer: Peer, start: int, end: int) -> None:
        take(peer, start, end)
        if len(peer.frames) == 1:
            peer.hold()

    peer.on_frame = hold_after_first
    peer.feed(frame(content(1)) + frame(content(2)) + frame(content(3)))
    assert peer.frames == [content(1)]
    peer.release()
    await quiet(peer)
    assert peer.frames == [content(1), content(2), content(3)]


@on_a_loop
async def test_holds_add_up():
    peer = Peer()
    peer.hold()
    peer.pause_writing()
    peer.release()
    assert peer.held
    assert not peer.transport.reading
    peer.resume_writing()
    assert not peer.held
    assert peer.transport.reading


@on_a_loop
async def test_a_closed_peer_takes_no_more():
    peer = Peer()
    peer.feed(b"".join(frame(content(number)) for number in range(TURN_FRAMES * 2)))
    peer.close()
    await quiet(peer)
    assert len(peer.frames) == TURN_FRAMES
    peer.hold()
    peer.release()
    await quiet(peer)
    assert len(peer.frames) == TURN_FRAMES


# -- large frames


class Copying(Peer):
    """Counts the bytes that are copied when the buffer grows."""

    def __init__(self) -> None:
        super().__init__(max_frame=1 << 25)
        self.copied: list[int] = []

    def _replace(self, capacity: int) -> None:
        self.copied.append(self.waiting_bytes)
        super()._replace(capacity)


@on_a_loop
def test_a_large_frame_is_not_copied_while_it_is_received():
    peer = Copying()
    large = content(1, 24 << 20)
    peer.feed(frame(content(0)) + frame(large) + frame(content(2)))
    assert peer.frames == [content(0), large, content(2)]
    assert len(peer.buffer) > len(large)
    assert max(peer.copied) <= MAPPED_BUFFER


@on_a_loop
def test_the_second_of_two_large_frames_is_not_copied_either():
    peer = Copying()
    peer.feed(frame(content(0, 4 << 20)))
    peer.copied.clear()
    larger = content(2, 9 << 20)
    peer.feed(frame(content(1)) + frame(larger))
    assert peer.frames[1:] == [content(1), larger]
    assert not peer.copied


@on_a_loop
def test_a_large_buffer_that_a_request_keeps_is_copied_instead_of_moved():
    peer = Copying()
    large, larger = content(0, 4 << 20), content(1, 9 << 20)
    peer.feed(frame(large))
    kept = peer.view[4 : 4 + len(large)]
    peer.feed(frame(larger)[: 5 << 20])  # fills the buffer, which has to grow
    peer.feed(frame(larger)[5 << 20 :])
    assert peer.frames == [large, larger]
    assert kept.nbytes == len(large)
    assert peer.copied


@on_a_loop
def test_the_memory_budget_knows_the_size_of_a_large_buffer():
    peer = Copying()
    whole = frame(content(0, 20 << 20))
    step = 300_000
    for at in range(0, len(whole), step):
        peer.feed(whole[at : at + step])
        assert peer.memory.used >= len(peer.buffer) - FIRST_BUFFER
        assert peer.memory.used <= 2 * (at + step) + MAPPED_BUFFER
    assert peer.memory.used == len(peer.buffer) - FIRST_BUFFER
    peer.shrink()
    assert peer.memory.used == 0


# -- giving memory back


@on_a_loop
def test_a_grown_buffer_is_given_back_while_nothing_is_in_it():
    peer = Peer()
    peer.feed(frame(content(1, 500_000)))
    assert len(peer.buffer) > RESTING_BUFFER
    peer.shrink()
    assert len(peer.buffer) == FIRST_BUFFER
    peer.feed(frame(content(2)))
    assert peer.frames[-1] == content(2)


@on_a_loop
def test_a_buffer_with_half_a_frame_is_kept():
    peer = Peer()
    large = frame(content(1, 500_000))
    peer.feed(large[:400_000])
    peer.shrink()
    peer.feed(large[400_000:])
    assert peer.frames == [content(1, 500_000)]
