"""Checks the graph of a pipeline before Spark starts, and orders its flows.

Pure: takes a project, returns problems, each one line with its place and what to do. Reports only
what is certainly wrong.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.pipelines.declaring.declare import (
    Dataset,
    DatasetRead,
    Declarations,
    Flow,
    Project,
    SourceLocation,
)
from headwater.pipelines.declaring.graph_schemas import changed_types, schema_problems
from headwater.pipelines.declaring.problems import Problem, hint

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Problem", "check", "order"]


def check(
    project: Project,
    *,
    topics: Collection[str] | None = None,
    schemas: "Mapping[str, pyarrow.Schema] | None" = None,
) -> list[Problem]:
    """Return all problems, in the order of the files.

    Args:
        project: the loaded project.
        topics: the topics that exist; None if no broker was reached.
        schemas: the schema of each existing table, by dataset.
    """
    graph = project.declarations
    found = [
        *_unknown_names(graph),
        *_circles(graph),
        *_wrong_ways_to_read(graph),
        *_idle(graph),
        *_one_checkpoint_each(graph),
        *_expectations(graph),
        *_quarantines(graph),
        *schema_problems(graph),
    ]
    if topics is not None:
        found += _missing_topics(graph, topics)
    if schemas is not None:
        found += changed_types(graph, schemas)
    return sorted(dict.fromkeys(found), key=lambda p: (p.origin.file, p.origin.line))


def order(declarations: Declarations) -> list[Flow]:
    """Return the flows, each after the flows that fill its inputs, else as declared.

    Flows in a cycle (`check` reports it) come last, as declared.
    """
    waiting, ordered = list(declarations.flows), list[Flow]()
    needs = {flow.name: _upstream_flows(declarations, flow) for flow in waiting}
    done: set[str] = set()
    while waiting:
        ready = next((flow for flow in waiting if needs[flow.name] <= done), waiting[0])
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready.name)
    return ordered


@dataclass(frozen=True)
class _Node:
    """A flow or a temporary view."""

    name: str
    origin: SourceLocation
    reads: tuple[DatasetRead, ...]
    topics: tuple[str, ...]
    streams: bool
    view: bool


def _nodes(graph: Declarations) -> Iterator[_Node]:
    for flow in graph.flows:
        yield _Node(flow.name, flow.origin, flow.reads, flow.topics, flow.streams, False)
    for name, view in graph.datasets.items():
        if view.kind == "temporary_view":
            yield _Node(name, view.origin, view.reads, view.topics, view.streams, True)


def _quarantine_tables(graph: Declarations) -> dict[str, list[Dataset]]:
    """Return the datasets that send refused rows to each table."""
    found: dict[str, list[Dataset]] = {}
    for dataset in graph.datasets.values():
        if dataset.quarantine is not None and dataset.quarantine.table is not None:
            found.setdefault(dataset.quarantine.table, []).append(dataset)
    return found


def _read_through_views(
    graph: Declarations, reads: tuple[DatasetRead, ...]
) -> Iterator[tuple[str, Dataset | None]]:
    """Yield each name that is read, directly or in temporary views, and what it declares."""
    open_, seen = [read.name for read in reads], set[str]()
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        dataset = graph.datasets.get(name)
        yield name, dataset
        if dataset is not None and dataset.kind == "temporary_view":
            open_ += [read.name for read in dataset.reads]


def _stored_reads(graph: Declarations, reads: tuple[DatasetRead, ...]) -> set[str]:
    """Return the stored tables behind reads, through temporary views."""
    return {
        name
        for name, dataset in _read_through_views(graph, reads)
        if dataset is None or dataset.kind != "temporary_view"
    }


def _topics_behind(graph: Declarations, flow: Flow) -> set[str]:
    """Return the topics whose records reach a flow, through views and tables."""
    flows, found, seen = {each.name: each for each in graph.flows}, set[str](), set[str]()
    open_ = [flow.name]
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        found.update(flows[name].topics)
        for _, dataset in _read_through_views(graph, flows[name].reads):
            if dataset is not None and dataset.kind == "temporary_view":
                found.update(dataset.topics)
        open_ += _upstream_flows(graph, flows[name])
    return found


def _upstream_flows(graph: Declarations, flow: Flow) -> set[str]:
    sources = _stored_reads(graph, flow.reads)
    for table, datasets in _quarantine_tables(graph).items():
        if table in sources:
            sources |= {dataset.name for dataset in datasets}
    return {other.name for other in graph.flows if other.target in sources}


def _unknown_names(graph: Declarations) -> Iterator[Problem]:
    tables = {**graph.datasets, **dict.fromkeys(_quarantine_tables(graph))}
    for node in _nodes(graph):
        for name in dict.fromkeys(read.name for read in node.reads):
            if name in graph.sinks:
                text = f"{node.name} reads {name}, which is a sink. Read the table it is fed from"
                yield Problem(node.origin, text)
            elif name not in tables:
                text = f"{node.name} reads {name}, which nothing declares"
                yield Problem(node.origin, text + hint(name, tables, "Declare it"))
    for flow in graph.flows:
        targets = {**_tables(graph), **graph.sinks}
        if flow.target in targets or flow.target == flow.name:
            continue
        if flow.target in graph.datasets:
            kind = graph.datasets[flow.target].kind.replace("_", " ")
            text = f"{flow.name} appends to {flow.target}, a {kind}. Append to a table or a sink"
            yield Problem(flow.origin, text)
        else:
            text = f"{flow.name} appends to {flow.target}, which nothing declares"
            advice = f'Add create_streaming_table("{flow.target}")'
            yield Problem(flow.origin, text + hint(flow.target, targets, advice))


def _tables(graph: Declarations) -> dict[str, Dataset]:
    return {name: found for name, found in graph.datasets.items() if found.kind == "table"}


def _circles(graph: Declarations) -> Iterator[Problem]:
    """Yield each cycle once, as a -> b -> a."""
    feeds: dict[str, list[_Node]] = {}
    targets = {flow.name: flow.target for flow in graph.flows}
    for node in _nodes(graph):
        feeds.setdefault(targets.get(node.name, node.name), []).append(node)
    for table, datasets in _quarantine_tables(graph).items():
        feeds.setdefault(table, []).extend(n for d in datasets for n in feeds.get(d.name, []))
    finished: set[str] = set()
    for start in feeds:
        circle = _circle_from(start, feeds, finished)
        if circle:
            places = ", ".join(f"{name} at {feeds[name][0].origin}" for name in circle[:-1])
            text = f"these read each other in a circle: {' -> '.join(circle)} ({places})"
            yield Problem(feeds[circle[0]][0].origin, f"{text}. Read something else in one of them")


def _circle_from(start: str, feeds: Mapping[str, list[_Node]], finished: set[str]) -> list[str]:
    """Return a cycle reachable from `start`, depth first without recursion."""
    path = [start]
    ways = [_sources(start, feeds)]
    while path:
        following = next(ways[-1], None)
        if following is None:
            finished.add(path.pop())
            ways.pop()
        elif following in path:
            finished.update(path)
            return [*path[path.index(following) :], following]
        elif following not in finished:
            path.append(following)
            ways.append(_sources(following, feeds))
    return []


def _sources(name: str, feeds: Mapping[str, list[_Node]]) -> Iterator[str]:
    reads = (read.name for node in feeds.get(name, []) for read in node.reads)
    return iter([source for source in dict.fromkeys(reads) if source in feeds])


def _wrong_ways_to_read(graph: Declarations) -> Iterator[Problem]:
    """Yield streaming reads of batch datasets, and batch reads of streaming views."""
    for node in _nodes(graph):
        for read in node.reads:
            dataset = graph.datasets.get(read.name)
            text = _wrong_way(node.name, read, dataset) if dataset is not None else None
            if text is not None:
                yield Problem(node.origin, text)
    for flow in graph.flows:
        text = _wrong_kind(flow, graph.datasets.get(flow.target))
        if text is not None:
            yield Problem(flow.origin, text)


def _wrong_way(reader: str, read: DatasetRead, dataset: Dataset) -> str | None:
    if read.stream and dataset.kind == "materialized_view":
        return (
            f"{reader} reads {read.name} as a stream, but a materialized view is replaced whole"
            " each time. Use hw.read, or make it a table"
        )
    if dataset.kind != "temporary_view" or read.stream == dataset.streams:
        return None
    if read.stream:
        return f"{reader} reads {read.name} as a stream, but that view is a batch. Use hw.read"
    return f"{reader} reads {read.name} whole, but that view is a stream. Use hw.read_stream"


def _wrong_kind(flow: Flow, target: Dataset | None) -> str | None:
    """Return why a flow's mode does not fit its target; None if it does."""
    if target is not None and target.kind == "materialized_view":
        if flow.streams and flow.name == target.name:  # other flows report their target
            return (
                f"{flow.name} is computed whole each time and cannot read a stream."
                " Use hw.read and hw.topic_snapshot, or make it a table"
            )
    elif flow.once and flow.streams:
        return f"{flow.name} runs once and cannot read a stream. Use hw.read, or leave once out"
    elif not flow.once and not flow.streams:
        return (
            f"{flow.name} reads nothing as a stream, so it would never see new rows."
            " Use hw.read_stream or hw.topic, or make it a materialized_view"
        )
    return None


