"""How two brokers of one cluster prove to each other that they know its secret. Pure.

The brokers of a cluster share a secret of 32 bytes that its first broker put into the metadata
store. Both sides send a fresh nonce; each then proves the secret with an HMAC-SHA256 over its role,
the cluster id, both broker ids and both nonces. A proof is good for one connection and one direction
only, so nothing that was overheard can be sent again. The secret itself is never sent.

The exchange protects against strangers, not against someone who controls the network between two
brokers: it does not encrypt what follows. The bytes travel in SaslAuthenticate requests after a
SaslHandshake for `MECHANISM`, which is not advertised to clients.
"""

import hmac
from dataclasses import dataclass, field
from struct import Struct

from headwater.security.principals import BROKER, Principal
from headwater.security.sasl_exchange import AuthenticationRefused, ServerStep

MECHANISM = "HEADWATER-BROKER"
SECRET_BYTES = 32
NONCE_BYTES = 32
PROOF_BYTES = 32
_VERSION = 1
_HELLO = Struct(f">Bii{NONCE_BYTES}s")


class HandshakeError(AuthenticationRefused):
    """The peer is not a broker of this cluster, or has another id than was expected."""


@dataclass(frozen=True, slots=True)
class BrokerCredentials:
    """Who this broker is to the others of its cluster."""

    broker_id: int
    cluster_id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Transcript:
    cluster_id: str
    caller: int
    callee: int
    caller_nonce: bytes
    callee_nonce: bytes

    def proof(self, secret: bytes, role: bytes) -> bytes:
        text = b"|".join((role, self.cluster_id.encode(), b"%d" % self.caller, b"%d" % self.callee))
        message = len(text).to_bytes(4) + text + self.caller_nonce + self.callee_nonce
        return hmac.digest(secret, message, "sha256")


class CallingBroker:
    """The side that opened the connection."""

    def __init__(self, mine: BrokerCredentials, callee: int, nonce: bytes) -> None:
        self._mine = mine
        self._callee = callee
        self._nonce = nonce
        self._proven = False

    def first(self) -> bytes:
        """Return the hello."""
        return _HELLO.pack(_VERSION, self._mine.broker_id, self._callee, self._nonce)

    def next(self, answer: bytes) -> bytes | None:
        """Check the proof of the other side, and give ours; HandshakeError if theirs is wrong."""
        if self._proven:
            return None
        if len(answer) != NONCE_BYTES + PROOF_BYTES:
            raise HandshakeError("its answer has the wrong size")
        nonce, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
        mine = self._mine
        said = _Transcript(mine.cluster_id, mine.broker_id, self._callee, self._nonce, nonce)
        if not hmac.compare_digest(proof, said.proof(mine.secret, b"callee")):
            raise HandshakeError("it does not know the secret of this cluster")
        self._proven = True
        return said.proof(mine.secret, b"caller")


class CalledBroker:
    """The side that was called."""

    def __init__(self, mine: BrokerCredentials, nonce: bytes) -> None:
        self._mine = mine
        self._nonce = nonce
        self._said: _Transcript | None = None

    def feed(self, token: bytes) -> ServerStep:
        """Answer the hello with a challenge, then check the proof."""
        if self._said is None:
            return ServerStep(self._challenge(token))
        return ServerStep(principal=self._check(self._said, token))

    def _challenge(self, hello: bytes) -> bytes:
        """Our nonce and proof; HandshakeError if the hello is not meant for this broker."""
        if len(hello) != _HELLO.size or hello[0] != _VERSION:
            raise HandshakeError("its first message cannot be read")
        _, caller, callee, nonce = _HELLO.unpack(hello)
        mine = self._mine
        if callee != mine.broker_id:
            raise HandshakeError(f"it wanted broker {callee}, this is broker {mine.broker_id}")
        self._said = _Transcript(mine.cluster_id, caller, callee, nonce, self._nonce)
        return self._nonce + self._said.proof(mine.secret, b"callee")

    def _check(self, said: _Transcript, proof: bytes) -> Principal:
        """The broker that has proven the secret; HandshakeError if it has not."""
        if not hmac.compare_digest(proof, said.proof(self._mine.secret, b"caller")):
            raise HandshakeError("it does not know the secret of this cluster")
        return Principal(BROKER, str(said.caller))
