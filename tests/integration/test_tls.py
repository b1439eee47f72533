"""Listeners with TLS: who is served, who is not, and what half-made connections cost."""

import logging
import os
import socket
import ssl
import time
from contextlib import suppress

import pytest

from headwater import Admin, Consumer, Producer
from headwater.client.blocking_connection import BlockingConnection
from headwater.config.client import AdminSettings
from headwater.config.keys import ConfigError
from headwater.config.tls import TlsSettings
from headwater.errors import KafkaError
from headwater.testing import Cluster
from headwater.transport.tls import client_context
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from tests.integration.certificates import Authority
from tests.unit.broker.live import Client, Live, batch, until


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def stores(authority):
    """The key store of the broker, of a client, and of a client of another authority."""
    other = Authority(authority.certificate.parent, "other")
    return authority.signed("broker"), authority.signed("alice"), other.signed("mallory")


def settings(authority, stores, **more):
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(stores[0]),
        "ssl.truststore.location": str(authority.certificate),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def context(authority, store=None, protocols=("TLSv1.3",)) -> ssl.SSLContext:
    return client_context(
        TlsSettings(
            str(store) if store else None,
            None,
            None,
            None,
            str(authority.certificate),
            None,
            protocols,
            (),
            True,
        )
    )


def versions(client: Client) -> int:
    return client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code


def greet(port: int, tls: ssl.SSLContext) -> int:
    with Client(port, tls=tls) as client:
        return versions(client)


def connections(live):
    return live.on_loop(lambda: list(live.context.connection_quotas.open))


def test_records_of_all_sizes_pass_through_tls(tmp_path, authority, stores):
    with Live(tmp_path, settings(authority, stores), tls=context(authority)) as live:
        live.create("t")
        with live.client() as client:
            assert client.socket.version() == "TLSv1.3"
            sizes = [1, 100, 16 * 1024, 300_000, 900_000, 5]
            for number, size in enumerate(sizes):
                assert client.produce("t", batch(os.urandom(size))).base_offset == number
            for number, size in enumerate(sizes):
                assert len(client.fetch("t", number, max_bytes=1 << 20).records) > size


def test_a_certificate_makes_a_user_and_is_required_where_that_is_set(tmp_path, authority, stores):
    rules = "RULE:^CN=([a-z]+)$/$1/U"
    more = {"ssl_client_auth": "required", "ssl_principal_mapping_rules": rules}
    with Live(tmp_path, settings(authority, stores, **more)) as live:
        with Client(live.port, tls=context(authority, stores[1])) as alice:
            assert versions(alice) == 0
            assert [str(one.principal) for one in connections(live)] == ["User:ALICE"]
        for store, alert in ((None, "CERTIFICATE_REQUIRED"), (stores[2], "UNKNOWN_CA")):
            with (
                pytest.raises(ssl.SSLError, match=alert),
                Client(live.port, tls=context(authority, store)) as refused,
            ):
                refused.socket.recv(1)
        until(lambda: not connections(live))
        stranger = {
            "bootstrap_servers": f"127.0.0.1:{live.port}",
            "security_protocol": "SSL",
            "ssl_cafile": str(authority.certificate),
        }
        with Admin(**stranger) as admin, pytest.raises(KafkaError, match="certificate required"):
            admin.list_topics()


@pytest.mark.parametrize("rule", ["RULE:CN=bob/bob/", "RULE:.*/ANONYMOUS/"])
def test_a_certificate_that_no_rule_makes_a_user_is_refused(
    tmp_path, authority, stores, caplog, rule
):
    more = {"ssl_client_auth": "requested", "ssl_principal_mapping_rules": rule}
    with Live(tmp_path, settings(authority, stores, **more)) as live:
        with Client(live.port, tls=context(authority)) as nobody:
            assert versions(nobody) == 0
            assert [str(one.principal) for one in connections(live)] == ["User:ANONYMOUS"]
        with Client(live.port, tls=context(authority, stores[1])) as alice:
            assert alice.is_closed()
    assert "listener SSL: 127.0.0.1: closed a connection: no rule" in caplog.text


