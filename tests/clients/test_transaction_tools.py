"""What administrators see of transactions, and how they end one that hangs."""

import asyncio
import json
import time

import pytest
from click.testing import CliRunner

import headwater
from headwater import KafkaError, TopicPartition, aio
from headwater.cli.app import command
from headwater.client.errors import TimedOutError
from headwater.client.group_metadata import ConsumerGroupMetadata
from headwater.errors import E
from headwater.records.builder import build_batch
from headwater.records.record import Record
from headwater.seams.network import TcpNetwork
from headwater.testing import Broker
from headwater.transport.client_connection import ClientConnection
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.clients.broker_under_test import until
from tests.clients.fake_cluster import FakeCluster, serving

HOUR_MS = 3_600_000
TIMEOUT_MS = 600_000
"""No transaction times out while a busy machine runs a test."""
LAST_OF_VERSION_1 = 11
"""The last version of Produce whose clients add partitions to their transactions themselves."""
STRAY = 4711
"""A producer that no coordinator knows."""


def patient_producer(broker, name):
    return headwater.Producer(
        bootstrap_servers=broker.bootstrap, transactional_id=name, transaction_timeout_ms=TIMEOUT_MS
    )


@pytest.fixture
def admin(bootstrap):
    with headwater.Admin(bootstrap_servers=bootstrap) as made:
        yield made


@pytest.fixture
def open_transaction(broker, lane):
    """A producer with one record in an open transaction, and its transactional id."""
    name = broker.name("id")
    with patient_producer(broker, name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(lane, b"open")
        producer.flush()
        yield producer, name
        producer.abort_transaction()


def test_transactions_and_their_producers_are_listed_and_described(admin, lane, open_transaction):
    producer, name = open_transaction
    at = TopicPartition(lane, 0)
    (listed,) = [one for one in admin.list_transactions() if one.transactional_id == name]
    assert listed.state == "Ongoing"
    described = admin.describe_transactions([name])[name]
    assert described.partitions == (at,)
    assert described.producer_id == listed.producer_id
    assert described.coordinator_id == listed.coordinator_id
    assert described.started_ms is not None
    (state,) = admin.describe_producers([at])[at]
    assert (state.producer_id, state.transaction_start) == (listed.producer_id, 0)
    assert admin.describe_producers([at], broker_id=listed.coordinator_id)[at] == (state,)

    producer.commit_transaction()
    until(
        "the transaction is complete",
        lambda: admin.describe_transactions([name])[name].state == "CompleteCommit",
    )
    described = admin.describe_transactions([name])[name]
    assert described.partitions == ()
    (state,) = admin.describe_producers([at])[at]
    assert state.transaction_start is None
    producer.begin_transaction()


def test_lists_of_transactions_are_filtered(admin, open_transaction):
    producer, name = open_transaction
    (row,) = admin.list_transactions(["Ongoing"], id_pattern=f"{name}|no-other")
    assert row.transactional_id == name
    assert admin.list_transactions(producer_ids=[row.producer_id]) == [row]
    assert admin.list_transactions(["Empty"], [row.producer_id]) == []
    assert admin.list_transactions(producer_ids=[row.producer_id], longer_than_ms=HOUR_MS) == []
    until(
        "it is open for longer",
        lambda: admin.list_transactions(producer_ids=[row.producer_id], longer_than_ms=0) == [row],
    )
    producer.commit_transaction()
    until(
        "one that has ended is not open",
        lambda: admin.list_transactions(producer_ids=[row.producer_id], longer_than_ms=0) == [],
    )
    producer.begin_transaction()


def test_what_does_not_exist_is_named(admin, lane):
    for wrong, said in (
        (lambda: admin.describe_transactions(["no-such-id"]), "no-such-id"),
        (lambda: admin.list_transactions(["Sleeping"]), "no transaction state Sleeping"),
        (lambda: admin.list_transactions(id_pattern="("), "regular expression"),
        (lambda: admin.describe_producers([(lane, 7)]), "7"),
        (lambda: admin.describe_producers([(lane, 0)], broker_id=99), "there is no broker 99"),
    ):
        with pytest.raises(KafkaError, match=said):
            wrong()
    with pytest.raises(TypeError, match="a ProducerState of describe_producers"):
        admin.abort_transaction((lane, 0), 4711)


def test_stable_offsets_of_a_group_wait_for_a_transaction(bootstrap, admin, lane, open_transaction):
    producer, name = open_transaction
    group = ConsumerGroupMetadata(f"group-{name}")
    producer.send_offsets_to_transaction({(lane, 0): 7}, group)
    at = TopicPartition(lane, 0)
    assert admin.group_offsets(group.group_id, [at]) == {}
    short = {"default_api_timeout_ms": 1000, "request_timeout_ms": 1000}
    with (
        headwater.Admin(bootstrap_servers=bootstrap, **short) as hasty,
        pytest.raises(TimedOutError, match=f"offsets of group {group.group_id}"),
    ):
        hasty.group_offsets(group.group_id, [at], stable=True)
    producer.commit_transaction()
    assert admin.group_offsets(group.group_id, [at], stable=True)[at].offset == 7
    assert admin.group_offsets(group.group_id)[at].offset == 7
    assert admin.group_offsets(group.group_id, []) == {}
    producer.begin_transaction()  # for the fixture to end


def test_brokers_tell_whether_they_have_transactions(admin):
    assert admin.supports_transactions()
    with (
        serving(FakeCluster(brokers=2)) as older,
        headwater.Admin(bootstrap_servers=older.bootstrap) as asks,
    ):
        assert not asks.supports_transactions()


def test_the_asyncio_admin_has_them_too(bootstrap, lane, open_transaction):
    async def described():
        async with aio.Admin(bootstrap_servers=bootstrap) as admin:
            return await admin.describe_transactions([open_transaction[1]])

    assert asyncio.run(described())[open_transaction[1]].partitions == (TopicPartition(lane, 0),)


# -- hanging


async def write_stray_batch(bootstrap, topic):
    """Write a record of a transaction that no coordinator knows."""
    host, _, port = bootstrap.rpartition(":")
    connection = await ClientConnection.open(TcpNetwork(), host, int(port), timeout_s=60)
    batch = build_batch(
        [Record(value=b"stray")],
        now=int(time.time() * 1000),
        producer_id=STRAY,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    part = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(
        transactional_id="stray",
        acks=-1,
        timeout_ms=60_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[part])],
    )
    answer = await connection.call(request, ProduceResponse, newest=LAST_OF_VERSION_1)
    connection.close()
    assert answer.responses[0].partition_responses[0].error_code == E.NONE


