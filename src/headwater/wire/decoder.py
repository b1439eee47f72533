"""Generates the function that reads one version of one message.

The function reads the whole message in nested loops, without a call per element. One unpack takes
adjacent values of fixed size together with the length of what follows them. Every length is checked
against the bytes left before memory is taken for it.
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from headwater.wire.fields import (
    BYTES,
    RECORDS,
    STRING,
    Array,
    Field,
    Fixed,
    Nested,
    Sized,
    WireType,
)
from headwater.wire.primitives import (
    LONGEST_STRING,
    MAX_TAGS,
    NO_ITEMS,
    Buffer,
    Packers,
    WireError,
    beyond_limit,
    cut_short,
    finish_uvarint,
    is_null,
    read_uvarint,
    skip_tags,
    too_long,
    too_many,
)
from headwater.wire.schema import Struct
from headwater.wire.source import FunctionSource

Decode: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, position, end) -> (message, position after it)."""
DecodeInSteps: TypeAlias = Callable[[Buffer, int, int, int], Generator[None, None, tuple[Any, int]]]
"""The same with a limit on array items, as a generator that pauses after each of them."""

_INTEGERS = {code: Packers("", code, "unpack_from") for code in "bhiqHId"}
_SCOPE: dict[str, Any] = {
    "new": object.__new__,
    "finish": finish_uvarint,
    "read": read_uvarint,
    "skip": skip_tags,
    "cut": cut_short,
    "many": too_many,
    "long": too_long,
    "beyond": beyond_limit,
    "null": is_null,
    "nothing": NO_ITEMS,
    "WireError": WireError,
    "Broken": (struct.error, IndexError, UnicodeDecodeError),
    **{f"all_{code}": table for code, table in _INTEGERS.items()},
}


def compile_decoder(kind: type[Struct], version: int) -> Decode:
    """Compile the reader of `kind` in `version`."""
    return _compile(kind, version, in_steps=False)


def compile_stepping_decoder(kind: type[Struct], version: int) -> DecodeInSteps:
    """Compile the same reader as a generator, for messages that would hold the event loop."""
    return _compile(kind, version, in_steps=True)


def _compile(kind: type[Struct], version: int, *, in_steps: bool) -> Callable[..., Any]:
    source = FunctionSource(
        kind, version, "decode in steps" if in_steps else "decode", dict(_SCOPE)
    )
    writer = _Decoder(source, in_steps, limits_strings=kind.__schema__.limits_strings)
    with source.block(f"def decode(buf, pos, end{', limit' if in_steps else ''}):"):
        if in_steps:
            source.line("left = limit")
        with source.block("try:"):
            if _has_records(kind):
                source.line("view = memoryview(buf)")
            made = writer.struct(kind)
        with source.block("except Broken as wrong:"):
            source.line(f"raise WireError(f'{source.title}: {{wrong}}') from None")
        with source.block("if pos > end:"):
            source.line(f"raise cut({source.title!r}, pos, end)")
        source.line(f"return {made}, pos")
        if in_steps:
            source.line("yield")
    return source.function("decode")


def _has_records(kind: type[Struct]) -> bool:
    types = [field.type for field in kind.__schema__.fields]
    inner = [item.of if isinstance(item, Array) else item for item in types]
    return any(
        item is RECORDS or (isinstance(item, Nested) and _has_records(item.struct))
        for item in inner
    )


