"""What a sink notes of its writes, by which a repeated task knows what it has written. Pure.

A mark is the metadata of the offsets that the sink's group commits: it says how far the query is with
a topic. With transactions, each task notes a part entry beside its records. Without them, each record
has a header `headwater.origin` with "query/batch/task/index", by which a task finds its records again.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

HEADER: Final = "headwater.origin"

Pair = tuple[str, bytes | None]
Pairs = tuple[Pair, ...]


class RecordOrigin(NamedTuple):
    """One task of one batch of one query."""

    query: str
    batch: int
    task: int

    @property
    def stem(self) -> bytes:
        """The common prefix of the headers of its records; the index follows."""
        return f"{self.query}/{self.batch}/{self.task}/".encode()


def without_origin(headers: Iterable[Pair]) -> Pairs:
    """Return the other headers; a copied record must not keep the origin of its source."""
    return tuple(pair for pair in headers if pair[0] != HEADER)


class FoundRecords:
    """The records of a task that are already in the topic; each represents one row.

    Rows are compared by content and not by index: a task that gets its rows in another order the
    second time, as after a shuffle, still writes each once, and a new row is never skipped.
    """

    def __init__(self) -> None:
        self.next_index = 0
        """The index of the next record to be written."""
        self._left: Counter[int] = Counter()
        self._count = 0

    def add(self, index: int, key: bytes | None, value: bytes | None, headers: Pairs) -> None:
        """Add a record that was found."""
        self._left[hash((key, value, headers))] += 1
        self._count += 1
        self.next_index = max(self.next_index, index + 1)

    def consume(self, key: bytes | None, value: bytes | None, headers: Pairs) -> bool:
        """Remove one record with this content; return whether there was one."""
        row = hash((key, value, headers))
        if not self._left[row]:
            return False
        self._left[row] -= 1
        self._count -= 1
        return True

    def __len__(self) -> int:
        return self._count


class BatchState(Enum):
    """The state of a batch in a topic."""

    BEGUN = "begun"
    """Its tasks are writing; the mark names the run of the query that began it."""
    TORN = "torn"
    """One of its tasks failed: any task may have written already."""
    DONE = "done"
    """All of it is in the topic, and the committed offsets follow its last record."""


class Mark(NamedTuple):
    """The state of a sink for one topic, in its group."""

    state: BatchState
    batch: int
    run: str = ""
    """The run of the query that writes the batch."""
    earlier: tuple[str, ...] = ()
    """Runs that a later one has replaced, the last one first; they must not write any more."""
    transactional: bool = False
    """Whether all writes of the batch were transactions."""
    mixed: bool = False
    """Whether some were, after others without."""

    def covers(self, batch: int) -> bool:
        """Return whether all of a batch is in the topic."""
        return self.batch > batch or (self.batch == batch and self.state is BatchState.DONE)

    def has_transactions_of(self, batch: int) -> bool:
        """Return whether part entries tell what was written of an unfinished batch."""
        begun = self.batch == batch and self.state is not BatchState.DONE
        return begun and (self.transactional or self.mixed)

    def text(self) -> str:
        """Return the mark as offset metadata."""
        words = [self.state.value, str(self.batch), self.run]
        if self.transactional or self.mixed:
            words += [_TRANSACTIONAL if self.transactional else _MIXED, *self.earlier]
        return " ".join(filter(None, words))


_TRANSACTIONAL: Final = "tx"
_MIXED: Final = "plain"
_RUNS_KEPT: Final = 16


def read_mark(text: str) -> Mark | None:
    """Parse offset metadata; None if no sink wrote it."""
    try:
        state, batch, *rest = text.split(" ")
        run, mode, *earlier = (*rest, "", "")[: max(2, len(rest))]
        modes = (mode == _TRANSACTIONAL, mode == _MIXED)
        return Mark(BatchState(state), int(batch), run, tuple(earlier), *modes)
    except ValueError:
        return None


def claim_by(mark: Mark | None, batch: int, run: str) -> Mark:
    """Return the mark with which a run takes a batch over."""
    if mark is None:
        return Mark(BatchState.BEGUN, batch, run, transactional=True)
    earlier = tuple(each for each in (mark.run, *mark.earlier) if each and each != run)
    mixed = mark.batch == batch and not mark.transactional
    return Mark(BatchState.BEGUN, batch, run, earlier[:_RUNS_KEPT], not mixed, mixed)


class PriorWrites(Enum):
    """What a task may find of its batch in the topic."""

    NOTHING = "nothing"
    """No task of this number has written for this batch."""
    PERHAPS = "perhaps"
    """One may have: the tail must be read."""
    EVERYTHING = "everything"
    """The batch is finished."""


def untold_writes(mark: Mark | None, batch: int) -> PriorWrites:
    """Return what may be in the topic of a batch beside what its part entries tell."""
    if mark is None or mark.batch < batch:
        return PriorWrites.NOTHING
    if mark.covers(batch):
        return PriorWrites.EVERYTHING
    return PriorWrites.NOTHING if mark.transactional else PriorWrites.PERHAPS


def prior_writes(mark: Mark | None, batch: int, run: str, attempt: int) -> PriorWrites:
    """Return what may be in the topic of a task's batch when an attempt begins.

    A batch that the same run began has records of other tasks, but none of a task's first attempt.
    A failed task leaves a mark, because Spark counts attempts from zero when it repeats a stage.
    """
    if mark is None:
        return PriorWrites.NOTHING
    if mark.covers(batch):
        return PriorWrites.EVERYTHING
    fresh = mark.batch < batch or mark == Mark(BatchState.BEGUN, batch, run)
    return PriorWrites.NOTHING if fresh and attempt == 0 else PriorWrites.PERHAPS


class PartEntry(NamedTuple):
    """What a task wrote of a batch to a topic; committed in the same transaction."""

    batch: int
    run: str
    rows: int
    total: int
    """A sum over the rows that does not depend on their order."""

    def text(self) -> str:
        """Return the entry as offset metadata."""
        return f"part {self.batch} {self.run} {self.rows} {self.total:016x}"


def read_part_entry(text: str) -> PartEntry | None:
    """Parse offset metadata; None if no task wrote it."""
    try:
        word, batch, run, rows, total = text.split(" ")
        return PartEntry(int(batch), run, int(rows), int(total, 16)) if word == "part" else None
    except ValueError:
        return None
