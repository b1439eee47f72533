"""Transactions of our clients on both brokers, with transaction.version 1 and 2."""

import random
import threading

import pytest

import headwater
from headwater.client.connections import Connections
from headwater.errors import (
    AbortableTransactionError,
    CommitFailedError,
    ProducerFencedError,
)
from headwater.model import TopicPartition
from tests.clients.broker_under_test import poll_until, until, values_of
from tests.clients.test_range_reader import read_range

SMALL = {"max_partition_fetch_bytes": 300, "fetch_max_bytes": 300}
"""Answers of a batch or two, each with its own list of aborted transactions."""


@pytest.fixture(params=[1, 2], ids=["transaction.version 1", "transaction.version 2"], autouse=True)
def version(request, monkeypatch):
    """Producers that do not know a newer version speak the older protocol."""
    known = Connections.feature_level
    monkeypatch.setattr(
        Connections,
        "feature_level",
        lambda self, name: (
            min(known(self, name), request.param)
            if name == "transaction.version"
            else known(self, name)
        ),
    )
    return request.param


@pytest.fixture
def producer_of(bootstrap):
    made = []

    def make(transactional_id, **options):
        made.append(
            headwater.Producer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, **options
            )
        )
        made[-1].init_transactions()
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def reader_of(bootstrap, **options):
    return headwater.Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **options,
    )


class Mix:
    """Transactions of several producers in one partition, and plain records among them."""

    def __init__(self, bootstrap, topic, producer_of, seed) -> None:
        self.topic = topic
        self.random = random.Random(seed)
        self.plain = headwater.Producer(bootstrap_servers=bootstrap)
        self.producers = [producer_of(f"{topic}-{number}") for number in range(3)]
        self.open = [[] for _ in self.producers]
        self.visible = []
        """The committed offsets and their values."""
        self.sent = 0

    def send(self, producer):
        self.sent += 1
        value = b"%d" % self.sent
        return producer.send_and_wait(self.topic, value, partition=0).offset, value

    def step(self) -> None:
        number = self.random.randrange(len(self.producers) + 1)
        if number == len(self.producers):
            self.visible.append(self.send(self.plain))
            return
        producer, rows = self.producers[number], self.open[number]
        if not rows:
            producer.begin_transaction()
        rows.append(self.send(producer))
        if self.random.random() < 0.4:
            self.end(number, commit=self.random.random() < 0.5)

    def end(self, number, *, commit) -> None:
        if self.open[number]:
            if commit:
                self.producers[number].commit_transaction()
                self.visible += self.open[number]
            else:
                self.producers[number].abort_transaction()
            self.open[number] = []


@pytest.mark.parametrize("limits", [{}, SMALL], ids=["large answers", "small answers"])
def test_readers_see_what_was_committed_in_every_way_of_reading(
    bootstrap, lane, producer_of, version, limits
) -> None:
    mix = Mix(bootstrap, lane, producer_of, seed=version)
    for _ in range(60):
        mix.step()
    for number in range(2):
        mix.end(number, commit=False)
    mix.end(2, commit=True)
    mix.producers[0].begin_transaction()
    first_open, _ = mix.send(mix.producers[0])
    mix.send(mix.plain)
    wanted = sorted(mix.visible)
    where = TopicPartition(lane, 0)
    with reader_of(bootstrap, **limits) as reader:
        reader.assign([where])
        assert reader.end_offsets([where]) == {where: first_open}
        seen = poll_until(len(wanted), reader)
        assert [(record.offset, record.value) for record in seen] == wanted
        until("the position is at the open transaction", lambda: at_end(reader, where, first_open))
        reader.seek_to_beginning([where])
        rows = []
        until(
            "all of them came as columns",
            lambda: len(rows) >= len(wanted),
            lambda: rows.extend(columns(reader.poll_arrow(1))),
        )
        assert rows == wanted
        assert (
            offsets_and_values(
                read_range(
                    bootstrap,
                    lane,
                    0,
                    first_open,
                    isolation_level="read_committed",
                    **{name: str(value) for name, value in limits.items()},
                )
            )
            == wanted
        )
        mix.producers[0].abort_transaction()
        assert values_of(poll_until(1, reader)) == [b"%d" % mix.sent]
        end = reader.end_offsets([where])[where]
        until("the position is behind the last marker", lambda: at_end(reader, where, end))
    mix.plain.close()


def at_end(reader, where, end) -> bool:
    return not reader.poll(0.1) and reader.position(where) == end


def columns(batch) -> list[tuple[int, bytes]]:
    return [] if batch is None else offsets_and_values([batch])


def offsets_and_values(batches) -> list[tuple[int, bytes]]:
    return [
        row
        for batch in batches
        for row in zip(
            batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True
        )
    ]


def test_large_transactions_over_several_partitions_are_whole(
    bootstrap, topic, producer_of
) -> None:
    producer = producer_of(topic)
    for number in range(4):
        producer.begin_transaction()
        producer.send_many(topic, [b"%d" % number] * 20_000)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    with reader_of(bootstrap) as reader:
        reader.assign([(topic, number) for number in range(3)])
        values = values_of(poll_until(40_000, reader))
        assert sorted(values) == [b"0"] * 20_000 + [b"2"] * 20_000


# -- offsets


