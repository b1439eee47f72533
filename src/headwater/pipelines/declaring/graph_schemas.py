"""Checks declared schemas against the rest of a declaration and against tables on disk.

Reports only what is certainly wrong; Spark checks what depends on data or on Python.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headwater.pipelines.declaring.columns import (
    arrow_type,
    condition_columns,
    ddl_columns,
    output_columns,
)
from headwater.pipelines.declaring.declare import Dataset, Declarations, SqlQuery
from headwater.pipelines.declaring.problems import Problem, hint
from headwater.pipelines.declaring.sql_tokens import SqlError

if TYPE_CHECKING:
    import pyarrow


def schema_problems(graph: Declarations) -> Iterator[Problem]:
    """Yield conflicts of a declared schema with the rest of the declaration."""
    for dataset in graph.datasets.values():
        if dataset.schema is None:
            continue
        try:
            columns = ddl_columns(dataset.schema)
        except SqlError as problem:
            yield Problem(dataset.origin, f"the schema of {dataset.name}: {problem.text}")
            continue
        for column in dataset.partition_by:
            if column.lower() not in columns:
                text = f"{dataset.name} is partitioned by {column}, which its schema lacks"
                yield Problem(dataset.origin, text + hint(column, columns, "Add the column"))
        yield from _expectation_columns(dataset, columns)
        yield from _flow_columns(graph, dataset, columns)


def _expectation_columns(dataset: Dataset, columns: Mapping[str, str]) -> Iterator[Problem]:
    for expectation in dataset.expectations:
        named = _certain(condition_columns, expectation.condition)
        for column in named or ():
            if column.lower() not in columns:
                text = f"{expectation.name!r} of {dataset.name} asks for {column}, which its schema"
                yield Problem(
                    dataset.origin, f"{text} lacks" + hint(column, columns, "Add the column")
                )


def _flow_columns(
    graph: Declarations, dataset: Dataset, columns: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield columns that a SQL flow returns and the table's schema lacks."""
    for flow in graph.flows:
        if flow.target != dataset.name or not isinstance(flow.query, SqlQuery):
            continue
        for column in _certain(output_columns, flow.query.text) or ():
            if column not in columns:
                text = f"{flow.name} gives a column {column}, which the schema of {dataset.name}"
                yield Problem(
                    flow.origin, f"{text} lacks" + hint(column, columns, "Add the column")
                )


def _certain(ask: Callable[[str], tuple[str, ...] | None], text: str) -> tuple[str, ...] | None:
    try:
        return ask(text)
    except SqlError:  # Spark reports the error better
        return None


def changed_types(graph: Declarations, schemas: "Mapping[str, pyarrow.Schema]") -> list[Problem]:
    """Return columns whose declared type does not fit the table; new columns are allowed."""
    found = []
    for name, dataset in graph.datasets.items():
        if dataset.schema is None or name not in schemas:
            continue
        try:
            declared = ddl_columns(dataset.schema)
        except SqlError:  # reported by schema_problems
            continue
        for field in schemas[name]:
            wanted, there = declared.get(field.name.lower()), arrow_type(str(field.type))
            if wanted is None or there is None or _fits(wanted, there, dataset.format):
                continue
            text = f"{name}.{field.name} is declared {wanted}, but the table has {there}"
            advice = f"Fill the table again with --refresh {name}, or name a new column"
            found.append(Problem(dataset.origin, f"{text}. {advice}"))
    return found


_LADDERS: Final = (("TINYINT", "SMALLINT", "INT", "BIGINT"), ("FLOAT", "DOUBLE"))


def _fits(declared: str, there: str, kind: str) -> bool:
    """Return whether a table accepts rows of the declared type.

    Narrower numbers are cast; wider ones widen the column, which Delta tables do not support.
    """
    for ladder in _LADDERS:
        if declared in ladder and there in ladder:
            return kind != "delta" or ladder.index(declared) <= ladder.index(there)
    return declared == there
