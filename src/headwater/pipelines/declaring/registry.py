"""Collects declarations while the files of a project are imported.

A registry is active only inside its own `collecting` block (and in its own context), so two loads
never see each other. Outside of a block the decorators declare nothing and return functions
unchanged, so queries can be imported and tested like any other code.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headwater.pipelines.declaring.declare import (
    Dataset,
    DatasetRead,
    DeclarationError,
    Declarations,
    Expectation,
    Flow,
    Format,
    Kind,
    ProjectSettings,
    Quarantine,
    Query,
    Sink,
    SourceLocation,
    SqlQuery,
    TopicRead,
)
from headwater.pipelines.declaring.python_reads import ComputedRead, FoundReads, origin_of, reads_of

Mark = Expectation | Quarantine


@dataclass(frozen=True)
class Draft:
    """A dataset or an append flow (kind None) as written; its reads are resolved at the end."""

    name: str
    origin: SourceLocation
    kind: Kind | None
    query: Query | None
    target: str
    once: bool = False
    format: Format | None = None
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    quarantine: Quarantine | None = None
    reads: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Override:
    """Settings of one table in pipeline.yml; they override its declaration."""

    origin: SourceLocation
    format: Format | None = None
    partition_by: tuple[str, ...] | None = None
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


class Registry:
    """All drafts of one load."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._drafts: list[Draft] = []
        self._sinks: dict[str, Sink] = {}
        self._marks: dict[Callable[..., Any], list[Mark]] = {}
        self._locations: dict[str, SourceLocation] = {}

    def add(self, draft: Draft) -> None:
        """Add a dataset or a flow; DeclarationError if its name is taken."""
        self._claim(draft.name, draft.origin)
        self._drafts.append(draft)

    def add_sink(self, sink: Sink) -> None:
        """Add a sink; DeclarationError if its name is taken."""
        self._claim(sink.name, sink.origin)
        self._sinks[sink.name] = sink

    def mark(self, function: Callable[..., Any], mark: Mark) -> None:
        """Keep an expectation or quarantine of a query until its dataset is known."""
        self._marks.setdefault(function, []).insert(0, mark)

    def declarations(
        self,
        settings: ProjectSettings | None = None,
        overrides: Mapping[str, Override] | None = None,
    ) -> Declarations:
        """Return all declarations, frozen, with the defaults of the project filled in."""
        settings, overrides = settings or ProjectSettings(), overrides or {}
        datasets: dict[str, Dataset] = {}
        flows: list[Flow] = []
        for draft in map(self._marked, self._drafts):
            found = _sources(draft, self._home)
            if draft.kind is not None:
                dataset = _dataset(draft, draft.kind, found, settings)
                datasets[draft.name] = _overridden(dataset, overrides.get(draft.name))
            if draft.query is not None and draft.kind != "temporary_view":
                flows.append(_flow(draft, draft.query, found))
        self._refuse_lost_marks()
        whole = tuple(_with_reads_of_views(flow, datasets) for flow in flows)
        return Declarations(MappingProxyType(datasets), whole, MappingProxyType(dict(self._sinks)))

    def _claim(self, name: str, origin: SourceLocation) -> None:
        taken = self._locations.get(name)
        if taken is not None:
            raise DeclarationError(
                origin, f"{name} is declared twice, first at {taken}. Give one of them another name"
            )
        self._locations[name] = origin

    def _marked(self, draft: Draft) -> Draft:
        if draft.query is None or isinstance(draft.query, SqlQuery):
            return draft
        marks = self._marks.pop(draft.query, [])
        if marks and draft.kind in (None, "temporary_view"):
            what = "a flow" if draft.kind is None else "a temporary view"
            raise DeclarationError(
                draft.origin,
                f"{draft.name} is {what} and stores nothing, so expectations and quarantine"
                " have no place on it. Put them on the table that its rows go to",
            )
        quarantines = [mark for mark in marks if isinstance(mark, Quarantine)]
        if len(quarantines) > 1:
            raise DeclarationError(draft.origin, f"{draft.name} has two quarantines. Keep one")
        return replace(
            draft,
            expectations=tuple(mark for mark in marks if isinstance(mark, Expectation)),
            quarantine=quarantines[0] if quarantines else None,
        )

    def _refuse_lost_marks(self) -> None:
        for function in self._marks:
            name = getattr(function, "__name__", "this")
            raise DeclarationError(
                origin_of(function),
                f"{name} has expectations or a quarantine but is not a dataset."
                " Add @table or @materialized_view",
            )


_active: ContextVar[Registry | None] = ContextVar("headwater_pipelines_registry", default=None)


def active() -> Registry | None:
    """Return the active registry, if any."""
    return _active.get()


@contextmanager
def collecting(home: Path | None = None) -> Iterator[Registry]:
    """Collect declarations within the `with`."""
    registry = Registry(home)
    token = _active.set(registry)
    try:
        yield registry
    finally:
        _active.reset(token)


