"""Logins, ACLs and TLS: what a store lets a session do, and what brokers make of it."""

import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from tools.free_ports import free_port

from headwater import Admin, Consumer, NewTopic, Producer, TopicPartition
from headwater.cli.security import command as security
from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.config.broker_keys.zookeeper import ZooKeeperTls
from headwater.controller.store.kazoo_adapter import OrderedHandler, tls_context
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    Create,
    Stat,
    StoreError,
    StoreFailure,
    Znode,
)
from headwater.controller.store.znodes import CLUSTER_ID, CLUSTER_SECRET, FIRST_USERS
from headwater.testing import Broker, Cluster
from tests.integration.certificates import Authority
from tests.integration.metadata_stores import SERVED_STORES, KazooCase, zookeepers
from tests.integration.waiting import until
from tests.pages import shown_below

LOGIN, OTHER = "headwater:river", "stranger:river"
SESSION_MS = 30_000
SECURED = {
    "zookeeper.set.acl": "true",
    "zookeeper.digest.username": "headwater",
    "zookeeper.digest.password": "river",
}


@pytest.fixture(scope="module", params=SERVED_STORES, ids=str)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with SERVED_STORES[request.param]() as found:
        yield found


def ask(case: KazooCase, method: str, *args: Any, **how: Any) -> Any:
    answers: list[Any] = []
    getattr(case.store, method)(*args, answers.append, **how)
    case.until(lambda: bool(answers))
    return answers[0]


def kind(answer: Any) -> StoreFailure:
    assert isinstance(answer, StoreError), answer
    return answer.kind


def test_nodes_belong_to_the_login_that_made_them(address):
    owner = KazooCase(address, SESSION_MS, digest=LOGIN, set_acl=True)
    made = [
        Create("/brokers"),
        Create("/config"),
        Create("/config/changes"),
        Create("/config/changes/config_change_", b"user", sequential=True),
        Create(CLUSTER_SECRET, b"secret"),
    ]
    assert not isinstance(ask(owner, "multi", made), StoreError)
    assert ask(owner, "create", "/brokers/one", b"1") == "/brokers/one"
    for digest in (None, OTHER):
        stranger = KazooCase(address, SESSION_MS, owner.chroot, digest=digest)
        assert ask(stranger, "get", "/brokers/one").data == b"1"
        for path in (CLUSTER_SECRET, "/config/changes", "/config/changes/config_change_0000000000"):
            assert kind(ask(stranger, "get", path)) is StoreFailure.NOT_AUTHORIZED, path
        for call in (
            ("create", "/mine", b""),
            ("create", "/brokers/two", b""),
            ("set", "/brokers/one", b"2", ANY_VERSION),
            ("delete", "/brokers/one", ANY_VERSION),
            ("multi", [Create("/brokers/two")]),
        ):
            assert kind(ask(stranger, *call)) is StoreFailure.NOT_AUTHORIZED, call
        stranger.close()
    again = KazooCase(address, SESSION_MS, owner.chroot, digest=LOGIN)
    assert isinstance(ask(again, "set", "/brokers/one", b"2", ANY_VERSION), Stat)
    assert ask(again, "get", CLUSTER_SECRET).data == b"secret"
    again.close()
    owner.close()


def test_brokers_keep_their_nodes_to_themselves(address, tmp_path):
    with Cluster(2, SECURED, zookeeper=f"{address}/secured") as cluster:
        chroot = "/" + cluster.zookeeper.partition("/")[2]
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("kept", replicas={0: [1, 2]})])
        stranger = KazooClient(hosts=address, timeout=SESSION_MS / 1000)
        stranger.start(timeout=60)
        try:
            world = {path: _of_world(stranger, path) for path in _paths(stranger, chroot)}
        finally:
            stranger.stop()
            stranger.close()
        assert f"{chroot}/brokers/topics/kept/partitions/0/state" in world
        assert not any(permissions & ~1 for permissions in world.values())
        hidden = {
            path.removeprefix(chroot) for path, permissions in world.items() if not permissions
        }
        assert {CLUSTER_SECRET, "/config/brokers", "/config/users", "/config/changes"} <= hidden
        assert not {CLUSTER_ID, "/brokers/ids/1", "/config/topics/kept", "/controller"} & hidden
        without_login = {"node.id": "3", "zookeeper.connect": cluster.zookeeper}
        nobody = Broker(without_login, data_dir=tmp_path)
        with pytest.raises(Exception, match=r"does not let this broker use .*zookeeper\.digest"):
            nobody.start()


def test_a_secret_that_a_stranger_put_there_is_refused(address, tmp_path, caplog):
    owner = KazooCase(address, SESSION_MS, digest=LOGIN)  # others may change its root
    chroot = owner.chroot
    stranger = KazooCase(address, SESSION_MS, chroot, digest=OTHER)

    def starts() -> None:
        settings = {**SECURED, "node.id": "1", "zookeeper.connect": address + chroot}
        with Broker(settings, data_dir=tmp_path):
            pass

    starts()
    assert f"lets everyone change {chroot}, and so delete and replace" in caplog.text
    for path, data in ((FIRST_USERS, b'{"added":[]}'), (CLUSTER_SECRET, b"00" * 32)):
        ask(stranger, "delete", path, ANY_VERSION)
        assert ask(stranger, "create", path, data) == path
        with pytest.raises(Exception, match=rf"lets everyone use {path}, so .*`delete {chroot}"):
            starts()
        assert ask(owner, "delete", path, ANY_VERSION) is None
    starts()
    for case in (stranger, owner):
        case.close()


