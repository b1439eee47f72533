"""Runs the group shards this broker leads: append, replay, and answer once it is safe.

A command's records are staged in the log and replayed at once, so that the next command sees them.
Its replies, and those of every later command, reads included, wait until the high watermark has
passed the shard's last staged record: nobody ever learns what a failover could take back.
A failed append throws the shard away and loads it again from the log.
"""

import logging
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Protocol, TypeAlias, TypeVar

from headwater.coordination.deadlines import Now
from headwater.coordination.groups import records
from headwater.coordination.groups.classic import GroupOutcome
from headwater.coordination.groups.commands import RebalanceReason, RebalanceStarted
from headwater.coordination.groups.records import OffsetRecord, Record
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.groups.shard import GroupShard
from headwater.coordination.shard import Token
from headwater.errors import E, KafkaError
from headwater.model import coordinator_partition
from headwater.records.batch import CRC_START, Buffer, batches
from headwater.records.checksum import crc32c
from headwater.records.record import decode_records
from headwater.seams.clock import Clock
from headwater.seams.randomness import Randomness
from headwater.wire.codec import WireError

log = logging.getLogger(__name__)

C = TypeVar("C")
Command: TypeAlias = Callable[[GroupShard, Now, C, Token], GroupOutcome]
Reply: TypeAlias = Callable[[object], None]
"""Takes the shard's answer, or a KafkaError when the shard is gone before it could be given."""

LOAD_CHUNK_BYTES = 64 * 1024
MAX_LOAD_CHUNK_BYTES = 256 * 1024 * 1024
LOAD_RETRY_S = 1.0
RECORDS_PER_BATCH = 500
REPLIES_A_TURN = 200


