"""Generates the function that writes one version of one message.

The function fills a bytearray. One pack writes adjacent values of fixed size together with the
length of what follows them. Records are not copied: the bytes before them become one part of the
result, the records the next.
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from headwater.wire.fields import (
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Fixed,
    Nested,
    WireType,
)
from headwater.wire.primitives import Buffer, Packers, WireError, is_null, uvarint
from headwater.wire.schema import Struct
from headwater.wire.source import FunctionSource

Encode: TypeAlias = Callable[[Any, bytes], list[Buffer]]
"""(message, bytes in front of it) -> parts."""
EncodeInSteps: TypeAlias = Callable[[Any, bytes], Generator[None, None, list[Buffer]]]
"""The same as a generator that pauses after each item of an array."""


def _cannot_carry(what: str) -> WireError:
    return WireError(f"{what}: this version cannot carry it")


def _wrong_uuid(what: str) -> WireError:
    return WireError(f"{what}: a uuid has 16 bytes")


_INTEGERS = "bhiqHId"
_SCOPE: dict[str, Any] = {
    "uvarint": uvarint,
    "null": is_null,
    "cannot": _cannot_carry,
    "uuid": _wrong_uuid,
    "WireError": WireError,
    "Broken": (struct.error, UnicodeEncodeError, TypeError, AttributeError, OverflowError),
    **{f"all_{code}": Packers("", code, "pack") for code in _INTEGERS},
    **{f"short_{code}": Packers("B", code, "pack") for code in _INTEGERS},
    **{f"long_{code}": Packers("i", code, "pack") for code in _INTEGERS},
}


def compile_encoder(kind: type[Struct], version: int) -> Encode:
    """Compile the writer of `kind` in `version`."""
    return _compile(kind, version, in_steps=False)


def compile_stepping_encoder(kind: type[Struct], version: int) -> EncodeInSteps:
    """Compile the same writer as a generator, for messages that would hold the event loop."""
    return _compile(kind, version, in_steps=True)


def _compile(kind: type[Struct], version: int, *, in_steps: bool) -> Callable[..., Any]:
    source = FunctionSource(
        kind, version, "encode in steps" if in_steps else "encode", dict(_SCOPE)
    )
    writer = _Encoder(source, in_steps)
    with source.block("def encode(m, head):"):
        with source.block("try:"):
            source.line("out = bytearray(head)")
            source.line("parts = []")
            writer.struct(kind, "m")
            writer.flush()
        with source.block("except Broken as wrong:"):
            source.line(f"raise WireError(f'{source.title}: {{wrong}}') from wrong")
        with source.block("if out:"):
            source.line("parts.append(out)")
        source.line("return parts")
        if in_steps:
            source.line("yield")
    return source.function("encode")


def _varint(value: str, size: int) -> list[tuple[str, str]]:
    """Return the bytes of a varint of known size as items of a run."""
    low = [("B", f"{value} >> {7 * at} & 127 | 128") for at in range(size - 1)]
    return [*low, ("B", f"{value} >> {7 * (size - 1)}" if size > 1 else value)]


class _Encoder:
    """Each method generates code that writes one thing, given an expression for it."""

    def __init__(self, source: FunctionSource, in_steps: bool) -> None:
        self.source = source
        self._in_steps = in_steps
        self._run: list[tuple[str, str]] = []
        self._out = "out"

    def struct(self, kind: type[Struct], value: str) -> None:
        plain, tagged, absent = self.source.fields(kind)
        for field in absent:
            if not field.ignorable:
                self.refuse(kind, field, f"{value}.{field.name}")
        for field in plain:
            self.field(field, f"{value}.{field.name}")
        if self.source.flexible:
            self.tags(tagged, value)

    def refuse(self, kind: type[Struct], field: Field, value: str) -> None:
        what = f"{kind.__schema__.name}.{field.name} in {self.source.title}"
        with self.source.block(f"if {self.differs(field, value)}:"):
            self.source.line(f"raise cannot({what!r})")

    def differs(self, field: Field, value: str) -> str:
        """Return an expression that is true if the value is not the field's default."""
        default = self.source.default(field)
        if field.default is None:
            return f"{value} is not None"
        if isinstance(field.default, Struct):
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def put(self, code: str, value: str) -> None:
        """Put a value of fixed size into the run that the next `flush` packs at once."""
        self._run.append((code, value))

    def flush(self) -> None:
        if self._run:
            self.source.line(self.packed(self._run))
        self._run = []

    def packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        if codes == "x":
            return f"{self._out}.append(0)"
        if codes == "B":
            return f"{self._out}.append({run[0][1]})"
        values = ", ".join(value for _, value in run if value)
        return f"{self._out} += {self.source.layout(codes, 'pack')}({values})"

    def field(self, field: Field, value: str) -> None:
        nullable = field.nullable.holds(self.source.version)
        if isinstance(field.type, Nested) and nullable:
            self.nullable_struct(field.type.struct, value, 255 if field.tag is None else 0)
        else:
            self.value(field.type, value, field.name, self.source.compact(field), nullable)

    def value(self, kind: WireType, value: str, what: str, compact: bool, nullable: bool) -> None:
        if isinstance(kind, Fixed):
            self.fixed(kind, value, what)
        elif isinstance(kind, Nested):
            self.local_struct(kind.struct, value)
        elif isinstance(kind, Array):
            self.items(kind, value, what, compact, nullable)
        elif kind is RECORDS:
            self.records(value, compact)
        else:
            body = "{}.encode()" if kind is STRING else "{}"
            code = "h" if kind is STRING else "i"
            content, length = self.measured(value, body, "b''", compact, nullable)
            self.length(code, length, compact)
            self.source.line(f"{self._out} += {content}")

    def fixed(self, kind: Fixed, value: str, what: str) -> None:
        if kind is UUID:
            with self.source.block(f"if len({value}) != 16:"):
                self.source.line(f"raise uuid({what!r})")
        self.put(kind.code, value)

    def local_struct(self, kind: type[Struct], value: str) -> None:
        local = self.source.name("s")
        self.source.line(f"{local} = {value}")
        self.struct(kind, local)

    def measured(
        self, value: str, body: str, nothing: str, compact: bool, nullable: bool
    ) -> tuple[str, str]:
        """Variables for what will be written and for its length as it will be written."""
        source = self.source
        content, length = source.name("x"), source.name("n")
        more = " + 1" if compact else ""
        if not nullable:
            source.line(f"{content} = {body.format(value)}")
            source.line(f"{length} = len({content}){more}")
            return content, length
        source.line(f"{content} = {value}")
        with source.block(f"if {content} is None:"):
            source.line(f"{content} = {nothing}")
            source.line(f"{length} = {0 if compact else -1}")
        with source.block("else:"):
            if body != "{}":
                source.line(f"{content} = {body.format(content)}")
            source.line(f"{length} = len({content}){more}")
        return content, length

    def length(self, code: str, length: str, compact: bool, common: int = 1) -> None:
        """End the run with a length; a varint of up to `common` bytes is part of the run's pack."""
        source = self.source
        if not compact:
            self.put(code, length)
            self.flush()
            return
        for size in range(1, common + 1):
            with source.block(f"{'if' if size == 1 else 'elif'} {length} < {1 << 7 * size}:"):
                source.line(self.packed([*self._run, *_varint(length, size)]))
        with source.block("else:"):
            self.flush()
            source.line(f"{self._out} += uvarint({length})")

    def items(self, kind: Array, value: str, what: str, compact: bool, nullable: bool) -> None:
        items, count = self.measured(value, "{}", "()", compact, nullable)
        if isinstance(kind.of, Fixed) and kind.of.code in _INTEGERS:
            self.integers(kind.of.code, items, count, compact)
            return
        self.length("i", count, compact)
        item = self.source.name("item")
        with self.source.block(f"for {item} in {items}:"):
            if isinstance(kind.of, Nested):
                self.struct(kind.of.struct, item)
            else:
                self.value(kind.of, item, what, compact, False)
            self.flush()
            if self._in_steps:
                self.source.line("yield")

    def integers(self, code: str, items: str, count: str, compact: bool) -> None:
        """Write an array of numbers with one pack: the count and all items."""
        source = self.source
        self.flush()
        if not compact:
            source.line(f"{self._out} += long_{code}[len({items})]({count}, *{items})")
            return
        with source.block(f"if {count} < 128:"):
            source.line(f"{self._out} += short_{code}[len({items})]({count}, *{items})")
        with source.block("else:"):
            source.line(f"{self._out} += uvarint({count})")
            source.line(f"{self._out} += all_{code}[len({items})](*{items})")

    def records(self, value: str, compact: bool) -> None:
        source = self.source
        content, length = source.name("x"), source.name("n")
        source.line(f"{content} = {value}")
        with source.block(f"if {content} is None:"):
            source.line(f"{length} = -1")
        with source.block(f"elif type({content}) is list:"):
            source.line(f"{length} = sum(map(len, {content}))")
        with source.block("else:"):
            source.line(f"{length} = len({content})")
        if compact:
            source.line(f"{length} += 1")
        self.length("i", length, compact, common=3)
        with source.block(f"if {length} > {1 if compact else 0}:"):
            source.line("parts.append(out)")
            with source.block(f"if type({content}) is list:"):
                source.line(f"parts += {content}")
            with source.block("else:"):
                source.line(f"parts.append({content})")
            source.line("out = bytearray()")

    def nullable_struct(self, kind: type[Struct], value: str, null: int) -> None:
        """Write a byte that says whether the struct is there: 1 if so; null is -1, but 0 in a tag."""
        self.flush()
        with self.source.block(f"if {value} is None:"):
            self.source.line(f"{self._out}.append({null})")
        with self.source.block("else:"):
            self.put("b", "1")
            self.local_struct(kind, value)
            self.flush()

    def tags(self, known: list[Field], value: str) -> None:
        """Write the tag section: almost always one zero byte, which then ends the run."""
        if not known:
            self.put("x", "")
            return
        source = self.source
        held = {field.tag: source.name("t") for field in known}
        for field in known:
            source.line(f"{held[field.tag]} = {value}.{field.name}")
        changed = {field.tag: source.name("c") for field in known}
        for field in known:
            source.line(f"{changed[field.tag]} = {self.differs(field, held[field.tag])}")
        run = self._run
        with source.block(f"if {' or '.join(changed.values())}:"):
            self.flush()
            self.changed_tags(known, held, changed)
        self._run = [*run, ("x", "")]
        with source.block("else:"):
            self.flush()

    def changed_tags(
        self, known: list[Field], held: dict[int | None, str], changed: dict[int | None, str]
    ) -> None:
        source = self.source
        outer, section, count = self._out, source.name("section"), source.name("n")
        source.line(f"{section} = bytearray()")
        source.line(f"{count} = 0")
        for field in known:
            with source.block(f"if {changed[field.tag]}:"):
                self._out = source.name("body")
                source.line(f"{self._out} = bytearray()")
                self.field(field, held[field.tag])
                self.flush()
                assert field.tag is not None
                source.line(f"{section} += {uvarint(field.tag)!r} + uvarint(len({self._out}))")
                source.line(f"{section} += {self._out}")
                source.line(f"{count} += 1")
        self._out = outer
        source.line(f"{outer} += uvarint({count})")
        source.line(f"{outer} += {section}")
