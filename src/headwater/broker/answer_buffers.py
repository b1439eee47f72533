"""What a connection needs to send buffers through TLS, and to count them."""

from ssl import SSLCertVerificationError, SSLError

from headwater.log.slices import SliceStream
from headwater.seams.accepting import NotTlsError
from headwater.seams.files import Buffer

TLS_RECORD_BYTES = 16 * 1024
"""The most bytes of one TLS record."""


def handshake_failure(failure: Exception, protocol: str) -> str:
    """Return a sentence that says why a connection ended during its setup."""
    if isinstance(failure, SSLCertVerificationError):
        return f"its certificate is not accepted: {failure.verify_message}"
    if isinstance(failure, NotTlsError):
        return f"{failure}: the client needs security.protocol={protocol}"
    if isinstance(failure, SSLError) and failure.reason:
        return f"the TLS handshake failed: {failure.reason.lower().replace('_', ' ')}"
    return str(failure) or "the peer went away during the TLS handshake"


def joined(buffers: list[Buffer]) -> list[Buffer]:
    """Return the buffers with small ones put together: TLS makes a record of each."""
    parts: list[Buffer] = []
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if size + len(buffer) > TLS_RECORD_BYTES:
            parts += [b"".join(small)] if len(small) > 1 else small
            small, size = [], 0
        if len(buffer) >= TLS_RECORD_BYTES:
            parts.append(buffer)
        else:
            small.append(buffer)
            size += len(buffer)
    return parts + ([b"".join(small)] if len(small) > 1 else small)


def own_bytes(buffers: list[Buffer]) -> int:
    """Return the bytes of a response in this process's memory, without page cache and disk."""
    return sum(
        len(buffer) for buffer in buffers if not isinstance(buffer, (memoryview, SliceStream))
    )
