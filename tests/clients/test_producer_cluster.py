"""The producer against several brokers: moved leaders, new partitions, silence and dropped clients."""

import asyncio
import contextlib
import gc
import logging
import os
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator

import pytest

import headwater
from headwater import aio
from headwater.client.errors import (
    ClosedError,
    ForkedError,
    LoopDiedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from headwater.client.producer.interceptors import ProducerInterceptor
from headwater.client.producer.sequences import NO_PRODUCER_ID
from headwater.errors import E
from tests.clients.fake_cluster import Attempt, FakeCluster, Fault, serving
from tests.clients.interrupting import moments
from tests.integration.waiting import until

LIMIT_S = 60
PRODUCE, METADATA = 0, 3


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(2, partitions=2)) as cluster:
        yield cluster


def connect(cluster: FakeCluster, **options) -> headwater.Producer:
    producer = headwater.Producer(bootstrap_servers=cluster.bootstrap, **options)
    producer.send("t", b"first", partition=0).result(LIMIT_S)
    return producer


def test_late_requests_for_a_deleted_topic_never_reach_the_next_one_of_its_name(cluster) -> None:
    arrived = threading.Event()

    def lose_the_answer(attempt: Attempt) -> Fault:
        arrived.set()
        return "no answer"

    with connect(cluster, linger_ms=0, retry_backoff_ms=20) as producer:
        cluster.fault = lose_the_answer
        sent = [producer.send("t", b"1", partition=0)]
        assert arrived.wait(LIMIT_S)
        cluster.fault = lambda _: None
        broker = cluster.brokers[1]
        cluster.recreate_topic("t")
        before = broker.requests.count(PRODUCE)
        sent.append(producer.send("t", b"2", partition=0))
        until(lambda: broker.requests.count(PRODUCE) > before, "the second request arrives")
        broker.cut()
        sent.append(producer.send("t", b"3", partition=0))
        for future in sent:
            future.result(LIMIT_S)
    assert cluster.values("t", 0) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("listed", [True, False], ids=["known broker", "new broker"])
def test_a_refusal_that_names_the_new_leader_is_followed_without_metadata(cluster, listed) -> None:
    if not listed:
        cluster.live = {1}
    with connect(cluster, retry_backoff_ms=LIMIT_S * 1000, linger_ms=0) as producer:
        asked = sum(broker.requests.count(METADATA) for broker in cluster.brokers.values())
        cluster.move(0, 2)
        assert producer.send("t", b"moved", partition=0).result(LIMIT_S).offset == 1
        assert asked == sum(broker.requests.count(METADATA) for broker in cluster.brokers.values())


def test_without_a_hint_the_new_leader_is_found_by_metadata(cluster) -> None:
    cluster.hints = False
    with connect(cluster, retry_backoff_ms=20) as producer:
        cluster.move(0, 2)
        assert producer.send("t", b"moved", partition=0).result(LIMIT_S).offset == 1


def test_an_older_hint_does_not_bring_back_the_old_leader(cluster) -> None:
    with connect(cluster, retry_backoff_ms=20) as producer:
        cluster.move(0, 2)
        assert producer.send("t", b"moved", partition=0).result(LIMIT_S).offset == 1
        assert not producer._core.cluster.leader_moved(
            headwater.TopicPartition("t", 0), 1, cluster.leader_epoch - 1
        )


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_partitions_that_a_topic_got_meanwhile_are_found(cluster, face) -> None:
    async def with_asyncio() -> None:
        async with aio.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            await producer.send_and_wait("t", b"v")
            cluster.leaders[2] = 2
            assert (await producer.send_and_wait("t", b"new", partition=2)).partition == 2
            with pytest.raises(UnknownTopicOrPartitionError, match="0 to 2, not 3"):
                await producer.send("t", b"v", partition=3)

    if face == "asyncio":
        asyncio.run(with_asyncio())
        return
    with connect(cluster) as producer:
        cluster.leaders[2] = 2
        assert producer.send("t", b"new", partition=2).result(LIMIT_S).partition == 2
        with pytest.raises(UnknownTopicOrPartitionError, match="0 to 2, not 3"):
            producer.send("t", b"v", partition=3)


def refusing(attempt) -> E | None:
    return E.MESSAGE_TOO_LARGE if b"large" in attempt.values else None


