"""The decorators and functions of a pipeline file: those of Spark Declarative Pipelines and more.

Each checks its arguments, registers the declaration with its place, and returns the function
unchanged, so decorators go in any order. An argument without effect is refused, never ignored.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from headwater.pipelines.declaring.arguments import (
    checked_name,
    name_list,
    refuse_unknown,
    schema_ddl,
    sink_target,
    table_format,
    table_options,
)
from headwater.pipelines.declaring.declare import (
    Action,
    DeclarationError,
    Expectation,
    Format,
    Kind,
    Quarantine,
    Sink,
    SourceLocation,
)
from headwater.pipelines.declaring.python_reads import origin_of
from headwater.pipelines.declaring.registry import Draft, Mark, active

F = TypeVar("F", bound=Callable[..., Any])


class TableArguments(TypedDict, total=False):
    """The arguments of a stored dataset."""

    name: str | None
    comment: str | None
    table_properties: Mapping[str, str] | None
    partition_cols: Sequence[str] | None
    partition_by: Sequence[str] | None
    schema: Any
    format: Format | None
    reads: Sequence[str]
    topics: Sequence[str]


class ViewArguments(TypedDict, total=False):
    """The arguments of a temporary view."""

    name: str | None
    comment: str | None
    reads: Sequence[str]
    topics: Sequence[str]


@overload
def table(query: F, /) -> F: ...
@overload
def table(**arguments: Unpack[TableArguments]) -> Callable[[F], F]: ...
def table(query: Any = None, /, **arguments: Any) -> Any:
    """Declare a streaming table: new rows of its streaming inputs are appended.

    Args:
        query: the function, if the decorator is written without brackets.
        **arguments: name (default: the function's), comment, partition_by (or partition_cols),
            schema (DDL or a StructType), format, table_properties (see TABLE_OPTIONS), and reads
            and topics: inputs whose names the source of the function does not show.
    """
    return _decorator("table", query, arguments)


@overload
def materialized_view(query: F, /) -> F: ...
@overload
def materialized_view(**arguments: Unpack[TableArguments]) -> Callable[[F], F]: ...
def materialized_view(query: Any = None, /, **arguments: Any) -> Any:
    """Declare a table that each run computes again, whole, from batch reads; arguments as for `table`."""
    return _decorator("materialized_view", query, arguments)


@overload
def temporary_view(query: F, /) -> F: ...
@overload
def temporary_view(**arguments: Unpack[ViewArguments]) -> Callable[[F], F]: ...
def temporary_view(query: Any = None, /, **arguments: Any) -> Any:
    """Declare a named query that other queries read; its rows are not stored."""
    return _decorator("temporary_view", query, arguments)


def append_flow(
    *,
    target: str,
    name: str | None = None,
    once: bool = False,
    reads: Sequence[str] = (),
    topics: Sequence[str] = (),
    **unknown: Any,
) -> Callable[[F], F]:
    """Declare another query that appends to the table or sink `target`.

    Args:
        target: a streaming table or a sink.
        name: the name of the flow and its checkpoint (default: the function's).
        once: the query is a batch that runs only once, such as a backfill.
        reads: input datasets whose names the source of the function does not show.
        topics: input topics whose names the source of the function does not show.
        **unknown: refused.
    """
    place = _caller()
    refuse_unknown(place, unknown, ("target", "name", "once", "reads", "topics"))

    def declare(function: F) -> F:
        registry = active()
        if registry is not None:
            origin = origin_of(function)
            registry.add(
                Draft(
                    name=checked_name(origin, name or function.__name__),
                    origin=origin,
                    kind=None,
                    query=function,
                    target=target,
                    once=once,
                    reads=name_list(origin, "reads", reads),
                    topics=name_list(origin, "topics", topics),
                )
            )
        return function

    return declare


def create_streaming_table(
    name: str,
    *,
    expect_all: Mapping[str, str] | None = None,
    expect_all_or_drop: Mapping[str, str] | None = None,
    expect_all_or_fail: Mapping[str, str] | None = None,
    quarantine: Quarantine | None = None,
    **arguments: Any,
) -> None:
    """Declare a table that only append flows fill.

    Args:
        name: the name of the table.
        expect_all: conditions by name, counted.
        expect_all_or_drop: conditions by name; rows that fail one go to the quarantine.
        expect_all_or_fail: conditions by name; a row that fails one stops the flow.
        quarantine: `Quarantine(table, topic)` for refused rows.
        **arguments: comment, partition_by, schema, format, table_properties, as for `table`.
    """
    registry, origin = active(), _caller()
    known = [key for key in _TABLE_KEYS if key not in ("name", "reads", "topics")]
    refuse_unknown(origin, arguments, known)
    draft = _stored("table", origin, None, {"name": name, **arguments})
    groups: list[tuple[Action, Mapping[str, str]]] = [
        ("warn", expect_all or {}),
        ("drop", expect_all_or_drop or {}),
        ("fail", expect_all_or_fail or {}),
    ]
    expectations = tuple(
        _expectation(origin, *pair, action) for action, pairs in groups for pair in pairs.items()
    )
    if registry is not None:
        registry.add(replace(draft, expectations=expectations, quarantine=quarantine))


def create_sink(name: str, format: str, options: Mapping[str, str] | None = None) -> None:
    """Declare a target outside of the pipeline that flows write to.

    Args:
        name: the name that flows use.
        format: "topic:NAME", "delta:PATH", "iceberg:PATH" or "parquet:PATH"; also as in Spark:
            "headwater" or "kafka" with the option topic, "delta" and others with path.
        options: options of the producer or the table, by name.
    """
    registry, origin = active(), _caller()
    target, rest = sink_target(origin, format, dict(options or {}))
    if registry is not None:
        registry.add_sink(Sink(checked_name(origin, name), target, rest, origin))


sink = create_sink


def expect(name: str, condition: str) -> Callable[[F], F]:
    """Count rows that do not meet a condition (SQL) and keep them."""
    return _mark(_expectation(_caller(), name, condition, "warn"))


def expect_or_drop(name: str, condition: str) -> Callable[[F], F]:
    """Send rows that do not meet a condition to the table's quarantine."""
    return _mark(_expectation(_caller(), name, condition, "drop"))


def expect_or_fail(name: str, condition: str) -> Callable[[F], F]:
    """Fail a batch before it is written if a row does not meet a condition."""
    return _mark(_expectation(_caller(), name, condition, "fail"))


def expect_all(expectations: Mapping[str, str]) -> Callable[[F], F]:
    """`expect` for each name and condition."""
    return _mark_all(_caller(), expectations, "warn")


def expect_all_or_drop(expectations: Mapping[str, str]) -> Callable[[F], F]:
    """`expect_or_drop` for each name and condition."""
    return _mark_all(_caller(), expectations, "drop")


def expect_all_or_fail(expectations: Mapping[str, str]) -> Callable[[F], F]:
    """`expect_or_fail` for each name and condition."""
    return _mark_all(_caller(), expectations, "fail")


def quarantine(*, table: str | None = None, topic: str | None = None) -> Callable[[F], F]:
    """Send rows that `expect_or_drop` refuses to a table, a topic, or both, with the reasons.

    Without either, they go to the dead_letter_topic of pipeline.yml.
    """
    if table is not None:
        checked_name(_caller(), table)
    return _mark(Quarantine(table, topic))


_TABLE_KEYS = tuple(TableArguments.__annotations__)
_VIEW_KEYS = tuple(ViewArguments.__annotations__)


def _decorator(kind: Kind, query: Any, arguments: Mapping[str, Any]) -> Any:
    known = _VIEW_KEYS if kind == "temporary_view" else _TABLE_KEYS
    place = _caller(depth=3)
    refuse_unknown(place, arguments, known)

    def declare(function: F) -> F:
        if not callable(function):
            raise DeclarationError(place, f"@{kind} goes on a function; write @{kind}(name=...)")
        registry = active()
        if registry is not None:
            registry.add(_stored(kind, origin_of(function), function, arguments))
        return function

    return declare if query is None else declare(query)


def _stored(
    kind: Kind,
    origin: SourceLocation,
    function: Callable[..., Any] | None,
    arguments: Mapping[str, Any],
) -> Draft:
    given = arguments.get
    name = checked_name(origin, given("name") or getattr(function, "__name__", ""))
    if given("partition_by") and given("partition_cols"):
        raise DeclarationError(origin, "partition_by and partition_cols are the same. Give one")
    partition_by = given("partition_by") or given("partition_cols") or ()
    return Draft(
        name=name,
        origin=origin,
        kind=kind,
        query=function,
        target=name,
        format=table_format(origin, given("format")),
        partition_by=name_list(origin, "partition_by", partition_by),
        schema=schema_ddl(origin, given("schema")),
        comment=given("comment"),
        options=table_options(origin, given("table_properties") or {}),
        reads=name_list(origin, "reads", given("reads") or ()),
        topics=name_list(origin, "topics", given("topics") or ()),
    )


def _expectation(origin: SourceLocation, name: Any, condition: Any, action: Action) -> Expectation:
    if not isinstance(name, str) or not isinstance(condition, str) or not condition.strip():
        raise DeclarationError(origin, "an expectation is a name and a condition in SQL, both text")
    return Expectation(name, condition, action)


def _mark(mark: Mark) -> Callable[[F], F]:
    def declare(function: F) -> F:
        registry = active()
        if registry is not None:
            registry.mark(function, mark)
        return function

    return declare


def _mark_all(
    origin: SourceLocation, expectations: Mapping[str, str], action: Action
) -> Callable[[F], F]:
    marks = [_expectation(origin, *pair, action) for pair in expectations.items()]

    def declare(function: F) -> F:
        for mark in reversed(marks):
            _mark(mark)(function)
        return function

    return declare


def _caller(depth: int = 2) -> SourceLocation:
    frame = sys._getframe(depth)
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno)
