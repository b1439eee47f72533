"""The options of Kafka's OAuthBearerLoginModule: of a listener, and of a client."""

from collections.abc import Mapping
from typing import Any

from headwater.config.jaas import JaasEntry, JaasError
from headwater.config.tls import TLS_1_2, TLS_1_3, TlsKeys, TlsSettings, tls_settings

EXTENSION = "extension_"
"""What precedes the name of a SASL extension."""
_CLIENT = ("clientId", "clientSecret", "scope")
_TRUST = ("ssl.truststore.", "ssl.endpoint.", "ssl.enabled.protocols", "ssl.cipher.suites")


def refuse_unknown_options(entry: JaasEntry) -> None:
    """Raise JaasError for an option that has no effect here, or would make tokens worthless."""
    for name in entry.options:
        if name.startswith("unsecured"):
            raise JaasError(
                f"the option {name} makes tokens that anybody can forge, which are never used: "
                "remove it, and set sasl.oauthbearer.token.endpoint.url"
            )
        known = name in _CLIENT or name.startswith((EXTENSION, *_TRUST))
        if not known or (name.startswith("ssl.") and name not in TlsKeys.KEYS):
            raise JaasError(f"the option {name} of OAuthBearerLoginModule is not supported")


def trust_of(options: Mapping[str, str]) -> TlsSettings:
    """Return whom to trust as the identity provider: by the `ssl.` options, or the system's list."""
    given = {"ssl.enabled.protocols": f"{TLS_1_2},{TLS_1_3}", **options}

    def value(name: str) -> Any:
        row = TlsKeys.KEYS[name]
        return row.parse(given[name]) if name in given else row.default

    return tls_settings(value)