def _sources(draft: Draft, home: Path | None) -> FoundReads:
    """Return the reads of a draft: those in its source and those its decorator lists."""
    if draft.query is None:
        return FoundReads()
    if isinstance(draft.query, SqlQuery):
        reads, topics = list(draft.query.reads), list(draft.query.topics)
        streams = any(read.stream for read in reads) or any(topic.stream for topic in topics)
        return FoundReads(reads, topics, streams=streams)
    found = reads_of(draft.query, home)
    named = [_named_read(text, found.computed) for text in draft.reads]
    found.reads = list(dict.fromkeys(found.reads + named))
    found.topics += [_named_topic(name, found.computed) for name in draft.topics]
    found.streams |= any(read.stream for read in named)
    found.streams |= any(topic.stream for topic in found.topics)
    for computed in found.computed:
        _refuse_unnamed(computed, draft)
    return found


def _named_read(text: str, computed: Collection[ComputedRead]) -> DatasetRead:
    """Return the read of an entry of reads=[...]: a name, read as the computed calls do, or "STREAM name"."""
    words = text.split()
    if len(words) == 2 and words[0].upper() == "STREAM":
        return DatasetRead(words[1], True)
    calls = [call.stream for call in computed if not call.topic]
    return DatasetRead(text, bool(calls) and all(calls))


def _named_topic(name: str, computed: Collection[ComputedRead]) -> TopicRead:
    """Return the read of an entry of topics=[...]: a stream, unless only snapshots have computed names."""
    return TopicRead(name, all(call.stream for call in computed if call.topic))


def _refuse_unnamed(computed: ComputedRead, draft: Draft) -> None:
    if not computed.call:
        if not (draft.reads or draft.topics):
            raise DeclarationError(
                computed.origin,
                f"the inputs of {draft.name} are unknown, because its source cannot be found."
                ' Write it with def, or list it: reads=["..."] or topics=["..."] on the decorator',
            )
        return
    wanted = "topics" if computed.topic else "reads"
    if not (draft.topics if computed.topic else draft.reads):
        raise DeclarationError(
            computed.origin,
            f"the name that {computed.call} reads in {draft.name} is known only at run time."
            f' Write the name as a literal, or list it: {wanted}=["..."] on the decorator',
        )


def _dataset(draft: Draft, kind: Kind, found: FoundReads, settings: ProjectSettings) -> Dataset:
    return Dataset(
        name=draft.name,
        kind=kind,
        query=draft.query,
        reads=tuple(dict.fromkeys(found.reads)),
        topics=tuple(dict.fromkeys(topic.name for topic in found.topics)),
        expectations=draft.expectations,
        quarantine=_quarantine(draft, settings),
        format=draft.format or settings.format,
        partition_by=draft.partition_by,
        schema=draft.schema,
        comment=draft.comment,
        options=MappingProxyType(dict(draft.options)),
        origin=draft.origin,
        streams=found.streams,
        session_reads=tuple(dict.fromkeys(found.session_reads)),
    )


def _quarantine(draft: Draft, settings: ProjectSettings) -> Quarantine | None:
    """Return the quarantine of a dataset; by default the project's dead letter topic."""
    drops = any(expectation.action == "drop" for expectation in draft.expectations)
    given = draft.quarantine
    if given is None:
        topic = settings.dead_letter_topic
        return Quarantine(topic=topic) if drops and topic else None
    if given.table is None and given.topic is None:
        if settings.dead_letter_topic is None:
            raise DeclarationError(
                draft.origin,
                f"the quarantine of {draft.name} has neither a table nor a topic. Give table= or topic=,"
                " or set dead_letter_topic in pipeline.yml",
            )
        return Quarantine(topic=settings.dead_letter_topic)
    return given


def _overridden(dataset: Dataset, override: Override | None) -> Dataset:
    if override is None:
        return dataset
    if dataset.kind == "temporary_view":
        raise DeclarationError(
            override.origin,
            f"{dataset.name} is a temporary view and stores nothing. Remove its settings",
        )
    chosen = override.partition_by
    return replace(
        dataset,
        format=override.format or dataset.format,
        partition_by=dataset.partition_by if chosen is None else chosen,
        comment=override.comment or dataset.comment,
        options=MappingProxyType({**dataset.options, **override.options}),
    )


def _flow(draft: Draft, query: Query, found: FoundReads) -> Flow:
    return Flow(
        name=draft.name,
        target=draft.target,
        query=query,
        reads=tuple(dict.fromkeys(found.reads)),
        topics=tuple(dict.fromkeys(topic.name for topic in found.topics)),
        once=draft.once,
        origin=draft.origin,
        streams=found.streams,
        session_reads=tuple(dict.fromkeys(found.session_reads)),
    )


def _with_reads_of_views(flow: Flow, datasets: Mapping[str, Dataset]) -> Flow:
    """Return `flow` with the session reads of the temporary views in its query."""
    names = [read.name for read in flow.reads]
    for name in names:  # the list grows during the loop
        names += [each.name for each in _view_reads(datasets.get(name)) if each.name not in names]
    views = [dataset for dataset in map(datasets.get, names) if dataset and _view_reads(dataset)]
    session_reads = [read for view in views for read in view.session_reads]
    return replace(flow, session_reads=tuple(dict.fromkeys([*flow.session_reads, *session_reads])))


def _view_reads(dataset: Dataset | None) -> tuple[DatasetRead, ...]:
    return dataset.reads if dataset is not None and dataset.kind == "temporary_view" else ()
