"""Certificates for tests: an authority, and PEM files with a key and what it signed."""

import subprocess
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
DAYS = 3650


class Authority:
    """Signs certificates for 127.0.0.1, each in a PEM file with its key."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key, self.certificate = folder / f"{name}.key", folder / f"{name}.pem"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-days", str(DAYS), "-subj", f"/CN={name}",
            "-keyout", str(self._key), "-out", str(self.certificate),
        )  # fmt: skip

    def signed(
        self, name: str, address: str = "127.0.0.1", days: int = DAYS, usage: str = ""
    ) -> Path:
        """A PEM file with a private key and its certificate, valid for the address.

        With negative `days` it has expired. It is for any `usage` unless one is given.
        """
        key, asked, certificate = (self._folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        names = self._folder / f"{name}.ext"
        only = f"extendedKeyUsage={usage}\n" if usage else ""
        names.write_text(f"subjectAltName=IP:{address}\n{only}")
        _openssl(
            "req", *_NEW_KEY, "-subj", f"/CN={name}",
            "-keyout", str(key), "-out", str(asked),
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(asked), "-CA", str(self.certificate), "-CAkey", str(self._key),
            "-CAcreateserial", "-days", str(days), "-extfile", str(names), "-out", str(certificate),
        )  # fmt: skip
        both = self._folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
