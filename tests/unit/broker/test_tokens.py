"""Delegation tokens: who may make, see, renew and end them, how they are stored, and who logs in."""

import json
import logging
from base64 import b64encode

import pytest

import headwater
from headwater import AuthenticationError, UserScramCredentialUpsertion
from headwater.broker.handlers import tokens as handlers
from headwater.broker.token_nodes import decode_token, token_path
from headwater.errors import E, KafkaError
from headwater.security.principals import Principal
from headwater.wire.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tests.unit.broker.live import Live, until

KEY = "no client ever sees this text"
DAY_MS = 86_400_000
ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
Renewer = CreateDelegationTokenRequest.CreatableRenewers
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "delegation.token.secret.key": KEY,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root;User:boss",
}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("tokens"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def as_(live):
    """Connections of users, by principal."""
    opened = []

    def connect(who):
        client = live.client()
        opened.append(client)
        if who is not None:
            live.log_in(client, who)
        return client

    yield connect
    for client in opened:
        client.socket.close()


def create(client, owner=None, renewers=(), version=3, **more):
    request = CreateDelegationTokenRequest(
        renewers=[Renewer(principal_type=one.kind, principal_name=one.name) for one in renewers],
        **more,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = owner
    return client.ask(request, CreateDelegationTokenResponse, version)


def renew(client, hmac, period_ms=-1):
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return client.ask(request, RenewDelegationTokenResponse, 2)


def expire(client, hmac, period_ms=-1):
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return client.ask(request, ExpireDelegationTokenResponse, 2)


def describe(client, *owners, version=3):
    wanted = [Owner(principal_type=one.kind, principal_name=one.name) for one in owners]
    request = DescribeDelegationTokenRequest(owners=wanted or None)
    answer = client.ask(request, DescribeDelegationTokenResponse, version)
    return E(answer.error_code), {one.token_id: one for one in answer.tokens}


def node_of(live, token_id):
    store, found = live.broker.parts.store, []
    live.on_loop(lambda: store.get(token_path(token_id), found.append))
    until(lambda: found)
    return found[0]


# -- the requests


def test_a_token_is_made_described_renewed_and_ended(live, as_):
    alice, bob, carol = as_(ALICE), as_(BOB), as_(CAROL)
    made = create(alice, renewers=[BOB], max_lifetime_ms=3 * DAY_MS)
    assert made.error_code == 0
    assert (made.principal_type, made.principal_name) == ALICE
    assert made.token_requester_principal_name == "alice"
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 3 * DAY_MS
    assert len(made.hmac) == 64

    for version in (1, 2, 3):
        _, seen = describe(bob, version=version)
        assert seen[made.token_id].hmac == made.hmac
        assert [one.principal_name for one in seen[made.token_id].renewers] == ["bob"]
    assert made.token_id in describe(alice, BOB)[1], "by renewer"
    assert made.token_id not in describe(alice, CAROL)[1]
    assert made.token_id not in describe(carol)[1], "somebody else's"
    empty = DescribeDelegationTokenRequest(owners=[])
    assert alice.ask(empty, DescribeDelegationTokenResponse, 3).tokens == []

    sooner = expire(bob, made.hmac, 1000 * 60)
    assert sooner.error_code == 0
    assert sooner.expiry_timestamp_ms < made.expiry_timestamp_ms
    later = renew(bob, made.hmac, 100 * DAY_MS)
    assert later.error_code == 0
    assert made.expiry_timestamp_ms <= later.expiry_timestamp_ms <= made.max_timestamp_ms
    assert renew(carol, made.hmac).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(carol, made.hmac).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH

    assert expire(alice, made.hmac, -1).error_code == 0
    assert renew(alice, made.hmac).error_code == E.DELEGATION_TOKEN_NOT_FOUND
    assert made.token_id not in describe(alice)[1]


def test_it_is_stored_as_kafka_3_9_stores_it_without_its_hmac(live, as_):
    made = create(as_(ALICE), renewers=[Principal("User", "bø b,*~")])
    data = node_of(live, made.token_id).data
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Ab%C3%B8%20b%2C%2A%7E"],
        "issueTimestamp": made.issue_timestamp_ms,
        "maxTimestamp": made.max_timestamp_ms,
        "expiryTimestamp": made.expiry_timestamp_ms,
        "tokenId": made.token_id,
    }
    assert b64encode(made.hmac) not in data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"tokenId": "id"}',
        b'{"version":3,"owner":"Broker%3A1","renewers":[],"issueTimestamp":1,"maxTimestamp":2,'
        b'"expiryTimestamp":2,"tokenId":"id"}',
        b'{"version":3,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":2,'
        b'"expiryTimestamp":2,"tokenId":"other"}',
    ],
)
def test_a_node_that_is_no_token_of_a_user_is_refused(content):
    with pytest.raises(ValueError, match="/delegation_token/tokens/id"):
        decode_token("id", content)


