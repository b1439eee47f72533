"""Whole pipelines on one session: once and again, continuously, and when something fails."""

import signal
import threading
import time
from pathlib import Path

import pytest

from headwater.pipelines.running import runner
from headwater.pipelines.running.flow_errors import FlowError
from headwater.pipelines.running.preflight import NotReadyError
from headwater.pipelines.running.runner import run
from tests.pipelines.lake import committed, headers_of, records_of, rows_of
from tests.pipelines.projects import copied, shop, write_project

FIRST = ['{"id": 1, "price": 10}', '{"id": 2, "price": 2.5}', '{"price": 3}', '{"id": 4}']
MORE = ['{"id": 5, "price": 7}', '{"id": 6, "price": -1}']
PATIENCE_S = 300


def test_a_second_run_brings_only_what_is_new(spark, bootstrap, topic, produce, tmp_path):
    orders = topic("orders", partitions=2)
    project = shop(tmp_path / "shop", bootstrap, orders)
    lake = project.storage
    produce(orders, FIRST)
    said = []
    report = run(project, once=True, spark=spark, say=said.append)

    promised = [line.partition(" if ")[0] for line in said if "exactly once" in line]
    assert sorted(promised) == [
        f"topic {orders}.{name} gets each row exactly once" for name in ("dead", "out")
    ]
    assert len(rows_of(lake / "bronze")) == 4
    assert rows_of(lake / "silver", "id", "price") == [(1, 10.0), (2, 2.5)]
    assert rows_of(lake / "totals") == [(2, 12.5)]
    assert {flow for (flow,) in rows_of(lake / "refused", "_flow")} == {"silver"}
    assert {tuple(reasons) for (reasons,) in rows_of(lake / "refused", "_reasons")} == {
        ("has an id",),
        ("price is round", "price is positive"),
    }
    assert report.flow("silver").failed == {
        "price is round": 2,
        "has an id": 1,
        "price is positive": 1,
        "partition can name a folder": 0,
    }
    assert report.flow("bronze").lag == 0
    assert committed(bootstrap, "shop.bronze")[(orders, 0)] >= 0
    assert sum(committed(bootstrap, "shop.bronze").values()) == 4
    letters = records_of(bootstrap, f"{orders}.dead")
    assert sorted(headers_of(each)["dead-letter.error-message"] for each in letters) == [
        "has an id",
        "price is round; price is positive",
    ]
    assert {headers_of(each)["dead-letter.topic"] for each in letters} == {orders}
    assert sorted(record.key for record in records_of(bootstrap, f"{orders}.out")) == [b"1", b"2"]

    produce(orders, MORE)
    report = run(project, once=True, spark=spark)
    assert report.flow("bronze").rows == 2
    assert rows_of(lake / "silver", "id") == [(1,), (2,), (5,)]
    assert rows_of(lake / "totals") == [(3, 19.5)]
    assert len(records_of(bootstrap, f"{orders}.dead")) == 3
    assert len(records_of(bootstrap, f"{orders}.out")) == 3


def test_a_refresh_begins_anew_and_must_be_whole(spark, bootstrap, topic, produce, tmp_path):
    events = topic("events")
    project = copied(tmp_path / "again", bootstrap, events)
    produce(events, ["a", "b"])
    run(project, once=True, spark=spark)
    with pytest.raises(
        NotReadyError, match="other flows read or fill raw, which is emptied: add --refresh co"
    ):
        run(project, spark=spark, refresh=["raw"])
    with pytest.raises(NotReadyError, match="no such flow; did you mean raw"):
        run(project, spark=spark, refresh=["rew"])
    said = []
    run(project, spark=spark, refresh=["raw", "copy"], say=said.append)
    assert "raw starts from the beginning of what it reads" in said
    assert rows_of(project.storage / "raw") == [("a",), ("b",)]
    assert rows_of(project.storage / "copy") == [("a",), ("b",)]


def test_a_changed_type_fails_the_run_that_brings_it_and_a_refresh_takes_it(
    spark, bootstrap, topic, produce, tmp_path
):
    events = topic("events")

    def project(kind):
        text = (
            "from headwater import pipelines as hw\n\n\n"
            "@hw.table\n"
            '@hw.expect_or_drop("is positive", "v > 0")\n'
            '@hw.quarantine(table="refused")\n'
            "def kept():\n"
            f'    return hw.topic("{events}")'
            f'.selectExpr("CAST(CAST(value AS STRING) AS {kind}) AS v")\n'
        )
        return write_project(tmp_path / "typed", bootstrap, {"a.py": text})

    produce(events, ["1", "-1"])
    lake = project("BIGINT").storage
    run(project("BIGINT"), once=True, spark=spark)
    with pytest.raises(FlowError, match=r"column 'v' .* has type int64 and the batch has string"):
        run(project("STRING"), once=True, spark=spark)
    run(project("STRING"), once=True, spark=spark, refresh=["kept"])
    assert rows_of(lake / "kept") == [("1",)]
    assert rows_of(lake / "refused", "v") == [("-1",)]


