"""Where each flow remembers how far it is, and the facts that must outlive a run beside it.

`<storage>/_checkpoints/<flow>` belongs to Spark alone; `<storage>/_checkpoints/<flow>.json` holds
what Headwater notes about the flow (its fingerprint, a frozen schema). Removing both is a full
refresh. A note is replaced as a whole: half of one is never seen.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "_checkpoints"
REFRESHED: Final = "refreshed"
"""The fact that counts full refreshes."""
UNFINISHED: Final = "refresh unfinished"
"""The fact that a full refresh has begun and not ended."""


class Checkpoints:
    """The checkpoints of one pipeline, by the names of its flows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, storage: Path) -> "Checkpoints":
        """In their place below a pipeline's storage."""
        return cls(storage / FOLDER)

    def location(self, flow: str) -> Path:
        """What Spark gets as checkpointLocation."""
        return self.folder / flow

    def started(self, flow: str) -> bool:
        """Whether a query has run from here before."""
        return (self.location(flow) / "metadata").exists()

    def query_id(self, flow: str) -> str | None:
        """The id of the query that runs from here, which Spark keeps; None: none has started."""
        try:
            found = json.loads((self.location(flow) / "metadata").read_text().splitlines()[-1])
            return str(found["id"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def last_planned(self, flow: str) -> int:
        """The number of the last batch that was planned; -1: none."""
        names = (path.name for path in (self.location(flow) / "offsets").glob("[0-9]*"))
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def lock(self, flow: str = "") -> Path:
        """The file that a run locks: of the whole folder, or of one flow."""
        return self.folder / (f"{flow}.lock" if flow else "lock")

    def read_note(self, flow: str) -> dict[str, Any] | None:
        """What was noted last; None where nothing was."""
        try:
            found = json.loads(self._note_file(flow).read_text())
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None

    def all_notes(self) -> dict[str, dict[str, Any]]:
        """The notes on all flows that ever ran from here."""
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        return {name: noted for name in names if (noted := self.read_note(name)) is not None}

    def write_note(self, flow: str, facts: Mapping[str, Any]) -> None:
        """Remember facts about a flow, in place of those noted before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f"{flow}.new"
        fresh.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
        fresh.replace(self._note_file(flow))

    def refresh_count(self, flow: str) -> int:
        """How often a flow was begun anew: what it wrote before does not count any more."""
        return int((self.read_note(flow) or {}).get(REFRESHED, 0))

    def drop_checkpoint(self, flow: str) -> None:
        """Begin anew: the next run starts where its sources start. The facts stay."""
        shutil.rmtree(self.location(flow), ignore_errors=True)

    def _note_file(self, flow: str) -> Path:
        return self.folder / f"{flow}.json"
