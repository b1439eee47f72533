"""Expectations on a real session: who passes, who is set aside, who ends the batch."""

import json

import pytest
from deltalake import DeltaTable

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.declaring.declare import Expectation
from headwater.pipelines.declaring.upgrade import rules_digest
from headwater.pipelines.running.dead_letters import RefusedRows
from headwater.pipelines.running.quality import REASONS, ExpectationError, Quality, QualityGate
from headwater.pipelines.tables.writing import TableSink
from headwater.pipelines.targets import parse_target
from tests.pipelines.lake import records_of, rows_of

ROWS = [(1, 5.0), (2, -1.0), (None, 7.0), (4, None), (None, -3.0)]


@pytest.fixture
def rows(spark):
    return spark.createDataFrame(ROWS, "user BIGINT, price DOUBLE")


def gate(*expectations, aside=True):
    """A gate, what it passed on and what it set aside."""
    quality, good, bad = Quality(expectations), [], []

    def keep(kept):
        def write(batch, batch_id):
            kept.extend((batch_id, tuple(row)) for row in batch.collect())

        return write

    return quality, QualityGate(quality, keep(good), [keep(bad)] if aside else []), good, bad


def test_dropped_rows_are_set_aside_with_every_reason_they_have(rows):
    quality, through, good, bad = gate(
        Expectation("has a user", "user IS NOT NULL", "drop"),
        Expectation("price is positive", "price > 0", "drop"),
    )
    through(quality.judged(rows), 7)
    assert sorted(good) == [(7, (1, 5.0))]
    reasons = {row[:2]: row[2] for _, row in bad}
    assert reasons == {
        (2, -1.0): ["price is positive"],
        (None, 7.0): ["has a user"],
        (4, None): ["price is positive"],
        (None, -3.0): ["has a user", "price is positive"],
    }


def test_a_condition_that_is_null_is_not_met(rows):
    quality = Quality([Expectation("price is positive", "price > 0", "drop")])
    assert (4, None) not in {tuple(row) for row in quality.good(quality.judged(rows)).collect()}


def test_a_warning_only_counts(rows):
    quality, through, good, bad = gate(Expectation("price is positive", "price > 0", "warn"))
    judged = quality.judged(rows)
    through(judged, 0)
    assert len(good) == len(ROWS)
    assert good[0][1] == (1, 5.0)
    assert bad == []
    assert quality.counts(judged) == {"price is positive": 3}


def test_a_row_that_must_not_be_there_ends_the_batch_before_anything_is_written(rows):
    quality, through, good, bad = gate(
        Expectation("has a user", "user IS NOT NULL", "drop"),
        Expectation("price is positive", "price > 0", "fail"),
    )
    with pytest.raises(ExpectationError) as failed:
        through(quality.judged(rows), 0)
    assert good == bad == []
    told = str(failed.value)
    assert told.startswith("3 rows fail 'price is positive'; one of them is {")
    assert json.loads(told[told.index("{") : told.rindex("}") + 1])["price"] in (-1.0, -3.0, None)


def test_rows_that_meet_a_failing_expectation_pass(rows):
    quality, through, good, _ = gate(Expectation("small", "coalesce(price, 0) < 100", "fail"))
    through(quality.judged(rows), 0)
    assert len(good) == len(ROWS)


def test_dropped_rows_without_a_place_are_only_counted(rows):
    quality, through, good, bad = gate(
        Expectation("has a user", "user IS NOT NULL", "drop"), aside=False
    )
    through(quality.judged(rows), 0)
    assert len(good) == 3
    assert bad == []


def test_names_may_hold_quotes_and_conditions_may_be_compound(rows):
    name = 'the user\'s \\ "id"'
    quality = Quality([Expectation(name, "user = 1 OR user = 2", "drop")])
    bad = quality.bad(quality.judged(rows)).collect()
    assert {tuple(row[REASONS]) for row in bad} == {(name,)}
    assert len(bad) == 3


def test_without_expectations_nothing_is_added(rows):
    quality, through, good, _ = gate()
    assert quality.judged(rows) is rows
    through(rows, 3)
    assert len(good) == len(ROWS)


def test_a_batch_repeated_under_other_rules_loses_no_bad_row_and_under_the_same_doubles_none(
    spark, bootstrap, topic, tmp_path
):
    letters, place = topic("letters"), tmp_path / "refused"
    old = Expectation("has a user", "user IS NOT NULL", "drop")
    new = Expectation("price is positive", "price > 0", "drop")
    rows = spark.createDataFrame(ROWS, "user BIGINT, price DOUBLE")
    for expectations in [(old,), (old,), (old, new), (old, new)]:
        told = {"query": "q", "expectations": [[e.name, e.condition] for e in expectations]}
        rules, quality = rules_digest(told), Quality(expectations)
        bad = quality.bad(quality.judged(rows))
        refused = RefusedRows("flow", "flow", rules, "query")
        refused.into_table(parse_target(f"delta:{place}"))(bad, 0)
        refused.into_topic(ConnectionSettings(bootstrap), letters)(bad, 0)
    twice, once = [(None, -3.0), (None, 7.0)], [(2, -1.0), (4, None)]
    wanted = sorted([*twice, *twice, *once], key=str)
    assert sorted(zip(*table_columns(place, "user", "price"), strict=True), key=str) == wanted
    assert len(records_of(bootstrap, letters)) == len(wanted)


def test_a_batch_that_dies_between_two_of_its_targets_is_whole_and_single_when_it_is_repeated(
    spark, bootstrap, topic, tmp_path
):
    letters, aside, kept = topic("letters"), tmp_path / "refused", tmp_path / "kept"
    rows = spark.createDataFrame(ROWS, "user BIGINT, price DOUBLE")
    quality = Quality([Expectation("has a user", "user IS NOT NULL", "drop")])
    die_before = ["letters", "table"]

    def dying(name, write):
        def call(batch, batch_id):
            if die_before[:1] == [name]:
                raise ConnectionError(f"killed before the {die_before.pop(0)}")
            write(batch, batch_id)

        return call

    def run():
        """A driver of the query, which repeats the batch."""
        refused = RefusedRows("flow", "flow", "rules", "query")
        aside_of = [
            refused.into_table(parse_target(f"delta:{aside}")),
            dying("letters", refused.into_topic(ConnectionSettings(bootstrap), letters)),
        ]
        good = dying("table", TableSink(f"delta:{kept}", app="query"))
        QualityGate(quality, good, aside_of)(quality.judged(rows), 0)

    def held():
        found = [len(rows_of(place)) if place.exists() else 0 for place in (aside, kept)]
        return (found[0], len(records_of(bootstrap, letters)), found[1])

    for left in [(2, 0, 0), (2, 2, 0)]:
        with pytest.raises(ConnectionError, match="killed before"):
            run()
        assert held() == left
    for _ in range(2):  # the second time as if it was killed before Spark logged the batch
        run()
        assert held() == (2, 2, 3)


def table_columns(place, *names):
    table = DeltaTable(str(place)).to_pyarrow_table()
    return [table.column(name).to_pylist() for name in names]