@pytest.fixture
def trusting():
    """A broker that does not verify who adds a partition to a transaction."""
    settings = {"transaction.partition.verification.enable": "false"}
    with Broker(settings, subprocess=True) as broker:
        broker.create_topic("t")
        yield broker


def test_a_hanging_transaction_is_found_and_aborted(trusting):
    def type_in(*words):
        words = [*words, "--bootstrap-server", trusting.bootstrap]
        return CliRunner().invoke(command, words)

    def rows(*words):
        done = type_in(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    find = ("transactions", "find-hanging", "--max-transaction-timeout", "0")
    asyncio.run(write_stray_batch(trusting.bootstrap, "t"))
    with patient_producer(trusting, "kept") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"kept")
        producer.flush()
        assert [row["transactional_id"] for row in rows("transactions", "list")] == ["kept"]
        (described,) = rows("transactions", "describe", "kept")
        assert (described["state"], described["partitions"]) == ("Ongoing", ["t-0"])
        assert described["open_for_ms"] >= 0
        assert [row["transaction_start"] for row in rows("producers", "t")] == [0, 1]

        for where in ([], ["t"], ["t:0"], ["--broker", str(described["coordinator_id"])]):
            (hanging,) = rows(*find, *where)
            assert (hanging["producer_id"], hanging["transaction_start"]) == (STRAY, 0)
        assert rows("transactions", "find-hanging") == [], "both were written a moment ago"
        assert "there is no live broker 77" in type_in(*find, "--broker", "77").stderr
        refused = type_in("transactions", "abort", "t:0", "--start-offset", "1")
        assert "transactional id kept is in state Ongoing" in refused.stderr
        refused = type_in("transactions", "abort", "t:0", "--start-offset", "5")
        assert "those open begin at 0, 1" in refused.stderr
        producer.commit_transaction()
        until(
            "the marker of the commit is written",
            lambda: [row["transaction_start"] for row in rows("producers", "t")] == [0, None],
        )
    (described,) = rows("transactions", "describe", "kept")
    assert (described["started_ms"], described["open_for_ms"]) == (None, None), "it is over"
    read = ("consume", "t", "--isolation", "read-committed")
    assert type_in(*read).stdout == "", "the hanging transaction hides what follows it"
    assert type_in("consume", "t").stdout == "stray\nkept\n"

    (aborted,) = rows("transactions", "abort", "t:0", "--start-offset", "0")
    assert aborted["producer_id"] == STRAY
    assert type_in(*read).stdout == "kept\n"
    assert (
        type_in("consume", "t", "--isolation", "read_committed", "--group", "g").stdout == "kept\n"
    )
    assert rows(*find) == []


def test_an_open_transaction_is_aborted_only_by_force(trusting):
    def abort(*options):
        words = ["transactions", "abort", "t:0", "--start-offset", "0", *options]
        return CliRunner().invoke(command, [*words, "--bootstrap-server", trusting.bootstrap])

    with patient_producer(trusting, "x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush()
        assert abort().exit_code == 1
        assert abort("--force").exit_code == 0
        assert "none is" in abort().stderr


def test_perf_counts_transactions(trusting):
    def told(*words):
        words = ["perf", *words, "--json", "--bootstrap-server", trusting.bootstrap]
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    size = ("-n", "300", "-s", "50")
    short = ("--transaction-duration-ms", "1", "--rate", "20000")
    produced = told("produce", "t", *size, "--transactional", *short)
    assert produced["records"] == 300
    assert produced["transactions"] > 1
    assert 0 < produced["commit_p50_ms"] <= produced["commit_p99_ms"]
    assert produced["transactions_per_s"] > 0
    assert "transactions" not in told("produce", "t", *size)
    assert told("consume", "t")["records"] == 600, "offsets of markers are no records"