def test_a_token_of_kafka_before_3_3_has_its_owner_as_requester():
    content = (
        b'{"version":1,"owner":"User%3Aa","renewers":["User%3Ab"],"issueTimestamp":1,'
        b'"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"id"}'
    )
    token = decode_token("id", content)
    assert (token.requester, token.owner, token.expires_ms) == (token.owner, ("User", "a"), 2)


def test_who_may_not_deal_with_tokens(live, as_):
    nobody, alice, broker = as_(None), as_(ALICE), as_(Principal("Broker", "7"))
    for client in (nobody, broker):
        assert create(client).error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert renew(client, b"x").error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert expire(client, b"x").error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert describe(client)[0] == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert create(alice, BOB).error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert create(alice, renewers=[Principal("Group", "g")]).error_code == E.INVALID_PRINCIPAL_TYPE
    root = as_(Principal("User", "root"))
    assert create(root, Principal("Broker", "1")).error_code == E.INVALID_PRINCIPAL_TYPE
    made = create(root, BOB)
    assert (made.error_code, made.principal_name) == (0, "bob")
    assert made.token_requester_principal_name == "root"
    assert made.token_id in describe(root)[1]
    assert renew(root, made.hmac).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH


def test_limits(live, as_, monkeypatch):
    alice = as_(ALICE)
    many = [Principal("User", f"r{number}") for number in range(handlers.MOST_RENEWERS + 1)]
    assert create(alice, renewers=many).error_code == E.INVALID_REQUEST
    assert create(alice, renewers=many[1:]).error_code == 0
    assert (
        create(alice, renewers=[Principal("User", "\n" * 30_000)]).error_code == E.INVALID_REQUEST
    )
    long = create(alice, max_lifetime_ms=2**63 - 1)
    assert long.max_timestamp_ms - long.issue_timestamp_ms == 7 * DAY_MS
    short = create(alice, max_lifetime_ms=1)
    assert short.max_timestamp_ms == short.expiry_timestamp_ms == short.issue_timestamp_ms + 1
    until(lambda: renew(alice, short.hmac).error_code == E.DELEGATION_TOKEN_EXPIRED)
    assert expire(alice, short.hmac, 0).error_code == E.DELEGATION_TOKEN_EXPIRED
    assert expire(alice, short.hmac, -1).error_code == 0, "it can be removed"
    monkeypatch.setattr(handlers, "MOST_TOKENS", 1)
    assert create(alice).error_code == E.POLICY_VIOLATION


def test_nobody_uses_up_the_tokens_of_others(live, as_, monkeypatch):
    monkeypatch.setattr(handlers, "MOST_TOKENS_EACH", 3)
    dora, emil, fred, boss = (Principal("User", name) for name in ("dora", "emil", "fred", "boss"))
    of_dora, of_boss = as_(dora), as_(boss)
    requests = [CreateDelegationTokenRequest() for _ in range(5)]
    for request in requests:  # in one turn: none of them is stored when the next one comes
        of_dora.send(request, 3)
    answers = [of_dora.answer(CreateDelegationTokenResponse, 3) for _ in requests]
    assert [one.error_code for one in answers] == [0, 0, 0, *[E.POLICY_VIOLATION] * 2]
    assert create(of_boss, owner=dora).error_code == E.POLICY_VIOLATION, "as many of an owner"
    assert [create(of_boss, owner=one).error_code for one in (emil, emil, fred)] == [0, 0, 0]
    assert create(of_boss, owner=fred).error_code == E.POLICY_VIOLATION, "as many by a requester"
    assert create(as_(emil)).error_code == 0
    assert expire(of_dora, answers[0].hmac).error_code == 0
    assert create(of_dora).error_code == 0


