"""The largest request of every API: each list as long as the bytes allow, of names nobody knows.

Built from the schemas, so that an API that is added is measured without being listed here.
"""

from collections.abc import Iterator
from typing import Any

from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.wire import framing
from headwater.wire.apis import Api, advertised
from headwater.wire.fields import Array, Fixed, Nested, Sized
from headwater.wire.schema import Struct

_BATCH = bytes(build_batch([Record(value=b"x")], now=0))


def served() -> Iterator[Api]:
    """Every API that clients may ask for."""
    for api, _, _ in advertised():
        yield api


def largest(api: Api, size: int, *, inner: int = 1) -> bytes:
    """A whole request of about `size` bytes in the newest version.

    The lists inside of lists have `inner` elements: without any, an element costs the fewest bytes.
    """
    version = api.served.highest
    low, high = 1, 2
    while len(_frame(api, version, high, inner)) < size and high < size:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if len(_frame(api, version, middle, inner)) > size:
            high = middle
        else:
            low = middle
    return _frame(api, version, low, inner)


def _frame(api: Api, version: int, count: int, inner: int) -> bytes:
    message = _filled(api.request, version, count, inner)
    return b"".join(framing.request(version, 1, "stalls", message))


def _filled(struct: type[Struct], version: int, count: int, inner: int, number: int = 0) -> Struct:
    """A struct whose lists have `count` elements, with lists of `inner` elements inside."""
    values: dict[str, Any] = {}
    for field in struct.__schema__.fields:
        if not field.versions.holds(version):
            continue
        kind = field.type
        if field.name == "acks":
            values[field.name] = 1  # without, there is no answer
        elif isinstance(kind, Array):
            values[field.name] = [_value(kind.of, version, inner, n) for n in range(count)]
        elif isinstance(kind, Sized) and kind.name == "string":
            values[field.name] = f"n{number}"
        elif isinstance(kind, Sized) and kind.name == "records":
            values[field.name] = _BATCH
    return struct(**values)


def _value(kind: Fixed | Sized | Nested, version: int, inner: int, number: int) -> Any:
    if isinstance(kind, Nested):
        return _filled(kind.struct, version, inner, inner, number)
    if isinstance(kind, Sized):
        return f"n{number}" if kind.name == "string" else b"x"
    return number.to_bytes(kind.size, "big") if kind.code.endswith("s") else number % 100
