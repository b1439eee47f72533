"""`headwater tokens`, from the first token to a job that logs in with it."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater import Admin, UserScramCredentialUpsertion
from headwater.cli.app import command
from headwater.cli.users import MOST_NAMED, PASSWORD_VARIABLE
from headwater.config.properties import read_properties
from tests.unit.broker.live import Live

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "delegation.token.secret.key": "secret",
}


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The config file of a user."""
    folder = tmp_path_factory.mktemp("tokens")
    with Live(folder / "data", SETTINGS) as live:
        with Admin(bootstrap_servers=live.bootstrap) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "pencil")])
        file = folder / "alice.properties"
        file.write_text(
            f"bootstrap.servers=127.0.0.1:{live.broker.listeners[1].port}\n"
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.username=alice\nsasl.password=pencil\n"
        )
        yield file


def run(config: Path, *words: str) -> Result:
    return CliRunner().invoke(command, ["--config", str(config), *words])


def shown(config: Path, *words: str) -> list[dict[str, object]]:
    result = run(config, *words, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_a_token_is_shown_once_renewed_and_ended(alice: Path) -> None:
    assert "tokens create" in run(alice, "tokens", "list", "--owner", "nobody").stderr
    (made,) = shown(alice, "tokens", "create", "--renewer", "bob", "--lifetime", "P2D")
    password = str(made.pop("password"))
    token = str(made["token"])
    listed = {one["token"]: one for one in shown(alice, "tokens", "list", "--owner", "alice")}[
        token
    ]
    assert made == listed
    assert (listed["owner"], listed["renewers"]) == ("User:alice", ["User:bob"])
    assert password not in run(alice, "tokens", "list").output

    (would,) = shown(alice, "tokens", "expire", token, "--dry-run")
    assert would == {
        "token": token,
        "result": "would be removed",
        "expires": listed["expires"],
    }
    (soon,) = shown(alice, "tokens", "expire", token, "--in", "PT1H")
    assert str(soon["expires"]) < str(listed["expires"])
    renewed = run(alice, "tokens", "renew", token)
    assert f"{token}: renewed, expires " in renewed.stdout
    assert run(alice, "tokens", "expire", token).stdout.startswith(f"{token}: removed")
    gone = run(alice, "tokens", "renew", token)
    assert gone.exit_code == 1
    assert "headwater tokens list" in gone.stderr


def test_a_job_logs_in_with_a_file_that_only_its_owner_reads(alice: Path, tmp_path: Path) -> None:
    login = tmp_path / "job.properties"
    result = run(alice, "tokens", "create", "--file", str(login))
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(login.stat().st_mode) == 0o600
    written = {name: one.value for name, one in read_properties(str(login)).items()}
    assert written["security.protocol"] == "SASL_PLAINTEXT"
    assert "pencil" not in login.read_text()
    password = written["sasl.jaas.config"].partition('password="')[2].partition('"')[0]
    assert password
    assert password not in result.output
    assert run(login, "cluster").exit_code == 0
    again = run(login, "tokens", "create")
    assert again.exit_code == 1
    assert "not with a delegation token" in again.stderr
    twice = run(alice, "tokens", "create", "--file", str(login))
    assert twice.exit_code == 2
    assert "already exists" in twice.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "--lifetime", "1h"), "--lifetime: '1h' is not a duration: write PnDTnHnMnS"),
        (("create", "--dry-run"), "a token of you: would be created"),
        (("create", "--owner", "Group:g"), "the principal type"),
        (("expire", "unknown"), "there is no delegation token 'unknown'"),
    ],
)
def test_what_is_said(alice: Path, words: tuple[str, ...], said: str) -> None:
    before = len(shown(alice, "tokens", "list"))
    assert said in run(alice, "tokens", *words).output
    assert len(shown(alice, "tokens", "list")) == before


def test_the_tokens_that_a_removed_user_leaves_are_named(
    alice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "pencil")
    shown(alice, "users", "add", "dora")
    assert run(alice, "users", "remove", "dora").stderr == ""
    shown(alice, "users", "add", "dora")
    made = [
        str(shown(alice, "tokens", "create", "--owner", "dora", "--renewer", "eve")[0]["token"])
        for _ in range(MOST_NAMED + 2)
    ]
    removed = run(alice, "users", "remove", "dora")
    assert removed.stdout == "dora: removed (SCRAM-SHA-512)\n"
    assert removed.stderr.startswith("delegation tokens still log in as dora: ")
    assert sum(token in removed.stderr for token in made) == MOST_NAMED
    assert "and 2 others; their renewers end them with: headwater token" in removed.stderr
    assert "nobody" not in removed.stderr
    (lone,) = shown(alice, "tokens", "create", "--owner", "dora")
    shown(alice, "users", "add", "dora")
    said = run(alice, "users", "remove", "dora").stderr
    assert f"; nobody can end those without a renewer before they expire, the last at {lone['expires']}" in said  # fmt: skip
    assert "their renewers end them with" in said


def test_no_token_stays_whose_password_cannot_be_written(
    alice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_refused(said: str, file: Path) -> None:
        before = shown(alice, "tokens", "list")
        result = run(alice, "tokens", "create", "--file", str(file))
        assert result.exit_code == 1
        assert said in result.stderr
        assert shown(alice, "tokens", "list") == before
        assert not file.exists()

    is_refused("No such file or directory; no token was made", tmp_path / "nodir" / "x")
    refused = ("--owner", "Group:g", "--file", str(tmp_path / "group"))
    assert run(alice, "tokens", "create", *refused).exit_code == 1
    assert not (tmp_path / "group").exists()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("headwater.cli.tokens.write_private", full)
    is_refused("No space left on device; the token ", tmp_path / "full")


def test_few_iterations_are_a_warning(alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "pencil")
    few = run(alice, "users", "add", "fred", "--iterations", "8191")
    assert few.stdout == "fred: added (SCRAM-SHA-512)\n"
    assert few.stderr.startswith("warning: with 8191 iterations, ")
    assert run(alice, "users", "set-password", "fred").stderr == ""
    assert run(alice, "users", "set-password", "fred", "--iterations", "4095").exit_code == 2


@pytest.mark.parametrize(
    ("source", "timeout", "says"),
    [
        ("file:///nowhere/token", "30", "no token from file:///nowhere/token"),
        ("http://127.0.0.1:1/token", "2", "no token from http://127.0.0.1:1/token"),
    ],
)
def test_a_source_without_tokens_is_named_and_not_the_brokers(
    alice: Path, tmp_path: Path, source: str, timeout: str, says: str
) -> None:
    bootstrap = read_properties(str(alice))["bootstrap.servers"].value
    secret = "" if source.startswith("file:") else ' clientId="a" clientSecret="b"'
    file = tmp_path / "oauth.properties"
    file.write_text(
        f"bootstrap.servers={bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url={source}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
        f"required{secret};\n"
    )
    result = run(file, "topics", "list", "--timeout", timeout)
    assert result.exit_code == 1
    assert says in result.stderr
    assert "no broker answers" not in result.stderr
    assert ("timed out" in result.stderr) == (not source.startswith("file:")), "nobody writes it"
