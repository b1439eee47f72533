"""The TLS of one listener: its contexts, who a client's certificate makes it, and new key stores.

A new key store is checked before it is used: it must be complete and valid, and must not lose the
names that clients know. Connections that are open keep the old one.
"""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime

from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.listeners import Listener
from headwater.config.mapping_rules import name_of_subject, parse_rules
from headwater.config.tls import TlsSettings
from headwater.security.certificates import (
    Certificate,
    CertificateError,
    certificates_of,
    parse_certificate,
    shown_name,
)
from headwater.security.principals import ANONYMOUS, Principal
from headwater.transport.tls import (
    client_context,
    key_store_text,
    own_chain_problem,
    server_context,
    stamp,
)


class KeyStore:
    """One version of a listener's stores: contexts for both directions, and this broker's certificate."""

    def __init__(self, settings: TlsSettings, now_ms: int) -> None:
        self.server = server_context(settings)
        self.client = client_context(settings)
        """For connections to the same listener of other brokers."""
        text = key_store_text(settings)
        try:
            self.der = certificates_of(text)[0]
            self.certificate = parse_certificate(self.der)
        except (CertificateError, IndexError) as problem:
            raise ConfigError(
                f"the certificate of the key store cannot be read: {problem}"
            ) from None
        _refuse_expired(self.certificate, now_ms)
        self.distrust = own_chain_problem(settings)
        """Why the trust store does not trust this broker's certificate; None if it does, or is not set."""


class ListenerTls:
    """The key store that new connections use, and how to replace it."""

    def __init__(
        self, listener: Listener, settings: BrokerSettings, wall_ms: Callable[[], int]
    ) -> None:
        self._listener = listener
        self._wall_ms = wall_ms
        self._rules = parse_rules(
            str(settings.of_listener(listener.name, "ssl.principal.mapping.rules"))
        )
        self._seen = self._signature(settings)
        self.refused = ""
        """Why the changed key store is not used; it is read again, as time or rights may help."""
        self.store = self._read(settings)

    @property
    def name(self) -> str:
        return self._listener.name

    @property
    def context(self) -> ssl.SSLContext:
        """The context of the next connection that is accepted."""
        return self.store.server

    def read_if_changed(self, settings: BrokerSettings) -> KeyStore | None:
        """Return the new stores; None if neither settings nor files differ from those in use.

        Raises ConfigError if they cannot replace the old ones. Reads files: for a thread.
        """
        signature = self._signature(settings)
        if signature == self._seen:
            return None
        fresh = self._read(settings)
        old, new = self.store.certificate, fresh.certificate
        is_other = self.store.der != fresh.der
        if is_other and self.store.distrust is None and fresh.distrust is not None:
            raise self._refused(
                f"the trust store does not trust {new.subject} ({fresh.distrust}), as it did before; "
                "sign it with the former authority, or add both authorities to the trust stores"
            )
        if old.subject != new.subject and not settings.of_listener(
            self.name, "ssl.allow.dn.changes"
        ):
            raise self._refused(
                f"its subject changed from {old.subject} to {new.subject}; "
                "ssl.allow.dn.changes=true accepts that"
            )
        if not old.names <= new.names and not settings.of_listener(
            self.name, "ssl.allow.san.changes"
        ):
            raise self._refused(
                f"it lacks {', '.join(sorted(map(shown_name, old.names - new.names)))}; "
                "ssl.allow.san.changes=true accepts that"
            )
        self._seen = signature
        return fresh

    def principal_of(self, der: bytes | None) -> Principal | None:
        """Return who the owner of a verified certificate is; None if no rule gives a user's name."""
        if der is None:
            return ANONYMOUS
        try:
            subject = parse_certificate(der).subject
        except CertificateError:
            return None
        name = name_of_subject(self._rules, subject)
        return None if name is None or name == ANONYMOUS.name else Principal("User", name)

    def _signature(self, settings: BrokerSettings) -> tuple[TlsSettings, list[object]]:
        """What changes when a store does."""
        tls = self._settings(settings)
        return tls, [stamp(place) for place in tls.files]

    def _settings(self, settings: BrokerSettings) -> TlsSettings:
        tls = settings.tls_of(self._listener)
        if tls is None:
            raise TypeError(f"listener {self.name} is without TLS")
        return tls

    def _read(self, settings: BrokerSettings) -> KeyStore:
        try:
            found = KeyStore(self._settings(settings), self._wall_ms())
        except ConfigError as problem:
            raise ConfigError(f"listener {self.name}: {problem.message}") from None
        is_for_brokers = settings.zookeeper_connect and self.name in settings.listeners_of_brokers
        if is_for_brokers and found.distrust is not None:
            raise ConfigError(
                f"listener {self.name}: {distrust_text(found.certificate.subject, found.distrust)}"
            )
        return found

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"listener {self.name}: the new certificate is not used: {why}")


def distrust_text(subject: str, why: str) -> str:
    """Return what is wrong with a certificate that brokers with the same stores refuse."""
    return (
        f"brokers would refuse the certificate {subject} of the key store, because the trust store "
        f"does not trust it ({why}): add the authority that signed it to ssl.truststore.location"
    )


def _refuse_expired(certificate: Certificate, now_ms: int) -> None:
    now = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d%H%M%SZ")
    if not certificate.not_before <= now <= certificate.not_after:
        raise ConfigError(
            f"the certificate of {certificate.subject} is valid from {certificate.not_before} to "
            f"{certificate.not_after}: renew it (`headwater security renew`), or correct the clock"
        )


def listener_tls(settings: BrokerSettings, wall_ms: Callable[[], int]) -> dict[str, ListenerTls]:
    """Read the key stores of all listeners with TLS; ConfigError for the first that is unusable."""
    return {
        one.name: ListenerTls(one, settings, wall_ms) for one in settings.listening if one.uses_tls
    }
