"""Certificates for a test's brokers and clients, made in its temporary folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headwater.pki.authority import Authority

LOCAL = ("127.0.0.1", "localhost")


class Security(Protocol):
    """How the brokers and clients of a test authenticate."""

    protocol: str
    """Of all listeners."""

    def broker_options(self) -> Sequence[str]:
        """Options of a broker's command."""

    def broker_settings(self) -> dict[str, str]:
        """Settings of a broker."""

    def client_settings(self, user: str = ...) -> dict[str, str]:
        """Settings of a client that is this user."""


class TlsStores:
    """An authority, one store for all brokers, and one for each user on demand."""

    protocol = "SSL"

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self._broker = folder / "broker.pem"
        if not self.authority.exists:
            self.authority.create("headwater-testing")
            self.authority.sign(self._broker, "broker", LOCAL)

    def broker_options(self) -> Sequence[str]:
        """Return nothing: settings say everything."""
        return ()

    def broker_settings(self) -> dict[str, str]:
        """Settings of a broker: clients must show a certificate, and its CN is the user."""
        return {
            "ssl.keystore.location": str(self._broker),
            "ssl.truststore.location": str(self.authority.certificate),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/, DEFAULT",
        }

    def client_settings(self, user: str = "client") -> dict[str, str]:
        """Settings of a client that is this user."""
        store = self.authority.folder / f"{user}-client.pem"
        if not store.exists():
            self.authority.sign(store, user)
        return {
            "security_protocol": "SSL",
            "ssl_keystore_location": str(store),
            "ssl_truststore_location": str(self.authority.certificate),
        }
