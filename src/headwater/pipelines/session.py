"""A Spark session that knows Headwater: the right Java, the right Python, quiet, times in UTC.

It sets what is easily forgotten and nothing that the caller has said.
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
"""How the JVM and its Python workers talk: quicker than TCP, by far so on a busy machine."""
_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    **_UNIX_SOCKETS,
}
_LOCAL: Final = "local[*]"
_LOOPBACK: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""A session in one process needs no network, and no name of its machine that can be looked up."""


def spark_session(
    name: str = "headwater",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or take the session that runs, and register the formats of Headwater.

    Args:
        name: What Spark calls the application.
        master: Any Spark master, such as `local[2]` or `spark://host:7077`. Without one, what
            spark-submit was told; `local[*]` where there is no spark-submit.
        settings: Spark settings; they win over those of this module.
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
    """What spark-submit was told; it starts the JVM before Python and says so."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()  # connects to the JVM, which has the settings
    return dict(SparkConf().getAll())


def register(spark: SparkSession) -> None:
    """Make `format("headwater")`, `"headwater-table"` and `"headwater-segments"` known.

    An installed package is found by Spark itself; this is for the rest. A format whose libraries
    are not installed is left out.
    """
    for module, name in _SOURCES:
        try:
            source = getattr(import_module(module), name)
        except ImportError as missing:
            log.debug("%s is left out: %s", name, missing)
            continue
        try:
            spark.dataSource.register(source)
        except AnalysisException as problem:
            if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def _prepare_environment() -> None:
    """Python and Java for the processes that Spark starts; a running session keeps its own."""
    if SparkSession.getActiveSession() is not None:
        return
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
