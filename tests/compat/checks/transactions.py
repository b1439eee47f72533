"""Transactions: committed, aborted, fenced, timed out, left open by a crash; with offsets of a group."""

from collections.abc import Callable
from contextlib import suppress

import headwater
from tests.compat.broker_under_test import BrokerUnderTest
from tests.compat.transactions.programs import Failure, TransactionalClient, TransactionalProducer

TransactionCheck = Callable[[TransactionalClient, BrokerUnderTest], None]
TRANSACTION_CHECKS: dict[str, TransactionCheck] = {}
PARTITIONS = 2
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
SHORT_TIMEOUT_MS = 1500


def transaction_check(name: str) -> Callable[[TransactionCheck], TransactionCheck]:
    """Enters a function into the tables of transactions under `name`."""

    def enter(function: TransactionCheck) -> TransactionCheck:
        TRANSACTION_CHECKS[name] = function
        return function

    return enter


def on_all(value: str) -> list[tuple[int, str]]:
    """A value for every partition."""
    return [(partition, value) for partition in range(PARTITIONS)]


def _write(producer: TransactionalProducer, topic: str, value: str) -> None:
    producer.begin()
    producer.send(topic, on_all(value))
    producer.commit()


def _assert_read(
    client: TransactionalClient, broker: BrokerUnderTest, topic: str, *values: str
) -> None:
    """Exactly these values are committed to every partition, in this order."""
    found = client.program().read(broker, topic, PARTITIONS, COMMITTED)
    assert found == [list(values)] * PARTITIONS


@transaction_check("commit")
def commit(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """Transactions with and without a flush before the commit, and empty ones."""
    topic = broker.topic(PARTITIONS)
    producer = client.program().open(broker.bootstrap, broker.fresh("id"))
    producer.begin()
    producer.commit()
    for number in range(3):
        producer.begin()
        producer.send(topic, on_all(f"{number}"), flush=number == 1)
        producer.commit()
    producer.close()
    _assert_read(client, broker, topic, "0", "1", "2")


@transaction_check("abort")
def abort(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """Aborted records are in the log, if they were flushed, and are not read."""
    topic = broker.topic(PARTITIONS)
    producer = client.program().open(broker.bootstrap, broker.fresh("id"))
    producer.begin()
    producer.send(topic, on_all("aborted"))
    producer.abort()
    producer.begin()
    producer.abort()
    for number in range(3):
        producer.begin()
        producer.send(topic, on_all("unsent"), flush=not client.aborts_unsent)
        producer.abort()
        _write(producer, topic, f"{number}")
    producer.close()
    _assert_read(client, broker, topic, "0", "1", "2")
    everything = client.program().read(broker, topic, PARTITIONS, UNCOMMITTED)
    for found in everything:
        assert [value for value in found if value != "unsent"] == ["aborted", "0", "1", "2"]


@transaction_check("read committed")
def read_committed(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """Of two producers that take turns within their transactions, what was committed, in order."""
    topic, program = broker.topic(PARTITIONS), client.program()
    one, other = (program.open(broker.bootstrap, broker.fresh("id")) for _ in range(2))
    expected: list[str] = []
    for turn in range(6):
        one.begin()
        other.begin()
        for part in range(2):
            for name, producer, kept in (("one", one, turn % 3), ("other", other, turn % 2)):
                producer.send(topic, on_all(f"{name} {turn}.{part}"))
                expected += [f"{name} {turn}.{part}"] if kept else []
        other.commit() if turn % 2 else other.abort()
        one.commit() if turn % 3 else one.abort()
    one.close()
    other.close()
    _assert_read(client, broker, topic, *expected)


@transaction_check("fenced")
def fenced(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """A newer instance aborts what the older one left open; the older one can write no more."""
    topic, name, program = broker.topic(PARTITIONS), broker.fresh("id"), client.program()
    older = program.open(broker.bootstrap, name)
    _write(older, topic, "older")
    older.begin()
    older.send(topic, on_all("lost"))
    newer = program.open(broker.bootstrap, name)
    assert _failure(older.commit).kind == "fatal"
    with suppress(Failure):
        older.begin()
        older.send(topic, on_all("late"))
        older.commit()
    _write(newer, topic, "newer")
    _assert_read(client, broker, topic, "older", "newer")
    newer.close()


def _failure(act: Callable[[], None]) -> Failure:
    try:
        act()
    except Failure as failure:
        return failure
    raise AssertionError("the client did not tell of an error")


@transaction_check("timed out")
def timed_out(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """The coordinator aborts it: readers go on, its commit fails, and the next transaction works."""
    topic, name, program = broker.topic(PARTITIONS), broker.fresh("id"), client.program()
    slow = program.open(broker.bootstrap, name, SHORT_TIMEOUT_MS)
    failure = None
    try:
        slow.begin()
        slow.send(topic, on_all("lost"))
    except Failure as early:  # the machine is slow: it has timed out already
        failure = early
    _assert_read(client, broker, topic)
    topic = broker.topic(PARTITIONS)
    producer = slow
    if not _can_go_on(slow, failure or _failure(slow.commit)):
        producer = program.open(broker.bootstrap, name)
        producer.begin()
    producer.send(topic, on_all("next"))
    producer.commit()
    _assert_read(client, broker, topic, "next")
    producer.close()


def _can_go_on(producer: TransactionalProducer, failure: Failure) -> bool:
    """Aborts and begins again; False if the user must start another producer instead."""
    if failure.kind == "fatal":
        return False
    try:
        producer.abort()
        producer.begin()
    except Failure:
        return False
    return True


@transaction_check("crash")
def crash(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """After kill -9 the next instance aborts what was left open, long before it times out."""
    topic, name = broker.topic(PARTITIONS), broker.fresh("id")
    victim = client.another_program()
    try:
        producer = victim.open(broker.bootstrap, name)
        _write(producer, topic, "before")
        producer.begin()
        producer.send(topic, on_all("lost"))
    finally:
        victim.kill()
    producer = client.program().open(broker.bootstrap, name)
    _assert_read(client, broker, topic, "before")
    topic = broker.topic(PARTITIONS)
    _write(producer, topic, "after")
    _assert_read(client, broker, topic, "after")
    producer.close()


@transaction_check("consume and produce")
def consume_and_produce(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """Records are copied with the offsets of a group; a third of the transactions is aborted."""
    source, target = broker.topic(PARTITIONS), broker.topic(PARTITIONS)
    broker.fill(source, 30, PARTITIONS)
    group = broker.fresh("group")
    names = {"source": source, "target": target, "group": group}
    count = 30 * PARTITIONS
    client.program().transform(
        broker.bootstrap, transactional_id=broker.fresh("id"), count=count, **names
    )
    copied = client.program().read(broker, target, PARTITIONS, COMMITTED)
    assert copied == [[f"{p}:{n}" for n in range(30)] for p in range(PARTITIONS)]
    assert broker.hand.committed(group, source) == dict.fromkeys(range(PARTITIONS), 30)


@transaction_check("epochs")
def epochs(client: TransactionalClient, broker: BrokerUnderTest) -> None:
    """The epoch rises with each transaction of a client of transaction.version 2, of no other."""
    topic, name = broker.topic(PARTITIONS), broker.fresh("id")
    producer = client.program().open(broker.bootstrap, name)
    with headwater.Admin(bootstrap_servers=broker.bootstrap) as admin:
        found = set()
        for number in range(3):
            _write(producer, topic, f"{number}")
            found.add(admin.describe_transactions([name])[name].producer_epoch)
    producer.close()
    assert len(found) == (3 if client.version == 2 else 1)
