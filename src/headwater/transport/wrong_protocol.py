"""What two ends say to each other if one of them uses TLS and the other does not.

A listener without TLS answers a handshake with an alert of TLS, and a listener with TLS answers the
first request of a plain client with an error: both clients can then tell it from a broker that went
away. Bytes in, bytes out.
"""

from struct import Struct

from headwater.config.keys import ConfigError
from headwater.errors import E
from headwater.wire.apis import API_VERSIONS
from headwater.wire.framing import response
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

HANDSHAKE = 0x1603
"""The first two bytes of a TLS handshake; a plain listener reads them as the start of a frame size."""
NO_TLS_HERE = bytes.fromhex("1503030002020a")
"""A fatal alert: unexpected message."""
NO_TLS_REASON = "SSLV3_ALERT_UNEXPECTED_MESSAGE"
"""What OpenSSL calls that alert."""
_ALERT = b"\x15\x03"
_REQUEST = Struct(">ihhi")


def tls_needed_answer(request: bytes) -> bytes:
    """Return how a listener with TLS answers the first bytes of a plain client; nothing if unclear."""
    if len(request) < _REQUEST.size:
        return b""
    size, key, version, correlation_id = _REQUEST.unpack_from(request)
    if key != API_VERSIONS or not 0 < size <= len(request) - 4:
        return b""
    if not 0 <= version <= ApiVersionsRequest.__schema__.versions.highest:
        return b""
    refusal = ApiVersionsResponse(error_code=E.INVALID_CONFIG)
    return b"".join(response(correlation_id, version, refusal))


def is_alert(received: bytes) -> bool:
    """Return whether the start of an answer is an alert of TLS: how Kafka's TLS listeners answer."""
    return received[:2] == _ALERT


def tls_needed(address: str) -> ConfigError:
    """Return the error of a plain client that came to a listener with TLS."""
    return ConfigError(
        f"the listener on {address} speaks only TLS: set security.protocol=SSL, or SASL_SSL if users "
        "log in there"
    )


def no_tls_there(address: str) -> ConfigError:
    """Return the error of a client with TLS that came to a listener without."""
    return ConfigError(
        f"the listener on {address} speaks no TLS: connect to the port of a listener with TLS, or "
        "set security.protocol=PLAINTEXT (SASL_PLAINTEXT if users log in) on a network you trust"
    )
