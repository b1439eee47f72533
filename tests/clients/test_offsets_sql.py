"""Exactly once into a database: offsets and results in one transaction, on two databases."""

import sqlite3

import pytest

import headwater
from headwater.client.offsets_sql import SkippedRecordsError, SqlOffsets, StaleOffsetsError
from headwater.model import TopicPartition
from tests.clients import postgres


@pytest.fixture(scope="session")
def broker(headwater_under_test):
    return headwater_under_test


@pytest.fixture
def topic(broker):
    name = broker.topic(partitions=2)
    with headwater.Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(100):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


@pytest.fixture(scope="module")
def postgres_address():
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg")
    with postgres.running_postgres() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request, tmp_path):
    """Makes connections to one empty database."""
    if request.param == "sqlite":
        made = [sqlite3.connect(tmp_path / "results.db", timeout=60, check_same_thread=False)]
        yield lambda: sqlite3.connect(tmp_path / "results.db", timeout=60)
    else:
        import psycopg

        address = request.getfixturevalue("postgres_address")
        made = [psycopg.connect(address)]
        yield lambda: psycopg.connect(address)
        made[0].execute("DROP TABLE IF EXISTS results, headwater_offsets")
        made[0].commit()
    for one in made:
        one.close()


def table(connection):
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE IF NOT EXISTS results (number INTEGER NOT NULL)")
    connection.commit()
    return connection


def insert(cursor, records):
    for record in records:
        cursor.execute(f"INSERT INTO results VALUES ({int(record.value)})")


def numbers(connection):
    cursor = connection.cursor()
    cursor.execute("SELECT number FROM results")
    found = sorted(row[0] for row in cursor.fetchall())
    connection.rollback()
    return found


def reader(broker, topic):
    return headwater.Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=7,
    )


class Crash(Exception):
    pass


