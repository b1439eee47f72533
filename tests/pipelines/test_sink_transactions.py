"""Attempts of tasks that write transactions, against a real broker and without Spark."""

import threading

import pyarrow
import pytest

from headwater import Admin
from headwater.pipelines.topic_sink import transactional_attempt as module
from headwater.pipelines.topic_sink.ledger import Ledger, QueryFencedError, TransactionsBegunError
from headwater.pipelines.topic_sink.origin import RecordOrigin
from headwater.pipelines.topic_sink.sink_plan import SinkPlan, TopicWriteError
from headwater.pipelines.topic_sink.task_attempt import TaskAttempt
from headwater.pipelines.topic_sink.transactional_attempt import TransactionalAttempt
from tests.pipelines.read_back import committed_of, records_of

BATCH = 5
PATIENCE_S = 60


@pytest.fixture
def attempt(bootstrap):
    """Make an attempt of a task: `attempt(topic, task=0, run="r", batch=BATCH)`."""

    def make(target, *, task=0, run="r", batch=BATCH, columns=("value",), **settings):
        fixed = None if "topic" in columns else target
        plan = SinkPlan({"bootstrap_servers": bootstrap, **settings}, fixed, frozenset(columns))
        return TransactionalAttempt(plan, RecordOrigin(f"query-{target}", batch, task), run)

    return make


def rows(*values, names=("value",)):
    table = [value if isinstance(value, tuple) else (value,) for value in values]
    columns = zip(*table, strict=True)
    return pyarrow.RecordBatch.from_arrays([pyarrow.array(column) for column in columns], names)


@pytest.fixture
def write(attempt):
    """Write rows as one attempt that succeeds."""

    def done(target, *values, **which):
        with attempt(target, **which) as writing:
            for value in values:
                writing.send(rows(value, names=which.get("columns", ("value",))))
            return writing.finish()

    return done


@pytest.fixture
def fail(attempt):
    """Store rows in an attempt that then fails."""

    def failed(target, *values, **which):
        def write():
            with attempt(target, **which) as writing:
                writing.send(rows(*values))
                writing._await_oldest()
                raise ConnectionError("on purpose")

        with pytest.raises(ConnectionError):
            write()

    return failed


@pytest.fixture
def write_plain(bootstrap):
    """Write rows without transactions as one attempt that succeeds."""

    def done(target, *values, task=0, run="old", batch=BATCH):
        plan = SinkPlan({"bootstrap_servers": bootstrap}, target, frozenset({"value"}))
        origin = RecordOrigin(f"query-{target}", batch, task)
        with TaskAttempt(plan, origin, run, 0) as writing:
            writing.send(rows(*values))
            return writing.finish()

    return done


