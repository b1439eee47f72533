"""The keys of an identity provider (a JSON Web Key Set), and signatures of tokens. Pure.

Only public keys are taken, each for the algorithms that fit it: an HMAC over the text of a public
key, or an RSA key for an elliptic curve, never verifies. This module needs the extra `security`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from headwater.security.bearer_tokens import MAX_ID_CHARS, decoded
from headwater.security.strict_json import parse_object

MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
MAX_KEYS = 1000
MAX_KEYS_OF_ONE_ID = 4

_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: dict[str, tuple[str, ec.EllipticCurve]] = {
    "P-256": ("ES256", ec.SECP256R1()),
    "P-384": ("ES384", ec.SECP384R1()),
    "P-521": ("ES512", ec.SECP521R1()),
}
_PRIVATE_MEMBERS = ("d", "p", "q", "k")

Verify = Callable[[bytes, bytes], None]
"""Takes a signature and what it signs; raises InvalidSignature."""


class BadKey(ValueError):
    """A key that cannot verify tokens."""


class SigningKey(NamedTuple):
    """What one key of the set verifies, by algorithm."""

    verify: Mapping[str, Verify]


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys by `kid`, and how many of the set are not usable."""

    keys: Mapping[str, tuple[SigningKey, ...]]
    unusable: int = 0

    def verifies(self, kid: str, algorithm: str, signature: bytes, signed: bytes) -> bool:
        """Return whether a key called `kid` that fits the algorithm made the signature."""
        for key in self.keys.get(kid, ()):
            verify = key.verify.get(algorithm)
            if verify is None:
                continue
            try:
                verify(signature, signed)
            except (InvalidSignature, ValueError):
                continue
            return True
        return False

    def fits(self, kid: str, algorithm: str) -> bool:
        """Return whether a key called `kid` can be used with the algorithm."""
        return any(algorithm in key.verify for key in self.keys.get(kid, ()))


def parse_key_set(data: bytes) -> KeySet:
    """Parse a JWKS; ValueError if it is not one, or has no usable key.

    A key that is not for signatures, lacks a `kid` or is of an unknown type is left out.
    """
    rows = parse_object(data).get("keys")
    if not isinstance(rows, list):
        raise BadKey('has no list "keys"')
    if len(rows) > MAX_KEYS:
        raise ValueError(f"has more than {MAX_KEYS} keys")
    keys: dict[str, tuple[SigningKey, ...]] = {}
    unusable = 0
    for row in rows:
        try:
            kid, key = _parse_key(row)
            if len(keys.get(kid, ())) == MAX_KEYS_OF_ONE_ID:
                raise BadKey("has a kid that others have")
        except (ValueError, UnsupportedAlgorithm):
            unusable += 1
        else:
            keys[kid] = (*keys.get(kid, ()), key)
    if not keys:
        raise ValueError(f"has no usable key among {len(rows)}")
    return KeySet(keys, unusable)


def _parse_key(row: Any) -> tuple[str, SigningKey]:
    if not isinstance(row, dict):
        raise BadKey("is not an object")
    kid = row.get("kid")
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_ID_CHARS:
        raise BadKey("has no kid")
    if any(name in row for name in _PRIVATE_MEMBERS):
        raise BadKey("is secret")
    if row.get("use", "sig") != "sig":
        raise BadKey("is not for signatures")
    if "key_ops" in row and (
        not isinstance(row["key_ops"], list) or "verify" not in row["key_ops"]
    ):
        raise BadKey("is not for signatures")
    parse = _PARSERS.get(_text(row, "kty"))
    if parse is None:
        raise BadKey("has an unknown type")
    verify = parse(row)
    if "alg" in row:
        verify = {name: check for name, check in verify.items() if name == row["alg"]}
    if not verify:
        raise BadKey("does not fit its algorithm")
    return kid, SigningKey(verify)


def _rsa(row: Mapping[str, Any]) -> dict[str, Verify]:
    modulus, exponent = _number(row, "n", MAX_RSA_BITS), _number(row, "e", 32)
    if modulus.bit_length() < MIN_RSA_BITS:
        raise BadKey("is too short")
    key = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    checks: dict[str, Verify] = {}
    for size, digest in _HASHES.items():
        pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
        checks[f"RS{size}"] = partial(_verify_rsa, key, padding.PKCS1v15(), digest)
        checks[f"PS{size}"] = partial(_verify_rsa, key, pss, digest)
    return checks


def _verify_rsa(
    key: rsa.RSAPublicKey,
    padded: padding.AsymmetricPadding,
    digest: hashes.HashAlgorithm,
    signature: bytes,
    signed: bytes,
) -> None:
    key.verify(signature, signed, padded, digest)


def _elliptic(row: Mapping[str, Any]) -> dict[str, Verify]:
    found = _CURVES.get(_text(row, "crv"))
    if found is None:
        raise BadKey("has an unknown curve")
    algorithm, curve = found
    x, y = (_number(row, name, curve.key_size) for name in ("x", "y"))
    key = ec.EllipticCurvePublicNumbers(x, y, curve).public_key()  # refuses a point off the curve
    return {algorithm: partial(_verify_elliptic, key, _HASHES[algorithm[2:]])}


def _verify_elliptic(
    key: ec.EllipticCurvePublicKey, digest: hashes.HashAlgorithm, signature: bytes, signed: bytes
) -> None:
    size = (key.curve.key_size + 7) // 8
    if len(signature) != 2 * size:
        raise InvalidSignature
    r, s = int.from_bytes(signature[:size]), int.from_bytes(signature[size:])
    key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))


def _edwards(row: Mapping[str, Any]) -> dict[str, Verify]:
    curve, point = _text(row, "crv"), decoded(_text(row, "x"))
    if curve == "Ed25519":
        return {"EdDSA": ed25519.Ed25519PublicKey.from_public_bytes(point).verify}
    if curve == "Ed448":
        return {"EdDSA": ed448.Ed448PublicKey.from_public_bytes(point).verify}
    raise BadKey("has an unknown curve")


_PARSERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Verify]]] = {
    "RSA": _rsa,
    "EC": _elliptic,
    "OKP": _edwards,
}


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise BadKey(f"has no {name}")
    return value


def _number(row: Mapping[str, Any], name: str, max_bits: int) -> int:
    number = int.from_bytes(decoded(_text(row, name)))
    if number.bit_length() > max_bits:
        raise BadKey(f"has a {name} that is too large")
    return number