def test_old_versions_and_weak_suites_are_refused(tmp_path, authority, stores):
    with Live(tmp_path, settings(authority, stores)) as live, pytest.raises(ssl.SSLError):
        Client(live.port, tls=context(authority, protocols=("TLSv1.2",)))
    both = settings(authority, stores, ssl_enabled_protocols="TLSv1.2,TLSv1.3")
    with Live(tmp_path, both) as live:
        old = context(authority, protocols=("TLSv1.2",))
        with Client(live.port, tls=old) as client:
            assert versions(client) == 0
            assert client.socket.version() == "TLSv1.2"
        old.set_ciphers("ECDHE+AES:!AESGCM:!AESCCM")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Client(live.port, tls=old)


def test_plain_bytes_on_a_tls_port_and_the_reverse_are_one_line_each(
    tmp_path, authority, stores, caplog
):
    both = settings(authority, stores, listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0")
    with Live(tmp_path, both) as live, caplog.at_level(logging.WARNING):
        secure, plain = (one.port for one in live.broker.listeners)
        for _ in range(3):
            with Client(secure) as client:
                for part in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0"):
                    client.send_bytes(part)
                assert client.is_closed()
            _refused_as(f"127.0.0.1:{secure} speaks only TLS", secure)
            _refused_as(f"127.0.0.1:{plain} speaks no TLS", plain, authority)
        with Client(plain) as client:
            assert versions(client) == 0
        texts = sorted(one.getMessage() for one in caplog.records)
        assert [text for text in texts if text.startswith("listener ")] == [
            "listener PLAINTEXT: 127.0.0.1: closed a connection: the client uses TLS, which this "
            "listener does not speak: it needs security.protocol=PLAINTEXT, or the port of a "
            "listener with TLS",
            "listener SSL: 127.0.0.1: closed a connection: its first bytes are not those of TLS: "
            "the client needs security.protocol=SSL",
        ]
        until(lambda: not connections(live))


def test_half_open_connections_cost_nobody_else_anything(tmp_path, authority, stores, monkeypatch):
    monkeypatch.setattr("headwater.broker.accepting.BrokerAcceptor.setup_timeout_s", 3.0)
    hello = _client_hello(authority)
    with Live(tmp_path, settings(authority, stores), tls=context(authority)) as live:
        began = time.monotonic()
        peers = [socket.create_connection(("127.0.0.1", live.port)) for _ in range(500)]
        for peer in peers[:100]:
            peer.sendall(hello[:50])
        for peer in peers[100:200]:
            peer.sendall(hello)
        until(lambda: len(connections(live)) == 500)
        with live.client() as client:
            assert versions(client) == 0
            assert len(connections(live)) == 501, "served while all of them are open"
        until(lambda: not connections(live))
        assert time.monotonic() - began >= 3
        for peer in peers:
            peer.settimeout(10)
            with peer, suppress(ConnectionResetError):  # if a part of its hello was not read
                while peer.recv(1 << 16):
                    pass


def _refused_as(why: str, port: int, authority=None) -> None:
    """Every kind of client fails at once, and its error says why."""
    tls = (
        {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate)} if authority else {}
    )
    given = {"bootstrap_servers": f"127.0.0.1:{port}", **tls}
    with pytest.raises(ConfigError, match=why), Admin(**given) as admin:
        admin.list_topics()
    settings = AdminSettings.of(given)
    with pytest.raises(ConfigError, match=why):
        BlockingConnection("127.0.0.1", port, "test", 30.0, settings.tls)


