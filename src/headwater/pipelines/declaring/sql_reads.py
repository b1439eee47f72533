"""Finds the tables and topics that a SELECT reads, and their positions in its text.

A relation follows FROM, JOIN, or a comma in a FROM list. Names of WITH clauses in scope and table
functions are not reads. Names with dots are outside of the pipeline and stay unchanged, except
``topic.`name` ``. An unsupported construct where a relation could be is a SqlError: a read must never be
missed silently.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.pipelines.declaring.declare import DatasetRead, SqlQuery, SqlRead, TopicRead
from headwater.pipelines.declaring.sql_tokens import SqlError, Token, tokens

_ENDS_FROM = {
    "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET",
    "WINDOW", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "QUALIFY",
}  # fmt: skip
_NO_ALIAS = _ENDS_FROM | {
    "ON", "USING", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI",
    "LATERAL", "PIVOT", "UNPIVOT", "ASOF",
}  # fmt: skip


@dataclass
class _Level:
    """The parser's state between one pair of brackets."""

    started: bool = False
    selects: bool = False
    in_from: bool = False
    in_values: bool = False
    wants_relation: bool = False
    wants_cte_name: bool = False
    recursive: bool = False
    opening_cte: str | None = None
    ctes: set[str] = field(default_factory=set)


def sql_query(text: str) -> SqlQuery:
    """Return `text` (one SELECT) with its reads; SqlError if it is not supported."""
    return _Finder(text, tokens(text)).found()


