"""The checkpoints of flows, and a note beside each with facts that outlive a run.

`<storage>/_checkpoints/<flow>` belongs to Spark alone; `<storage>/_checkpoints/<flow>.json` holds
Headwater's note on the flow (its fingerprint, a frozen schema). Removing both is a full refresh.
Notes are replaced atomically.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "_checkpoints"
REFRESHED: Final = "refreshed"
"""The key of the number of full refreshes in a note."""
UNFINISHED: Final = "refresh unfinished"
"""The key that marks a full refresh which has begun and not ended."""


class Checkpoints:
    """The checkpoints of one pipeline, by the names of its flows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, storage: Path) -> "Checkpoints":
        """Return the checkpoints below a pipeline's storage."""
        return cls(storage / FOLDER)

    def location(self, flow: str) -> Path:
        """Return Spark's checkpointLocation."""
        return self.folder / flow

    def started(self, flow: str) -> bool:
        """Whether a query has started from this checkpoint."""
        return (self.location(flow) / "metadata").exists()

    def query_id(self, flow: str) -> str | None:
        """Return the query id that Spark keeps in the checkpoint; None if no query has started."""
        try:
            found = json.loads((self.location(flow) / "metadata").read_text().splitlines()[-1])
            return str(found["id"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def last_planned(self, flow: str) -> int:
        """Return the number of the last planned batch; -1 if there is none."""
        names = (path.name for path in (self.location(flow) / "offsets").glob("[0-9]*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def lock(self, flow: str = "") -> Path:
        """Return the file that a run locks: for the whole folder, or for one flow."""
        return self.folder / (f"{flow}.lock" if flow else "lock")

    def read_note(self, flow: str) -> dict[str, Any] | None:
        """Return the note on a flow, if there is one."""
        try:
            found = json.loads(self._note_file(flow).read_text())
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None

    def all_notes(self) -> dict[str, dict[str, Any]]:
        """Return the notes on all flows that ever ran, by flow."""
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        return {name: noted for name in names if (noted := self.read_note(name)) is not None}

    def write_note(self, flow: str, facts: Mapping[str, Any]) -> None:
        """Replace the note on a flow."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"{flow}.new"
        fresh.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        fresh.replace(self._note_file(flow))

    def refresh_count(self, flow: str) -> int:
        """Return how many full refreshes a flow had: what it wrote before them does not count."""
        return int((self.read_note(flow) or {}).get(REFRESHED, 0))

    def drop_checkpoint(self, flow: str) -> None:
        """Remove a checkpoint, so that the next run starts where its sources start; keep the note."""
        shutil.rmtree(self.location(flow), ignore_errors=True)

    def _note_file(self, flow: str) -> Path:
        return self.folder / f"{flow}.json"
