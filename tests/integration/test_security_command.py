"""`headwater security`: from nothing to a secured broker, its users and their renewal."""

import os
import subprocess
from datetime import UTC, datetime, timedelta

import confluent_kafka
import pytest
from click.testing import CliRunner

import headwater
from headwater.broker.first_users import read_first_users
from headwater.cli.security import command
from headwater.cli.up import refuse_plaintext
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties
from headwater.errors import KafkaError
from headwater.pki.pkcs12 import pem_of_pkcs12
from headwater.pki.secure_folder import SecureFolder
from tests.unit.broker.live import Live, until

LOGIN = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
)


def run(*arguments: str, **more):
    done = CliRunner().invoke(command, arguments, **more)
    assert not isinstance(done.exception, Exception) or done.exit_code, done.output
    return done


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def served(folder, data, **more):
    """The broker of the folder's settings at a free port."""
    rows = read_properties(str(folder / "broker.properties"))
    given = {name: row.value for name, row in rows.items()}
    protocol = given.pop("advertised.listeners").partition("://")[0]
    return Live(data, {**given, "listeners": f"{protocol}://127.0.0.1:0", **more})


def as_user(folder, user, live):
    """Client settings as the file of a user has them."""
    rows = read_properties(str(folder / "users" / f"{user}.properties"))
    found = {name.replace(".", "_"): row.value for name, row in rows.items()}
    return {**found, "bootstrap_servers": live.bootstrap}


def test_one_command_makes_a_broker_that_only_its_users_use(tmp_path):
    folder, data = tmp_path / "secure", tmp_path / "data"
    run("init", "--dir", str(folder), "--user", "alice")
    before = files_in(folder)
    assert "already exists" in run("init", "--dir", str(folder), "--user", "alice").output
    assert files_in(folder) == before, "it changed a file"
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in before if path.name != "ca.pem")
    assert "no problems" in run("check", "--dir", str(folder)).output
    with served(folder, data) as live:
        with headwater.Admin(**as_user(folder, "admin", live)) as admin:
            admin.create_topics(["orders"])
            admin.alter_user_scram_credentials([headwater.UserScramCredentialDeletion("alice")])
        wrong = as_user(folder, "admin", live) | {"sasl_jaas_config": LOGIN.format("admin", "no")}
        with pytest.raises(headwater.AuthenticationError), headwater.Admin(**wrong) as admin:
            admin.list_topics()
    run("init", "--dir", str(folder), "--user", "bob")
    assert all(
        files_in(folder)[path] == data for path, data in before.items() if path.name[:5] != "scram"
    )
    with served(folder, data) as live:
        with headwater.Admin(**as_user(folder, "bob", live)) as admin:
            assert list(admin.list_topics()) == [], "bob sees what no ACL allows"
            with pytest.raises(KafkaError, match="may not describe the cluster"):
                admin.describe_acls()
        with headwater.Admin(**as_user(folder, "admin", live)) as admin:
            users = admin.describe_user_scram_credentials()
            assert sorted(users) == ["admin", "bob"], "a removed user came back"


def test_users_with_certificates(tmp_path):
    folder = tmp_path / "secure"
    run("init", "--dir", str(folder), "--user", "alice", "--certificates")
    run("init", "--dir", str(folder), "--user", "bob")
    assert (folder / "users" / "bob.pem").stat().st_mode & 0o777 == 0o600
    with served(folder, tmp_path / "data") as live:
        theirs = {
            "bootstrap.servers": live.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(folder / "ca.pem"),
            "ssl.certificate.location": str(folder / "users" / "alice.pem"),
            "ssl.key.location": str(folder / "users" / "alice.pem"),
        }
        producer = confluent_kafka.Producer(theirs)

        def users():
            """Who is connected, after a request."""
            producer.list_topics(timeout=30)
            peers = live.on_loop(lambda: list(live.context.connection_quotas.open))
            return {str(peer.principal) for peer in peers}

        until(lambda: "User:alice" in users())


