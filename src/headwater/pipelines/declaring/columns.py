"""Finds columns in DDL, conditions and select lists before Spark runs.

Each function returns a certain answer or None: a check based on a guess would refuse valid pipelines.
"""

import re
from collections.abc import Iterator, Sequence

from headwater.pipelines.declaring.declare import quoted
from headwater.pipelines.declaring.sql_tokens import SqlError, Token, tokens

_BRACKETS = "()"
_DDL_BRACKETS = "(<)>"
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES = {
    "LONG": "BIGINT", "INTEGER": "INT", "SHORT": "SMALLINT", "BYTE": "TINYINT", "REAL": "FLOAT",
    "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "TIMESTAMP_LTZ": "TIMESTAMP", "CHAR": "STRING",
    "VARCHAR": "STRING",
}  # fmt: skip
_ARROW_TYPES = {
    "int64": "BIGINT", "int32": "INT", "int16": "SMALLINT", "int8": "TINYINT", "double": "DOUBLE",
    "float": "FLOAT", "string": "STRING", "large_string": "STRING", "string_view": "STRING",
    "binary": "BINARY", "large_binary": "BINARY", "bool": "BOOLEAN", "date32[day]": "DATE",
}  # fmt: skip
_ARROW_KINDS = (
    (r"timestamp\[\w+, tz=", "TIMESTAMP"),
    (r"timestamp\[\w+\]", "TIMESTAMP_NTZ"),
    (r"decimal", "DECIMAL"),
    (r"(large_)?list", "ARRAY"),
    (r"struct", "STRUCT"),
    (r"map", "MAP"),
)
_WORDS = {
    "AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "LIKE", "ILIKE", "RLIKE",
    "REGEXP", "ESCAPE", "CASE", "WHEN", "THEN", "ELSE", "END", "DISTINCT", "FROM", "ANY", "ALL",
    "SOME", "DIV", "CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER", "CURRENT_TIME", "USER",
    "SESSION_USER", "LOCALTIMESTAMP", "NAN", "INFINITY",
}  # fmt: skip
_TOO_DEEP = {
    "CAST", "TRY_CAST", "EXTRACT", "INTERVAL", "SELECT", "COLLATE", "TRIM", "OVERLAY", "POSITION",
    "SUBSTRING", "SUBSTR", "TIMESTAMPADD", "TIMESTAMPDIFF", "DATEADD", "DATEDIFF", "DATE_ADD",
    "DATE_DIFF", "OVER", "ZONE",
}  # fmt: skip


def column_name(name: str) -> str:
    """Return a column's name for DDL, backquoted unless it is a plain identifier."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def ddl_columns(ddl: str) -> dict[str, str]:
    """Return the type of each column of DDL such as "a BIGINT NOT NULL, b ARRAY<STRING>".

        Names are in lower case, as Spark compares them. A type is its outermost word in one spelling.
    Raises SqlError if the text is not DDL.
    """
    found: dict[str, str] = {}
    for column in _split(tokens(ddl), _DDL_BRACKETS):
        rest = column[2:] if len(column) > 1 and column[1].is_symbol(":") else column[1:]
        if not column or not column[0].is_name or not rest or rest[0].kind != "word":
            raise SqlError(1, f"a schema is DDL such as 'a BIGINT, b STRING', not {ddl!r}")
        name, kind = column[0].text.lower(), rest[0].text.upper()
        if name in found:
            raise SqlError(1, f"the schema has two columns called {column[0].text}")
        found[name] = _TYPES.get(kind, kind)
    return found


def arrow_type(text: str) -> str | None:
    """Return the outermost word of DDL for a type as pyarrow prints it; None if unknown."""
    if text in _ARROW_TYPES:
        return _ARROW_TYPES[text]
    return next((kind for form, kind in _ARROW_KINDS if re.match(form, text)), None)


def condition_columns(condition: str) -> tuple[str, ...] | None:
    """Return the columns that a condition names; None if its grammar is not supported here."""
    found = tokens(condition)
    if any(token.is_symbol("->") or token.is_symbol("::") for token in found):
        return None
    if any(token.is_word(*_TOO_DEEP) for token in found):
        return None
    names = []
    for place, token in enumerate(found):
        before = found[place - 1] if place else None
        after = found[place + 1] if place + 1 < len(found) else None
        if token.is_name and _is_column(token, before, after):
            names.append(token.text)
    return tuple(dict.fromkeys(names))


def _is_column(token: Token, before: Token | None, after: Token | None) -> bool:
    if before is not None and before.is_symbol("."):
        return False  # a field of the column before the dot
    if token.kind == "quoted":
        return True
    typed = after is not None and after.kind == "string"  # DATE '2026-01-01'
    called = after is not None and after.is_symbol("(")
    return not (typed or called or token.is_word(*_WORDS))


def output_columns(query: str) -> tuple[str, ...] | None:
    """Return the column names of a SELECT's result; None if the text does not show them."""
    items = _select_list(tokens(query))
    names = [_output_name(item) for item in items or ()]
    known = tuple(name for name in names if name is not None)
    return known if known and len(known) == len(names) else None


def _select_list(found: Sequence[Token]) -> list[list[Token]] | None:
    """Return the items between the outermost SELECT and its FROM."""
    outer = [token for token, depth in _depths(found, _BRACKETS) if depth == 0]
    start = next((place for place, token in enumerate(outer) if token.is_word("SELECT")), None)
    if start is None or any(token.is_symbol("|>") for token in outer):
        return None
    first = found.index(outer[start]) + 1
    last = next((t for t in outer[start:] if t.is_word("FROM")), None)
    return list(_split(found[first : len(found) if last is None else found.index(last)], _BRACKETS))


def _output_name(item: Sequence[Token]) -> str | None:
    if not item or item[0].is_word("DISTINCT", "ALL") or not item[-1].is_name:
        return None
    if len(item) == 1 or item[-2].is_symbol("."):
        return item[-1].text.lower()
    return item[-1].text.lower() if item[-2].is_word("AS") else None


def _depths(found: Sequence[Token], brackets: str) -> Iterator[tuple[Token, int]]:
    """Yield each token with its bracket depth; a bracket counts as inside."""
    depth, half = 0, len(brackets) // 2
    for token in found:
        symbol = token.kind == "symbol"
        depth += symbol and token.text in brackets[:half]
        yield token, depth
        depth -= symbol and token.text in brackets[half:]


def _split(found: Sequence[Token], brackets: str) -> Iterator[list[Token]]:
    """Split at commas outside of brackets."""
    part: list[Token] = []
    for token, depth in _depths(found, brackets):
        if depth == 0 and token.is_symbol(","):
            yield part
            part = []
        else:
            part.append(token)
    yield part
