"""Contexts of TLS from settings: for the listeners of a broker, and for clients.

A store is read once, checked, and given to OpenSSL from memory: a file that is replaced meanwhile
cannot mix the key of one with the certificate of the other.
"""

import os
import ssl
from functools import lru_cache
from pathlib import Path

from headwater.config.keys import ConfigError
from headwater.config.tls import CONVERT, SUITES, TLS_1_2, TLS_1_3, TlsSettings

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_JKS = b"\xfe\xed\xfe\xed"


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener; ConfigError says what is wrong with its stores."""
    if not settings.has_key:
        raise ConfigError(
            "a TLS listener needs a certificate: set ssl.keystore.location to a PEM file with the "
            "private key and the certificate; `headwater security init` makes one"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none":
        # A resumed session would not show its certificate again.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        _trust(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client; it verifies the certificate and the name of each server."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.check_names
    context.verify_mode = ssl.CERT_REQUIRED
    _trust(context, settings)
    return context


def own_chain_problem(settings: TlsSettings) -> str | None:
    """Return why the trust store does not trust the key store; None if it does, or there is none.

    Both ends of a handshake are here, as when two brokers with the same stores connect.
    """
    if not (settings.trust_location or settings.trust):
        return None
    trusting = client_context(settings)
    trusting.check_hostname = False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    offering = server_context(settings)
    offering.verify_mode = ssl.CERT_NONE  # whether it also serves as a client's is another question
    server = offering.wrap_bio(to_server, to_client, server_side=True)
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as problem:
            return problem.verify_message
        except ssl.SSLError:
            return None  # no handshake succeeds, whatever the trust store has
        else:
            return None
        try:
            server.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            return None


def cached_client_context(settings: TlsSettings | None) -> ssl.SSLContext | None:
    """Return the context of a client; a new one after a file has changed. None without TLS."""
    if settings is None:
        return None
    stamps = tuple(stamp(place) for place in settings.files)
    return _cached(settings, stamps)


@lru_cache(maxsize=64)
def _cached(settings: TlsSettings, stamps: tuple[object, ...]) -> ssl.SSLContext:
    return client_context(settings)


def stamp(place: str) -> object:
    """Return what changes when a file does."""
    try:
        found = os.stat(place)
    except OSError as problem:
        return problem.errno
    return found.st_ino, found.st_size, found.st_mtime_ns


def key_store_text(settings: TlsSettings) -> str:
    """Return the PEM text with the private key and its certificates."""
    if settings.key and settings.chain:
        return f"{settings.key}\n{settings.chain}\n"
    text = read_pem("ssl.keystore.location", settings.key_location or "")
    if settings.certificate_location:
        text += "\n" + read_pem("ssl.certificate.location", settings.certificate_location)
    return text


def read_pem(name: str, location: str) -> str:
    """Return the text of a PEM file; `name` is its key, for the error."""
    try:
        data = Path(location).read_bytes()
    except OSError as problem:
        raise ConfigError(
            f"{name}={location} cannot be read: {problem.strerror}; correct the path or its rights"
        ) from None
    if b"-----BEGIN " not in data:
        kind = "JKS" if data.startswith(_JKS) else "PKCS12"
        command = CONVERT[kind].format(location=location)
        raise ConfigError(f"{name}={location} is not a PEM file; if it is {kind}, run: {command}")
    return data.decode("utf-8", "replace")


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = sorted(_VERSIONS[name] for name in settings.protocols)
    if not versions:
        raise ConfigError("ssl.enabled.protocols is empty: set TLSv1.3")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    chosen = [SUITES[name] for name in settings.suites if name in SUITES] or SUITES.values()
    context.set_ciphers(":".join(chosen))
    if settings.has_key:
        _load_key(context, settings)
    return context


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    text = key_store_text(settings)
    name = "ssl.keystore.key" if settings.key else f"ssl.keystore.location={settings.key_location}"
    # Without a password, OpenSSL would ask for one at the terminal.
    password = settings.key_password or ""
    descriptor = os.memfd_create("headwater-key-store", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: password)
    except ssl.SSLError as problem:
        raise ConfigError(f"{name} cannot be used: {_why(problem, text)}") from None
    finally:
        os.close(descriptor)


def _why(problem: ssl.SSLError, text: str) -> str:
    if problem.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate; put that one first"
    if "PRIVATE KEY-----" not in text:
        return "it has no private key; put the key and its certificates into one file"
    if "ENCRYPTED" in text:
        return "the private key cannot be decrypted; correct ssl.key.password"
    return f"OpenSSL says {problem.reason or problem}; it takes a PEM key and its certificates"


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    text = settings.trust
    if settings.trust_location:
        text = read_pem("ssl.truststore.location", settings.trust_location)
    if text is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=text)
    except ssl.SSLError as problem:
        raise ConfigError(
            f"the trust store {settings.trust_location or 'in ssl.truststore.certificates'} cannot "
            f"be used: {problem.reason or problem}; it takes PEM certificates"
        ) from None
