"""The manifest of an archive: which segment files belong to it, and what each must look like.

A file that the manifest names is whole and never changes again; a file that it does not name is
the rest of a run that was cut off. So the manifest is written after the files it speaks of, and
replaced whole or not at all.
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
    """As Kafka prints ids; empty where the source did not say."""
    partition: int
    base_offset: int
    next_offset: int
    """Where the following segment begins: every offset below was the business of this file."""
    size: int
    crc32c: str
    """Of the whole file, as eight hexadecimal digits."""
    batches: int
    records: int
    first_timestamp: int
    """That of the first record, in milliseconds; -1 where the file has no record."""
    last_timestamp: int
    """The greatest of any record."""
    codecs: dict[str, int]
    """How many batches are compressed in which way."""
    archived_at: str
    archived_by: str = WRITER

    @property
    def file(self) -> str:
        """Its path below the archive's folder."""
        return f"{self.topic}-{self.partition}/{self.base_offset:020d}.log"


@dataclass(slots=True)
class ArchiveManifest:
    """All segments of an archive, by the path of their files."""

    entries: dict[str, ArchivedSegment] = field(default_factory=dict)

    def of(self, topic: str, partition: int) -> list[ArchivedSegment]:
        """The segments of one partition in the order of their offsets."""
        found = (e for e in self.entries.values() if (e.topic, e.partition) == (topic, partition))
        return sorted(found, key=lambda entry: entry.base_offset)

    def add(self, entries: Iterable[ArchivedSegment]) -> None:
        """Take in segments that are in the folder already."""
        self.entries.update((entry.file, entry) for entry in entries)


def is_archive(folder: str) -> bool:
    """Whether the folder has a manifest."""
    return os.path.isfile(os.path.join(folder, NAME))


def load(folder: str) -> ArchiveManifest:
    """The manifest of an archive; an empty one where there is none yet."""
    path = os.path.join(folder, NAME)
    try:
        content = json.loads(read_file(OsFiles(), path))
        return _parsed(content)
    except FileNotFoundError:
        return ArchiveManifest()
    except (ValueError, TypeError, KeyError, AttributeError) as odd:
        raise KafkaError(
            E.INVALID_REQUEST, f"{path} is no manifest that {WRITER} reads: {odd}"
        ) from odd


def save(folder: str, manifest: ArchiveManifest, written_at: str) -> None:
    """Put the manifest in its place; it is on the disk when this returns."""
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
            raise ValueError(f"{row['file']!r} stands for {entry.file!r}")
        manifest.add([entry])
    return manifest
