"""One broker with a listener for each way in, and users who may only use what is named after their way."""

import socket
import ssl
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
    NewTopic,
    UserScramCredentialUpsertion,
)
from headwater.testing import Broker
from headwater.testing.tls_stores import LOCAL, TlsStores
from tests.compat.broker_under_test import eventually
from tests.compat.logins.session import Credentials
from tests.compat.start_broker import SETTINGS, assert_sound, peer

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
WITHOUT_CERTIFICATE = ("TLS", "RENEWED", "LOGIN", "SHORT")
MODULES = "org.apache.kafka.common.security"
SCRAM_MODULE = f"{MODULES}.scram.ScramLoginModule required;"
PLAIN_USER, PASSWORD = "plain-user", "pencil"
SCRAM_USERS = {
    "SCRAM-SHA-256": ("scram-256-user",),
    "SCRAM-SHA-512": ("scram-512-user", "short-user"),
}
PATIENCE_S = 60


class SecuredBroker:
    """The broker, and what its users need."""

    def __init__(self, folder: Path) -> None:
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
        own = {"inter.broker.listener.name": "MUTUAL", "super.users": "User:admin"}
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
            "super.users": "User:admin;User:ANONYMOUS",
        }
        unsecured = dict.fromkeys(("PLAINTEXT", "CONTROLLER"), "PLAINTEXT")
        settings = {**self._settings({**PROTOCOLS, **unsecured}), **own}
        return ApacheKafka(settings, ports=(plain, controller))

    def _settings(self, protocols: Mapping[str, str]) -> dict[str, str]:
        return {
            **SETTINGS,
            **self._stores.broker_settings(),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            **{f"listener.name.{n.lower()}.ssl.client.auth": "none" for n in WITHOUT_CERTIFICATE},
            "listener.name.renewed.ssl.keystore.location": str(self._renewed_store),
            "listener.name.renewed.ssl.keystore.type": "PEM",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.login.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_{PLAIN_USER}="{PASSWORD}";'
            ),
            "listener.name.login.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
            "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
            "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.short.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }

    def _at(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def prepare(self, users: dict[str, str], topics: Iterable[str]) -> None:
        """Makes the topics; each user may use what begins with its prefix, and nothing else."""
        settings = {
            "bootstrap_servers": self._at("MUTUAL"),
            **self._stores.client_settings("admin"),
        }
        with Admin(**settings) as admin:  # type: ignore[arg-type]
            for mechanism, names in SCRAM_USERS.items():
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(name, PASSWORD, mechanism) for name in names]
                )
            admin.create_acls(
                AclBinding(f"User:{user}", operation, kind, prefix, AclPatternType.PREFIXED)
                for prefix, user in users.items()
                for operation, kind in (
                    (AclOperation.WRITE, AclResourceType.TOPIC),
                    (AclOperation.READ, AclResourceType.TOPIC),
                    (AclOperation.READ, AclResourceType.GROUP),
                )
            )
            admin.create_topics([NewTopic(name) for name in topics])

    def _admin(self) -> Admin:
        settings = {
            "bootstrap_servers": self._at("MUTUAL"),
            **self._stores.client_settings("admin"),
        }
        return Admin(**settings)  # type: ignore[arg-type]

    def credentials(
        self, listener: str, user: str, mechanism: str, with_certificate: bool
    ) -> Credentials:
        """What a client of this user takes to a listener."""
        store = ""
        if with_certificate:
            store = self._stores.client_settings(user)["ssl_keystore_location"]
        return Credentials(
            self._at(listener),
            str(self._stores.authority.certificate),
            certificate=store,
            mechanism=mechanism,
            user=user if mechanism else "",
            password=PASSWORD if mechanism else "",
        )

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
                with self._admin() as admin:
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


@contextmanager
def start_secured_broker(users: dict[str, str], topics: Iterable[str]) -> Iterator[SecuredBroker]:
    """Starts and prepares it; at its end, it must have met nothing unforeseen."""
    with tempfile.TemporaryDirectory(prefix="headwater-logins-") as folder:
        secured = SecuredBroker(Path(folder))
        if peer() == "apache":
            with secured.apache():
                secured.prepare(users, topics)
                yield secured
            return
        with secured.broker():
            secured.prepare(users, topics)
            yield secured
        assert_sound(secured.data_dir, (secured.data_dir / "broker.stderr").read_text())
