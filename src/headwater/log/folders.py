"""Names of partition folders, and the topic id inside them."""

import re

from headwater.errors import E, KafkaError
from headwater.model import (
    ZERO_UUID,
    TopicPartition,
    Uuid,
    topic_name_problem,
    uuid_parse,
    uuid_text,
)
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file, write_again

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
METADATA = "partition.metadata"

_MAX_NAME = 255
_DELETED = re.compile(r".+\.[0-9a-f]{32}-delete\Z")
_FUTURE = re.compile(r"(?P<name>.+)\.[0-9a-f]{32}-future\Z")
_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")


def name_of(partition: TopicPartition) -> str:
    """Return a partition's folder name; raise ValueError if it could leave `log.dirs`."""
    problem = topic_name_problem(partition.topic)
    if problem or partition.partition < 0:
        raise ValueError(problem or f"partition {partition.partition} is negative")
    return f"{partition.topic}-{partition.partition}"


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition in a folder; None for a deleted, stray or foreign folder."""
    match = _PARTITION.match(name)
    if match is None or topic_name_problem(match["topic"]):
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def is_deleted(name: str) -> bool:
    """Return whether `deleted_name` made this name."""
    return _DELETED.match(name) is not None


def deleted_name(partition: TopicPartition, unique: Uuid) -> str:
    """Return the name of a deleted partition's folder until it is removed."""
    return _renamed(partition, unique, DELETE_SUFFIX)


def stray_name(partition: TopicPartition, unique: Uuid) -> str:
    """Return the folder name of a partition whose topic the cluster does not have."""
    return _renamed(partition, unique, STRAY_SUFFIX)


def future_name(partition: TopicPartition, unique: Uuid) -> str:
    """Return the folder name of a copy that will replace the partition's log."""
    name = f"{name_of(partition)}.{unique.hex()}{FUTURE_SUFFIX}"
    if len(name) > _MAX_NAME:
        raise KafkaError(
            E.INVALID_TOPIC_EXCEPTION,
            f"the name of topic {partition.topic} is too long for a move between log dirs",
        )
    return name


def partition_of_future(name: str) -> TopicPartition | None:
    """Return the partition whose copy is in a folder named by `future_name`."""
    match = _FUTURE.match(name)
    return None if match is None else partition_of(match["name"])


def write_topic_id(files: Files, directory: str, topic_id: Uuid) -> None:
    """Record the id of the topic that the folder belongs to: names are reused, ids are not.

    The file has Kafka's two lines and a third with a checksum, which Kafka's reader ignores.
    """
    text = _metadata_text(topic_id)
    replace_file(files, f"{directory}/{METADATA}", text + _checksum_line(text), sync=False)


def write_topic_id_again(files: Files, directory: str) -> None:
    """Write the same bytes once more, in place: a failed sync may have lost them (`write_again`)."""
    fd = files.open(f"{directory}/{METADATA}")
    try:
        write_again(files, fd, 0, files.size(fd))
    finally:
        files.close(fd)


def read_topic_id(files: Files, directory: str) -> Uuid:
    """Return the topic id, or ZERO_UUID if the file is missing or damaged."""
    return read_checked_topic_id(files, directory)[0]


def read_checked_topic_id(files: Files, directory: str) -> tuple[Uuid, bool]:
    """Return the topic id and whether a checksum confirms it: Kafka writes none."""
    try:
        content = read_file(files, f"{directory}/{METADATA}")
        topic_id = uuid_parse(content.split(b"\n")[1].decode("ascii").removeprefix("topic_id: "))
    except (OSError, IndexError, ValueError):
        return ZERO_UUID, False
    text = _metadata_text(topic_id)
    if content == text + _checksum_line(text):
        return topic_id, True
    return (topic_id if content in (text, text[:-1]) else ZERO_UUID), False


def metadata_is_damaged(files: Files, directory: str) -> bool:
    """Return whether the file has neither our form nor Kafka's."""
    return read_checked_topic_id(files, directory) == (ZERO_UUID, False)


def _metadata_text(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode("ascii")


def _checksum_line(text: bytes) -> bytes:
    return b"crc32c: %08x\n" % crc32c(text)


def _renamed(partition: TopicPartition, unique: Uuid, suffix: str) -> str:
    ending = f".{unique.hex()}{suffix}"
    return name_of(partition)[: _MAX_NAME - len(ending)] + ending
