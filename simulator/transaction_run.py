"""The transactions of a run of a cluster: their topics and clients, and what must hold in the end."""

from collections.abc import Callable, Iterator
from typing import Any

from headwater.client.consumer.consumer import Consumer
from headwater.coordination.runtime_loop import ShardState
from headwater.coordination.transactions.states import PREPARED, TransactionState
from headwater.log.aborted_counts import read_counts
from headwater.log.aborted_index import AbortedIndex
from headwater.log.file_names import offsets_in
from headwater.log.segment import ABORTED_INDEX
from headwater.model import TRANSACTION_STATE, TopicPartition, Uuid
from headwater.replication.partition import Role
from headwater.replication.replica import Replica
from simulator.clock import SimClock
from simulator.cluster import Cluster
from simulator.cluster_plan import ClusterPlan
from simulator.committed import CommittedLogs, LogView
from simulator.files import FileFaults, SimFiles
from simulator.invariants import Promises
from simulator.log_transactions import BatchKind
from simulator.node import Node
from simulator.randomness import stream
from simulator.store_checks import StoreView
from simulator.trace import Trace
from simulator.transaction_books import Contents, TransactionBooks
from simulator.transaction_records import skipped_epochs
from simulator.workload.real_clients import PATIENCE_MS, RealClient
from simulator.workload.transactional import (
    CommittedReader,
    TransactionalClient,
    Transactor,
    Transformer,
)

ACCOUNTS, ENTRIES, DRAFTS, TOTALS = "accounts", "entries", "drafts", "totals"
PARTITIONS = {ACCOUNTS: 2, ENTRIES: 1, DRAFTS: 1, TOTALS: 1}
"""DRAFTS is deleted and created again while it is in use, in some runs."""
WATCHED = [TopicPartition(ACCOUNTS, 0), TopicPartition(ACCOUNTS, 1), TopicPartition(ENTRIES, 0)]
RESULTS = TopicPartition(TOTALS, 0)
STUCK_S = 15.0
"""How long a transaction may stay open after everything is healed: its timeout and 10 s."""


