"""Parses DDL into Spark's types without a session.

PySpark's own parser runs in the JVM and needs a session; the columns of an ingest are checked before
one starts. This parser accepts what `schemas` writes and the usual spellings of the same types;
anything else is a `SqlError`.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from pyspark.sql import types as st

from headwater.pipelines.declaring.sql_tokens import SqlError, Token, literal, tokens

_SIMPLE: Final[dict[str, Callable[[], st.DataType]]] = {
    "BOOLEAN": st.BooleanType,
    "TINYINT": st.ByteType,
    "BYTE": st.ByteType,
    "SMALLINT": st.ShortType,
    "SHORT": st.ShortType,
    "INT": st.IntegerType,
    "INTEGER": st.IntegerType,
    "BIGINT": st.LongType,
    "LONG": st.LongType,
    "FLOAT": st.FloatType,
    "REAL": st.FloatType,
    "DOUBLE": st.DoubleType,
    "STRING": st.StringType,
    "BINARY": st.BinaryType,
    "DATE": st.DateType,
    "TIMESTAMP": st.TimestampType,
    "TIMESTAMP_LTZ": st.TimestampType,
    "TIMESTAMP_NTZ": st.TimestampNTZType,
}
_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")
_DEFAULT_PRECISION: Final = 10

_Read = TypeVar("_Read")


def columns(ddl: str) -> st.StructType:
    """Parse columns such as `id BIGINT NOT NULL, name STRING COMMENT 'of the customer'`."""
    parser = _Parser(ddl)
    found = parser.fields()
    parser.end()
    return found


class _Parser:
    """Parses the tokens of one DDL text from left to right."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._left = tokens(ddl)

    def fields(self) -> st.StructType:
        found = st.StructType()
        while True:
            found.add(self._field())
            if not self._skip(","):
                return found

    def end(self) -> None:
        if self._left:
            raise self._wrong(f"'{self._left[0].text}' follows the last column")

    def _field(self) -> st.StructField:
        name = self._next("a column's name")
        if not name.is_name:
            raise self._wrong(f"'{name.text}' is not a column's name")
        self._skip(":")
        kind, nullable, metadata = self._type(), True, {}
        if self._skip_word("NOT"):
            nullable = False
            if not self._skip_word("NULL"):
                raise self._wrong("NOT without NULL")
        if self._skip_word("COMMENT"):
            text = self._next("a comment")
            if text.kind != "string":
                raise self._wrong(f"the comment '{text.text}' is not a string")
            metadata["comment"] = literal(text)
        return st.StructField(name.text, kind, nullable, metadata or None)

    def _type(self) -> st.DataType:
        token = self._next("a type")
        word = token.text.upper() if token.kind == "word" else ""
        if word in _SIMPLE:
            return _SIMPLE[word]()
        if word in _DECIMAL:
            return self._decimal()
        if word == "ARRAY":
            return st.ArrayType(self._bracketed(self._type))
        if word == "MAP":
            return st.MapType(*self._bracketed(self._key_and_value))
        if word == "STRUCT":
            return self._bracketed(self.fields)
        raise self._wrong(f"'{token.text}' is not a type of Spark")

    def _key_and_value(self) -> tuple[st.DataType, st.DataType]:
        key = self._type()
        self._expect(",")
        return key, self._type()

    def _decimal(self) -> st.DecimalType:
        if not self._skip("("):
            return st.DecimalType(_DEFAULT_PRECISION, 0)
        precision, scale = self._number(), 0
        if self._skip(","):
            scale = self._number()
        self._expect(")")
        return st.DecimalType(precision, scale)

    def _bracketed(self, read: Callable[[], _Read]) -> _Read:
        self._expect("<")
        found = read()
        self._expect(">")
        return found

    def _number(self) -> int:
        token = self._next("a number")
        if not token.text.isdecimal():
            raise self._wrong(f"'{token.text}' is not a number of digits")
        return int(token.text)

    def _next(self, wanted: str) -> Token:
        if not self._left:
            raise self._wrong(f"it ends before {wanted}")
        return self._left.pop(0)

    def _skip(self, symbol: str) -> bool:
        found = bool(self._left) and self._left[0].is_symbol(symbol)
        if found:
            self._left.pop(0)
        return found

    def _skip_word(self, word: str) -> bool:
        found = bool(self._left) and self._left[0].is_word(word)
        if found:
            self._left.pop(0)
        return found

    def _expect(self, symbol: str) -> None:
        if not self._skip(symbol):
            raise self._wrong(f"'{symbol}' is missing")

    def _wrong(self, why: str) -> SqlError:
        return SqlError(1, f"cannot read the columns {self._ddl!r}: {why}")
