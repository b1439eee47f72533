"""Random plays: what a broker does to its logs, in a random order, through several lives."""

import errno
from collections.abc import Callable, Sequence

from headwater.errors import KafkaError
from headwater.log.flushing import is_data_enough, mark_synced, unsynced
from headwater.log.log_dir import LogDir
from headwater.log.partition_log import PartitionLog
from headwater.log.presence import LogRemoved
from headwater.log.settings import LogSettings
from headwater.model import TopicPartition
from headwater.records.batch import HEADER
from headwater.records.builder import build_batch
from headwater.records.control import Marker, build_marker
from headwater.records.record import Record
from simulator.disk import Disk
from simulator.files import ignore_change
from simulator.images.checking import ImageChecker
from simulator.images.cleaning import clean
from simulator.images.log_model import LogModel
from simulator.images.moving import Mover
from simulator.images.storage import DIRS, Cluster, PlayClock, Storage
from simulator.randomness import SimRandomness, Stream, stream

SETTINGS = {
    "plain": LogSettings(segment_bytes=700, index_interval_bytes=150),
    "short": LogSettings(segment_bytes=500, index_interval_bytes=150, retention_bytes=900),
    "compacted": LogSettings(
        segment_bytes=600,
        index_interval_bytes=150,
        cleanup_policy="compact",
        retention_ms=-1,
        delete_retention_ms=1000,
    ),
}
KEYS = (b"a", b"b", b"c", b"d")
STEPS = {
    "append": 30,
    "flush": 16,
    "checkpoint": 8,
    "end_transaction": 6,
    "roll": 5,
    "retain": 6,
    "delete_records": 5,
    "delete_topic": 5,
    "create_topic": 8,
    "truncate": 4,
    "compact": 7,
    "move": 9,
}
"""How often each step comes, relative to the others."""
BREAKABLE = {
    "flush": ("fdatasync", 1.0),
    "append": ("write", 0.3),
    "compact": ("rename", 3.0),
    "retain": ("rename", 1.0),
    "checkpoint": ("rename", 1.0),
}
"""The operations that fail, and how often relative to the play."""
OFTEN = 6
"""Each play takes some steps more often, so that rare ones meet."""
LIVES = 4
MOST_STEPS = 14
LONG_MS = 600
"""A step of time that brings the ends of tombstones."""
TRANSACTIONAL = 7
"""The producer that writes in transactions; others do not."""


