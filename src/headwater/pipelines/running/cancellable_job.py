"""Runs Spark work on its own thread and can cancel it."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark import InheritableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AGAIN_S: Final = 0.1


class CancellableJob:
    """Runs `work` in a Spark job group."""

    def __init__(self, spark: "SparkSession", group: str, work: Callable[[], object]) -> None:
        self._spark = spark
        self._group = group
        self._work = work
        self._ended = threading.Event()
        self._problem: Exception | None = None
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def cancel(self) -> None:
        """Cancel the work and wait until it ends; do nothing if it has ended.

        Spark cancels only running jobs, so jobs that start later are cancelled in turn.
        """
        while not self._ended.is_set():
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._ended.wait(_AGAIN_S)
        self._thread.join()

    def raise_problem(self) -> None:
        """Raise the exception of the work, if it raised one."""
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            self._work()
        except Exception as problem:  # noqa: BLE001 - raised by raise_problem
            self._problem = problem
        finally:
            self._ended.set()
