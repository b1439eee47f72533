"""Finds the reads of a query function in its source, without calling it.

Names are resolved as Python would (imports, aliases, constants of the module), so `hw.read("x")`,
`pipelines.read(X)` and `read("x")` are the same. Functions of the project that the query names are
searched too. A read whose name is known only at run time is reported as computed, never dropped: the
graph must not miss an edge.
"""

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from headwater.pipelines.declaring import declare
from headwater.pipelines.declaring.declare import (
    DatasetRead,
    DeclarationError,
    SourceLocation,
    TopicRead,
)
from headwater.pipelines.declaring.sql_reads import sql_query
from headwater.pipelines.declaring.sql_tokens import SqlError

_READS = {declare.read: False, declare.read_stream: True}
_TOPICS = {declare.topic_snapshot: False, declare.topic: True, declare.topics: True}
_CHOICES = {
    "subscribe": 'hw.topics("a", "b")',
    "subscribePattern": 'hw.topics(pattern="...")',
    "assign": "hw.topics() with the option assign alone",
}
_SESSIONS = {"active", "getActiveSession", "getOrCreate"}


@dataclass
class FoundReads:
    """The reads in the source of a query."""

    reads: list[DatasetRead] = field(default_factory=list)
    topics: list[TopicRead] = field(default_factory=list)
    session_reads: list[DatasetRead] = field(default_factory=list)
    streams: bool = False
    computed: list["ComputedRead"] = field(default_factory=list)


@dataclass(frozen=True)
class ComputedRead:
    """A read whose name the source does not show."""

    origin: SourceLocation
    call: str
    """The call as written; "" if the source was not found."""
    topic: bool
    stream: bool


def reads_of(function: Callable[..., Any], home: Path | None = None) -> FoundReads:
    """Return the reads of `function` and of the functions in `home` that it uses."""
    found = FoundReads()
    for used, node in followed(function, home):
        if node is None:
            found.computed.append(ComputedRead(origin_of(used), "", False, False))
        else:
            _Walk(used, node, found).visit_body()
    return found


def followed(
    function: Callable[..., Any], home: Path | None = None
) -> "list[tuple[FunctionType, ast.FunctionDef | None]]":
    """Return `function` and the functions in `home` that it uses, with their syntax if known."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        raise DeclarationError(origin_of(function), "a query is a plain function written with def")
    home = (home or _file(plain).parent).absolute()
    found: dict[FunctionType, ast.FunctionDef | None] = {}
    waiting = [plain]
    while waiting:
        used = waiting.pop(0)
        if used not in found and (used is plain or _file(used).is_relative_to(home)):
            node = found[used] = _definition(used)
            waiting += _mentioned(used, node) if node is not None else ()
    return list(found.items())


def origin_of(function: Callable[..., Any]) -> SourceLocation:
    """Return the first line of a function, including its decorators."""
    plain = inspect.unwrap(function)
    if isinstance(plain, FunctionType):
        return SourceLocation(plain.__code__.co_filename, plain.__code__.co_firstlineno)
    return SourceLocation("<unknown>", 0)


def _file(function: FunctionType) -> Path:
    return Path(function.__code__.co_filename).absolute()


def _definition(function: FunctionType) -> ast.FunctionDef | None:
    """Return the syntax of a function from its file."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename, function.__globals__)))
    except SyntaxError:  # the file has changed since it was loaded
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = node.decorator_list[0] if node.decorator_list else node
            if code.co_firstlineno == first.lineno:
                return node
    return None


def _mentioned(function: FunctionType, node: ast.FunctionDef) -> Iterator[FunctionType]:
    """Yield plain functions that the body calls or passes on (as to `transform`)."""
    names = _Names(function, node)
    for child in _body(node):
        if isinstance(child, ast.Name | ast.Attribute):
            value = names.value(child)
            value = inspect.unwrap(value) if callable(value) else value
            if isinstance(value, FunctionType):
                yield value


