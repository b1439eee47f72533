"""Stores how far each file is read, across restarts.

A position is written atomically, and never before the broker has acknowledged the lines before it.
One collector at a time owns the folder.
"""

import json
from collections.abc import Mapping

from headwater.collect.line_reader import FilePosition
from headwater.seams.files import Files, read_file, replace_file

_VERSION = 1


class PositionsError(Exception):
    """The stored positions cannot be used; the message says what to do."""


class FilePositions:
    """The positions in one folder."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/positions.json"
        files.mkdir(folder)
        try:
            self._lock = files.lock(f"{folder}/lock")
        except BlockingIOError:
            raise PositionsError(
                f"another collector uses {folder}: stop it, or choose another --state folder"
            ) from None
        try:
            self._stored = self._load()
        except PositionsError:
            self.close()
            raise

    def of(self, path: str) -> FilePosition | None:
        """Return where reading of that file continues, if it is known."""
        return self._stored.get(path)

    def store(self, positions: Mapping[str, FilePosition]) -> None:
        """Write changed positions; those of other files are kept."""
        renewed = {**self._stored, **positions}
        if renewed == self._stored:
            return
        content = {
            "version": _VERSION,
            "files": {path: position._asdict() for path, position in renewed.items()},
        }
        replace_file(self._files, self._path, json.dumps(content, indent=1).encode())
        self._stored = renewed

    def close(self) -> None:
        """Release the folder."""
        self._files.close(self._lock)

    def _load(self) -> dict[str, FilePosition]:
        if not self._files.exists(self._path):
            return {}
        try:
            content = json.loads(read_file(self._files, self._path))
            if content["version"] != _VERSION:
                raise PositionsError(
                    f"{self._path} has version {content['version']}, this program reads {_VERSION}: "
                    "upgrade headwater, or remove the file to begin as --from says"
                )
            return {path: FilePosition(**position) for path, position in content["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PositionsError(
                f"{self._path} is damaged: remove it to begin as --from says"
            ) from None
