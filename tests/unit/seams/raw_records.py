"""Records of TLS 1.3 that a peer makes by hand, with any content: OpenSSL's peers never send these."""

import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CONTENT = 23
HANDSHAKE = 22
KEY_UPDATE = 24


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label with SHA-384, for no more than one hash."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + b"\0\1"
    return hmac.digest(secret, info, hashlib.sha384)[:size]


class RawRecords:
    """The records of a client whose secrets were written to `keys`: TLS_AES_256_GCM_SHA384."""

    def __init__(self, keys: Path) -> None:
        lines = [line.split() for line in keys.read_text().splitlines()]
        (secret,) = (line[2] for line in lines if line and line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._begin(bytes.fromhex(secret))

    def _begin(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(_expand(secret, b"key", 32))
        self._iv = int.from_bytes(_expand(secret, b"iv", 12))
        self._number = 0

    def record(self, content: bytes, kind: int = CONTENT) -> bytes:
        head = struct.pack(">BHH", CONTENT, 0x0303, len(content) + 17)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return head + self._cipher.encrypt(nonce, content + bytes([kind]), head)

    def key_update(self, *, answered: bool) -> bytes:
        """Change the keys; `answered` asks the server for new ones too."""
        made = self.record(bytes([KEY_UPDATE, 0, 0, 1, answered]), HANDSHAKE)
        self._begin(_expand(self._secret, b"traffic upd", 48))
        return made
