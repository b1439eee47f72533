"""What compaction has done to the logs of a log dir, from its files: for tools, beside a broker or not.

The broker writes `headwater-uncleanable` when it sets a log aside, and removes it at its next start.
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from headwater.log import checkpoints, folders
from headwater.log.file_names import offsets_in
from headwater.log.segment import LOG
from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "headwater-uncleanable"


class CompactionState(NamedTuple):
    """The compaction of one log."""

    partition: str
    cleaned_to: int
    """Everything below this offset was compacted."""
    clean_bytes: int
    """Bytes of the segments below that offset."""
    dirty_bytes: int
    """Bytes of the others, except the last one."""
    problem: str
    """Why the log was set aside; empty if it was not."""


def write_report(files: Files, log_dir: str, reasons: Mapping[str, str]) -> None:
    """Write which logs of a log dir are set aside, by folder name. Safe on any thread."""
    content = json.dumps(reasons, indent=1).encode()
    replace_file(files, f"{log_dir}/{FILE_NAME}", content, sync=False)


def read_report(files: Files, log_dir: str) -> dict[str, str]:
    """Return the logs that are set aside with the reasons; none without a readable report."""
    try:
        reasons = json.loads(read_file(files, f"{log_dir}/{FILE_NAME}"))
    except (FileNotFoundError, ValueError):
        return {}
    return {str(name): str(why) for name, why in reasons.items()}


def compaction_states(files: Files, log_dir: str) -> list[CompactionState]:
    """Return the state of every partition in a log dir."""
    rows = checkpoints.read_folder(files, log_dir)
    reasons = read_report(files, log_dir)
    states = []
    for name in files.listdir(log_dir):
        directory = f"{log_dir}/{name}"
        partition = folders.partition_of(name)
        if partition is None or not files.is_dir(directory):
            continue
        topic_id = folders.read_topic_id(files, directory)
        cleaned_to = rows.of(partition, topic_id).cleaned_end
        bases = offsets_in(files.listdir(directory), LOG)
        clean = dirty = 0
        for base, end in pairwise(bases):
            size = files.path_size(f"{directory}/{base:020d}{LOG}")
            clean, dirty = (clean + size, dirty) if end <= cleaned_to else (clean, dirty + size)
        states.append(CompactionState(name, cleaned_to, clean, dirty, reasons.get(name, "")))
    return states
