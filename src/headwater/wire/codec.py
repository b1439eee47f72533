"""Messages to bytes and back, by functions compiled once per message and version.

`decode` trusts nothing: whatever the bytes are, it returns a message or raises WireError, in time
and memory bounded by the number of bytes. `encode` refuses what a version cannot carry.
"""

from collections.abc import Generator
from typing import Any, TypeVar

from headwater.wire.decoder import Decode, compile_decoder, compile_stepping_decoder
from headwater.wire.encoder import Encode, compile_encoder, compile_stepping_encoder
from headwater.wire.primitives import Buffer as Buffer
from headwater.wire.primitives import WireError as WireError
from headwater.wire.schema import Struct

S = TypeVar("S", bound=Struct)


class _Compiled(dict[tuple[type[Struct], int], Any]):
    """Functions by message and version, each compiled on first use."""

    def __init__(self, compiler: Any) -> None:
        super().__init__()
        self._compiler = compiler

    def __missing__(self, wanted: tuple[type[Struct], int]) -> Any:
        kind, version = wanted
        if not kind.__schema__.versions.holds(version):
            raise WireError(f"{kind.__schema__.name} has no version {version}")
        function = self[wanted] = self._compiler(kind, version)
        return function


_decoders = _Compiled(compile_decoder)
_encoders = _Compiled(compile_encoder)
_stepping_decoders = _Compiled(compile_stepping_decoder)
_stepping_encoders = _Compiled(compile_stepping_encoder)


def decoder(kind: type[Struct], version: int) -> Decode:
    """Return the function (buffer, position, end) -> (message, position after it), for hot paths."""
    found: Decode = _decoders[kind, version]
    return found


def encoder(kind: type[Struct], version: int) -> Encode:
    """Return the function (message, bytes in front) -> parts, for hot paths."""
    found: Encode = _encoders[kind, version]
    return found


def decode(
    kind: type[S], version: int, buf: Buffer, pos: int = 0, end: int | None = None
) -> tuple[S, int]:
    """Return the message at `pos` and the position after it, reading nothing past `end`.

    Records are views of `buf`, not copies.
    """
    message, after = _decoders[kind, version](buf, pos, len(buf) if end is None else end)
    return message, after


def encode(message: Struct, version: int, head: bytes = b"") -> list[Buffer]:
    """Return `head` and the message as parts to send in order; records are not copied."""
    parts: list[Buffer] = _encoders[type(message), version](message, head)
    return parts


def decode_in_steps(
    kind: type[S], version: int, buf: Buffer, pos: int, end: int, limit: int
) -> Generator[None, None, tuple[S, int]]:
    """`decode` as a generator that pauses after each array item and refuses more than `limit`."""
    steps: Generator[None, None, tuple[S, int]] = _stepping_decoders[kind, version](
        buf, pos, end, limit
    )
    return steps


def encode_in_steps(
    message: Struct, version: int, head: bytes = b""
) -> Generator[None, None, list[Buffer]]:
    """`encode` as a generator that pauses after each array item.

    An array may be any iterable with a length, so that its items can be made while the message is
    written.
    """
    steps: Generator[None, None, list[Buffer]] = _stepping_encoders[type(message), version](
        message, head
    )
    return steps


def encode_bytes(message: Struct, version: int) -> bytes:
    """Return the message in one piece."""
    return b"".join(encode(message, version))