class TransactionRun:
    """The part of a run that has transactions."""

    def __init__(
        self, cluster: Cluster, plan: ClusterPlan, promises: Promises, logs: CommittedLogs
    ) -> None:
        assert cluster.zookeeper is not None
        self._cluster = cluster
        self._plan = plan
        self._promises = promises
        self._logs = logs
        self._view = StoreView(cluster.zookeeper.tree)
        self._chance = stream(cluster.seed, "transactions")
        self.books = TransactionBooks(promises.complain, DRAFTS)
        logs.on_committed = self.books.committed
        self.over: Callable[[], bool] = lambda: False
        """Whether readers and transformers must stop."""
        self.transactors: list[Transactor] = []
        self.transformers: list[Transformer] = []
        self.reader: CommittedReader | None = None
        self._started = 0
        self._ids: dict[str, Uuid] = {}

    @property
    def topics(self) -> list[str]:
        """The topics to create."""
        return list(PARTITIONS) if self._plan.transactors else []

    def begin(self, source: str, places: int) -> None:
        """Start all clients; transformers read `source`."""
        if not self._plan.transactors:
            return
        self._source, self._places = source, places
        for number in range(self._plan.transactors):
            self._add_transactor(f"tx-{number}")
        for number in range(self._plan.transformers):
            self._add_transformer(f"transform-{number}")
        self.reader = CommittedReader(
            self._cluster, self._promises, "committed reader", [*WATCHED, RESULTS],
            self.over, self._took,
        )  # fmt: skip
        self.reader.begin()

    def _add_transactor(self, transactional_id: str) -> None:
        places = [self._chance.choice(WATCHED), *WATCHED]
        if self._plan.recreated:
            places.append(TopicPartition(DRAFTS, 0))
        transactor = Transactor(
            *self._process(transactional_id), old_protocol=self._is_old(), places=places,
            count=self._plan.transactions, pause_ms=self._plan.pause_ms,
        )  # fmt: skip
        self.transactors.append(transactor)
        transactor.begin()

    def _add_transformer(self, transactional_id: str) -> None:
        transformer = Transformer(
            *self._process(transactional_id), old_protocol=self._is_old(), source=self._source,
            target=RESULTS, over=self.over,
        )  # fmt: skip
        self.transformers.append(transformer)
        transformer.begin()

    def _process(self, transactional_id: str) -> tuple[Any, ...]:
        self._started += 1
        name = f"{transactional_id} process {self._started}"
        return self._cluster, self._promises, name, self.books, transactional_id

    def _is_old(self) -> bool:
        return self._chance.random() < self._plan.old_protocol

    @property
    def clients(self) -> list[RealClient]:
        """All clients that live."""
        reader = [self.reader] if self.reader is not None else []
        return [*self.transactors, *self.transformers, *reader]

    @property
    def readers(self) -> list[RealClient]:
        """The clients that read until they must stop."""
        reader = [self.reader] if self.reader is not None else []
        return [*self.transformers, *reader]

    # -- what the nemesis does

    def fenced_by_epochs(self) -> list[str]:
        """The hosts whose late requests have an epoch that is over."""
        return [client.name for client in self.transactors if not client.old_protocol]

    def replace(self, number: int, *, kill: bool) -> bool:
        """Start another process with the transactional id of one that works, which may die."""
        working: list[TransactionalClient] = [
            client
            for client in (*self.transactors, *self.transformers)
            if not client.done and not client.superseded
        ]
        if not working:
            return False
        client = working[number % len(working)]
        if kill:
            client.loop.kill()
            self._cluster.network.process_died(client.loop)
        if isinstance(client, Transactor):
            self.transactors = [one for one in self.transactors if one is not client or not kill]
            self._add_transactor(client.transactional_id)
        else:
            self.transformers = [one for one in self.transformers if one is not client or not kill]
            self._add_transformer(client.transactional_id)
        return True

    # -- what must hold

    def _took(self, at: TopicPartition, offset: int, value: bytes) -> None:
        outcome = self._logs.of(self._id_of(at.topic), at).outcome(offset)
        if outcome is not BatchKind.COMMIT:
            self._promises.complain(
                f"I6: {at} offset {offset} is read before its commit marker: {outcome}"
            )
        self.books.took(at, offset, value)

    def _id_of(self, topic: str) -> Uuid:
        """The id of a topic that is never deleted."""
        if topic not in self._ids:
            self._ids = {name: row.topic_id for name, row in self._view.topics().items()}
        return self._ids[topic]

    def untransformed(self, ends: dict[int, int]) -> list[str]:
        """Return records of the source whose results nobody has read yet."""
        if not self.transformers:
            return []
        missing = [
            (partition, offset)
            for partition, end in ends.items()
            for offset in range(end)
            if (partition, offset) not in self.books.transformed
        ]
        return [f"no results of {missing[:5]}"] if missing else []

    def unfollowed(self) -> list[str]:
        """Return partitions that the reader has not followed to their end."""
        if self.reader is None:
            return []
        found = []
        for at in (*WATCHED, RESULTS):
            position, end = self.reader.position(at), self._logs.of(self._id_of(at.topic), at).end
            if position is None or position < end:
                found.append(f"{at} is followed up to {position} of {end}")
        return found

    def hanging(self) -> list[str]:
        """Return open transactions, as coordinators and leaders know them (L2)."""
        found, loaded = [], set()
        for node in self._cluster.nodes:
            context = node.broker.context
            for partition, runtime in context.transactions._shards.items():
                if runtime.state is ShardState.ACTIVE:
                    loaded.add(TopicPartition(TRANSACTION_STATE, partition))
                for transactional_id, known in runtime.shard.transactions.items():
                    if known.state is TransactionState.ONGOING or known.state in PREPARED:
                        found.append(f"{transactional_id} is {known.state}")
        led = set()
        for replica in self._leaders():
            led.add(replica.topic_partition)
            # The mark of a new leader lags behind what was committed.
            end = self._logs.of(replica.topic_id, replica.topic_partition).end
            if replica.last_stable_offset < end:
                found.append(
                    f"{replica.topic_partition} is stable up to {replica.last_stable_offset} of "
                    f"{end}"
                )
        if found:
            return found
        for name, topic in self._view.topics().items():
            for partition in topic.replicas:
                at = TopicPartition(name, partition)
                if at not in led or (name == TRANSACTION_STATE and at not in loaded):
                    found.append(f"{at} is led by nobody at the moment")
        return found

    def _leaders(self) -> Iterator[Replica]:
        for node in self._cluster.nodes:
            for partitions in node.broker.context.replicas._topics.values():
                for replica in partitions.values():
                    if replica.partition.role is Role.LEADER:
                        yield replica

    def audit(self) -> RealClient | None:
        """Read everything back; the returned client ends with that."""
        if not self._plan.transactors:
            return None
        auditor = _TransactionAuditor(
            self._cluster, self._promises, self.books, self._source, self._places,
            with_results=bool(self.transformers),
        )  # fmt: skip
        auditor.begin()
        return auditor

    # -- the disks

    def audit_disks(self) -> None:
        """Check on each replica that every transaction ended, and which are listed as aborted."""
        for name, topic in self._view.topics().items():
            for partition, replicas in topic.replicas.items():
                for node in self._cluster.nodes:
                    if node.settings.node_id in replicas:
                        self._audit_disk(TopicPartition(name, partition), node)

    def _audit_disk(self, at: TopicPartition, node: Node) -> None:
        folder = f"{node.settings.log_dirs[0]}/{at.topic}-{at.partition}"
        view = LogView(node, folder)
        view.up_to(1 << 62)
        if view.transactions.open:
            self._promises.complain(
                f"L2: {at} on the disk of {node.host} has open transactions: "
                f"{view.transactions.open}"
            )
        if at.topic == TRANSACTION_STATE:
            for skipped in skipped_epochs(node, folder):
                self._promises.complain(f"L2: {at} on the disk of {node.host}: {skipped}")
        aborted = [
            (ended.producer_id, ended.first_offset, ended.marker_offset)
            for ended in view.transactions.ended
            if not ended.committed
        ]
        listed = _listed_as_aborted(node, folder)
        if listed is not None and listed != aborted:
            self._promises.complain(
                f"I6: {at} on the disk of {node.host} lists {listed} as aborted, not {aborted}"
            )


