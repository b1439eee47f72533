"""The Spark session of a run, with the listener that commits lag, and the end of both."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.jvm_stderr import log_after_run, run_ends
from headwater.pipelines.running.lag import track_lag
from headwater.pipelines.running.progress import RunProgress
from headwater.pipelines.running.signals import keep_sigint_handler
from headwater.pipelines.running.spark_log import log_file, log_settings
from headwater.pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRAIN_MS: Final = 10_000
_NOISY_LOGGERS: Final = (
    "py4j.clientserver",
    "DataFrameQueryContextLogger",
    "SQLQueryContextLogger",
)


@contextmanager
def session_scope(
    name: str,
    *,
    connection: ConnectionSettings,
    progress: RunProgress,
    logs: Path,
    master: str | None,
    settings: Mapping[str, str],
    spark: "SparkSession | None" = None,
) -> "Iterator[SparkSession]":
    """Yield a session whose queries commit their lag; stop it at the end unless it was given."""
    running = spark
    if running is None:
        with keep_sigint_handler(), progress.noted(f"starting Spark; its log is {log_file(logs)}"):
            running = spark_session(
                name, master=master, settings={**log_settings(logs), **settings}
            )
    log_after_run(log_file(logs) if spark is None else None)
    listener = track_lag(
        running,
        connection.bootstrap_servers,
        client=connection.client,
        on_progress=lambda event: progress.observe(json.loads(event.json)),
    )
    try:
        with _quiet_loggers():
            yield running
    finally:
        _drain_listeners(running)
        listener.stop()
        if spark is None:
            run_ends()
            running.stop()


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Keep PySpark from logging traces of errors that the run reports in one line."""
    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _drain_listeners(spark: "SparkSession") -> None:
    """Wait until listeners have received all events: a stopped session delivers none.

    Spark has no public method for it. Without it the last lag shown may be one batch too high.
    """
    with suppress(Py4JError, AttributeError):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)
