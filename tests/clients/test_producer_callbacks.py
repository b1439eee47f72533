"""Callbacks, threads and slow brokers around a producer: no one of them stops the others."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

import headwater
from headwater.client.errors import BufferExhaustedError, ClosedError, RecordTooLargeError
from headwater.errors import E
from tests.clients.fake_cluster import Attempt, FakeCluster, Fault, serving

LIMIT_S = 60


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(2, partitions=1)) as cluster:
        yield cluster


@contextlib.contextmanager
def producing(cluster: FakeCluster, **options) -> Iterator[headwater.Producer]:
    with headwater.Producer(bootstrap_servers=cluster.bootstrap, **options) as producer:
        producer.send("t", b"first").result(LIMIT_S)
        yield producer


def too_large(limit: int):
    """As a topic with max.message.bytes: batches of more values than `limit`, or "large" ones."""

    def fault(attempt: Attempt) -> Fault:
        if len(attempt.values) > limit or any(
            value.startswith(b"large") for value in attempt.values
        ):
            return E.MESSAGE_TOO_LARGE
        return None

    return fault


def test_flush_returns_after_the_callbacks_of_what_it_flushed(cluster) -> None:
    seen = []

    def slow(metadata, error) -> None:
        threading.Event().wait(0.2)  # long enough for a flush that does not wait for it
        seen.append("delivered")

    with producing(cluster) as producer:
        producer.send("t", b"v", on_delivery=slow)
        producer.flush(LIMIT_S)
        seen.append("flushed")
    assert seen == ["delivered", "flushed"]


@pytest.mark.parametrize(
    "leave", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError]
)
@pytest.mark.parametrize("kind", ["on_delivery", "done callback"])
def test_a_callback_that_raises_anything_harms_nobody(cluster, leave, kind, caplog) -> None:
    def raising(*_) -> None:
        raise leave("on purpose")

    with producing(cluster) as producer, producing(cluster) as other:
        if kind == "on_delivery":
            bad = producer.send("t", b"bad", on_delivery=raising)
        else:
            bad = producer.send("t", b"bad")
            bad.add_done_callback(raising)
        assert bad.result(LIMIT_S).offset >= 0
        assert producer.send("t", b"later").result(LIMIT_S).offset >= 0
        assert other.send("t", b"other").result(LIMIT_S).offset >= 0
    assert "on purpose" in caplog.text


def test_all_waiters_of_a_batch_hear_although_one_callback_raises(cluster) -> None:
    with producing(cluster, linger_ms=100) as producer:
        future = producer.send("t", b"v")
        future.add_done_callback(lambda done: done.result(0) and 1 / 0)
        assert future.exception(LIMIT_S) is None


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda producer: producer.flush(), r"flush\(\) inside a callback"),
        (lambda producer: producer.close(), r"close\(\) inside a callback"),
        (lambda producer: producer.send("t", b"x").result(), "would wait for itself"),
        (lambda producer: producer.send_many("t", [b"x"]).result(), "would wait for itself"),
        (lambda producer: producer.partitions_for("u"), "another thread, or use headwater.aio"),
    ],
)
def test_waiting_inside_a_callback_is_refused(cluster, act, words) -> None:
    heard: list[BaseException] = []

    def callback(*_) -> None:
        try:
            act(producer)
        except RuntimeError as refused:
            heard.append(refused)

    with producing(cluster) as producer:
        producer.send("t", b"v", on_delivery=callback).result(LIMIT_S)
        producer.flush(LIMIT_S)
        assert producer.send("t", b"later").result(LIMIT_S)
    with pytest.raises(RuntimeError, match=words):
        raise heard[0]


def test_a_full_buffer_inside_a_callback_is_an_error_at_once(cluster) -> None:
    heard: list[BaseException] = []

    def callback(*_) -> None:
        try:
            for _ in range(100):
                producer.send("t", bytes(900))
        except BufferExhaustedError as refused:
            heard.append(refused)

    with producing(cluster, buffer_memory=8000, batch_size=1000) as producer:
        producer.send("t", b"v", on_delivery=callback).result(LIMIT_S)
        producer.flush(LIMIT_S)
        assert "inside a callback" in str(heard[0])


def test_waiting_on_the_loop_of_an_asyncio_producer_is_refused(cluster) -> None:
    async def main() -> None:
        async with headwater.aio.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            future = await producer.send("t", b"v")
            with pytest.raises(RuntimeError, match="use await"):
                future.result(LIMIT_S)
            assert (await future).offset == 0

    import headwater.aio

    asyncio.run(main())


def test_sys_exit_in_a_callback_ends_an_asyncio_program_and_not_its_producer(cluster) -> None:
    import headwater.aio

    stored = []

    async def main() -> None:
        async with headwater.aio.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send("t", b"v", on_delivery=lambda *_: sys.exit(3))
            second = await producer.send("t", b"w")
            second.add_done_callback(lambda done: stored.append(done.result(0)))
            await asyncio.sleep(LIMIT_S)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert len(stored) == 1


def test_send_many_reports_a_record_lost_in_the_middle_of_a_split_batch(cluster) -> None:
    with producing(cluster, linger_ms=50, batch_size=1 << 16) as producer:
        cluster.fault = too_large(10)
        values = [b"%d" % number for number in range(100)]
        values[50] = b"large"
        sent = producer.send_many("t", values)
        assert not sent.done()
        with pytest.raises(RecordTooLargeError):
            sent.result(LIMIT_S)
        producer.flush(LIMIT_S)
        assert sent.done()
    assert set(values) - set(cluster.values("t")) == {b"large"}


def test_send_many_waits_for_every_part_of_a_split_batch(cluster) -> None:
    with producing(cluster, linger_ms=50, batch_size=1 << 16) as producer:
        cluster.fault = too_large(10)
        sent = producer.send_many("t", [b"%d" % number for number in range(100)])
        parts = sent.result(LIMIT_S)
        assert len(cluster.values("t")) == 101
        assert sorted(part.offset for part in parts) == [part.offset for part in parts]
        assert len(parts) >= 10


def test_send_many_has_one_timeout_for_all_batches(cluster) -> None:
    with producing(cluster, batch_size=100) as producer:
        cluster.brokers[1].hang()
        sent = producer.send_many("t", [bytes(90)] * 50)
        with pytest.raises(headwater.client.errors.TimedOutError):
            sent.result(0.05)
        cluster.brokers[1].recover()
        assert len(sent.result(LIMIT_S)) == 50


def test_values_of_a_slow_generator_do_not_wait_for_the_next_one(cluster) -> None:
    def slow() -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        assert arrived.wait(LIMIT_S)
        yield b"three"

    arrived = threading.Event()

    def fault(attempt: Attempt) -> Fault:
        if b"one" in attempt.values:
            arrived.set()
        return None

    with producing(cluster) as producer:
        cluster.fault = fault
        producer.send_many("t", slow()).result(LIMIT_S)
    assert cluster.values("t")[1:] == [b"one", b"two", b"three"]


def test_a_record_that_another_thread_closes_over_is_refused_and_not_forgotten(cluster) -> None:
    inside, closed = threading.Event(), threading.Event()

    def slow_serializer(value: bytes) -> bytes:
        if value == b"slow":
            inside.set()
            assert closed.wait(LIMIT_S)
        return value

    producer = headwater.Producer(
        bootstrap_servers=cluster.bootstrap, value_serializer=slow_serializer
    )
    producer.send("t", b"first").result(LIMIT_S)
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            producer.send("t", b"slow")
        except ClosedError as refused:
            outcome.append(refused)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(LIMIT_S)
    producer.close(LIMIT_S)
    closed.set()
    thread.join(LIMIT_S)
    assert len(outcome) == 1
    assert cluster.values("t") == [b"first"]


def test_a_large_record_waits_for_its_own_room_and_no_longer_than_max_block_ms(cluster) -> None:
    with producing(
        cluster, buffer_memory=1 << 20, max_request_size=1 << 20, batch_size=1000, max_block_ms=300
    ) as producer:
        cluster.brokers[1].hang()
        filler = [producer.send("t", bytes(200_000)) for _ in range(2)]
        tries = []
        offer = producer._core.offer
        producer._core.offer = lambda *given: tries.append(given) or offer(*given)
        with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms \(300 ms\)"):
            producer.send("t", bytes(700_000))
        assert len(tries) == 1
        cluster.brokers[1].recover()
        assert producer.send("t", bytes(700_000)).result(LIMIT_S)
        assert all(future.result(LIMIT_S) for future in filler)


def test_a_hung_leader_with_a_full_socket_is_left_for_the_new_one(cluster) -> None:
    with producing(
        cluster, request_timeout_ms=300, linger_ms=0, delivery_timeout_ms=30_000
    ) as producer:
        cluster.brokers[1].hang()
        futures = [producer.send("t", bytes(900_000)) for _ in range(12)]
        cluster.move(0, 2)
        cluster.controller, cluster.live = 2, {2}
        assert [future.result(LIMIT_S).offset for future in futures] == list(range(1, 13))
