"""Sorts the flows of a project into steps, before Spark starts.

Pure. Flows of one step do not read what other flows of it write, so they may run together.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.pipelines.declaring.declare import Declarations, Flow
from headwater.pipelines.declaring.graph import order


@dataclass(frozen=True)
class RunStep:
    """Flows that may run at the same time, and the batch flows that follow them."""

    streams: tuple[Flow, ...]
    batches: tuple[Flow, ...]
    """Materialized views and flows declared `once`."""


def run_steps(declarations: Declarations) -> list[RunStep]:
    """Return all flows; each is in a later step than the flows that write what it reads."""
    depths: dict[str, int] = {}
    by_depth: dict[int, list[Flow]] = {}
    for flow in order(declarations):
        above = [depths.get(name, 0) for name in tables_read(declarations, flow)]
        depth = 1 + max(above, default=0)
        depths[flow.target] = max(depth, depths.get(flow.target, 0))
        by_depth.setdefault(depth, []).append(flow)
    return [_step(declarations, by_depth[depth]) for depth in sorted(by_depth)]


def _step(declarations: Declarations, flows: Iterable[Flow]) -> RunStep:
    flows = tuple(flows)
    batches = tuple(flow for flow in flows if flow.once or is_view(declarations, flow))
    return RunStep(tuple(flow for flow in flows if flow not in batches), batches)


def is_view(declarations: Declarations, flow: Flow) -> bool:
    """Whether the flow computes a materialized view."""
    dataset = declarations.datasets.get(flow.target)
    return dataset is not None and dataset.kind == "materialized_view"


def tables_read(declarations: Declarations, flow: Flow) -> list[str]:
    """Return the tables and materialized views that a flow reads, through temporary views."""
    return sorted({name for read in flow.reads for name in _behind(declarations, read.name)})


def _behind(declarations: Declarations, name: str) -> set[str]:
    dataset = declarations.datasets.get(name)
    if dataset is None or dataset.kind != "temporary_view":
        return {_quarantined(declarations, name)}
    return {each for read in dataset.reads for each in _behind(declarations, read.name)}


def _quarantined(declarations: Declarations, name: str) -> str:
    """Return the dataset that a quarantine table belongs to; other names unchanged."""
    if name in declarations.datasets:
        return name
    for dataset in declarations.datasets.values():
        if dataset.quarantine is not None and dataset.quarantine.table == name:
            return dataset.name
    return name


def refresh_needs(declarations: Declarations, refreshed: Iterable[str]) -> dict[str, str]:
    """Return the flows that must be refreshed as well, with the table that requires it.

    Emptying a table affects all flows into it, and streams of its appended rows cannot continue.
    """
    chosen = set(refreshed)
    targets = {flow.target for flow in declarations.flows if flow.name in chosen}
    needs: dict[str, str] = {}
    for flow in declarations.flows:
        if flow.name in chosen or is_view(declarations, flow):
            continue
        streamed = set(tables_streamed(declarations, flow)) & targets
        if flow.target in targets and flow.target in declarations.datasets:
            needs[flow.name] = flow.target
        elif streamed:
            needs[flow.name] = min(streamed)
    return needs


def tables_streamed(declarations: Declarations, flow: Flow) -> list[str]:
    """Return the tables that a flow reads as streams, through temporary views."""
    names: set[str] = set()
    for read in flow.reads:
        names |= _streamed(declarations, read.name, read.stream)
    return sorted(names)


def tables_whole(declarations: Declarations, flow: Flow) -> list[str]:
    """Return the tables and materialized views that a flow reads whole, through temporary views."""
    names: set[str] = set()
    for read in flow.reads:
        names |= _whole(declarations, read.name, read.stream)
    return sorted(names)


def _whole(declarations: Declarations, name: str, stream: bool) -> set[str]:
    dataset = declarations.datasets.get(name)
    if dataset is None or dataset.kind != "temporary_view":
        return set() if stream else {_quarantined(declarations, name)}
    return {each for read in dataset.reads for each in _whole(declarations, read.name, read.stream)}


def _streamed(declarations: Declarations, name: str, stream: bool) -> set[str]:
    dataset = declarations.datasets.get(name)
    if dataset is None or dataset.kind != "temporary_view":
        return {_quarantined(declarations, name)} if stream else set()
    return {
        each for read in dataset.reads for each in _streamed(declarations, read.name, read.stream)
    }