class _Decoder:
    """Each method generates code that reads one thing, and returns the variable that will hold it."""

    def __init__(
        self, source: FunctionSource, in_steps: bool, *, limits_strings: bool = False
    ) -> None:
        self.source = source
        self._limits_strings = limits_strings
        self._in_steps = in_steps
        self._run: list[tuple[Fixed, str]] = []

    def struct(self, kind: type[Struct]) -> str:
        source = self.source
        plain, tagged, absent = source.fields(kind)
        values = {field.name: self.field(field) for field in plain}
        values |= {field.name: source.default(field) for field in absent}
        if source.flexible:
            values |= self.tags(tagged)
        self.flush()
        made = source.name("o")
        source.line(f"{made} = new({source.refer('kind', kind)})")
        for name, value in values.items():
            source.line(f"{made}.{name} = {value}")
        return made

    def add_fixed(self, kind: Fixed) -> str:
        """Put a value of fixed size into the run that the next `flush` unpacks at once."""
        name = self.source.name("v")
        self._run.append((kind, name))
        return name

    def flush(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(kind.code for kind, _ in run)
        names = ", ".join(name for _, name in run)
        if codes == "B":
            self.source.line(f"{names} = buf[pos]")
        else:
            self.source.line(f"{names}, = {self.source.layout(codes, 'unpack_from')}(buf, pos)")
        self.source.line(f"pos += {sum(kind.size for kind, _ in run)}")

    def field(self, field: Field) -> str:
        nullable = field.nullable.holds(self.source.version)
        compact = self.source.compact(field)
        if isinstance(field.type, Nested) and nullable:
            return self.nullable_struct(field.type.struct, -1 if field.tag is None else 0)
        return self.value(field.type, field.name, compact, nullable)

    def value(self, kind: WireType, what: str, compact: bool, nullable: bool) -> str:
        if isinstance(kind, Fixed):
            return self.add_fixed(kind)
        if isinstance(kind, Nested):
            return self.struct(kind.struct)
        length = self.length("h" if kind is STRING else "i", compact)
        found = self.source.name("x")
        with self.source.block(f"if {length}:" if compact else f"if {length} >= 0:"):
            if isinstance(kind, Array):
                self.items(kind, found, f"{length} - 1" if compact else length, what, compact)
            else:
                self.sized(kind, found, length, what, compact)
        with self.source.block("else:"):
            self.source.line(f"{found} = None" if nullable else f"raise null({what!r})")
        return found

    def length(self, code: str, compact: bool) -> str:
        """Read a length; the compact form is a varint of length + 1, where 0 means null."""
        if not compact:
            length = self.add_fixed(_LENGTHS[code])
            self.flush()
            return length
        length = self.add_fixed(_BYTE)
        self.flush()
        with self.source.block(f"if {length} > 127:"):
            self.source.line(f"{length}, pos = finish(buf, pos, {length})")
        return length

    def sized(self, kind: Sized, found: str, length: str, what: str, compact: bool) -> None:
        source = self.source
        stop = source.name("stop")
        if compact and kind is STRING and self._limits_strings:
            with source.block(f"if {length} > {LONGEST_STRING + 1}:"):
                source.line(f"raise long({what!r}, {length} - 1)")
        source.line(f"{stop} = pos + {length}{' - 1' if compact else ''}")
        with source.block(f"if {stop} > end:"):
            source.line(f"raise cut({what!r}, {stop}, end)")
        source.line(f"{found} = {_SLICES[kind].format(f'[pos:{stop}]')}")
        source.line(f"pos = {stop}")

    def items(self, kind: Array, found: str, count: str, what: str, compact: bool) -> None:
        source = self.source
        many = source.name("n")
        source.line(f"{many} = {count}")
        with source.block(f"if {many} > (end - pos) // {self.least(kind.of, compact)}:"):
            source.line(f"raise many({what!r}, {many}, pos, end)")
        if self._in_steps:
            source.line(f"left -= {many}")
            with source.block("if left < 0:"):
                source.line(f"raise beyond({what!r}, limit)")
        if isinstance(kind.of, Fixed) and kind.of.code in _INTEGERS:
            source.line(f"{found} = list(all_{kind.of.code}[{many}](buf, pos))")
            source.line(f"pos += {many} * {kind.of.size}")
            return
        source.line(f"{found} = [] if {many} else nothing" if self._in_steps else f"{found} = []")
        with source.block(f"for _ in range({many}):"):
            item = self.value(kind.of, what, compact, False)
            self.flush()
            source.line(f"{found}.append({item})")
            if self._in_steps:
                source.line("yield")

    def nullable_struct(self, kind: type[Struct], null_up_to: int) -> str:
        """Read a byte that says whether the struct is there: 1 if so; null is -1, but 0 in a tag."""
        present = self.add_fixed(_SIGNED_BYTE)
        self.flush()
        found = self.source.name("x")
        with self.source.block(f"if {present} > {null_up_to}:"):
            self.source.line(f"{found} = {self.struct(kind)}")
        with self.source.block("else:"):
            self.source.line(f"{found} = None")
        return found

    def tags(self, known: list[Field]) -> dict[str, str]:
        """Read the known fields of the tag section and skip the others."""
        source = self.source
        count = self.add_fixed(_BYTE)
        self.flush()
        if not known:
            with source.block(f"if {count}:"):
                source.line(f"pos = skip(buf, pos, end, {count})")
            return {}
        values = {field.name: source.name("x") for field in known}
        for field in known:
            source.line(f"{values[field.name]} = {source.default(field)}")
        with source.block(f"if {count}:"):
            self.known_tags(known, values, count)
        return values

    def known_tags(self, known: list[Field], values: dict[str, str], count: str) -> None:
        source = self.source
        stop, tag = source.name("stop"), source.name("tag")
        with source.block(f"if {count} > 127:"):
            source.line(f"{count}, pos = finish(buf, pos, {count})")
        with source.block(f"if {count} > {MAX_TAGS}:"):
            source.line(f"raise many('tagged fields', {count}, pos, end)")
        with source.block(f"for _ in range({count}):"):
            source.line(f"{tag}, pos = read(buf, pos)")
            source.line(f"{stop}, pos = read(buf, pos)")
            source.line(f"{stop} += pos")
            with source.block(f"if {stop} > end:"):
                source.line(f"raise cut('a tagged field', {stop}, end)")
            for field in known:
                with source.block(f"{'if' if field is known[0] else 'elif'} {tag} == {field.tag}:"):
                    found = self.field(field)
                    self.flush()
                    source.line(f"{values[field.name]} = {found}")
            with source.block("else:"):
                source.line(f"pos = {stop}")
            with source.block(f"if pos != {stop}:"):
                source.line(f"raise WireError(f'tagged field {{{tag}}}: not of the size it says')")

    def least(self, kind: WireType, compact: bool) -> int:
        """Return the fewest bytes that such a value takes."""
        if isinstance(kind, Fixed):
            return kind.size
        if isinstance(kind, Nested):
            plain, _, _ = self.source.fields(kind.struct)
            size = sum(self.least_field(field) for field in plain)
            return max(1, size + (1 if self.source.flexible else 0))
        if compact:
            return 1
        return 2 if kind is STRING else 4

    def least_field(self, field: Field) -> int:
        if isinstance(field.type, Nested) and field.nullable.holds(self.source.version):
            return 1
        return self.least(field.type, self.source.compact(field))


_BYTE = Fixed("B", 1)
_SIGNED_BYTE = Fixed("b", 1)
_LENGTHS = {"h": Fixed("h", 2), "i": Fixed("i", 4)}
_SLICES = {STRING: "str(buf{}, 'utf-8')", BYTES: "bytes(buf{})", RECORDS: "view{}"}
