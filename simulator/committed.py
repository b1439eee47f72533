"""The logs of all replicas, held against each other after every event.

What a leader counts as committed is committed forever: the same batches, at the same offsets, in
the log of every later leader (I1), and in every replica up to its own high watermark (I2, I8). One
epoch has one leader (I5).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headwater.model import NO_EPOCH, TopicPartition, Uuid
from headwater.records.batch import batches
from headwater.replication.partition import Role
from headwater.replication.replica import Replica
from simulator.disk import File, Folder
from simulator.node import Node
from simulator.partition_promises import Complain

Key: TypeAlias = tuple[Uuid, int]
"""A topic's id and a partition's number."""


class Batch(NamedTuple):
    """One batch as every replica must have it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class LogView:
    """The batches in the log of one replica, read from the simulated disk as they are written."""

    def __init__(self, node: Node, directory: str) -> None:
        self.host = node.host
        self._node = node
        self._directory = directory
        self._batches: list[Batch] = []
        self._read: dict[str, tuple[File, int]] = {}
        self._end = 0

    def up_to(self, log_end: int) -> list[Batch]:
        """The batches of a log that ends at `log_end`, in order."""
        if log_end < self._end or not self._still_there():
            self._batches, self._read = [], {}
        self._end = log_end
        folder = self._node.disk.find(self._directory)
        if not isinstance(folder, Folder):
            return []
        for name in sorted(folder.entries):
            file = folder.entries[name]
            if name.endswith(".log") and isinstance(file, File):
                self._read_on(name, file, log_end)
        return self._batches

    def _still_there(self) -> bool:
        folder = self._node.disk.find(self._directory)
        return isinstance(folder, Folder) and all(
            folder.entries.get(name) is file for name, (file, _) in self._read.items()
        )

    def _read_on(self, name: str, file: File, log_end: int) -> None:
        _, done = self._read.get(name, (file, 0))
        if len(file.data) <= done:
            return
        content = bytes(file.data[done:])
        for position, header in batches(content):
            if header.last_offset >= log_end:
                break
            self._batches.append(
                Batch(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
            )
            self._read[name] = file, done + position + header.size


@dataclass
class _Committed:
    """What was ever committed in one partition."""

    at: TopicPartition
    batches: list[Batch] = field(default_factory=list)
    by_base: dict[int, Batch] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    """By leader epoch: the broker that led in it."""

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0


class _Seen(NamedTuple):
    """What a replica looked like after the last event of its broker."""

    role: Role
    leader_epoch: int
    high_watermark: int
    log_end: int


class CommittedLogs:
    """Watches the replicas of all brokers."""

    def __init__(self, nodes: Iterable[Node], complain: Complain) -> None:
        self._nodes = {node.host: node for node in nodes}
        self._complain = complain
        self._committed: dict[Key, _Committed] = {}
        self._seen: dict[Replica, _Seen] = {}
        self._views: dict[Replica, LogView] = {}

    def of(self, topic_id: Uuid, at: TopicPartition) -> "_Committed":
        """The books of one partition."""
        books = self._committed.get((topic_id, at.partition))
        if books is None:
            books = self._committed[topic_id, at.partition] = _Committed(at)
        return books

    def look(self, host: str) -> None:
        """An event of this broker is over: look at what it changed."""
        node = self._nodes.get(host)
        life = node.life if node is not None else None
        if life is None or getattr(life.broker, "context", None) is None:
            return
        assert node is not None
        for replica in life.broker.context.replicas:
            partition = replica.partition
            before = self._seen.get(replica)
            if (
                before is None
                or partition.high_watermark != before.high_watermark
                or partition.leader_epoch != before.leader_epoch
                or partition.role is not before.role
                or replica.log.log_end_offset != before.log_end
            ):
                self._changed(node, replica, before)

    def forget(self, host: str) -> None:
        """The process has ended; its next life opens the logs again."""
        gone = [replica for replica, view in self._views.items() if view.host == host]
        for replica in gone:
            self._views.pop(replica)
            self._seen.pop(replica, None)

    def _changed(self, node: Node, replica: Replica, before: _Seen | None) -> None:
        partition = replica.partition
        now = self._seen[replica] = _Seen(
            partition.role, partition.leader_epoch, partition.high_watermark,
            replica.log.log_end_offset,
        )  # fmt: skip
        if replica not in self._views or (before is not None and now.log_end < before.log_end):
            self._views[replica] = LogView(node, replica.log.directory)
        if now.leader_epoch == NO_EPOCH or now.role is Role.NONE:
            return
        books = self.of(replica.topic_id, replica.topic_partition)
        node_id = partition.node_id
        leads = now.role is Role.LEADER
        if leads and (before is None or before.leader_epoch != now.leader_epoch):
            self._began_to_lead(books, node_id, now, replica)
        led = leads and before is not None and before.role is Role.LEADER
        if led and before is not None and now.high_watermark < before.high_watermark:
            self._complain(
                f"I4: {books.at} high watermark of leader {node_id} went from "
                f"{before.high_watermark} to {now.high_watermark}"
            )
        checked = before.high_watermark if before is not None else 0
        if before is None or now.high_watermark > checked:
            self._advanced(books, node_id, now, replica, checked)

    def _began_to_lead(self, books: _Committed, node_id: int, now: _Seen, replica: Replica) -> None:
        other = books.leaders.setdefault(now.leader_epoch, node_id)
        if other != node_id:
            self._complain(
                f"I5: {books.at} epoch {now.leader_epoch} is led by {other} and by {node_id}"
            )
        has = {batch.base_offset: batch for batch in self._views[replica].up_to(now.log_end)}
        start = replica.log.log_start_offset
        for batch in books.batches:
            if batch.last_offset >= start and has.get(batch.base_offset) != batch:
                self._complain(
                    f"I1: {books.at} leader {node_id} of epoch {now.leader_epoch} has "
                    f"{has.get(batch.base_offset)} (log end {now.log_end}), committed is {batch}"
                )
                return

    def _advanced(
        self, books: _Committed, node_id: int, now: _Seen, replica: Replica, checked: int
    ) -> None:
        start = replica.log.log_start_offset
        added: list[Batch] = []
        for batch in reversed(self._views[replica].up_to(now.log_end)):
            if batch.last_offset >= now.high_watermark:
                continue
            if batch.last_offset < checked or batch.last_offset < start:
                break
            if batch.base_offset >= books.end:
                added.append(batch)
            elif books.by_base.get(batch.base_offset) != batch:
                self._complain(
                    f"I8: {books.at} broker {node_id} has {batch} below its high watermark "
                    f"{now.high_watermark}, committed is {books.by_base.get(batch.base_offset)}"
                )
                return
        if now.role is Role.LEADER:
            books.batches += reversed(added)
            books.by_base |= {batch.base_offset: batch for batch in added}
        elif now.high_watermark > max(books.end, start):
            self._complain(
                f"I4: {books.at} follower {node_id} has high watermark {now.high_watermark}, "
                f"committed is {books.end}"
            )
