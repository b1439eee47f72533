"""An identity provider: keys, their JWKS, and tokens, good and forged."""

import json
from base64 import urlsafe_b64encode
from functools import cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

AUDIENCE, ISSUER = "kafka", "https://login.example"
NOW_MS = 1_790_000_000_000
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
_CURVE_NAMES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def encoded(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size=None):
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8))


@cache
def private_key(algorithm, which=0):
    """A key for the algorithm; RSA keys are made once, since they take long."""
    if algorithm[:2] in ("RS", "PS"):
        return private_key("rsa", which)
    if algorithm == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    return {"EdDSA": ed25519.Ed25519PrivateKey, "Ed448": ed448.Ed448PrivateKey}[
        algorithm
    ].generate()


def jwk(kid, algorithm="ES256", which=0, **changed):
    public = private_key(algorithm, which).public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        row = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    elif isinstance(public, ec.EllipticCurvePublicKey):
        numbers, size = public.public_numbers(), (public.key_size + 7) // 8
        row = {
            "kty": "EC",
            "crv": _CURVE_NAMES[algorithm],
            "x": number(numbers.x, size),
            "y": number(numbers.y, size),
        }
    else:
        crv = "Ed25519" if algorithm == "EdDSA" else "Ed448"
        raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        row = {"kty": "OKP", "crv": crv, "x": encoded(raw)}
    return {"kid": kid, **row, **changed}


def jwks(*rows):
    return json.dumps({"keys": rows or [jwk("one")]}).encode()


def sign(algorithm, data, which=0):
    key = private_key(algorithm, which)
    if algorithm in ("EdDSA", "Ed448"):
        return key.sign(data)
    digest = _HASHES[algorithm[2:]]
    if algorithm[:2] == "ES":
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(digest)))
        size = (key.key_size + 7) // 8
        return r.to_bytes(size) + s.to_bytes(size)
    if algorithm[:2] == "PS":
        padded = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
        return key.sign(data, padded, digest)
    return key.sign(data, padding.PKCS1v15(), digest)


def claims(now_ms=NOW_MS, lifetime_s=300, **changed):
    now_s = now_ms // 1000
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + lifetime_s}
    return {name: value for name, value in {**said, **changed}.items() if value is not None}


def token(payload=None, *, algorithm="ES256", kid="one", which=0, signature=None, **header):
    """A signed token; `payload` may be bytes that no JSON library would write."""
    said = {"alg": "EdDSA" if algorithm == "Ed448" else algorithm, "kid": kid, **header}
    said = {name: value for name, value in said.items() if value is not None}
    payload = claims() if payload is None else payload
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    signed = f"{encoded(json.dumps(said).encode())}.{encoded(data)}"
    if signature is None:
        signature = sign(algorithm, signed.encode(), which)
    return f"{signed}.{encoded(signature)}"
