"""Attempts of tasks against a real broker, without Spark: who reads back, and who writes what."""

import pyarrow
import pytest

from headwater import Admin
from headwater.pipelines.topic_sink import task_attempt as sink_task
from headwater.pipelines.topic_sink.ledger import Ledger
from headwater.pipelines.topic_sink.origin import RecordOrigin
from headwater.pipelines.topic_sink.sink_plan import SinkPlan, TopicWriteError
from headwater.pipelines.topic_sink.task_attempt import TaskAttempt
from tests.pipelines.read_back import records_of, values_of

BATCH = 5


@pytest.fixture
def attempt(bootstrap, monkeypatch):
    """Write rows as one attempt of a task: `attempt(topic, rows, task=0, number=0, run="r")`."""
    monkeypatch.setattr(sink_task, "LATE_WRITE_S", 0)

    def write(target, rows, *, task=0, number=0, run="r", batch=BATCH, fail=False):
        columns = frozenset({"value"} if isinstance(rows[0], str) else {"topic", "value"})
        made = SinkPlan(
            {"bootstrap_servers": bootstrap},
            target if isinstance(rows[0], str) else None,
            columns,
        )
        origin = RecordOrigin(f"query-{target}", batch, task)
        with TaskAttempt(made, origin, run, number) as writing:
            for row in rows:
                values = [row] if isinstance(row, str) else list(row)
                writing.send(
                    pyarrow.RecordBatch.from_arrays(
                        [pyarrow.array([value]) for value in values],
                        ["value"] if isinstance(row, str) else ["topic", "value"],
                    )
                )
            if fail:
                raise ConnectionError("on purpose")
            return writing.finish()

    return write


@pytest.fixture
def finish(bootstrap):
    def done(target, *topics, batch=BATCH):
        with Admin(bootstrap_servers=bootstrap) as admin:
            Ledger(admin, f"query-{target}").finish(topics or [target], batch)

    return done


@pytest.fixture
def no_reading(monkeypatch):
    """From now on nobody may read a tail."""

    def forbid():
        def refuse(*_):
            raise AssertionError("a tail was read")

        monkeypatch.setattr(sink_task, "read_back", refuse)

    return forbid


def test_a_quiet_run_reads_nothing_even_where_others_write(
    attempt, finish, topic, produce, bootstrap, no_reading
):
    no_reading()
    name = topic(partitions=2)
    produce(name, ["somebody else's"])
    for batch in (0, 1):
        for task in (0, 1):
            attempt(name, [f"{batch}-{task}"], task=task, batch=batch)
        produce(name, ["somebody else's"])
        finish(name, batch=batch)
    assert len(values_of(bootstrap, name)) == 7


def test_a_finished_batch_is_not_written_again_whatever_its_rows_are(
    attempt, finish, topic, bootstrap, no_reading
):
    name = topic()
    attempt(name, ["a", "b"])
    finish(name)
    no_reading()
    again = attempt(name, ["a", "b", "changed"], run="another", number=2)
    assert (again.rows, again.found, again.topics) == (3, 3, ())
    assert values_of(bootstrap, name) == [b"a", b"b"]


def test_an_attempt_after_one_that_failed_writes_the_rest(attempt, topic, bootstrap):
    name = topic(partitions=2)
    with pytest.raises(ConnectionError):
        attempt(name, ["a", "b"], fail=True)
    again = attempt(name, ["a", "b", "c"], number=1)
    assert (again.rows, again.found) == (3, 2)
    assert values_of(bootstrap, name) == [b"a", b"b", b"c"]


def test_a_stage_that_is_repeated_counts_attempts_anew_and_still_finds_its_rows(
    attempt, topic, bootstrap
):
    name = topic()
    attempt(name, ["other task"], task=1)
    with pytest.raises(ConnectionError):
        attempt(name, ["a"], fail=True)
    attempt(name, ["a", "b"], number=0)
    assert values_of(bootstrap, name) == [b"a", b"b", b"other task"]


def test_a_driver_that_starts_again_finds_rows_in_another_order_and_equal_ones(
    attempt, topic, bootstrap
):
    name = topic(partitions=2)
    attempt(name, ["a", "same", "same"])
    attempt(name, ["same", "new", "same", "a", "same"], run="restarted")
    assert values_of(bootstrap, name) == [b"a", b"new", b"same", b"same", b"same"]
    origins = [dict(record.headers)["headwater.origin"] for record in records_of(bootstrap, name)]
    assert len(set(origins)) == 5


def test_rows_that_changed_between_two_attempts_are_repeated_rather_than_lost(
    attempt, topic, bootstrap
):
    name = topic()
    attempt(name, ["now is 1", "x"])
    attempt(name, ["now is 2", "x"], run="restarted")
    assert values_of(bootstrap, name) == [b"now is 1", b"now is 2", b"x"]


def test_topics_of_a_column_are_each_recalled(attempt, finish, topic, bootstrap):
    left, right = topic("left"), topic("right")
    attempt(left, [(left, "a"), (right, "b")])
    attempt(left, [(left, "a"), (right, "b"), (right, "c")], run="restarted")
    finish(left, left, right)
    attempt(left, [(left, "a"), (right, "b"), (right, "c")], run="again")
    assert values_of(bootstrap, left) == [b"a"]
    assert values_of(bootstrap, right) == [b"b", b"c"]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    attempt, finish, topic, broker, bootstrap
):
    name = topic()
    attempt(name, ["old"] * 5, batch=BATCH - 1)
    finish(name, batch=BATCH - 1)
    broker.delete_topic(name)
    broker.create_topic(name)
    attempt(name, ["a"])
    attempt(name, ["a", "b"], run="restarted")
    assert values_of(bootstrap, name) == [b"a", b"b"]


def test_a_plain_write_that_is_repeated_writes_its_rows_again(topic, bootstrap):
    name = topic()
    plan = SinkPlan({"bootstrap_servers": bootstrap}, name, frozenset({"value"}))
    for number in range(2):
        with TaskAttempt(plan, None, "r", number) as writing:
            writing.send(pyarrow.RecordBatch.from_arrays([pyarrow.array(["a", "b"])], ["value"]))
            assert writing.finish().found == 0
    assert values_of(bootstrap, name) == [b"a", b"a", b"b", b"b"]


def test_a_row_without_a_topic_is_refused(attempt, topic):
    name = topic()
    with pytest.raises(TopicWriteError, match="topic of a row is null"):
        attempt(name, [(None, "a")])


def test_a_second_attempt_whose_first_never_began_leaves_word_that_it_writes(
    attempt, finish, topic, bootstrap
):
    name = topic()
    attempt(name, ["earlier"], batch=BATCH - 1)
    finish(name, batch=BATCH - 1)
    attempt(name, ["a"], number=1)
    attempt(name, ["a"], run="the driver was killed")
    assert values_of(bootstrap, name) == [b"a", b"earlier"]


def test_a_failure_before_the_first_row_makes_a_repeated_stage_look_for_a_killed_task(
    attempt, topic, bootstrap
):
    name = topic()
    attempt(name, ["a"])  # and its executor is gone, with the shuffle files that others need
    with (
        pytest.raises(ConnectionError),
        TaskAttempt(
            SinkPlan({"bootstrap_servers": bootstrap}, name, frozenset({"value"})),
            RecordOrigin(f"query-{name}", BATCH, 0),
            "r",
            1,
        ),
    ):
        raise ConnectionError("no shuffle files")
    attempt(name, ["a"], number=0)
    assert values_of(bootstrap, name) == [b"a"]