def test_the_security_check_names_nodes_that_others_may_change_or_read(address, tmp_path):
    owner = KazooCase(address, SESSION_MS, digest=LOGIN, set_acl=True)
    for path in ("/brokers", CLUSTER_SECRET):
        assert ask(owner, "create", path, b"") == path
    file = tmp_path / "broker.properties"
    lines = {**SECURED, "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    file.chmod(0o600)

    def check(*more: str) -> Result:
        words = ["check", "--dir", str(tmp_path), "--zookeeper", address + owner.chroot]
        return CliRunner().invoke(security, [*words, *more])

    assert check("--config", str(file)).output == "no problems\n"
    assert check().output == "no problems\n", "what a stranger cannot read is not open to him"
    careless = KazooCase(address, SESSION_MS, owner.chroot, digest=LOGIN)
    assert ask(careless, "create", "/brokers/ids", b"") == "/brokers/ids"
    assert ask(careless, "create", "/config", b"") == "/config"
    assert ask(careless, "create", "/config/users", b"") == "/config/users"
    done = check("--config", str(file))
    assert done.exit_code == 1
    for found in (
        "everyone change /brokers/ids: set zookeeper.set.acl",
        "everyone change /config and 1 node below: set",
        "everyone read /config/users: set",
    ):
        assert found in done.output
    line = "headwater security check --config server.properties --zookeeper zk1:2181/kafka"
    what, _, remedy = shown_below("docs/security.md", line)[2].partition(": ")
    assert what.startswith("ZooKeeper lets everyone change ")
    assert remedy in done.output
    careless.close()
    owner.close()
    assert "has no /nowhere" in CliRunner().invoke(
        security, ["check", "--dir", str(tmp_path), "--zookeeper", f"{address}/nowhere"]
    ).output  # fmt: skip


def _paths(client: KazooClient, path: str) -> Iterator[str]:
    """Every node at and below `path` that a session without a login can find."""
    yield path
    try:
        names = client.get_children(path)
    except Exception:  # noqa: BLE001 - what is below is not for everyone
        return
    for name in names:
        yield from _paths(client, f"{path}/{name}")


def _of_world(client: KazooClient, path: str) -> int:
    """What everyone may do to the node; ZooKeeper shows nobody the ACL of what he cannot read."""
    try:
        acls, _ = client.get_acls(path)
    except Exception:  # noqa: BLE001 - it may not be read
        return 0
    return sum(one.perms for one in acls if one.id.scheme == "world")


# -- TLS


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        for name in ("server", "broker"):
            authority.signed(name)
        Authority(Path(folder), "foreign")
        yield Path(folder)


@pytest.fixture(scope="module")
def secure_address(certificates: Path) -> Iterator[str]:
    port = free_port()
    config = (
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
        f"secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n"
        f"ssl.keyStore.location={certificates}/server.pem\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={certificates}/authority.pem\nssl.trustStore.type=PEM\n"
    )
    with zookeepers(1, config):
        yield f"127.0.0.1:{port}"


def test_a_session_over_tls_shows_its_certificate_and_many_calls_are_answered(
    secure_address, certificates
):
    tls = tls_context(
        ZooKeeperTls(
            f"{certificates}/broker.pem", None, f"{certificates}/authority.pem", check_hostname=True
        )
    )
    case = KazooCase(secure_address, SESSION_MS, tls=tls, set_acl=True)
    answers: list[Any] = []
    for number in range(500):
        case.store.create(f"/{number}", b"x" * 100, answers.append)
        case.store.get(f"/{number}", answers.append)
    case.until(lambda: len(answers) == 1000)
    assert all(isinstance(one, Znode) for one in answers[1::2])
    case.close()


def test_bytes_that_tls_has_decrypted_already_wake_the_reader(certificates):
    """A server may put two responses into one record, of which the reader takes the first."""
    here, there = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates / "server.pem")
    client = tls_context(
        ZooKeeperTls(None, None, f"{certificates}/authority.pem", check_hostname=True)
    )

    def answer() -> None:
        with server.wrap_socket(there, server_side=True) as stream:
            stream.sendall(b"onetwo")
            stream.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    with client.wrap_socket(here, server_hostname="127.0.0.1") as stream:
        assert stream.recv(3) == b"one"
        assert OrderedHandler().select([stream], [], [], 0)[0] == [stream]
        assert stream.recv(3) == b"two"
    thread.join()


def test_brokers_serve_over_tls_and_refuse_a_server_that_nobody_they_trust_has_signed(
    secure_address, certificates, tmp_path
):
    secured = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": f"{certificates}/broker.pem",
        "zookeeper.ssl.truststore.location": f"{certificates}/authority.pem",
        "zookeeper.set.acl": "true",
        # The first handshakes of a server that has just started take long on a busy machine.
        "zookeeper.session.timeout.ms": "10000",
    }

    def another(**changed: str) -> Broker:
        known = {"node.id": "2", "zookeeper.connect": cluster.zookeeper}
        return Broker({**secured, **known, **changed}, data_dir=tmp_path)

    with Cluster(1, secured, zookeeper=f"{secure_address}/tls") as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("encrypted", b"one", partition=0).result(60)
        with Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition("encrypted", 0)])
            until(lambda: [one.value for one in consumer.poll(0.2)] == [b"one"], "the record")
        wary = another(
            **{
                "zookeeper.ssl.truststore.location": f"{certificates}/foreign.pem",
                "zookeeper.connection.timeout.ms": "1000",
            },
        )
        with pytest.raises(Exception, match=r"no server of zookeeper\.connect"):
            wary.start()
        unreadable = another(**{"zookeeper.ssl.keystore.location": "/nowhere/broker.pem"})
        with pytest.raises(Exception, match=r"TLS to ZooKeeper cannot be set up.*nowhere"):
            unreadable.start()
