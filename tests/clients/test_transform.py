"""`transform` on both brokers: each record counts once, whatever ends a run."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headwater
from headwater import aio
from headwater.errors import AbortableTransactionError, ProducerFencedError, RecordTooLargeError
from tests.clients.broker_under_test import in_thread, poll_until, until, values_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "transactions" / "copier.py"
RECORDS = 200
face = pytest.mark.parametrize("face", ["blocking", "asyncio"])


@pytest.fixture
def source(broker, topic):
    broker.fill(topic, [b"%d" % number for number in range(RECORDS)], key=lambda n: b"%d" % n)
    return topic


@pytest.fixture
def target(broker):
    return broker.topic(partitions=2)


@pytest.fixture
def transform(bootstrap, group, source, target):
    """Runs `transform` of either face until all records are committed, or an error."""
    over = threading.Event()
    done = committed_all(bootstrap, group, source, over)

    def run(function, face="blocking", target=target, **options):
        options = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "transactional_id": target,
            "stop": done.is_set,
            **options,
        }
        if face == "blocking":
            return headwater.transform(source, target, function, **options)

        async def awaited(record):
            return function(record)

        return asyncio.run(aio.transform(source, target, awaited, **options))

    yield run
    over.set()


def committed_all(bootstrap, group, source, over) -> threading.Event:
    """Set once the group has committed every record; the watch ends with `over`."""
    done = threading.Event()

    def watch() -> None:
        with headwater.Admin(bootstrap_servers=bootstrap) as admin:
            while not over.wait(0.01) and not done.is_set():
                rows = admin.group_offsets(group).items()
                if sum(row.offset for name, row in rows if name.topic == source) >= RECORDS:
                    done.set()

    in_thread(watch)
    return done


def results(bootstrap, target, count) -> list[bytes]:
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([(target, 0), (target, 1)])
        return sorted(values_of([*poll_until(count, consumer), *consumer.poll(0.2)]), key=int)


NUMBERS = [b"%d" % number for number in range(RECORDS)]


@face
def test_each_record_is_transformed_once(bootstrap, target, transform, face) -> None:
    assert transform(lambda record: record.value, face, max_records=30) == RECORDS
    assert results(bootstrap, target, RECORDS) == NUMBERS


@face
def test_a_function_may_return_nothing_several_values_or_records(
    bootstrap, broker, target, transform, face
) -> None:
    other = broker.topic(partitions=2)

    def work(record):
        number = int(record.value)
        if number % 4 == 0:
            return None
        if number % 4 == 1:
            return [record.value, record.value]
        if number % 4 == 2:
            return headwater.ProducerRecord(other, record.value)
        return (value for value in [record.value])

    transform(work, face)
    assert results(bootstrap, target, RECORDS * 3 // 4) == sorted(
        [*NUMBERS[1::4], *NUMBERS[1::4], *NUMBERS[3::4]], key=int
    )
    assert results(bootstrap, other, RECORDS // 4) == NUMBERS[2::4]


@face
def test_what_the_function_raises_ends_the_run_and_undoes_its_transaction(
    bootstrap, target, transform, face
) -> None:
    def work(record):
        if record.value == b"77" and not repaired:
            raise ZeroDivisionError
        return record.value

    repaired = False
    with pytest.raises(ZeroDivisionError):
        transform(work, face, max_records=20)
    repaired = True
    transform(work, face, max_records=20)
    assert results(bootstrap, target, RECORDS) == NUMBERS


def test_a_result_that_can_never_be_stored_ends_the_run(broker, transform) -> None:
    small = broker.topic(max_message_bytes="2000")
    with pytest.raises(AbortableTransactionError) as told:
        transform(lambda _: bytes(5000), target=small)
    assert isinstance(told.value.__cause__, RecordTooLargeError)


def test_members_that_come_and_go_lose_and_repeat_nothing(bootstrap, target, transform) -> None:
    begun, errors = threading.Event(), []

    def member(number: int, **options) -> None:
        def work(record):
            begun.set()
            return record.value

        try:
            transform(
                work, transactional_id=f"{target}-{number}", max_records=5, max_wait_s=0, **options
            )
        except BaseException as problem:
            errors.append(problem)
            raise

    leaving = threading.Event()
    threads = [in_thread(lambda: member(1, stop=leaving.is_set))]
    assert begun.wait(60)
    threads += [in_thread(lambda number=number: member(number)) for number in (2, 3)]
    until("some results are there", lambda: results(bootstrap, target, 1))
    leaving.set()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert results(bootstrap, target, RECORDS) == NUMBERS


def test_a_run_that_is_removed_from_its_group_undoes_what_another_has_done(
    bootstrap, target, transform
) -> None:
    begun, done = threading.Event(), threading.Event()

    def slow(record):
        begun.set()
        assert done.wait(60)
        return record.value

    late = {"max_poll_interval_ms": 400, "auto_offset_reset": "earliest"}
    slower = in_thread(
        lambda: transform(slow, consumer=late, transactional_id=f"{target}-slow", max_records=50)
    )
    assert begun.wait(60)
    transform(lambda record: record.value)  # all of it, once the other one is removed
    done.set()
    slower.join(60)
    assert not slower.is_alive()
    assert results(bootstrap, target, RECORDS) == NUMBERS


def test_a_run_whose_successor_has_begun_ends_with_an_error(bootstrap, target, transform) -> None:
    at_work, go_on, errors = threading.Event(), threading.Event(), []

    def slow(record):
        at_work.set()
        go_on.wait(60)
        return record.value

    def zombie() -> None:
        with contextlib.suppress(ProducerFencedError):
            transform(slow, consumer={"group_instance_id": "a"})
            errors.append("the zombie went on")

    thread = in_thread(zombie)
    assert at_work.wait(60)
    successor = in_thread(
        lambda: transform(lambda record: record.value, consumer={"group_instance_id": "a"})
    )
    until("a result is there", lambda: results(bootstrap, target, 1))
    go_on.set()
    thread.join(60)
    successor.join(60)
    assert errors == []
    assert results(bootstrap, target, RECORDS) == NUMBERS


def test_a_run_killed_at_many_steps_and_started_again_counts_each_record_once(
    headwater_under_test,
) -> None:
    broker, bootstrap = headwater_under_test, headwater_under_test.bootstrap
    source, target, records = broker.topic(), broker.topic(), 6
    broker.fill(source, [b"v"] * records)
    command = [sys.executable, "-m", "tests.clients.kill_transform", bootstrap, source, target]
    done = subprocess.run(
        [*command, str(records), "13"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    last = int(done.stdout)
    assert last > 50
    wanted = sorted(
        b"%d:%d" % (step, offset) for step in range(1, last + 1, 13) for offset in range(records)
    )
    with headwater.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([(target, 0)])
        assert sorted(values_of(poll_until(len(wanted), consumer))) == wanted


def test_the_example_copies_until_it_is_told_to_stop(headwater_under_test) -> None:
    broker, bootstrap = headwater_under_test, headwater_under_test.bootstrap
    source, target = broker.topic(), broker.topic(partitions=2)
    broker.fill(source, NUMBERS)
    command = [sys.executable, EXAMPLE, bootstrap, source, target, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert results(bootstrap, target, RECORDS) == NUMBERS
        running.send_signal(signal.SIGTERM)
        assert running.communicate(timeout=60)[0] == f"{RECORDS} records copied\n"


# -- arguments


def test_arguments_that_cannot_be_are_refused() -> None:
    async def awaited(_):
        pass

    needed = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "transactional_id": "x"}
    for function, options, said in (
        (awaited, {}, "headwater.aio.transform"),
        (None, {}, "needs a function"),
        (str, {"max_records": 0}, "at least 1"),
        (str, {"max_wait_s": -1}, "0 or more"),
        (str, {"consumer": {"group.id": "h"}}, "sets group.id itself"),
        (str, {"producer": {"transactional_id": "y"}}, "sets transactional_id itself"),
    ):
        with pytest.raises((TypeError, ValueError, headwater.ConfigError), match=said):
            headwater.transform("a", "b", function, **needed, **options)
    with pytest.raises(TypeError, match=r"headwater\.transform"):
        asyncio.run(aio.transform("a", "b", lambda _: None, **needed))
