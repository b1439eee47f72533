"""Data pipelines on Spark: from topics to tables and back, exactly once.

Names are imported on first use, so declaring a pipeline does not import Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.pipelines.declaring.declare import Quarantine as Quarantine
    from headwater.pipelines.declaring.declare import read as read
    from headwater.pipelines.declaring.declare import read_stream as read_stream
    from headwater.pipelines.declaring.declare import spark as spark
    from headwater.pipelines.declaring.declare import topic as topic
    from headwater.pipelines.declaring.declare import topic_snapshot as topic_snapshot
    from headwater.pipelines.declaring.declare import topics as topics
    from headwater.pipelines.declaring.decorators import append_flow as append_flow
    from headwater.pipelines.declaring.decorators import create_sink as create_sink
    from headwater.pipelines.declaring.decorators import (
        create_streaming_table as create_streaming_table,
    )
    from headwater.pipelines.declaring.decorators import expect as expect
    from headwater.pipelines.declaring.decorators import expect_all as expect_all
    from headwater.pipelines.declaring.decorators import expect_all_or_drop as expect_all_or_drop
    from headwater.pipelines.declaring.decorators import expect_all_or_fail as expect_all_or_fail
    from headwater.pipelines.declaring.decorators import expect_or_drop as expect_or_drop
    from headwater.pipelines.declaring.decorators import expect_or_fail as expect_or_fail
    from headwater.pipelines.declaring.decorators import materialized_view as materialized_view
    from headwater.pipelines.declaring.decorators import quarantine as quarantine
    from headwater.pipelines.declaring.decorators import sink as sink
    from headwater.pipelines.declaring.decorators import table as table
    from headwater.pipelines.declaring.decorators import temporary_view as temporary_view
    from headwater.pipelines.declaring.project import load_project as load_project
    from headwater.pipelines.running.lag import track_lag as track_lag
    from headwater.pipelines.running.runner import run as run
    from headwater.pipelines.session import register as register
    from headwater.pipelines.session import spark_session as spark_session
    from headwater.pipelines.tables.reading import read_table as read_table
    from headwater.pipelines.tables.table import open_table as open_table
    from headwater.pipelines.tables.writing import TableSink as TableSink
    from headwater.pipelines.tables.writing import overwrite as overwrite
    from headwater.pipelines.tables.writing import write_stream as write_stream
    from headwater.pipelines.topic_sink.topic_sink import write_batch as write_batch

_HOMES = {
    "declaring.declare": (
        "Quarantine",
        "read",
        "read_stream",
        "spark",
        "topic",
        "topic_snapshot",
        "topics",
    ),
    "declaring.decorators": (
        "append_flow",
        "create_sink",
        "create_streaming_table",
        "expect",
        "expect_all",
        "expect_all_or_drop",
        "expect_all_or_fail",
        "expect_or_drop",
        "expect_or_fail",
        "materialized_view",
        "quarantine",
        "sink",
        "table",
        "temporary_view",
    ),
    "running.lag": ("track_lag",),
    "declaring.project": ("load_project",),
    "running.runner": ("run",),
    "session": ("register", "spark_session"),
    "tables.reading": ("read_table",),
    "tables.table": ("open_table",),
    "tables.writing": ("TableSink", "overwrite", "write_stream"),
    "topic_sink.topic_sink": ("write_batch",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
