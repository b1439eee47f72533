"""SASL on a live broker: who is let in, who is not, and for how long."""

import time
from contextlib import ExitStack

import pytest

from headwater.broker.dispatch import MOST_EARLY
from headwater.broker.handlers.sasl import _expire
from headwater.config.keys import ConfigError
from headwater.errors import E
from headwater.security.plain import PlainClient
from headwater.security.scram import ScramClient
from headwater.security.scram_credentials import (
    SCRAM,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
)
from headwater.wire.apis import API
from headwater.wire.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.control import UpdateMetadataResponse
from headwater.wire.messages.fetch import FetchResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.messages.produce import ProduceResponse
from headwater.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.unit.broker.live import Closed, Live, batch, fetch_request, produce_request, until
from tests.unit.broker.test_peers import asked, node_of, run, stale_update

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="ignored" password="ignored" user_bob="bob-secret";'
)
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
    "sasl.plain.without.tls": "true",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "connection.failed.authentication.delay.ms": "20",
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "800",
    "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": "600000",
}

WRONG_LOGIN = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "SCRAM-SHA-256": "Authentication failed during authentication due to invalid credentials with "
    "SASL mechanism SCRAM-SHA-256",
}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("sasl"), SETTINGS) as running:
        for mechanism in SCRAM.values():
            salted = mechanism.salted_password("pencil", b"salt", 4096)
            credential = ScramCredential.of_salted_password(mechanism, b"salt", salted, 4096)
            configs = {mechanism.name: credential.encode()}
            name = f"alice-{mechanism.digest}"
            running.on_loop(
                lambda name=name, configs=configs: running.context.users.replace(name, configs)
            )
        yield running


def scram(user="alice-sha256", password="pencil", mechanism=SCRAM_SHA_256):
    def derive(salt, iterations):
        return mechanism.salted_password(password, salt, iterations)

    return ScramClient(mechanism, user, derive, b"n" * 24)


def handshake(client, mechanism, version=1):
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)


def authenticate(client, exchange, mechanism):
    """Log in; the last answer of the broker."""
    assert handshake(client, mechanism).error_code == 0
    token = exchange.first()
    while True:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = client.ask(request, SaslAuthenticateResponse, 2)
        if answer.error_code:
            return answer
        token = exchange.next(bytes(answer.auth_bytes))
        if token is None:
            return answer


def is_served(client):
    return client.ask(MetadataRequest(topics=[]), MetadataResponse, 12).cluster_id is not None


def principals(live):
    return {str(one.principal) for one in live.context.connection_quotas.open}


@pytest.mark.parametrize("mechanism", SCRAM.values(), ids=lambda one: one.name)
def test_a_user_of_scram_is_served(live, mechanism):
    name = f"alice-{mechanism.digest}"
    with live.client(1) as client:
        answer = authenticate(client, scram(name, mechanism=mechanism), mechanism.name)
        assert answer.error_code == 0
        assert answer.session_lifetime_ms == (600_000 if mechanism is SCRAM_SHA_512 else 0)
        assert is_served(client)
        assert f"User:{name}" in principals(live)


def test_a_user_of_plain_is_served_for_a_while(live):
    with live.client(1) as client:
        answer = authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
        assert answer.session_lifetime_ms == 800
        assert is_served(client)


def test_the_mechanisms_are_told_and_another_one_ends_the_connection(live):
    with live.client(1) as client:
        answer = handshake(client, "GSSAPI")
        assert answer.error_code == E.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
        assert client.is_closed()


@pytest.mark.parametrize("key", sorted(API.keys() - {17, 18, 36}))
def test_nothing_else_is_served_before_authentication(live, key):
    with live.client(1) as client:
        assert client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        client.send(API[key].request(), API[key].served.highest)
        assert client.is_closed()


def test_nothing_else_is_served_during_authentication(live):
    with live.client(1) as client:
        handshake(client, "SCRAM-SHA-256")
        client.ask(SaslAuthenticateRequest(auth_bytes=scram().first()), SaslAuthenticateResponse, 2)
        client.send(MetadataRequest(topics=[]), 12)
        assert client.is_closed()


