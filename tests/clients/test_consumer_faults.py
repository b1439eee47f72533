"""A consumer while its broker restarts, is gone, loses a disk or recreates a topic."""

import pytest

import headwater
from headwater.errors import E, KafkaError
from headwater.testing import Broker
from tests.clients.broker_under_test import poll_until, settle, values_of
from tests.unit.broker.live import Live, batch, until


def test_a_restarted_broker_is_found_again():
    with Broker() as broker:
        broker.create_topic("t")
        with (
            headwater.Producer(bootstrap_servers=broker.bootstrap) as producer,
            headwater.Consumer(
                bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id="g"
            ) as consumer,
        ):
            producer.send_many("t", [b"1", b"2"])
            consumer.subscribe(["t"])
            assert values_of(poll_until(2, consumer)) == [b"1", b"2"]
            broker.restart()
            producer.send_many("t", [b"3"])
            assert values_of(poll_until(1, consumer)) == [b"3"]
            consumer.commit()


def test_a_poll_ends_in_time_while_the_broker_is_away():
    with (
        Broker() as broker,
        headwater.Consumer(
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            default_api_timeout_ms=500,
        ) as consumer,
    ):
        broker.create_topic("t")
        consumer.subscribe(["t"])
        settle(1, consumer)
        broker.stop()
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
