"""The fast path of `send` in plain Python, beside the general one."""

import threading

import pytest

from headwater.client.producer import accumulator as accumulating
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.locking import new_lock
from headwater.client.producer.pure_fast_send import SHARED, pure_send
from headwater.client.producer.topic_queues import TopicQueues
from headwater.records.codec import pure as pure_codec
from headwater.records.record import decode_records

OTHERWISE = object()


@pytest.fixture(autouse=True)
def _pure_batches(monkeypatch):
    """Whichever codec is in use here, these batches are filled by the one in plain Python."""
    monkeypatch.setattr(accumulating, "BatchWriter", pure_codec.BatchWriter)


class Scene:
    """One topic of one partition with an open batch that has a first record."""

    def __init__(self, size=1000, shared=SHARED):
        self.now = 5000
        self.accumulator = Accumulator(
            batch_size=size, linger_ms=5, buffer_memory=1 << 20, delivery_timeout_ms=1000
        )
        self.queue = self.accumulator.queue("t", 0)
        topics = {"t": TopicQueues([self.queue], self.accumulator, True, lambda _: 0, 0)}
        self.topics = topics
        self.lock = new_lock()
        self.left = []
        self.send = pure_send(topics, self.otherwise, lambda: self.now, self.lock, shared)

    def open(self, value=b"first"):
        batch = self.accumulator.begin(self.queue, 0, self.now)
        assert batch.writer.append(self.now, None, value) == 0
        self.accumulator.show(batch)
        return batch

    def otherwise(self, *record):
        assert not self.lock._is_owned()
        self.left.append(record)
        return OTHERWISE


def test_values_go_into_the_open_batch_in_order():
    scene = Scene()
    batch = scene.open()
    futures = [scene.send("t", b"%d" % number) for number in range(30)]
    assert futures == [(batch.future, number + 1, 5000) for number in range(30)]
    assert not scene.left
    batch.seal()
    assert batch.count == 31
    data = batch.encoded(0, None)
    assert batch.filled == len(data)
    values = [record.value for record in decode_records(data)]
    assert values == [b"first", *[b"%d" % number for number in range(30)]]


@pytest.mark.parametrize("sizes", [(5,), (1, 90, 5, 200, 7), (0, 300)])
def test_no_batch_grows_beyond_its_size(sizes):
    scene = Scene(size=700)
    batch = scene.open(b"")
    for number in range(1000):
        if scene.send("t", bytes(sizes[number % len(sizes)])) is OTHERWISE:
            break
    assert scene.left
    assert batch.writer.size <= 700
    assert batch.writer.size == len(batch.encoded(0, None))
    assert batch.writer.size + max(sizes) + 10 > 700


@pytest.mark.parametrize(
    "record",
    [
        ("t", b"v", b"key"),
        ("t", None),
        ("t", "text"),
        ("t", bytearray(b"v")),
        ("t", b"v", None, 0),
        ("t", b"v", None, None, [("h", b"1")]),
        ("t", b"v", None, None, (), 5000),
        ("t", b"v", None, None, (), None, print),
        ("unknown", b"v"),
    ],
)
def test_all_else_is_left_to_the_general_way(record):
    scene = Scene()
    batch = scene.open()
    assert scene.send(*record) is OTHERWISE
    assert scene.left[0][: len(record)] == record
    assert batch.writer.count == 1


def test_without_an_open_batch_the_general_way_begins_one():
    scene = Scene()
    assert scene.send("t", b"v") is OTHERWISE


def test_another_millisecond_is_left_to_the_general_way():
    scene = Scene()
    scene.open()
    scene.send("t", b"v")
    scene.now += 1
    scene.queue.open.stop = 0  # as the sender does at each turn
    assert scene.send("t", b"v") is OTHERWISE


def test_a_reading_of_the_clock_serves_a_few_records():
    scene = Scene(size=100_000, shared=20)
    scene.open()
    scene.send("t", b"v")
    scene.now += 1
    made = [scene.send("t", b"v") for _ in range(20)]
    assert made.index(OTHERWISE) == 19
    assert {future[2] for future in made[:-1]} == {5000}


def test_threads_share_a_batch_without_losing_records():
    scene = Scene(size=1 << 19)
    batch = scene.open()
    batch.writer.extend(scene.now, [b""] * 99, 0)  # longer numbers begin with the slow path
    made = []

    def work(name):
        made.extend(
            (scene.send("t", b"%d-%d" % (name, n)), b"%d-%d" % (name, n)) for n in range(500)
        )

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = [record.value for record in decode_records(batch.encoded(0, None))]
    assert len(values) == 2100
    assert all(values[future[1]] == value for future, value in made)


def test_ctrl_c_while_send_waits_for_the_lock_stays_what_it_is() -> None:
    class Taken:
        """A lock that another thread holds."""

        def acquire(self) -> bool:
            raise KeyboardInterrupt

        def release(self) -> None:
            raise RuntimeError("cannot release un-acquired lock")

        def _is_owned(self) -> bool:
            return False

    send = pure_send({"t": None}, lambda *_: None, lambda: 0, Taken())
    with pytest.raises(KeyboardInterrupt):
        send("t", b"v")
