"""Field types of the wire, their names in annotations, and `since`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast

from headwater.wire.versions import Versions

if TYPE_CHECKING:
    from headwater.wire.schema import Struct

T = TypeVar("T")
ALWAYS = Versions.parse("0+")
NEVER = Versions.parse("none")
OWN_TAGS = 1000
"""Tags from here on are not Kafka's: brokers of this kind pass them on, others skip them."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A type of one size: `code` is its letter in the struct module."""

    code: str
    size: int


@dataclass(frozen=True, slots=True)
class Sized:
    """A type with a length in front: "string", "bytes" or "records"."""

    name: str


@dataclass(frozen=True, slots=True)
class Array:
    """A counted run of one type."""

    of: "Fixed | Sized | Nested"


@dataclass(frozen=True, slots=True)
class Nested:
    """A struct inside a struct."""

    struct: "type[Struct]"


WireType: TypeAlias = Fixed | Sized | Array | Nested

BOOL = Fixed("?", 1)
UUID = Fixed("16s", 16)
STRING = Sized("string")
BYTES = Sized("bytes")
RECORDS = Sized("records")

i8: TypeAlias = Annotated[int, Fixed("b", 1)]
i16: TypeAlias = Annotated[int, Fixed("h", 2)]
i32: TypeAlias = Annotated[int, Fixed("i", 4)]
i64: TypeAlias = Annotated[int, Fixed("q", 8)]
u16: TypeAlias = Annotated[int, Fixed("H", 2)]
u32: TypeAlias = Annotated[int, Fixed("I", 4)]
f64: TypeAlias = Annotated[float, Fixed("d", 8)]
Uuid: TypeAlias = Annotated[bytes, UUID]
# Read as a view of the input; written from any buffer or list of buffers. A union type would burden
# every reader, hence the Any.
Records: TypeAlias = Annotated[memoryview | Any | None, RECORDS]

# The default of a struct field: one struct with its own defaults, which all objects share and
# none can assign to (its lists, where it has any, are not to be filled either).
EMPTY: Any = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its type, and in which versions it is present, nullable or tagged."""

    name: str
    type: WireType
    default: Any
    versions: Versions = ALWAYS
    nullable: Versions = NEVER
    tag: int | None = None
    ignorable: bool = False
    never_compact: bool = False

    def fresh(self) -> Any:
        """Return the default; a new list each time if it is a list."""
        return [] if type(self.default) is list else self.default


@dataclass(frozen=True, slots=True)
class Declared:
    """The arguments of `since`, kept until the class is made."""

    default: Any
    versions: Versions = ALWAYS
    nullable: Versions | None = None
    tag: int | None = None
    ignorable: bool = False
    never_compact: bool = False


def since(
    versions: str = "0+",
    *,
    default: T,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    never_compact: bool = False,
) -> T:
    """Declare a field that not every version has, or that has more to it than its type.

    Args:
        versions: those that carry the field.
        default: its value when absent. Each object gets its own empty list; EMPTY, for a struct, is
            one with its own defaults, shared and read-only.
        nullable: the versions that allow None, if not all of them.
        tag: its number in the tag section, where it is written only if it is not the default.
        ignorable: a version that lacks the field drops a value without an error.
        never_compact: keeps the old length prefix in flexible versions.
    """
    declared = Declared(
        default,
        Versions.parse(versions),
        Versions.parse(nullable) if nullable else None,
        tag,
        ignorable,
        never_compact,
    )
    return cast(T, declared)
