"""The headers of requests and responses."""

from headwater.wire.schema import Struct, i16, i32, since


class RequestHeader(Struct, versions="0-2", flexible="2+"):
    """The header of a request.

    1: client id, never in compact form: a broker must be able to read it before it knows whether
       the version is flexible.
    2: tags; for the flexible versions of a request.
    """

    request_api_key: i16 = 0
    request_api_version: i16 = 0
    correlation_id: i32 = 0
    client_id: str | None = since("1+", default="", ignorable=True, never_compact=True)


class ResponseHeader(Struct, versions="0-1", flexible="1+"):
    """The header of a response.

    1: tags; for the flexible versions, but never for ApiVersions.
    """

    correlation_id: i32 = 0
