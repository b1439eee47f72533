"""Applies expectations to batches: which rows are good, where the others go, and how many.

Each row gets the names of the expectations that it fails, computed by SQL in the query's own plan.
A condition that is NULL fails: only true passes, as with a CHECK of a Delta table. `warn` counts,
`drop` refuses the row, `fail` ends the batch before any row of it is written. Refused rows are
written first, so that a batch in the target has its refused rows in their places as well.
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
    """Rows fail an `expect_or_fail`; nothing of their batch was written."""


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
        """Add the names of failed expectations to each row, and observe their counts."""
        if not self.expectations:
            return rows
        with_names = rows.withColumn(FAILED, sf.expr(failed_names(self.expectations)))
        return with_names.observe(QUALITY, sf.count(sf.lit(1)).alias("rows"), *self._counting())

    def counts(self, judged: "DataFrame") -> dict[str, int]:
        """Count the rows that fail each expectation."""
        if not self.expectations:
            return {}
        found = judged.agg(*self._counting()).collect()[0]
        return dict(zip(self.names, map(int, found), strict=True))

    def refuse(self, judged: "DataFrame") -> None:
        """Raise ExpectationError if a row fails an `expect_or_fail`."""
        if not self._failing:
            return
        broken = judged.where(_has(self._failing))
        names = sf.array_intersect(sf.col(FAILED), _texts(self._failing))
        found = broken.select(sf.explode(names).alias("name")).groupBy("name").count().collect()
        if not found:
            return
        example = str(broken.drop(FAILED).select(sf.to_json(sf.struct("*"))).head(1)[0][0])
        failed = ", ".join(f"{row['count']} rows fail {row['name']!r}" for row in sorted(found))
        raise ExpectationError(
            f"{failed}; one of them is {example[:_EXAMPLE]}; nothing of this batch was written"
        )

    def good(self, judged: "DataFrame") -> "DataFrame":
        """Return the rows that pass, without the added column."""
        if self._dropping:
            judged = judged.where(~_has(self._dropping))
        return judged.drop(FAILED)

    def bad(self, judged: "DataFrame") -> "DataFrame":
        """Return the refused rows, with `_reasons` as their last column."""
        return judged.where(_has(self._dropping)).withColumnRenamed(FAILED, REASONS)

    def _counting(self) -> "list[Column]":
        return [
            sf.count_if(sf.array_contains(FAILED, name)).alias(f"e{number}")
            for number, name in enumerate(self.names)
        ]

    def _named(self, action: str) -> tuple[str, ...]:
        return tuple(each.name for each in self.expectations if each.action == action)


class RowJudge(Protocol):
    """Separates good rows from refused ones."""

    drops: bool
    """Whether rows may be refused."""
    fails: bool
    """Whether rows may end a batch."""

    def refuse(self, judged: "DataFrame") -> None:
        """Raise if a row must end the batch."""

    def good(self, judged: "DataFrame") -> "DataFrame":
        """Return the rows that pass."""

    def bad(self, judged: "DataFrame") -> "DataFrame":
        """Return the refused rows, with their reasons."""


class QualityGate:
    """For foreachBatch: writes the refused rows of a batch, then the good ones."""

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
        """Write refused rows, if there are any; most batches have none.

        Counting computes the batch on all cores, which looking for a first row would not.
        """
        if not self._bad:
            return
        bad = self._judge.bad(batch)
        if bad.count():
            for write in self._bad:
                write(bad, batch_id)


@contextmanager
def cached(rows: "DataFrame", *, when: bool) -> Iterator[None]:
    """Cache rows that are used several times, so that they are computed once."""
    if not when:
        yield
        return
    rows.persist()
    try:
        yield
    finally:
        rows.unpersist()


def failed_names(expectations: Sequence[Expectation]) -> str:
    """Return SQL for the names of the expectations that a row fails."""
    names = (
        f"CASE WHEN ({each.condition}) THEN NULL ELSE {_literal(each.name)} END"
        for each in expectations
    )
    return f"filter(array({', '.join(names)}), name -> name IS NOT NULL)"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _has(names: Sequence[str]) -> "Column":
    return sf.arrays_overlap(sf.col(FAILED), _texts(names))


def _texts(names: Sequence[str]) -> "Column":
    return sf.array(*(sf.lit(name) for name in names))
