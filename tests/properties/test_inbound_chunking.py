"""However a stream is cut into pieces, and whenever its owner rewinds, the frames are the same."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transport.peer import Peer, frame

SIZES = st.one_of(
    st.integers(8, 40),
    st.integers(8, 3000),
    st.sampled_from([16_379, 16_380, 16_381, 65_536, 262_140]),
)
PIECES = st.lists(
    st.one_of(st.integers(1, 5), st.integers(100, 5000), st.just(65_536), st.just(10**6)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=25),
    pieces=PIECES,
    habits=st.lists(st.sampled_from(["", "rewind", "hold", "shrink"]), min_size=1, max_size=7),
)
def test_any_chunking_gives_the_same_frames(sizes, pieces, habits):
    wanted = [number.to_bytes(8) + bytes(size - 8) for number, size in enumerate(sizes)]
    stream = b"".join(map(frame, wanted))

    async def receive() -> Peer:
        peer, at, step = Peer(max_frame=1 << 20), 0, 0
        while at < len(stream) or peer._turn_pending:
            at += peer.feed(stream[at : at + pieces[step % len(pieces)]])
            match habits[step % len(habits)]:
                case "rewind":
                    peer.rewind()
                case "hold":
                    peer.hold()
                    peer.release()
                case "shrink":
                    peer.shrink()
            step += 1
            await asyncio.sleep(0)
        peer.check_slices()
        return peer

    assert asyncio.run(receive()).frames == wanted


@settings(max_examples=100, deadline=None)
@given(
    announced=st.integers(8, 100 << 20),
    received=st.integers(0, 600_000),
    before=st.lists(st.integers(8, 2000), max_size=20),
)
def test_memory_is_bounded_by_the_bytes_received(announced, received, before):
    async def receive() -> Peer:
        peer = Peer(max_frame=100 << 20)
        head = b"".join(frame(bytes(size)) for size in before)
        peer.feed(head + announced.to_bytes(4) + bytes(min(received, announced)))
        peer.get_buffer(-1)
        return peer

    peer = asyncio.run(receive())
    total = sum(before) + 4 * len(before) + received + 4
    assert len(peer.buffer) <= max(65_536, 16 * total)
