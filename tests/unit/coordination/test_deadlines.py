"""Deadlines: the last one set counts, whatever was set before."""

from headwater.coordination.deadlines import SPARE_ENTRIES, Deadlines


def due(deadlines, now):
    found = []
    while (key := deadlines.pop_due(now)) is not None:
        found.append(key)
    return found


def test_keys_come_up_in_order_of_time():
    deadlines = Deadlines()
    for key, at in [("c", 30), ("a", 10), ("b", 20)]:
        deadlines.set(key, at)
    assert deadlines.next() == 10
    assert due(deadlines, 25) == ["a", "b"]
    assert due(deadlines, 30) == ["c"]
    assert deadlines.next() is None


def test_a_deadline_moved_later_does_not_come_up_early():
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert due(deadlines, 49) == []
    assert deadlines.next() == 50
    assert due(deadlines, 50) == ["a"]


def test_a_deadline_moved_earlier_comes_up_once():
    deadlines = Deadlines()
    deadlines.set("a", 50)
    deadlines.set("a", 10)
    assert due(deadlines, 10) == ["a"]
    assert due(deadlines, 100) == []


def test_a_cancelled_deadline_does_not_come_up():
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 20)
    deadlines.cancel("a")
    deadlines.cancel("nobody")
    assert deadlines.next() == 20
    assert due(deadlines, 100) == ["b"]


def test_a_key_set_again_after_it_was_cancelled_counts():
    deadlines = Deadlines()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    deadlines.set("a", 30)
    assert due(deadlines, 29) == []
    assert due(deadlines, 30) == ["a"]


def test_moving_a_deadline_later_does_not_grow_the_heap():
    deadlines = Deadlines()
    for at in range(1_000):
        deadlines.set("a", at)
    assert len(deadlines) == 1
    assert len(deadlines._heap) == 1


def test_forgotten_deadlines_take_no_memory():
    deadlines = Deadlines()
    deadlines.set("kept", 5_000)
    for number in range(10_000):
        deadlines.set(number, 10_000 + number)
        deadlines.cancel(number)
    assert len(deadlines._heap) <= SPARE_ENTRIES + 4
    assert len(deadlines._queued) <= SPARE_ENTRIES + 4
    assert deadlines.next() == 5_000
    assert deadlines.pop_due(5_000) == "kept"
    assert deadlines.next() is None