@pytest.fixture
def ledger(bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield lambda target: Ledger(admin, f"query-{target}")


@pytest.fixture(autouse=True)
def no_reading(monkeypatch):
    """Nobody may read a target topic back."""

    def refuse(*_):
        raise AssertionError("a tail was read")

    monkeypatch.setattr(module, "read_back", refuse)


def test_rows_are_visible_when_their_task_has_committed_and_not_before(
    attempt, write, topic, bootstrap
):
    name = topic(partitions=2)
    with attempt(name) as open_one:
        open_one.send(rows("a", "b"))
        open_one._await_oldest()
        assert len(records_of(bootstrap, name)) == 2
        assert committed_of(bootstrap, name) == []
        write(name, "c", task=1)
        open_one.finish()
    assert committed_of(bootstrap, name) == [b"a", b"b", b"c"]
    assert all(record.headers == () for record in records_of(bootstrap, name))


def test_an_attempt_that_fails_leaves_nothing_and_the_next_one_writes_all(
    fail, write, topic, bootstrap
):
    name = topic()
    fail(name, "a", "b")
    assert len(records_of(bootstrap, name)) == 2
    assert committed_of(bootstrap, name) == []
    assert write(name, "a", "b", "c").found == 0
    assert committed_of(bootstrap, name) == [b"a", b"b", b"c"]


def test_a_repeated_task_of_the_same_run_is_skipped_whatever_its_rows_are(write, topic, bootstrap):
    name = topic()
    write(name, "a", "b")
    again = write(name, "a", "now is 2")
    assert (again.rows, again.found, again.topics) == (2, 2, (name,))
    assert committed_of(bootstrap, name) == [b"a", b"b"]


def test_a_restarted_driver_skips_parts_with_the_same_rows_in_any_order(write, topic, bootstrap):
    name = topic(partitions=2)
    write(name, "a", "b", "b")
    again = write(name, "b", "a", "b", run="restarted")
    assert (again.rows, again.found) == (3, 3)
    write(name, "c", task=1, run="restarted")
    assert committed_of(bootstrap, name) == [b"a", b"b", b"b", b"c"]


def test_rows_that_moved_or_changed_are_written_again_rather_than_lost(
    write, topic, bootstrap, caplog
):
    name = topic()
    write(name, "1", "4")
    assert not caplog.text
    write(name, "2", "3", run="moved")
    told = f"query query-{name}, batch {BATCH}, task 0: an earlier run wrote other rows to {name};"
    assert told in caplog.text
    write(name, "1", "4", task=1, run="moved")
    assert set(committed_of(bootstrap, name)) == {b"1", b"2", b"3", b"4"}


def test_a_finished_batch_is_not_written_again_by_any_run(write, ledger, topic, bootstrap):
    name = topic()
    done = write(name, "a")
    ledger(name).finish(done.topics, BATCH, done.run)
    again = write(name, "a", "changed", run="restarted")
    assert (again.rows, again.found, again.topics) == (2, 2, ())
    assert committed_of(bootstrap, name) == [b"a"]
    write(name, "next", run="restarted", batch=BATCH + 1)
    assert committed_of(bootstrap, name) == [b"a", b"next"]


def test_a_restarted_driver_finishes_a_batch_without_rows(write, ledger, topic, bootstrap):
    name = topic()
    done = write(name, "a")
    ledger(name).finish(done.topics, BATCH, done.run)
    empty = write(name, run="restarted", batch=BATCH + 1)
    assert (empty.rows, empty.topics) == (0, (name,))
    ledger(name).finish(empty.topics, BATCH + 1, empty.run)
    assert write(name, "b", run="later", batch=BATCH + 1).found == 1
    assert committed_of(bootstrap, name) == [b"a"]


def test_a_batch_whose_group_offsets_have_expired_is_written_again(write, ledger, topic, bootstrap):
    name = topic()
    done = write(name, "a")
    ledger(name).finish(done.topics, BATCH, done.run)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_groups([f"headwater-sink.query-{name}", f"headwater-sink.query-{name}.0"])
    assert write(name, "a", run="restarted").found == 0
    assert committed_of(bootstrap, name) == [b"a", b"a"]


def test_topics_of_a_column_are_one_transaction(write, topic, bootstrap):
    left, right = topic("left"), topic("right")
    columns = ("topic", "value")
    with pytest.raises(TopicWriteError, match="topic of a row is null"):
        write(left, (left, "a"), (None, "b"), columns=columns)
    for run in ("r", "restarted"):
        write(left, (left, "a"), (right, "b"), (left, "c"), columns=columns, run=run)
        assert committed_of(bootstrap, left) == [b"a", b"c"]
        assert committed_of(bootstrap, right) == [b"b"]


def test_headers_and_partitions_are_written_and_compared(write, topic, bootstrap):
    name = topic(partitions=2)
    columns = ("value", "headers", "partition")
    kind = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
    first, second = (
        (pyarrow.scalar("v"), pyarrow.scalar([{"key": "h", "value": value}], kind), 1)
        for value in (b"1", b"2")
    )
    for number, row in enumerate((first, first, second)):
        write(name, row, columns=columns, run=f"run-{number}")
    found = [(record.partition, record.headers) for record in records_of(bootstrap, name, True)]
    assert found == [(1, (("h", b"1"),)), (1, (("h", b"2"),))]


def test_a_second_driver_fences_the_first_one(attempt, write, ledger, topic, bootstrap):
    name = topic()
    message = f"query query-{name} is fenced.*{name} in batch {BATCH}; stop one of the two"
    with attempt(name, run="first") as first:
        first.send(rows("a"))
        first._await_oldest()
        write(name, "b", run="second")
        with pytest.raises(QueryFencedError, match=message):
            first.finish()
    with pytest.raises(QueryFencedError, match=message):
        write(name, "c", task=1, run="first")
    with pytest.raises(QueryFencedError, match=message):
        ledger(name).finish([name], BATCH, "first")
    assert committed_of(bootstrap, name) == [b"b"]


def test_the_slower_of_two_attempts_waits_for_the_other_and_reports_its_rows(
    attempt, topic, bootstrap
):
    name = topic()
    with attempt(name) as slow, attempt(name) as fast:
        slow.send(rows("a"))
        fast.send(rows("a"))
        ended = []
        waiting = threading.Thread(target=lambda: ended.append(slow.finish()))
        waiting.start()
        fast.send(rows("b"))
        assert fast.finish().found == 0
        waiting.join(PATIENCE_S)
    assert [one.topics for one in ended] == [(name,)]
    assert committed_of(bootstrap, name) == [b"a", b"b"]


def test_an_attempt_whose_successor_died_fails_to_be_tried_again(
    attempt, fail, topic, bootstrap, monkeypatch
):
    monkeypatch.setattr(module, "_IDLE_TURNS", 1)
    name = topic()
    with attempt(name) as zombie:
        zombie.send(rows("a"))
        zombie._await_oldest()
        fail(name, "a")
        with pytest.raises(TopicWriteError, match="newer producer"):
            zombie.finish()
    assert committed_of(bootstrap, name) == []


def test_a_batch_that_was_begun_without_transactions_goes_on_with_them(
    fail, write, write_plain, topic, bootstrap, monkeypatch
):
    monkeypatch.undo()  # the tail must be read here
    name = topic(partitions=2)
    write_plain(name, "a", "b")
    write_plain(name, "c", task=1)
    fail(name, "a", "b", "d", run="new")
    assert write(name, "a", "b", "d", run="newer").found == 2
    assert write(name, "c", task=1, run="newer").found == 1
    assert write(name, "a", "b", "d", run="newest").found == 3
    assert committed_of(bootstrap, name) == [b"a", b"b", b"c", b"d"]


def test_a_batch_that_was_begun_with_transactions_is_refused_without_them(
    write, write_plain, ledger, topic, bootstrap
):
    name = topic()
    write(name, "a", "b", run="old")
    for number in range(2):  # a task that fails leaves a mark, which must not hide the transactions
        with pytest.raises(
            TransactionsBegunError, match=rf"batch {BATCH} to topic {name} .* finish"
        ):
            write_plain(name, "a", "b", run=f"plain-{number}")
    again = write(name, "a", "b", run="new")
    assert again.found == 2
    ledger(name).finish(again.topics, BATCH, again.run)
    assert write_plain(name, "a", "b", run="plain").found == 2
    write_plain(name, "c", run="plain", batch=BATCH + 1)
    assert [record.value for record in records_of(bootstrap, name, True)] == [b"a", b"b", b"c"]


def test_a_batch_with_some_transactions_is_refused_without_them(
    fail, write, write_plain, ledger, topic, bootstrap, monkeypatch
):
    monkeypatch.undo()  # the tail must be read here
    name = topic()
    write_plain(name, "a")
    ledger(name).tear([name], BATCH)
    write(name, "a", "b", run="new")
    with pytest.raises(TransactionsBegunError):
        write_plain(name, "a", "b", run="plain")
    assert write(name, "a", "b", run="newer").found == 2
    assert committed_of(bootstrap, name) == [b"a", b"b"]


def test_a_task_that_takes_longer_than_its_transaction_may_is_aborted_and_fails(
    attempt, write, topic, bootstrap, monkeypatch
):
    monkeypatch.setattr(module, "_IDLE_TURNS", 1)
    name = topic()
    with (
        attempt(name, transaction_timeout_ms=100) as slow,
        Admin(bootstrap_servers=bootstrap) as at,
    ):
        slow.send(rows("a"))
        slow._await_oldest()
        group = f"headwater-sink.query-{name}.0"
        while at.describe_transactions([group])[group].state != "CompleteAbort":
            pass
        with pytest.raises(TopicWriteError, match=r"transaction\.timeout\.ms \(100 ms\)"):
            slow.finish()
    assert committed_of(bootstrap, name) == []
    assert write(name, "a").found == 0
    assert committed_of(bootstrap, name) == [b"a"]


def test_a_timeout_above_that_of_the_brokers_is_refused_with_the_remedy(write, topic):
    with pytest.raises(TopicWriteError, match=r"kafka\.transaction\.timeout\.ms to at most"):
        write(topic(), "a", transaction_timeout_ms=10**9)