def _client_hello(authority) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = context(authority).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_connections_are_counted_before_their_handshake(tmp_path, authority, stores):
    limited = settings(authority, stores, max_connections_per_ip="2")
    with Live(tmp_path, limited, tls=context(authority)) as live:
        idle = [socket.create_connection(("127.0.0.1", live.port)) for _ in range(2)]
        until(lambda: len(connections(live)) == 2)
        with socket.create_connection(("127.0.0.1", live.port), timeout=10) as third:
            assert third.recv(1) == b""
        for one in idle:
            one.close()
        until(lambda: not connections(live))
        with live.client() as client:
            assert versions(client) == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ssl_keystore_location": "/nowhere.pem"}, "cannot be read: No such file"),
        ({"ssl_keystore_location": ""}, "needs a certificate"),
        (
            {"ssl_keystore_location": "broker.jks"},
            "keytool -importkeystore -srckeystore broker.jks",
        ),
        ({"ssl_keystore_type": "PKCS12"}, "headwater security import"),
        ({"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "is not one of"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "it takes TLSv1.2, TLSv1.3"),
        ({"ssl_principal_mapping_rules": "RULE:(a/$1/"}, "cannot be read"),
        ({"ssl_client_auth": "maybe"}, "none, requested, required"),
        ({"ssl_engine_factory_class": "x"}, "classes of Java"),
        ({"ssl_keystor_location": "x"}, "not supported"),
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(tmp_path, authority, stores, change, reason):
    with (
        pytest.raises(ConfigError) as refused,
        Live(tmp_path, settings(authority, stores, **change)),
    ):
        pass
    assert reason in refused.value.message


def test_a_changed_key_store_is_used_and_a_broken_one_is_not(
    tmp_path, authority, stores, caplog, monkeypatch
):
    monkeypatch.setattr("headwater.broker.housekeeping_loop.KEY_STORE_CHECK_S", 0.05)
    caplog.set_level(logging.INFO)
    served = tmp_path / "served.pem"
    served.write_bytes(stores[0].read_bytes())
    more = {"ssl_keystore_location": str(served)}

    def replace(text: str) -> None:
        fresh = tmp_path / "fresh.pem"
        fresh.write_text(text)
        fresh.replace(served)

    with (
        Live(
            tmp_path / "data", settings(authority, stores, **more), tls=context(authority)
        ) as live,
        live.client() as old,
    ):
        before = old.socket.getpeercert(binary_form=True)
        replace("-----BEGIN nonsense")
        until(lambda: "a changed key store is not used: listener SSL" in caplog.text)
        replace(stores[1].read_text())
        until(lambda: "its subject changed from CN=broker to CN=alice" in caplog.text)
        assert greet(live.port, live.tls) == 0, "the old one still serves"
        replace(authority.signed("broker").read_text())
        until(lambda: "listener SSL uses its changed key store: CN=broker" in caplog.text)
        with live.client() as new:
            assert new.socket.getpeercert(binary_form=True) != before
        assert versions(old) == 0, "an open connection goes on"


def test_three_brokers_over_mutual_tls_survive_kills():
    with (
        Cluster(3, tls=True) as cluster,
        Producer(**cluster.client_settings("alice")) as producer,
    ):
        cluster.create_topic("orders", partitions=3)
        sent = 0
        for victim in (cluster.leader("orders", 0), cluster.controller()):
            for _ in range(200):
                producer.send("orders", b"%d" % sent)
                sent += 1
            cluster.kill(victim)
            for _ in range(200):
                producer.send("orders", b"%d" % sent)
                sent += 1
            producer.flush()
            cluster.start_broker(victim)
            cluster.wait_until_in_sync()
        own = cluster.client_settings("alice") | {"auto_offset_reset": "earliest"}
        with Consumer(group_id="readers", **own) as consumer:
            consumer.subscribe(["orders"])
            values = [int(record.value) for record in consumer.read_to_end()]
        assert sorted(values) == list(range(sent))
        plain = {"bootstrap_servers": cluster.bootstrap, "default_api_timeout_ms": 2000}
        with Admin(**plain) as stranger, pytest.raises(KafkaError, match="speaks only TLS"):
            stranger.list_topics()


def test_clients_verify_the_broker_and_say_what_is_wrong(tmp_path, authority, stores):
    with Live(tmp_path, settings(authority, stores)) as live:
        port, trusted = live.port, str(authority.certificate)
        for host, more, reason in [
            ("127.0.0.1", {}, "not trusted: unable to get local issuer"),
            ("127.0.0.1", {"ssl_cafile": str(stores[2])}, "not trusted"),
            ("localhost", {"ssl_cafile": trusted}, "not trusted: Hostname mismatch"),
        ]:
            address = {"bootstrap_servers": f"{host}:{port}", "security_protocol": "SSL"}
            admin = Admin(**address, **more, default_api_timeout_ms=600_000)
            with admin, pytest.raises(KafkaError, match=reason):
                admin.list_topics()
        unchecked = {"ssl_cafile": trusted, "ssl_endpoint_identification_algorithm": ""}
        with Admin(
            bootstrap_servers=f"localhost:{port}", security_protocol="SSL", **unchecked
        ) as admin:
            assert admin.list_topics() == []