def test_offsets_are_committed_with_the_transaction(
    bootstrap, broker, topic, group, producer_of
) -> None:
    broker.fill(topic, [b"%d" % number for number in range(30)])
    out = broker.topic()
    producer = producer_of(out)
    with reader_of(bootstrap, group_id=group, enable_auto_commit=False) as reader:
        reader.subscribe([topic])
        records = poll_until(30, reader)
        offsets = {record.topic_partition: record.offset + 1 for record in records}
        for end in (producer.abort_transaction, producer.commit_transaction):
            assert set(reader.committed(offsets).values()) == {None}
            producer.begin_transaction()
            producer.send_many(out, values_of(records))
            producer.send_offsets_to_transaction(offsets, reader.group_metadata())
            end()
        found = reader.committed(offsets)
        assert {name: row.offset for name, row in found.items()} == offsets
    with reader_of(bootstrap) as reader:
        reader.assign([(out, 0)])
        assert len(poll_until(30, reader)) == 30


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_reader_waits_for_offsets_of_an_open_transaction(
    bootstrap, lane, group, producer_of, isolation_level
) -> None:
    producer = producer_of(lane)
    where = TopicPartition(lane, 0)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({where: 7}, headwater.ConsumerGroupMetadata(group))
    options = {"bootstrap_servers": bootstrap, "isolation_level": isolation_level}
    with headwater.Consumer(**options, group_id=group, default_api_timeout_ms=500) as hasty:

        def refused() -> bool:
            with pytest.raises(headwater.TimedOutError) as told:
                hasty.committed([where])
            return "an open transaction holds offsets of this group" in str(told.value)

        until("the coordinator of the group has answered", refused)
    committing = threading.Timer(0.3, producer.commit_transaction)
    with headwater.Consumer(**options, group_id=group) as reader:
        committing.start()
        assert reader.committed([where])[where].offset == 7
    committing.join()


def test_a_member_of_an_earlier_generation_cannot_commit(
    bootstrap, lane, group, producer_of
) -> None:
    producer = producer_of(lane)
    with reader_of(bootstrap, group_id=group, enable_auto_commit=False) as reader:
        reader.subscribe([lane])
        until("it has its partition", reader.assignment, lambda: reader.poll(0.05))
        left = reader.group_metadata()._replace(generation_id=99)
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError) as told:
            producer.send_offsets_to_transaction({(lane, 0): 1}, left)
        assert isinstance(told.value.__cause__, CommitFailedError)
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({(lane, 0): 2}, reader.group_metadata())
        assert reader.committed([(lane, 0)])[TopicPartition(lane, 0)].offset == 2


def test_a_member_that_was_removed_cannot_commit_what_another_has(
    bootstrap, lane, group, producer_of
) -> None:
    producer = producer_of(lane)
    options = {"group_id": group, "enable_auto_commit": False}
    with (
        reader_of(bootstrap, max_poll_interval_ms=400, **options) as slow,
        reader_of(bootstrap, **options) as other,
    ):
        slow.subscribe([lane])
        until("it has its partition", slow.assignment, lambda: slow.poll(0.05))
        producer.begin_transaction()
        other.subscribe([lane])
        until("the other has it", other.assignment, lambda: other.poll(0.05))
        with pytest.raises(AbortableTransactionError) as told:
            producer.send_offsets_to_transaction({(lane, 0): 1}, slow.group_metadata())
        assert isinstance(told.value.__cause__, CommitFailedError)
        producer.abort_transaction()


# -- errors


def test_a_newer_producer_fences_the_older_and_ends_its_transaction(
    bootstrap, lane, producer_of
) -> None:
    zombie = producer_of(lane)
    zombie.begin_transaction()
    zombie.send_and_wait(lane, b"zombie")
    live = producer_of(lane)
    with live.transaction():
        live.send(lane, b"live")
    zombie.send(lane, b"too late")
    with pytest.raises((AbortableTransactionError, ProducerFencedError)):
        zombie.commit_transaction()
    with pytest.raises(ProducerFencedError, match="a newer producer"):
        zombie.abort_transaction()
    with reader_of(bootstrap) as reader:
        reader.assign([(lane, 0)])
        assert values_of(poll_until(1, reader)) == [b"live"]


def test_a_lost_batch_ends_one_transaction_alone(bootstrap, broker, producer_of) -> None:
    lane = broker.topic(max_message_bytes="2000")
    producer = producer_of(lane)
    for number in range(3):
        with producer.transaction():
            producer.send(lane, b"%d" % number)
        with pytest.raises(AbortableTransactionError), producer.transaction():
            producer.send_many(lane, [b"small", b"large" * 1000])
    with reader_of(bootstrap) as reader:
        reader.assign([(lane, 0)])
        assert values_of(poll_until(3, reader)) == [b"0", b"1", b"2"]


def test_batches_that_are_too_large_for_the_topic_are_split_in_their_transaction(
    bootstrap, broker, producer_of
) -> None:
    lane = broker.topic(max_message_bytes="2000")
    producer = producer_of(lane, linger_ms=1000)
    values = [b"%d" % number for number in range(1000)]
    for _ in range(2):
        with producer.transaction():
            producer.send_many(lane, values)
    with reader_of(bootstrap) as reader:
        reader.assign([(lane, 0)])
        assert values_of(poll_until(2000, reader)) == 2 * values
