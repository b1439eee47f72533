"""The `ssl.` keys that brokers and clients share, and the settings of TLS that follow from them.

Stores are PEM: a file with the private key and its certificates, or both as text in the settings.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

from headwater.config.keys import (
    LIST,
    PASSWORD,
    STRING,
    ConfigError,
    Mode,
    SettingsBase,
    Value,
    key,
)

PEM = "PEM"
TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
CONVERT = {
    "JKS": "keytool -importkeystore -srckeystore {location} -destkeystore store.p12 "
    "-deststoretype PKCS12, then headwater security import store.p12 --out store.pem",
    "PKCS12": "headwater security import {location} --out store.pem",
}
"""By type of store: the command that makes a PEM file of it."""
_ENDINGS = {
    ".jks": "JKS",
    ".keystore": "JKS",
    ".truststore": "JKS",
    ".p12": "PKCS12",
    ".pfx": "PKCS12",
}
SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""The cipher suites of TLS 1.2 that are used, with their names in OpenSSL."""
SUITES_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256")
_JAVA = "OpenSSL provides TLS, not Java"


def _store_type(text: str) -> str | None:
    if text.upper() == PEM:
        return None
    command = CONVERT.get(text.upper())
    if command is None:
        return "it takes PEM"
    return f"only PEM is read; convert the store: {command.format(location='STORE')}"


def _suites(names: tuple[str, ...]) -> str | None:
    unknown = [name for name in names if name not in SUITES and name not in SUITES_1_3]
    if not unknown:
        return None
    return f"{unknown[0]} is not one of {', '.join((*SUITES_1_3, *SUITES))}"


class TlsKeys(SettingsBase):
    """TLS of brokers and clients."""

    # fmt: off
    ssl_enabled_protocols: tuple[str, ...] = key(
        "ssl.enabled.protocols", LIST, default=(TLS_1_3,), one_of=(TLS_1_2, TLS_1_3),
        per_listener=True,
        doc="The versions of TLS. TLSv1.2 is used with AEAD cipher suites only.",
        differs="Kafka also accepts TLSv1.2 by default.",
    )
    ssl_protocol: str = key(
        "ssl.protocol", STRING, default=TLS_1_3, one_of=(TLS_1_2, TLS_1_3, "TLS"), per_listener=True,
        doc="The TLS version of Java's SSLContext.",
        idle="ssl.enabled.protocols names the versions",
    )
    ssl_cipher_suites: tuple[str, ...] | None = key(
        "ssl.cipher.suites", LIST, default=None, check=_suites, per_listener=True,
        doc="The cipher suites of TLSv1.2, by their standard names. Those of TLSv1.3 are "
            "always offered.",
        differs="Suites without authenticated encryption or forward secrecy are refused.",
    )
    ssl_keystore_type: str | None = key(
        "ssl.keystore.type", STRING, default=None, check=_store_type, mode=Mode.PER_BROKER,
        per_listener=True,
        doc="The format of ssl.keystore.location: PEM. Default: recognized by the file name.",
        differs="Kafka also reads JKS and PKCS12, formats of Java; `headwater security import` "
                "converts a PKCS12 file.",
    )
    ssl_keystore_location: str | None = key(
        "ssl.keystore.location", STRING, default=None, mode=Mode.PER_BROKER, per_listener=True,
        doc="A PEM file with the private key and its certificate chain, the broker's or client's own "
            "certificate first.",
    )
    ssl_keystore_password: str | None = key(
        "ssl.keystore.password", PASSWORD, default=None, mode=Mode.PER_BROKER, per_listener=True,
        doc="The password of a key store of Java.",
        idle="the private key of a PEM file has ssl.key.password",
    )
    ssl_keystore_key: str | None = key(
        "ssl.keystore.key", PASSWORD, default=None, mode=Mode.PER_BROKER, per_listener=True,
        doc="The private key as PEM text, instead of ssl.keystore.location.",
    )
    ssl_keystore_certificate_chain: str | None = key(
        "ssl.keystore.certificate.chain", STRING, default=None, mode=Mode.PER_BROKER,
        per_listener=True,
        doc="The certificate chain of ssl.keystore.key as PEM text, the own certificate first.",
    )
    ssl_key_password: str | None = key(
        "ssl.key.password", PASSWORD, default=None, mode=Mode.PER_BROKER, per_listener=True,
        doc="The password of the private key, if it is encrypted.",
    )
    ssl_truststore_type: str | None = key(
        "ssl.truststore.type", STRING, default=None, check=_store_type, mode=Mode.PER_BROKER,
        per_listener=True,
        doc="The format of ssl.truststore.location: PEM. Default: recognized by the file name.",
        differs="Kafka also reads JKS and PKCS12, formats of Java; `headwater security import` "
                "converts a PKCS12 file.",
    )
    ssl_truststore_location: str | None = key(
        "ssl.truststore.location", STRING, default=None, mode=Mode.PER_BROKER, per_listener=True,
        doc="A PEM file with the certificates of the authorities whose signatures are trusted. "
            "Default: those that the system trusts.",
    )
    ssl_truststore_password: str | None = key(
        "ssl.truststore.password", PASSWORD, default=None, mode=Mode.PER_BROKER, per_listener=True,
        doc="The password of a trust store of Java.",
        idle="certificates in a PEM file are not encrypted",
    )
    ssl_truststore_certificates: str | None = key(
        "ssl.truststore.certificates", STRING, default=None, mode=Mode.PER_BROKER,
        per_listener=True,
        doc="The certificates of the trusted authorities as PEM text, instead of "
            "ssl.truststore.location.",
    )
    ssl_endpoint_identification_algorithm: str = key(
        "ssl.endpoint.identification.algorithm", STRING, default="https", one_of=("https", "HTTPS", ""),
        per_listener=True,
        doc="https: the certificate of a server must contain the name or address to which the client "
            "connects. Empty: any name is accepted.",
    )
    ssl_provider: str | None = key(
        "ssl.provider", STRING, default=None, per_listener=True,
        doc="The provider of TLS in Java.", idle=_JAVA,
    )
    ssl_secure_random_implementation: str | None = key(
        "ssl.secure.random.implementation", STRING, default=None, per_listener=True,
        doc="The source of random numbers in Java.", idle=_JAVA,
    )
    ssl_keymanager_algorithm: str | None = key(
        "ssl.keymanager.algorithm", STRING, default=None, per_listener=True,
        doc="The algorithm of Java's key manager.", idle=_JAVA,
    )
    ssl_trustmanager_algorithm: str | None = key(
        "ssl.trustmanager.algorithm", STRING, default=None, per_listener=True,
        doc="The algorithm of Java's trust manager.", idle=_JAVA,
    )
    # fmt: on


