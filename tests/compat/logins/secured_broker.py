"""One broker with a listener for each way in, and users who may only use what is named after their way."""

import socket
import ssl
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tools.apache_kafka import ApacheKafka
from tools.free_ports import free_port

from headwater import (
    AclBinding,
    AclOperation,
    AclPatternType,
    AclResourceType,
    Admin,
    ConfigResource,
    ConfigResourceType,
    DelegationToken,
    NewTopic,
    UserScramCredentialUpsertion,
)
from headwater.testing import Broker
from headwater.testing.tls_stores import LOCAL, TlsStores
from tests.compat.broker_under_test import eventually
from tests.compat.logins.identity_provider import GRANT, KEYS, identity_provider
from tests.compat.logins.session import Credentials
from tests.compat.start_broker import SETTINGS, assert_sound, peer
from tests.unit.security.identity_provider import AUDIENCE, ISSUER

PROTOCOLS = {
    "MUTUAL": "SSL",
    "TLS": "SSL",
    "RENEWED": "SSL",
    "LOGIN": "SASL_SSL",
    "SHORT": "SASL_SSL",
}
SESSION_MS = 3000
"""Long enough for clients that authenticate again at 85 to 95 %, on a busy machine too. franz-go does it a
second before the end, and no broker takes that within a second of the last time."""
WITHOUT_CERTIFICATE = ("TLS", "LOGIN", "SHORT")
MODULES = "org.apache.kafka.common.security"
LOGIN_MODULES = {
    "PLAIN": f"{MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{MODULES}.oauthbearer.OAuthBearerLoginModule",
}
ADMIN, PASSWORD = "admin", "pencil"
APPLICATIONS = "apps."
"""What the topics, groups and transactional ids of applications begin with, before the prefix of their way."""
USERS = {
    "PLAIN": ("plain-user", "short-plain-user"),
    "SCRAM-SHA-256": ("scram-256-user", "short-256-user"),
    "SCRAM-SHA-512": ("scram-512-user", "short-512-user"),
    "OAUTHBEARER": ("oauth-user", "short-oauth-user"),
}
"""Who logs in, and whose sessions are short."""
TOKEN_OWNERS = ("token-owner", "short-token-owner")
PATIENCE_S = 60
_RIGHTS = (
    ("", AclOperation.WRITE, AclResourceType.TOPIC),
    ("", AclOperation.READ, AclResourceType.TOPIC),
    ("", AclOperation.READ, AclResourceType.GROUP),
    (APPLICATIONS, AclOperation.ALL, AclResourceType.TOPIC),
    (APPLICATIONS, AclOperation.ALL, AclResourceType.GROUP),
    (APPLICATIONS, AclOperation.ALL, AclResourceType.TRANSACTIONAL_ID),
)


