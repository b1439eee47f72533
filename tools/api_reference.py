"""Writes docs/clients/reference.md, settings.md and docs/pipelines/reference.md from the code.

    python -m tools.api_reference           writes the pages
    python -m tools.api_reference --check   says which are out of date

The pages are derived from docstrings, signatures and the tables of settings.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import headwater
from headwater import aio, pipelines
from headwater.config.client import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
)
from headwater.config.keys import Key
from headwater.pipelines import java, session, targets
from headwater.pipelines.declaring import declare, decorators, graph, project, upgrade
from headwater.pipelines.ingest import frozen_schema
from headwater.pipelines.running import flow_errors, lag, preflight, quality, reports, runner
from headwater.pipelines.schemas import ddl, schema
from headwater.pipelines.segments import audit, replay
from headwater.pipelines.tables import reading, writing
from headwater.pipelines.tables import table as tables
from headwater.pipelines.topic_sink import ledger, sink_plan, topic_sink
from headwater.pipelines.topic_source import range_reader

DOCS = Path(__file__).parent.parent / "docs"
_NOTE = "Derived from the code by `python -m tools.api_reference`; do not edit.\n"
_FENCE = re.compile(r"\n*```.*?```\n*", re.DOTALL)
_MODULES = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")
_UNREADABLE = re.compile(r"(?<== )<.*>(?=[,)])")
_QUOTED = re.compile(r"(: |-> )'([^']+)'")
_SECTION = re.compile(r"^(Args|Returns|Raises):$")
_ARGUMENT = re.compile(r"^    (\*{0,2}\w+): ")
_UNSAID = {"forked", "onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated"}
"""Methods that users do not call."""

CLASSES: Sequence[tuple[str, type]] = (
    ("headwater.Producer", headwater.Producer),
    ("headwater.Consumer", headwater.Consumer),
    ("headwater.Admin", headwater.Admin),
    ("headwater.SqlOffsets", headwater.SqlOffsets),
    ("headwater.RebalanceListener", headwater.RebalanceListener),
    ("headwater.NewTopic", headwater.NewTopic),
    ("headwater.ResetTo", headwater.ResetTo),
    ("headwater.ConfigResource", headwater.ConfigResource),
    ("headwater.TopicPartition", headwater.TopicPartition),
    ("headwater.OffsetAndMetadata", headwater.OffsetAndMetadata),
    ("headwater.KafkaError", headwater.KafkaError),
    ("headwater.ConfigError", headwater.ConfigError),
)
FUNCTIONS: Sequence[Callable[..., Any]] = (headwater.transform,)
BESIDE: Sequence[type] = (
    headwater.SendFuture,
    headwater.SentMany,
    headwater.RecordMetadata,
    headwater.ProducerRecord,
    headwater.ProducerInterceptor,
    headwater.ConsumerRecord,
    headwater.Records,
    headwater.OffsetAndTimestamp,
    headwater.ConsumerGroupMetadata,
    headwater.ConsumerInterceptor,
    headwater.Assignor,
    headwater.GroupMember,
    headwater.ConfigResourceType,
    headwater.AlterConfigOp,
    headwater.ConfigChange,
    headwater.ConfigEntry,
    headwater.GroupListing,
    headwater.GroupDescription,
    headwater.MemberDescription,
    headwater.PartitionLag,
    headwater.TransactionListing,
    headwater.TransactionDescription,
    headwater.ProducerState,
    headwater.DelegationToken,
    headwater.QuotaEntity,
    headwater.UserScramCredentialUpsertion,
    headwater.UserScramCredentialDeletion,
    headwater.AclBinding,
    headwater.AclFilter,
    headwater.AclResourceType,
    headwater.AclPatternType,
    headwater.AclOperation,
    headwater.AclPermission,
    headwater.OffsetChange,
    headwater.ClusterDescription,
    headwater.LogDirDescription,
)

PIPELINES: Sequence[tuple[str, str, Sequence[Callable[..., Any]]]] = (
    (
        "Declaring",
        "From `headwater.pipelines`, which pipelines import as `hw`; [declare.md](declare.md).",
        (
            decorators.table,
            decorators.materialized_view,
            decorators.temporary_view,
            decorators.append_flow,
            decorators.create_streaming_table,
            decorators.create_sink,
            decorators.expect,
            decorators.expect_or_drop,
            decorators.expect_or_fail,
            decorators.expect_all,
            decorators.expect_all_or_drop,
            decorators.expect_all_or_fail,
            decorators.quarantine,
            declare.Quarantine,
            declare.read,
            declare.read_stream,
            declare.topic,
            declare.topics,
            declare.topic_snapshot,
            declare.spark,
        ),
    ),
    (
        "Loading and checking",
        "Without Spark.",
        (
            project.load_project,
            declare.Project,
            graph.check,
            graph.order,
            declare.bind,
            upgrade.fingerprint,
            upgrade.describe_change,
            schema.to_ddl,
            schema.infer,
        ),
    ),
    (
        "Running",
        "[running.md](running.md), [lag.md](lag.md).",
        (
            runner.run,
            reports.RunReport,
            reports.FlowReport,
            session.spark_session,
            session.register,
            lag.track_lag,
            lag.LagListener,
        ),
    ),
    (
        "Tables and topics",
        "[tables.md](tables.md), [sink.md](sink.md).",
        (
            writing.write_stream,
            writing.TableSink,
            writing.overwrite,
            reading.read_table,
            tables.open_table,
            topic_sink.write_batch,
        ),
    ),
    (
        "Whole logs",
        "[archive.md](archive.md).",
        (
            audit.audit,
            audit.AuditReport,
            audit.checked,
            audit.findings,
            audit.totals,
            audit.key_statistics,
            audit.latest_per_key,
            replay.replay,
            replay.Replay,
        ),
    ),
)
PIPELINE_ERRORS: Sequence[type[Exception]] = (
    declare.DeclarationError,
    preflight.NotReadyError,
    flow_errors.FlowError,
    quality.ExpectationError,
    tables.TableError,
    tables.TableConflict,
    sink_plan.SinkError,
    sink_plan.TopicWriteError,
    ledger.QueryFencedError,
    range_reader.DataLossError,
    frozen_schema.IngestError,
    targets.TargetError,
    ddl.SchemaError,
    java.JavaMissingError,
)


def reference_page() -> str:
    """Return the page with every public class, its methods, and every error."""
    parts = [
        "# Reference of the clients\n",
        _NOTE,
        "All names are in `headwater`; errors are in `headwater.errors` too, and `headwater.testing` has a "
        "broker for tests ([testing.md](testing.md)).\n",
        "`headwater.aio` has `Producer`, `Consumer`, `Admin` and `transform` with the same methods, most of them "
        f"as coroutines; plain methods there too are {_plain_methods()}. A `timeout` in seconds is "
        "called `timeout_s` there, `Consumer` is an asynchronous iterator, and "
        "`Producer.send_and_wait` sends and awaits in one.\n",
    ]
    for name, cls in CLASSES:
        parts += _class(f"`{name}`", cls)
    for function in FUNCTIONS:
        parts += [
            f"## `headwater.{function.__name__}`\n",
            f"`{_call(function)}`\n",
            _prose(function) + "\n",
        ]
    parts.append("# What they take and return\n")
    for cls in BESIDE:
        parts += _class(f"`headwater.{cls.__name__}`", cls)
    parts += ["# Errors\n", _errors()]
    return "\n".join(parts)


def _plain_methods() -> str:
    """Return the methods of the asyncio clients that are not coroutines."""
    found = {
        name
        for client in ("Producer", "Consumer", "Admin")
        for name, method in inspect.getmembers(getattr(aio, client), inspect.isfunction)
        if not name.startswith("_") and hasattr(getattr(headwater, client), name)
        if not inspect.iscoroutinefunction(method)
    }
    return ", ".join(f"`{name}`" for name in sorted(found))


def settings_page() -> str:
    """Return the page with every setting of every client."""
    parts = [
        "# Settings of the clients\n",
        _NOTE,
        "Keyword arguments of `Producer`, `Consumer` and `Admin`. Names, defaults and bounds are "
        "Kafka's, with underscores for dots, unless a row says otherwise. Keys with dots work too, from a "
        'dictionary: `Producer(**{"bootstrap.servers": "localhost:9092"})`. An unknown key is refused '
        "with the nearest known one.\n",
        "## Of every client\n",
        _settings(ClientSettings.KEYS.values()),
    ]
    common = ClientSettings.KEYS.keys()
    for title, table in (
        ("Producer", ProducerSettings),
        ("Consumer", ConsumerSettings),
        ("Admin", AdminSettings),
    ):
        rows = [row for name, row in table.KEYS.items() if name not in common]
        parts += [f"## {title}\n", _settings(rows)]
    return "\n".join(parts)


def pipelines_page() -> str:
    """Return the page with every function and class for pipelines."""
    parts = [
        "# Reference of the pipelines\n",
        _NOTE,
        "The names of `headwater.pipelines` are imported on first use: declaring a "
        "pipeline needs no Spark.\n",
    ]
    for title, words, things in PIPELINES:
        parts += [f"## {title}\n", words + "\n"]
        for thing in things:
            parts += _pipeline_part(thing)
    rows = [[f"`{_public(cls)}`", _prose(cls)] for cls in PIPELINE_ERRORS]
    return "\n".join([*parts, "## Errors\n", _table(("class", "when"), rows)])


def _pipeline_part(thing: Any) -> Iterator[str]:
    if isinstance(thing, type):
        yield from _class(f"`{_public(thing)}`", thing, "###")
        return
    yield f"### `{_public(thing)}`\n"
    yield f"`{_call(thing)}`\n"
    yield _prose(thing) + "\n"


def _call(function: Callable[..., Any]) -> str:
    return f"{function.__name__}{_signature(function, escaped=False)}"


def _public(thing: Any) -> str:
    """Return the shortest name by which a user can import it."""
    name = thing.__name__
    short = name in dir(pipelines) and getattr(pipelines, name) is thing
    return f"headwater.pipelines.{name}" if short else f"{thing.__module__}.{name}"


def _class(title: str, cls: type, level: str = "##") -> Iterator[str]:
    yield f"{level} {title}\n"
    yield _prose(cls) + "\n"
    if fields := _fields(cls):
        yield "Fields: " + ", ".join(f"`{name}`" for name in fields) + ".\n"
    for name, member in _members(cls):
        yield f"{level}# {name}{_signature(member)}\n"
        yield _prose(member) + "\n"


def _fields(cls: type) -> Sequence[str]:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls) if not field.name.startswith("_")]
    return getattr(cls, "_fields", ()) if issubclass(cls, tuple) else ()


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Return public methods and properties with docstrings, in order; the class's own first."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("headwater"):
            continue
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, classmethod) else member
            if name.startswith("_") or name in seen or not (
                inspect.isfunction(plain) or isinstance(plain, property)
            ):  # fmt: skip
                continue
            seen.add(name)
            if inspect.getdoc(plain) and name not in _UNSAID:
                yield name, plain


def _signature(member: Any, *, escaped: bool = True) -> str:
    if isinstance(member, property):
        return ""
    signature = inspect.signature(member)
    parameters = [one for name, one in signature.parameters.items() if name not in ("self", "cls")]
    text = _QUOTED.sub(r"\1\2", str(signature.replace(parameters=parameters)))
    text = _UNREADABLE.sub("...", _MODULES.sub("", text)).replace("~", "")
    return text.replace("|", "\\|") if escaped else text


def _prose(member: Any) -> str:
    """Return the docstring without its code (the guides run it), with arguments as a list."""
    lines = []
    for line in _FENCE.sub("\n\n", inspect.getdoc(member) or "").splitlines():
        if _SECTION.match(line):
            lines.append("")
        elif _ARGUMENT.match(line):
            lines.append(_ARGUMENT.sub(r"- `\1`: ", line))
        elif line.startswith("        "):
            lines.append("  " + line.strip())
        else:
            lines.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _errors() -> str:
    raised = [getattr(headwater, name) for name in headwater.__all__ if name.endswith("Error")]
    rows = [
        [f"`headwater.{cls.__name__}`", f"`{cls.__mro__[1].__name__}`", _prose(cls)]
        for cls in raised
        if cls not in dict(CLASSES).values()
    ]
    return _table(("class", "is a", "when"), rows)


def _settings(keys: Any) -> str:
    return _table(
        ("keyword", "type", "default", "allowed", "what it does"),
        ([f"`{row.attribute}`", row.type.name.lower(), _default(row), row.bounds() or "", row.explanation] for row in keys),
    )  # fmt: skip


def _default(row: Key) -> str:
    text = row.text(row.default)
    return f"`{text}`" if text else ("none" if text is None else "empty")


def _table(heads: Sequence[str], rows: Any) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [
        f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in row)} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name, below docs, to content."""
    return {
        "clients/reference.md": reference_page(),
        "clients/settings.md": settings_page(),
        "pipelines/reference.md": pipelines_page(),
    }


def outdated() -> list[str]:
    """Return the pages that are out of date."""
    return [
        name
        for name, text in pages().items()
        if not (DOCS / name).is_file() or (DOCS / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check only compare them."""
    stale = outdated()
    if "--check" in arguments:
        for name in stale:
            sys.stderr.write(f"docs/{name} is out of date: run python -m tools.api_reference\n")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(pages()[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
