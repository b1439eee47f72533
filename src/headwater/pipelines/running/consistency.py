"""Whether checkpoints, tables and topics belong together, asked before a run.

A checkpoint knows which batches were planned, a table knows which it has, and the note beside the
checkpoint knows the query and the topics of the last run. Where they disagree, a run would skip
new rows as written, write old rows again, or go on in the middle of another topic: it is refused.
Spark is not asked.
"""

from collections.abc import Mapping
from typing import Final

from headwater.pipelines.running.checkpoints import Checkpoints
from headwater.pipelines.tables.table import Table

QUERY: Final = "query"
"""The fact that holds the id of the flow's streaming query."""
TOPIC_IDS: Final = "topic ids"
"""The fact that holds the ids of the topics that the flow reads, by name."""
_NO_ID: Final = "0" * 32


def table_mismatch(flow: str, checkpoints: Checkpoints, table: Table) -> str | None:
    """Why a flow's checkpoint and its table do not belong together; None: they do."""
    query, before = checkpoints.query_id(flow), (checkpoints.read_note(flow) or {}).get(QUERY)
    exists = table.exists()
    if query is not None and not exists:
        return (
            f"{flow}: the table {table.target} is gone and the checkpoint is not: rows that were "
            "written so far would be missing. Restore the table"
        )
    if query is not None and (lead := stale_checkpoint(flow, checkpoints, table.last_batch(query))):
        return f"{lead} in {table.target}: new rows would be taken for written. {_RESTORE}"
    if exists and before is not None and query != before and table.last_batch(before) >= 0:
        return (
            f"{flow}: the checkpoint that filled {table.target} is gone: all rows would be written "
            f"a second time. {_RESTORE}"
        )
    return None


_RESTORE: Final = "Restore the newest checkpoint"


def stale_checkpoint(flow: str, checkpoints: Checkpoints, written: int) -> str | None:
    """Whether more batches are written than the checkpoint has planned: it is an older copy."""
    planned = checkpoints.last_planned(flow)
    if written <= planned:
        return None
    return (
        f"{flow}: its checkpoint ends with batch {planned}, an older copy, and batch {written} is"
    )


def unknown_rows(flow: str, checkpoints: Checkpoints, table: Table) -> str | None:
    """Why a flow that nothing is noted of must not fill a table that has rows; None: it may."""
    if checkpoints.read_note(flow) is not None or checkpoints.started(flow) or not table.exists():
        return None
    rows = sum(file.rows for file in table.files())
    if not rows:
        return None
    return (
        f"{flow}: {table.target} has {rows} rows and there is no checkpoint: rows that it read "
        "before would be written a second time. Restore the folder of checkpoints"
    )


def topic_mismatch(flow: str, checkpoints: Checkpoints, now: Mapping[str, str]) -> str | None:
    """Whether a topic was deleted and created again since the flow's last run, by its id."""
    before = (checkpoints.read_note(flow) or {}).get(TOPIC_IDS) or {}
    if not checkpoints.started(flow):
        return None
    for name, known in before.items():
        if now.get(name, known) != known and _NO_ID not in (known, now[name]):
            return (
                f"{flow}: the topic {name} was deleted and created again: the checkpoint holds "
                "offsets of the old one"
            )
    return None
