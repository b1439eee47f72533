"""Frames: a size, a header, a body.

Functions take and return positions instead of slices: a request is read where it was received.
"""

import struct
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import NamedTuple

from headwater.wire import codec
from headwater.wire.apis import (
    API,
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    request_header_version,
    response_header_version,
)
from headwater.wire.encoder import Encode
from headwater.wire.messages.headers import RequestHeader as HeaderStruct
from headwater.wire.primitives import Buffer, WireError, cut_short, skip_tags
from headwater.wire.schema import Struct
from headwater.wire.versions import NEWEST

MAX_FRAME = 100 * 1024 * 1024
_INT32 = struct.Struct(">i")

_REQUEST_START = struct.Struct(">hhih").unpack_from
_REQUEST_START_SIZE = 10
_CLIENT_ID_SIZE = 2
_CORRELATION_ID = 8
"""Its position in a request, after the size, the key and the version."""
_FLEXIBLE_FROM = {key: api.flexible_from for key, api in API.items()}
_TAGGED_FROM = _FLEXIBLE_FROM | {API_VERSIONS: NEWEST + 1}
"""The first version whose response header has tags: see `response_header_version`."""
_RESPONSE_HEADS = (struct.Struct(">ii"), struct.Struct(">iix"))
_NEW = tuple.__new__


class ParsedRequestHeader(NamedTuple):
    """The header of a request; its body begins at position `body`."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(buf: Buffer, pos: int, end: int) -> ParsedRequestHeader:
    """Read the header of the request in `buf` from `pos` (after the size) to `end`."""
    try:
        key, version, correlation_id, size = _REQUEST_START(buf, pos)
        tagged = version >= _FLEXIBLE_FROM[key]
        pos += _REQUEST_START_SIZE
        client_id = None
        if key == CONTROLLED_SHUTDOWN and version == 0:
            pos -= _CLIENT_ID_SIZE
        elif size >= 0:
            stop = pos + size
            if stop > end:
                raise cut_short("the client id", stop, end)
            client_id = str(buf[pos:stop], "utf-8")
            pos = stop
        if tagged:
            tags = buf[pos]
            pos += 1
            if tags:
                pos = skip_tags(buf, pos, end, tags)
    except KeyError as unknown:
        raise WireError(f"no API has the key {unknown}") from None
    except (struct.error, IndexError, UnicodeDecodeError) as wrong:
        raise WireError(f"a request header: {wrong}") from None
    if pos > end:
        raise cut_short("a request header", pos, end)
    # Runs for every request: this is what ParsedRequestHeader(...) does, without its Python function.
    return _NEW(ParsedRequestHeader, (key, version, correlation_id, client_id, pos))


def response_frame(
    correlation_id: int, api_key: int, version: int, parts: list[Buffer]
) -> list[Buffer]:
    """Return a whole response from a body that is already encoded."""
    head = _RESPONSE_HEADS[response_header_version(api_key, version)]
    size = sum(map(len, parts)) + head.size - _INT32.size
    return [head.pack(size, correlation_id), *parts]


def response(correlation_id: int, version: int, message: Struct) -> list[Buffer]:
    """Return a whole response; size, header and the body's first bytes are one part."""
    pack, encode = _response_writer(type(message), version)
    return _sized(encode(message, pack(0, correlation_id)))


@lru_cache(maxsize=1024)
def _response_writer(
    kind: type[Struct], version: int
) -> tuple[Callable[[int, int], bytes], Encode]:
    """Return the functions that pack the front of a response and encode the rest."""
    head = _RESPONSE_HEADS[response_header_version(_key(kind), version)]
    return head.pack, codec.encoder(kind, version)


def response_in_steps(
    correlation_id: int, version: int, message: Struct
) -> Generator[None, None, list[Buffer]]:
    """`response` as a generator that pauses after each array item of the message."""
    head = _RESPONSE_HEADS[response_header_version(_key(type(message)), version)]
    front = head.pack(0, correlation_id)
    return _sized((yield from codec.encode_in_steps(message, version, front)))


def request(
    version: int, correlation_id: int, client_id: str | None, message: Struct
) -> list[Buffer]:
    """Return a whole request as parts; records are not copied."""
    parts = _sized(
        codec.encode(message, version, _request_head(_key(type(message)), version, client_id))
    )
    _INT32.pack_into(parts[0], _CORRELATION_ID, correlation_id)
    return parts


@lru_cache(maxsize=256)
def _request_head(api_key: int, version: int, client_id: str | None) -> bytes:
    """Return the front of a request, with size and correlation id to be filled in."""
    header = HeaderStruct(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=0,
        client_id=client_id,
    )
    encoded = codec.encode_bytes(header, request_header_version(api_key, version))
    return bytes(_INT32.size) + encoded


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Struct
) -> bytes:
    """Return a whole request in one piece."""
    if api_key != _key(type(message)):
        raise WireError(f"{message.__schema__.name} is not a request of API {api_key}")
    return b"".join(request(version, correlation_id, client_id, message))


def read_response_header(buf: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """Return the correlation id of a response (without its size) and the position of its body."""
    try:
        (correlation_id,) = _INT32.unpack_from(buf)
        pos = _INT32.size
        if version >= _TAGGED_FROM[api_key]:
            tags = buf[pos]
            pos += 1
            if tags:
                pos = skip_tags(buf, pos, len(buf), tags)
    except KeyError as unknown:
        raise WireError(f"no API has the key {unknown}") from None
    except (struct.error, IndexError) as wrong:
        raise WireError(f"a response header: {wrong}") from None
    return correlation_id, pos


def _key(kind: type[Struct]) -> int:
    key = kind.__schema__.api_key
    if key is None:
        raise WireError(f"{kind.__schema__.name} does not belong to an API")
    return key


def _sized(parts: list[Buffer]) -> list[Buffer]:
    """Write the size of all parts into the first four bytes, which are kept free for it."""
    first = parts[0]
    if not isinstance(first, bytearray):
        raise TypeError("the front of a frame must be writable")
    size = len(first) if len(parts) == 1 else sum(map(len, parts))
    _INT32.pack_into(first, 0, size - _INT32.size)
    return parts
