"""`headwater security`: from nothing to a secured broker, its users and their renewal."""

import subprocess
from datetime import UTC, datetime, timedelta

import confluent_kafka
import pytest
from click.testing import CliRunner

from headwater.cli.security import command
from headwater.cli.up import refuse_plaintext
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.properties import read_properties
from headwater.pki.secure_folder import SecureFolder
from tests.unit.broker.live import Live, until


def run(*arguments: str, **more):
    done = CliRunner().invoke(command, arguments, **more)
    assert not isinstance(done.exception, Exception) or done.exit_code, done.output
    return done


def test_one_command_makes_a_broker_that_only_its_users_reach(tmp_path):
    folder = tmp_path / "secure"
    assert run("init", "--dir", str(folder), "--user", "alice").exit_code == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run("init", "--dir", str(folder), "--user", "bob").exit_code == 0
    assert all(path.read_bytes() == data for path, data in before.items()), "it changed a file"
    assert (folder / "users" / "bob.pem").stat().st_mode & 0o777 == 0o600
    assert "no problems" in run("check", "--dir", str(folder)).output
    given = {
        name: row.value for name, row in read_properties(str(folder / "broker.properties")).items()
    }
    free = {**given, "listeners": "SSL://127.0.0.1:0"}
    del free["advertised.listeners"]
    with Live(tmp_path / "data", free) as live:
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


def test_certificates_are_renewed_with_their_names_before_they_end(tmp_path):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1", "broker.example"], ["alice"], 9093)
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
    secure.make(["127.0.0.1"], ["alice"], 9093)
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


def test_a_pkcs12_store_becomes_pem(tmp_path):
    secure = SecureFolder(tmp_path)
    secure.make(["127.0.0.1"], [], 9093)
    store, out = tmp_path / "b.p12", tmp_path / "b.pem"
    subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", secure.broker_store, "-out", store,
         "-passout", "pass:secret"],
        check=True,
    )  # fmt: skip
    arguments = ("import", str(store), "--out", str(out))
    assert run(*arguments, env={"HEADWATER_STORE_PASSWORD": "wrong"}).exit_code == 1
    assert not out.exists()
    assert run(*arguments, env={"HEADWATER_STORE_PASSWORD": "secret"}).exit_code == 0
    assert out.read_text().count("-----BEGIN ") == 2
    assert out.stat().st_mode & 0o777 == 0o600


def test_plaintext_for_other_machines_is_refused():
    refuse_plaintext(BrokerSettings.load(None, {"listeners": "PLAINTEXT://localhost:0"}))
    open_to_all = {"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://h:1"}
    with pytest.raises(ConfigError, match="--unsafe-plaintext"):
        refuse_plaintext(BrokerSettings.load(None, open_to_all))
