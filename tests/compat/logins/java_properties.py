"""The properties of Java clients: those of our programs, of Kafka Streams and Connect, and of Spark."""

import re

from tests.compat.logins.session import Credentials
from tests.pages import ROOT

_MODULES = "org.apache.kafka.common.security."
_LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


def java_properties(credentials: Credentials) -> dict[str, str]:
    """What a Java client is told to log in."""
    settings = {
        "bootstrap.servers": credentials.bootstrap,
        "security.protocol": credentials.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": credentials.authority,
    }
    if credentials.certificate:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = credentials.certificate
    if credentials.mechanism:
        settings["sasl.mechanism"] = credentials.mechanism
        settings["sasl.jaas.config"] = _login(credentials)
    if credentials.token_endpoint:
        settings["sasl.oauthbearer.token.endpoint.url"] = credentials.token_endpoint
        settings |= _as_the_page_says("sasl.login.callback.handler.class")
    return settings


def _as_the_page_says(key: str) -> dict[str, str]:
    """A line of the client's file on docs/security.md: with it, Java clients must log in."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^{re.escape(key)}=(.+)$", page, re.MULTILINE)
    return {key: value}


def _login(credentials: Credentials) -> str:
    user, password = "username", "password"
    if credentials.token_endpoint:
        user, password = "clientId", "clientSecret"
    options = {user: credentials.user, password: credentials.password}
    if credentials.delegated:
        options["tokenauth"] = "true"
    said = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"{_MODULES}{_LOGIN_MODULES[credentials.mechanism]} required {said};"