def _listed_as_aborted(node: Node, folder: str) -> list[tuple[int, int, int]] | None:
    """Return the entries of the indexes; None if one lost some in a power cut, and a reader rebuilds it."""
    files = SimFiles(
        node.disk, SimClock(node.scheduler), stream(node.seed, "verify"), Trace(), FileFaults()
    )
    counts = read_counts(files, folder)
    listed = []
    for base in offsets_in(files.listdir(folder), ABORTED_INDEX):
        index = list(AbortedIndex(files, f"{folder}/{base:020d}{ABORTED_INDEX}"))
        if len(index) < counts.of(base):
            return None
        listed += index
    return [(one.producer_id, one.first_offset, one.last_offset) for one in listed]


class _TransactionAuditor(RealClient):
    """Reads the committed transactions back, and the offsets that they committed."""

    def __init__(
        self,
        cluster: Cluster,
        promises: Promises,
        books: TransactionBooks,
        source: str,
        places: int,
        *,
        with_results: bool,
    ) -> None:
        super().__init__(cluster, promises, "transaction auditor")
        self._books = books
        self._sources = [TopicPartition(source, number) for number in range(places)]
        self._with_results = with_results

    async def run(self) -> None:
        """Read and compare."""
        content = await self._read([*WATCHED, RESULTS])
        results = {RESULTS: content[RESULTS]}
        groups = sorted({transactional_id for transactional_id, _ in self._books.transactions})
        offsets = {group: max((await self._committed(group, WATCHED)).values()) for group in groups}
        self._books.audit(content, offsets)
        if self._with_results:
            ends = await self._committed("totals", self._sources)
            self._books.audit_results(
                results, {at.partition: max(offset, 0) for at, offset in ends.items()}
            )

    def _consumer(self, **options: Any) -> Consumer[Any, Any]:
        consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=self.bootstrap, **self.seams(), **self.reading(), enable_auto_commit=False,
            default_api_timeout_ms=PATIENCE_MS, isolation_level="read_committed", **options,
        )  # fmt: skip
        self.opened(consumer._poller)
        return consumer

    async def _read(self, places: list[TopicPartition]) -> Contents:
        consumer = self._consumer(auto_offset_reset="earliest")
        ends = await consumer.end_offsets(places)
        content: Contents = {at: {} for at in places}
        await consumer.assign(places)
        while True:
            for record in await consumer.poll(timeout=1.0):
                at = TopicPartition(record.topic, record.partition)
                content[at][record.offset] = record.value or b""
            positions = [await consumer.position(at) >= ends[at] for at in places]
            if all(positions):
                break
        await consumer.close()
        return content

    async def _committed(
        self, group: str, places: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        consumer = self._consumer(group_id=group)
        found = await consumer.committed(places)
        await consumer.close()
        return {at: -1 if (offset := found.get(at)) is None else offset.offset for at in places}
