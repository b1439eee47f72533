"""Ctrl-C and signal handlers inside every call of a producer: nothing hangs, is lost or doubled."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import headwater
from headwater.client.errors import ClosedError, IllegalStateError
from tests.clients.fake_cluster import FakeCluster, serving
from tests.clients.fake_transactions import FakeTransactions
from tests.clients.interrupting import interrupt, moments

LIMIT_S = 60
SMALL = {"batch_size": 120, "linger_ms": 1}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with serving(FakeCluster(1, partitions=2)) as cluster:
        yield cluster


def producer_of(cluster: FakeCluster, **options) -> headwater.Producer:
    made = headwater.Producer(bootstrap_servers=cluster.bootstrap, **{**SMALL, **options})
    made.send("t", b"first", partition=0)
    made.flush(LIMIT_S)
    return made


def stored(cluster: FakeCluster) -> Counter[bytes]:
    return Counter(value for part in range(2) for value in cluster.values("t", part))


SENDS: dict[str, Callable[[headwater.Producer, bytes], object]] = {
    "bytes": lambda producer, value: producer.send("t", value),
    "key": lambda producer, value: producer.send("t", value, key=b"k"),
    "callback": lambda producer, value: producer.send("t", value, on_delivery=lambda *_: None),
    "headers": lambda producer, value: producer.send("t", value, headers=[("h", b"1")]),
    "partition": lambda producer, value: producer.send("t", value, partition=1),
    "many": lambda producer, value: producer.send_many("t", [value + b"a", value + b"b"]),
}


@pytest.mark.parametrize("kind", SENDS)
def test_ctrl_c_anywhere_inside_send_neither_hangs_nor_loses_nor_doubles(cluster, kind) -> None:
    producer = producer_of(cluster)
    sent = SENDS[kind]
    numbers = itertools.count()

    def work() -> None:
        for _ in range(4):  # more than one batch: full, sealed and new ones are among them
            sent(producer, b"interrupted %d" % next(numbers))

    between = [
        (b"between %d" % moment, producer.send("t", b"between %d" % moment))
        for moment in moments(work, step=3)
    ]
    producer.flush(LIMIT_S)
    assert all(future.done() for _, future in between)
    producer.close(LIMIT_S)
    found = stored(cluster)
    assert [value for value, times in found.items() if times > 1] == []
    assert {value for value, _ in between} <= found.keys()
    assert len(between) > 20


def test_ctrl_c_anywhere_inside_flush_leaves_a_producer_that_works(cluster) -> None:
    producer = producer_of(cluster, linger_ms=60_000)
    sent = [
        producer.send("t", b"%d" % moment)
        for moment in moments(lambda: producer.flush(LIMIT_S), step=2)
    ]
    assert not producer._core.accumulator.flushing
    producer.close(LIMIT_S)
    assert all(future.result(0) for future in sent)
    assert len(stored(cluster)) == len(sent) + 1
    assert max(stored(cluster).values()) == 1


def test_ctrl_c_anywhere_inside_close_lets_a_second_close_finish(cluster) -> None:
    for moment in itertools.count(0, 9):
        producer = producer_of(cluster, linger_ms=60_000)
        future = producer.send("t", b"%d" % moment)
        reached = interrupt(producer.close, moment)
        producer.close(LIMIT_S)
        assert future.done()
        with pytest.raises(ClosedError):
            producer.send("t", b"later")
        if not reached:
            break
    assert max(stored(cluster)[b"%d" % number] for number in range(0, moment + 1, 9)) == 1


@pytest.mark.parametrize("kind", ["bytes", "callback", "partition"])
def test_a_signal_handler_that_flushes_or_sends_inside_send_never_hangs(cluster, kind) -> None:
    producer = producer_of(cluster)
    refused = []

    def handler() -> None:
        for act in (lambda: producer.flush(LIMIT_S), lambda: producer.send("t", b"from handler")):
            try:
                act()
            except RuntimeError as error:
                refused.append(str(error))

    numbers = itertools.count()
    wanted = []

    def work() -> None:
        for _ in range(4):
            value = b"%d" % next(numbers)
            wanted.append(value)
            SENDS[kind](producer, value)

    for _ in moments(work, handler, step=11):
        pass
    producer.close(LIMIT_S)
    found = stored(cluster)
    assert {found[value] for value in wanted} == {1}
    assert all("set a flag in the handler" in text for text in refused)


def test_a_signal_handler_that_closes_inside_send_never_hangs(cluster) -> None:
    handed_over = 0
    for moment in itertools.count(0, 7):
        producer = producer_of(cluster)

        def work(producer=producer) -> None:
            for number in range(4):
                producer.send("t", b"%d" % number, partition=1)

        try:
            reached = interrupt(work, moment, partial(producer.close, LIMIT_S))
        except ClosedError:
            reached = True
        for thread in threading.enumerate():
            if thread.name == "headwater-close":
                handed_over += 1
                thread.join(LIMIT_S)
                assert not thread.is_alive()
        if not reached:
            producer.close(LIMIT_S)
            break
        with pytest.raises(ClosedError):
            producer.send("t", b"later")
    assert handed_over


# Python ignores an exception in the callback of a weak reference, where Ctrl-C may fall as well.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_anywhere_inside_a_transaction_leaves_all_of_it_or_nothing() -> None:
    numbers = itertools.count(1)
    member = headwater.ConsumerGroupMetadata("g", 1, "member")
    with serving(FakeCluster(1, partitions=2)) as cluster:
        fake = FakeTransactions(cluster)
        producer = headwater.Producer(bootstrap_servers=cluster.bootstrap, transactional_id="x")
        producer.init_transactions()

        def work() -> None:
            number = next(numbers)
            producer.begin_transaction()
            producer.send("t", b"%d" % number, partition=0)
            producer.send_offsets_to_transaction({("source", 0): number}, member)
            producer.commit_transaction()

        ended = 0
        for _ in moments(work, step=3):
            end_interrupted(producer)
            visible = [int(value) for value in fake.visible("t", 0)]
            assert visible == sorted(set(visible))
            assert list(fake.offsets.values()) == visible[-1:]
            ended += 1
        assert ended > 50
        assert int(fake.visible("t", 0)[-1]) == next(numbers) - 1
        producer.close(LIMIT_S)


def end_interrupted(producer: headwater.Producer) -> None:
    """Abort what Ctrl-C left, as a program would; finish a commit that has begun."""
    for call in (producer.abort_transaction, producer.commit_transaction):
        try:
            call()
        except IllegalStateError:
            continue
        return
