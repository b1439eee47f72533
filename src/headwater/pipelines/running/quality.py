"""Expectations at work: which rows of a batch are good, where the others go, and how many.

Each row gets the names of the expectations that it does not meet, computed by SQL in the query's
own plan. A condition that is NULL is not met: only what is true passes, as with a CHECK of a
Delta table. `warn` counts, `drop` sets the row aside, `fail` ends the batch before a row of it is
written anywhere. Rows that are set aside go first, so that a batch which is in the target has its
bad rows in their places too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql import functions as sf

from headwater.pipelines.declaring.declare import Expectation
from headwater.pipelines.running.progress import QUALITY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    BatchWriter = Callable[[DataFrame, int], None]

FAILED: Final = "__headwater_failed"
REASONS: Final = "_reasons"
_EXAMPLE: Final = 300


class ExpectationError(Exception):
    """Rows that must not be there are there; nothing of their batch was written."""


class Quality:
    """The expectations of one dataset, as columns."""

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self.expectations = tuple(expectations)
        self.names = tuple(expectation.name for expectation in self.expectations)
        self._dropping = self._named("drop")
        self._failing = self._named("fail")
        self.drops = bool(self._dropping)
        self.fails = bool(self._failing)

    def judged(self, rows: "DataFrame") -> "DataFrame":
        """The rows with the names of what they do not meet; the counts are observed on the way."""
        if not self.expectations:
            return rows
        with_names = rows.withColumn(FAILED, sf.expr(failed_names(self.expectations)))
        return with_names.observe(QUALITY, sf.count(sf.lit(1)).alias("rows"), *self._counting())

    def counts(self, judged: "DataFrame") -> dict[str, int]:
        """How many rows do not meet each expectation, counted now."""
        if not self.expectations:
            return {}
        found = judged.agg(*self._counting()).collect()[0]
        return dict(zip(self.names, map(int, found), strict=True))

    def refuse(self, judged: "DataFrame") -> None:
        """End the batch where an `expect_or_fail` is not met."""
        if not self._failing:
            return
        broken = judged.where(_has(self._failing))
        names = sf.array_intersect(sf.col(FAILED), _texts(self._failing))
        found = broken.select(sf.explode(names).alias("name")).groupBy("name").count().collect()
        if not found:
            return
        example = str(broken.drop(FAILED).select(sf.to_json(sf.struct("*"))).head(1)[0][0])
        told = ", ".join(f"{row['count']} rows fail {row['name']!r}" for row in sorted(found))
        raise ExpectationError(
            f"{told}; one of them is {example[:_EXAMPLE]}; nothing of this batch was written"
        )

    def good(self, judged: "DataFrame") -> "DataFrame":
        """The rows that go on, without the names."""
        if self._dropping:
            judged = judged.where(~_has(self._dropping))
        return judged.drop(FAILED)

    def bad(self, judged: "DataFrame") -> "DataFrame":
        """The rows that are set aside, with `_reasons` as their last column."""
        return judged.where(_has(self._dropping)).withColumnRenamed(FAILED, REASONS)

    def _counting(self) -> "list[Column]":
        return [
            sf.count_if(sf.array_contains(FAILED, name)).alias(f"e{number}")
            for number, name in enumerate(self.names)
        ]

    def _named(self, action: str) -> tuple[str, ...]:
        return tuple(wish.name for wish in self.expectations if wish.action == action)


class RowJudge(Protocol):
    """Who tells good rows from bad ones."""

    drops: bool
    """Whether rows may be set aside."""
    fails: bool
    """Whether rows may end a batch."""

    def refuse(self, judged: "DataFrame") -> None:
        """Raise where a row must not be there at all."""

    def good(self, judged: "DataFrame") -> "DataFrame":
        """The rows that go on."""

    def bad(self, judged: "DataFrame") -> "DataFrame":
        """The rows that are set aside, with their reasons."""


class QualityGate:
    """For foreachBatch: judges a batch, then hands its parts to their writers, in order."""

    def __init__(
        self, judge: RowJudge, good: "BatchWriter", bad: Sequence["BatchWriter"] = ()
    ) -> None:
        self._judge = judge
        self._good = good
        self._bad = tuple(bad) if judge.drops else ()

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Write one micro-batch; every writer is exactly once by (query, batch)."""
        with cached(batch, when=bool(self._bad) or self._judge.fails):
            self._judge.refuse(batch)
            self._set_aside(batch, batch_id)
            self._good(self._judge.good(batch), batch_id)

    def _set_aside(self, batch: "DataFrame", batch_id: int) -> None:
        """Most batches have no bad row, and then nobody needs to be asked to write none.

        Counting computes the batch with all cores, which a look for a first bad row would not.
        """
        if not self._bad:
            return
        bad = self._judge.bad(batch)
        if bad.count():
            for write in self._bad:
                write(bad, batch_id)


@contextmanager
def cached(rows: "DataFrame", *, when: bool) -> Iterator[None]:
    """Keep the rows while they are looked at several times, so that they are computed once."""
    if not when:
        yield
        return
    rows.persist()
    try:
        yield
    finally:
        rows.unpersist()


def failed_names(expectations: Sequence[Expectation]) -> str:
    """SQL for the names of the expectations that a row does not meet."""
    names = (
        f"CASE WHEN ({wish.condition}) THEN NULL ELSE {_literal(wish.name)} END"
        for wish in expectations
    )
    return f"filter(array({', '.join(names)}), name -> name IS NOT NULL)"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _has(names: Sequence[str]) -> "Column":
    return sf.arrays_overlap(sf.col(FAILED), _texts(names))


def _texts(names: Sequence[str]) -> "Column":
    return sf.array(*(sf.lit(name) for name in names))
