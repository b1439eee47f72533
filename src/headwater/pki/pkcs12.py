"""Converts PKCS12 stores, which Java reads, to PEM."""

from pathlib import Path

from headwater.config.keys import ConfigError
from headwater.pki.openssl import OpensslError, openssl


def pem_of_pkcs12(store: Path, password: str) -> str:
    """Return the key, its certificate and the authorities of a PKCS12 store as PEM."""
    try:
        parts = [
            openssl(
                "pkcs12", "-in", str(store), "-nodes", *which, "-passin", "stdin", secret=password
            )
            for which in (("-nocerts",), ("-nokeys", "-clcerts"), ("-nokeys", "-cacerts"))
        ]
    except OpensslError as problem:
        raise ConfigError(
            f"{store} is not a PKCS12 store, or the password is wrong: {problem.message}"
        ) from problem
    text = "".join(map(_pem_blocks, parts))
    if not text:
        raise ConfigError(f"{store} has neither a key nor a certificate")
    return text


def _pem_blocks(text: str) -> str:
    """Drop what openssl writes between the PEM blocks."""
    lines, inside = [], False
    for line in text.splitlines():
        inside |= line.startswith("-----BEGIN ")
        if inside:
            lines.append(line + "\n")
        inside &= not line.startswith("-----END ")
    return "".join(lines)
