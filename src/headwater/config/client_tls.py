"""TLS of clients: Kafka's keys, and the names that other clients have for them."""

from collections.abc import Mapping
from typing import Final

from headwater.config.keys import STRING, ConfigError, key
from headwater.config.tls import TlsKeys, TlsSettings, tls_settings

ALIASES: Final = {
    # confluent-kafka (librdkafka)
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    # kafka-python and aiokafka
    "ssl.cafile": "ssl.truststore.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
}
"""The names that other clients have for Kafka's keys."""


class ClientTlsKeys(TlsKeys):
    """TLS of a client."""

    # fmt: off
    ssl_certificate_location: str | None = key(
        "ssl.certificate.location", STRING, default=None,
        doc="A PEM file with the client's certificate, if ssl.key.location has the private key "
            "alone.",
    )
    ssl_key_location: str | None = key(
        "ssl.key.location", STRING, default=None,
        doc="A PEM file with the client's private key, beside ssl.certificate.location.",
    )
    # fmt: on

    @property
    def tls(self) -> TlsSettings | None:
        """How to connect with TLS; None for plain TCP."""
        if not str(vars(self)["security_protocol"]).endswith("SSL"):
            return None
        found = tls_settings(lambda name: vars(self)[name.replace(".", "_")])
        certificate, private_key = self.ssl_certificate_location, self.ssl_key_location
        if (certificate is None) != (private_key is None):
            raise ConfigError(
                "ssl.certificate.location and ssl.key.location belong together: set both, or put "
                "key and certificate into one file and set ssl.keystore.location"
            )
        if private_key is None:
            return found
        if found.has_key:
            raise ConfigError("ssl.key.location and ssl.keystore are both set: keep one")
        return found._replace(key_location=private_key, certificate_location=certificate)


def refuse_unused_tls(chosen: Mapping[str, object], protocol: object) -> None:
    """Refuse TLS settings of a client that would connect without TLS."""
    unused = next((name for name in chosen if name in ClientTlsKeys.KEYS), None)
    if unused is not None and not str(protocol).endswith("SSL"):
        encrypted = "SASL_SSL" if str(protocol).startswith("SASL") else "SSL"
        raise ConfigError(
            f"{unused} is set, but security.protocol={protocol} does not use TLS: set "
            f"security.protocol={encrypted}, or remove it"
        )
