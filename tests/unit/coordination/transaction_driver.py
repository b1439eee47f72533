"""Drives a transaction shard by hand: a virtual clock, replies by token, markers on request."""

from headwater.coordination.deadlines import Now
from headwater.coordination.shard import Outcome
from headwater.coordination.transactions import records
from headwater.coordination.transactions.commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    PreparedTransaction,
    ProducerAnswer,
    ProducerIdentity,
    VerifyPartitions,
)
from headwater.coordination.transactions.metadata import TransactionMetadata
from headwater.coordination.transactions.settings import TransactionSettings
from headwater.coordination.transactions.shard import TransactionOutcome, TransactionShard
from headwater.model import NO_EPOCH, TopicPartition

WALL_START = 1_700_000_000_000
TIMEOUT_MS = 60_000
DEFAULTS = TransactionSettings()
MARKERS = "markers"


class Driver:
    """One shard, its clock, its log, and everything it ever answered."""

    def __init__(self, settings: TransactionSettings = DEFAULTS) -> None:
        self.settings = settings
        self.monotonic_ms = 0
        self.wall_error_ms = 0
        self.coordinator_epoch = 0
        self.tokens = 0
        self.producer_ids = 100
        self.waiting: set[int] = set()
        self.answers: dict[int, object] = {}
        self.prepared: list[PreparedTransaction] = []
        self.log: list[records.TransactionRecord] = []
        self.shard = self.replayed()
        self.run(self.shard.loaded(self.now))

    @property
    def now(self) -> Now:
        return Now(self.monotonic_ms, self.monotonic_ms + WALL_START + self.wall_error_ms)

    def replayed(self) -> TransactionShard:
        fresh = TransactionShard(self.settings, self.coordinator_epoch, MARKERS)
        for record in self.log:
            stored = records.decode(*records.encode(record))
            assert stored is not None
            fresh.replay(stored)
        return fresh

    def restart(self) -> None:
        """The coordinator dies: only the log is left, and another broker loads it."""
        self.coordinator_epoch += 1
        self.waiting.clear()
        self.prepared.clear()
        self.shard = self.replayed()
        self.run(self.shard.loaded(self.now))

    def run(self, outcome: TransactionOutcome) -> None:
        for record in outcome.records:
            records.encode(record)  # one that cannot be encoded fails the whole append
        for record in outcome.records:
            self.log.append(record)
            self.shard.replay(record)
        for token, answer in outcome.replies:
            if token == MARKERS:
                assert isinstance(answer, PreparedTransaction)
                self.prepared.append(answer)
                continue
            assert isinstance(token, int)
            assert token in self.waiting, f"token {token} was answered twice"
            self.waiting.discard(token)
            self.answers[token] = answer

    def advance(self, ms: int) -> None:
        end = self.monotonic_ms + ms
        while (at := self.shard.next_deadline()) is not None and at <= end:
            self.monotonic_ms = max(at, self.monotonic_ms)
            self.run(self.shard.expire(self.now))
        self.monotonic_ms = end

    def ask(self, command, argument) -> object:
        """Run a command; return its answer, or None while it waits."""
        self.tokens += 1
        token = self.tokens
        self.waiting.add(token)
        self.run(command(self.shard, self.now, argument, token))
        return self.answers.get(token)

    def known(self, name: str = "t") -> TransactionMetadata:
        return self.shard.transactions[name]

    def store(self, metadata: TransactionMetadata, name: str = "t") -> ProducerIdentity:
        """Put a state into the log, as many steps, or another broker, have left it."""
        self.run(Outcome([records.TransactionRecord(name, metadata)]))
        return ProducerIdentity(metadata.producer_id, metadata.producer_epoch)

    # -- commands

    def init(self, name="t", expected=None, timeout_ms=TIMEOUT_MS) -> ProducerAnswer:
        command = InitProducer(name, timeout_ms, expected)
        answer = self.ask(TransactionShard.init, command)
        assert isinstance(answer, ProducerAnswer)
        if answer.needs_producer_id:
            return self.ask(TransactionShard.init, command._replace(new_producer_id=self.new_id()))
        return answer

    def new_id(self) -> int:
        self.producer_ids += 1
        return self.producer_ids

    def add(self, producer: ProducerIdentity, *names: str, name="t", version=0) -> object:
        command = AddPartitions(name, producer, partitions(*names), version)
        return self.ask(TransactionShard.add_partitions, command)

    def verify(self, producer: ProducerIdentity, *names: str, name="t") -> object:
        command = VerifyPartitions(name, producer, partitions(*names))
        return self.ask(TransactionShard.verify_partitions, command)

    def end(self, producer, commit=True, name="t", version=0) -> ProducerAnswer:
        command = EndTransaction(name, producer, commit, version)
        answer = self.ask(TransactionShard.end, command)
        assert isinstance(answer, ProducerAnswer)
        if answer.needs_producer_id:
            return self.ask(TransactionShard.end, command._replace(new_producer_id=self.new_id()))
        return answer

    def write_markers(self) -> list[object]:
        """Every marker is written, in any case those of this coordinator's time."""
        prepared, self.prepared = self.prepared, []
        return [self.ask(TransactionShard.complete, one) for one in prepared]


def partitions(*names: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(name, 0) for name in names)


def as_stored(shard: TransactionShard) -> dict[str, TransactionMetadata]:
    """The state of a shard without what the log does not keep."""
    return {
        name: known._replace(last_producer_epoch=NO_EPOCH)
        for name, known in shard.transactions.items()
    }
