"""Describes control records and records of internal topics, for `headwater log dump`."""

import os
from collections.abc import Callable
from typing import TypeAlias

from headwater.model import CONSUMER_OFFSETS
from headwater.observe.logs import printable
from headwater.records.control import ControlType
from headwater.records.record import Record

Describer: TypeAlias = Callable[[Record], str | None]


def describer_for(path: str) -> Describer:
    """Return the describer for the records of a segment, chosen by its partition folder."""
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return _describe_group_record if folder.rpartition("-")[0] == CONSUMER_OFFSETS else _nothing


def describe_control_record(record: Record) -> str | None:
    """Describe a control record."""
    kind = int.from_bytes((record.key or b"")[2:4]) if record.key else -1
    return ControlType(kind).name.lower() if kind in list(ControlType) else None


def _nothing(record: Record) -> str | None:
    return None


def _describe_group_record(record: Record) -> str | None:
    from headwater.coordination.groups.records import GroupRecord, OffsetRecord, decode
    from headwater.wire.codec import WireError

    try:
        said = decode(record.key or b"", record.value)
    except WireError:
        return None
    if isinstance(said, OffsetRecord):
        end = "deleted" if said.committed is None else f"at offset {said.committed.offset}"
        return printable(f"group {said.group_id}: {said.topic}-{said.partition} {end}")
    if isinstance(said, GroupRecord):
        if said.stored is None:
            return printable(f"group {said.group_id}: deleted")
        stored = said.stored
        return printable(
            f"group {said.group_id}: generation {stored.generation}, {len(stored.members)} members"
        )
    return None
