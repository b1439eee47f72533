"""Where each file was read up to, kept over restarts.

A position is written after the broker has acknowledged the lines before it, never earlier, and
whole or not at all. The folder belongs to one collector at a time.
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
            raise PositionsError(f"{folder} is in use by another collector") from None
        try:
            self._stored = self._load()
        except PositionsError:
            self.close()
            raise

    def of(self, path: str) -> FilePosition | None:
        """Where to go on in the file of that name."""
        return self._stored.get(path)

    def store(self, positions: Mapping[str, FilePosition]) -> None:
        """Keep these, if they are news; those of files not named here stay."""
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
        """Let others have the folder."""
        self._files.close(self._lock)

    def _load(self) -> dict[str, FilePosition]:
        if not self._files.exists(self._path):
            return {}
        try:
            content = json.loads(read_file(self._files, self._path))
            if content["version"] != _VERSION:
                raise PositionsError(f"{self._path} is of version {content['version']}")
            return {path: FilePosition(**position) for path, position in content["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PositionsError(
                f"{self._path} is damaged: remove it to begin as --from says"
            ) from None
