"""What is read of an X.509 certificate: its subject as Kafka writes it, its names and its dates. Pure.

TLS has verified the certificate before; this only reads fields of the DER form. Java's RFC 2253 text
is what `ssl.principal.mapping.rules`, ACLs and `super.users` refer to: the last part of the subject
comes first, and every character with a meaning is escaped, so that no value can look like another
part.
"""

import ipaddress
from base64 import b64decode
from collections.abc import Iterator
from typing import NamedTuple

_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_CHARSETS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_SPECIAL = frozenset(',=+<>#;"\\')
_SUBJECT_ALT_NAME = "2.5.29.17"
_EXTENSIONS = 0xA3
_VERSION = 0xA0
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class CertificateError(ValueError):
    """The bytes are not a certificate."""


class Certificate(NamedTuple):
    """The fields of a certificate that are used."""

    subject: str
    """In the form of RFC 2253, as Java prints it."""
    names: frozenset[str]
    """The subject alternative names: `DNS:name` and `IP:hex`."""
    not_before: str
    not_after: str
    """Both as YYYYMMDDHHMMSSZ, which sorts by time."""


class _Value(NamedTuple):
    tag: int
    start: int
    """Where the value with its tag and length starts."""
    body: int
    end: int


def parse_certificate(der: bytes) -> Certificate:
    """Read a certificate in its DER form."""
    try:
        (certificate,) = _values(der, 0, len(der))
        fields = list(_values(der, *next(_values(der, *certificate[2:]))[2:]))
        if fields[0].tag == _VERSION:
            fields = fields[1:]
        _serial, _algorithm, _issuer, validity, subject, _key, *rest = fields
        begins, ends = (_time(der, at) for at in _values(der, *validity[2:]))
        extensions = next((at for at in rest if at.tag == _EXTENSIONS), None)
        names = frozenset(_alternative_names(der, extensions) if extensions else ())
        return Certificate(_subject_text(der, subject), names, begins, ends)
    except (ValueError, IndexError, StopIteration) as problem:
        raise CertificateError(f"this is not a certificate: {problem}") from None


def shown_name(name: str) -> str:
    """Return a name of `Certificate.names` as people write it: a host name or an address."""
    kind, _, value = name.partition(":")
    try:
        return value if kind == "DNS" else str(ipaddress.ip_address(bytes.fromhex(value)))
    except ValueError:
        return name


def certificates_of(pem: str) -> list[bytes]:
    """Return the DER forms of the certificates in a PEM text, in order."""
    found = []
    for part in pem.split(_BEGIN)[1:]:
        body, end, _ = part.partition(_END)
        if not end:
            raise CertificateError("a certificate has no end line")
        found.append(b64decode("".join(body.split()), validate=True))
    return found


def _values(der: bytes, start: int, end: int) -> Iterator[_Value]:
    at = start
    while at < end:
        length, body = der[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length is not in DER form")
            length, body = int.from_bytes(der[body : body + count]), body + count
        if body + length > end:
            raise ValueError("a value is longer than its container")
        yield _Value(der[at], at, body, body + length)
        at = body + length


def _time(der: bytes, at: _Value) -> str:
    text = der[at.body : at.end].decode("ascii")
    if at.tag == 0x17:  # UTCTime: two digits of the year, from 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    return text


def _oid(der: bytes, at: _Value) -> str:
    numbers, number = [], 0
    for byte in der[at.body : at.end]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _subject_text(der: bytes, subject: _Value) -> str:
    parts = [
        "+".join(_attribute_text(der, pair) for pair in _values(der, *relative[2:]))
        for relative in _values(der, *subject[2:])
    ]
    return ",".join(reversed(parts))


def _attribute_text(der: bytes, pair: _Value) -> str:
    kind, value = _values(der, *pair[2:])
    name = _NAMES.get(_oid(der, kind))
    charset = _CHARSETS.get(value.tag)
    if name is None or charset is None:
        return f"{name or _oid(der, kind)}=#{der[value.start : value.end].hex()}"
    return f"{name}={_escaped(der[value.body : value.end].decode(charset))}"


def _escaped(text: str) -> str:
    inner = text.strip(" \r")
    start = text.find(inner) if inner else len(text)
    after = start + len(inner)
    marked = "".join(
        f"\\{one}" if one in _SPECIAL else "\\00" if one == "\0" else one for one in inner
    )
    lead = "".join(f"\\{one}" for one in text[:start])
    return lead + marked + "".join(f"\\{one}" for one in text[after:])


def _alternative_names(der: bytes, extensions: _Value) -> Iterator[str]:
    (sequence,) = _values(der, *extensions[2:])
    for extension in _values(der, *sequence[2:]):
        parts = list(_values(der, *extension[2:]))
        if _oid(der, parts[0]) != _SUBJECT_ALT_NAME:
            continue
        (names,) = _values(der, *parts[-1][2:])
        for name in _values(der, *names[2:]):
            content = der[name.body : name.end]
            if name.tag == 0x82:
                yield f"DNS:{content.decode('ascii').lower()}"
            elif name.tag == 0x87:
                yield f"IP:{content.hex()}"
