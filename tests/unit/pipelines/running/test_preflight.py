"""What is compared, refused and forgotten before Spark starts."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from headwater.pipelines.declaring.project import load_project
from headwater.pipelines.running import preflight
from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.running.consistency import WORK, mark_work
from headwater.pipelines.running.flows import replace_columns
from headwater.pipelines.running.preflight import (
    NotReadyError,
    changes,
    mismatches,
    problems,
    refresh,
    save_fingerprints,
    written_topics,
)
from headwater.pipelines.running.run_plan import is_view
from headwater.pipelines.tables.table import open_table
from tests.unit.pipelines.lake import KINDS, append, ids, rows

PIPELINE = """
from headwater import pipelines as hw


@hw.table
@hw.expect_or_drop("has a value", "value IS NOT NULL")
@hw.quarantine(topic="events.dead")
def bronze():
    return hw.topic("events").where("offset >= 0")


@hw.table
def silver():
    return hw.read_stream("bronze").select("value")


@hw.materialized_view
def gold():
    return hw.read("silver")


hw.create_sink("out", "topic:events.out")


@hw.append_flow(target="out")
def back():
    return hw.read_stream("silver")
"""


@pytest.fixture
def load(tmp_path):
    def write(text=PIPELINE):
        (tmp_path / "shop.py").write_text(text)
        return load_project(tmp_path / "shop.py")

    return write


def test_a_pipeline_that_did_not_change_says_nothing(load):
    assert changes(load()) == []
    save_fingerprints(load())
    assert changes(load()) == []


def test_each_change_has_its_verdict_until_it_is_remembered(load):
    save_fingerprints(load())
    changed = load(PIPELINE.replace("offset >= 0", "offset > 0").replace('"events")', '"others")'))
    assert {(change.flow, change.verdict) for change in changes(changed)} == {
        ("bronze", "needs new checkpoint"),
        ("bronze", "safe"),
    }
    assert changes(changed, refreshed=["bronze"]) == []
    save_fingerprints(changed)
    assert changes(changed) == []


def test_a_flow_that_is_gone_is_told_once_and_compared_when_it_comes_back(load):
    save_fingerprints(load())
    checkpoints = Checkpoints.of(load().storage)
    checkpoints.location("back").mkdir()
    (checkpoints.location("back") / "metadata").write_text('{"id": "q"}')
    without = load(PIPELINE[: PIPELINE.index("hw.create_sink")])
    assert [change.flow for change in changes(without)] == ["back"]
    save_fingerprints(without)
    assert changes(without) == []
    (returned,) = changes(load())
    assert str(returned) == "back: safe: it is back and continues where it stopped"
    changed = load(
        PIPELINE.replace(
            'back():\n    return hw.read_stream("silver")',
            'back():\n    return hw.read_stream("bronze")',
        )
    )
    assert [(told.flow, told.verdict) for told in changes(changed)][1:] == [
        ("back", "needs new checkpoint"),
        ("back", "safe"),
    ]
    save_fingerprints(load())
    assert changes(load()) == []


class Topics:
    """A cluster that has the topic of the pipeline."""

    def __init__(self, **settings):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def list_topics(self):
        return ["events"]


OUTSIDE = """
from headwater import pipelines as hw

hw.create_sink("lake", "delta:lake/events")


@hw.append_flow(target="lake")
def fill():
    return hw.topic("events").where("offset >= 0")