def test_few_requests_are_served_before_authentication(live, caplog):
    with live.client(1, source="127.0.0.9") as client:
        for _ in range(MOST_EARLY):
            assert client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        client.send(ApiVersionsRequest(), 0)
        assert client.is_closed()
    refusal = f"more than {MOST_EARLY} requests came before authentication"
    until(lambda: refusal in caplog.text)
    assert caplog.text.count(refusal) == 1


def test_a_client_that_authenticates_again_and_again_is_served(live):
    with live.client(1) as client:
        for _ in range(MOST_EARLY):
            answer = authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
            assert answer.error_code == 0
            (connection,) = [
                one for one in live.context.connection_quotas.open if one.principal.name == "bob"
            ]
            connection.sasl._ends_ms = 0
            live.on_loop(lambda connection=connection: _expire(live.context, connection))
            assert client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0


def test_a_token_before_the_handshake_logs_nobody_in(live):
    with live.client(1) as client:
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 2)
        assert client.is_closed()


def test_a_large_frame_is_refused_before_authentication_and_served_after_it(live):
    limit = live.context.settings.sasl_server_max_receive_size
    with live.client(1) as client:
        client.send_bytes((limit + 1).to_bytes(4))
        assert client.is_closed()
    with live.client(1) as client:
        authenticate(client, scram(), "SCRAM-SHA-256")
        many = [MetadataRequest.MetadataRequestTopic(name="t" * 200) for _ in range(3000)]
        request = MetadataRequest(topics=many, allow_auto_topic_creation=False)
        assert client.ask(request, MetadataResponse, 12).topics


def test_strangers_hold_no_memory_that_users_need(live):
    """Unfinished requests before authentication: they have a small budget of their own."""
    users, strangers = live.context.memory, live.context.memory_before_login
    large = live.context.settings.sasl_server_max_receive_size
    unfinished = large.to_bytes(4) + bytes(large // 2)
    with ExitStack() as stack:
        for _ in range(strangers.limit // large + 10):
            stack.enter_context(live.client(1)).send_bytes(unfinished)
        until(lambda: strangers.waiting)
        assert strangers.used <= strangers.limit + large
        assert 8 * strangers.limit < users.limit
        user = stack.enter_context(live.client(1))
        authenticate(user, scram(), "SCRAM-SHA-256")
        before = users.used
        assert not before, "strangers hold memory of users"
        user.send_bytes(unfinished)
        until(lambda: users.used > before)
    until(lambda: not users.used and not strangers.used)


@pytest.mark.parametrize(
    ("exchange", "mechanism"),
    [
        (lambda: scram(password="wrong"), "SCRAM-SHA-256"),
        (lambda: scram("mallory"), "SCRAM-SHA-256"),
        (lambda: scram("alice-sha512"), "SCRAM-SHA-256"),
        (lambda: PlainClient("bob", "wrong"), "PLAIN"),
        (lambda: PlainClient("mallory", "bob-secret"), "PLAIN"),
    ],
    ids=["password", "user", "other mechanism", "plain password", "plain user"],
)
def test_a_failure_is_told_late_and_without_a_reason(live, exchange, mechanism):
    with live.client(1) as client:
        begun = time.monotonic()
        answer = authenticate(client, exchange(), mechanism)
        assert time.monotonic() - begun >= 0.02
        assert answer.error_code == E.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == WRONG_LOGIN[mechanism]
        assert client.is_closed()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "GSSAPI"])
def test_a_session_goes_on_with_the_same_mechanism_only(live, mechanism):
    with live.client(1) as client:
        authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
        assert handshake(client, mechanism).error_code == E.UNSUPPORTED_SASL_MECHANISM
        assert client.is_closed()


def test_a_token_after_the_login_is_out_of_order(live):
    with live.client(1) as client:
        authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=b""), SaslAuthenticateResponse, 2)
        assert answer.error_code == E.ILLEGAL_SASL_STATE
        assert is_served(client)