class SecuredBroker:
    """The broker, and what its users need."""

    def __init__(self, folder: Path, provider: str) -> None:
        """`provider` is the address of the identity provider."""
        self._provider = provider
        self._tokens: dict[str, DelegationToken] = {}
        self._stores = TlsStores(folder / "tls")
        self._ports = {name: free_port() for name in PROTOCOLS}
        self._renewed_store = folder / "renewed.pem"
        self._sign_renewed()
        self._renewals = 0
        self._renewing = threading.Lock()
        self.data_dir = folder / "data"

    def broker(self) -> Broker:
        """Headwater with these listeners."""
        listeners = ",".join(f"{name}://{self._at(name)}" for name in PROTOCOLS)
        own = {"inter.broker.listener.name": "MUTUAL", "super.users": f"User:{ADMIN}"}
        settings = {**self._settings(PROTOCOLS), **own}
        return Broker(settings, data_dir=self.data_dir, subprocess=True, listeners=listeners)

    def apache(self) -> ApacheKafka:
        """Apache Kafka with these listeners, and one without TLS for itself."""
        plain, controller = free_port(), free_port()
        at = {"PLAINTEXT": f"127.0.0.1:{plain}", "CONTROLLER": f"127.0.0.1:{controller}"}
        at |= {name: self._at(name) for name in PROTOCOLS}
        advertised = [f"{name}://{place}" for name, place in at.items() if name != "CONTROLLER"]
        own = {
            "listeners": ",".join(f"{name}://{place}" for name, place in at.items()),
            "advertised.listeners": ",".join(advertised),
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }
        unsecured = dict.fromkeys(("PLAINTEXT", "CONTROLLER"), "PLAINTEXT")
        settings = {**self._settings({**PROTOCOLS, **unsecured}), **own}
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._provider}{KEYS}"
        return ApacheKafka(settings, ports=(plain, controller), options=(allowed,))

    def _settings(self, protocols: Mapping[str, str]) -> dict[str, str]:
        return {
            **SETTINGS,
            **self._stores.broker_settings(),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            **{f"listener.name.{n.lower()}.ssl.client.auth": "none" for n in WITHOUT_CERTIFICATE},
            "listener.name.renewed.ssl.client.auth": "requested",
            "listener.name.renewed.ssl.keystore.location": str(self._renewed_store),
            "listener.name.renewed.ssl.keystore.type": "PEM",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            **_mechanisms("login", USERS),
            **_mechanisms("short", [name for name in USERS if name != "OAUTHBEARER"]),
            "sasl.oauthbearer.jwks.endpoint.url": self._provider + KEYS,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "delegation.token.secret.key": "of the brokers",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }

    def _at(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def prepare(self, users: dict[str, str], topics: Iterable[str]) -> None:
        """Makes the topics; each user may use what begins with its prefix, and nothing else."""
        with self.admin() as admin:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                admin.alter_user_scram_credentials(
                    [
                        UserScramCredentialUpsertion(name, PASSWORD, mechanism)
                        for name in USERS[mechanism]
                    ]
                )
            for owner in TOKEN_OWNERS:
                self._tokens[owner] = admin.create_delegation_token(owner=f"User:{owner}")
            admin.create_acls(
                AclBinding(f"User:{user}", operation, kind, place + prefix, AclPatternType.PREFIXED)
                for prefix, user in users.items()
                for place, operation, kind in _RIGHTS
            )
            admin.create_topics([NewTopic(name) for name in topics])

    def admin(self) -> Admin:
        """A client of the super user."""
        settings = {
            "bootstrap_servers": self._at("MUTUAL"),
            **self._stores.client_settings(ADMIN),
        }
        return Admin(**settings)  # type: ignore[arg-type]

    def tls_credentials(self, listener: str, user: str = "") -> Credentials:
        """What a client needs at a listener without logins; a user shows a certificate."""
        store = self._stores.client_settings(user)["ssl_keystore_location"] if user else ""
        authority = str(self._stores.authority.certificate)
        return Credentials(self._at(listener), authority, certificate=store)

    def login_credentials(self, listener: str, user: str, mechanism: str) -> Credentials:
        """What a user logs in with."""
        return replace(
            self.tls_credentials(listener),
            mechanism=mechanism,
            user=user,
            password=PASSWORD,
            token_endpoint=self._provider + GRANT if mechanism == "OAUTHBEARER" else "",
        )

    def token_credentials(self, listener: str, owner: str, mechanism: str) -> Credentials:
        """What somebody logs in with who was given a delegation token."""
        token = self._tokens[owner]
        login = self.login_credentials(listener, token.token_id, mechanism)
        return replace(login, password=token.password, delegated=True)

    def renew_key_store(self) -> None:
        """Gives the listener RENEWED another certificate, and waits until new connections get it.

        Callers that come during a renewal share the next one.
        """
        before = self._renewals
        with self._renewing:
            if self._renewals > before:
                return
            self._renewals += 1
            served = self._served_certificate()
            self._sign_renewed()
            if peer() == "apache":  # it looks at the file when it is told to
                key, place = "listener.name.renewed.ssl.keystore.location", self._renewed_store
                with self.admin() as admin:
                    admin.alter_configs(
                        {ConfigResource(ConfigResourceType.BROKER, "1"): {key: str(place)}}
                    )
            eventually(lambda: self._served_certificate() != served, PATIENCE_S)

    def _sign_renewed(self) -> None:
        """The file is replaced as a whole, as an operator does it."""
        self._stores.authority.sign(self._renewed_store, "broker", LOCAL)

    def _served_certificate(self) -> bytes | None:
        context = ssl.create_default_context(cafile=str(self._stores.authority.certificate))
        with (
            socket.create_connection(("127.0.0.1", self._ports["RENEWED"]), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            return secure.getpeercert(binary_form=True)


def _mechanisms(listener: str, names: Iterable[str]) -> dict[str, str]:
    """The settings of a listener where these mechanisms are offered."""
    place = f"listener.name.{listener}"
    settings = {f"{place}.sasl.enabled.mechanisms": ",".join(names)}
    for name in names:
        users = "".join(f' user_{user}="{PASSWORD}"' for user in USERS[name])
        known = users if name == "PLAIN" else ""
        settings[f"{place}.{name.lower()}.sasl.jaas.config"] = (
            f"{LOGIN_MODULES[name]} required{known};"
        )
        if name == "OAUTHBEARER":
            settings[f"{place}.{name.lower()}.sasl.server.callback.handler.class"] = (
                f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            )
    return settings


@contextmanager
def start_secured_broker(users: dict[str, str], topics: Iterable[str]) -> Iterator[SecuredBroker]:
    """Starts and prepares it; at its end, it must have met nothing unforeseen."""
    short = {USERS["OAUTHBEARER"][1]: SESSION_MS // 1000}
    with (
        tempfile.TemporaryDirectory(prefix="headwater-logins-") as folder,
        identity_provider(PASSWORD, short) as provider,
    ):
        secured = SecuredBroker(Path(folder), provider)
        if peer() == "apache":
            with secured.apache():
                secured.prepare(users, topics)
                yield secured
            return
        with secured.broker():
            secured.prepare(users, topics)
            yield secured
        assert_sound(secured.data_dir, (secured.data_dir / "broker.stderr").read_text())
