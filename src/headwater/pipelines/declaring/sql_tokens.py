"""Splits Spark SQL into tokens, enough to find statements, clauses and table names.

Strings, quoted names and comments are single tokens, so nothing inside them is mistaken for SQL.
A string or comment that does not end is a SqlError with its line.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["word", "quoted", "string", "number", "symbol"]


class SqlError(Exception):
    """Unsupported or invalid SQL, with the line (from 1) in its text."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class Token(NamedTuple):
    """One token and its position; the text of a quoted name has no backquotes."""

    kind: Kind
    text: str
    start: int
    end: int
    line: int

    def is_word(self, *words: str) -> bool:
        """Return whether this is one of these keywords (given in upper case)."""
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, text: str) -> bool:
        """Return whether this is that symbol, and not a string or name that looks like it."""
        return self.kind == "symbol" and self.text == text

    @property
    def is_name(self) -> bool:
        """Return whether this may be part of a table's or column's name."""
        return self.kind in ("word", "quoted")


_PIECES = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>\.?\d[\w.]*)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol>->|=>|\|>|\|\||::|<=>|<>|<=|>=|!=|==|[^\s'"`])
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_UNENDED = {"'": "string", '"': "string", "`": "quoted name"}


def tokens(text: str) -> list[Token]:
    """Return the tokens of `text` without comments."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    position, line = 0, 1
    while position < len(text):
        match = _PIECES.match(text, position)
        if match is None:
            raise SqlError(line, f"the {_UNENDED[text[position]]} that begins here never ends")
        end = match.end()
        if match["comment"]:
            end = _comment_end(text, position, line)
        elif not match["space"]:
            yield _token(match, line)
        line += text.count("\n", position, end)
        position = end


def _token(match: re.Match[str], line: int) -> Token:
    text = match[0]
    kind: Kind = "symbol"
    if match["raw"] or match["string"]:
        kind = "string"
    elif match["quoted"]:
        kind, text = "quoted", text[1:-1].replace("``", "`")
    elif match["number"]:
        kind = "number"
    elif match["word"]:
        kind = "word"
    return Token(kind, text, match.start(), match.end(), line)


def _comment_end(text: str, start: int, line: int) -> int:
    """Return the end of a bracketed comment; in Spark they nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise SqlError(line, "the comment that begins here never ends")


def statements(text: str) -> list[list[Token]]:
    """Return the tokens of each statement; a semicolon or the end of the text ends one."""
    found: list[list[Token]] = [[]]
    for token in _tokens(text):
        if token.is_symbol(";"):
            found.append([])
        else:
            found[-1].append(token)
    return [statement for statement in found if statement]


def literal(token: Token) -> str:
    """Return the value of a string token without escapes, for comments and properties."""
    text = token.text
    if text.startswith("$"):
        return text.split("$", 2)[2].rsplit("$", 2)[0]
    if text[0] in "rR":
        return text[2:-1]
    quote = text[0]
    return re.sub(r"\\(.)", r"\1", text[1:-1].replace(quote * 2, quote), flags=re.DOTALL)
