"""An authority in a folder: its key, its certificate, and PEM stores that it signs.

A store is one file with a private key (PKCS#8, P-256) and its certificate, as Kafka's PEM key stores
are. Files with keys have mode 0600 and appear whole or not at all.
"""

import ipaddress
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headwater.config.keys import ConfigError
from headwater.pki.openssl import openssl

CA_DAYS = 3650
STORE_DAYS = 397
"""About thirteen months, the longest lifetime that browsers accept from public authorities."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-sha256")


class Authority:
    """Signs certificates; everyone who trusts `certificate` trusts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self._key = folder / "ca.key"

    @property
    def exists(self) -> bool:
        """Whether the folder holds an authority."""
        return self.certificate.exists() and self._key.exists()

    def create(self, name: str) -> None:
        """Make a key and a certificate that signs others; it never replaces an authority."""
        if self.certificate.exists():
            raise self._without_key("make users")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".ca-") as work:
            key, certificate = Path(work, "key"), Path(work, "certificate")
            openssl(
                "req", "-x509", *_NEW_KEY, "-days", str(CA_DAYS), "-subj", f"/CN={checked_name(name)}",
                "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                "-keyout", str(key), "-out", str(certificate),
            )  # fmt: skip
            write_private(self._key, key.read_text())
            write_file(self.certificate, certificate.read_text(), 0o644)

    def sign(
        self, store: Path, name: str, hosts: Sequence[str] = (), days: int = STORE_DAYS
    ) -> None:
        """Write a store for `name`; with hosts, it may also be used by a server at them."""
        if not self._key.exists():
            raise self._without_key("sign")
        usage = "serverAuth,clientAuth" if hosts else "clientAuth"
        lines = [f"extendedKeyUsage={usage}", "keyUsage=critical,digitalSignature"]
        if hosts:
            lines.append(f"subjectAltName={','.join(map(alternative_name, hosts))}")
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".sign-") as work:
            key, asked, signed, extensions = (Path(work, end) for end in "kasx")
            extensions.write_text("\n".join(lines) + "\n")
            openssl(
                "req", "-new", *_NEW_KEY, "-subj", f"/CN={checked_name(name)}", "-keyout", str(key),
                "-out", str(asked),
            )  # fmt: skip
            openssl(
                "x509", "-req", "-sha256", "-in", str(asked), "-CA", str(self.certificate),
                "-CAkey", str(self._key), "-set_serial", f"0x{os.urandom(16).hex()}",
                "-days", str(days), "-extfile", str(extensions), "-out", str(signed),
            )  # fmt: skip
            write_private(store, key.read_text() + signed.read_text())

    def _without_key(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self._key} is missing: {what} in the folder that has the key of {self.certificate}"
        )


def alternative_name(host: str) -> str:
    """Return a host as a subject alternative name."""
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
            raise ConfigError(f"{host!r} is not the name or address of a host") from None
        return f"DNS:{host}"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, at once."""
    write_file(path, text, 0o600)


def write_file(path: Path, text: str, mode: int) -> None:
    """Write a file of this mode; a crash leaves the old one or the new one.

    The text goes into the file that is made here, whatever others put in its place meanwhile.
    """
    fresh = tempfile.NamedTemporaryFile(  # noqa: SIM115 - it is moved, or removed here
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False
    )
    try:
        with fresh:
            os.fchmod(fresh.fileno(), mode)
            fresh.write(text)
        Path(fresh.name).replace(path)
    except BaseException:
        Path(fresh.name).unlink(missing_ok=True)
        raise


def checked_name(name: str) -> str:
    """Return the name; ConfigError if a certificate or a file cannot have it."""
    if not _NAME.match(name):
        raise ConfigError(
            f"{name!r} cannot be a name here: use up to 64 letters, digits, '.', '_', '-'"
        )
    return name