def unheard(caplog) -> list[str]:
    return [row.getMessage() for row in caplog.records if "nobody looked" in row.getMessage()]


def test_records_that_fail_although_nobody_asks_are_logged_with_count_and_reason(
    cluster, caplog
) -> None:
    with connect(cluster) as producer:
        cluster.fault = refusing
        producer.send("t", b"large", partition=1)
        producer.flush(LIMIT_S)
        producer.send("t", b"large", partition=0)
        producer.flush(LIMIT_S)
        gc.collect()
    first, second = sorted(unheard(caplog))
    assert "1 records were not stored, the first for t-0: " in first
    assert "1 records were not stored, the first for t-1: " in second


def test_failures_that_somebody_heard_of_are_not_logged_again(cluster, caplog) -> None:
    heard = threading.Event()
    with connect(cluster) as producer:
        cluster.fault = refusing
        with pytest.raises(RecordTooLargeError):
            producer.send("t", b"large").result(LIMIT_S)
        producer.send("t", b"large", on_delivery=lambda *_: heard.set())
        assert heard.wait(LIMIT_S)
        assert isinstance(producer.send("t", b"large").exception(LIMIT_S), RecordTooLargeError)
    gc.collect()
    assert unheard(caplog) == []


def test_records_given_up_by_close_are_logged_with_count_and_reason(cluster, caplog) -> None:
    producer = connect(cluster)
    cluster.brokers[1].hang()
    for _ in range(3):
        producer.send("t", b"late", partition=0)
    producer.close(0.05)
    assert "3 records failed without an acknowledgement" in caplog.text


def eventually(condition) -> None:
    pause = threading.Event()
    for _ in range(100 * LIMIT_S):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to pass")


def drop(only: list) -> None:
    only.clear()
    gc.collect()


def open_streams(cluster: FakeCluster) -> int:
    return sum(len(broker.streams) for broker in cluster.brokers.values())


def test_a_dropped_producer_sends_what_waits_and_leaves_nothing_behind(cluster) -> None:
    only = [headwater.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000)]
    only[0].send("t", b"left behind", partition=0)
    alive = weakref.ref(only[0])
    gone = threading.Event()
    weakref.finalize(only[0]._core.sender, gone.set)
    with pytest.warns(ResourceWarning, match="unclosed Producer"):
        drop(only)
    assert alive() is None
    eventually(lambda: cluster.values("t") == [b"left behind"] and not open_streams(cluster))
    eventually(lambda: gc.collect() >= 0 and gone.is_set())


def test_close_sends_what_other_threads_sent_until_then(cluster) -> None:
    producer = connect(cluster, linger_ms=0)
    accepted: list[list[headwater.SendFuture]] = [[] for _ in range(3)]
    begun = threading.Event()

    def send_on(futures):
        with contextlib.suppress(ClosedError):
            while True:
                futures.append(producer.send("t", b"v"))
                if len(futures) == 5_000:
                    begun.set()

    threads = [threading.Thread(target=send_on, args=(futures,)) for futures in accepted]
    for thread in threads:
        thread.start()
    assert begun.wait(LIMIT_S)
    producer.close()
    for thread in threads:
        thread.join(LIMIT_S)
    failed = [one.exception(0) for futures in accepted for one in futures]
    assert set(failed) == {None}


def test_close_sends_what_other_tasks_sent_until_then(cluster) -> None:
    async def main() -> None:
        producer = aio.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0)
        accepted = [await producer.send("t", b"first")]

        async def send_on() -> None:
            with contextlib.suppress(ClosedError):
                while True:
                    accepted.append(await producer.send("t", b"v"))
                    await asyncio.sleep(0)

        sending = asyncio.create_task(send_on())
        await accepted[0]
        await producer.close()
        await sending
        assert {one.exception(0) for one in accepted} == {None}

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_a_second_close_waits_for_the_records_of_the_first(cluster) -> None:
    async def main() -> None:
        producer = aio.Producer(bootstrap_servers=cluster.bootstrap)
        await producer.send_and_wait("t", b"first")
        sent = await producer.send("t", b"v")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        await producer.close()
        assert sent.exception(0) is None
        await closing

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))