class Play:
    """One play; `checker` sees the disk before each operation.

    `often` names the steps that come more often, and `topic` the step that most are about; otherwise
    the seed chooses them.
    """

    def __init__(
        self, seed: int, most_images: int, often: Sequence[str] = (), topic: str = ""
    ) -> None:
        self._chance: Stream = stream(seed, "play")
        self._favorite = topic or self._chance.choice(list(SETTINGS))
        often = often or self._chance.sample(list(STEPS), 3)
        self._weights = {
            name: weight * (OFTEN if name in often else 1) for name, weight in STEPS.items()
        }
        self._breaking = self._chance.choice((0.0, 0.05, 0.3))
        self._clock = PlayClock()
        self._cluster = Cluster({}, SETTINGS, {})
        self._ids = SimRandomness(stream(seed, "topics"))
        self.checker = ImageChecker(self._cluster, self._clock, stream(seed, "images"), most_images)
        # In one play of five, most flushes are syncs of the data alone.
        self._syncs = seed % 5 == 1
        self._disk = Disk()
        for path in DIRS:
            self._disk.make_folders(path)
        self._disk.sync_all()
        self._epoch = 0
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        self._lives = 0
        self._storage: Storage
        self._mover: Mover
        self._failed: LogDir | None = None

    def run(self) -> None:
        """Play all lives."""
        while self._lives < LIVES and not self.checker.done:
            self._lives += 1
            self._start()
            for _ in range(self._chance.randrange(4, MOST_STEPS)):
                if self._failed is None and not self.checker.done:
                    self._step()
            self._end()

    # -- lives

    def _start(self) -> None:
        storage = Storage(self._disk, self._cluster, self._clock, self._chance, self.checker.boot)
        storage.files.before = lambda change: self.checker.check_all(self._disk, change)
        self._storage = storage
        self._failed = None
        self._mover = Mover(storage)
        storage.start()
        self._cluster.directory_ids.update(storage.dirs.directory_ids)
        storage.dirs.registered(self._lives)()
        self._epoch += 1
        for model in self._cluster.topics.values():
            log = storage.log_of(model)
            if log is None:
                model.cut(0)
                model.acked, model.written = [], 0
                log = storage.create(model)
            else:
                model.continue_from(log)
            self._recall_sequences(model, log)
        storage.faults.short, storage.faults.cold = 0.02, 0.1

    def _recall_sequences(self, model: LogModel, log: PartitionLog) -> None:
        """Let producers continue after what the log has of them."""
        for producer in (1, 2, TRANSACTIONAL):
            state = log.producers.get(producer)
            self._sequences[model.at, producer] = 0 if state is None else state.last_sequence + 1

    def _end(self) -> None:
        """End the life: cleanly, by a crash, or by a power cut."""
        how = "killed" if self._failed else self._chance.choice(("clean", "killed", "cut", "cut"))
        if how == "clean":
            self._mover.pause()
            self._storage.dirs.close({})
            for model in self._cluster.topics.values():
                model.durable = model.written
        self._storage.files.before = ignore_change
        self._storage.files.die()
        if how == "cut" or (how == "clean" and self._chance.random() < 0.5):
            self.checker.boot += 1
            self._disk.lose_power(self._chance)
            for model in self._cluster.topics.values():
                model.written = model.durable

    # -- steps

    def _step(self) -> None:
        self._clock.now_ms += self._chance.choice((1, 50, LONG_MS))
        name = self._chance.choices(list(self._weights), list(self._weights.values()))[0]
        step: Callable[[], None] = getattr(self, f"_{name}")
        faults = self._storage.faults
        if step in (self._append, self._flush, self._checkpoint, self._roll, self._compact):
            faults.full = self._chance.random() < 0.06
        if not faults.full:
            self._break_disk(name)
        try:
            step()
        except OSError as failure:
            if not faults.full and not faults.broken:
                raise
            self._failed_with(failure)
        faults.full, faults.broken = False, ""
        if self._failed is None:
            self._check_in_service(name)

    def _check_in_service(self, name: str) -> None:
        """Compare the logs that go on with the model."""
        for at, model in self._cluster.topics.items():
            log = self._storage.dirs.logs.get(at)
            if log is not None:
                self.checker.check_in_service(model, log, name)

    def _break_disk(self, name: str) -> None:
        """Let an operation of the step fail, sometimes."""
        faults = self._storage.faults
        operation, likely = BREAKABLE.get(name, ("", 0.0))
        if self._chance.random() < likely * self._breaking:
            faults.broken, faults.broken_under = operation, self._chance.choice(DIRS)
            faults.error, faults.broken_after = errno.EIO, 0
            if operation == "rename":
                faults.error = self._chance.choice((errno.EIO, errno.ENOSPC))
                faults.broken_after = self._chance.randrange(12)

    def _failed_with(self, failure: OSError) -> None:
        """Do what the broker does: a full disk stays in service, any other failure is final."""
        faults = self._storage.faults
        if faults.broken and failure.errno != errno.ENOSPC:
            under, faults.broken = faults.broken_under, ""
            self._failed = next(row for row in self._storage.dirs.dirs if row.path == under)
            self._storage.dirs.fail(self._failed, str(failure))

    def _any(self, *topics: str) -> tuple[LogModel, PartitionLog] | None:
        found = [
            (model, log)
            for at, model in self._cluster.topics.items()
            if (log := self._storage.dirs.logs.get(at)) is not None
            and log.failure is None
            and (not topics or at.topic in topics)
        ]
        favorites = [row for row in found if row[0].at.topic == self._favorite]
        if favorites and self._chance.random() < 0.6:
            return self._chance.choice(favorites)
        return self._chance.choice(found) if found else None

    def _append(self) -> None:
        found = self._any()
        if found is None:
            self._create_topic()
            return
        model, log = found
        if self._chance.random() < 0.1:
            self._epoch += 1
        count = self._chance.randrange(1, 4)
        self._write(model, log, [self._stage_data(model, log) for _ in range(count)])

    def _stage_data(self, model: LogModel, log: PartitionLog) -> bytearray:
        count = self._chance.randrange(1, 4)
        producer = self._chance.choice((-1, -1, 1, 2, TRANSACTIONAL))
        sequence = -1 if producer < 0 else self._sequences.get((model.at, producer), 0)
        now_ms = self._clock.wall_ms()
        records = [
            Record(key=self._chance.choice(KEYS), value=self._any_value(model))
            for _ in range(count)
        ]
        batch = build_batch(
            records,
            now=now_ms,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            transactional=producer == TRANSACTIONAL,
        )
        log.staging.stage(memoryview(batch), HEADER.unpack_from(batch), self._epoch, now_ms)
        if producer >= 0:
            self._sequences[model.at, producer] = sequence + count
        return batch

    def _any_value(self, model: LogModel) -> bytes | None:
        deletes = model.settings.compacted and self._chance.random() < 0.3
        return None if deletes else self._chance.randbytes(20)

    def _end_transaction(self) -> None:
        found = self._any()
        if found is not None:
            self._end_transaction_of(*found)

    def _end_transaction_of(self, model: LogModel, log: PartitionLog) -> None:
        if log.producers.in_transaction(TRANSACTIONAL, 0):
            now_ms = self._clock.wall_ms()
            marker = build_marker(Marker(TRANSACTIONAL, 0, self._chance.random() < 0.5, 0), now_ms)
            log.staging.stage_marker(marker, self._epoch, now_ms)
            self._write(model, log, [marker])

    def _write(self, model: LogModel, log: PartitionLog, batches: list[bytearray]) -> None:
        contents = [bytes(batch) for batch in batches]
        for content in contents:
            model.hand_over(content)
        try:
            log.write_staged()
        except OSError:
            model.take_back(contents)
            self._recall_sequences(model, log)
            raise
        model.wrote(contents)

    def _flush(self) -> None:
        found = self._any()
        if found is not None:
            self._flush_log(*found)

    def _flush_log(self, model: LogModel, log: PartitionLog) -> None:
        if self._mover.is_held(model.at):
            return
        if self._syncs and is_data_enough(log):
            self._sync_log(model, log)
            return
        work = log.unflushed()
        if work is None:
            return
        self._meanwhile()
        try:
            work.run()
        except LogRemoved:
            return
        except OSError:
            if not work.syncing:
                log.postpone_flush()
            raise
        self._meanwhile()
        if not log.presence.removed:
            log.mark_flushed(work)
            model.durable = max(model.durable, log.recovery_point)

    def _sync_log(self, model: LogModel, log: PartitionLog) -> None:
        """Do what acknowledgments wait for with `flush.messages`."""
        work = unsynced(log)
        if work is None:
            return
        self._meanwhile()
        work.run()
        self._meanwhile()
        if not log.presence.removed:
            mark_synced(log, work)
            model.durable = max(model.durable, log.synced_end)

    def _meanwhile(self, *, checkpointing: bool = False) -> None:
        """Do something else while a file thread works."""
        if self._chance.random() < 0.3:
            faults = self._storage.faults
            full, broken, faults.full, faults.broken = faults.full, faults.broken, False, ""
            step = self._chance.choice(
                (self._append, self._append, self._roll, self._retain, self._delete_topic)
                if checkpointing
                else (self._append, self._roll, self._retain, self._checkpoint)
            )
            step()
            faults.full, faults.broken = full, broken

    def _checkpoint(self) -> None:
        write = self._storage.dirs.checkpoint({})
        self._meanwhile(checkpointing=True)
        write()

    def _roll(self) -> None:
        found = self._any()
        if found is not None and found[1].segments.active.size:
            found[1].roll(self._clock.wall_ms())

    def _retain(self) -> None:
        found = self._any("short", "plain")
        if found is None:
            return
        model, log = found
        before, model.kept_from = model.kept_from, log.log_end_offset
        log.retain(self._clock.wall_ms(), log.log_end_offset)
        model.kept_from = max(before, log.log_start_offset)
        self._unlink(log)

    def _unlink(self, log: PartitionLog) -> None:
        if self._chance.random() < 0.7:
            for path in log.segments.pop_garbage():
                if self._storage.files.exists(path):
                    self._storage.files.unlink(path)

    def _delete_records(self) -> None:
        found = self._any("plain", "short")
        if found is None:
            return
        model, log = found
        offset = self._chance.randrange(log.log_start_offset, log.log_end_offset + 1)
        model.kept_from = max(model.kept_from, offset)
        log.advance_start(offset)
        if self._chance.random() < 0.5:
            self._checkpoint()
        if log.durable_start >= offset and not log.presence.removed:
            model.stored_start = max(model.stored_start, offset)

    def _create_topic(self) -> None:
        free = [
            at
            for topic in SETTINGS
            if (at := TopicPartition(topic, 0)) not in self._cluster.topics
            and at not in self._storage.dirs.retiring
        ]
        if free:
            favorites = [at for at in free if at.topic == self._favorite]
            at = self._chance.choice(favorites or free)
            model = LogModel(at, self._ids.uuid(), SETTINGS[at.topic])
            self._cluster.topics[at] = model
            self._sequences = {key: row for key, row in self._sequences.items() if key[0] != at}
            self._storage.create(model)

    def _delete_topic(self) -> None:
        """Delete a topic; its name is free once the rename of its folder is synced."""
        found = self._any()
        if found is None or found[0].at in self._mover.moving or self._chance.random() < 0.5:
            return
        at, dirs = found[0].at, self._storage.dirs
        del self._cluster.topics[at]
        retirement = dirs.delete(at)
        retirement.rename()
        if self._chance.random() < 0.5:
            dirs.remove(retirement.path)
        else:
            retirement.free_name()
        dirs.name_freed(at, retirement)

    def _truncate(self) -> None:
        """Truncate as a follower; everything above must be gone."""
        found = self._any()
        if found is None or found[0].at in self._mover.moving or self._mover.is_held(found[0].at):
            return
        model, log = found
        least = max(log.log_start_offset, model.high_watermark)
        offset = self._chance.randrange(least, log.log_end_offset + 1)
        below = [row.base for row in model.acked if row.base <= offset < row.end]
        kept = below[0] if below else offset
        model.written, model.durable = min(model.written, kept), min(model.durable, kept)
        model.stored_start = min(model.stored_start, kept)
        # `kept_from` stays until the cut: before it the log still has the start of DeleteRecords,
        # which may be inside of the batch that goes.
        log.truncate_to(offset)
        model.cut(log.log_end_offset)
        self._recall_sequences(model, log)
        self._unlink(log)

    def _compact(self) -> None:
        found = self._any("compacted")
        if found is None or found[0].at in self._mover.moving or self._mover.is_held(found[0].at):
            return
        model, log = found
        if self._chance.random() < 0.7:
            self._end_transaction_of(model, log)
        if log.segments.active.size and self._chance.random() < 0.7:
            log.roll(self._clock.wall_ms())
        if self._chance.random() < 0.8:
            self._flush_log(model, log)
            if log.presence.removed:
                return
        above = [row.end for row in model.acked if row.end > model.high_watermark]
        if self._chance.random() < 0.7:
            model.high_watermark = log.log_end_offset
        else:
            model.high_watermark = self._chance.choice([model.high_watermark, *above])
        clean(self._storage, log, model.high_watermark, self._ids.uuid())
        self._unlink(log)

    def _move(self) -> None:
        """Begin to move a log to the other dir, or go on with a move."""
        found = self._any()
        if found is not None and not self._mover.moving:
            try:
                self._mover.begin(found[0].at, self._chance.choice(DIRS))
            except KafkaError:
                return
        self._mover.step(self._chance.randrange(1, 6))
