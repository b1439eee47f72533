"""Each rule is broken once, and said so."""

import pytest

from headwater.model import TopicPartition
from simulator.invariants import CommitPromises, PartitionPromises, Promises, Value

AT = TopicPartition("orders", 0)


@pytest.fixture
def complaints():
    return []


def _value(number: int, producer: str = "p", once: bool = True) -> bytes:
    return Value(producer, number, once).encode()


def _books(complaints, *, synced: bool = False) -> PartitionPromises:
    books = PartitionPromises(AT, complaints.append, synced)
    for number in range(5):
        value = Value("p", number, True)
        books.sent[value.encode()] = value
    return books


def _content(*numbers: int) -> dict[int, bytes]:
    return {offset: _value(number) for offset, number in enumerate(numbers)}


def test_a_kept_promise_is_no_complaint(complaints):
    books = _books(complaints)
    books.acknowledge(0, [_value(0), _value(1)])
    books.consumed(0, _value(0), high_watermark=2)
    books.audit(0, 2, _content(0, 1))
    assert complaints == []


@pytest.mark.parametrize(
    ("rule", "break_it"),
    [
        ("I1", lambda b: (b.acknowledge(0, [_value(0), _value(1)]), b.audit(0, 1, _content(0)))),
        ("I1", lambda b: (b.consumed(0, _value(0), 1), b.audit(0, 1, _content(1)))),
        ("I1", lambda b: b.audit(1, 1, {})),
        ("I2", lambda b: (b.acknowledge(0, [_value(0)]), b.acknowledge(0, [_value(1)]))),
        ("I2", lambda b: (b.acknowledge(0, [_value(0)]), b.consumed(0, _value(1), 5))),
        ("I2", lambda b: b.audit(0, 3, {0: _value(0), 2: _value(2)})),
        ("I3", lambda b: b.audit(0, 2, _content(0, 0))),
        ("I3", lambda b: b.audit(0, 2, _content(1, 0))),
        ("I4", lambda b: b.consumed(3, _value(0), high_watermark=3)),
        ("I4", lambda b: (b.marked(5), b.marked(4))),
        ("I16", lambda b: b.consumed(0, _value(99), high_watermark=1)),
        ("I16", lambda b: b.audit(0, 1, _content(99))),
    ],
)
def test_a_broken_rule_is_named(complaints, rule, break_it):
    break_it(_books(complaints))
    assert any(complaint.startswith(f"{rule}:") for complaint in complaints)


def test_a_power_cut_excuses_the_loss_of_a_tail_that_was_not_synced(complaints):
    books = _books(complaints)
    books.acknowledge(0, [_value(0), _value(1)])
    books.marked(2)
    books.forgive(1)
    books.audit(0, 1, _content(0))
    assert complaints == []


def test_a_power_cut_does_not_excuse_another_value_nor_the_loss_of_what_was_synced(complaints):
    books = _books(complaints)
    books.acknowledge(0, [_value(0), _value(1)])
    books.forgive(1)
    books.audit(0, 1, _content(2))
    assert len(complaints) == 1
    synced = _books(complaints, synced=True)
    synced.acknowledge(0, [_value(0)])
    synced.forgive(0)
    synced.audit(0, 0, {})
    assert len(complaints) == 2


def test_plain_producers_may_write_twice(complaints):
    books = _books(complaints)
    value = Value("plain", 0, False)
    books.sent[value.encode()] = value
    books.audit(0, 2, {0: value.encode(), 1: value.encode()})
    assert complaints == []


def test_a_committed_offset_goes_neither_back_nor_beyond_what_was_asked(complaints):
    commits = CommitPromises("group/0", complaints.append, synced=False)
    commits.asked, commits.acknowledged = 7, 5
    for found in (5, 6, 7):
        commits.audit(found)
    assert complaints == []
    commits.audit(4)
    commits.audit(8)
    assert len(complaints) == 2
    commits.forgive()
    commits.audit(-1)
    assert len(complaints) == 2


def test_a_producer_id_belongs_to_one_producer(complaints):
    promises = Promises(complaints.append, all_synced=False)
    promises.producer_id_given(1, "a")
    promises.producer_id_given(1, "a")
    assert complaints == []
    promises.producer_id_given(1, "b")
    assert "I3" in complaints[0]