class _Finder:
    """One pass over the tokens of a query."""

    def __init__(self, text: str, found: Sequence[Token]) -> None:
        self._text = text
        self._tokens = found
        self._at = 0
        self._levels = [_Level()]
        self._spans: list[SqlRead] = []

    def found(self) -> SqlQuery:
        """Run the pass and return the query with its reads."""
        while self._at < len(self._tokens):
            self._step(self._tokens[self._at])
        if len(self._levels) > 1:
            raise SqlError(self._tokens[-1].line, "a bracket is never closed")
        if self._levels[0].wants_relation:
            raise SqlError(self._tokens[-1].line, "the query ends before a table's name")
        sources = list(dict.fromkeys(span.source for span in self._spans))
        return SqlQuery(
            self._text,
            tuple(source for source in sources if isinstance(source, DatasetRead)),
            tuple(source for source in sources if isinstance(source, TopicRead)),
            tuple(self._spans),
        )

    def _step(self, token: Token) -> None:
        level = self._levels[-1]
        first, level.started = not level.started, True
        if token.kind == "symbol":
            self._symbol(token, level)
        elif level.wants_cte_name:
            self._cte_name(token, level)
        elif level.wants_relation:
            self._relation(token, level)
        else:
            self._keyword(token, level, first)

    def _symbol(self, token: Token, level: _Level) -> None:
        self._at += 1
        if token.text == "(":
            self._levels.append(self._opened(level))
        elif token.text == ")":
            self._closed(token)
        elif level.wants_relation or level.wants_cte_name:
            raise SqlError(token.line, f"expected a name, not {token.text!r}")
        elif token.text == "," and level.in_from:
            level.wants_relation = not (level.in_values and self._row_follows())
        elif token.text == "|>":
            level.in_from = False

    def _row_follows(self) -> bool:
        """Return whether the comma separates two rows of VALUES, not two tables."""
        following = self._peek()
        return following is not None and not following.is_name and not following.is_symbol(")")

    def _opened(self, level: _Level) -> _Level:
        """Return the level inside a bracket: a subquery, tables in brackets, or anything else."""
        inner = _Level()
        if level.wants_relation:
            level.wants_relation = False
            following = self._peek()
            query = following is not None and following.is_word("SELECT", "WITH", "FROM", "VALUES")
            inner.wants_relation = inner.in_from = not query
        return inner

    def _closed(self, token: Token) -> None:
        if len(self._levels) == 1 or self._levels[-1].wants_relation:
            raise SqlError(token.line, "unexpected closing bracket")
        self._levels.pop()
        level = self._levels[-1]
        following = self._peek()
        if level.opening_cte is None or (following is not None and following.is_word("AS")):
            return  # the first bracket was the column list of `WITH name (a, b) AS (...)`
        level.ctes.add(level.opening_cte)
        level.opening_cte = None
        if following is not None and following.is_symbol(","):
            self._at += 1
            level.wants_cte_name = True

    def _cte_name(self, token: Token, level: _Level) -> None:
        self._at += 1
        if token.is_word("RECURSIVE") and not level.ctes:
            level.recursive = True
            return
        level.wants_cte_name = False
        level.opening_cte = token.text.lower()
        if level.recursive:
            level.ctes.add(level.opening_cte)

    def _keyword(self, token: Token, level: _Level, first: bool) -> None:
        before = self._tokens[self._at - 1] if self._at else None
        self._at += 1
        if token.kind != "word" or (before is not None and before.is_symbol(".")):
            return
        word = token.text.upper()
        if word == "WITH" and first:
            level.wants_cte_name = True
        elif word == "FROM" and self._opens_from(before, level, first):
            level.in_from = level.wants_relation = True
        elif word == "JOIN":
            level.wants_relation = True
        elif word in _ENDS_FROM or (word == "LATERAL" and self._follows("VIEW")):
            level.in_from = False
            level.selects |= word == "SELECT"
        elif word == "TABLE" and (first or self._in_call()):
            raise SqlError(token.line, "TABLE in a query is not supported; write SELECT * FROM x")

    def _opens_from(self, before: Token | None, level: _Level, first: bool) -> bool:
        """Return False for the FROM of EXTRACT(YEAR FROM x) and of IS DISTINCT FROM."""
        distinct = before is not None and before.is_word("DISTINCT")
        return (level.selects or first) and not distinct

    def _in_call(self) -> bool:
        following = self._peek()
        return following is not None and (following.is_symbol("(") or following.kind == "quoted")

    def _relation(self, token: Token, level: _Level) -> None:
        if token.is_word("LATERAL"):
            self._at += 1
            return
        level.wants_relation = False
        if token.is_word("SELECT", "WITH", "FROM"):
            raise SqlError(token.line, f"expected a table, not {token.text}")
        if token.is_word("VALUES"):
            self._at += 1
            level.in_values = True
        elif token.is_word("STREAM") and self._streams():
            self._stream(token)
        else:
            parts, end = self._name()
            self._note(token, end, parts, stream=False)

    def _streams(self) -> bool:
        """Return whether STREAM is the keyword here and not the name of a table."""
        following = self._peek(1)
        return following is not None and (
            following.is_symbol("(")
            or following.kind == "quoted"
            or (following.kind == "word" and not following.is_word("AS", *_NO_ALIAS))
        )

    def _stream(self, token: Token) -> None:
        self._at += 1
        bracket = self._peek()
        if bracket is None or bracket.kind != "symbol":
            parts, end = self._name()
        else:
            self._at += 1
            parts, _ = self._name()
            closing = self._peek()
            if closing is None or not closing.is_symbol(")"):
                raise SqlError(token.line, "STREAM( ) takes one table's name")
            self._at += 1
            end = closing.end
        self._note(token, end, parts, stream=True)

    def _name(self) -> tuple[list[str], int]:
        """Return the parts of the dotted name that begins here, and its end in the text."""
        parts: list[str] = []
        while True:
            token = self._peek()
            if token is None or not token.is_name:
                line = (token or self._tokens[-1]).line
                shown = repr(token.text) if token else "the end"
                raise SqlError(line, f"expected a table's name, not {shown}")
            parts.append(token.text)
            self._at += 1
            dot = self._peek()
            if dot is None or not dot.is_symbol("."):
                return parts, token.end
            self._at += 1

    def _note(self, first: Token, end: int, parts: list[str], *, stream: bool) -> None:
        following = self._peek()
        called = following is not None and following.is_symbol("(")
        if called and parts[0].upper() == "IDENTIFIER":
            raise SqlError(first.line, "IDENTIFIER( ) computes a name; write the table's own name")
        if called and stream:
            raise SqlError(first.line, "STREAM takes a table's name, not a function")
        if called:
            return  # a table function such as range(10); its arguments are searched like the rest
        source: DatasetRead | TopicRead
        if parts[0].lower() == "topic" and len(parts) > 1:
            source = TopicRead(".".join(parts[1:]), stream)
        elif len(parts) > 1 or any(parts[0].lower() in level.ctes for level in self._levels):
            return
        else:
            source = DatasetRead(parts[0], stream)
        alias = parts[-1] if self._takes_alias(following) else ""
        self._spans.append(SqlRead(first.start, end, source, alias))

    def _takes_alias(self, following: Token | None) -> bool:
        """Return whether the table has no alias, so that its own name may qualify columns.

                If a clause comes between the table and a possible alias, the answer is False: then columns
        are qualified by an alias or not at all.
        """
        if following is None or following.kind == "symbol":
            return True
        return following.is_word(*_NO_ALIAS)

    def _peek(self, ahead: int = 0) -> Token | None:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def _follows(self, word: str) -> bool:
        following = self._peek()
        return following is not None and following.is_word(word)