def test_each_change_is_a_line_of_the_audit_log_without_a_secret(live, as_, caplog):
    alice = as_(ALICE)
    with caplog.at_level(logging.DEBUG):
        made = create(alice, renewers=[BOB])
        renew(alice, made.hmac)
        expire(alice, made.hmac, 1000)
        expire(alice, made.hmac)
    lines = [json.loads(one.getMessage()) for one in caplog.records if one.name.endswith("audit")]
    assert [line["event"] for line in lines] == [
        "token created", "token renewed", "token expiry changed", "token removed",
    ]  # fmt: skip
    assert {line["name"] for line in lines} == {made.token_id}
    assert {line["principal"] for line in lines} == {"User:alice"}
    assert lines[0]["changes"][0] == "owner User:alice"
    text = caplog.text
    assert KEY not in text
    assert b64encode(made.hmac).decode() not in text


def test_without_the_key_there_are_no_tokens(tmp_path):
    with Live(tmp_path) as live, live.client() as client:
        live.log_in(client, ALICE)
        assert create(client).error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
        assert renew(client, b"x").error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
        assert expire(client, b"x").error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
        assert describe(client)[0] == E.DELEGATION_TOKEN_AUTH_DISABLED


# -- logins


def jaas(user, password, token=True):
    return (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}"' + (' tokenauth="true";' if token else ";")
    )


def login(live, user, password, mechanism="SCRAM-SHA-512", token=True):
    return {
        "bootstrap_servers": f"127.0.0.1:{live.broker.listeners[1].port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": jaas(user, password, token),
    }


@pytest.fixture(scope="module")
def alice(live):
    with headwater.Admin(bootstrap_servers=live.bootstrap) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", "pencil")])
    with headwater.Admin(**login(live, "alice", "pencil", token=False)) as admin:
        yield admin


def principals(live):
    return {
        str(one.principal)
        for one in live.context.connection_quotas.open
        if one.listener == "SASL_PLAINTEXT"
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_as_its_owner_and_cannot_make_another(live, as_, mechanism):
    made = create(as_(Principal("User", "root")), Principal("User", f"owner-{mechanism}"))
    password = b64encode(made.hmac).decode()
    with headwater.Admin(**login(live, made.token_id, password, mechanism)) as admin:
        assert admin.describe_cluster().brokers
        assert f"User:owner-{mechanism}" in principals(live)
        for call in (admin.create_delegation_token, admin.describe_delegation_token):
            with pytest.raises(KafkaError) as refused:
                call()
            assert refused.value.code is E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_the_clients_make_renew_and_end_tokens(live, alice):
    made = alice.create_delegation_token(renewers=["bob", "User:carol"], max_lifetime_ms=DAY_MS)
    assert (made.owner, made.renewers) == ("User:alice", ("User:bob", "User:carol"))
    assert made.password not in repr(made)
    assert made in alice.describe_delegation_token(["alice"])
    assert made not in alice.describe_delegation_token(["dave"])
    assert alice.expire_delegation_token(made.hmac, 60_000) < made.expires_ms
    assert alice.renew_delegation_token(made.hmac) == made.max_ms
    alice.expire_delegation_token(made.hmac)
    assert made.token_id not in {one.token_id for one in alice.describe_delegation_token()}
    with pytest.raises(KafkaError) as unknown:
        alice.renew_delegation_token(made.hmac)
    assert unknown.value.code is E.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_that_ended_or_a_wrong_password_does_not_log_in(live, alice):
    made = alice.create_delegation_token()
    wrong = [login(live, made.token_id, "guess"), login(live, "unknown", made.password)]
    wrong.append(login(live, made.token_id, made.password, token=False))
    for settings in wrong:
        with headwater.Admin(**settings) as admin, pytest.raises(AuthenticationError):
            admin.list_topics()
    alice.expire_delegation_token(made.hmac)
    ended = login(live, made.token_id, made.password)
    with (
        headwater.Admin(**ended) as admin,
        pytest.raises(AuthenticationError, match="headwater tokens list"),
    ):
        admin.list_topics()


def test_a_session_ends_with_its_token(live, alice):
    """The client authenticates again while the token lasts, and cannot when it has expired."""
    made = alice.create_delegation_token(max_lifetime_ms=1500)
    with headwater.Admin(**login(live, made.token_id, made.password)) as admin:
        assert admin.describe_cluster().brokers

        def is_refused():
            try:
                admin.describe_cluster()
            except AuthenticationError:
                return True
            return False

        until(is_refused)