@pytest.mark.parametrize(
    "crash_at", ["before the work", "amid the work", "after the work", "never"]
)
def test_a_crash_at_any_step_loses_and_repeats_nothing(broker, topic, connect, crash_at) -> None:
    crashes = [crash_at] * 3 if crash_at != "never" else []
    for _ in range(10):
        connection = table(connect())
        offsets = SqlOffsets(connection, f"g-{topic}")
        with reader(broker, topic) as consumer:
            consumer.subscribe([topic], listener=offsets.listener(consumer))
            try:
                while len(numbers(connection)) < 100:
                    records = consumer.poll(1)
                    with offsets.transaction(records) as cursor:
                        crash(crashes, "before the work", records)
                        insert(cursor, records[: len(records) // 2])
                        crash(crashes, "amid the work", records)
                        insert(cursor, records[len(records) // 2 :])
                        crash(crashes, "after the work", records)
            except Crash:
                connection.close()
                continue
        break
    assert numbers(connection) == list(range(100))
    assert sum(offsets.positions([(topic, 0), (topic, 1)]).values()) == 100
    connection.close()


def crash(crashes, step, records):
    if records and crashes and crashes[-1] == step:
        crashes.pop()
        raise Crash


def test_a_consumer_taken_for_dead_cannot_write_over_its_successor(broker, topic, connect) -> None:
    zombie_connection, successor_connection = table(connect()), connect()
    zombie = SqlOffsets(zombie_connection, f"g-{topic}")
    successor = SqlOffsets(successor_connection, f"g-{topic}")
    with reader(broker, topic) as consumer:
        consumer.assign([(topic, 0)])
        records = consumer.poll(60)
        with successor.transaction(records) as cursor:
            insert(cursor, records)
        with (
            pytest.raises(StaleOffsetsError, match=f"at offset {len(records)} already"),
            zombie.transaction(records) as cursor,
        ):
            insert(cursor, records)
    assert len(numbers(successor_connection)) == len(records)
    place = TopicPartition(topic, 0)
    assert zombie.positions([place]) == {place: len(records)}
    zombie_connection.close()
    successor_connection.close()


def read_all(broker, topic, connection, offsets, fail, listener=True):
    """Read everything; a transaction that `fail` ends is rolled back, and the reading goes on."""
    with reader(broker, topic) as consumer:
        if listener:
            consumer.subscribe([topic], listener=offsets.listener(consumer))
        else:
            consumer.assign([(topic, 0), (topic, 1)])
        while len(numbers(connection)) < 100:
            records = consumer.poll(1)
            try:
                with offsets.transaction(records) as cursor:
                    insert(cursor, records)
                    fail(records)
            except Crash:
                continue


def test_a_program_that_goes_on_after_a_rollback_gets_the_records_again(
    broker, topic, connect
) -> None:
    crashes = ["after the work"] * 5
    connection = table(connect())
    offsets = SqlOffsets(connection, f"g-{topic}")
    read_all(
        broker, topic, connection, offsets, lambda rows: crash(crashes, "after the work", rows)
    )
    assert not crashes
    assert numbers(connection) == list(range(100))
    connection.close()


def test_records_of_a_rollback_are_not_passed_over_without_a_listener(
    broker, topic, connect
) -> None:
    crashes = ["after the work"]
    connection = table(connect())
    offsets = SqlOffsets(connection, f"g-{topic}")
    with pytest.raises(SkippedRecordsError, match=r"rolled back.*seek\(\).*listener"):
        read_all(
            broker, topic, connection, offsets,
            lambda rows: crash(crashes, "after the work", rows), listener=False,
        )  # fmt: skip
    connection.close()


def test_a_stale_partition_does_not_cost_the_others_their_records(broker, topic, connect) -> None:
    connection = table(connect())
    offsets = SqlOffsets(connection, f"g-{topic}")
    with reader(broker, topic) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        offsets.seek(consumer, consumer.assignment())
        records = []
        while {record.partition for record in records} != {0, 1}:
            records += consumer.poll(60)
        faster = table(connect())
        with SqlOffsets(faster, f"g-{topic}").transaction(
            [record for record in records if record.partition == 0]
        ):
            pass
        faster.close()
        with pytest.raises(StaleOffsetsError), offsets.transaction(records):
            pass
        assert consumer.position((topic, 1)) == 0
        assert consumer.position((topic, 0)) > 0
    connection.close()


def test_a_connection_in_autocommit_mode_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="autocommit"):
        SqlOffsets(sqlite3.connect(":memory:", isolation_level=None), "g")
    later = sqlite3.connect(":memory:")
    offsets = SqlOffsets(later, "g")
    later.isolation_level = None
    with pytest.raises(ValueError, match="autocommit"), offsets.transaction([]):
        pass


def test_a_postgresql_connection_in_autocommit_mode_is_refused(postgres_address) -> None:
    import psycopg

    with (
        psycopg.connect(postgres_address, autocommit=True) as connection,
        pytest.raises(ValueError, match="autocommit"),
    ):
        SqlOffsets(connection, "g")


def test_what_cannot_be_told_from_a_connection_is_asked_for() -> None:
    class Odd:
        def cursor(self):
            raise NotImplementedError

        commit = rollback = cursor

    with pytest.raises(ValueError, match="paramstyle="):
        SqlOffsets(Odd(), "g")
    with pytest.raises(ValueError, match="name of a table"):
        SqlOffsets(sqlite3.connect(":memory:"), "g", table="x; drop")


class Watched(sqlite3.Connection):
    """Counts the transactions that were ended without effect."""

    undone = 0

    def rollback(self) -> None:
        self.undone += 1
        super().rollback()


def test_reading_the_positions_holds_no_transaction_open(tmp_path) -> None:
    connection = sqlite3.connect(tmp_path / "offsets", factory=Watched)
    offsets = SqlOffsets(connection, group="g", paramstyle="qmark")
    before = connection.undone
    assert offsets.positions([("t", 0)]) == {}
    assert connection.undone == before + 1
