"""Where the partitions are that can be archived: in a folder that is named, or where a broker says.

With each comes the offset below which its records are settled. What is above may still be cut off
by another leader, so that an archive must not have it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from headwater.client.admin import BlockingAdmin
from headwater.client.admin.brokers import LogDirDescription
from headwater.errors import E, KafkaError
from headwater.log import checkpoints
from headwater.log.folders import name_of, read_topic_id
from headwater.model import TopicPartition
from headwater.pipelines.segments.files import MAX_OFFSET, partition_folders
from headwater.seams.files import OsFiles

LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """A partition's folder, and the offset below which it may be archived."""

    partition: TopicPartition
    folder: str
    limit: int = MAX_OFFSET


def sources_in(
    data_dir: str, topics: Iterable[str] = (), *, include_active: bool = False
) -> list[ArchiveSource]:
    """The partitions in a broker's data folder, of some topics or of all that are not internal.

    The high watermarks are those that the broker last wrote down, which it does every few seconds.
    With `include_active` everything is settled: no broker is there to cut anything off.
    """
    folders, wanted = partition_folders(data_dir), set(topics)
    missing = wanted - {partition.topic for partition in folders}
    if missing:
        raise KafkaError(
            E.UNKNOWN_TOPIC_OR_PARTITION, f"{data_dir} has no topic {', '.join(sorted(missing))}"
        )
    limits = {} if include_active else _high_watermarks(data_dir)
    return [
        ArchiveSource(partition, folder, limits.get(partition, 0) if limits else MAX_OFFSET)
        for partition, folder in folders.items()
        if (partition.topic in wanted if wanted else not partition.topic.startswith("__"))
    ]


def sources_of(bootstrap_servers: str, topics: Iterable[str] = ()) -> list[ArchiveSource]:
    """The leaders' folders of the partitions of some topics or of all that are not internal.

    Files are read, not fetched: the leaders must keep their folders on this machine.
    """
    with BlockingAdmin(bootstrap_servers=bootstrap_servers) as admin:
        views = admin.describe_topics(list(topics) or admin.list_topics())
        leaders = {
            TopicPartition(view.name, part.partition): (part.leader, view.topic_id)
            for view in views.values()
            for part in view.partitions
        }
        settled = admin.end_offsets(list(leaders))
        log_dirs = admin.describe_log_dirs()
    return [
        ArchiveSource(
            partition, _folder_of(partition, leader, topic_id, log_dirs), settled[partition]
        )
        for partition, (leader, topic_id) in leaders.items()
    ]


@contextmanager
def broker_stopped(data_dir: str) -> Iterator[None]:
    """Hold a data folder as a broker would; refused while one runs on it."""
    path = os.path.join(data_dir, LOCK)
    if not os.path.exists(path):
        yield
        return
    with held(path, f"a broker runs on {data_dir}: stop it before its active segments are copied"):
        yield


@contextmanager
def held(path: str, refusal: str) -> Iterator[None]:
    """Lock a file for a while, or refuse with that sentence."""
    files = OsFiles()
    try:
        fd = files.lock(path)
    except BlockingIOError:
        raise KafkaError(E.INVALID_REQUEST, refusal) from None
    try:
        yield
    finally:
        files.close(fd)


def _folder_of(
    partition: TopicPartition, leader: int, topic_id: bytes, log_dirs: Iterable[LogDirDescription]
) -> str:
    """The leader's folder, once its topic id shows that it is the cluster's and not a namesake."""
    for log_dir in log_dirs:
        if log_dir.broker_id == leader and partition in log_dir.sizes:
            folder = os.path.join(log_dir.path, name_of(partition))
            if read_topic_id(OsFiles(), folder) == topic_id:
                return folder
            raise KafkaError(
                E.LOG_DIR_NOT_FOUND,
                f"broker {leader} keeps {partition} in {folder}, which is not on this machine: "
                "run the command there",
            )
    raise KafkaError(E.LEADER_NOT_AVAILABLE, f"no broker says that it leads {partition}")


def _high_watermarks(data_dir: str) -> Mapping[TopicPartition, int]:
    """As last written down; nothing where the folder has no such file that can be read."""
    with suppress(checkpoints.DamagedCheckpoint):
        return checkpoints.read_offsets(
            OsFiles(), os.path.join(data_dir, checkpoints.HIGH_WATERMARKS)
        )
    return {}