def _body(node: ast.FunctionDef) -> Iterator[ast.AST]:
    for statement in node.body:
        yield from ast.walk(statement)


class _Names:
    """Resolves names inside a function as far as they are fixed before it runs."""

    def __init__(self, function: FunctionType, node: ast.FunctionDef) -> None:
        self._known: dict[str, Any] = dict(function.__globals__)
        self._known |= {
            name: cell.cell_contents
            for name, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            )
            if _filled(cell)
        }
        for name in function.__code__.co_varnames + function.__code__.co_cellvars:
            self._known.pop(name, None)
        for child in _body(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                self._known |= dict(_imported(child))

    def value(self, node: ast.expr) -> Any:
        """Return the object behind a (dotted) name, or None."""
        if isinstance(node, ast.Name):
            return self._known.get(node.id)
        if isinstance(node, ast.Attribute):
            return _attribute(self.value(node.value), node.attr)
        return None

    def text(self, node: ast.expr | None) -> str | None:
        """Return the string of a literal or a constant of a module, else None."""
        if isinstance(node, ast.Constant):
            value = node.value
        else:
            value = self.value(node) if node is not None else None
        return value if isinstance(value, str) else None

    def texts(self, node: ast.expr) -> list[str] | None:
        """Return the strings of an argument: one, or those of an unpacked constant (`*NAMES`)."""
        if isinstance(node, ast.Starred):
            values = self.value(node.value)
            known = isinstance(values, list | tuple) and all(isinstance(v, str) for v in values)
            return list(values) if known else None
        text = self.text(node)
        return None if text is None else [text]


def _attribute(owner: Any, name: str) -> Any:
    if not isinstance(owner, ModuleType):
        return None
    if owner.__name__ == "headwater.pipelines":  # other names of it import Spark on access
        return getattr(declare, name, None)
    return getattr(owner, name, None)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - only asking fails for an empty cell
    except ValueError:
        return False
    return True


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Any]]:
    """Yield the names that an import of headwater.pipelines inside a function binds."""
    import headwater.pipelines as package

    for alias in node.names:
        if isinstance(node, ast.Import):
            if alias.name == package.__name__ and alias.asname:
                yield alias.asname, package
        elif node.module == "headwater" and alias.name == "pipelines":
            yield alias.asname or alias.name, package
        elif node.module == package.__name__:
            yield alias.asname or alias.name, _attribute(package, alias.name)


