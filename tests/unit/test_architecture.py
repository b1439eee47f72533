"""The pages that map the code name files and definitions that exist."""

import ast
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import headwater

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
MAP = ROOT / "docs" / "architecture.md"
PAGES = [
    MAP,
    ROOT / "docs" / "non-obvious.md",
    ROOT / "docs" / "performance.md",
    ROOT / "CONTRIBUTING.md",
    *(
        page
        for room in ("walks", "operations", "decisions")
        for page in (ROOT / "docs" / room).glob("*.md")
    ),
]
WALKS = [
    "Produce",
    "Fetch",
    "Follower fetch",
    "ISR change",
    "Failover",
    "Join group",
    "Create topic",
    "Broker joins a cluster",
    "Between brokers",
    "Micro-batch, from topic to table",
]
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:[\w-]+/)*[\w.-]+\.(?:py|pyx|md|toml)(?::[\w.]+)?|(?:[a-z_]+/)+[a-z_]*")


def named(text):
    """The files, folders and definitions that a text names."""
    return [span for span in _CODE.findall(_FENCE.sub("", text)) if _PATH.fullmatch(span)]


@cache
def definitions(path):
    """`Class`, `function` and `Class.method` of a file, with what its classes inherit in it."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(f"{node.name}.{part.name}")
    return found


def missing(span):
    """What is wrong with a name, or None."""
    file, _, name = span.partition(":")
    path = next((root / file for root in (PACKAGE, ROOT) if (root / file).exists()), None)
    if path is None:
        return f"{file} does not exist"
    if name and name not in definitions(path):
        return f"{file} does not define {name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_only_what_exists(page):
    spans = named(page.read_text(encoding="utf-8"))
    assert [found for found in map(missing, spans) if found] == []


@pytest.mark.parametrize("walk", WALKS)
def test_each_request_is_walked_through_with_files_and_names(walk):
    _, _, rest = MAP.read_text(encoding="utf-8").partition(f"\n### {walk}\n")
    text = re.split(r"\n##", rest)[0]
    assert len([span for span in named(text) if ":" in span]) >= 4


def test_every_room_is_on_the_map():
    text = MAP.read_text(encoding="utf-8")
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert [room for room in sorted(rooms) if not re.search(rf"\b{room}\b", text)] == []


@pytest.mark.parametrize(
    ("span", "complaint"),
    [
        ("broker/nowhere.py", "broker/nowhere.py does not exist"),
        ("broker/nowhere/", "broker/nowhere/ does not exist"),
        ("broker/tick.py:Tick.nothing", "broker/tick.py does not define Tick.nothing"),
        ("broker/tick.py:Tick.flush", None),
        ("tests/unit", None),
    ],
)
def test_a_name_that_is_gone_is_found(span, complaint):
    assert named(f"See `{span}`.") == [span]
    assert missing(span) == complaint


def classes():
    """Every class of the package that can be imported without starting anything."""
    for found in pkgutil.walk_packages(headwater.__path__, "headwater."):
        if not found.name.endswith("__main__"):
            module = importlib.import_module(found.name)
            for thing in vars(module).values():
                if isinstance(thing, type) and thing.__module__ == module.__name__:
                    yield thing


def test_no_class_takes_a_slot_of_its_base():
    """It would share the place, and with it two meanings."""
    for cls in classes():
        slots = cls.__dict__.get("__slots__", ())
        for base in cls.__mro__[1:]:
            shared = {*slots} & {*base.__dict__.get("__slots__", ())}
            assert not shared, f"{cls.__qualname__} and {base.__qualname__}: {shared}"
