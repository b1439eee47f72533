"""What does not work over Spark Connect is refused in words, before anything is written."""

from types import SimpleNamespace

import pytest

from headwater.pipelines import TableSink, load_project, overwrite, run, write_stream
from headwater.pipelines.running.preflight import NotReadyError
from headwater.pipelines.tables.table import TableError

REMOTE = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()


def test_tables_are_refused(tmp_path):
    rows = SimpleNamespace(sparkSession=REMOTE)
    target = f"delta:{tmp_path}/table"
    for write in (
        lambda: write_stream(rows, target, checkpoint=str(tmp_path / "checkpoint")),
        lambda: overwrite(rows, target),
        lambda: TableSink(target)(rows, 0),
    ):
        with pytest.raises(
            TableError, match=r"Spark Connect .* use headwater.pipelines.spark_session"
        ):
            write()
    assert not list(tmp_path.iterdir())


def test_a_pipeline_is_refused(tmp_path):
    definitions = tmp_path / "tables.sql"
    definitions.write_text("CREATE STREAMING TABLE t AS SELECT * FROM STREAM topic.events;")
    with pytest.raises(NotReadyError, match="Spark Connect"):
        run(load_project(definitions), spark=REMOTE)
    assert list(tmp_path.iterdir()) == [definitions]
