"""Checks before a run that checkpoints, tables and topics belong together.

A checkpoint knows which batches were planned, a table knows which it has, and the note beside the
checkpoint knows the query and the topics of the last run. Where they disagree, a run would skip new
rows, write old rows again, or continue in the middle of another topic, so it is refused. Spark is
not needed for that.
"""

from collections.abc import Mapping
from typing import Final

from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.tables.table import Table, TableChange

QUERY: Final = "query"
"""The key of the flow's query id in its note."""
TOPIC_IDS: Final = "topic ids"
"""The key of the ids of the topics that the flow reads, by name, in its note."""
WORK: Final = "work"
"""The key of the application that marks the flow's work in a table outside of the storage."""
_NO_ID: Final = "0" * 32


def table_mismatch(flow: str, checkpoints: Checkpoints, table: Table) -> str | None:
    """Return why a flow's checkpoint and its table do not belong together; None if they do."""
    query, before = checkpoints.query_id(flow), (checkpoints.read_note(flow) or {}).get(QUERY)
    exists = table.exists()
    if query is not None and not exists:
        return (
            f"{flow}: the table {table.target} is gone but its checkpoint exists: rows written so "
            "far would be missing. Restore the table"
        )
    if query is not None and (lead := stale_checkpoint(flow, checkpoints, table.last_batch(query))):
        return f"{lead} in {table.target}: new rows would be skipped as written. {_RESTORE}"
    if exists and before is not None and query != before and table.last_batch(before) >= 0:
        return (
            f"{flow}: the checkpoint that filled {table.target} is gone: all rows would be written "
            f"again. {_RESTORE}"
        )
    return None


_RESTORE: Final = "Restore the latest checkpoint"


def stale_checkpoint(flow: str, checkpoints: Checkpoints, written: int) -> str | None:
    """Describe a checkpoint that has planned fewer batches than are written; None if it has not."""
    planned = checkpoints.last_planned(flow)
    if written <= planned:
        return None
    return f"{flow}: its checkpoint is an older copy that ends with batch {planned}, and batch {written} is"


def unknown_rows(flow: str, checkpoints: Checkpoints, table: Table) -> str | None:
    """Return why a flow without a note must not fill a table that has rows; None if it may."""
    if checkpoints.read_note(flow) is not None or checkpoints.started(flow) or not table.exists():
        return None
    rows = sum(file.rows for file in table.files())
    if not rows:
        return None
    return (
        f"{flow}: {table.target} has {rows} rows and there is no checkpoint: rows read before "
        "would be written again. Restore the checkpoint folder"
    )


def filled_elsewhere(flow: str, checkpoints: Checkpoints, table: Table, work: str) -> str | None:
    """Return why a new flow must not fill a table that has a mark of the same work; None if it may."""
    noted = checkpoints.read_note(flow) or {}
    if checkpoints.started(flow) or QUERY in noted or noted.get(WORK) == work:
        return None
    if not table.exists() or table.last_batch(work) < 0:
        return None
    return (
        f"{flow}: {table.target} has the rows of this query already, written with another checkpoint or "
        "under another name: all of them would be written again. Run it with that storage and name"
    )


def mark_work(table: Table, work: str) -> None:
    """Mark in a table that rows of some work are written to it."""
    if table.last_batch(work) < 0:
        table.commit(TableChange([], table.schema(), work, 0, table.partition_by()))


def topic_mismatch(flow: str, checkpoints: Checkpoints, now: Mapping[str, str]) -> str | None:
    """Return which topic was deleted and recreated since the flow's last run; None if none was."""
    before = (checkpoints.read_note(flow) or {}).get(TOPIC_IDS) or {}
    if not checkpoints.started(flow):
        return None
    for name, known in before.items():
        if now.get(name, known) != known and _NO_ID not in (known, now[name]):
            return (
                f"{flow}: topic {name} was deleted and recreated: the checkpoint has offsets of the "
                "old topic. Read a topic of another name"
            )
    return None
