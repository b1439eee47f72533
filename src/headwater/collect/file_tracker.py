"""Follows one file name through rotations, as `tail -F` does, without a gap.

After a rename, the old file is read to its end and a little longer, since its writer may not have
noticed; then files rotated meanwhile, oldest first; then the new one. After a copytruncate, the rest
is read from the copy, which is found by its first bytes. The same search finds the right file after
a restart. A file with no line returned yet has no fingerprint: until then the position remains the
end of the previous file. Callers pass the time; nothing here waits.
"""

import logging
import re

from headwater.collect.line_reader import FileChanged, FilePosition, LineReader, LogLine
from headwater.collect.log_files import LogFiles

log = logging.getLogger(__name__)

_ROTATED = re.compile(r"[.-][0-9][0-9T:._-]*")
"""Suffixes of rotated files: `.1`, `-20260131`, `.2026-01-31T12`; compressed files are ignored."""


class FileTracker:
    """Reads the lines written to one file name."""

    def __init__(
        self,
        path: str,
        files: LogFiles,
        *,
        max_line: int,
        position: FilePosition | None = None,
        from_end: bool = False,
        linger_ms: int = 5000,
    ) -> None:
        self.path = path
        self.gaps = 0
        """How many times the rest of a rotated file was lost."""
        self._files = files
        self._max_line = max_line
        self._linger_ms = linger_ms
        self._reading: LineReader | None = None
        self._left: FilePosition | None = None
        """The end of the previous file, until a line of the current one is returned."""
        self._grew_ms = 0
        self._forbidden: set[str] = set()
        if position is not None:
            self._resume(position)
        else:
            self._reading = self._open(path)
            if self._reading is None:
                log.warning("%s does not exist yet; waiting for it", path)
            elif from_end:
                self._reading.skip_to_end()

    def poll(self, now_ms: int, most: int = 10_000) -> list[LogLine]:
        """Return up to `most` new lines; save the `position` after they are stored."""
        reading = self._reading
        if reading is None:
            reading = self._reading = self._open(self.path)
            if reading is None:
                return []
        at_end = reading.is_at_end
        try:
            lines = reading.lines(most)
        except FileChanged:
            self._changed(reading)
            return []
        if not at_end:
            self._grew_ms = now_ms
            return self._given(reading, lines)
        if not self._is_left_behind(reading) or now_ms - self._grew_ms < self._linger_ms:
            return []
        return self._finish(reading)

    @property
    def is_at_end(self) -> bool:
        """Whether everything is read, here and in newer files."""
        reading = self._reading
        if reading is None:
            return self._files.identity(self.path) is None
        return reading.is_at_end and not self._is_left_behind(reading)

    def last_line(self) -> list[LogLine]:
        """Return the unfinished last line, for callers that stop following the file."""
        reading = self._reading
        return self._given(reading, reading.last_line()) if reading else []

    def position(self) -> FilePosition | None:
        """Return where reading continues after all returned lines; None if there is no file."""
        if self._left is not None:
            return self._left
        return self._reading.position() if self._reading else None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    # -- from one file to the next

    def _is_left_behind(self, reading: LineReader) -> bool:
        """Whether the name belongs to another file; while it belongs to none, the old may grow."""
        current = self._files.identity(self.path)
        return current is not None and current != reading.identity

    def _given(self, reading: LineReader, lines: list[LogLine]) -> list[LogLine]:
        return lines if lines and not self._is_too_early(reading) else []

    def _is_too_early(self, reading: LineReader) -> bool:
        """Whether a copy of what this file held before it was truncated must be read first.

        Checked after the first line is read and before it is returned, so that no copy is missed.
        """
        if self._left is None:
            return False
        oldest = self._rotated_after(self._left)
        if oldest is not None and oldest.comes_before(reading):
            reading.close()
            self._reading = oldest
            return True
        if oldest is not None:
            oldest.close()
        self._left = None
        return False

    def _finish(self, reading: LineReader) -> list[LogLine]:
        if self._is_too_early(reading):
            return []
        lines = reading.last_line()
        self._go_on_after(reading.position()._replace(left_ns=reading.modified_ns))
        reading.close()
        return lines

    def _go_on_after(self, left: FilePosition) -> None:
        self._left = left
        self._reading = self._rotated_after(left) or self._open(self.path)

    def _rotated_after(self, left: FilePosition) -> LineReader | None:
        """Open the oldest rotated file that is newer than the finished one."""
        current = self._files.identity(self.path)
        since_ns = left.left_ns or 0
        oldest: LineReader | None = None
        for path in self._rotated_names():
            found = self._open(path)
            if found is None:
                continue
            if (
                found.identity != current
                and found.modified_ns > since_ns
                and (oldest is None or found.modified_ns < oldest.modified_ns)
                and not found.is_of(left)
            ):
                found, oldest = oldest, found
            if found is not None:
                found.close()
        return oldest

    def _changed(self, reading: LineReader) -> None:
        position = self._left or reading.position()
        reading.close()
        self._resume(position)

    def _resume(self, position: FilePosition) -> None:
        """Find the file of `position`: under its name, under another name, or as a copy."""
        self._left = None
        paths = [self.path, *self._rotated_names()]
        itself = [path for path in paths if self._files.identity(path) == position.identity]
        is_known = (
            position.head > 0 and position.left_ns is None
        )  # a finished file has no rest to look for
        copies = [path for path in paths if path not in itself] if is_known else []
        for path in (*itself, *copies):
            found = self._open(path, position.offset)
            if found is not None and found.continues(position):
                self._reading = found
                return
            if found is not None:
                found.close()
        if position.left_ns is not None:
            self._go_on_after(position)
            return
        if position.offset:
            self.gaps += 1
            log.warning(
                "%s: the file that was read up to byte %d is gone; its later lines are lost",
                self.path,
                position.offset,
            )
        self._reading = self._open(self.path)

    def _rotated_names(self) -> list[str]:
        length = len(self.path)
        return [
            path
            for path in self._files.siblings(self.path)
            if path.startswith(self.path) and _ROTATED.fullmatch(path, length)
        ]

    def _open(self, path: str, offset: int = 0) -> LineReader | None:
        if self._files.identity(path) is None:
            return None
        try:
            return LineReader(self._files, path, offset, max_line=self._max_line)
        except FileNotFoundError:
            return None
        except PermissionError:
            if path not in self._forbidden:  # rotation may set the rights a moment later
                log.warning("%s: no permission to read it; waiting for permission", path)
                self._forbidden.add(path)
            return None
