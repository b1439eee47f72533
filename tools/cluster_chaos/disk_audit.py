"""The files of all brokers after a run: every log is sound, replicas have the same batches."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.cli.log import partitions_in
from headwater.log.verify import verify_log
from headwater.model import TopicPartition
from headwater.records.batch import BatchHeader, batches

SHOWN = 3


class StoredBatch(NamedTuple):
    """A batch as every replica must have it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


def audit(
    folders: Mapping[int, Path],
    replicas: Mapping[TopicPartition, Sequence[int]],
    acknowledged: Iterable[tuple[str, int, int]],
) -> list[str]:
    """What is wrong in the folders of stopped brokers; `acknowledged` are topic, partition, offset."""
    problems = [
        f"broker {broker}: {problem}"
        for broker, folder in folders.items()
        for log in partitions_in(str(folder))
        for problem in verify_log(log).problems
    ]
    offsets: dict[TopicPartition, set[int]] = {}
    for topic, partition, offset in acknowledged:
        offsets.setdefault(TopicPartition(topic, partition), set()).add(offset)
    for at, brokers in replicas.items():
        contents = {
            broker: batches_in(folders[broker] / f"{at.topic}-{at.partition}") for broker in brokers
        }
        problems += compare_replicas(f"{at.topic}-{at.partition}", contents, offsets.get(at, ()))
    return problems


def producers_of(
    folders: Mapping[int, Path], replicas: Mapping[TopicPartition, Sequence[int]]
) -> dict[tuple[str, int, int], tuple[int, int]]:
    """The producer id and epoch of each record, by topic, partition and offset."""
    return {
        (at.topic, at.partition, offset): (header.producer_id, header.producer_epoch)
        for at, brokers in replicas.items()
        for header in _headers_in(folders[brokers[0]] / f"{at.topic}-{at.partition}")
        for offset in range(header.base_offset, header.last_offset + 1)
    }


def batches_in(folder: Path) -> list[StoredBatch]:
    """The batches of a log in the order of their offsets; none if there is no such folder."""
    return [
        StoredBatch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
        for header in _headers_in(folder)
    ]


def _headers_in(folder: Path) -> Iterator[BatchHeader]:
    for file in sorted(folder.glob("*.log")):
        for _, header in batches(file.read_bytes()):
            yield header


def compare_replicas(
    name: str, contents: Mapping[int, Sequence[StoredBatch]], acknowledged: Collection[int] = ()
) -> list[str]:
    """How the replicas of a partition differ, above the latest start of any of them.

    Every one of the acknowledged offsets must be on every replica.
    """
    starts = [has[0].base_offset for has in contents.values() if has]
    start = max(starts, default=0)
    kept = {
        broker: [batch for batch in has if batch.base_offset >= start]
        for broker, has in contents.items()
    }
    problems = []
    for broker, has in contents.items():
        covered = {
            offset for batch in has for offset in range(batch.base_offset, batch.last_offset + 1)
        }
        missing = sorted(offset for offset in acknowledged if offset not in covered)
        if missing:
            problems.append(
                f"{name}: {len(missing)} acknowledged records are missing on broker {broker}, such "
                f"as those at {missing[:SHOWN]}"
            )
    (first, model), *others = kept.items()
    for broker, has in others:
        if has != model:
            differs = sorted(set(has) ^ set(model))[:SHOWN]
            problems.append(f"{name}: brokers {first} and {broker} differ: {differs}")
    return problems
