"""Parses pipelines declared in SQL: the statements of a file become drafts for the registry.

Supports the statements of Spark Declarative Pipelines, expectations as CONSTRAINT … EXPECT, and topics
as ``STREAM topic.`name` `` (a stream) or ``topic.`name` `` (a snapshot). Any other statement is refused
with its line.
"""

from pathlib import Path

from headwater.pipelines.declaring.arguments import (
    checked_name,
    table_format,
    table_options,
    text_of,
)
from headwater.pipelines.declaring.declare import (
    Action,
    DeclarationError,
    Expectation,
    Format,
    Kind,
    Quarantine,
    SourceLocation,
    SqlQuery,
)
from headwater.pipelines.declaring.registry import Draft, Registry
from headwater.pipelines.declaring.sql_reads import sql_query
from headwater.pipelines.declaring.sql_tokens import SqlError, Token, literal, statements

_ADVICE = {
    "SET": "put settings of Spark under spark: in pipeline.yml",
    "USE": "tables of a pipeline have one name and live in its storage",
    "INSERT": "give the flow a name: CREATE FLOW name AS INSERT INTO table BY NAME SELECT ...",
    "SELECT": "give the query a name: CREATE MATERIALIZED VIEW name AS SELECT ...",
}
_KNOWN = "CREATE STREAMING TABLE, MATERIALIZED VIEW, TEMPORARY VIEW or FLOW"
_QUARANTINE = ("quarantine.table", "quarantine.topic")


def load_sql(path: Path, registry: Registry) -> None:
    """Register the statements of a file."""
    for draft in parse_sql(text_of(path), str(path)):
        registry.add(draft)


def parse_sql(text: str, file: str) -> list[Draft]:
    """Parse the statements of `text`; DeclarationError at the first unsupported one."""
    try:
        return [_Statement(text, file, found).draft() for found in statements(text)]
    except SqlError as problem:
        raise DeclarationError(SourceLocation(file, problem.line), problem.text) from None


