"""Compares the logs of all replicas after every event that changed one.

A batch that a leader has committed stays committed: at the same offset, in the log of every later
leader (I1), in every replica up to its own high watermark (I2, I8), and in every member of the
in-sync set (I8), which may lead next; so may eligible leader replicas, therefore nothing is committed
while fewer than min.insync.replicas are in sync (I8). No replica truncates it (I8). One epoch has one leader (I5).
A registered broker obeys no older decision and no older controller (I13). No replica lets its
readers past an open transaction (I6), and none has a batch after one of a newer epoch of its
producer (I7).

A power failure may take data of a machine: until it has all committed batches again, it is only
required not to lead.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from headwater.broker.context import Context
from headwater.model import NO_EPOCH, TopicPartition, Uuid
from headwater.records.batch import batches
from headwater.replication.partition import Role
from headwater.replication.replica import Replica
from simulator.counted_writes import WRITES
from simulator.disk import File, Folder
from simulator.log_transactions import (
    MARKERS,
    Batch,
    BatchKind,
    LogSequences,
    LogTransactions,
)
from simulator.node import Life, Node, host_of
from simulator.partition_promises import Complain

Key: TypeAlias = tuple[Uuid, int]
"""A topic's id and a partition's number."""


class LogView:
    """The batches in the log of one replica, read from the simulated disk after each write."""

    def __init__(self, node: Node, directory: str, *, created_again: bool = False) -> None:
        self.node = node
        self._created_again = created_again
        self.batches: list[Batch] = []
        self.by_base: dict[int, Batch] = {}
        self.power_cuts = node.power_cuts
        """The number of power failures of the machine so far."""
        self.may_lack = False
        """Whether a power failure may have taken committed batches that are still missing."""
        self.transactions, self._sequences = self._begun()
        self.wrong = ""
        """What is wrong with the transactions of this log."""
        self.out_of_order = ""
        """What is wrong with the sequences of its producers."""
        self._directory = directory
        self._read: dict[str, tuple[File, int]] = {}
        self._end = 0

    def _begun(self) -> tuple[LogTransactions, LogSequences]:
        return LogTransactions(), LogSequences(created_again=self._created_again)

    def up_to(self, log_end: int) -> list[Batch]:
        """The batches of a log that ends at `log_end`, in order."""
        folder = self.node.disk.find(self._directory)
        if log_end < self._end or not self._still_in(folder):
            self.batches, self._read = [], {}
            self.by_base = {}
            self.transactions, self._sequences = self._begun()
        self._end = log_end
        if not isinstance(folder, Folder):
            return []
        for name in sorted([name for name in folder.entries if name.endswith(".log")]):
            file = folder.entries[name]
            if isinstance(file, File):
                self._read_on(name, file, log_end)
        return self.batches

    def still_there(self) -> bool:
        """Return whether no file that was read was removed or replaced."""
        return self._still_in(self.node.disk.find(self._directory))

    def _still_in(self, folder: object) -> bool:
        if not isinstance(folder, Folder):
            return False
        entries = folder.entries
        return all(entries.get(name) is file for name, (file, _) in self._read.items())

    def _read_on(self, name: str, file: File, log_end: int) -> None:
        _, done = self._read.get(name, (file, 0))
        if len(file.data) <= done:
            return
        content = bytes(file.data[done:])
        for position, header in batches(content):
            if header.last_offset >= log_end:
                break
            whole = memoryview(content)[position : position + header.size]
            batch = Batch.read(header, whole)
            self.wrong = self.transactions.add(batch) or self.wrong
            self.out_of_order = self._sequences.add(batch) or self.out_of_order
            self.batches.append(batch)
            self.by_base[batch.base_offset] = batch
            self._read[name] = file, done + position + header.size


@dataclass
class Committed:
    """Everything ever committed in one partition."""

    at: TopicPartition
    key: Key
    batches: list[Batch] = field(default_factory=list)
    by_base: dict[int, Batch] = field(default_factory=dict)
    committed_in: dict[int, int] = field(default_factory=dict)
    """The epoch of the leader that committed each batch, by base offset."""
    leaders: dict[int, int] = field(default_factory=dict)
    """The leader by leader epoch."""

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def outcome(self, offset: int) -> BatchKind | None:
        """Return the marker that decides about the record at `offset`; None while it is open."""
        place = bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1
        written = self.batches[place]
        if written.kind is BatchKind.PLAIN:
            return BatchKind.COMMIT
        for batch in self.batches[place + 1 :]:
            if batch.producer_id == written.producer_id and batch.kind in MARKERS:
                return batch.kind
        return None


class _Seen(NamedTuple):
    """The state of a replica after the last event of its broker."""

    role: Role
    leader_epoch: int
    high_watermark: int
    log_end: int
    enough_in_sync: bool


class CommittedLogs:
    """Watches the replicas of all brokers."""

    def __init__(
        self, nodes: Iterable[Node], complain: Complain, recreated: frozenset[str] = frozenset()
    ) -> None:
        self._recreated = recreated
        """Topics that may be deleted and created again."""
        self._nodes = {node.host: node for node in nodes}
        self._complain = complain
        self._committed: dict[Key, Committed] = {}
        self._seen: dict[Replica, _Seen] = {}
        self._looked: dict[Life, int] = {}
        """The number of changes of replicas when each life of a broker was last looked at."""
        self._views: dict[tuple[str, Key], LogView] = {}
        self._controllers: dict[Life, int] = {}
        """The controller epoch that each life of a broker obeys."""
        self._registered: dict[int, dict[Key, int]] = {}
        """The leader epochs that were stored when each broker last registered."""
        self.on_committed: Callable[[Committed, Batch], None] = lambda *_: None
        """Called with each batch that is committed, once."""

    def of(self, topic_id: Uuid, at: TopicPartition) -> "Committed":
        """Return the records of one partition."""
        books = self._committed.get((topic_id, at.partition))
        if books is None:
            books = self._committed[topic_id, at.partition] = Committed(
                at, (topic_id, at.partition)
            )
        return books

    def end_of(self, at: TopicPartition) -> int:
        """Return where the committed part of a partition ends, whichever topic of this name it is of."""
        return max((books.end for books in self._committed.values() if books.at == at), default=0)

    def ends(self) -> dict[Key, int]:
        """Return where the committed part of each partition ends."""
        return {key: books.end for key, books in self._committed.items()}

    def unmarked(self) -> list[str]:
        """Return the followers whose high watermark is not that of their leader."""
        replicas = [
            (node, replica)
            for node in self._nodes.values()
            if node.life is not None
            for partitions in node.life.broker.context.replicas._topics.values()
            for replica in partitions.values()
        ]
        marks = {
            (replica.topic_id, replica.topic_partition): replica.high_watermark
            for _, replica in replicas
            if replica.partition.role is Role.LEADER
        }
        return [
            f"{node.host} has {at} committed up to {replica.high_watermark}, its leader up to {mark}"
            for node, replica in replicas
            if (mark := marks.get((replica.topic_id, at := replica.topic_partition))) is not None
            and mark != replica.high_watermark
        ]

    def look(self, node: Node, life: Life, context: Context) -> None:
        """Check what an event of this broker changed."""
        if context.control.controller_epoch != self._controllers.get(life):
            self._other_controller(node, life, context.control.controller_epoch)
        if self._looked.get(life) == WRITES.count:
            return
        self._looked[life] = WRITES.count
        seen = self._seen
        for partitions in context.replicas._topics.values():  # a generator would take twice as long
            for replica in partitions.values():
                partition = replica.partition
                before = seen.get(replica)
                if (
                    before is None
                    or replica.log.log_end_offset != before.log_end
                    or partition.high_watermark != before.high_watermark
                    or partition.leader_epoch != before.leader_epoch
                    or partition.role is not before.role
                ):
                    self._changed(node, replica, before)

    # -- what brokers are told

    def registered(self, broker_id: int, leader_epochs: dict[Key, int]) -> None:
        """Note that a broker registers while these leader epochs are stored."""
        self._registered[broker_id] = leader_epochs

    def _other_controller(self, node: Node, life: Life, epoch: int) -> None:
        before = self._controllers.get(life, -1)
        if epoch < before:
            self._complain(
                f"I13: {node.host} obeys the controller of epoch {epoch} after that of {before}"
            )
        self._controllers[life] = epoch

    def in_sync(self, topic_id: Uuid, at: TopicPartition, isr: Iterable[int]) -> None:
        """Check that in-sync and eligible replicas have every committed batch: each may lead next."""
        books = self.of(topic_id, at)
        for broker in isr:
            self._has_committed(books, broker, "is stored as in sync or eligible", books.batches)

    def _has_committed(
        self, books: Committed, broker: int, why: str, wanted: Iterable[Batch]
    ) -> None:
        view = self._views.get((host_of(broker), books.key))
        if view is None or view.power_cuts != view.node.power_cuts or view.may_lack:
            return
        for batch in wanted:
            if view.by_base.get(batch.base_offset) != batch:
                self._complain(
                    f"I8: {books.at} broker {broker} {why} and has "
                    f"{view.by_base.get(batch.base_offset)}, committed is {batch}"
                )
                return

    # -- what replicas do

    def _changed(self, node: Node, replica: Replica, before: _Seen | None) -> None:
        partition = replica.partition
        now = self._seen[replica] = _Seen(
            partition.role, partition.leader_epoch, partition.high_watermark,
            replica.log.log_end_offset, partition.enough_in_sync,
        )  # fmt: skip
        books = self.of(replica.topic_id, replica.topic_partition)
        self._read_log(node, replica, books, before, now)
        self._check_producers(node, replica, books)
        if now.leader_epoch == NO_EPOCH or now.role is Role.NONE:
            return
        node_id = partition.node_id
        leads = now.role is Role.LEADER
        if before is None or before.leader_epoch != now.leader_epoch:
            stored = self._registered.get(node_id, {}).get(books.key, NO_EPOCH)
            if now.leader_epoch < stored:
                self._complain(
                    f"I13: {books.at} broker {node_id} adopts epoch {now.leader_epoch}, "
                    f"epoch {stored} was stored when it registered"
                )
            if leads:
                self._began_to_lead(books, node_id, now, replica)
        led = leads and before is not None and before.role is Role.LEADER
        if led and before is not None and now.high_watermark < before.high_watermark:
            self._complain(
                f"I4: {books.at} high watermark of leader {node_id} went from "
                f"{before.high_watermark} to {now.high_watermark}"
            )
        if led and before is not None and now.high_watermark > before.high_watermark:
            self._check_in_sync(books, replica, before, now)
        checked = before.high_watermark if before is not None else 0
        if before is None or now.high_watermark > checked:
            self._advanced(books, node_id, now, replica, checked)

    def _check_in_sync(self, books: Committed, replica: Replica, before: _Seen, now: _Seen) -> None:
        """Check that a leader committed nothing while too few replicas were in sync (KIP-966)."""
        if not (before.enough_in_sync or now.enough_in_sync):
            self._complain(
                f"I8: {books.at} leader {replica.partition.node_id} moves its high watermark to "
                f"{now.high_watermark} while only {sorted(replica.partition.isr)} are in sync"
            )

    def _read_log(
        self, node: Node, replica: Replica, books: Committed, before: _Seen | None, now: _Seen
    ) -> None:
        """Read the new part of a log that grew; check the removed part of a truncated one."""
        at = (node.host, books.key)
        view = self._views.get(at)
        shorter = before is None or now.log_end < before.log_end
        if view is None or shorter:
            had = view
            view = self._views[at] = self._view(node, replica)
            if had is not None:
                view.may_lack = had.may_lack or had.power_cuts != node.power_cuts
                if not view.may_lack and (before is not None or had.still_there()):
                    self._truncated(books, node.settings.node_id, now, had)
        if before is None or shorter or now.log_end != before.log_end:
            view.up_to(now.log_end)
        if view.may_lack:
            view.may_lack = any(
                view.by_base.get(batch.base_offset) != batch for batch in books.batches
            )

    def _view(self, node: Node, replica: Replica) -> LogView:
        created_again = replica.topic_partition.topic in self._recreated
        return LogView(node, replica.log.directory, created_again=created_again)

    def _check_producers(self, node: Node, replica: Replica, books: Committed) -> None:
        view = self._views[node.host, books.key]
        if view.out_of_order:
            self._complain(f"I3: {books.at} on {node.host}: {view.out_of_order}")
        if not view.transactions.used:
            return
        if view.wrong:
            self._complain(f"I7: {books.at} on {node.host}: {view.wrong}")
        stable = view.transactions.stable(replica.high_watermark)
        if replica.last_stable_offset > stable:
            self._complain(
                f"I6: {books.at} readers of {node.host} get what is below "
                f"{replica.last_stable_offset}, open or not replicated is {stable}"
            )

    def _truncated(self, books: Committed, node_id: int, now: _Seen, had: LogView) -> None:
        for batch in reversed(had.batches):
            if batch.last_offset < now.log_end:
                return
            if books.by_base.get(batch.base_offset) == batch:
                self._complain(
                    f"I8: {books.at} broker {node_id} truncated its log to {now.log_end}, "
                    f"committed is {batch}"
                )
                return

    def _began_to_lead(self, books: Committed, node_id: int, now: _Seen, replica: Replica) -> None:
        other = books.leaders.setdefault(now.leader_epoch, node_id)
        if other != node_id:
            self._complain(
                f"I5: {books.at} epoch {now.leader_epoch} is led by {other} and by {node_id}"
            )
        has = self._views[host_of(node_id), books.key].by_base
        start = replica.log.log_start_offset
        for batch in books.batches:
            # A broker may learn late that it led, after others have led and committed.
            earlier = books.committed_in[batch.base_offset] < now.leader_epoch
            if earlier and batch.last_offset >= start and has.get(batch.base_offset) != batch:
                self._complain(
                    f"I1: {books.at} leader {node_id} of epoch {now.leader_epoch} has "
                    f"{has.get(batch.base_offset)} (log end {now.log_end}), committed is {batch}"
                )
                return

    def _advanced(
        self, books: Committed, node_id: int, now: _Seen, replica: Replica, checked: int
    ) -> None:
        start = replica.log.log_start_offset
        added: list[Batch] = []
        for batch in reversed(self._views[host_of(node_id), books.key].batches):
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
            for batch in reversed(added):
                books.by_base[batch.base_offset] = batch
                books.committed_in[batch.base_offset] = now.leader_epoch
                self.on_committed(books, batch)
            partition = replica.partition
            for member in sorted(partition.isr | (partition.proposed_isr or frozenset())):
                self._has_committed(books, member, f"is in sync for {node_id}", added)
        elif now.high_watermark > max(books.end, start):
            self._complain(
                f"I4: {books.at} follower {node_id} has high watermark {now.high_watermark}, "
                f"committed is {books.end}"
            )
