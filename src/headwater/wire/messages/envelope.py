"""Envelope (58): a client's request that one broker passes on to another (KIP-590)."""

from headwater.wire.schema import Struct, i16


class EnvelopeRequest(Struct, api_key=58, versions="0", flexible="0+"):
    """A whole request with its header, and who sent it from where."""

    request_data: bytes = b""
    request_principal: bytes | None = None
    client_host_address: bytes = b""


class EnvelopeResponse(Struct, api_key=58, versions="0", flexible="0+"):
    """The whole response with its header, or why there is none."""

    response_data: bytes | None = None
    error_code: i16 = 0
