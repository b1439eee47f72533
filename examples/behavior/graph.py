"""A declared pipeline as an SVG picture: what reads what, and how many rows are in it."""

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headwater.pipelines.declaring.declare import Dataset, Declarations

Kind = Literal["topic", "table", "view", "quarantine"]

COLORS: dict[Kind, str] = {
    "topic": "#d99a1c",
    "table": "#2a6fb0",
    "view": "#3f9168",
    "quarantine": "#d9662b",
}
_WIDTH, _HEIGHT = 172, 46
_GAP_X, _GAP_Y = 62, 16
_MARGIN = 8


@dataclass
class Node:
    """A topic or a dataset."""

    name: str
    kind: Kind
    inputs: list[str] = field(default_factory=list)
    column: int = 0
    row: int = 0

    @property
    def left(self) -> int:
        """Where the box begins."""
        return _MARGIN + self.column * (_WIDTH + _GAP_X)

    @property
    def middle(self) -> int:
        """The height at which arrows come and go."""
        return _MARGIN + self.row * (_HEIGHT + _GAP_Y) + _HEIGHT // 2


def picture(declarations: Declarations, rows: Mapping[str, int]) -> str:
    """The SVG; `rows` has the count for each table by its name, and for each topic by `topic:NAME`."""
    nodes = _nodes(declarations)
    _place(nodes)
    width = max(node.left for node in nodes.values()) + _WIDTH + _MARGIN
    height = max(node.middle for node in nodes.values()) + _HEIGHT // 2 + _MARGIN
    arrows = "".join(_arrow(nodes[name], node) for node in nodes.values() for name in node.inputs)
    boxes = "".join(_box(key, node, rows.get(key)) for key, node in nodes.items())
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="The pipeline">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z" fill="#9aa5b1"/></marker></defs>'
        f"{arrows}{boxes}</svg>"
    )


def _nodes(declarations: Declarations) -> dict[str, Node]:
    """All nodes by key: a dataset's name, or `topic:NAME`."""
    nodes: dict[str, Node] = {}
    for dataset in declarations.datasets.values():
        kind: Kind = "table" if dataset.kind == "table" else "view"
        _node(nodes, dataset.name, dataset.name, kind)
    for dataset in declarations.datasets.values():
        _connect(nodes, dataset.name, (read.name for read in dataset.reads), dataset.topics)
        _quarantine(nodes, dataset)
    for flow in declarations.flows:
        sink = declarations.sinks.get(flow.target)
        key = sink.target if sink else flow.target
        _node(nodes, key, key.removeprefix("topic:"), "topic")
        _connect(nodes, key, (read.name for read in flow.reads), flow.topics)
    return nodes


def _node(nodes: dict[str, Node], key: str, name: str, kind: Kind) -> Node:
    return nodes.setdefault(key, Node(name, kind))


def _connect(
    nodes: dict[str, Node], key: str, datasets: Iterable[str], topics: Iterable[str]
) -> None:
    for topic in topics:
        _node(nodes, f"topic:{topic}", topic, "topic")
    for source in (*datasets, *(f"topic:{topic}" for topic in topics)):
        if source not in nodes[key].inputs:
            nodes[key].inputs.append(source)


def _quarantine(nodes: dict[str, Node], dataset: Dataset) -> None:
    refused = dataset.quarantine
    if refused and refused.table:
        _node(nodes, refused.table, refused.table, "quarantine").inputs.append(dataset.name)
    if refused and refused.topic:
        key = f"topic:{refused.topic}"
        _node(nodes, key, refused.topic, "quarantine").inputs.append(dataset.name)


def _place(nodes: dict[str, Node]) -> None:
    """Left to right by the longest way from a source, top to bottom near what each one reads."""

    def depth(node: Node) -> int:
        return 1 + max((depth(nodes[name]) for name in node.inputs), default=-1)

    columns: dict[int, list[Node]] = {}
    for node in nodes.values():
        node.column = depth(node)
        columns.setdefault(node.column, []).append(node)
    readers = {key: [n for n in nodes.values() if key in n.inputs] for key in nodes}
    for key, node in nodes.items():  # a source goes just before its first reader
        if not node.inputs and readers[key]:
            columns[node.column].remove(node)
            node.column = min(reader.column for reader in readers[key]) - 1
            columns.setdefault(node.column, []).append(node)
    tallest = max(map(len, columns.values()))
    for members in columns.values():
        for number, node in enumerate(members):
            node.row = number + (tallest - len(members)) // 2


def _arrow(source: Node, target: Node) -> str:
    x1, y1, x2, y2 = source.left + _WIDTH, source.middle, target.left - 2, target.middle
    bend = (x2 - x1) // 2
    path = f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    return f'<path d="{path}" fill="none" stroke="#9aa5b1" marker-end="url(#tip)"/>'


def _box(key: str, node: Node, rows: int | None) -> str:
    top = node.middle - _HEIGHT // 2
    what = "records" if key.startswith("topic:") else "rows"
    count = "computed when read" if rows is None else f"{rows:,} {what}"
    return (
        f'<g><title>{html.escape(key)}</title><rect x="{node.left}" y="{top}" width="{_WIDTH}"'
        f' height="{_HEIGHT}" rx="5" fill="#fff" stroke="#cbd2d9"/>'
        f'<rect x="{node.left}" y="{top}" width="5" height="{_HEIGHT}" rx="2"'
        f' fill="{COLORS[node.kind]}"/>'
        f'<text x="{node.left + 14}" y="{top + 19}" class="name">{html.escape(node.name)}</text>'
        f'<text x="{node.left + 14}" y="{top + 35}" class="rows">{count}</text></g>'
    )