def test_a_producer_whose_send_is_replaced_goes_on(cluster) -> None:
    with warnings.catch_warnings(), connect(cluster) as producer:
        warnings.simplefilter("error", ResourceWarning)
        producer.send = lambda *record: None
        gc.collect()
        producer.send_many("t", [b"v"]).result(LIMIT_S)


def test_a_producer_lives_as_long_as_its_send(cluster) -> None:
    class Counting(headwater.Producer):
        def send(self, *record, **options):
            return super().send(*record, **options)

    def once(kind):
        kind(bootstrap_servers=cluster.bootstrap).send("t", b"one line", partition=0).result(9)

    for kind in (headwater.Producer, Counting):
        with pytest.warns(ResourceWarning, match="unclosed Producer"):
            once(kind)
        kept = [kind(bootstrap_servers=cluster.bootstrap).send]
        gc.collect()
        for _ in range(2):
            kept[0]("t", b"kept", partition=0).result(LIMIT_S)
        with pytest.warns(ResourceWarning, match="unclosed Producer"):
            drop(kept)
    eventually(lambda: not open_streams(cluster))
    assert cluster.values("t") == 2 * [b"one line", b"kept", b"kept"]


def test_a_dropped_asyncio_producer_leaves_nothing_behind(cluster, caplog) -> None:
    async def main() -> None:
        only = [aio.Producer(bootstrap_servers=cluster.bootstrap)]
        await only[0].send_and_wait("t", b"v")
        with pytest.warns(ResourceWarning, match="unclosed Producer"):
            drop(only)
        await asyncio.to_thread(eventually, lambda: not open_streams(cluster))

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
    gc.collect()
    assert "destroyed" not in caplog.text


def test_a_closed_producer_gives_no_warning(cluster) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect(cluster).close()
        gc.collect()


def test_streams_are_kept_alive_and_idle_ones_replaced(cluster) -> None:
    with connect(cluster, linger_ms=0) as producer:
        node = producer._core.cluster.nodes[1]
        first = producer._waits.thread.call(producer._core.cluster.connection(node))
        stream = first._transport.get_extra_info("socket")
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert producer._waits.thread.call(producer._core.cluster.connection(node)) is first
        first._used_s -= producer.settings.connections_max_idle_ms / 1000
        assert producer.send("t", b"later", partition=0).result(LIMIT_S).offset == 1
        assert not first.is_open


class Dropping(ProducerInterceptor):
    def on_send(self, record):
        return None if record.value == b"secret" else record


class Failing(ProducerInterceptor):
    def on_send(self, record):
        raise ValueError("on purpose")

    def on_acknowledgement(self, metadata, error):
        raise ValueError("on purpose")


class Nonsense(ProducerInterceptor):
    def on_send(self, record):
        return 7


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_an_interceptor_drops_a_record_by_returning_none(cluster, face) -> None:
    told = []

    async def with_asyncio() -> list:
        async with aio.Producer(
            bootstrap_servers=cluster.bootstrap, interceptors=[Dropping()]
        ) as producer:
            dropped = await producer.send(
                "t", b"secret", on_delivery=lambda *given: told.append(given)
            )
            many = await producer.send_many("t", [b"secret", b"shown"])
            return [await dropped, *(await many)]

    if face == "asyncio":
        results = asyncio.run(with_asyncio())
    else:
        with headwater.Producer(
            bootstrap_servers=cluster.bootstrap, interceptors=[Dropping()]
        ) as producer:
            dropped = producer.send("t", b"secret", on_delivery=lambda *given: told.append(given))
            assert dropped.done()
            results = [
                dropped.result(0),
                *producer.send_many("t", [b"secret", b"shown"]).result(LIMIT_S),
            ]
    assert [result.filtered for result in results] == [True, True, False]
    assert told == [(results[0], None)]
    assert [value for part in range(2) for value in cluster.values("t", part)] == [b"shown"]


