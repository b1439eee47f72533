"""Certificates that have expired, stores that change while a broker runs, and peers that misuse TLS."""

import logging
import os
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater import Admin, ConfigResource
from headwater.broker.listener_tls import listener_tls
from headwater.broker.server_connection import PIECE
from headwater.cli.security import command as security
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.errors import KafkaError
from headwater.seams.clock import SystemClock
from headwater.transport.frame_protocol import FIRST_BUFFER
from tests.integration.certificates import Authority
from tests.integration.test_tls import connections, context, greet, settings, versions
from tests.unit.broker.live import Client, Live, batch, fetch_request, until

EXPIRED_DAYS = -1
IDLE = 2000
IDLE_BYTES = 160 * 1024
"""More than both ends of an idle connection take in this process."""
READERS, REQUESTS = 4, 20
USED = "listener SSL uses its changed key store"
NOT_USED = "a changed key store is not used: listener SSL: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pki")


@pytest.fixture(scope="module")
def authority(folder):
    return Authority(folder)


@pytest.fixture(scope="module")
def other(folder):
    """An authority that nobody trusts yet, with a client of it."""
    found = Authority(folder, "other")
    return found, found.signed("mallory")


@pytest.fixture(scope="module")
def stores(authority):
    return authority.signed("broker"), authority.signed("alice")


@pytest.fixture
def at_once(monkeypatch, caplog):
    """Stores are checked all the time, and the log says what comes of it."""
    monkeypatch.setattr("headwater.broker.housekeeping_loop.KEY_STORE_CHECK_S", 0.05)
    caplog.set_level(logging.INFO)


def client_settings(live, authority, store=None) -> dict[str, str]:
    own = {"ssl_keystore_location": str(store)} if store else {}
    return {
        "bootstrap_servers": f"127.0.0.1:{live.port}",
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.certificate),
        **own,
    }


def replace(served: Path, by: Path) -> None:
    shutil.copy(by, served.with_suffix(".new"))
    served.with_suffix(".new").replace(served)


# -- expired certificates


@pytest.mark.parametrize("client_auth", ["required", "requested"])
def test_a_client_with_an_expired_certificate_is_refused(tmp_path, authority, stores, client_auth):
    late = authority.signed("late", days=EXPIRED_DAYS)
    with Live(tmp_path, settings(authority, stores, ssl_client_auth=client_auth)) as live:
        assert greet(live.port, context(authority, stores[1])) == 0
        with (
            pytest.raises(ssl.SSLError, match="CERTIFICATE_EXPIRED"),
            Client(live.port, tls=context(authority, late)) as refused,
        ):
            refused.socket.recv(1)
        with (
            Admin(**client_settings(live, authority, late)) as admin,
            pytest.raises(KafkaError, match="certificate expired"),
        ):
            admin.list_topics()


def test_a_broker_with_an_expired_certificate_does_not_start_and_no_client_trusts_it(
    tmp_path, authority, monkeypatch
):
    late = authority.signed("late-broker", days=EXPIRED_DAYS)
    with (
        pytest.raises(ConfigError, match=r"CN=late-broker is valid from .*: renew it"),
        Live(tmp_path / "refused", settings(authority, [late])),
    ):
        pass
    monkeypatch.setattr("headwater.broker.listener_tls._refuse_expired", lambda *_: None)
    with (
        Live(tmp_path / "careless", settings(authority, [late])) as live,
        Admin(**client_settings(live, authority)) as admin,
        pytest.raises(KafkaError, match="not trusted: certificate has expired"),
    ):
        admin.list_topics()


# -- stores that change


@pytest.mark.usefixtures("at_once")
def test_a_changed_trust_store_decides_about_new_connections(
    tmp_path, authority, stores, other, caplog
):
    trusted = tmp_path / "trusted.pem"
    shutil.copy(authority.certificate, trusted)
    more = {"ssl_client_auth": "required", "ssl_truststore_location": str(trusted)}
    alice, mallory = context(authority, stores[1]), context(authority, other[1])
    with (
        Live(tmp_path / "data", settings(authority, stores, **more)) as live,
        Client(live.port, tls=alice) as old,
    ):
        assert versions(old) == 0
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            greet(live.port, mallory)
        replace(trusted, other[0].certificate)
        until(lambda: USED in caplog.text)
        assert greet(live.port, mallory) == 0
        with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            greet(live.port, alice)
        assert versions(old) == 0, "an open connection goes on"