def test_what_init_cannot_complete_is_an_error(tmp_path):
    secure = SecureFolder(tmp_path)

    def make(*users, hosts=("broker.example",), certificates=False):
        return secure.make(hosts, users, 9093, os.urandom, certificates=certificates)

    with pytest.raises(ConfigError, match="cannot be a name"):
        make("a b")
    with pytest.raises(ConfigError, match="no user may have the name ANONYMOUS"):
        make("ANONYMOUS")
    assert not secure.broker_file.exists()
    make("alice")
    with pytest.raises(ConfigError, match="have passwords: leave --certificates out"):
        make(certificates=True)
    secure.settings_of("alice").unlink()
    with pytest.raises(ConfigError, match="restore the file"):
        make("alice")
    make("bob", hosts=("other.example",))
    bob = read_properties(str(secure.settings_of("bob")))
    assert bob["bootstrap.servers"].value == "broker.example:9093", "not where the broker is"


def test_folders_that_others_can_enter_are_reported_and_closed(tmp_path):
    folder = tmp_path / "secure"
    users = folder / "users"
    assert run("init", "--dir", str(folder)).stderr == ""
    users.chmod(0o755)
    checked = run("check", "--dir", str(folder))
    assert f"others can enter {users}: run chmod 700 {users}" in checked.stderr
    assert checked.exit_code == 1
    said = run("init", "--dir", str(folder), "--user", "bob").stderr
    assert "users was open to others: its mode is 700 now" in said
    assert users.stat().st_mode & 0o777 == 0o700
    assert "no problems" in run("check", "--dir", str(folder)).output


def test_hosts_and_ports_that_an_existing_folder_keeps_are_named(tmp_path):
    def init(*more):
        return run("init", "--dir", str(tmp_path), *more).stderr

    assert init("--host", "*.example", "--host", "b.example", "--host", "::1") == ""
    secure = SecureFolder(tmp_path)
    broker = read_properties(str(secure.broker_file))
    assert broker["advertised.listeners"].value == "SASL_SSL://b.example:9093", "not a wildcard"
    before = files_in(tmp_path)
    assert init() == init("--host", "b.example", "--port", "9093", "--host", "::1") == ""
    said = init("--host", "c.example", "--port", "9094")
    assert "c.example not added" in said
    assert "b.example:9093 stays the address of the broker: to change it to c.example:9094" in said
    assert "b.example:9093 stays" in init("--port", "9094")
    assert files_in(tmp_path) == before
    secure.broker_store.unlink()
    said = init("--host", "b.example", "--host", "c.example")
    assert said == "", "the certificate was made again"
    assert "not added" not in init("--host", "c.example")


