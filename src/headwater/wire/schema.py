"""Messages as typed classes: one declaration serves every version of a message.

    class HeartbeatRequest(Struct, api_key=12, versions="0-4", flexible="4+"):
        group_id: str = ""
        generation_id: i32 = 0
        group_instance_id: str | None = since("3+", default=None)

A declaration says what is on the wire, not how to read it: `codec` compiles it, `interpreter` walks
it. Objects are plain data with slots, constructed by keyword; every field has a default.
"""

import sys
from collections.abc import Callable
from functools import cached_property
from typing import (
    Annotated,
    Any,
    ClassVar,
    NoReturn,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from headwater.wire.fields import (
    ALWAYS,
    BOOL,
    BYTES,
    EMPTY,
    NEVER,
    RECORDS,
    STRING,
    Array,
    Declared,
    Field,
    Nested,
    Records,
    Uuid,
    WireType,
    f64,
    i8,
    i16,
    i32,
    i64,
    since,
    u16,
    u32,
)
from headwater.wire.versions import Versions

__all__ = [
    "EMPTY",
    "Records",
    "Struct",
    "Uuid",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "since",
    "u16",
    "u32",
]

_PLAIN: dict[Any, WireType] = {bool: BOOL, str: STRING, bytes: BYTES}


_CONFIG_CHANGES = (19, 33, 44)
"""CreateTopics, AlterConfigs, IncrementalAlterConfigs."""


class Schema:
    """What a Struct declares. A nested struct has the version and flexibility of its message."""

    def __init__(
        self,
        owner: "type[Struct]",
        versions: Versions,
        flexible: Versions,
        api_key: int | None,
        record_type: int | None,
    ) -> None:
        self.owner = owner
        self.name = owner.__qualname__
        self.versions = versions
        self.flexible = flexible
        self.api_key = api_key
        self.record_type = record_type

    @property
    def limits_strings(self) -> bool:
        """Whether its strings are as short as Kafka's: a long one in a request holds the event loop.

        Values of configs may be longer, and answers and records have all that was ever accepted.
        """
        return self.name.endswith("Request") and self.api_key not in _CONFIG_CHANGES

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields in wire order; computed on first use, since an annotation may name a later class."""
        names = vars(sys.modules[self.owner.__module__])
        return tuple(_field(*declared, names) for declared in self.owner.__declared__)


def _annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a class body, which newer Pythons keep as a function."""
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return {}
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.VALUE)
    found: dict[str, Any] = namespace.get("__annotations__", {})
    return found


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
class StructType(type):
    """Gives each struct slots for its annotated fields, and keeps the defaults in `__declared__`."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> "StructType":
        """Make the class."""
        fields = {
            field: annotation
            for field, annotation in _annotations(namespace).items()
            if get_origin(annotation) is not ClassVar
        }
        namespace["__declared__"] = [(f, a, namespace.pop(f)) for f, a in fields.items()]
        namespace["__slots__"] = tuple(fields)
        return super().__new__(mcls, name, bases, namespace, **options)

    def __init__(cls, name: str, bases: Any, namespace: Any, **options: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructType):
    """A message, or a part of one. Equal when all fields are."""

    __schema__: ClassVar[Schema]
    __declared__: ClassVar[list[tuple[str, Any, Any]]]

    def __init_subclass__(
        cls,
        *,
        api_key: int | None = None,
        record_type: int | None = None,
        versions: str = "0+",
        flexible: str = "none",
    ) -> None:
        super().__init_subclass__()
        valid, compact = Versions.parse(versions), Versions.parse(flexible)
        cls.__schema__ = Schema(cls, valid, compact, api_key, record_type)

    def __init__(self, **values: Any) -> None:
        # Generated for the first object of a class: most classes never have one.
        kind: Any = type(self)
        kind.__init__ = _make_init(self.__schema__)
        kind.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.__schema__ is not other.__schema__:
            return NotImplemented
        for field in self.__schema__.fields:
            if getattr(self, field.name) != getattr(other, field.name):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = [f"{f.name}={getattr(self, f.name)!r}" for f in self.__schema__.fields]
        return f"{self.__schema__.name}({', '.join(values)})"


def _field(name: str, annotation: Any, value: Any, names: dict[str, Any]) -> Field:
    """Make a field from its annotation and its default."""
    declared = value if isinstance(value, Declared) else Declared(default=value)
    if isinstance(annotation, str):
        annotation = eval(annotation, names)
    wire_type, may_be_none = _wire_type(annotation)
    nullable = declared.nullable or (ALWAYS if may_be_none else NEVER)
    default = declared.default
    if default is EMPTY:
        default = _read_only(cast(Nested, wire_type).struct())
    return Field(
        name,
        wire_type,
        default,
        declared.versions,
        nullable,
        declared.tag,
        declared.ignorable,
        declared.never_compact,
    )


def _wire_type(annotation: Any) -> tuple[WireType, bool]:
    """Return the wire type of an annotation, and whether it allows None."""
    if annotation in _PLAIN:
        return _PLAIN[annotation], False
    if isinstance(annotation, StructType):
        return Nested(cast("type[Struct]", annotation)), False
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return arguments[1], arguments[1] is RECORDS
    if origin is list:
        return Array(cast(Any, _wire_type(arguments[0])[0])), False
    if len(arguments) == 2 and arguments[1] is type(None):
        return _wire_type(arguments[0])[0], True
    raise TypeError(f"no wire type for {annotation!r}")


def _read_only(default: Struct) -> Struct:
    """Make a struct read-only, so that all objects can share it as a default."""
    kind: Any = type(default)

    def refuse(self: Struct, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a shared default: assign a new {kind.__name__} instead")

    frozen: Any = StructType(
        kind.__name__, (kind,), {"__setattr__": refuse, "__qualname__": kind.__qualname__}
    )
    frozen.__schema__ = kind.__schema__
    default.__class__ = frozen
    return default


def _make_init(schema: Schema) -> Callable[..., None]:
    """Generate an `__init__` with one keyword per field."""
    scope: dict[str, Any] = {"_new": object()}
    parameters, body = [], []
    for field in schema.fields:
        name = field.name
        if type(field.default) is list:
            parameters.append(f"{name}=_new")
            body.append(f"self.{name} = [] if {name} is _new else {name}")
        else:
            scope[f"_{name}"] = field.default
            parameters.append(f"{name}=_{name}")
            body.append(f"self.{name} = {name}")
    head = (
        f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"
    )
    exec("\n    ".join([head, *(body or ["pass"])]), scope)
    return cast("Callable[..., None]", scope["__init__"])
