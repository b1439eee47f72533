"""Compares two versions of a pipeline: may its flows keep their checkpoints and tables?

The rules are Spark's own ("recovery semantics after changes in a streaming query"): a query may
change what it selects and filters; with the same checkpoint it may not change the number or kind of
its inputs, nor its stateful operators. The runner keeps a fingerprint (plain JSON) of each flow beside
the checkpoints; comparing two is pure.
"""

import ast
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal

from headwater.pipelines.declaring.columns import ddl_columns
from headwater.pipelines.declaring.declare import (
    Dataset,
    DatasetRead,
    Declarations,
    Flow,
    Project,
    Query,
    SqlQuery,
)
from headwater.pipelines.declaring.python_reads import followed
from headwater.pipelines.declaring.sql_tokens import SqlError, tokens

Verdict = Literal["safe", "needs new checkpoint", "unsafe"]
Fingerprint = Mapping[str, Any]
"""The fingerprint of each flow of a project, by name."""

_STATEFUL_CALLS = {
    "groupBy", "groupby", "agg", "rollup", "cube", "pivot", "distinct", "dropDuplicates",
    "drop_duplicates", "dropDuplicatesWithinWatermark", "join", "withWatermark",
    "applyInPandasWithState", "transformWithState", "transformWithStateInPandas",
}  # fmt: skip
_STATEFUL_WORDS = ("GROUP", "DISTINCT", "JOIN", "HAVING", "WATERMARK")


@dataclass(frozen=True)
class FlowChange:
    """A change of one flow and its consequence."""

    flow: str
    verdict: Verdict
    why: str

    def __str__(self) -> str:
        return f"{self.flow}: {self.verdict}: {self.why}"


_WORK: Final = ("query", "reads", "topics", "once")
"""What tells flows apart that do not have the same name."""


def fingerprint(project: Project) -> dict[str, Any]:
    """Return the fingerprint of a project for a later `describe_change`, as JSON values."""
    graph = project.declarations
    return {flow.name: _flow_print(flow, graph, project.root) for flow in graph.flows}


def describe_change(old: Fingerprint, new: Fingerprint) -> list[FlowChange]:
    """Return all changed flows between two versions of a project."""
    found = [change for name in new if name in old for change in _changed(name, old, new)]
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    for name in added:
        before = next((gone for gone in removed if _same_work(old[gone], new[name])), None)
        if before is not None:
            removed.remove(before)
            found.append(_renamed(name, before, new[name]))
        else:
            found.append(FlowChange(name, "safe", "it is new and starts with a new checkpoint"))
    why = (
        "it was removed; its table and checkpoint remain, and if it returns it continues from there"
    )
    return found + [FlowChange(name, "safe", why) for name in removed]


def rules_digest(told: Mapping[str, Any]) -> str:
    """Return a short digest of the rules that decide which rows of a batch are bad.

        A batch may be repeated under other rules than those it failed under. Bad rows are kept under
    (query, rules, batch), so rows that only the new rules refuse are written too.
    """
    deciding = [told.get(key) for key in ("query", "constants", "schema", "expectations")]
    return digest(json.dumps(deciding))


def work_digest(told: Mapping[str, Any], topic_ids: Mapping[str, str]) -> str:
    """Return a short digest of what a flow computes, whatever its name is, of which topics."""
    read = told["topics"] or sorted(topic_ids)
    work = [[told[key] for key in _WORK], [topic_ids.get(name) for name in read]]
    return digest(json.dumps(work))


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _flow_print(flow: Flow, graph: Declarations, home: Path) -> dict[str, Any]:
    """Return the fingerprint of one flow; the temporary views it reads are part of its query."""
    queries, reads, topics = [flow.query], list(flow.reads), list(flow.topics)
    inputs: list[DatasetRead] = []
    for read in reads:  # the list grows during the loop
        view = graph.datasets.get(read.name)
        if view is None or view.kind != "temporary_view":
            inputs.append(read)
        elif view.query is not None and view.query not in queries:
            queries.append(view.query)
            reads += view.reads
            topics += view.topics
    texts = [text for query in queries for text in _texts(query, home)]
    return {
        "target": flow.target,
        "once": flow.once,
        "query": hashlib.sha256("\n".join(texts).encode()).hexdigest(),
        "stateful": [call for query in queries for call in _stateful(query, home)],
        "constants": dict(sorted(found for query in queries for found in _constants(query, home))),
        "state constants": dict(
            sorted(found for query in queries for found in _constants(query, home, stateful=True))
        ),
        "reads": sorted({f"{'STREAM ' if read.stream else ''}{read.name}" for read in inputs}),
        "topics": sorted(set(topics)),
        **_dataset_print(graph.datasets.get(flow.target)),
    }


