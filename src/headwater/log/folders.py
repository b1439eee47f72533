"""Names of partition folders, and the topic id inside them."""

import re

from headwater.model import (
    ZERO_UUID,
    TopicPartition,
    Uuid,
    topic_name_problem,
    uuid_parse,
    uuid_text,
)
from headwater.seams.files import Files, read_file, replace_file

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
METADATA = "partition.metadata"

_MAX_NAME = 255
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")


def name_of(partition: TopicPartition) -> str:
    """The folder of a partition; ValueError for a topic name that could leave `log.dirs`."""
    problem = topic_name_problem(partition.topic)
    if problem or partition.partition < 0:
        raise ValueError(problem or f"partition {partition.partition} is negative")
    return f"{partition.topic}-{partition.partition}"


def partition_of(name: str) -> TopicPartition | None:
    """The partition that a folder holds; None for a deleted, stray or foreign one."""
    match = _PARTITION.match(name)
    if match is None or topic_name_problem(match["topic"]):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def deleted_name(partition: TopicPartition, unique: Uuid) -> str:
    """The name under which a deleted partition waits for its removal."""
    return _renamed(partition, unique, DELETE_SUFFIX)


def stray_name(partition: TopicPartition, unique: Uuid) -> str:
    """The name of a partition that belongs to no topic of the cluster."""
    return _renamed(partition, unique, STRAY_SUFFIX)


def write_topic_id(files: Files, directory: str, topic_id: Uuid) -> None:
    """Say which topic the folder belongs to: names are reused, ids are not."""
    content = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
    replace_file(files, f"{directory}/{METADATA}", content.encode("ascii"), sync=False)


def read_topic_id(files: Files, directory: str) -> Uuid:
    """The topic's id, or ZERO_UUID where the file is absent or damaged."""
    try:
        lines = read_file(files, f"{directory}/{METADATA}").decode("ascii").split("\n")
        fields = dict(line.split(": ", 1) for line in lines if line)
        return uuid_parse(fields["topic_id"]) if fields["version"] == "0" else ZERO_UUID
    except (OSError, KeyError, ValueError):
        return ZERO_UUID


def _renamed(partition: TopicPartition, unique: Uuid, suffix: str) -> str:
    ending = f".{unique.hex()}{suffix}"
    return name_of(partition)[: _MAX_NAME - len(ending)] + ending
