"""Runs the shards of a coordinator on this broker: append, replay, reply when committed.

A command's records are staged in the log and replayed at once, so that the next command sees them.
Its replies, and those of every later command, reads included, wait until the high watermark has
passed the shard's last staged record: a client never gets a reply that a failover could undo.
A failed append drops the shard and loads it again from the log.

The runtime is generic: the topic, the shards, the codec of their records and the receiver of their
effects are parameters.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from headwater.coordination.append_errors import FAULTS_OF_PRODUCERS, as_coordinator_error
from headwater.coordination.batch_split import RecordTooLarge, split
from headwater.coordination.coordinator_log import CoordinatorLog
from headwater.coordination.deadlines import Now
from headwater.coordination.shard import (
    InternalTopic,
    Outcome,
    RecordCodec,
    Shard,
    Token,
    TopicImage,
    TransactionalProducer,
    TransactionalShard,
)
from headwater.coordination.shard_turns import ShardTurns
from headwater.errors import E, KafkaError
from headwater.model import NO_PRODUCER_ID, TopicPartition, coordinator_partition
from headwater.records.batch import CRC_START, Buffer, batches
from headwater.records.checksum import crc32c
from headwater.records.control import Marker, read_marker
from headwater.records.record import decode_records
from headwater.seams.clock import Clock
from headwater.seams.timers import CallLater, Timer
from headwater.wire.codec import WireError

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard[Any])
R = TypeVar("R")
C = TypeVar("C")
Command: TypeAlias = Callable[[S, Now, C, Token], Outcome[R]]
Reply: TypeAlias = Callable[[object], None]
"""Gets the shard's answer, or a KafkaError if the shard closes before."""