class _Walk:
    """One pass over the body of one function."""

    def __init__(self, function: FunctionType, node: ast.FunctionDef, found: FoundReads) -> None:
        self._file = function.__code__.co_filename
        self._node = node
        self._names = _Names(function, node)
        self._found = found
        self._sessions = {"spark"}
        self._called: set[int] = set()

    def visit_body(self) -> None:
        """Collect every read of the body, in the order of the text."""
        for child in _body(self._node):
            if isinstance(child, ast.Assign) and self._is_session(child.value):
                self._sessions |= {t.id for t in child.targets if isinstance(t, ast.Name)}
        calls = [child for child in _body(self._node) if isinstance(child, ast.Call)]
        for call in sorted(
            calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0)
        ):
            self._called.add(id(call.func))
            self._call(call)
        for child in _body(self._node):
            if isinstance(child, ast.Name | ast.Attribute) and id(child) not in self._called:
                self._bare(child)

    def _call(self, call: ast.Call) -> None:
        reader = self._reader(call.func)
        if self._names.value(call.func) is declare.topics:
            self._read_topics(call)
        elif reader is not None:
            self._read(call, *reader)
        elif isinstance(call.func, ast.Attribute):
            if call.func.attr == "table":
                stream = self._table_of_session(call.func.value)
                if stream is not None:
                    self._session_table(call, stream)
            elif call.func.attr == "sql" and self._is_session(call.func.value):
                self._session_sql(call)

    def _reader(self, node: ast.expr) -> tuple[bool, bool] | None:
        """Return (of a topic, as a stream) if the expression is a reader of headwater.pipelines."""
        value = self._names.value(node)
        if not isinstance(value, FunctionType):
            return None
        if value in _READS:
            return False, _READS[value]
        return (True, _TOPICS[value]) if value in _TOPICS else None

    def _read_topics(self, call: ast.Call) -> None:
        """Collect `hw.topics("a", "b")` or `hw.topics(*NAMES)`; a pattern names no topics."""
        self._found.streams = True
        for argument in call.args:
            names = self._names.texts(argument)
            if names is None:
                self._computed(call, True, True)
                return
            self._found.topics += [TopicRead(name, True) for name in names]

    def _refuse_choices(self, call: ast.Call) -> None:
        for given in call.keywords:
            if given.arg in _CHOICES:
                raise DeclarationError(
                    SourceLocation(self._file, call.lineno),
                    f"{ast.unparse(call)} names its topics twice. Use {_CHOICES[given.arg]}",
                )

    def _read(self, call: ast.Call, topic: bool, stream: bool) -> None:
        if topic:
            self._refuse_choices(call)
        name = self._names.text(_argument(call, "name"))
        if name is None:
            self._computed(call, topic, stream)
        elif topic:
            self._found.topics.append(TopicRead(name, stream))
        else:
            self._found.reads.append(DatasetRead(name, stream))
        self._found.streams |= stream

    def _session_table(self, call: ast.Call, stream: bool) -> None:
        name = self._names.text(_argument(call, "tableName"))
        if name is None:
            self._computed(call, False, stream)
        elif "." not in name:  # with dots it is a table of a catalog, outside of the pipeline
            self._by_session([DatasetRead(name, stream)])

    def _session_sql(self, call: ast.Call) -> None:
        text = self._names.text(_argument(call, "sqlQuery"))
        if text is None:
            self._computed(call, False, False)
            return
        origin = SourceLocation(self._file, call.lineno)
        try:
            query = sql_query(text)
        except SqlError as problem:
            raise DeclarationError(origin, f"this SQL is not understood: {problem.text}") from None
        if query.topics:
            raise DeclarationError(
                origin, "topic.`name` is for SQL files; in Python read it with hw.topic(name)"
            )
        self._by_session(query.reads)

    def _by_session(self, reads: "list[DatasetRead] | tuple[DatasetRead, ...]") -> None:
        self._found.reads += reads
        self._found.session_reads += reads
        self._found.streams |= any(read.stream for read in reads)

    def _table_of_session(self, owner: ast.expr) -> bool | None:
        """Return whether `owner.table()` reads a stream; None if owner is not a session."""
        if self._is_session(owner):
            return False
        while isinstance(owner, ast.Call | ast.Attribute):
            if isinstance(owner, ast.Attribute) and owner.attr in ("read", "readStream"):
                return owner.attr == "readStream" if self._is_session(owner.value) else None
            owner = owner.func if isinstance(owner, ast.Call) else owner.value
        return None

    def _is_session(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self._sessions
        if not isinstance(node, ast.Call):
            return False
        made = isinstance(node.func, ast.Attribute) and node.func.attr in _SESSIONS
        return made or self._names.value(node.func) is declare.spark

    def _bare(self, node: ast.Name | ast.Attribute) -> None:
        """Collect a reader that is passed on instead of called, or a stream from outside."""
        reader = self._reader(node)
        if reader is not None:
            self._computed(node, *reader)
        if isinstance(node, ast.Attribute) and node.attr == "readStream":
            self._found.streams = True

    def _computed(self, node: ast.expr, topic: bool, stream: bool) -> None:
        origin = SourceLocation(self._file, node.lineno)
        self._found.computed.append(ComputedRead(origin, ast.unparse(node), topic, stream))
        self._found.streams |= stream


def _argument(call: ast.Call, keyword: str) -> ast.expr | None:
    if call.args:
        return call.args[0]
    return next((given.value for given in call.keywords if given.arg == keyword), None)
