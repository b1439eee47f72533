"""Checks what linters cannot; run by a test, and by hand with `python -m tools.tidy`.

Each rule is a function from a source file to complaints; `tidy_words` and `tidy_names` have the rules
about the project as a whole. An exception to a rule is an entry of a table, with its reason; an
exception that nothing needs is a complaint too.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import tidy_names, tidy_words
from tools.tidy_sources import ROOT, Source, sources, texts

LONGEST_FILE = 500
LONGEST_FUNCTION = 60

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS = {
    "src/headwater/records/codec/pure_reader.py:_rows": "numbers are read in line, for speed",
}

ASYNC_ROOMS = ("seams", "transport", "broker", "testing", "cli", "client", "simulator", "zookeeper")
"""Files with `async`; all other code is plain, except for `*_loop.py`."""
ASYNC_FILES = {"aio.py": "the asyncio face of the clients"}

_LEFTOVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
_MACHINE_PATH = re.compile(r"""["'\s(](/(?:home|root|work|Users|mnt)/[\w.-]+)""")
_MARK = re.compile(r"\s*#+ ?[-=~*─]{2,}")
_SECTION = re.compile(r"\s*# -- \w.*[^-=~*─\s]")
_A_REPLICA = re.compile(r"^_?(replica|leader|follower|culprit)$")
_CLOCKS = {"time", "random"}
_STOPWATCHES = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"}


Rule = Callable[[Source], Iterator[str]]


def file_length(source: Source) -> Iterator[str]:
    """A file has one subject."""
    lines = source.text.count("\n")
    if not source.room:
        return
    if lines > LONGEST_FILE and source.path not in LONG_FILES:
        yield f"{lines} lines; past {LONGEST_FILE} it holds more than one idea"
    if lines <= LONGEST_FILE and source.path in LONG_FILES:
        yield "is short enough again: take it out of LONG_FILES"


def function_length(source: Source) -> Iterator[str]:
    """A function fits on a screen."""
    if not source.room:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            name = f"{source.path}:{node.name}"
            if lines > LONGEST_FUNCTION and name not in LONG_FUNCTIONS:
                yield f"line {node.lineno}: {node.name} has {lines} lines, more than a screen"


def leftovers(source: Source) -> Iterator[str]:
    """Open work is an issue, not a comment."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := _LEFTOVER.search(line):
            yield f"line {number}: {found[1]}"


def machine_paths(source: Source) -> Iterator[str]:
    """The project works on any machine."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := _MACHINE_PATH.search(line):
            yield f"line {number}: the path {found[1]} is one machine's own"


def section_marks(source: Source) -> Iterator[str]:
    """A section of a file begins with `# -- its subject`."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if _MARK.match(line) and not _SECTION.fullmatch(line):
            yield f"line {number}: a section begins with `# -- its subject`"


def docstrings(source: Source) -> Iterator[str]:
    """Each room and each file has a docstring."""
    if source.room and not ast.get_docstring(source.tree):
        yield "has no docstring"


def async_in_its_rooms(source: Source) -> Iterator[str]:
    """State machines never wait."""
    name = source.path.rpartition("/")[2]
    if not source.room or source.room in (*ASYNC_ROOMS, *ASYNC_FILES) or name.endswith("_loop.py"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"line {node.lineno}: async outside of its rooms"
            return


def clocks_in_seams(source: Source) -> Iterator[str]:
    """Time and randomness come through the seams, so that a seed can replay them."""
    if not source.room or source.room == "seams":
        return
    for node in ast.walk(source.tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.partition(".")[0] in _CLOCKS and source.path not in CLOCK_USERS:
                yield f"{name} is imported; take a Clock or a Randomness"


def replicas_are_the_door(source: Source) -> Iterator[str]:
    """A partition's log and state are reached through the methods of its replica."""
    if not source.room or source.room in ("replication", "log", "simulator"):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("log", "partition"):
            owner = node.value.func if isinstance(node.value, ast.Call) else node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if _A_REPLICA.search(name):
                yield f"line {node.lineno}: {name}.{node.attr}; ask the replica instead"


