"""The manifest of an archive: its segment files, their sizes and checksums.

A file in the manifest is complete and never changes; a file that is not in it is left over from an
interrupted run. So the manifest is written after its files, and replaced atomically.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headwater import __version__
from headwater.errors import E, KafkaError
from headwater.seams.files import OsFiles, read_file, replace_file

NAME: Final = "manifest.json"
WRITER: Final = f"headwater {__version__}"

_FORMAT: Final = "headwater-archive"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """One archived segment."""

    topic: str
    topic_id: str
    """In Kafka's text form; empty if the source has no topic id."""
    partition: int
    base_offset: int
    next_offset: int
    """The base offset of the next segment."""
    size: int
    crc32c: str
    """CRC-32C of the whole file, as eight hexadecimal digits."""
    batches: int
    records: int
    first_timestamp: int
    """Of the first record, in milliseconds; -1 if the file has no records."""
    last_timestamp: int
    """The largest timestamp of all records."""
    codecs: dict[str, int]
    """The number of batches by codec."""
    archived_at: str
    archived_by: str = WRITER

    @property
    def file(self) -> str:
        """Return the path below the archive's folder."""
        return f"{self.topic}-{self.partition}/{self.base_offset:020d}.log"


@dataclass(slots=True)
class ArchiveManifest:
    """All segments of an archive, by the path of their files."""

    entries: dict[str, ArchivedSegment] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> list[ArchivedSegment]:
        """Return the segments of one partition, ordered by offset."""
        found = (e for e in self.entries.values() if (e.topic, e.partition) == (topic, partition))
        return sorted(found, key=lambda entry: entry.base_offset)

    def add(self, entries: Iterable[ArchivedSegment]) -> None:
        """Add segments whose files are in the folder."""
        self.entries.update((entry.file, entry) for entry in entries)


def is_archive(folder: str) -> bool:
    """Return whether the folder has a manifest."""
    return os.path.isfile(os.path.join(folder, NAME))


def load(folder: str) -> ArchiveManifest:
    """Load the manifest of an archive; empty if there is none yet."""
    path = os.path.join(folder, NAME)
    try:
        content = json.loads(read_file(OsFiles(), path))
        return _parsed(content)
    except FileNotFoundError:
        return ArchiveManifest()
    except (ValueError, TypeError, KeyError, AttributeError) as odd:
        raise KafkaError(
            E.INVALID_REQUEST, f"{path} is not a manifest that {WRITER} supports: {odd}"
        ) from odd


def save(folder: str, manifest: ArchiveManifest, written_at: str) -> None:
    """Replace the manifest; it is on disk when this returns."""
    entries = sorted(manifest.entries.values(), key=lambda e: (e.topic, e.partition, e.base_offset))
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "written_at": written_at,
        "written_by": WRITER,
        "segments": [{"file": entry.file, **asdict(entry)} for entry in entries],
    }
    data = json.dumps(content, indent=1).encode()
    replace_file(OsFiles(), os.path.join(folder, NAME), data)


def _parsed(content: Any) -> ArchiveManifest:
    if content["format"] != _FORMAT or content["version"] != _VERSION:
        raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
    manifest = ArchiveManifest()
    for row in content["segments"]:
        entry = ArchivedSegment(**{name: value for name, value in row.items() if name != "file"})
        if row["file"] != entry.file:
            raise ValueError(f"the file {row['file']!r} should be {entry.file!r}")
        manifest.add([entry])
    return manifest
