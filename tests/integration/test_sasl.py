"""Our clients log in with every mechanism, and keep their sessions without losing a record.

Those of others are in `tests/compat/logins`.
"""

import asyncio
import time

import pytest

import headwater
from headwater import AuthenticationError, NewTopic, UserScramCredentialUpsertion, aio
from tests.unit.broker.live import Live

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
SESSION_MS = 1500
"""Long enough for clients that authenticate again at 85 to 95 %, on a busy machine too."""
LIFE_S = 2.5 * SESSION_MS / 1000
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.plain.without.tls": "true",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=pencil;"
    ),
    "connections.max.reauth.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("sasl"), SETTINGS) as running:
        with headwater.Admin(bootstrap_servers=running.bootstrap) as admin:
            for mechanism in MECHANISMS[:2]:
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion("alice", "pencil", mechanism)]
                )
        yield running


@pytest.fixture
def sasl(live):
    return f"127.0.0.1:{live.broker.listeners[1].port}"


@pytest.fixture
def topic(live, request):
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    with headwater.Admin(bootstrap_servers=live.bootstrap) as admin:
        admin.create_topics([NewTopic(name)])
    return name


def login(sasl, mechanism, password="pencil", user="alice"):
    return {
        "bootstrap_servers": sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password,
    }


def principals_of(live):
    """The principals of the open connections on the SASL listener."""
    return {
        str(one.principal)
        for one in live.context.connection_quotas.open
        if one.listener == "SASL_PLAINTEXT"
    }


# -- our clients


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_clients_outlive_their_sessions(live, sasl, topic, mechanism):
    opened = live.on_loop(lambda: len(live.context.connection_quotas.open))
    sent, received = 0, []
    with (
        headwater.Producer(**login(sasl, mechanism), linger_ms=0) as producer,
        headwater.Consumer(
            **login(sasl, mechanism), group_id=topic, auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.subscribe([topic])
        ends = time.monotonic() + LIFE_S
        while time.monotonic() < ends or len(received) < sent:
            if time.monotonic() < ends:
                producer.send(topic, b"%d" % sent).result()
                sent += 1
            received += [record.value for record in consumer.poll(0.05)]
        # The connections are those of the beginning: nobody has reconnected.
        connections = live.on_loop(lambda: list(live.context.connection_quotas.open))
        assert len(connections) - opened <= 6
        assert "User:alice" in principals_of(live)
    assert received == [b"%d" % number for number in range(sent)]


def test_both_faces_and_the_range_reader_log_in(sasl, topic):
    async def run():
        async with aio.Producer(**login(sasl, "SCRAM-SHA-256")) as producer:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)
        async with aio.Admin(**login(sasl, "SCRAM-SHA-512")) as admin:
            return await admin.list_topics()

    assert topic in asyncio.run(run())


def test_many_requests_in_flight_survive_a_new_login(sasl, topic):
    futures = []
    with headwater.Producer(**login(sasl, "SCRAM-SHA-512"), linger_ms=0) as producer:
        ends = time.monotonic() + LIFE_S
        while time.monotonic() < ends:
            futures += [producer.send(topic, b"x" * 100) for _ in range(50)]
            time.sleep(0.005)
        offsets = [future.result().offset for future in futures]
    assert offsets == list(range(len(futures)))


def poll_for(consumer, until_s):
    while time.monotonic() < until_s:
        consumer.poll(1.0)


@pytest.mark.parametrize("changed", [{"password": "wrong"}, {"user": "mallory"}])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_told_at_once(sasl, topic, mechanism, changed):
    says = "check the user, the password"
    wrong = login(sasl, mechanism, **changed)
    begun = time.monotonic()
    with (
        headwater.Producer(**wrong) as producer,
        pytest.raises(AuthenticationError, match=says),
    ):
        producer.send(topic, b"never").result()
    with headwater.Consumer(**wrong, group_id=topic) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(AuthenticationError, match=says):
            poll_for(consumer, begun + 60)
    with headwater.Consumer(**wrong) as consumer, pytest.raises(AuthenticationError, match=says):
        consumer.assign([(topic, 0)])
    with headwater.Admin(**wrong) as admin, pytest.raises(AuthenticationError, match=says):
        admin.list_topics()


def test_a_listener_without_sasl_says_so(live):
    with (
        headwater.Admin(**login(live.bootstrap, "PLAIN")) as admin,
        pytest.raises(AuthenticationError, match=r"security\.protocol"),
    ):
        admin.list_topics()


def test_a_user_may_come_and_go_while_the_broker_runs(live, sasl):
    with headwater.Admin(bootstrap_servers=live.bootstrap) as admin:
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "first")])
        bob = login(sasl, "SCRAM-SHA-512", user="bob", password="first")
        with headwater.Admin(**bob) as as_bob:
            assert as_bob.describe_cluster().brokers
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "second")])
        with headwater.Admin(**bob) as as_bob, pytest.raises(AuthenticationError):
            as_bob.describe_cluster()
        with headwater.Admin(**{**bob, "sasl_password": "second"}) as as_bob:
            assert as_bob.describe_cluster().brokers
