"""Finds weak settings, with which a broker starts but gives too much access."""

import logging
from collections.abc import Iterator
from pathlib import Path

from headwater.config.addresses import is_loopback
from headwater.config.broker import BrokerSettings
from headwater.config.listeners import Listener
from headwater.config.tls import TLS_1_2
from headwater.security.acl_index import AclIndex

log = logging.getLogger("headwater.server")

_SECRET_FILES = (
    "ssl.keystore.location", "zookeeper.ssl.keystore.location", "sasl.scram.users.file",
    "java.security.auth.login.config",
)  # fmt: skip


def weak_settings(settings: BrokerSettings) -> Iterator[str]:
    """Yield each weak setting of a broker, with what to do."""
    for listener in settings.listening:
        yield from _weak_listener(settings, listener)
    yield from _weak_authorization(settings)


def warn_of_lockout(settings: BrokerSettings, acls: AclIndex) -> None:
    """Warn if the authorizer refuses every request, even one that grants a right."""
    if settings.super_principals or settings.allow_everyone_if_no_acl_found or acls.patterns():
        return
    log.warning(
        "authorizer.class.name is set without super.users and without ACLs: clients may do nothing, not "
        "even grant rights; set super.users, for example super.users=User:admin, and restart"
    )


def readable_secrets(settings: BrokerSettings, file: Path) -> Iterator[str]:
    """Yield the files with secrets that others can read: the broker's own, and those it names."""
    files = [file] if any(map(_is_secret, settings.layers.static)) else []
    for name, text in settings.layers.static.items():
        if settings.key(name).name.endswith(_SECRET_FILES) and text.strip():
            files.append(Path(text.strip()))
    for one in dict.fromkeys(path.absolute() for path in files):
        if one.is_file() and one.stat().st_mode & 0o077:
            yield f"others can read {one}: run chmod 600 {one}"


def _is_secret(name: str) -> bool:
    return BrokerSettings.key(name).sensitive


def _weak_listener(settings: BrokerSettings, listener: Listener) -> Iterator[str]:
    prefix = f"listener.name.{listener.name.lower()}."
    if not listener.uses_tls and not is_loopback(listener.host):
        yield (
            f"listener {listener} is not encrypted ({listener.protocol}) and other machines reach it: "
            "use SASL_SSL or SSL in listeners, or bind it to 127.0.0.1"
        )
    if listener.uses_tls and TLS_1_2 in _names(settings, listener, "ssl.enabled.protocols"):
        yield (
            f"listener {listener} accepts {TLS_1_2}: remove it from ssl.enabled.protocols when all "
            "clients speak TLSv1.3"
        )
    client_auth = settings.of_listener(listener.name, "ssl.client.auth")
    if listener.protocol == "SSL" and settings.authorizer_class_name and client_auth == "none":
        yield (
            f"listener {listener} asks for no certificates, so the authorizer treats all its "
            f"clients as User:ANONYMOUS: set {prefix}ssl.client.auth=required, or use SASL_SSL"
        )
    if listener.protocol.startswith("SASL_"):
        yield from _weak_logins(settings, listener, prefix)


def _weak_logins(settings: BrokerSettings, listener: Listener, prefix: str) -> Iterator[str]:
    mechanisms = _names(settings, listener, "sasl.enabled.mechanisms")
    without_tls = settings.of_listener(listener.name, "sasl.plain.without.tls")
    if "PLAIN" in mechanisms and not listener.uses_tls and without_tls:
        yield (
            f"listener {listener} accepts passwords without TLS (PLAIN): use SASL_SSL or "
            "SCRAM-SHA-512, and remove sasl.plain.without.tls"
        )
    tokens = "OAUTHBEARER" in mechanisms or settings.delegation_token_secret_key
    if tokens and not settings.of_listener(listener.name, "connections.max.reauth.ms"):
        yield (
            f"listener {listener} serves clients with tokens until the token expires, even if it is "
            f"revoked: set {prefix}connections.max.reauth.ms, for example to 900000"
        )


def _weak_authorization(settings: BrokerSettings) -> Iterator[str]:
    if not settings.authorizer_class_name:
        yield (
            "every client may do everything: set "
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and "
            "super.users"
        )
        return
    if settings.allow_everyone_if_no_acl_found:
        yield (
            "everyone may use what no ACL covers: remove allow.everyone.if.no.acl.found=true when "
            "`headwater acls` has granted what clients need"
        )
    if not settings.super_principals:
        yield (
            "no one can grant rights if ACLs are missing or wrong: set super.users, for example "
            "super.users=User:admin"
        )


def _names(settings: BrokerSettings, listener: Listener, key: str) -> tuple[str, ...]:
    found = settings.of_listener(listener.name, key)
    return found if isinstance(found, tuple) else ()