def test_requests_behind_a_failure_are_not_served(live):
    with live.client(1) as client:
        handshake(client, "PLAIN")
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wrong"), 2)
        client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret"), 2)
        client.send(MetadataRequest(topics=[]), 12)
        answer = client.answer(SaslAuthenticateResponse, 2)
        assert answer.error_code == E.SASL_AUTHENTICATION_FAILED
        with pytest.raises(Closed):
            client.receive()


def raw(client, token):
    client.send_bytes(len(token).to_bytes(4) + token)
    return client.receive()


def test_an_old_client_sends_bare_tokens(live):
    with live.client(1) as client:
        assert handshake(client, "PLAIN", version=0).error_code == 0
        assert raw(client, b"\0bob\0bob-secret") == b""
        assert is_served(client)
    with live.client(1) as client:
        exchange = scram()
        handshake(client, "SCRAM-SHA-256", version=0)
        final = exchange.next(raw(client, exchange.first()))
        assert exchange.next(raw(client, final)) is None
        assert is_served(client)
    with live.client(1) as client:
        handshake(client, "PLAIN", version=0)
        client.send_bytes(b"\0\0\0\4\0a\0b")
        assert client.is_closed()


def test_an_expired_session_is_not_served_even_on_the_fast_path(live):
    live.create("expiring")
    with live.client(1) as client:
        authenticate(client, scram("alice-sha512", mechanism=SCRAM_SHA_512), "SCRAM-SHA-512")
        for _ in range(3):
            assert client.produce("expiring", batch()).error_code == 0
        (connection,) = [
            one
            for one in live.context.connection_quotas.open
            if one.principal.name == "alice-sha512"
        ]
        assert connection.route is not None

        def let_time_pass():
            connection.sasl._ends_ms = 0
            _expire(live.context, connection)

        live.on_loop(let_time_pass)
        client.send(produce_request("expiring", batch()), 9)
        with pytest.raises(Closed):
            client.answer(ProduceResponse, 9)
        assert live.on_loop(lambda: live.context.replicas.get("expiring", 0).log_end_offset) == 3


def test_a_session_ends_before_a_request_that_is_read_ahead_of_the_timer(live):
    """After a pause of the process, the loop reads what came meanwhile before it runs timers."""
    live.create("resumed")
    with live.client(1) as client:
        authenticate(client, scram("alice-sha512", mechanism=SCRAM_SHA_512), "SCRAM-SHA-512")
        assert client.produce("resumed", batch()).error_code == 0
        (connection,) = [
            one
            for one in live.context.connection_quotas.open
            if one.principal.name == "alice-sha512"
        ]

        def read_late():
            connection.sasl._ends_ms = 0
            connection.session_end._at_s = 0.0
            connection.buffer_updated(0)
            return connection.authenticated, connection.route

        assert live.on_loop(read_late) == (False, None)


def test_a_poll_that_began_in_time_gets_nothing_that_came_after_the_session(live):
    live.create("later")
    with live.client(1) as bob, live.client() as writer:
        authenticate(bob, PlainClient("bob", "bob-secret"), "PLAIN")
        number = bob.send(fetch_request({("later", 0): 0}, max_wait_ms=2**31 - 1), 12)
        (partition,) = bob.answer(FetchResponse, 12, number).responses[0].partitions
        assert not partition.records, "answered at the end of the session"
        assert writer.produce("later", batch()).error_code == 0


def test_a_session_goes_on_if_the_client_authenticates_again(live):
    with live.client(1) as client:
        answer = authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
        ends = time.monotonic() + 3 * answer.session_lifetime_ms / 1000
        while time.monotonic() < ends:
            time.sleep(answer.session_lifetime_ms * 0.6 / 1000)
            answer = authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
            assert answer.error_code == 0
            assert is_served(client)


def test_an_expired_session_may_be_renewed(live):
    with live.client(1) as client:
        answer = authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN")
        time.sleep(answer.session_lifetime_ms * 1.5 / 1000)
        assert authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN").error_code == 0
        assert is_served(client)


