"""The consumer among transactions of confluent-kafka, on both brokers."""

import confluent_kafka
import pytest

import headwater
from tests.clients.broker_under_test import poll_until, until, values_of


def test_read_committed_shows_what_was_committed(broker):
    topic = broker.topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d-%d" % (number, part))
        producer.flush(60)
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(30)
    for level, wanted in (("read_committed", 13 * 3), ("read_uncommitted", 20 * 3)):
        with headwater.Consumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            isolation_level=level,
        ) as consumer:
            consumer.assign([(topic, 0)])
            seen = values_of(poll_until(wanted, consumer))
            assert consumer.poll(0.1) == []
            assert len(seen) == wanted
            if level == "read_committed":
                assert {value.partition(b"-")[0] for value in seen} == {
                    b"%d" % number for number in range(20) if number % 3
                }
            assert consumer.position((topic, 0)) == 80


@pytest.mark.parametrize("ends", ["in the order of their begins", "in the reverse order"])
def test_read_committed_shows_nothing_of_aborted_transactions_that_overlap(broker, ends):
    topic = broker.topic()
    one, two, three = (
        confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": f"{topic}-{name}",
            }
        )
        for name in ("one", "two", "three")
    )
    for producer in (one, two, three):
        producer.init_transactions(30)
        producer.begin_transaction()
    for producer, value in ((one, b"aborted"), (two, b"aborted as well"), (three, b"kept")):
        producer.produce(topic, value)
        producer.flush(60)
    for producer in (one, two) if ends == "in the order of their begins" else (two, one):
        producer.abort_transaction(30)
    three.commit_transaction(30)
    for arrow in (False, True):
        with headwater.Consumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign([(topic, 0)])
            if arrow:
                assert consumer.poll_arrow(60)["value"].to_pylist() == [b"kept"]
            else:
                assert values_of(poll_until(1, consumer)) == [b"kept"]
            until(
                "the end is reached",
                lambda at=consumer: not at.poll(0.1) and at.position((topic, 0)) == 6,
            )