@pytest.mark.usefixtures("at_once")
def test_another_key_store_is_named_while_the_broker_runs(tmp_path, authority, stores, caplog):
    key = "listener.name.ssl.ssl.keystore.location"
    fresh, late = tmp_path / "fresh.pem", authority.signed("expired", days=EXPIRED_DAYS)
    shutil.copy(authority.signed("broker"), fresh)
    first = settings(authority, stores)
    with (
        Live(tmp_path / "data", first, tls=context(authority)) as live,
        Admin(**client_settings(live, authority)) as admin,
    ):
        broker = ConfigResource.broker(live.context.node_id)

        def shown() -> bytes:
            with live.client() as client:
                return client.socket.getpeercert(binary_form=True)

        def certificate(store: Path) -> bytes:
            text = store.read_text()
            return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])

        for refused, where, why in [
            ({"ssl.keystore.location": str(fresh)}, broker, "changes for one listener at a time"),
            ({key: str(fresh)}, ConfigResource.broker(), "name a broker"),
            ({"listener.name.ssl.ssl.client.auth": "none"}, broker, "restart the broker"),
        ]:
            with pytest.raises(KafkaError, match=why):
                admin.alter_configs({where: refused})
        admin.alter_configs({broker: {key: str(fresh)}})
        until(lambda: USED in caplog.text)
        assert shown() == certificate(fresh)
        for unusable, why in [
            (tmp_path / "nowhere.pem", f"{tmp_path}/nowhere.pem cannot be read"),
            (late, "CN=expired is valid from"),
        ]:
            admin.alter_configs({broker: {key: str(unusable)}})
            until(lambda why=why: NOT_USED in caplog.text and why in caplog.text)
            assert shown() == certificate(fresh), "the old one still serves"


@pytest.mark.usefixtures("at_once")
def test_a_key_store_of_an_authority_that_is_not_trusted_is_not_taken(
    tmp_path, authority, stores, caplog
):
    foreign = Authority(tmp_path, "foreign")
    served, trusted = tmp_path / "served.pem", tmp_path / "trusted.pem"
    shutil.copy(stores[0], served)
    shutil.copy(authority.certificate, trusted)
    more = {"ssl_truststore_location": str(trusted)}
    with Live(tmp_path / "data", settings(authority, [served], **more)) as live:
        replace(served, foreign.signed("broker"))
        until(lambda: "does not trust CN=broker (" in caplog.text)
        assert greet(live.port, context(authority)) == 0, "the old one still serves"
        replace(trusted, foreign.certificate)
        until(lambda: USED in caplog.text)
        assert greet(live.port, context(foreign)) == 0
        replace(served, foreign.signed("broker", address="127.0.0.2"))
        until(lambda: "it lacks 127.0.0.1; ssl.allow.san.changes" in caplog.text)


def test_a_broker_whose_certificate_the_others_would_refuse_does_not_start(
    tmp_path, authority, stores
):
    foreign = Authority(tmp_path, "foreign")
    mixed = settings(authority, [foreign.signed("broker")])
    alone = BrokerSettings.load(None, mixed)
    assert listener_tls(alone, SystemClock().wall_ms)["SSL"].store.distrust is not None
    among_others = {"zookeeper.connect": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match="would refuse the certificate CN=broker of the key"):
        listener_tls(BrokerSettings.load(None, mixed | among_others), SystemClock().wall_ms)
    listener_tls(
        BrokerSettings.load(None, settings(authority, stores) | among_others), SystemClock().wall_ms
    )
    file = tmp_path / "broker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in mixed.items()))
    said = CliRunner().invoke(security, ["check", "--config", str(file)]).output
    assert "brokers would refuse the certificate CN=broker of the key store" in said