"""


def test_a_table_outside_of_the_storage_gets_the_rows_of_a_query_from_one_checkpoint(
    tmp_path, load
):
    def stored(text, storage):
        load(text)
        return load_project(tmp_path / "shop.py", overrides={"storage": str(tmp_path / storage)})

    ids = {"events": "a" * 32}
    first = stored(OUTSIDE, "first")
    append(f"delta:{tmp_path}/lake/events", rows(1), 0, app="somebody else")
    assert mismatches(first, (), ids) == []
    save_fingerprints(first, ids)
    work = Checkpoints.of(first.storage).read_note("fill")[WORK]
    for _ in range(2):
        mark_work(open_table(f"delta:{tmp_path}/lake/events"), work)
    assert mismatches(first, (), ids) == [], "it may have died before its query started"
    for name in ("fill", "pour"):
        again = stored(OUTSIDE.replace("fill", name), "second")
        (told,) = mismatches(again, (), ids)
        assert "written with another checkpoint or under another name" in told
        assert told.endswith(f"or start over with --refresh {name}")
        assert mismatches(again, [name], ids) == []
        assert mismatches(again, (), {"events": "b" * 32}) == [], "the topic of another cluster"
    other = stored(OUTSIDE.replace("offset >= 0", "offset < 0"), "second")
    assert mismatches(other, (), ids) == []


def test_a_refresh_may_change_a_declared_type_that_the_table_cannot_take(load, monkeypatch):
    monkeypatch.setattr(preflight, "BlockingAdmin", Topics)
    declared = load(
        PIPELINE.replace("@hw.table\ndef silver", "@hw.table(schema='id STRING')\ndef silver")
    )
    append(f"delta:{declared.storage}/silver", rows(1), 0)
    (problem,) = problems(declared)
    assert "silver.id is declared STRING, but the table has BIGINT" in str(problem)
    assert problems(declared, refreshed=["silver"]) == []


def test_a_refresh_forgets_checkpoints_and_counts(load):
    project = load()
    checkpoints = Checkpoints.of(project.storage)
    for name in ("silver", "back"):
        checkpoints.location(name).mkdir(parents=True)
    with pytest.raises(
        NotReadyError, match="other flows read or fill silver, which is emptied: add --refresh"
    ):
        refresh(project, ["silver"])
    assert checkpoints.location("silver").exists()
    said = refresh(project, ["silver", "back"])
    assert not checkpoints.location("silver").exists()
    assert checkpoints.refresh_count("silver") == 1
    assert "out gets its records again; earlier records are kept" in said
    save_fingerprints(project)
    assert checkpoints.refresh_count("silver") == 1


def test_a_refresh_that_was_killed_is_done_again_by_the_next_run(load, monkeypatch):
    project = load()
    table = f"delta:{project.storage}/silver"
    append(table, rows(1, 2), 0)

    def killed(table):
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(preflight, "empty_table", killed)
        with pytest.raises(SystemExit):
            refresh(project, ["silver", "back"])
    assert ids(open_table(table).files()) == [1, 2]
    assert preflight.unfinished_refreshes(project) == ["back", "silver"]
    refresh(project, preflight.unfinished_refreshes(project))
    assert ids(open_table(table).files()) == []
    assert preflight.unfinished_refreshes(project) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_was_emptied_takes_other_columns_and_one_with_rows_keeps_its_own(
    tmp_path, kind
):
    target = f"{kind}:{tmp_path}/table"
    append(target, rows(1, gone=["x"], kept=[1.5]), 0)
    wanted = StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in (("id", "string"), ("kept", "double"), ("new", "long"))
            ],
        }
    )
    replace_columns(wanted, open_table(target))
    assert open_table(target).schema().names == ["id", "gone", "kept"]
    preflight.empty_table(open_table(target))
    replace_columns(wanted, open_table(target))
    assert open_table(target).schema().field("id").type == pa.string()
    assert sorted(open_table(target).schema().names) == ["id", "kept", "new"]
    batch = pa.table({"id": ["a"], "kept": [2.5], "new": [3]})
    assert append(target, batch, 1)
    replace_columns(StructType(), open_table(target))
    assert [file.rows for file in open_table(target).files()] == [1]


def test_a_view_needs_no_refresh(load):
    project = load()
    assert any(is_view(project.declarations, flow) for flow in project.declarations.flows)
    assert refresh(project, ["gold"]) == [
        "gold is computed whole on every run; there is nothing to refresh"
    ]


def test_sinks_and_dead_letters_are_the_topics_that_are_written(load):
    assert written_topics(load().declarations) == ["events.out", "events.dead"]


def test_a_view_with_a_dead_letter_topic_would_repeat_itself(load):
    text = PIPELINE.replace(
        "@hw.materialized_view\n",
        '@hw.materialized_view\n@hw.expect_or_drop("v", "value > 1")\n'
        '@hw.quarantine(topic="gold.dead")\n',
    )
    (problem,) = problems(load(text), live=False)
    assert "would send the same rows to gold.dead again" in str(problem)
