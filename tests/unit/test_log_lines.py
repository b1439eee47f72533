"""docs/operations/log-lines.md has every WARNING and ERROR line of a broker, and no other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
PAGE = ROOT / "docs" / "operations" / "log-lines.md"
ROOMS = (
    "broker",
    "config",
    "controller",
    "coordination",
    "log",
    "records",
    "replication",
    "seams",
    "security",
    "transport",
    "wire",
    "zookeeper",
)
LEVELS = {"warning", "error", "critical", "exception"}
HOLE = "…"
_CONVERSION = re.compile(r"%[#.\d]*[a-z]")


def text_of(node, names):
    """A message as the page shows it, with a hole for each part that changes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _CONVERSION.sub(HOLE, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, names) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, names) + text_of(node.right, names)
    if isinstance(node, ast.Name) and node.id in names:
        return text_of(names[node.id], {})
    return HOLE


def message_of(call, names):
    """The text of a call that logs at WARNING or above; None for any other call."""
    if not isinstance(call.func, ast.Attribute):
        return None
    owner = ast.unparse(call.func.value)
    if call.func.attr == "report" and any(word.arg == "loud" for word in call.keywords):
        return text_of(call.args[0], names)
    if call.func.attr not in LEVELS or not owner.endswith(("log", "logger")):
        return None
    if owner.endswith("peer_log"):
        kind, _, message = call.args
        return f"{text_of(kind, names)}: {HOLE}: {text_of(message, names)}"
    return text_of(call.args[0], names)


def lines_of(source):
    tree = ast.parse(source)
    names = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant | ast.JoinedStr)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [message_of(call, names) for call in calls]
    return [re.sub(f"{HOLE}+", HOLE, line) for line in found if line is not None]


def logged():
    files = [file for room in ROOMS for file in sorted((PACKAGE / room).rglob("*.py"))]
    return {line for file in files for line in lines_of(file.read_text(encoding="utf-8"))}


def explained():
    """The code in the first column of the page's tables: each is how a line begins."""
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [span for row in rows for span in re.findall(r"`([^`]+)`", row)]


def test_every_line_is_explained():
    spans = tuple(explained())
    assert [line for line in sorted(logged()) if not line.startswith(spans)] == []


def test_every_explained_line_is_logged():
    lines = logged()
    stale = [span for span in explained() if not any(line.startswith(span) for line in lines)]
    assert stale == []


def test_every_line_can_be_searched_for():
    """A line has a fixed text: one that is only `%s` cannot be looked up."""
    assert [text for text in [*logged(), *explained()] if not re.search("[a-z]{4,}", text)] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("log.warning('%s is full: %d', a, b)", ["… is full: …"]),
        ("log.info('all is well')", []),
        ("log.exception('a bug')", ["a bug"]),
        ("self.outstanding.report(f'no leader for {a}{b}', loud=True)", ["no leader for …"]),
        ("self.outstanding.report('topic created')", []),
        ("why = f'bad {x}'\ncontext.peer_log.warning('kind', host, why)", ["kind: …: bad …"]),
        ("task.exception()", []),
    ],
)
def test_what_counts_as_a_line(source, lines):
    assert lines_of(source) == lines
