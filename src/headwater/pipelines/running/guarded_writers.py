"""Batch writers whose errors are kept and which can be stopped between two batches.

Spark reports a failed `foreachBatch` as a trace only; the exception itself is kept here. A query
that is about to be replaced must not write another batch beside its successor: `stop_writing`
makes its writer refuse.
"""

import threading
from typing import TYPE_CHECKING

from headwater.pipelines.running.java_errors import short_java_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.pipelines.running.quality import BatchWriter


class WriterStoppedError(Exception):
    """Spark offered a batch to a query that is being replaced."""


class _Permission:
    def __init__(self) -> None:
        self.writing = threading.Lock()
        self.is_over = False


class GuardedWriters:
    """The batch writers of a run, by the names of their flows."""

    def __init__(self) -> None:
        self._failures: dict[str, Exception] = {}
        self._permissions: dict[str, _Permission] = {}

    def guard(self, flow: str, write: "BatchWriter") -> "BatchWriter":
        """Wrap the writer of a query that is about to start."""
        permission = self._permissions[flow] = _Permission()

        def guarded(batch: "DataFrame", batch_id: int) -> None:
            with permission.writing, short_java_errors():
                if permission.is_over:
                    raise WriterStoppedError(
                        f"{flow} is being restarted; batch {batch_id} is written after that"
                    )
                try:
                    write(batch, batch_id)
                except Exception as problem:
                    self._failures[flow] = problem
                    raise

        return guarded

    def stop_writing(self, flow: str, timeout_s: float) -> bool:
        """Refuse further batches of a flow's query; False if it is still writing one."""
        permission = self._permissions[flow]
        if not permission.writing.acquire(timeout=timeout_s):
            return False
        permission.is_over = True
        permission.writing.release()
        return True

    def failure(self, flow: str) -> Exception | None:
        """Return what a batch of the flow raised, if any did."""
        return self._failures.get(flow)

    def clear_failure(self, flow: str) -> None:
        """Drop the failure of a flow whose query is restarted."""
        self._failures.pop(flow, None)
