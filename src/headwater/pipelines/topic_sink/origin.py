"""Where a written record came from, and how a repeated task knows its own records again.

Pure: headers, marks and decisions, no broker. A record that a streaming sink writes carries one
header, `headwater.origin`, with "query/batch/task/index". A mark is a note beside the offsets of
the sink's group and says how far the query is with a topic.
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
        """What the headers of all its records begin with; the index follows."""
        return f"{self.query}/{self.batch}/{self.task}/".encode()


def without_origin(headers: Iterable[Pair]) -> Pairs:
    """Headers that say something else; a copied record must not keep an origin it no longer has."""
    return tuple(pair for pair in headers if pair[0] != HEADER)


class FoundRecords:
    """The records of a task that are in the topic already, each good for one row.

    Rows are compared by what they say and not by their index: a task whose rows come in another
    order the second time, as they do after a shuffle, still writes each once; and a row that is
    new is never taken for written.
    """

    def __init__(self) -> None:
        self.next_index = 0
        """Records that are written from now on are numbered from here."""
        self._left: Counter[int] = Counter()
        self._count = 0

    def add(self, index: int, key: bytes | None, value: bytes | None, headers: Pairs) -> None:
        """A record was found."""
        self._left[hash((key, value, headers))] += 1
        self._count += 1
        self.next_index = max(self.next_index, index + 1)

    def consume(self, key: bytes | None, value: bytes | None, headers: Pairs) -> bool:
        """Whether this row is one of them; each is given once."""
        row = hash((key, value, headers))
        if not self._left[row]:
            return False
        self._left[row] -= 1
        self._count -= 1
        return True

    def __len__(self) -> int:
        return self._count


class BatchState(Enum):
    """How far a batch is."""

    BEGUN = "begun"
    """Its tasks write; which run of the query began it stands beside."""
    TORN = "torn"
    """One of its tasks failed: any task may have written already."""
    DONE = "done"
    """All of it is in the topic, and the offsets beside this mark are behind its last record."""


class Mark(NamedTuple):
    """What the group of a sink says of one topic."""

    state: BatchState
    batch: int
    run: str = ""

    def text(self) -> str:
        """As it stands beside the offsets."""
        return " ".join(filter(None, (self.state.value, str(self.batch), self.run)))


def read_mark(text: str) -> Mark | None:
    """The mark in the note beside an offset; None for what no sink wrote."""
    try:
        state, batch, *run = text.split(" ")
        return Mark(BatchState(state), int(batch), run[0] if run else "")
    except ValueError:
        return None


class PriorWrites(Enum):
    """What a task finds of its batch."""

    NOTHING = "nothing"
    """No task of this number has written for this batch."""
    PERHAPS = "perhaps"
    """One may have: the tail must be read."""
    EVERYTHING = "everything"
    """The batch is finished."""


def prior_writes(mark: Mark | None, batch: int, run: str, attempt: int) -> PriorWrites:
    """What may be in the topic of a task's batch when its attempt of this number begins.

    A batch that its own run began holds what the other tasks wrote, but nothing of a task that is
    tried for the first time; a failed task leaves a mark, because Spark counts attempts from zero
    again when it repeats a whole stage.
    """
    if mark is None:
        return PriorWrites.NOTHING
    if mark.batch > batch or mark == Mark(BatchState.DONE, batch):
        return PriorWrites.EVERYTHING
    fresh = mark.batch < batch or mark == Mark(BatchState.BEGUN, batch, run)
    return PriorWrites.NOTHING if fresh and attempt == 0 else PriorWrites.PERHAPS