def no_stopwatch_in_asserts(source: Source) -> Iterator[str]:
    """A test that is right on a quiet machine is right on a busy one.

    Elapsed time may be asserted to be long enough (waiting longer is what a busy machine does), never
    to be short enough, also by a variable that was computed from it. To show that a call ends early,
    make everything else that could end it longer than the test's own timeout.
    """
    if not source.path.startswith("tests/"):
        return
    for test in _functions(source.tree):
        elapsed = _Elapsed()
        for node in ast.walk(test):
            if isinstance(node, ast.Assign):
                elapsed.assigned(node)
        for node in ast.walk(test):
            if isinstance(node, ast.Assert) and any(map(elapsed.is_bounded, ast.walk(node))):
                yield f"line {node.lineno}: asserts that little time has passed"


def _functions(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the functions and other statements that are in no other function."""
    for node in tree.body:
        yield from node.body if isinstance(node, ast.ClassDef) else [node]


class _Elapsed:
    """Which way values change with elapsed time: 1 if they grow with it, -1 if they shrink."""

    def __init__(self) -> None:
        self._known: dict[str, set[int]] = {}

    def assigned(self, node: ast.Assign) -> None:
        """Note the direction of the variables."""
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and (found := self.directions(value)):
                    self._known.setdefault(name.id, set()).update(found)

    def is_bounded(self, node: ast.AST) -> bool:
        """Return whether this comparison fails if much time has passed."""
        if not isinstance(node, ast.Compare):
            return False
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            smaller, larger = (right, left) if isinstance(op, ast.Gt | ast.GtE) else (left, right)
            if not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                continue
            if 1 in self.directions(smaller) or -1 in self.directions(larger):
                return True
        return False

    def directions(self, value: ast.expr) -> set[int]:
        """Return the ways in which this depends on elapsed time; none if it does not."""
        if _is_elapsed(value):
            return {1}
        if isinstance(value, ast.Name):
            return self._known.get(value.id, set())
        if isinstance(value, ast.BinOp):
            against = isinstance(value.op, ast.Sub | ast.Div | ast.FloorDiv)
            right = self.directions(value.right)
            return self.directions(value.left) | ({-one for one in right} if against else right)
        if isinstance(value, ast.Call):
            return {one for argument in value.args for one in self.directions(argument)}
        return set()


def _is_elapsed(side: ast.expr) -> bool:
    """Return whether this is `monotonic() - begun`, with any clock."""
    if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.Sub):
        return False
    called = side.left.func if isinstance(side.left, ast.Call) else None
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _STOPWATCHES


CLOCK_USERS: dict[str, str] = {
    "src/headwater/cli/perf.py": "a stopwatch; nothing is decided by it",
    "simulator/randomness.py": "the seeded source behind the simulator's seam",
}

RULES: tuple[Rule, ...] = (
    file_length,
    function_length,
    leftovers,
    machine_paths,
    section_marks,
    docstrings,
    async_in_its_rooms,
    clocks_in_seams,
    replicas_are_the_door,
    no_stopwatch_in_asserts,
)


def complaints(source: Source) -> list[str]:
    """Return what the rules find in one file."""
    return [f"{source.path}: {text}" for rule in RULES for text in rule(source)]


def rooms_without_docstring(root: Path = ROOT) -> list[str]:
    """Return folders of code that are not packages and so have no docstring."""
    folders = {path.parent for path in (root / "src" / "headwater").rglob("*.py")}
    return [
        f"{folder.relative_to(root)}: has no __init__.py"
        for folder in sorted(folders)
        if not (folder / "__init__.py").exists()
    ]


def exceptions_without_use(root: Path = ROOT) -> list[str]:
    """Return exceptions for files that do not exist."""
    named = {**LONG_FILES, **CLOCK_USERS}
    return [f"{path}: is excepted but gone" for path in named if not (root / path).exists()]


def all_complaints() -> list[str]:
    """Return what the rules find in every file and in the project as a whole."""
    code, others = list(sources()), list(texts())
    return [
        *(text for source in code for text in complaints(source)),
        *rooms_without_docstring(),
        *exceptions_without_use(),
        *tidy_words.all_banned_words([*((one.path, one.text) for one in code), *others]),
        *tidy_names.classes_named_twice(code),
        *tidy_names.names_without_caller(code, others),
        *tidy_names.exceptions_without_use(code, others),
    ]


def main() -> int:
    """Print all complaints."""
    found = all_complaints()
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