class CoordinatorLog(Protocol):
    """The broker's side of `__consumer_offsets`."""

    def stage(self, partition: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> int:
        """Append one batch; the offset after it. KafkaError when it cannot be."""

    def read(
        self,
        partition: int,
        offset: int,
        max_bytes: int,
        done: Callable[[Buffer | KafkaError], None],
    ) -> None:
        """Whole batches from the first one that ends after `offset`; empty at the log end.

        `done` is called now, or later if the disk has to be read.
        """

    def end(self, partition: int) -> int:
        """The log end offset."""

    def high_watermark(self, partition: int) -> int:
        """Up to where the log is committed. Later moves are told by `committed`."""


class Timer(Protocol):
    """What `call_later` returns."""

    def cancel(self) -> None:
        """Do not call."""


CallLater: TypeAlias = Callable[[float, Callable[[], None]], Timer]


COUNTED_ROWS = 10_000


class Rebalances:
    """How often groups rebalanced, by reason and by group, reason and member."""

    def __init__(self) -> None:
        self.by_reason: Counter[RebalanceReason] = Counter()
        self.by_member: dict[tuple[str, RebalanceReason, str], int] = {}
        """The rows that were counted last, at most COUNTED_ROWS of them."""

    def count(self, started: RebalanceStarted) -> None:
        """Count one."""
        self.by_reason[started.reason] += 1
        row = (started.group_id, started.reason, started.member_id)
        self.by_member[row] = self.by_member.pop(row, 0) + 1
        if len(self.by_member) > COUNTED_ROWS:
            del self.by_member[next(iter(self.by_member))]

    def of_group(self, group_id: str) -> Counter[RebalanceReason]:
        """How often one group rebalanced, by reason."""
        found: Counter[RebalanceReason] = Counter()
        for (group, reason, _), count in self.by_member.items():
            if group == group_id:
                found[reason] += count
        return found


class ShardState(Enum):
    """What a shard is doing."""

    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class ShardRuntime:
    """One shard from election to resignation."""

    def __init__(
        self,
        partition: int,
        shard: GroupShard,
        writer: CoordinatorLog,
        clock: Clock,
        call_later: CallLater,
        on_failure: Callable[[int], None],
        rebalances: "Rebalances",
    ) -> None:
        self.partition = partition
        self.shard = shard
        self.state = ShardState.LOADING
        self.skipped_records = 0
        self._writer = writer
        self._clock = clock
        self._call_later = call_later
        self._on_failure = on_failure
        self._rebalances = rebalances
        self._held: deque[tuple[int, Reply, object]] = deque()
        self._high_watermark = 0
        self._staged = 0  # replies wait until the high watermark is here
        self._answering = False
        self._armed_ms: int | None = None
        self._complained = False
        self._topics_deleted: list[str] = []  # while loading
        self._load_offset = 0
        self._load_bytes = LOAD_CHUNK_BYTES
        self._timer = call_later(0, self._load_chunk)

    # Loading

    def _load_chunk(self) -> None:
        """Replay a bite of the log; the loop breathes between two of them."""
        try:
            self._staged = self._writer.end(self.partition)
            self._high_watermark = self._writer.high_watermark(self.partition)
        except KafkaError as failure:
            self._load_failed(failure)
            return
        if self._load_offset < self._staged:
            self._writer.read(
                self.partition, self._load_offset, self._load_bytes, self._loaded_chunk
            )
        else:
            self._become_active()

    def _load_failed(self, failure: KafkaError) -> None:
        log.error("group partition %d cannot be read (%s); trying again", self.partition, failure)
        self._timer = self._call_later(LOAD_RETRY_S, self._load_chunk)

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
            self._timer = self._call_later(0, self._load_chunk)
        else:
            self._become_active()

    def _become_active(self) -> None:
        self.state = ShardState.ACTIVE
        self.run(self.shard.loaded(self._now()))
        for topic in self._topics_deleted:
            self.topic_deleted(topic)
        notable = self.shard.groups or self.skipped_records
        log.log(
            logging.INFO if notable else logging.DEBUG,
            "group partition %d is loaded: %d groups, %d records of unknown types skipped",
            self.partition,
            len(self.shard.groups),
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
                if not header.control:
                    self._replay_batch(batch)
                self._load_offset = header.next_offset
        if self._load_offset > before:
            self._load_bytes = LOAD_CHUNK_BYTES
        elif not chunk:
            self._load_offset = self._staged  # compaction left nothing up to the end (KAFKA-9065)
        elif self._load_bytes < MAX_LOAD_CHUNK_BYTES:
            self._load_bytes *= 2  # a batch larger than the bite (KAFKA-7286)
        else:
            raise KafkaError(E.CORRUPT_MESSAGE, f"no whole batch at offset {before}")

    def _replay_batch(self, batch: memoryview) -> None:
        for record in decode_records(batch):
            known = None if record.key is None else self._decode(record.key, record.value)
            if known is None:
                self.skipped_records += 1
            else:
                self.shard.replay(known)

    def _decode(self, key: bytes, value: bytes | None) -> Record | None:
        try:
            return records.decode(key, value)
        except WireError as damage:
            log.warning("group partition %d: a record was skipped: %s", self.partition, damage)
            return None

    # Running

    def submit(self, command: Command[C], argument: C, reply: Reply) -> None:
        """Run a command; KafkaError when the shard cannot be asked now."""
        if self.state is not ShardState.ACTIVE:
            loading = self.state is ShardState.LOADING
            raise KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS if loading else E.NOT_COORDINATOR)
        self.run(command(self.shard, self._now(), argument, reply))

    def run(self, outcome: GroupOutcome) -> None:
        """Append, replay, then answer as soon as it is safe."""
        staged = self._staged
        try:
            self._append(outcome.records)
        except KafkaError as failure:
            self._refused(outcome, failure, clean=staged == self._staged)
            return
        self._complained = False
        for effect in outcome.effects:
            self._note(effect)
        for token, answer in outcome.replies:
            self._held.append((self._staged, _as_reply(token), answer))
        self._wait_for_deadline()
        self.committed(self._high_watermark)

    def _refused(self, outcome: GroupOutcome, failure: KafkaError, *, clean: bool) -> None:
        """The log takes nothing: answer, and read the shard again if it is ahead of the log.

        Offsets change by replay alone. If none of them was staged, the shard is as it was.
        """
        if not self._complained:
            self._complained = True
            log.warning("group partition %d: append failed: %s", self.partition, failure)
        lost = _as_coordinator_error(failure)
        self._answer_all((token for token, _ in outcome.replies), lost)
        if not clean or not all(isinstance(one, OffsetRecord) for one in outcome.records):
            self._on_failure(self.partition)
        else:
            self._wait_for_deadline()

    def _append(self, new: list[Record]) -> None:
        for start in range(0, len(new), RECORDS_PER_BATCH):
            part = new[start : start + RECORDS_PER_BATCH]
            try:
                encoded = [records.encode(record) for record in part]
            except WireError as bad:
                raise KafkaError(E.UNKNOWN_SERVER_ERROR, str(bad)) from bad
            now_ms = self._clock.wall_ms()
            self._staged = self._writer.stage(self.partition, encoded, now_ms)
            for record in part:
                self.shard.replay(record)

    def committed(self, high_watermark: int) -> None:
        """The high watermark moved: answer what it covers, in order."""
        self._high_watermark = max(self._high_watermark, high_watermark)
        if not self._answering:
            self._answer_some()

    def _answer_some(self) -> None:
        """Answer some of those who may be answered; the loop breathes before the next ones."""
        self._answering = True
        for _ in range(REPLIES_A_TURN):
            if not self._held or self._held[0][0] > self._high_watermark:
                self._answering = False
                return
            _, reply, answer = self._held.popleft()
            reply(answer)
        self._call_later(0, self._answer_some)

    def close(self, why: KafkaError) -> None:
        """Give the shard up: everyone who waits is told to look for the new coordinator."""
        self.state = ShardState.CLOSED
        self._timer.cancel()
        held = [reply for _, reply, _ in self._held]
        self._held.clear()
        self._answer_all(held, why)
        self._answer_all(self.shard.parked(), why)

    def topic_deleted(self, name: str) -> None:
        """Offsets go with their topic."""
        if self.state is ShardState.LOADING:
            self._topics_deleted.append(name)
        elif self.state is ShardState.ACTIVE:
            self.run(self.shard.topic_deleted(self._now(), name))

    def _wait_for_deadline(self) -> None:
        """Set the timer, unless it goes off early enough: most deadlines only move away."""
        at_ms = self.shard.next_deadline()
        if at_ms is None or (self._armed_ms is not None and self._armed_ms <= at_ms):
            return
        self._timer.cancel()
        self._armed_ms = at_ms
        delay_s = max(at_ms - self._clock.monotonic_ms(), 0) / 1000
        self._timer = self._call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._armed_ms = None
        self.run(self.shard.expire(self._now()))

    def _note(self, effect: object) -> None:
        if isinstance(effect, RebalanceStarted):
            self._rebalances.count(effect)
            log.info(
                "group %r rebalances: %s (member %r, reason %r)",
                effect.group_id,
                effect.reason.value,
                effect.member_id,
                effect.client_reason,
            )

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _answer_all(self, tokens: Iterable[Token], answer: KafkaError) -> None:
        for token in tokens:
            _as_reply(token)(answer)


class CoordinatorRuntime:
    """All shards of this broker, by partition of `__consumer_offsets`."""

    def __init__(
        self,
        writer: CoordinatorLog,
        clock: Clock,
        randomness: Randomness,
        call_later: CallLater,
        settings: GroupSettings,
        partition_count: Callable[[], int],
    ) -> None:
        self.rebalances = Rebalances()
        self._shards: dict[int, ShardRuntime] = {}
        self._writer = writer
        self._clock = clock
        self._randomness = randomness
        self._call_later = call_later
        self._settings = settings
        self._partition_count = partition_count

    def partition_of(self, group_id: str) -> int | None:
        """The partition that coordinates a group; None before the topic exists."""
        count = self._partition_count()
        return coordinator_partition(group_id, count) if count else None

    def submit(self, group_id: str, command: Command[C], argument: C, reply: Reply) -> None:
        """Ask the shard of `group_id`; KafkaError when it is not here or not loaded yet."""
        partition = self.partition_of(group_id)
        runner = None if partition is None else self._shards.get(partition)
        if runner is None:
            raise KafkaError(E.NOT_COORDINATOR)
        runner.submit(command, argument, reply)

    def submit_everywhere(
        self, command: Command[C], argument: C, reply: Callable[[list[object]], None]
    ) -> None:
        """Ask every shard here and reply with all answers; KafkaError while one is loading."""
        runners = list(self._shards.values())
        if any(runner.state is ShardState.LOADING for runner in runners):
            raise KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS)
        if not runners:
            reply([])
        answers: list[object] = []

        def collect(answer: object) -> None:
            answers.append(answer)
            if len(answers) == len(runners):
                reply(answers)

        for runner in runners:
            runner.submit(command, argument, collect)

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition now: load it. A new epoch starts over."""
        self._close(partition, E.NOT_COORDINATOR)
        log.debug("group partition %d: loading (leader epoch %d)", partition, leader_epoch)
        self._load(partition)

    def resigned(self, partition: int) -> None:
        """Another broker leads a partition now."""
        self._close(partition, E.NOT_COORDINATOR)

    def committed(self, partition: int, high_watermark: int) -> None:
        """The high watermark of a partition moved."""
        runner = self._shards.get(partition)
        if runner is not None:
            runner.committed(high_watermark)

    def append_failed(self, partition: int) -> None:
        """What was staged did not reach the log: forget it and read the log again."""
        if partition in self._shards:
            self._close(partition, E.NOT_COORDINATOR)
            self._load(partition)

    def topic_deleted(self, name: str) -> None:
        """Offsets go with their topic."""
        for runner in list(self._shards.values()):
            runner.topic_deleted(name)

    def close(self) -> None:
        """The broker stops."""
        for partition in list(self._shards):
            self._close(partition, E.COORDINATOR_NOT_AVAILABLE)

    def _load(self, partition: int) -> None:
        self._shards[partition] = ShardRuntime(
            partition,
            GroupShard(self._settings, self._new_member_id),
            self._writer,
            self._clock,
            self._call_later,
            self.append_failed,
            self.rebalances,
        )

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(bytes=self._randomness.uuid())}"

    def _close(self, partition: int, why: E) -> None:
        runner = self._shards.pop(partition, None)
        if runner is not None:
            runner.close(KafkaError(why))


def _as_reply(token: Token) -> Reply:
    if not callable(token):
        raise TypeError(f"not a reply: {token!r}")
    return token


def _as_coordinator_error(failure: KafkaError) -> KafkaError:
    """What a group client can act on: ask again here, look for another coordinator, or give up."""
    if failure.code in (
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ):
        return KafkaError(E.COORDINATOR_NOT_AVAILABLE, failure.message)
    if failure.code in (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR):
        return KafkaError(E.NOT_COORDINATOR, failure.message)
    if failure.code in (E.MESSAGE_TOO_LARGE, E.RECORD_LIST_TOO_LARGE, E.INVALID_FETCH_SIZE):
        return KafkaError(E.UNKNOWN_SERVER_ERROR, failure.message)
    return failure
