"""Real clients log in with every mechanism they have, and keep their sessions without losing a record."""

import asyncio
import time

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import headwater
from headwater import AuthenticationError, NewTopic, UserScramCredentialUpsertion, aio
from tests.integration.certificates import Authority
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


def users_of(live):
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
        assert "User:alice" in users_of(live)
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


# -- other clients


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_outlives_its_session(sasl, topic, mechanism):
    config = {
        "bootstrap.servers": sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "pencil",
    }
    failures, count = [], 0
    producer = confluent_kafka.Producer(config)
    ends = time.monotonic() + LIFE_S
    while time.monotonic() < ends:
        producer.produce(
            topic, b"%d" % count, on_delivery=lambda error, _: error and failures.append(error)
        )
        producer.poll(0.05)
        count += 1
    assert producer.flush(30) == 0
    assert failures == []
    consumer = confluent_kafka.Consumer(
        {**config, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    received = []
    ends = time.monotonic() + 60
    while len(received) < count and time.monotonic() < ends:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            received.append(message.value())
    consumer.close()
    assert received == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_outlives_its_session(sasl, topic, mechanism):
    config = {
        "bootstrap_servers": sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "pencil",
    }
    producer = kafka.KafkaProducer(**config)
    count = 0
    ends = time.monotonic() + LIFE_S
    while time.monotonic() < ends:
        producer.send(topic, b"%d" % count).get(timeout=30)
        count += 1
        time.sleep(0.05)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=5000
    )
    received = []
    for record in consumer:
        received.append(record.value)
        if len(received) == count:
            break
    consumer.close()
    assert received == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_reconnects_when_its_session_ends(sasl, topic, mechanism):
    config = {
        "bootstrap_servers": sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "pencil",
    }

    async def run():
        count = 0
        async with AIOKafkaProducer(**config) as producer:
            ends = time.monotonic() + LIFE_S
            while time.monotonic() < ends:
                await producer.send_and_wait(topic, b"%d" % count)
                count += 1
                await asyncio.sleep(0.05)
        received = []
        async with AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest") as consumer:
            while len(received) < count:
                received.append((await asyncio.wait_for(consumer.getone(), 30)).value)
        return count, received

    count, received = asyncio.run(run())
    # It does not authenticate again: a record whose connection ends may be sent twice.
    assert sorted(set(received), key=int) == [b"%d" % number for number in range(count)]


def test_over_tls_plain_is_offered_and_passwords_are_safe(tmp_path):
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.signed("broker")),
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.jaas.config": SETTINGS["listener.name.sasl_plaintext.plain.sasl.jaas.config"],
    }
    with Live(tmp_path / "data", settings) as live:
        server = live.bootstrap
        mine = {
            **login(server, "PLAIN"),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(authority.certificate),
        }
        with headwater.Admin(**mine) as admin:
            admin.create_topics([NewTopic("t")])
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "second")])
        with headwater.Producer(**mine) as producer:
            producer.send("t", b"one").result()
        theirs = {
            "bootstrap.servers": server,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "bob",
            "sasl.password": "second",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
        consumer = confluent_kafka.Consumer(theirs)
        consumer.subscribe(["t"])
        message = consumer.poll(60)
        consumer.close()
        assert message is not None
        assert message.value() == b"one"
        assert {str(one.principal) for one in live.context.connection_quotas.open} <= {
            "User:alice",
            "User:bob",
        }


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