def _dataset_print(dataset: Dataset | None) -> dict[str, Any]:
    if dataset is None:
        return {"kind": "sink"}
    bad = dataset.quarantine
    return {
        "kind": dataset.kind,
        "format": dataset.format,
        "partition_by": list(dataset.partition_by),
        "schema": dataset.schema,
        "expectations": [[e.name, e.condition, e.action] for e in dataset.expectations],
        "quarantine": [bad.table, bad.topic] if bad else None,
    }


def _texts(query: Query, home: Path) -> Iterator[str]:
    """Yield the code of a query without comments, docstrings and layout."""
    if isinstance(query, SqlQuery):
        yield " ".join(token.text for token in tokens(query.text))
        return
    for _, node in followed(query, home):
        if node is not None:
            yield from (ast.unparse(statement) for statement in _code(node))


def _code(node: ast.FunctionDef) -> list[ast.stmt]:
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return node.body[1:] if documented else node.body


def _stateful(query: Query, home: Path) -> Iterator[str]:
    """Yield the operators that may keep state, as written: if one differs, the state may not fit."""
    if isinstance(query, SqlQuery):
        found = tokens(query.text)
        if any(token.is_word(*_STATEFUL_WORDS) for token in found):
            yield " ".join(token.text for token in found)
        return
    for _, node in followed(query, home):
        for call in _stateful_calls(node) if node is not None else ():
            assert isinstance(call.func, ast.Attribute)
            given = [ast.unparse(each) for each in (*call.args, *call.keywords)]
            yield f"{call.func.attr}({', '.join(given)})"


def _constants(query: Query, home: Path, *, stateful: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the values of names that a query uses: constants of its module, defaults, closures.

    `stateful`: only those in the arguments of operators that may keep state.
    """
    if isinstance(query, SqlQuery):
        return
    for function, node in followed(query, home):
        if node is None:
            continue
        known = _values(function)
        places: list[ast.AST] = [node]
        if stateful:
            calls = _stateful_calls(node)
            places = [given for call in calls for given in (*call.args, *call.keywords)]
        for place in places:
            for child in ast.walk(place):
                if isinstance(child, ast.Name) and child.id in known:
                    yield f"{function.__module__}.{child.id}", known[child.id]


def _values(function: FunctionType) -> dict[str, str]:
    """Return the plain values of a function's names, as text."""
    inside = inspect.getclosurevars(function)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
    }
    named = {**inside.globals, **inside.nonlocals, **defaults}
    return {name: repr(value) for name, value in named.items() if _is_plain(value)}


def _is_plain(value: object) -> bool:
    """Return whether the text of a value identifies it in every run."""
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value)) and not isinstance(value, set | frozenset)
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, str | bytes | int | float | Decimal | timedelta)


def _stateful_calls(node: ast.FunctionDef) -> Iterator[ast.Call]:
    for child in ast.walk(node):
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and child.func.attr in _STATEFUL_CALLS
        ):
            yield child


def _same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in _WORK)


def _renamed(name: str, before: str, flow: Mapping[str, Any]) -> FlowChange:
    if flow["kind"] == "materialized_view":
        return FlowChange(
            name, "safe", f"it was called {before}; it is computed whole under its name"
        )
    why = (
        f"it looks like a renamed {before}: with a new checkpoint it would read all of"
        " its input again. Keep the name, or start with an empty table"
    )
    return FlowChange(name, "unsafe", why)


_Rule = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Verdict, str] | None]


def _changed(name: str, old: Fingerprint, new: Fingerprint) -> Iterator[FlowChange]:
    before, after = old[name], new[name]
    whole = before["kind"] == after["kind"] == "materialized_view"
    for rule in _WHOLE_RULES if whole else _RULES:
        verdict = rule(before, after)
        if verdict is not None:
            yield FlowChange(name, *verdict)