class TlsSettings(NamedTuple):
    """What one TLS context is made of: PEM texts, or the files that hold them."""

    key_location: str | None
    key: str | None
    chain: str | None
    key_password: str | None
    trust_location: str | None
    trust: str | None
    protocols: tuple[str, ...]
    suites: tuple[str, ...]
    check_names: bool
    client_auth: str = "none"
    certificate_location: str | None = None
    """The file of the certificates, if `key_location` holds the key alone."""

    def __repr__(self) -> str:
        return f"TlsSettings(key_location={self.key_location!r})"  # without secrets

    @property
    def has_key(self) -> bool:
        """Whether there is a certificate to show."""
        return bool(self.key_location or self.key)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        places = (self.key_location, self.certificate_location, self.trust_location)
        return tuple(place for place in places if place)


def tls_settings(value_of: Callable[[str], Value], client_auth: str = "none") -> TlsSettings:
    """Return the settings of one context; `value_of` looks up a key."""

    def text(name: str) -> str | None:
        return cast("str | None", value_of(name)) or None

    key_location, key_text = text("ssl.keystore.location"), text("ssl.keystore.key")
    _require_pem("ssl.keystore.location", key_location, text("ssl.keystore.type"))
    chain = text("ssl.keystore.certificate.chain")
    if (key_text is None) != (chain is None):
        raise ConfigError(
            "ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both"
        )
    if key_location and key_text:
        raise ConfigError("ssl.keystore.location and ssl.keystore.key are both set: keep one")
    trust_location, trust = text("ssl.truststore.location"), text("ssl.truststore.certificates")
    _require_pem("ssl.truststore.location", trust_location, text("ssl.truststore.type"))
    if trust_location and trust:
        raise ConfigError(
            "ssl.truststore.location and ssl.truststore.certificates are both set: keep one"
        )
    return TlsSettings(
        key_location, key_text, chain, text("ssl.key.password"), trust_location, trust,
        cast("tuple[str, ...]", value_of("ssl.enabled.protocols")),
        cast("tuple[str, ...]", value_of("ssl.cipher.suites") or ()),
        bool(value_of("ssl.endpoint.identification.algorithm")),
        client_auth,
    )  # fmt: skip


def _require_pem(name: str, location: str | None, store_type: str | None) -> None:
    """Refuse a Java key store; without a configured type, its file name decides."""
    if location is None:
        return
    found = next((kind for end, kind in _ENDINGS.items() if location.lower().endswith(end)), PEM)
    if store_type is None and found != PEM:
        raise ConfigError(
            f"{name} cannot be {location!r}: only PEM is read; convert the store: "
            f"{CONVERT[found].format(location=location)}"
        )
