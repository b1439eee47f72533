"""The budget of all connections: it is kept, some frame can always be completed, nothing is lost."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.transport.frame_protocol import FIRST_BUFFER, RESTING_BUFFER
from headwater.transport.memory import LEAST_PROGRESS, MemoryBudget
from tests.unit.transport.peer import Peer, frame

LIMIT = 4 << 20
LARGEST = 2 << 20


class Counted(Peer):
    """A peer under a budget."""

    def __init__(self, memory: MemoryBudget):
        super().__init__(LARGEST)
        self.memory = memory

    def feed(self, data: bytes) -> bytes:
        """Receive what can be received; the rest."""
        return data[super().feed(data) :]

    def turn_ended(self) -> None:
        if self.memory.tight:
            self.shrink()


def on_a_loop(body):
    async def run():
        body()

    asyncio.run(run())


def sound(memory: MemoryBudget, peers) -> None:
    assert memory.used == sum(memory.held.values())
    for peer in peers:
        assert memory.held.get(peer, 0) == len(peer.buffer) - FIRST_BUFFER
    assert memory.used <= LIMIT + LARGEST + RESTING_BUFFER
    if memory.waiting:
        assert any(peer.transport.reading for peer in peers), "nobody can complete a frame"


def test_unfinished_frames_stay_within_the_budget_and_small_requests_pass():
    @on_a_loop
    def body():
        memory = MemoryBudget(LIMIT)
        peers = [Counted(memory) for _ in range(20)]
        whole = frame(bytes(LARGEST))
        rests = [peer.feed(whole[: LARGEST // 2]) for peer in peers]
        sound(memory, peers)
        assert memory.waiting > 5
        assert any(rests), "somebody is not read"
        small = Counted(memory)
        assert small.feed(frame(bytes(FIRST_BUFFER // 2))) == b""
        assert len(small.frames) == 1


def test_every_frame_comes_through_in_the_end_when_peers_go_on_sending():
    @on_a_loop
    def body():
        memory = MemoryBudget(LIMIT)
        peers = [Counted(memory) for _ in range(12)]
        left = {peer: frame(bytes([number]) * LARGEST) for number, peer in enumerate(peers)}
        for _ in range(10_000):
            if not any(left.values()):
                break
            for peer in peers:
                left[peer] = peer.feed(left[peer][:100_000]) + left[peer][100_000:]
                sound(memory, peers)
        assert [peer.frames for peer in peers] == [
            [bytes([number]) * LARGEST] for number in range(len(peers))
        ]


def test_a_peer_that_leaves_makes_room_for_those_who_wait():
    @on_a_loop
    def body():
        memory = MemoryBudget(LIMIT)
        peers = [Counted(memory) for _ in range(12)]
        for peer in peers:
            peer.feed(frame(bytes(LARGEST))[: LARGEST // 2])
        assert memory.waiting
        while memory.waiting:
            reading = next(peer for peer in peers if peer.transport.reading)
            peers.remove(reading)
            reading.connection_lost(None)
            sound(memory, peers)
        for peer in peers:
            peer.connection_lost(None)
        assert memory.used == 0
        assert not memory.tight


@given(
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from([100, 9_000, 70_000, 400_000]), st.booleans()),
        max_size=120,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_account_is_right_whatever_peers_send(steps):
    @on_a_loop
    def body():
        memory = MemoryBudget(LIMIT // 4)
        peers = [Counted(memory) for _ in range(8)]
        for rank, size, leaves in steps:
            peer = peers[rank]
            if leaves:
                peer.connection_lost(None)
                peer.transport.abort()
                peers[rank] = Counted(memory)
            else:
                peer.feed(bytes(size) if peer.missing() > size else frame(bytes(size)))
            sound(memory, peers)


class Holder:
    """A connection that holds memory and moves as a test says."""

    def __init__(self, moved: int | None):
        self.moved = moved
        self.frames_read = 0
        self.granted = 0

    def progress(self):
        return self.moved

    def missing(self):
        return 1

    def memory_granted(self):
        self.granted += 1


@pytest.mark.parametrize(
    ("before", "after", "stuck"),
    [
        (0, 0, True),
        (0, LEAST_PROGRESS - 1, True),
        (0, LEAST_PROGRESS, False),
        (-(1 << 20), -(1 << 20), True),
        (None, None, False),
        (0, None, False),
        (None, 0, False),
    ],
)
def test_who_holds_memory_and_does_not_move_is_stuck_while_others_wait(before, after, stuck):
    memory = MemoryBudget(1000)
    holder, waiter = Holder(before), Holder(None)
    memory.charge(holder, 1 << 20)
    assert memory.ask(holder, 1000), "one may always go on"
    assert not memory.ask(waiter, 1000)
    assert memory.stuck() == [], "one look is not enough"
    holder.moved = after
    assert memory.stuck() == ([holder] if stuck else [])


def test_nobody_is_stuck_while_there_is_enough():
    memory = MemoryBudget(1 << 30)
    holder = Holder(0)
    memory.charge(holder, 1 << 20)
    assert memory.stuck() == memory.stuck() == []


def test_the_one_that_needs_least_goes_first_when_nothing_is_free():
    memory = MemoryBudget(1000)
    first, waiters = Holder(None), [Holder(None), Holder(None)]
    waiters[0].missing = lambda: 100
    memory.charge(first, 2000)
    assert memory.ask(first, 10)
    assert [memory.ask(waiter, 5000) for waiter in waiters] == [False, False]
    other = Holder(None)
    memory.charge(other, 3000)
    memory.leave(first)
    assert [waiter.granted for waiter in waiters] == [0, 1]


def test_nobody_passes_the_limit_while_requests_under_way_will_give_memory_back():
    memory = MemoryBudget(1000)
    worker, waiter = Holder(None), Holder(None)
    memory.charge_work(worker, 2000)
    assert not memory.ask(waiter, 5000), "frames would be received faster than they are handled"
    memory.charge_work(worker, -2000)
    assert waiter.granted == 1