def test_a_wildcard_alone_is_no_host(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot connect to \*\.example"):
        run("init", "--dir", str(tmp_path), "--host", "*.example", catch_exceptions=False)
    assert files_in(tmp_path) == {}


def test_the_file_of_users_is_checked_at_the_start(tmp_path):
    file = tmp_path / "users.properties"
    settings = BrokerSettings.load(None, {"sasl.scram.users.file": str(file)})
    with pytest.raises(ConfigError, match="cannot read"):
        read_first_users(settings)
    for line, problem in {
        "PLAIN.alice=secret": "is not like SCRAM-SHA-256.alice",
        "SCRAM-SHA-512.alice=salt=secret": "credential cannot be read",
        "SCRAM-SHA-512.=salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096": "a name",
        "SCRAM-SHA-512.a=salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=1": "iterations",
    }.items():
        file.write_text(line + "\n")
        with pytest.raises(ConfigError, match=problem) as refused:
            read_first_users(settings)
        assert "secret" not in str(refused.value)


def test_certificates_are_renewed_with_their_names_before_they_end(tmp_path):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1", "broker.example"], ["alice"], 9093, os.urandom, certificates=True)
    before = dict(secure.certificates())
    now = datetime.now(UTC)
    assert secure.renew(now) == []
    assert list(secure.problems(now)) == []
    later = now + timedelta(days=390)
    assert len(list(secure.problems(later))) == 3
    assert len(secure.renew(later)) == 3
    for store, found in secure.certificates():
        assert (found.subject, found.names) == (before[store].subject, before[store].names)
    secure.broker_store.chmod(0o644)
    assert "chmod 600" in next(secure.problems(now))
    assert run("check", "--dir", str(tmp_path)).exit_code == 1


def test_a_folder_without_the_key_of_its_authority_is_checked_and_never_gets_another(tmp_path):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1"], ["alice"], 9093, os.urandom)
    (tmp_path / "ca.key").rename(tmp_path.parent / "ca.key")
    trusted = (tmp_path / "ca.pem").read_bytes()
    assert run("check", "--dir", str(tmp_path)).exit_code == 0
    for words in (("init", "--user", "bob"), ("renew", "--all")):
        with pytest.raises(ConfigError, match=r"ca\.key is missing"):
            run(*words, "--dir", str(tmp_path), catch_exceptions=False)
    assert (tmp_path / "ca.pem").read_bytes() == trusted


@pytest.mark.parametrize("verb", ["check", "renew"])
def test_a_folder_without_an_authority_is_refused(tmp_path, verb):
    with pytest.raises(ConfigError, match=r"has no ca\.pem"):
        run(verb, "--dir", str(tmp_path), catch_exceptions=False)


@pytest.mark.parametrize("content", ["", "\u00e4", "-----BEGIN CERTIFICATE-----\nAAAA"])
@pytest.mark.parametrize("name", ["ca.pem", "broker.pem", "users/alice.pem"])
def test_a_damaged_certificate_is_found_and_never_hides_the_others(tmp_path, name, content):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1"], ["alice"], 9093, os.urandom, certificates=True)
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    later = datetime.now(UTC) + timedelta(days=390)
    found = list(secure.problems(later))
    assert len(found) == 3 + (name == "ca.pem"), found
    (damaged,) = (said for said in found if "no certificate that can be read" in said)
    assert damaged.startswith(str(tmp_path / name))
    done = run("check", "--dir", str(tmp_path))
    assert done.exit_code == 1
    assert damaged in done.output
    if name != "ca.pem":
        with pytest.raises(ConfigError, match="no certificate that can be read"):
            run("renew", "--dir", str(tmp_path), catch_exceptions=False)
        (tmp_path / name).unlink()
        run("init", "--dir", str(tmp_path), "--user", "alice", catch_exceptions=False)
        assert "no problems" in run("check", "--dir", str(tmp_path)).output


def test_users_get_the_address_of_the_listener_that_is_for_them(tmp_path):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1"], [], 9093, os.urandom)
    file = tmp_path / "broker.properties"
    text = file.read_text()
    both = "PLAINTEXT://127.0.0.1:9092,SASL_SSL://127.0.0.1:9093"
    file.write_text(text.replace("SASL_SSL://127.0.0.1:9093", both))
    run("init", "--dir", str(tmp_path), "--user", "alice", catch_exceptions=False)
    alice = read_properties(str(secure.settings_of("alice")))
    assert alice["bootstrap.servers"].value == "127.0.0.1:9093"
    file.write_text("")
    with pytest.raises(ConfigError, match="has no listener with SSL, to which users connect"):
        run("init", "--dir", str(tmp_path), "--user", "bob", catch_exceptions=False)
    assert not secure.settings_of("bob").exists()


def test_a_pkcs12_store_becomes_pem(tmp_path):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1"], [], 9093, os.urandom)
    store, out = tmp_path / "b.p12", tmp_path / "b.pem"
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", secure.broker_store, "-out", store,
         "-passout", "pass:secret"],
        check=True,
    )  # fmt: skip
    arguments = ("import", str(store), "--out", str(out))
    assert run(*arguments, env={"HEADWATER_STORE_PASSWORD": "wrong"}).exit_code == 1
    assert not out.exists()
    with pytest.raises(
        ConfigError, match=r"ca\.pem is not a PKCS12 store, or the password is wrong"
    ):
        pem_of_pkcs12(tmp_path / "ca.pem", "secret")
    assert run(*arguments, env={"HEADWATER_STORE_PASSWORD": "secret"}).exit_code == 0
    assert out.read_text().count("-----BEGIN ") == 2
    assert out.stat().st_mode & 0o777 == 0o600


def test_plaintext_for_other_machines_is_refused():
    refuse_plaintext(BrokerSettings.load(None, {"listeners": "PLAINTEXT://localhost:0"}))
    open_to_all = {"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://h:1"}
    with pytest.raises(ConfigError, match="--unsafe-plaintext"):
        refuse_plaintext(BrokerSettings.load(None, open_to_all))
