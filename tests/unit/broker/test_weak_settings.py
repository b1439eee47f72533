"""What `headwater security check` says about settings with which a broker starts."""

import pytest
from click.testing import CliRunner

from headwater.broker.weak_settings import readable_secrets, warn_of_lockout, weak_settings
from headwater.cli.security import command
from headwater.config.broker import BrokerSettings
from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.security.acl_index import AclIndex
from headwater.security.acls import (
    AclEntry,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from tests.pages import shown_below
from tests.unit.broker.live import Live

AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
ENTRY = AclEntry("User:a", "*", AclOperation.ALL, AclPermission.ALLOW)
SAFE = {"listeners": "SASL_SSL://10.0.0.1:9093", **AUTHORIZED}
TOKENS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://login.example/certs",
    "sasl.oauthbearer.expected.issuer": "https://login.example",
    "sasl.oauthbearer.expected.audience": "kafka",
}
WEAK = {
    "PLAINTEXT beyond loopback": (
        {"listeners": "PLAINTEXT://10.0.0.1:9092"},
        "PLAINTEXT://10.0.0.1:9092 is not encrypted (PLAINTEXT) and other machines reach it: use",
    ),
    "PLAIN without TLS": (
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.plain.without.tls": "true",
        },
        "accepts passwords without TLS (PLAIN): use SASL_SSL",
    ),
    "TLS 1.2": (
        {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"},
        "accepts TLSv1.2: remove it from ssl.enabled.protocols",
    ),
    "no authorizer": (
        {"authorizer.class.name": "", "super.users": ""},
        "every client may do everything: set authorizer.class.name=",
    ),
    "open without ACLs": (
        {"allow.everyone.if.no.acl.found": "true"},
        "remove allow.everyone.if.no.acl.found=true",
    ),
    "no super users": ({"super.users": ""}, "set super.users"),
    "OAuth without an end": (TOKENS, "set listener.name.sasl_ssl.connections.max.reauth.ms"),
    "delegation tokens without an end": (
        {"delegation.token.secret.key": "a long random text"},
        "set listener.name.sasl_ssl.connections.max.reauth.ms",
    ),
    "nobody is asked for a certificate": (
        {"listeners": "SSL://10.0.0.1:9093"},
        "set listener.name.ssl.ssl.client.auth=required",
    ),
}


def load(changed):
    given = {name: text for name, text in {**SAFE, **changed}.items() if text}
    return BrokerSettings.load(None, given)


@pytest.mark.parametrize("name", WEAK)
def test_each_weak_setting_is_one_finding_that_says_what_to_do(name, monkeypatch):
    changed, said = WEAK[name]
    monkeypatch.setattr(BrokerSettings, "tls_of", lambda *_: None)  # there is no key store
    (found,) = weak_settings(load(changed))
    assert said in found


def test_safe_settings_have_no_findings(monkeypatch):
    monkeypatch.setattr(BrokerSettings, "tls_of", lambda *_: None)
    for changed in (
        {},
        {**TOKENS, "connections.max.reauth.ms": "900000"},
        {"listeners": "SSL://10.0.0.1:9093", "ssl.client.auth": "required"},
        {"listeners": "PLAINTEXT://127.0.0.1:9092"},
    ):
        assert list(weak_settings(load(changed))) == []


def test_secrets_that_others_can_read_are_found_in_the_file_and_in_those_it_names(tmp_path):
    file, users = tmp_path / "broker.properties", tmp_path / "users.properties"
    file.write_text("zookeeper.digest.username=a\nzookeeper.digest.password=b\n")
    users.write_text("")
    users.chmod(0o640)
    file.chmod(0o600)
    with file.open("a") as more:
        more.write(f"sasl.scram.users.file={users}\n")
    assert list(readable_secrets(BrokerSettings.load(str(file)), file)) == [
        f"others can read {users}: run chmod 600 {users}"
    ]
    users.chmod(0o600)
    file.chmod(0o644)
    assert list(readable_secrets(BrokerSettings.load(str(file)), file)) == [
        f"others can read {file}: run chmod 600 {file}"
    ]
    file.write_text("num.partitions=1\n")
    assert list(readable_secrets(BrokerSettings.load(str(file)), file)) == []


def test_an_authorizer_that_refuses_everyone_is_one_warning_at_the_start(tmp_path, caplog):
    def warned(folder, **more):
        caplog.clear()
        only = {"authorizer.class.name": STANDARD_AUTHORIZER, **more}
        with Live(tmp_path / folder, only):
            return [one.getMessage() for one in caplog.records if "super.users" in one.getMessage()]

    (said,) = warned("locked")
    assert "set super.users, for example super.users=User:admin, and restart" in said
    assert warned("super", **{"super.users": "User:admin"}) == []
    settings = BrokerSettings.load(None, {"authorizer.class.name": STANDARD_AUTHORIZER})
    acls = AclIndex()
    acls.replace(ResourcePattern(AclResourceType.TOPIC, AclPatternType.LITERAL, "t"), [ENTRY])
    caplog.clear()
    warn_of_lockout(settings, acls)
    assert caplog.records == [], "somebody may do something"


def test_the_command_checks_any_settings_and_fails_if_it_finds_something(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://10.0.0.1:9092\n")

    def check():
        folder = str(tmp_path / "none")
        return CliRunner().invoke(command, ["check", "--dir", folder, "--config", str(file)])

    done = check()
    assert done.exit_code == 1
    assert "is not encrypted" in done.output
    assert f"Error: 2 problems in {file}" in done.output
    page = shown_below(
        "docs/security.md",
        "headwater security check --config server.properties --zookeeper zk1:2181/kafka",
    )
    assert page[:2] == done.output.splitlines()[:2]
    lines = {"listeners": "PLAINTEXT://127.0.0.1:9092", **AUTHORIZED}
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    assert check().output == "no problems\n"
