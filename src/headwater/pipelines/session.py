"""Creates a Spark session with Headwater's formats, a suitable Java and Python, and times in UTC.

The caller's settings always win over its defaults.
"""

import logging
import os
import socket
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headwater.pipelines.java import java_home
from headwater.pipelines.jvm_stderr import start_jvm

log = logging.getLogger(__name__)

_SOURCES: Final = (
    ("headwater.pipelines.datasource", "HeadwaterDataSource"),
    ("headwater.pipelines.tables.source", "TableDataSource"),
    ("headwater.pipelines.segments.source", "SegmentsDataSource"),
)
_UNIX_SOCKETS: Final = (
    {"spark.python.unix.domain.socket.enabled": "true"} if hasattr(socket, "AF_UNIX") else {}
)
"""Unix sockets between the JVM and its Python workers: faster than TCP, above all under load."""
_SECRETS: Final = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key"
"""Names of options whose values Spark hides: its own default, and Kafka's keys that it leaves out."""
_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.redaction.regex": _SECRETS,
    **_UNIX_SOCKETS,
}
_LOCAL: Final = "local[*]"
_LOOPBACK: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""A local session uses the loopback address, so the machine's name need not resolve."""


def spark_session(
    name: str = "headwater",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or use the running session, and register the formats of Headwater.

    Args:
        name: The application's name.
        master: Any Spark master, such as `local[2]` or `spark://host:7077`. By default that of
            spark-submit, or `local[*]` without spark-submit.
        settings: Spark settings; they override those of this module.
    """
    _prepare_environment()
    given = _submitted()
    master = master or given.get("spark.master") or _LOCAL
    chosen = {**_DEFAULTS, **(_LOOPBACK if master.startswith("local") else {})}
    chosen = {key: value for key, value in chosen.items() if key not in given}
    chosen.update(settings or {})
    start_jvm({"spark.app.name": name, "spark.master": master, **chosen})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit, which starts the JVM before Python."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to the JVM, which has the settings
    return dict(SparkConf().getAll())


def register(spark: SparkSession) -> None:
    """Register `format("headwater")`, `"headwater-table"` and `"headwater-segments"`.

    Spark finds the formats of an installed package itself; an editable installation needs this. A
    format whose libraries are not installed is skipped.
    """
    for module, name in _SOURCES:
        try:
            source = getattr(import_module(module), name)
        except ImportError as missing:
            log.debug("%s is not registered: %s", name, missing)
            continue
        try:
            spark.dataSource.register(source)
        except AnalysisException as problem:
            if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def _prepare_environment() -> None:
    """Set Python and Java for the processes that Spark starts; a running session keeps its own."""
    if SparkSession.getActiveSession() is not None:
        return
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def connect_refusal(spark: object) -> str | None:
    """Return why tables and pipelines do not work in this session; None if they do."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        return None
    return (
        "Spark Connect supports only format('headwater'): tables and pipelines need the driver's JVM; "
        "use headwater.pipelines.spark_session() or a session without remote()"
    )