def _idle(graph: Declarations) -> Iterator[Problem]:
    fed = {flow.target for flow in graph.flows}
    for name, sink in graph.sinks.items():
        if name not in fed:
            text = f"nothing is written to the sink {name}"
            yield Problem(sink.origin, f'{text}. Add @append_flow(target="{name}")')
    for name, table in _tables(graph).items():
        if name not in fed:
            text = f"nothing is written to the table {name}"
            yield Problem(table.origin, f'{text}. Add @append_flow(target="{name}")')


def _one_checkpoint_each(graph: Declarations) -> Iterator[Problem]:
    """Yield names that differ only in case: they share a folder on some disks and a view in Spark."""
    seen: dict[str, tuple[str, SourceLocation]] = {}
    nodes = [(node.name, node.origin) for node in _nodes(graph)]
    nodes += [(name, found.origin) for name, found in graph.datasets.items() if not found.query]
    for name, origin in nodes:
        first, place = seen.setdefault(name.lower(), (name, origin))
        if first != name:
            text = f"{name} and {first} ({place}) would share one checkpoint and one name in Spark"
            yield Problem(origin, f"{text}. Rename one")


def _expectations(graph: Declarations) -> Iterator[Problem]:
    """Yield expectations of one table that share a name: rows are counted by that name."""
    for dataset in graph.datasets.values():
        names = [expectation.name for expectation in dataset.expectations]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            text = f"{dataset.name} has two expectations called {name!r}. Rename one"
            yield Problem(dataset.origin, text)


