"""Keeps every batch of a run, for the charts of the report."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pandas as pd

from headwater.pipelines.running.progress import RunProgress, topic_offsets


class Batch(NamedTuple):
    """One micro-batch of one flow."""

    flow: str
    began: datetime
    seconds: float
    rows: int
    lag: int | None
    """Records that were waiting in the topics when the batch was done; None: it reads no topic."""


class Recorder(RunProgress):
    """The model of a run that also remembers its batches."""

    def __init__(self) -> None:
        super().__init__()
        self._batches: dict[tuple[str, int], Batch] = {}

    def observe(self, progress: Mapping[str, Any]) -> None:
        """Update the model; Spark reports a batch more than once."""
        super().observe(progress)
        name = str(progress.get("name"))
        if name not in self.flows or "addBatch" not in progress["durationMs"]:
            return
        began = datetime.fromisoformat(progress["timestamp"]).astimezone(UTC)
        self._batches[name, int(progress["batchId"])] = Batch(
            name.rpartition(".")[2],
            began,
            progress["durationMs"].get("triggerExecution", 0) / 1000,
            int(progress.get("numInputRows") or 0),
            _lag(progress),
        )

    def batches(self) -> pd.DataFrame:
        """Every batch in the order in which they began."""
        ordered = sorted(self._batches.values(), key=lambda batch: batch.began)
        return pd.DataFrame(ordered, columns=Batch._fields)


def _lag(progress: Mapping[str, Any]) -> int | None:
    read, written = (topic_offsets(progress, name) for name in ("endOffset", "latestOffset"))
    if not read:
        return None
    return sum(max(0, end - read.get(partition, end)) for partition, end in written.items())
