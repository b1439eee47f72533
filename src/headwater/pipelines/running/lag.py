"""Commits the progress of streaming queries to consumer groups, where tools look for lag.

Each query's progress is committed to a group of its name, so that `headwater groups describe`,
Kafka's own tools and consoles show its lag. It uses Spark's listener, the only interface that
reports every batch: a source's `commit` comes one batch late, and never for the last one. Nothing
here may fail a query, delay it, or decide where it continues: that is the checkpoint's job.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from headwater.client.admin import BlockingAdmin as Admin
from headwater.client.admin import GroupNotEmptyError
from headwater.model import TopicPartition
from headwater.pipelines.running.positions import end_positions

log = logging.getLogger(__name__)

GroupName = Callable[[str | None, str], str]
OnProgress = Callable[[StreamingQueryProgress], object]
Offsets = dict[TopicPartition, int]

FLUSH_S: Final = 10.0
"""How long a commit may delay the end of a query."""
PATIENCE_MS: Final = 5_000
"""When a commit is abandoned; the next progress brings another."""


def query_group(name: str | None, query_id: str) -> str:
    """Return the group of a query: its name, or its id if it has no name."""
    return name or query_id


def track_lag(
    spark: SparkSession,
    bootstrap_servers: str,
    *,
    client: Mapping[str, Any] | None = None,
    group: GroupName | None = None,
    on_progress: OnProgress | None = None,
) -> "LagListener":
    """Commit the progress of this session's queries until the returned listener is stopped.

    Args:
        spark: The session.
        bootstrap_servers: The cluster that the queries read, which also holds the groups.
        client: Further settings of its client by keyword, such as security_protocol.
        group: Returns the group of a query from its name and id.
        on_progress: Called with every progress; the listener also keeps the last of each query.
    """
    settings = {**(client or {}), "bootstrap_servers": bootstrap_servers}
    listener = LagListener(spark, settings, group or query_group, on_progress)
    spark.streams.addListener(listener)
    return listener


class LagListener(StreamingQueryListener):
    """Receives progress on Spark's thread and commits it on its own thread."""

    def __init__(
        self,
        spark: SparkSession,
        client: Mapping[str, Any],
        group: GroupName,
        on_progress: OnProgress | None,
    ) -> None:
        self.progress: dict[str, StreamingQueryProgress] = {}
        """The last progress of each running query, by its id."""
        self._spark = spark
        self._group = group
        self._on_progress = on_progress
        self._commits = _Commits(client)
        self._ended: set[str] = set()
        self._one_ended = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: nothing is read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Commit the offsets of a finished batch."""
        progress = event.progress
        query_id = str(progress.id)
        self.progress[query_id] = progress
        try:
            offsets = end_positions(row.endOffset for row in progress.sources)
            if offsets:
                self._commits.enqueue(self._group(progress.name, query_id), offsets)
            if self._on_progress is not None:
                self._on_progress(progress)
        except Exception:
            log.exception("query %s: its progress was not reported", progress.name or query_id)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Wait for the commit of the last batch, which Spark has reported before this."""
        self.progress.pop(str(event.id), None)
        self._commits.flush(FLUSH_S)
        with self._one_ended:
            self._ended.add(str(event.runId))
            self._one_ended.notify_all()

    def wait_for_end(self, run_id: str, timeout_s: float = FLUSH_S) -> bool:
        """Wait until a run of a query has ended and is committed; False if it timed out.

        Spark notifies its listeners some time after `awaitTermination` has returned.
        """
        with self._one_ended:
            return self._one_ended.wait_for(lambda: run_id in self._ended, timeout_s)

    def stop(self) -> None:
        """Stop listening and commit what is pending."""
        self._spark.streams.removeListener(self)
        self._commits.stop(FLUSH_S)


class _Commits:
    """Commits the newest offsets of each group on a thread; newer offsets replace pending ones."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._client = {**client, "default_api_timeout_ms": PATIENCE_MS}
        self._waiting: dict[str, Offsets] = {}
        self._changed = threading.Condition()
        self._busy = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="headwater-lag", daemon=True)
        self._thread.start()

    def enqueue(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Queue offsets to be committed."""
        with self._changed:
            self._waiting.setdefault(group, {}).update(offsets)
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is pending; False if it timed out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Commit what is pending and end the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        admin: Admin | None = None
        while (group := self._next()) is not None:
            admin = admin or Admin(**self._client)
            self._commit(admin, *group)
        if admin is not None:
            admin.close()

    def _next(self) -> tuple[str, Offsets] | None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            if not self._waiting:
                return None
            self._busy = True
            return self._waiting.popitem()

    def _commit(self, admin: Admin, group: str, offsets: Offsets) -> None:
        try:
            admin.set_group_offsets(group, offsets)
        except GroupNotEmptyError:
            log.warning(
                "query %s: its lag is not shown, because a group of this name has active consumers; "
                "rename the query or the group",
                group,
            )
        except Exception as problem:  # noqa: BLE001 - a lag that is not shown must not fail a query
            log.warning("query %s: its lag was not committed: %s", group, problem)
