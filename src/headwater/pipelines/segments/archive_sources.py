"""Finds partitions to archive: in a data folder, or in the folders that a broker reports.

Each comes with its high watermark. Another leader may truncate records above it, so an archive must not
contain them.
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
from headwater.log.log_dir import META
from headwater.model import TopicPartition
from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.segments.files import MAX_OFFSET, partition_folders
from headwater.seams.files import OsFiles

LOCK: Final = ".lock"


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """A partition's folder and the offset below which it may be archived."""

    partition: TopicPartition
    folder: str
    limit: int = MAX_OFFSET


def sources_in(
    data_dir: str, topics: Iterable[str] = (), *, include_active: bool = False
) -> list[ArchiveSource]:
    """Return the partitions in a broker's data folder, of the given or all non-internal topics.

    The high watermarks are those of the last checkpoint, which the broker writes every few seconds.
    With `include_active` there is no limit: the broker is stopped.
    """
    folders, wanted = partition_folders(data_dir), set(topics)
    if not folders:
        _require_data_folder(data_dir)
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


def _require_data_folder(path: str) -> None:
    """Refuse a folder that a typo names: an archive of nothing would look like a good one."""
    if os.path.exists(os.path.join(path, META)):
        return
    brokers = os.path.join(path, "brokers")
    if os.path.isdir(brokers):
        raise KafkaError(
            E.INVALID_REQUEST,
            f"{path} holds the data of a cluster: archive it with --bootstrap-server, which reads "
            f"from the leaders, or name the folder of one broker, such as {brokers}/1",
        )
    raise KafkaError(
        E.INVALID_REQUEST,
        f"{path} is not the data folder of a broker (it has no {META}): name that folder, or "
        "a --bootstrap-server",
    )


def sources_of(connection: ConnectionSettings, topics: Iterable[str] = ()) -> list[ArchiveSource]:
    """Return the leaders' folders of the given or all non-internal topics.

    Files are read from disk, not fetched: the leaders' folders must be on this machine.
    """
    with BlockingAdmin(**connection.client) as admin:
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
    """Lock a data folder as a broker does; KafkaError while a broker runs on it."""
    path = os.path.join(data_dir, LOCK)
    if not os.path.exists(path):
        yield
        return
    with held(path, f"a broker runs on {data_dir}: stop it before its active segments are copied"):
        yield


@contextmanager
def held(path: str, refusal: str) -> Iterator[None]:
    """Lock a file within the `with`, or raise KafkaError with `refusal`."""
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
    """Return the leader's folder, after its topic id shows that it belongs to this cluster."""
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
    raise KafkaError(
        E.LEADER_NOT_AVAILABLE, f"{partition} has no leader: check the brokers and try again"
    )


def _high_watermarks(data_dir: str) -> Mapping[TopicPartition, int]:
    """Return the checkpointed high watermarks; empty if the folder has no readable checkpoint."""
    with suppress(checkpoints.DamagedCheckpoint):
        return checkpoints.read_offsets(
            OsFiles(), os.path.join(data_dir, checkpoints.HIGH_WATERMARKS)
        )
    return {}
