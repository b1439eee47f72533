"""A group under a broker that is killed again and again: what was acknowledged is consumed."""

import threading

import pytest

import headwater
from headwater.errors import E, KafkaError
from headwater.testing import Broker
from tests.unit.broker.live import Live, batch, until

KILLS = 4


@pytest.fixture
def broker():
    with Broker(subprocess=True) as running:
        running.create_topic("t", partitions=4)
        yield running


class Ledger:
    """What the producers were promised and what the consumers saw."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.acknowledged = set()
        self.seen = set()
        self.stop = threading.Event()
        self.all_sent = threading.Event()

    def send(self, producer, value):
        def told(stored, error):
            if error is None:
                self.acknowledged.add(value)

        producer.send("t", value, key=value, on_delivery=told)

    def produce(self, name):
        with headwater.Producer(bootstrap_servers=self.bootstrap) as producer:
            number = 0
            while not self.stop.is_set():
                self.send(producer, b"%s-%d" % (name, number))
                number += 1
                self.stop.wait(0.002)
            producer.flush(30)

    def consume(self):
        with headwater.Consumer(
            bootstrap_servers=self.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        ) as consumer:
            consumer.subscribe(["t"])
            while not (self.all_sent.is_set() and self.seen >= self.acknowledged):
                records = consumer.poll(0.2)
                self.seen.update(record.value for record in records)
                if records:
                    consumer.commit_async()


def test_what_was_acknowledged_is_consumed_through_kills_of_the_broker(broker) -> None:
    ledger = Ledger(broker.bootstrap)
    producers = [threading.Thread(target=ledger.produce, args=(b"%d" % n,)) for n in range(3)]
    consumers = [threading.Thread(target=ledger.consume, daemon=True) for _ in range(2)]
    for thread in producers + consumers:
        thread.start()
    for _ in range(KILLS):
        ledger.stop.wait(0.7)
        broker.kill()
        broker.start()
    ledger.stop.wait(0.5)
    ledger.stop.set()
    for thread in producers:
        thread.join(60)
    ledger.all_sent.set()
    for thread in consumers:
        thread.join(30)
    assert ledger.acknowledged
    assert ledger.acknowledged <= ledger.seen


def test_a_poll_ends_in_time_while_the_broker_is_away(broker) -> None:
    with headwater.Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id="g2",
        auto_offset_reset="earliest",
        default_api_timeout_ms=500,
    ) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(1)
        broker.kill()
        assert consumer.poll(0.5) == []
        with pytest.raises(KafkaError):
            consumer.commit({("t", 0): 0})
        consumer.close(1)


def test_an_offline_partition_does_not_keep_others_from_being_read(tmp_path):
    refusal = KafkaError(E.KAFKA_STORAGE_ERROR, "the disk is broken")
    broken, sound = ("t", 0), ("t", 1)
    with Live(tmp_path) as live:
        live.create("t", 2)
        replica = live.replica(*broken)
        live.on_loop(lambda: replica.mark_offline(refusal))
        with live.client() as client:
            client.produce("t", batch(b"here"), partition=1)
        seen = []

        def polled():
            seen.extend(record.value for record in consumer.poll(0.05))
            return seen

        with headwater.Consumer(
            bootstrap_servers=live.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([broken, sound])
            until(polled)
            assert consumer.position(sound) == 1
            consumer.seek_to_beginning([sound])
            assert consumer.position(sound) == 0, "while the other position is still looked for"
            until(lambda: len(polled()) == 2)
            live.on_loop(lambda: replica.mark_online(refusal))
            with live.client() as client:
                client.produce("t", batch(b"back"), partition=0)
            until(lambda: polled() == [b"here", b"here", b"back"])


def test_a_position_in_a_deleted_topic_is_not_committed_for_another_of_its_name(tmp_path):
    with Live(tmp_path) as live:
        admin = headwater.Admin(bootstrap_servers=live.bootstrap)
        options = {
            "bootstrap_servers": live.bootstrap,
            "group_id": "g",
            "auto_offset_reset": "earliest",
        }

        def fill(value):
            live.create("t")
            with live.client() as client:
                for _ in range(5):
                    client.produce("t", batch(value))

        def read(consumer, count):
            seen = []
            until(lambda: len(seen.extend(consumer.poll(0.05)) or seen) >= count)
            return [record.value for record in seen]

        with admin:
            fill(b"old")
            with headwater.Consumer(**options) as consumer:
                consumer.subscribe(["t"])
                assert read(consumer, 5) == [b"old"] * 5
                admin.delete_topics(["t"])
                fill(b"new")
                consumer.close()  # commits its positions
            with headwater.Consumer(**options) as consumer:
                consumer.subscribe(["t"])
                assert read(consumer, 5) == [b"new"] * 5
