"""The subject of a certificate, as Java writes it; its names and dates.

The texts are what `X500Principal.getName()` of Java 17 gives for the same subjects.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.certificates import (
    CertificateError,
    certificates_of,
    parse_certificate,
)

CN, OU, ORG, C = "550403", "55040b", "55040a", "550406"
EMAIL, SERIAL, UID, DC = (
    "2a864886f70d010901",
    "550405",
    "0992268993f22c640101",
    "0992268993f22c640119",
)
UTF8, PRINTABLE, IA5 = 0x0C, 0x13, 0x16


def value(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2)
    return bytes([tag]) + length + body


def attribute(oid: str, text: str, tag: int = UTF8) -> bytes:
    return value(0x30, value(0x06, bytes.fromhex(oid)), value(tag, text.encode()))


def certificate(*relatives: bytes, names: bytes = b"") -> bytes:
    """A certificate with this subject, each part a set of attributes."""
    subject = value(0x30, *(value(0x31, part) for part in relatives))
    dates = value(0x30, value(0x17, b"260101000000Z"), value(0x18, b"20510203040506Z"))
    fields = [value(0x02, b"\x01"), value(0x30), value(0x30), dates, subject, value(0x30)]
    if names:
        extension = value(0x30, value(0x06, b"\x55\x1d\x11"), value(0x04, value(0x30, names)))
        fields.append(value(0xA3, value(0x30, extension)))
    version = value(0xA0, value(0x02, b"\x02"))
    return value(0x30, value(0x30, version, *fields), value(0x30), value(0x03, b"\x00"))


@pytest.mark.parametrize(
    ("relatives", "text"),
    [
        (
            [attribute(C, "CH", PRINTABLE), attribute(ORG, "Attack Lab"), attribute(OU, "lab"),
             attribute(CN, "alice")],
            "CN=alice,OU=lab,O=Attack Lab,C=CH",
        ),
        (
            [attribute(ORG, "x"), attribute(CN, 'a,OU=b+c<d>"e;f#g=h\\i')],
            'CN=a\\,OU\\=b\\+c\\<d\\>\\"e\\;f\\#g\\=h\\\\i,O=x',
        ),
        ([attribute(CN, " lead and trail ")], "CN=\\ lead and trail\\ "),
        ([attribute(CN, "zoë")], "CN=zoë"),
        ([attribute(SERIAL, "12", PRINTABLE), attribute(EMAIL, "a@b.c", IA5)],
         "1.2.840.113549.1.9.1=#16056140622e63,2.5.4.5=#13023132"),
        ([attribute(ORG, "m"), attribute(CN, "one") + attribute(UID, "two")], "CN=one+UID=two,O=m"),
        ([attribute(DC, "org", IA5), attribute(DC, "example", IA5)], "DC=example,DC=org"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_does(relatives, text):
    assert parse_certificate(certificate(*relatives)).subject == text


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=3))
def test_no_value_can_look_like_another_part(texts):
    subject = parse_certificate(certificate(*(attribute(CN, text) for text in texts))).subject
    unescaped = subject.replace("\\\\", "").replace("\\,", "").replace("\\=", "")
    assert unescaped.count("CN=") >= len(texts)
    assert unescaped.count("=") == len(texts)
    assert unescaped.count(",") == max(0, len(texts) - 1)


def test_names_and_dates():
    names = value(0x82, b"Broker.Example") + value(0x87, bytes([127, 0, 0, 1]))
    found = parse_certificate(certificate(attribute(CN, "b"), names=names))
    assert found.names == {"DNS:broker.example", "IP:7f000001"}
    assert (found.not_before, found.not_after) == ("20260101000000Z", "20510203040506Z")


@given(st.binary(max_size=200), st.integers(0, 100))
def test_bytes_that_are_no_certificate_are_refused(noise, cut):
    whole = certificate(attribute(CN, "alice"))
    for data in (noise, whole[:cut], whole[:cut] + noise + whole[cut:]):
        with contextlib.suppress(CertificateError):
            parse_certificate(data)


def test_a_pem_text_without_an_end_is_refused():
    with pytest.raises(CertificateError, match="no end line"):
        certificates_of("-----BEGIN CERTIFICATE-----\nAAAA")