def _kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    if old["kind"] == new["kind"]:
        return None
    before, after = (kind.replace("_", " ") for kind in (old["kind"], new["kind"]))
    return "unsafe", f"its target was a {before} and is a {after}. Give the new target a new name"


def _target(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    if old["target"] == new["target"]:
        return None
    why = f"it wrote to {old['target']} and now writes to {new['target']}, which would only get"
    return "needs new checkpoint", f"{why} what is new since then"


def _inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    """Compare the inputs: the checkpoint holds one offset for each, in their order."""
    before, after = _streams(old), _streams(new)
    if before == after and old["once"] == new["once"]:
        return None
    if before == after:
        return "needs new checkpoint", "it changed between a one-time batch and a stream"
    why = f"its inputs were {', '.join(before) or 'none'} and are {', '.join(after) or 'none'};"
    return "needs new checkpoint", f"{why} the number and kind of inputs cannot change"


def _streams(flow: Mapping[str, Any]) -> list[str]:
    return [read for read in flow["reads"] if read.startswith("STREAM ")] + [
        f"topic {topic}" for topic in flow["topics"]
    ]


def _state(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    turned = _turned(old, new, "state constants")
    if turned:
        return (
            "needs new checkpoint",
            f"{turned}, which its grouping, join, deduplication or watermark uses, and the state "
            "that the old checkpoint holds must keep its form",
        )
    if old["stateful"] == new["stateful"]:
        return None
    return (
        "needs new checkpoint",
        "its grouping, join, deduplication or watermark changed, and the state that the old"
        " checkpoint holds must keep its form",
    )


def _query(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    if _state(old, new) is not None:
        return None
    if turned := _turned(old, new, "constants"):
        return "safe", f"{turned}; that holds for rows from now on"
    if old["query"] == new["query"]:
        return None
    return "safe", "what it selects or filters changed; that holds for rows from now on"


def _turned(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> str:
    """Describe constants whose value changed; older fingerprints have no constants."""
    before, after = old.get(key) or {}, new.get(key) or {}
    changed = [name for name in before if name in after and before[name] != after[name]]
    return ", ".join(f"{name} was {before[name]} and is {after[name]}" for name in changed)


def _whole_query(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    same = all(old[key] == new[key] for key in ("query", "reads", "topics"))
    same = same and not _turned(old, new, "constants")
    return (
        None
        if same
        else ("safe", "each run computes it whole, so the next run applies the change to all rows")
    )


def _expectations(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    keys = ("expectations", "quarantine")
    if all(old.get(key) == new.get(key) for key in keys):
        return None
    return "safe", "its expectations or quarantine changed; rows already written stay as they are"


def _partitioning(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    before, after = old.get("partition_by"), new.get("partition_by")
    if before == after or before is None or after is None:
        return None
    why = (
        f"the table is partitioned by {before or 'nothing'} and the code says {after or 'nothing'}"
    )
    return "unsafe", f"{why}. Keep it, or write a table of another name"


def _format(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    before, after = old.get("format"), new.get("format")
    if before == after or before is None or after is None:
        return None
    why = f"the table is {before} and the code says {after}; rows written so far would be left"
    return "unsafe", f"{why} behind. Keep it, or write a table of another name"


def _schema(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    if old.get("schema") == new.get("schema"):
        return None
    try:
        before, after = ddl_columns(old.get("schema") or ""), ddl_columns(new.get("schema") or "")
    except SqlError:  # one of them has no schema
        return "safe", "a schema was added or removed; the table's own schema applies"
    turned = [name for name in before if name in after and before[name] != after[name]]
    if turned:
        pairs = ", ".join(f"{name} from {before[name]} to {after[name]}" for name in turned)
        return "unsafe", f"columns change their type: {pairs}. Give the new type a new column"
    return "safe", "columns were added or left out; rows without one have null there"


_WHOLE_RULES: tuple[_Rule, ...] = (_whole_query, _expectations, _partitioning, _format, _schema)
_RULES: tuple[_Rule, ...] = (
    _kind,
    _target,
    _inputs,
    _state,
    _query,
    _expectations,
    _partitioning,
    _format,
    _schema,
)