def test_faults_of_interceptors_are_logged_and_never_raised(cluster, caplog) -> None:
    with headwater.Producer(
        bootstrap_servers=cluster.bootstrap, interceptors=[Failing(), Nonsense()]
    ) as producer:
        assert producer.send("t", b"v").result(LIMIT_S).offset == 0
    assert "on_send of Failing raised" in caplog.text
    assert "on_send of Nonsense raised" in caplog.text
    assert "on_acknowledgement of Failing raised" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"headers": {"a": b"1"}}, "headers is a dict: give pairs"),
        ({"headers": [("a", "text")]}, "the value of header 'a' is str, not bytes"),
        ({"headers": [(b"a", b"1")]}, "the header name b'a' is bytes"),
        ({"headers": ["ab", 7]}, "give pairs of a name and bytes"),
        ({"partition": "0"}, "partition is '0': give a number"),
        ({"partition": True}, "partition is True"),
        ({"topic": b"t"}, "topic is b't': give its name as str"),
        ({"timestamp": -5}, "timestamp is -5: .* not negative"),
        ({"timestamp": 1 << 70}, "timestamp is"),
        ({"timestamp": 1.5}, "timestamp is 1.5"),
    ],
)
def test_what_no_record_can_have_is_refused_in_words(cluster, record, words) -> None:
    with connect(cluster) as producer, pytest.raises((TypeError, ValueError), match=words):
        producer.send(**{"topic": "t", "value": b"v", **record})


def test_any_kind_of_bytes_is_a_value(cluster) -> None:
    with connect(cluster, linger_ms=0) as producer:
        for value in (bytearray(b"array"), memoryview(b"view")):
            producer.send("t", value, key=value, partition=0).result(LIMIT_S)
        producer.send_many("t", [b"plain", bytearray(b"many"), memoryview(b"more"), None]).result(
            LIMIT_S
        )
    stored = cluster.values("t", 0) + cluster.values("t", 1)
    assert set(stored) == {b"first", b"array", b"view", b"plain", b"many", b"more", None}


async def broken(*_) -> None:
    raise ZeroDivisionError("on purpose")


def kills_metadata(producer) -> None:
    def raising(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    producer._core._topics.outdated = raising
    producer._waits.thread.call(producer._core.cluster.refresh())


def kills_connecting(producer) -> None:
    producer._waits.thread.post(producer._core.cluster._connections.clear)
    producer._core.cluster.connection = broken


def kills_identity(producer) -> None:
    producer._core.sender._sequences.identity = NO_PRODUCER_ID
    producer._core.sender._producer_id_loop._ask_once = broken


@pytest.mark.parametrize(
    ("kill", "words"),
    [
        (kills_metadata, "following metadata"),
        (kills_connecting, "connecting to 127"),
        (kills_identity, "asking for a producer id"),
    ],
)
def test_a_background_task_that_dies_fails_every_future_and_is_logged(
    cluster, kill, words, caplog
) -> None:
    with connect(cluster, linger_ms=100) as producer:
        waiting = producer.send("t", b"waiting", partition=0)
        kill(producer)
        with pytest.raises(LoopDiedError, match=words):
            waiting.result(LIMIT_S)
        with pytest.raises(LoopDiedError, match=words):
            producer.send("t", b"later", partition=0)
    assert "on purpose" in caplog.text
    assert "3 records" not in caplog.text


LOOP_ENDS = """
import sys, threading
import headwater
from tests.clients.fake_cluster import FakeCluster, serving
with serving(FakeCluster(1)) as cluster:
    producer = headwater.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=60_000)
    waiting = producer.send("t", b"v")
    thread = producer._waits.thread
    thread.loop.call_soon_threadsafe(thread.loop.stop)
    print(type(waiting.exception(10)).__name__)
    try:
        producer.send("t", b"w")
    except headwater.KafkaError as refused:
        print(type(refused).__name__)
    with headwater.Producer(bootstrap_servers=cluster.bootstrap) as other:
        print(other.send("t", b"x").result(60).offset)
    sys.stdout.flush()
"""


def test_the_end_of_the_loop_thread_fails_every_future_and_new_clients_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOP_ENDS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["LoopDiedError", "LoopDiedError", "0"], done.stderr
    assert "has ended" in done.stderr


def test_a_fork_in_the_middle_of_send_leaves_a_child_that_is_told_what_to_do(cluster) -> None:
    producer = connect(cluster, batch_size=120)

    def fork() -> None:
        child = os.fork()
        if child == 0:
            try:
                producer.send("t", b"child")
            except ForkedError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0

    def work() -> None:
        for _ in range(4):
            producer.send("t", b"v", partition=1, headers=[("python", b"not the compiled path")])

    assert len(list(moments(work, fork, step=60))) > 3
    producer.close(LIMIT_S)
