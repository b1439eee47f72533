"""Delegation tokens in a cluster of two brokers: our clients, and Kafka's tools and clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import Admin, AuthenticationError, UserScramCredentialUpsertion
from tests.compat.client import Unavailable
from tests.compat.tool_server import Ended, ToolServer
from tests.integration.metadata_stores import StoreProcess
from tests.integration.waiting import until
from tests.unit.broker.live import Live

DAY_MS = 86_400_000
PLAIN_USER = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="pencil";'
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Live]]:
    """Two brokers with the user alice; the first is the controller."""
    folder = tmp_path_factory.mktemp("tokens")
    store = StoreProcess(str(folder / "store"))
    settings = {
        "zookeeper.connect": f"{store.address}/tokens",
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "controlled.shutdown.enable": "false",
        "delegation.token.secret.key": "the same on both",
        "delegation.token.expiry.check.interval.ms": "100",
    }
    try:
        with (
            Live(folder / "1", {**settings, "node.id": "1"}) as one,
            Live(folder / "2", {**settings, "node.id": "2"}) as two,
        ):
            with Admin(bootstrap_servers=one.bootstrap) as admin:
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion("alice", "pencil")]
                )
            until(lambda: two.on_loop(lambda: two.context.users.of("alice")), "the user at both")
            yield one, two
    finally:
        store.kill()


def settings_at(live: Live, jaas: str) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{live.broker.listeners[1].port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }


def admin_at(live: Live, jaas: str = PLAIN_USER) -> Admin:
    settings = settings_at(live, jaas).items()
    return Admin(**{name.replace(".", "_"): value for name, value in settings})  # type: ignore[arg-type]


def login_of(token_id: str, password: str) -> str:
    token = f'username="{token_id}" password="{password}"'
    return PLAIN_USER.replace('username="alice" password="pencil"', f'{token} tokenauth="true"')


def known_at(live: Live) -> dict[str, int]:
    """The tokens that a broker knows, with their ends."""
    tokens = live.context.tokens.tokens
    return {one.token_id: one.ends_ms for one in live.on_loop(lambda: list(tokens))}


def test_both_brokers_know_a_token_until_the_controller_removes_it(
    brokers: tuple[Live, Live],
) -> None:
    one, two = brokers
    assert one.context.controller.active
    with admin_at(two) as alice, admin_at(one) as at_the_other:
        token = alice.create_delegation_token(max_lifetime_ms=DAY_MS)
        until(lambda: token.token_id in known_at(one), "the token at the other broker")
        for live in brokers:
            with admin_at(live, login_of(token.token_id, token.password)) as job:
                assert len(job.describe_cluster().brokers) == 2
        earlier = at_the_other.expire_delegation_token(token.hmac, 60_000)
        until(lambda: known_at(two)[token.token_id] == earlier, "its new end at both")
        assert alice.renew_delegation_token(token.hmac) == token.max_ms
        at_the_other.expire_delegation_token(token.hmac)
        until(lambda: token.token_id not in known_at(two), "its end at both")
        with (
            admin_at(two, login_of(token.token_id, token.password)) as job,
            pytest.raises(AuthenticationError, match="it may have expired"),
        ):
            job.describe_cluster()
        short = alice.create_delegation_token(max_lifetime_ms=1).token_id
        for live in brokers:
            until(lambda at=live: short not in known_at(at), "its removal")  # type: ignore[misc]


def test_kafkas_tool_and_a_java_client_with_a_token(
    brokers: tuple[Live, Live], tool_server: ToolServer, tmp_path: Path
) -> None:
    try:
        tool_server.start()
    except Unavailable as missing:
        pytest.skip(str(missing))
    one, two = brokers
    config = tmp_path / "client.properties"

    def kafka(live: Live, tool: str, *words: str, jaas: str = PLAIN_USER) -> Ended:
        settings = settings_at(live, jaas)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        where = ("--bootstrap-server", settings["bootstrap.servers"])
        return tool_server.run(tool, *where, "--command-config", str(config), *words)

    tokens = "kafka-delegation-tokens"
    create = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    made = kafka(one, tokens, *create)
    assert "Created delegation token" in made.text, made
    token_id, hmac, *principals = made.stdout.splitlines()[-1].split()
    assert principals[:3] == ["User:alice", "User:alice", "[User:bob]"]
    until(lambda: token_id in known_at(two), "the token at the other broker")

    described = kafka(two, tokens, "--describe", "--owner-principal", "User:alice").stdout
    assert token_id in described
    assert hmac in described
    renewed = kafka(two, tokens, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed.text, renewed

    login = login_of(token_id, hmac)
    assert kafka(two, "kafka-topics", "--list", jaas=login).status == 0
    refused = kafka(one, tokens, *create, jaas=login)
    assert "Delegation Token requests are not allowed" in refused.text, refused

    ended = kafka(one, tokens, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in ended.text, ended
    until(lambda: token_id not in known_at(two), "its end at the other broker")