class MovedClock:
    """The clock of the system, moved by the test."""

    def __init__(self, clock):
        self._clock = clock
        self.wall_ahead_ms = 0
        self.ahead_ms = 0

    def wall_ms(self):
        return self._clock.wall_ms() + self.wall_ahead_ms

    def monotonic_ms(self):
        return self._clock.monotonic_ms() + self.ahead_ms

    def monotonic_us(self):
        return self._clock.monotonic_us() + self.ahead_ms * 1000


@pytest.fixture
def clock(live):
    before = live.context.clock
    moved = MovedClock(before)
    live.on_loop(lambda: setattr(live.context, "clock", moved))
    yield moved
    live.on_loop(lambda: setattr(live.context, "clock", before))


def test_a_jump_of_the_clock_neither_ends_nor_extends_a_session(live, clock):
    name, years_ms = "alice-sha512", 10 * 365 * 86_400_000
    with live.client(1) as client:
        answer = authenticate(client, scram(name, mechanism=SCRAM_SHA_512), "SCRAM-SHA-512")
        (connection,) = [
            one for one in live.context.connection_quotas.open if one.principal.name == name
        ]
        for jump_ms in (years_ms, -years_ms):
            clock.wall_ahead_ms = jump_ms
            live.on_loop(lambda: _expire(live.context, connection))
            assert is_served(client)
        clock.ahead_ms = answer.session_lifetime_ms + 1
        live.on_loop(lambda: _expire(live.context, connection))
        client.send(MetadataRequest(topics=[]), 12)
        assert client.is_closed()


def test_a_second_handshake_too_soon_is_answered_and_the_connection_stays(live):
    with live.client(1) as client:
        authenticate(client, scram(), "SCRAM-SHA-256")
        assert handshake(client, "SCRAM-SHA-256").error_code == E.ILLEGAL_SASL_STATE
        assert is_served(client)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "offers no SASL mechanism"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.plain.without.tls": "true"},
            "needs users with passwords",
        ),
        (
            {"sasl.plain.without.tls": "true", "sasl.enabled.mechanisms": "PLAIN",
             "sasl.jaas.config": 'com.evil.Login required user_a="hunter2";'},
            "com.evil.Login is not supported",
        ),
        (
            {"sasl.plain.without.tls": "true", "sasl.enabled.mechanisms": "PLAIN",
             "java.security.auth.login.config": "missing/jaas.conf"},
            "missing/jaas.conf cannot be read",
        ),
    ],
)  # fmt: skip
def test_a_listener_that_nobody_could_use_safely_does_not_start(tmp_path, settings, says):
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with pytest.raises(ConfigError, match=says) as refused, Live(tmp_path, listeners | settings):
        pass
    assert "hunter2" not in str(refused.value)


def test_users_of_plain_may_be_in_a_file(tmp_path):
    file = tmp_path / "jaas.conf"
    file.write_text(f"KafkaServer {{ {PLAIN_USERS} }};")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.without.tls": "true",
        "java.security.auth.login.config": str(file),
    }
    with Live(tmp_path / "data", settings) as live, live.client() as client:
        assert authenticate(client, PlainClient("bob", "bob-secret"), "PLAIN").error_code == 0
        assert is_served(client)


def test_a_file_without_a_section_for_the_listener_is_named(tmp_path):
    file = tmp_path / "jaas.conf"
    file.write_text("KafkaServr {\n" + PLAIN_USERS + "\n};\n")
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.without.tls": "true",
        "java.security.auth.login.config": str(file),
    }
    with (
        pytest.raises(ConfigError, match=r"needs users with passwords \(.*/jaas.conf has none for"),
        Live(tmp_path / "data", settings),
    ):
        pass


def test_brokers_log_in_where_clients_do(tmp_path):
    async def scenario(peers, network):
        connection = peers.open(node_of(live), "test")
        return await asked(connection, stale_update(live), UpdateMetadataResponse, version=8)

    with Live(tmp_path, {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as live:
        assert run(live, scenario).error_code == E.STALE_CONTROLLER_EPOCH
        with live.client() as client:
            told = handshake(client, "GSSAPI").mechanisms
        assert told == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
