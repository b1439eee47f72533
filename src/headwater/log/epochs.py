"""Leader epochs of one log: at which offset each leader began to write (KIP-101, KIP-279).

Kept as text in `leader-epoch-checkpoint`, in Kafka's format. That format has no checksum, so a
second file holds one. Both files are written before the first batch of an epoch reaches the log: a
batch with an unknown epoch is therefore damaged. If the files are damaged, the epochs are rebuilt
from the batches.

The cache counts its changes. `capture` copies what the files need, and any thread may write the
copy: an older state never replaces a newer one.
"""

from bisect import bisect_right

from headwater.log.checkpoints import DamagedCheckpoint, parse_rows, render_rows
from headwater.log.presence import Presence
from headwater.records.checksum import crc32c
from headwater.seams.files import Files, read_file, replace_file

FILE_NAME = "leader-epoch-checkpoint"
CHECKSUM = ".crc"
UNKNOWN = (-1, -1)


class EpochSave:
    """A copy of the epochs, to be written to the files."""

    __slots__ = ("_cache", "_content", "version")

    def __init__(self, cache: "EpochCache") -> None:
        rows = zip(map(str, cache.epochs), map(str, cache.starts), strict=True)
        self._cache = cache
        self._content = render_rows(rows)
        self.version = cache.version

    def run(self, *, sync: bool = False) -> None:
        """Replace both files unless they are newer. Safe on any thread; raises LogRemoved."""
        cache = self._cache
        with cache.presence:
            if self.version > cache.saved or sync:
                cache.write(self._content, sync=sync)
                cache.saved = max(cache.saved, self.version)


class EpochCache:
    """Epochs and their first offsets, both growing."""

    __slots__ = (
        "_files", "damaged", "epochs", "idle_from", "needed", "path", "presence", "saved", "starts",
        "unsynced", "version",
    )  # fmt: skip

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.path = f"{directory}/{FILE_NAME}"
        self.epochs: list[int] = []
        self.starts: list[int] = []
        self.presence = Presence()
        self.damaged = False
        # Incremented by every change.
        self.version = 0
        # The version in the files, set by the thread that wrote them.
        self.saved = 0
        # The version that the files must reach before another batch is written.
        self.needed = 0
        self.unsynced = False
        self.idle_from: int | None = None
        """Where the unsaved epochs begin, if none of them has a batch yet."""

    def relocate(self, directory: str) -> None:
        """Use the folder's new path after a rename."""
        self.path = f"{directory}/{FILE_NAME}"

    def load(self) -> None:
        """Read the files; if they are missing or damaged, start empty and set `damaged`."""
        try:
            rows = [(int(epoch), int(start)) for epoch, start in self._rows()]
            self.epochs = [epoch for epoch, _ in rows]
            self.starts = [start for _, start in rows]
            self.damaged = not _growing(self.epochs) or not _growing(self.starts)
        except FileNotFoundError:
            self.epochs, self.starts = [], []
            self.damaged = True
        except (DamagedCheckpoint, ValueError):
            self.damaged = True
        if self.damaged:
            self.epochs, self.starts = [], []

    def save(self, *, sync: bool = False) -> None:
        """Replace both files."""
        self.capture().run(sync=sync)

    def capture(self) -> EpochSave:
        """Return what the files should have now, for a file thread."""
        self.idle_from = None
        return EpochSave(self)

    def write(self, content: bytes, *, sync: bool) -> None:
        """Replace both files by `content`; only `EpochSave` calls this, and one at a time."""
        replace_file(self._files, self.path + CHECKSUM, _checksum(content), sync=sync)
        replace_file(self._files, self.path, content, sync=sync)
        self.unsynced, self.damaged = not sync, False

    @property
    def must_be_saved(self) -> bool:
        """Whether the files must be written before any further batch."""
        return self.saved < self.needed

    @property
    def paths(self) -> tuple[str, str]:
        """The files to be synced."""
        return self.path, self.path + CHECKSUM

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self.epochs[-1] if self.epochs else -1

    def assign(self, epoch: int, start: int) -> None:
        """Begin leader `epoch` at `start`, replacing epochs that wrote nothing."""
        if self.epochs and epoch <= self.epochs[-1]:
            return
        self._drop_from(start)
        self.epochs.append(epoch)
        self.starts.append(start)
        self._changed_from(start)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or -1."""
        rank = bisect_right(self.starts, offset)
        return self.epochs[rank - 1] if rank else -1

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the answer to OffsetForLeaderEpoch: (epoch, end offset), (-1, -1) if unknown."""
        if not self.epochs or epoch > self.epochs[-1] or epoch < 0:
            return UNKNOWN
        if epoch == self.epochs[-1]:
            return epoch, log_end
        rank = bisect_right(self.epochs, epoch)
        if rank == 0:
            return epoch, self.starts[0]
        return self.epochs[rank - 1], self.starts[rank]

    def worth_saving(self, log_end: int) -> bool:
        """Return whether the files lack an epoch that has batches."""
        return self.saved < self.version and (self.idle_from is None or self.idle_from < log_end)

    def save_with_next_flush(self) -> None:
        """Have the next flush write both files, even if they have everything."""
        self.version += 1
        self.idle_from = None

    def truncate_end(self, offset: int) -> None:
        """Drop the epochs that begin at or after the log's new end."""
        if not self.starts or self.starts[-1] < offset:
            return
        if self.starts[-1] > offset:
            self._changed()
        else:
            self._changed_from(offset)
        self._drop_from(offset)

    def truncate_start(self, offset: int) -> None:
        """Drop the epochs that end before the log's new start."""
        rank = bisect_right(self.starts, offset)
        if rank and self.starts[rank - 1] < offset:
            del self.epochs[: rank - 1], self.starts[: rank - 1]
            self.starts[0] = offset
            # Recovery checks batches against the later epochs.
            self.save_with_next_flush()

    def clear(self) -> None:
        """Forget everything."""
        self.epochs.clear()
        self.starts.clear()
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self.needed = self.version
        self.idle_from = None

    def _changed_from(self, offset: int) -> None:
        """Note a change at the end of the log: it needs saving once a batch follows."""
        idle_from = offset if self.saved == self.version else self.idle_from
        self._changed()
        self.idle_from = idle_from

    def _drop_from(self, offset: int) -> None:
        while self.starts and self.starts[-1] >= offset:
            self.starts.pop()
            self.epochs.pop()

    def _rows(self) -> list[list[str]]:
        content = read_file(self._files, self.path)
        checksum = self.path + CHECKSUM
        # Kafka writes no checksum.
        if self._files.exists(checksum) and read_file(self._files, checksum) != _checksum(content):
            raise DamagedCheckpoint("the checksum does not match")
        return parse_rows(content, fields=2)


def _checksum(content: bytes) -> bytes:
    return b"%08x\n" % crc32c(content)


def _growing(values: list[int]) -> bool:
    return all(low < high for low, high in zip([-1, *values], values, strict=False))