LOAD_CHUNK_BYTES = 32 * 1024
MAX_LOAD_CHUNK_BYTES = 2 * 1024 * 1024 * 1024
"""No batch is larger."""
LOAD_RETRY_S = 1.0
SAY_AGAIN_MS = 60_000
"""How often a partition that still cannot be loaded is logged."""
REPLIES_PER_TURN = 200


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class ShardRuntime(Generic[S, R]):
    """One shard, from its election to its resignation."""

    def __init__(
        self, runtime: "CoordinatorRuntime[S, R]", at: TopicPartition, leader_epoch: int
    ) -> None:
        self.state = ShardState.LOADING
        self.leader_epoch = leader_epoch
        self.shard = runtime.new_shard(leader_epoch)
        self.skipped_records = 0
        self._at = at
        self._partition = at.partition
        self._runtime = runtime
        self._log = runtime.log
        self._clock = runtime.clock
        self._call_later = runtime.call_later
        self._held: deque[tuple[int, Reply, object]] = deque()
        self._high_watermark = 0
        self._staged = 0  # replies wait until the high watermark is here
        self._answering = False
        self._armed_ms: int | None = None
        self._append_failure_logged = False
        self._say_too_large_at_ms = 0
        self._load_failure = ""
        self._load_failure_said_ms = 0
        self._topics_deleted: dict[str, None] = {}  # while loading
        self._load_offset = 0
        self._load_bytes = LOAD_CHUNK_BYTES
        self._timer: Timer | None = None
        self._load_soon = partial(runtime.turns.add, self._load_chunk)
        self._load_soon()

    # -- loading

    def _load_chunk(self) -> None:
        """Replay a chunk of the log; the event loop turns between two of them."""
        if self.state is not ShardState.LOADING:
            return  # resigned before its turn
        try:
            self._staged = self._log.end(self._partition)
            self._high_watermark = self._log.high_watermark(self._partition)
        except KafkaError as failure:
            self._load_failed(failure)
            return
        if self._load_offset < self._staged:
            self._log.read(self._partition, self._load_offset, self._load_bytes, self._loaded_chunk)
        else:
            self._become_active()

    def _load_failed(self, failure: KafkaError) -> None:
        now_ms = self._clock.monotonic_ms()
        if (
            str(failure) != self._load_failure
            or now_ms >= self._load_failure_said_ms + SAY_AGAIN_MS
        ):
            self._load_failure, self._load_failure_said_ms = str(failure), now_ms
            log.error(
                "%s cannot be read (%s): the groups or transactions in it have no coordinator "
                "until it can; stop the broker, check the partition with `headwater log verify` "
                "and put its folder back from a copy, or move the folder away to start without "
                "what it held",
                self._at,
                failure,
            )
        self._timer = self._call_later(LOAD_RETRY_S, self._load_soon)

    def _loaded_chunk(self, chunk: Buffer | KafkaError) -> None:
        if self.state is not ShardState.LOADING:
            return  # resigned while the disk was read
        try:
            if isinstance(chunk, KafkaError):
                raise chunk
            self._replay_batches(memoryview(chunk))
        except KafkaError as failure:
            self._load_failed(failure)
            return
        if self._load_offset < self._staged:
            self._load_soon()
        else:
            self._become_active()

    def _become_active(self) -> None:
        self.state = ShardState.ACTIVE
        self.run(self.shard.loaded(self._now()))
        self.topics_deleted(self._topics_deleted)
        summary = self.shard.summary()
        log.log(
            logging.INFO if summary or self.skipped_records else logging.DEBUG,
            "%s is loaded: %s, %d records of unknown types skipped",
            self._at,
            summary or "empty",
            self.skipped_records,
        )

    def _replay_batches(self, chunk: memoryview) -> None:
        before = self._load_offset
        for position, header in batches(chunk):
            if header.next_offset > self._load_offset:
                batch = chunk[position : position + header.size]
                if crc32c(batch[CRC_START:]) != header.crc:
                    raise KafkaError(
                        E.CORRUPT_MESSAGE, f"wrong checksum at offset {header.base_offset}"
                    )
                if header.control:
                    self._replay_marker(batch)
                else:
                    self._replay_batch(batch, header.producer_id)
                self._load_offset = header.next_offset
        if self._load_offset > before:
            self._load_bytes = LOAD_CHUNK_BYTES
        elif not chunk:
            self._load_offset = self._staged  # compaction removed the rest (KAFKA-9065)
        elif self._load_bytes < MAX_LOAD_CHUNK_BYTES:
            self._load_bytes *= 2  # a batch larger than the chunk (KAFKA-7286)
        else:
            raise KafkaError(E.CORRUPT_MESSAGE, f"no whole batch at offset {before}")

    def _replay_batch(self, batch: memoryview, producer_id: int) -> None:
        for record in decode_records(batch):
            known = None if record.key is None else self._decode(record.key, record.value)
            if known is None:
                self.skipped_records += 1
            else:
                self._replay(known, producer_id)

    def _replay(self, record: R, producer_id: int) -> None:
        if producer_id >= 0 and self._runtime.transactional is not None:
            self._runtime.transactional(self.shard).replay_transactional(producer_id, record)
        else:
            self.shard.replay(record)

    def _replay_marker(self, batch: memoryview) -> None:
        marker = read_marker(batch)
        if marker is not None and self._runtime.transactional is not None:
            shard = self._runtime.transactional(self.shard)
            shard.end_transaction(marker.producer_id, commit=marker.commit)

    def _decode(self, key: bytes, value: bytes | None) -> R | None:
        try:
            return self._runtime.codec.decode(key, value)
        except WireError as damage:
            log.warning("%s: skipped a damaged record: %s", self._at, damage)
            return None

    # -- running

    def submit(self, command: Command[S, C, R], argument: C, reply: Reply) -> None:
        """Run a command; KafkaError while the shard is loading or closed."""
        if self.state is not ShardState.ACTIVE:
            loading = self.state is ShardState.LOADING
            raise KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS if loading else E.NOT_COORDINATOR)
        self.run(command(self.shard, self._now(), argument, reply), limited=True)

    def run(self, outcome: Outcome[R], *, limited: bool = False) -> None:
        """Append, replay, then answer as soon as it is safe.

        `limited` refuses records above the limit of the topic. What is due by itself has no limit:
        it would be due forever, and keep what is due with it from the log.
        """
        staged = self._staged
        try:
            if outcome.records:
                self._append(outcome.records, outcome.producer, limited=limited)
        except RecordTooLarge as failure:
            self._refuse_too_large(outcome, failure)
            return
        except KafkaError as failure:
            self._append_refused(outcome, failure, clean=staged == self._staged)
            return
        self._append_failure_logged = False
        for effect in outcome.effects:
            self._runtime.on_effect(effect)
        for token, answer in outcome.replies:
            self._held.append((self._staged, _as_reply(token), answer))
        self._wait_for_deadline()
        self.high_watermark_advanced(self._high_watermark)

    def _append_refused(self, outcome: Outcome[R], failure: KafkaError, *, clean: bool) -> None:
        """Answer with the error, and load the shard again if it is ahead of the log."""
        if not self._append_failure_logged and failure.code not in FAULTS_OF_PRODUCERS:
            self._append_failure_logged = True
            log.warning("%s: append failed: %s", self._at, failure)
        lost = as_coordinator_error(failure)
        self._answer_all((token for token, _ in outcome.replies), lost)
        if clean and self.shard.survives_loss_of(outcome.records):
            self._wait_for_deadline()
        else:
            self._runtime.append_failed(self._partition)

    def _refuse_too_large(self, outcome: Outcome[R], failure: RecordTooLarge) -> None:
        """Answer with the error; only the command that made the records is undone."""
        refused = self.shard.too_large(outcome.records)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._say_too_large_at_ms:
            self._say_too_large_at_ms = now_ms + SAY_AGAIN_MS
            log.warning("%s: %s is too large to be stored: %s", self._at, refused.whose, failure)
        told = KafkaError(refused.error, failure.message)
        self._answer_all((token for token, _ in outcome.replies), told)
        self.run(self.shard.withdraw(self._now(), outcome.records))

    def end_transaction(self, marker: Marker, transaction_version: int, reply: Reply) -> None:
        """Append a marker and apply it; `reply` gets None once it is committed.

        KafkaError if the shard or its log cannot take it.
        """
        if self.state is not ShardState.ACTIVE or self._runtime.transactional is None:
            raise KafkaError(E.NOT_COORDINATOR)
        now_ms = self._clock.wall_ms()
        self._staged = self._log.stage_marker(self._partition, marker, now_ms, transaction_version)
        shard = self._runtime.transactional(self.shard)
        shard.end_transaction(marker.producer_id, commit=marker.commit)
        self._held.append((self._staged, reply, None))
        self.high_watermark_advanced(self._high_watermark)

    def _append(
        self, new: list[R], producer: TransactionalProducer | None, *, limited: bool
    ) -> None:
        """Append the records in as many batches as they need; nothing if one record is too large."""
        try:
            encoded = [self._runtime.codec.encode(record) for record in new]
        except WireError as bad:
            raise KafkaError(E.UNKNOWN_SERVER_ERROR, str(bad)) from bad
        parts = split(encoded, self._log.largest_batch(self._partition), limited=limited)
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for start, stop in parts:
            now_ms = self._clock.wall_ms()
            rows = encoded[start:stop]
            self._staged = self._log.stage(self._partition, rows, now_ms, producer)
            for record in new[start:stop]:
                self._replay(record, producer_id)

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Answer what the high watermark covers, in order."""
        self._high_watermark = max(self._high_watermark, high_watermark)
        if not self._answering:
            self._answer_some()

    def _answer_some(self) -> None:
        """Send some of the covered replies; the event loop turns before the next ones."""
        self._answering = True
        for _ in range(REPLIES_PER_TURN):
            if not self._held or self._held[0][0] > self._high_watermark:
                self._answering = False
                return
            _, reply, answer = self._held.popleft()
            reply(answer)
        self._call_later(0, self._answer_some)

    def close(self, why: KafkaError) -> None:
        """Close the shard and answer every waiting request with `why`."""
        self.state = ShardState.CLOSED
        self._cancel_timer()
        held = [reply for _, reply, _ in self._held]
        self._held.clear()
        self._answer_all(held, why)
        self._answer_all(self.shard.parked(), why)

    def topics_deleted(self, names: dict[str, None]) -> None:
        """Run the steps of the shard's `topics_deleted`, after the load if it is still loading."""
        if self.state is ShardState.LOADING:
            self._topics_deleted.update(names)
        elif (steps := self.shard.topics_deleted(names)) is not None:
            self._run_later(steps)

    def _run_later(self, steps: Iterator[Outcome[R]]) -> None:
        def run_next() -> None:
            step = next(steps, None) if self.state is ShardState.ACTIVE else None
            if step is not None:
                self.run(step)
                self._runtime.turns.add(run_next)

        self._runtime.turns.add(run_next)

    def _wait_for_deadline(self) -> None:
        """Set the timer, unless it fires early enough: most deadlines only move later."""
        at_ms = self.shard.next_deadline()
        if at_ms is None or (self._armed_ms is not None and self._armed_ms <= at_ms):
            return
        self._cancel_timer()
        self._armed_ms = at_ms
        delay_s = max(at_ms - self._clock.monotonic_ms(), 0) / 1000
        self._timer = self._call_later(delay_s, self._expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._armed_ms = None
        self.run(self.shard.expire(self._now()))

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _answer_all(self, tokens: Iterable[Token], answer: KafkaError) -> None:
        for token in tokens:
            _as_reply(token)(answer)


class CoordinatorRuntime(Generic[S, R]):
    """All shards of one coordinator on this broker, by partition of its topic."""

    def __init__(
        self,
        topic: InternalTopic,
        new_shard: Callable[[int], S],
        codec: RecordCodec[R],
        *,
        log: CoordinatorLog,
        topics: TopicImage,
        clock: Clock,
        call_later: CallLater,
        on_effect: Callable[[object], None] = lambda effect: None,
        transactional: Callable[[S], TransactionalShard[R]] | None = None,
    ) -> None:
        self.topic = topic
        self.new_shard = new_shard
        self.codec = codec
        self.log = log
        self.clock = clock
        self.call_later = call_later
        self.turns = ShardTurns(call_later)
        self.on_effect = on_effect
        # Returns the shard as one whose records may belong to transactions.
        self.transactional = transactional
        self._topics = topics
        self._shards: dict[int, ShardRuntime[S, R]] = {}

    def partition_of(self, key: str) -> int | None:
        """The partition that coordinates `key`; None before the topic exists."""
        count = self._topics.partition_count(self.topic.name)
        return coordinator_partition(key, count) if count else None

    def submit(self, key: str, command: Command[S, C, R], argument: C, reply: Reply) -> None:
        """Run a command on the shard of `key`; KafkaError if it is not here or not loaded yet."""
        self._required(self.partition_of(key)).submit(command, argument, reply)

    def submit_to_all(
        self, command: Command[S, C, R], argument: C, reply: Callable[[list[object]], None]
    ) -> None:
        """Run a command on every shard here and reply with all answers.

        Raises KafkaError while one of them is loading.
        """
        shards = list(self._shards.values())
        if any(shard.state is ShardState.LOADING for shard in shards):
            raise KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS)
        if not shards:
            reply([])
        answers: list[object] = []

        def collect(answer: object) -> None:
            answers.append(answer)
            if len(answers) == len(shards):
                reply(answers)

        for shard in shards:
            shard.submit(command, argument, collect)

    def active_shards(self) -> list[S]:
        """Return the loaded shards, for readers that change nothing."""
        return [one.shard for one in self._shards.values() if one.state is ShardState.ACTIVE]

    def coordinates(self, key: str, leader_epoch: int) -> bool:
        """Return whether the shard of `key` is here, since the election of `leader_epoch`."""
        partition = self.partition_of(key)
        shard = None if partition is None else self._shards.get(partition)
        return shard is not None and shard.leader_epoch == leader_epoch

    def end_transaction(
        self, partition: int, marker: Marker, transaction_version: int, reply: Reply
    ) -> None:
        """Append a marker to a partition of the topic; `reply` gets None once it is committed.

        KafkaError if the shard is not here or not loaded yet, or its log refuses the marker.
        """
        self._required(partition).end_transaction(marker, transaction_version, reply)

    # -- what happens to partitions of the topic

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition that this broker now leads; a new epoch loads it again."""
        self._close(partition, E.NOT_COORDINATOR)
        log.debug("%s: loading (leader epoch %d)", self._at(partition), leader_epoch)
        self._load(partition, leader_epoch)

    def resigned(self, partition: int) -> None:
        """Close a partition that another broker now leads."""
        self._close(partition, E.NOT_COORDINATOR)

    def high_watermark_advanced(self, partition: int, high_watermark: int) -> None:
        """Send the replies that waited for it."""
        if shard := self._shards.get(partition):
            shard.high_watermark_advanced(high_watermark)

    def append_failed(self, partition: int) -> None:
        """Reload a shard whose staged records did not reach the log."""
        if shard := self._shards.get(partition):
            self._close(partition, E.NOT_COORDINATOR)
            self._load(partition, shard.leader_epoch)

    def topics_deleted(self, names: dict[str, None]) -> None:
        """Let every shard drop its state of deleted topics."""
        for shard in list(self._shards.values()):
            shard.topics_deleted(names)

    def close(self) -> None:
        """Close every shard: the broker stops."""
        for partition in list(self._shards):
            self._close(partition, E.COORDINATOR_NOT_AVAILABLE)

    def _required(self, partition: int | None) -> ShardRuntime[S, R]:
        shard = None if partition is None else self._shards.get(partition)
        if shard is None:
            raise KafkaError(E.NOT_COORDINATOR)
        return shard

    def _load(self, partition: int, leader_epoch: int) -> None:
        self._shards[partition] = ShardRuntime(self, self._at(partition), leader_epoch)

    def _close(self, partition: int, why: E) -> None:
        if shard := self._shards.pop(partition, None):
            shard.close(KafkaError(why))

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic.name, partition)


def _as_reply(token: Token) -> Reply:
    if not callable(token):
        raise TypeError(f"not a reply: {token!r}")
    return token
