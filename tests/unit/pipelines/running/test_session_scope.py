"""What a run shows while its session starts."""

import pytest

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.running import session_scope as module
from headwater.pipelines.running.progress import RunProgress


def test_a_run_tells_that_spark_starts_and_where_its_log_is(monkeypatch, tmp_path):
    progress, seen = RunProgress(), []

    def start(name, **settings):
        seen.extend(progress.notes)
        raise OSError("no Java")

    monkeypatch.setattr(module, "spark_session", start)
    scope = module.session_scope(
        "shop",
        connection=ConnectionSettings(""),
        progress=progress,
        logs=tmp_path,
        master=None,
        settings={},
    )
    with pytest.raises(OSError, match="no Java"), scope:
        pass
    assert seen == [f"starting Spark; its log is {tmp_path}/_logs/spark.log"]
    assert not progress.notes