@pytest.mark.parametrize(
    "more",
    [
        {"ssl_enabled_protocols": "TLSv1.2", "ssl_client_auth": "required"},
        {"ssl_enabled_protocols": "TLSv1.3", "ssl_client_auth": "required"},
        {
            "ssl_enabled_protocols": "TLSv1.2",
            "ssl_cipher_suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        },
    ],
)
def test_only_the_trust_in_a_servers_certificate_is_asked_of_a_trust_store(
    tmp_path, authority, more
):
    """One for servers alone does not serve a client, and a key may not fit the cipher suites."""
    wanted = settings(authority, [authority.signed("server", usage="serverAuth")], **more)
    alone = BrokerSettings.load(None, wanted)
    assert listener_tls(alone, SystemClock().wall_ms)["SSL"].store.distrust is None
    foreign = Authority(tmp_path, "foreign").signed("server", usage="serverAuth")
    alone = BrokerSettings.load(None, wanted | {"ssl.keystore.location": str(foreign)})
    why = listener_tls(alone, SystemClock().wall_ms)["SSL"].store.distrust
    assert (why is None) is ("ssl_cipher_suites" in more)


# -- peers that misuse a connection


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def test_idle_connections_cost_little_and_others_are_served(tmp_path, authority, stores):
    tls = context(authority)
    with Live(tmp_path, settings(authority, stores), tls=tls) as live, ExitStack() as stack:
        before = resident_bytes()
        for _ in range(IDLE):
            stack.enter_context(live.client())
        until(lambda: sum(one.transport is not None for one in connections(live)) == IDLE)
        assert resident_bytes() - before < IDLE * IDLE_BYTES
        assert {len(one.buffer) for one in connections(live)} == {FIRST_BUFFER}
        assert live.context.memory.used == 0
        live.create("t")
        with live.client() as client:
            assert client.produce("t", batch(b"served")).error_code == 0
            assert client.fetch("t").records
            assert len(connections(live)) == IDLE + 1, "while all of them are open"


def test_a_reader_that_never_reads_is_answered_within_bounds(tmp_path, authority, stores):
    """Four clients ask for 700 MB together, and read none of it."""
    ask = fetch_request({("t", 0): 0}, partition_max_bytes=50 << 20)
    with Live(tmp_path, settings(authority, stores), tls=context(authority)) as live:
        live.create("t")
        with live.client() as honest, ExitStack() as stack:
            for _ in range(10):
                honest.produce("t", batch(os.urandom(900_000)))
            before = resident_bytes()
            for _ in range(READERS):
                reader = stack.enter_context(live.client())
                reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                for _ in range(REQUESTS):
                    reader.send(ask, 12)
            until(lambda: sum(one._writing_paused for one in connections(live)) == READERS)

            def unread() -> int:
                peers = live.context.connection_quotas.open
                return sum(one.transport.get_write_buffer_size() for one in peers)

            for number in range(10, 20):
                assert honest.produce("t", batch(b"served")).base_offset == number
                assert 0 < live.on_loop(unread) <= READERS * 2 * PIECE
                assert live.on_loop(lambda: live.context.memory.used) <= (READERS + 1) * 2 * PIECE
            assert resident_bytes() - before < READERS * 16 * PIECE
        until(lambda: not connections(live))
        until(lambda: live.on_loop(lambda: live.context.memory.used) == 0)


@pytest.mark.parametrize(
    ("version", "why"), [("-tls1_2", "no renegotiation"), ("-tls1_3", "wrong ssl version")]
)
def test_a_client_cannot_renegotiate(tmp_path, authority, stores, version, why):
    both = settings(authority, stores, ssl_enabled_protocols="TLSv1.2,TLSv1.3")
    with Live(tmp_path, both) as live:
        assert live.context.listener_tls["SSL"].context.options & ssl.OP_NO_RENEGOTIATION
        client = subprocess.run(
            ["openssl", "s_client", version, "-CAfile", str(authority.certificate),
             "-connect", f"127.0.0.1:{live.port}"],
            input=b"R\n",  # openssl's command to renegotiate
            capture_output=True,
            check=False,
        )  # fmt: skip
        assert b"Verify return code: 0 (ok)" in client.stdout, client.stderr
        assert b"RENEGOTIATING" in client.stderr
        assert why.encode() in client.stderr
        until(lambda: not connections(live))
