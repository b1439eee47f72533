"""Checks names: a public class name has one meaning; no public name exists only for tests.

A name counts as used when code in `src` mentions it outside of its definitions, imports and
`__all__`, or when users meet it: in examples and on the pages about clients and pipelines.
Exceptions are in tables here, each with its reason; an exception that nothing needs is a complaint.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tools.tidy_sources import Source

TWICE: dict[str, str] = {
    "Admin": "two faces, blocking and asyncio",
    "Cluster": "the brokers as a client knows them, and brokers under a test's control",
    "Consumer": "two faces, blocking and asyncio",
    "Producer": "two faces, blocking and asyncio",
    "TransactionBlock": "two faces, blocking and asyncio",
    "TransformRun": "two faces, blocking and asyncio",
}
"""Public class names that several modules may define, and why."""

_CLICK = "click calls it"
_PROTOCOL = "part of the protocol's types, which are complete"
UNCALLED: dict[str, str] = {
    "format_commands": _CLICK,
    "get_command": _CLICK,
    "capture_signals": "uvicorn calls it",
    "delete_horizon_ms": "tests of compaction read it",
    "prometheus_text": "tests read all metrics at once; the endpoint serves them in steps",
    "request_frame": "the counterpart of read_request_header, for clients without a connection",
    "decoder": "tests and benchmarks compare the compiled functions",
    "u16": _PROTOCOL,
    "RequestHeader": _PROTOCOL,
    "ResponseHeader": _PROTOCOL,
}
"""Public names without a caller in `src`, and why they stay."""

UNCALLED_FILES: dict[str, str] = {
    "src/headwater/wire/messages/internal.py": "schemas of stored records, complete for log dump",
}
"""Files whose names need no caller."""

MET_BY_USERS = ("README.md", "docs/clients/", "docs/pipelines/", "examples/")
_CAMEL = re.compile(r"[a-z]+[A-Z]\w*")
"""Names that Spark calls."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Name(NamedTuple):
    """A public definition: `word` as code mentions it, `full` with its class."""

    word: str
    full: str
    path: str
    line: int


def classes_named_twice(sources: Sequence[Source]) -> list[str]:
    """Return public class names that several modules define."""
    homes: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in source.tree.body if source.ships else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(source.path)
    twice = {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}
    return [
        f"{' and '.join(paths)}: each defines a public class {name}; rename one of them"
        for name, paths in twice.items()
        if name not in TWICE
    ]


def definitions(source: Source) -> Iterator[Name]:
    """Return the public names that a module and its public classes define."""
    for node in source.tree.body:
        for word in _defined(node):
            yield Name(word, word, source.path, node.lineno)
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, _Function) and not part.name.startswith("_"):
                    yield Name(part.name, f"{node.name}.{part.name}", source.path, part.lineno)


def _defined(node: ast.stmt) -> Iterator[str]:
    words: list[str] = []
    if isinstance(node, _Function | ast.ClassDef):
        words = [node.name]
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        words = [target.id for target in targets if isinstance(target, ast.Name)]
    return (word for word in words if not word.startswith("_"))


def mentions(source: Source) -> Iterator[str]:
    """Return the names that a module uses; a string may name something for a table or getattr."""
    listed = {id(part) for node in source.tree.body if _is_all(node) for part in ast.walk(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in listed and _WORD.fullmatch(node.value):
                yield node.value
        elif isinstance(node, _Function) and any(map(_registers, node.decorator_list)):
            yield node.name


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    )


def _registers(decorator: ast.expr) -> bool:
    """Return whether a decorator makes a function a command."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in {"command", "group"}


def names_without_caller(
    sources: Sequence[Source], texts: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """Return public names that only tests use."""
    return [
        f"{name.path}: line {name.line}: no production code uses {name.full}; delete it, or say in"
        " UNCALLED (tools/tidy_names.py) why it stays"
        for name in _uncalled(sources, texts)
        if name.word not in UNCALLED
    ]


def _uncalled(sources: Sequence[Source], texts: Iterable[tuple[str, str]]) -> list[Name]:
    ours = [source for source in sources if source.ships]
    names = [name for source in ours for name in definitions(source)]
    used = {word for source in ours for word in mentions(source)}
    read = [source for source in sources if source.path.startswith(MET_BY_USERS)]
    met = {word for source in read for word in mentions(source)}
    for path, text in texts:
        if path.startswith(MET_BY_USERS) or path.endswith((".pyx", ".pxi")):
            met.update(_WORD.findall(text))
    return [
        name
        for name in names
        if name.word not in used
        and name.word not in met
        and name.path not in UNCALLED_FILES
        and not _CAMEL.fullmatch(name.word)
    ]


def exceptions_without_use(
    sources: Sequence[Source], texts: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """Return exceptions for names that are gone, or that have a caller."""
    ours = [source for source in sources if source.ships]
    uncalled = {name.word for name in _uncalled(sources, texts)}
    classes = Counter(
        node.name for source in ours for node in source.tree.body if isinstance(node, ast.ClassDef)
    )
    paths = {source.path for source in ours}
    gone = [
        f"UNCALLED: {name} has a caller or is gone" for name in UNCALLED if name not in uncalled
    ]
    gone += [f"UNCALLED_FILES: {path} is gone" for path in UNCALLED_FILES if path not in paths]
    gone += [f"TWICE: {name} is defined once" for name in TWICE if classes[name] < 2]
    return [f"tools/tidy_names.py: {text}; remove it" for text in gone]
