"""Makes crash images of a disk, starts the storage from each, and compares it with the model."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from headwater.errors import KafkaError
from headwater.log.log_dir import LOCK, META
from headwater.log.partition_log import PartitionLog
from headwater.log.segment import LOG, SWAP
from headwater.log.segment_checksums import CHECKSUMS, DamagedChecksums, decode
from headwater.records.batch import HEADER
from headwater.records.builder import build_batch
from headwater.records.record import Record
from simulator.disk import Disk, File
from simulator.files import Change
from simulator.images.log_model import LogModel
from simulator.images.storage import Cluster, PlayClock, Storage
from simulator.loop import Crashed
from simulator.randomness import Stream

SHORT, COLD = 0.02, 0.1
MOST_COMPLAINTS = 5


class ImageChecker:
    """Checks the images of one play."""

    def __init__(self, cluster: Cluster, clock: PlayClock, chance: Stream, most: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._chance = chance
        self._most = most
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self.boot = 0
        self.operations = 0

    @property
    def done(self) -> bool:
        """Whether enough images are checked, or enough is known to be wrong."""
        return self.counts.total() >= self._most or len(self.complaints) >= MOST_COMPLAINTS

    def check_all(self, disk: Disk, change: Change) -> None:
        """Check images of a machine that stops before this operation, or in the middle of it."""
        self.operations += 1
        if self.done:
            return
        before = f"{self.operations} {change.kind} {change.path}"
        self._check("process killed", before, disk.copy(), lossy=False)
        if change.path.endswith(".tmp") and change.kind in ("create", "truncate"):
            return  # nothing that is durable has changed since the last operation
        self._check("unsynced lost", before, self._cut(disk, "none"), lossy=True)
        self._check("torn", before, self._cut(disk, "all", "none", "some", "torn"), lossy=True)
        if change.content:
            disk = _with_part(disk, change, self._chance)
            self._check("write cut short", before, disk.copy(), lossy=False)
            self._check("write torn", before, self._cut(disk, "torn"), lossy=True)
        if self._chance.random() < 0.2:
            self._check_damaged(before, disk)

    def check_in_service(self, model: LogModel, log: PartitionLog, step: str) -> None:
        """Check a log that no crash has hurt, after a step of the play."""
        try:
            for problem in model.problems(log, self._clock.wall_ms(), lossy=False):
                self._complain("in service", f"the end of {step}", f"{model.at}: {problem}")
        except (KafkaError, OSError) as failure:
            self._complain("in service", f"the end of {step}", f"I1: {model.at}: {failure!r}")

    def _cut(self, disk: Disk, *losses: str) -> Disk:
        image = disk.copy()
        image.lose_power(self._chance, losses)
        return image

    def _check(self, kind: str, before: str, image: Disk, *, lossy: bool) -> None:
        self.counts[kind] += 1
        boot = self.boot + lossy
        roll = self._chance.random()
        if roll < 0.15:
            kind += ", start killed"
            lossy = self._die_in_start(image, boot) or lossy
        storage = self._storage(image, boot)
        for problem in self._problems(storage, lossy=lossy):
            self._complain(kind, before, problem)
        if roll > 0.7 and not self.done:
            self.counts["written after a start"] += 1
            for problem in self._go_on(storage):
                self._complain(f"{kind}, then written to", before, problem)

    def _complain(self, kind: str, before: str, problem: str) -> None:
        if len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.append(f"{kind} before {before}: {problem}")

    def _storage(self, image: Disk, boot: int) -> Storage:
        storage = Storage(image, self._cluster, self._clock, self._chance, boot)
        storage.faults.short, storage.faults.cold = SHORT, COLD
        return storage

    def _die_in_start(self, image: Disk, boot: int) -> bool:
        """Kill a start in the middle; return whether that was a power cut."""
        storage = self._storage(image, boot)
        storage.faults.crash_before = self._chance.randrange(12)
        with suppress(Crashed):
            storage.start()
        storage.files.die()
        if self._chance.random() < 0.5:
            image.lose_power(self._chance, ("none",))
            return True
        return False

    def _problems(self, storage: Storage, *, lossy: bool) -> Iterator[str]:
        """Start, and yield what is wrong; the storage may be used afterwards."""
        try:
            storage.start()
        except (OSError, KafkaError, ValueError, KeyError, AssertionError) as failure:
            yield f"I10: the start fails: {failure!r}"
            return
        for log_dir in storage.dirs.dirs:
            if log_dir.offline:
                yield f"I10: {log_dir.path} is offline: {log_dir.offline}"
        for at, model in self._cluster.topics.items():
            try:
                log = storage.log_of(model)
            except KafkaError as refused:
                yield f"I10: {at} is refused: {refused}"
                continue
            if log is not None:
                yield from (
                    f"{at}: {row}"
                    for row in model.problems(log, self._clock.wall_ms(), lossy=lossy)
                )
            elif (model.durable if lossy else model.written) > 0:
                yield f"I1: {at} is gone"

    def _go_on(self, storage: Storage) -> Iterator[str]:
        """Write to every log after a start, flush, cut the power, and start once more."""
        models = {at: model.fork() for at, model in self._cluster.topics.items()}
        for at, model in models.items():
            try:
                log = storage.log_of(model) or storage.create(model)
            except KafkaError:
                return  # `_problems` has complained
            if log.failure is not None:
                return
            model.continue_from(log)
            now_ms = self._clock.wall_ms()
            batch = build_batch([Record(key=b"after", value=b"a start")], now=now_ms)
            log.staging.stage(memoryview(batch), HEADER.unpack_from(batch), 1 << 20, now_ms)
            model.hand_over(bytes(batch))
            log.write_staged()
            model.wrote([bytes(batch)])
            work = log.unflushed()
            if work is not None:
                work.run()
                log.mark_flushed(work)
            model.durable = log.recovery_point
            if model.durable < model.written:
                yield f"{at}: a flush ends at {model.durable}, the log at {model.written}"
        if self._chance.random() < 0.5:
            storage.dirs.checkpoint({})()
        storage.files.die()
        storage.disk.lose_power(self._chance, ("none",))
        cluster = Cluster(models, self._cluster.settings, self._cluster.directory_ids)
        again = ImageChecker(cluster, self._clock, self._chance, 1)
        yield from again._problems(again._storage(storage.disk, self.boot + 2), lossy=True)

    # -- damage

    def _check_damaged(self, before: str, disk: Disk) -> None:
        """Flip a bit of a file: whatever is not damaged is served."""
        image = disk.copy()
        files = [(path, node) for path, node in image.walk() if _may_rot(path, node)]
        if not files:
            return
        self.counts["bit rot"] += 1
        path, file = self._chance.choice(files)
        assert isinstance(file, File)
        at = self._chance.randrange(len(file.data))
        file.data[at] ^= 1 << self._chance.randrange(8)
        whole = len(file.data) == _covered(image, path)
        storage = self._storage(image, self.boot)
        try:
            storage.start()
        except (OSError, KafkaError, ValueError, KeyError, AssertionError) as failure:
            self._complain(f"bit rot of {path}", before, f"I10: the start fails: {failure!r}")
            return
        for at_, model in self._cluster.topics.items():
            for problem in self._damage_of(storage, model, path, whole=whole):
                self._complain(f"bit rot of {path}", before, f"{at_}: {problem}")

    def _damage_of(
        self, storage: Storage, model: LogModel, path: str, *, whole: bool
    ) -> Iterator[str]:
        own = f"/{model.at.topic}-{model.at.partition}" in path
        try:
            log = storage.log_of(model)
            if log is None:
                found = ["I1: is gone"] if model.written else []
            elif own and ".log" in path:
                # It may be offline or refuse damaged batches, but never serve other ones for them.
                found = list(model.falsified(log, whole=whole))
            else:
                found = list(model.problems(log, self._clock.wall_ms(), lossy=False))
        except (KafkaError, OSError) as refused:
            found = [] if own else [f"I10: {refused}"]
        if own and ".log" not in path:
            found = [row for row in found if "I1: the batch" in row]
        yield from (row for row in found if not row.startswith("DeleteRecords"))


def _with_part(disk: Disk, change: Change, chance: Stream) -> Disk:
    """Return an image in the middle of a write."""
    image = disk.copy()
    file = image.find(change.path)
    part = change.content[: chance.randrange(len(change.content))]
    if isinstance(file, File) and part:
        file.write(change.at, part)
    return image


def _covered(disk: Disk, path: str) -> int:
    """Return how many bytes of a segment the checksums beside it are for.

    Those of a segment that compaction swaps in get their name before it.
    """
    stem = path.removesuffix(SWAP).removesuffix(LOG)
    file = None
    if path.endswith(SWAP):
        file = disk.find(stem + CHECKSUMS + SWAP)
    if file is None and not (path.endswith(SWAP) and disk.find(stem + LOG)):
        file = disk.find(stem + CHECKSUMS)
    try:
        return decode(bytes(file.data))[0] if isinstance(file, File) else 0
    except DamagedChecksums:
        return 0


def _may_rot(path: str, node: object) -> bool:
    return isinstance(node, File) and bool(node.data) and not path.endswith((LOCK, META))