class _Statement:
    """Parses one statement from left to right."""

    def __init__(self, text: str, file: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0
        self._origin = SourceLocation(file, tokens[0].line)
        self._schema: list[str] = []
        self._expectations: list[Expectation] = []
        self._properties: dict[str, str] = {}
        self._partition_by: tuple[str, ...] = ()
        self._format: Format | None = None
        self._comment: str | None = None

    def draft(self) -> Draft:
        """Return the declaration of the statement."""
        first = self._tokens[0]
        if not self._skip("CREATE"):
            advice = _ADVICE.get(first.text.upper(), f"write {_KNOWN}")
            raise SqlError(first.line, f"{first.text.upper()} is not supported here: {advice}")
        self._skip("OR", "REFRESH") or self._skip("OR", "REPLACE")
        if self._skip("FLOW"):
            return self._flow()
        return self._dataset(self._kind())

    def _kind(self) -> Kind:
        if self._skip("STREAMING", "TABLE"):
            return "table"
        if self._skip("MATERIALIZED", "VIEW"):
            return "materialized_view"
        if self._skip("TEMPORARY", "VIEW") or self._skip("TEMP", "VIEW"):
            return "temporary_view"
        raise self._unlike(f"expected {_KNOWN}")

    def _flow(self) -> Draft:
        name = self._name("the flow's name")
        if self._skip("COMMENT"):
            self._string("a comment")
        self._need("AS", "INSERT", "INTO")
        once = self._skip("ONCE")
        target = self._name("the table's name")
        self._need("BY", "NAME")
        query = self._query()
        return Draft(name, self._origin, None, query, target, once)

    def _dataset(self, kind: Kind) -> Draft:
        self._skip("IF", "NOT", "EXISTS")
        name = self._name("a name")
        if self._peek_symbol("("):
            self._elements()
        while self._more() and not self._peek_word("AS"):
            self._clause()
        query = self._query() if self._skip("AS") else None
        if query is None and kind != "table":
            raise SqlError(self._origin.line, f"{name} has no query. Add AS SELECT ...")
        self._refuse_on_view(kind)
        quarantine, options = self._quarantine()
        return Draft(
            name=name,
            origin=self._origin,
            kind=kind,
            query=query,
            target=name,
            format=self._format,
            partition_by=self._partition_by,
            schema=", ".join(self._schema) or None,
            comment=self._comment,
            options=table_options(self._origin, options),
            expectations=tuple(self._expectations),
            quarantine=quarantine,
        )

    def _refuse_on_view(self, kind: Kind) -> None:
        stored = (
            self._schema, self._expectations, self._properties, self._partition_by, self._format,
        )  # fmt: skip
        if kind == "temporary_view" and any(stored):
            raise SqlError(
                self._origin.line, "a temporary view takes only a name, a comment and a query"
            )

    def _quarantine(self) -> tuple[Quarantine | None, dict[str, str]]:
        options = {key: value for key, value in self._properties.items() if key not in _QUARANTINE}
        table, topic = (self._properties.get(key) for key in _QUARANTINE)
        if table is not None:
            checked_name(self._origin, table)
        return (Quarantine(table, topic) if table or topic else None), options

    def _elements(self) -> None:
        """Parse the bracket after a name: columns with their types, and expectations."""
        self._at += 1
        while True:
            if self._skip("CONSTRAINT"):
                self._constraint()
            else:
                self._column()
            if not self._skip_symbol(","):
                break
        self._need_symbol(")")

    def _column(self) -> None:
        first, depth = self._next_token("a column"), 0
        last = first
        while not (depth == 0 and (self._peek_symbol(",") or self._peek_symbol(")"))):
            last = self._next_token("a column's type")
            depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(last.text, 0)
        if last is first or not first.is_name:
            raise SqlError(first.line, f"the column {first.text} needs a type, such as STRING")
        self._schema.append(self._text[first.start : last.end])

    def _constraint(self) -> None:
        name = self._name("the expectation's name", checked=False)
        self._need("EXPECT")
        first = self._need_symbol("(")
        last, depth = first, 1
        while depth:
            last = self._next_token("the end of the condition")
            depth += {"(": 1, ")": -1}.get(last.text, 0) if last.kind == "symbol" else 0
        condition = self._text[first.end : last.start].strip()
        self._expectations.append(Expectation(name, condition, self._violation()))

    def _violation(self) -> Action:
        if not self._skip("ON", "VIOLATION"):
            return "warn"
        if self._skip("DROP", "ROW"):
            return "drop"
        if self._skip("FAIL", "UPDATE"):
            return "fail"
        raise self._unlike("ON VIOLATION takes DROP ROW or FAIL UPDATE")

    def _clause(self) -> None:
        if self._skip("COMMENT"):
            self._comment = self._string("a comment")
        elif self._skip("PARTITIONED", "BY"):
            self._partition_by = self._columns()
        elif self._skip("USING"):
            self._format = table_format(self._origin, self._next_token("a format").text.lower())
        elif self._skip("TBLPROPERTIES"):
            self._tblproperties()
        elif self._skip("CLUSTER", "BY"):
            raise self._unlike("clustering is not supported: use PARTITIONED BY", back=1)
        else:
            raise self._unlike("expected COMMENT, PARTITIONED BY, USING, TBLPROPERTIES or AS")

    def _columns(self) -> tuple[str, ...]:
        self._need_symbol("(")
        names = [self._name("a column", checked=False)]
        while self._skip_symbol(","):
            names.append(self._name("a column", checked=False))
        self._need_symbol(")")
        return tuple(names)

    def _tblproperties(self) -> None:
        self._need_symbol("(")
        while True:
            key = self._next_token("a property")
            self._skip_symbol("=")
            value = self._next_token("a value")
            text = literal(value) if value.kind == "string" else value.text
            self._properties[literal(key) if key.kind == "string" else key.text] = text
            if not self._skip_symbol(","):
                break
        self._need_symbol(")")

    def _query(self) -> SqlQuery:
        """Parse the rest of the statement, which is its query."""
        if not self._more():
            raise self._unlike("expected a query", back=1)
        first, last = self._tokens[self._at], self._tokens[-1]
        self._at = len(self._tokens)
        try:
            return sql_query(self._text[first.start : last.end])
        except SqlError as problem:
            raise SqlError(first.line + problem.line - 1, problem.text) from None

    def _name(self, what: str, *, checked: bool = True) -> str:
        token = self._next_token(what)
        if not token.is_name:
            raise self._unlike(f"expected {what}", back=1)
        if self._peek_symbol("."):
            raise self._unlike("names in a pipeline have one part, without dots")
        return checked_name(self._origin, token.text) if checked else token.text

    def _string(self, what: str) -> str:
        token = self._next_token(what)
        if token.kind != "string":
            raise self._unlike(f"expected {what} in quotes", back=1)
        return literal(token)

    def _next_token(self, what: str) -> Token:
        if not self._more():
            raise SqlError(self._tokens[-1].line, f"the statement ends before {what}")
        self._at += 1
        return self._tokens[self._at - 1]

    def _more(self) -> bool:
        return self._at < len(self._tokens)

    def _skip(self, *words: str) -> bool:
        """Skip these keywords if all of them follow."""
        here = self._tokens[self._at : self._at + len(words)]
        if len(here) == len(words) and all(
            token.is_word(word) for token, word in zip(here, words, strict=True)
        ):
            self._at += len(words)
            return True
        return False

    def _skip_symbol(self, symbol: str) -> bool:
        found = self._peek_symbol(symbol)
        self._at += found
        return found

    def _need(self, *words: str) -> None:
        for word in words:
            if not self._skip(word):
                raise self._unlike(f"expected {word}")

    def _need_symbol(self, symbol: str) -> Token:
        if not self._peek_symbol(symbol):
            raise self._unlike(f"expected {symbol}")
        return self._next_token(symbol)

    def _peek_word(self, word: str) -> bool:
        return self._more() and self._tokens[self._at].is_word(word)

    def _peek_symbol(self, symbol: str) -> bool:
        return self._more() and self._tokens[self._at].is_symbol(symbol)

    def _unlike(self, text: str, back: int = 0) -> SqlError:
        """Return the error for the current token, or for one `back` tokens earlier."""
        place = min(self._at - back, len(self._tokens) - 1)
        token = self._tokens[place]
        shown = "the end" if self._at - back > place else repr(token.text)
        return SqlError(token.line, f"{text}, not {shown}")
