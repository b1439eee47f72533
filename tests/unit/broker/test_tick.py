"""The tick: everything staged is written once, then readers look, then connections send."""

import asyncio

import pytest

from headwater.broker.tick import RECHECKS_A_TICK, Tick


class Recorder:
    """Stands for a replica, a reader and a connection: notes what is asked of it."""

    def __init__(self, name, notes, then=None):
        self.name, self.notes, self.then = name, notes, then
        self.topic_partition = name

    def write(self):
        self._note("write")

    def recheck(self):
        self._note("look")

    def send_answers(self):
        self._note("send")

    def fail_waiters(self, failure):
        self.notes.append(f"abandon {self.name} {failure.code.name}")

    def _note(self, what):
        self.notes.append(f"{what} {self.name}")
        if self.then is not None:
            then, self.then = self.then, None
            then()


def run(body):
    async def main():
        body(Tick())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())


def test_writes_come_first_then_looks_then_sends():
    notes = []

    def body(tick):
        tick.send_soon(Recorder("c", notes))
        tick.recheck_soon(Recorder("r", notes))
        tick.write_soon(Recorder("p", notes))
        assert notes == [], "nothing happens before the round ends"

    run(body)
    assert notes == ["write p", "look r", "send c"]


def test_a_connection_sends_once_and_a_reader_looks_once():
    notes = []

    def body(tick):
        reader, sender = Recorder("r", notes), Recorder("c", notes)
        for _ in range(3):
            tick.recheck_soon(reader)
            tick.send_soon(sender)

    run(body)
    assert notes == ["look r", "send c"]


def test_what_writes_and_looks_bring_about_happens_in_the_same_tick():
    notes = []

    def body(tick):
        sender = Recorder("c", notes)
        reader = Recorder("r", notes, then=lambda: tick.send_soon(sender))
        second = Recorder("q", notes, then=lambda: tick.recheck_soon(reader))
        tick.write_soon(Recorder("p", notes, then=lambda: tick.write_soon(second)))

    run(body)
    assert notes == ["write p", "write q", "look r", "send c"]


def test_a_flush_by_hand_leaves_nothing_for_the_end_of_the_round():
    notes = []

    def body(tick):
        tick.write_soon(Recorder("p", notes))
        tick.flush()
        assert notes == ["write p"]

    run(body)
    assert notes == ["write p"]


def test_a_flush_within_a_flush_adds_nothing():
    notes = []

    def body(tick):
        tick.write_soon(Recorder("p", notes, then=tick.flush))
        tick.write_soon(Recorder("q", notes))

    run(body)
    assert notes == ["write p", "write q"]


def test_written_replicas_are_remembered_for_the_flush_to_disk():
    def body(tick):
        replica = Recorder("p", [])
        tick.write_soon(replica)
        tick.flush()
        assert list(tick.written) == [replica]

    run(body)


@pytest.mark.parametrize("step", ["write_soon", "recheck_soon", "send_soon"])
def test_a_mistake_of_one_does_not_cost_the_others_their_turn(step):
    notes = []

    def broken():
        raise ValueError("a bug")

    def body(tick):
        getattr(tick, step)(Recorder("bad", notes, then=broken))
        for name in "ab":
            tick.write_soon(Recorder(f"p{name}", notes))
            tick.recheck_soon(Recorder(f"r{name}", notes))
            tick.send_soon(Recorder(f"c{name}", notes))

    run(body)
    for expected in ("write pa", "write pb", "look ra", "look rb", "send ca", "send cb"):
        assert expected in notes
    assert ("abandon bad UNKNOWN_SERVER_ERROR" in notes) == (step == "write_soon")


def test_readers_that_one_write_wakes_are_looked_at_over_several_ticks():
    notes, looked = [], []
    readers = [Recorder(number, notes) for number in range(2 * RECHECKS_A_TICK + 1)]

    async def main():
        tick = Tick()
        tick.write_soon(Recorder("p", [], lambda: [tick.recheck_soon(one) for one in readers]))
        while len(notes) < len(readers):
            before = tick.number, len(notes)
            await asyncio.sleep(0)
            if tick.number > before[0]:
                looked.append(len(notes) - before[1])

    asyncio.run(asyncio.wait_for(main(), 60))
    assert looked == [RECHECKS_A_TICK, RECHECKS_A_TICK, 1]
    assert notes == [f"look {number}" for number in range(len(readers))], "each once, in order"


def test_what_is_dirty_is_written_though_readers_wait_for_the_next_tick():
    notes = []
    last = Recorder("p", notes)

    def body(tick):
        for _ in range(RECHECKS_A_TICK):
            tick.recheck_soon(Recorder("r", []))
        tick.recheck_soon(Recorder("late", notes))
        tick.write_soon(last)
        tick.flush()
        assert notes == ["write p"]

    run(body)
    assert notes == ["write p", "look late"]