def test_a_continuous_run_refreshes_views_and_ends_when_it_is_asked(
    spark, bootstrap, topic, produce, tmp_path
):
    orders, stop, result = topic("orders"), threading.Event(), []
    project = shop(tmp_path / "going", bootstrap, orders, extra="trigger: 200 milliseconds\n")
    produce(orders, FIRST)

    def work():
        result.append(run(project, once=False, spark=spark, stop=stop, views_every_s=0.2))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: rows_of(project.storage / "totals") == [(2, 12.5)], thread)
        produce(orders, MORE)
        wait_for(lambda: rows_of(project.storage / "totals") == [(3, 19.5)], thread)
    finally:
        stop.set()
        thread.join(60)
    (report,) = result
    assert report.stopped
    assert report.flow("totals").batches >= 2
    assert not spark.streams.active


JOINED = """
from headwater import pipelines as hw


@hw.table
def known():
    return hw.topic("{names}").selectExpr("CAST(value AS STRING) AS name")


@hw.materialized_view
def latest():
    return hw.read("known").groupBy().agg({{"name": "max"}}).toDF("name")


@hw.table
def orders():
    return hw.topic("{orders}").select("offset").crossJoin(hw.read("latest"))
"""


def test_a_stream_sees_what_became_of_a_view_that_it_is_joined_with(
    spark, bootstrap, topic, produce, tmp_path, monkeypatch
):
    monkeypatch.setattr(runner, "REREAD_EVERY_S", 0.0)
    orders, names, stop = topic("orders"), topic("names"), threading.Event()
    files = {"joined.py": JOINED.format(orders=orders, names=names)}
    project = write_project(tmp_path / "joined", bootstrap, files, "trigger: 200 milliseconds\n")
    options = {"once": False, "spark": spark, "stop": stop, "views_every_s": 0.2}
    thread = threading.Thread(target=run, args=[project], kwargs=options)

    def is_joined_with(name):
        produce(orders, ["one more"])
        rows = rows_of(project.storage / "orders", "offset", "name")  # the first name may be null
        return any(each == name for _, each in rows)

    produce(names, ["a"])
    thread.start()
    try:
        wait_for(lambda: is_joined_with("a"), thread)
        produce(names, ["b"])
        wait_for(lambda: is_joined_with("b"), thread)
    finally:
        stop.set()
        thread.join(60)
    found = rows_of(project.storage / "orders", "offset")
    assert found == [(offset,) for offset in range(len(found))]


def wait_for(true, thread):
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE_S
    while thread.is_alive():
        try:
            if true():
                return
        except Exception as problem:  # noqa: BLE001 - the table is not there yet
            last = problem
        else:
            last = None
        assert time.monotonic() < deadline, f"not true after {PATIENCE_S} s: {last!r}"
        pause.wait(0.2)
    raise AssertionError("the run ended before it was true") from last


def test_a_flow_that_fails_ends_the_run_with_its_cause_and_stops_the_others(
    spark, bootstrap, topic, produce, tmp_path, caplog
):
    events = topic("events")
    text = (
        "from headwater import pipelines as hw\n\n\n"
        "@hw.table\n"
        '@hw.expect_or_fail("is a number", "v RLIKE \'^[0-9]+$\'")\n'
        "def strict():\n"
        f'    return hw.topic("{events}").selectExpr("CAST(value AS STRING) AS v")\n\n\n'
        "@hw.table\n"
        "def other():\n"
        f'    return hw.topic("{events}").selectExpr("CAST(value AS STRING) AS v")\n'
    )
    project = write_project(tmp_path / "fails", bootstrap, {"a.py": text})
    produce(events, ["1", "x"])
    with pytest.raises(FlowError) as failed:
        run(project, once=False, spark=spark)
    assert str(failed.value) == (
        'strict: 1 rows fail \'is a number\'; one of them is {"v":"x"}; '
        "nothing of this batch was written"
    )
    assert "Traceback" not in caplog.text
    assert rows_of(project.storage / "strict") == []
    assert not spark.streams.active


def test_a_query_that_spark_refuses_is_one_line_with_its_place(spark, bootstrap, topic, tmp_path):
    events = topic("events")
    text = (
        "from headwater import pipelines as hw\n\n\n"
        "@hw.table\n"
        "def wrong():\n"
        f'    return hw.topic("{events}").select("vlaue")\n'
    )
    project = write_project(tmp_path / "wrong", bootstrap, {"a.py": text})
    with pytest.raises(FlowError) as failed:
        run(project, once=True, spark=spark)
    told = str(failed.value)
    assert told.startswith("wrong: ")
    assert "a.py:" in told
    assert "vlaue" in told
    assert "\n" not in told


def test_the_jvm_leaves_signals_of_its_group_to_the_process_that_started_it(spark):
    status = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status").read_text()
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    for number in (signal.SIGINT, signal.SIGTERM):
        assert int(ignored, 16) >> (number - 1) & 1