def _quarantines(graph: Declarations) -> Iterator[Problem]:
    for dataset in graph.datasets.values():
        if dataset.quarantine is None:
            continue
        if not any(expectation.action == "drop" for expectation in dataset.expectations):
            text = f"{dataset.name} has a quarantine but refuses no row. Add @expect_or_drop"
            yield Problem(dataset.origin, text)
        taken = graph.datasets.get(dataset.quarantine.table or "")
        if taken is not None:
            text = f"the quarantine of {dataset.name} is {taken.name}, declared at {taken.origin}"
            yield Problem(dataset.origin, f"{text}. Give it a table of its own")
        topic = dataset.quarantine.topic
        for flow in graph.flows:
            if flow.target == dataset.name and topic in _topics_behind(graph, flow):
                text = f"the records of {topic} reach {flow.name}, whose refused rows go there"
                advice = "They would be refused again and again: give the quarantine another topic"
                yield Problem(dataset.origin, f"{text}. {advice}")


def _missing_topics(graph: Declarations, topics: Collection[str]) -> Iterator[Problem]:
    written = {sink.target.removeprefix("topic:") for sink in graph.sinks.values()}
    written |= {
        found.quarantine.topic or "" for found in graph.datasets.values() if found.quarantine
    }
    for node in _nodes(graph):
        for topic in node.topics:
            if topic not in topics and topic not in written:
                text = f"{node.name} reads the topic {topic}, which does not exist"
                advice = f"Create it: headwater topics create {topic}"
                yield Problem(node.origin, text + hint(topic, dict.fromkeys(topics), advice))
