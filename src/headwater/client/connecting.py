"""Opens the connections of a client according to its settings."""

import ssl
from typing import TYPE_CHECKING

from headwater.config.client import ClientSettings
from headwater.config.client_oauth import OAuthCredentials
from headwater.config.keys import ConfigError
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.transport.client_connection import ClientConnection
from headwater.transport.tls import cached_client_context
from headwater.transport.wrong_protocol import NO_TLS_REASON, no_tls_there

if TYPE_CHECKING:
    from headwater.client.login import Login

_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", NO_TLS_REASON)
"""OpenSSL's names for an answer that is not TLS."""


def login_of(settings: ClientSettings, randomness: Randomness) -> "Login | None":
    """Return how the connections of a client authenticate; None if they do not."""
    credentials = settings.login
    if credentials is None:
        return None
    # Only clients that authenticate need these.
    if isinstance(credentials, OAuthCredentials):
        from headwater.client.oauth_login import OAuthLogin

        return OAuthLogin(credentials, randomness)
    from headwater.client.login import PasswordLogin

    return PasswordLogin(credentials, randomness)


async def open_connection(
    settings: ClientSettings,
    network: Network,
    host: str,
    port: int,
    login: "Login | None" = None,
) -> ClientConnection:
    """Connect to a broker, and log in if there is a login.

    Raises OSError if it cannot be reached, ConfigError if the settings do not trust it, KafkaError if
    it refuses the login.
    """
    if login is not None:
        await login.get_ready()
    try:
        return await ClientConnection.open(
            network,
            host,
            port,
            tls=cached_client_context(settings.tls),
            client_id=settings.client_id,
            timeout_s=settings.request_timeout_ms / 1000,
            setup_timeout_s=settings.socket_connection_setup_timeout_ms / 1000,
            prepare=None if login is None else login.prepare,
        )
    except ssl.SSLError as failure:
        raise tls_failure(f"{host}:{port}", failure) from failure


def tls_failure(address: str, failure: ssl.SSLError) -> ConfigError | OSError:
    """Return the error for a handshake that failed; an OSError if another attempt may work."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        return ConfigError(
            f"the certificate of {address} is not trusted: {failure.verify_message}; set "
            "ssl_cafile (ssl.truststore.location) to the authority that signed it, and connect to "
            "a name that it has"
        )
    if failure.reason in _NOT_TLS:
        return no_tls_there(address)
    if isinstance(failure, ssl.SSLEOFError):
        return ConnectionError(f"{address} ended the handshake of TLS; does its listener use TLS?")
    return failure
