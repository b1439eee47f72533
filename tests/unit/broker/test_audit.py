"""The audit log: who changed what, and whose login was refused; without secrets, each in one line."""

import json
import logging

import pytest

import headwater
from headwater.client.admin import QuotaEntity
from headwater.security.plain import PlainClient
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.unit.broker.live import Live

CANARY = "canary-b7c1"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_bob="{CANARY}-of-bob" user_admin="admin-secret";'
)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "sasl.plain.without.tls": "true",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": LOGIN,
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
    }
    with Live(tmp_path_factory.mktemp("audit"), settings) as running:
        yield running


def audited(caplog) -> list[dict[str, object]]:
    lines = [one.getMessage() for one in caplog.records if one.name == "headwater.audit"]
    assert not any("\n" in line for line in lines)
    return [json.loads(line) for line in lines]


def log_in(live, mechanism: str, token: bytes) -> None:
    with live.client() as client:
        client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        chosen = client.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, 1)
        if not chosen.error_code:
            client.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 1)
        assert client.is_closed()


def test_a_refused_login_is_a_line_and_its_repetitions_are_counted(live, caplog):
    forged = 'eve\n{"event": "forged"}'
    audit = live.context.audit
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            log_in(live, "PLAIN", PlainClient(forged, f"{CANARY}-guess").first())
        log_in(live, "SCRAM-SHA-512", f"n,,n=bob,r={CANARY},m=x".encode())
        log_in(live, 'OTHER\n"', b"")
        live.on_loop(lambda: [audit._said.update({k: (0, n)}) for k, (_, n) in audit._said.items()])
        log_in(live, "PLAIN", PlainClient(forged, f"{CANARY}-guess").first())
    first, scram, unknown, again = audited(caplog)
    assert first == {
        "event": "login refused", "principal": "User:ANONYMOUS", "host": "127.0.0.1",
        "listener": "SASL_PLAINTEXT", "mechanism": "PLAIN",
        "rule": f"with PLAIN: user {forged!r} or the password is wrong",
    }  # fmt: skip
    assert (scram["mechanism"], unknown["mechanism"]) == ("SCRAM-SHA-512", 'OTHER\n"')
    assert again == {**first, "repeated": 2}
    assert CANARY not in caplog.text


def test_a_change_is_a_line_with_the_rule_that_allowed_it(live, caplog):
    admin_login = {
        "bootstrap_servers": live.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "admin",
        "sasl_password": "admin-secret",
    }
    with caplog.at_level(logging.DEBUG), headwater.Admin(**admin_login) as admin:
        admin.create_topics(["orders"])
        upsertion = headwater.UserScramCredentialUpsertion(
            "carol", f"{CANARY}-of-carol", "SCRAM-SHA-512", 4096
        )
        admin.alter_user_scram_credentials([upsertion])
        admin.alter_user_scram_credentials([headwater.UserScramCredentialDeletion("carol")])
        topic = headwater.ConfigResource.topic("orders")
        admin.alter_configs({topic: {"retention.ms": "60000"}})
        admin.alter_client_quotas({QuotaEntity(user="carol"): {"producer_byte_rate": 5e6}})
    lines = audited(caplog)
    who = {"principal": "User:admin", "host": "127.0.0.1", "rule": "super user"}
    assert all(line.items() >= who.items() for line in lines)
    found = [(line["event"], line["api"], line["name"], *line["changes"]) for line in lines]
    users = ("users changed", "AlterUserScramCredentials", "carol")
    assert found == [
        (*users, "SCRAM-SHA-512 set"),
        (*users, "SCRAM-SHA-512 removed"),
        ("configs changed", "IncrementalAlterConfigs", "TOPIC orders", "retention.ms"),
        ("quotas changed", "AlterClientQuotas", "user 'carol'", "producer_byte_rate=5000000"),
    ]
    assert CANARY not in caplog.text
