"""Segments that a broker wrote, archived beside it and read without it: the same records."""

import random

import confluent_kafka
import pyarrow as pa

from headwater.pipelines.connection_settings import ConnectionSettings
from headwater.pipelines.segments.archive import archive, verify
from headwater.pipelines.segments.archive_sources import sources_of
from headwater.pipelines.segments.files import aborted_in, find_segments, split
from headwater.pipelines.segments.rows import RecordFilter, records

MEBIBYTE = str(1 << 20)
"""The smallest segments that Apache Kafka makes."""
KINDS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64())])


def archived(path, **wanted):
    """Offset, key and value of every record in an archive."""
    rows = []
    for segment in find_segments(str(path)):
        for piece in split(segment, 100_000):
            for batch in records(piece, RecordFilter(**wanted), KINDS):
                rows += [(row["offset"], row["key"], row["value"]) for row in batch.to_pylist()]
    return rows


def consumed(bootstrap, topic, below, isolation):
    """The same as a consumer of another make sees it."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    rows = []
    while (message := consumer.poll(60)) is not None and not message.error():
        rows.append((message.offset(), message.key(), message.value()))
    consumer.close()
    assert message is not None
    return [row for row in rows if row[0] < below]


def fill(bootstrap, topic):
    """Some megabytes, by every codec."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        options = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
        producer = confluent_kafka.Producer({**options, "enable.idempotence": True})
        for number in range(300):
            # Bytes that no codec makes small, so that segments fill up.
            value = random.Random(number).randbytes(1500)
            producer.produce(topic, value, key=b"%d" % (number % 5), partition=0)
        assert producer.flush(60) == 0


def test_an_archive_gives_what_a_consumer_gets(broker, tmp_path):
    topic = broker.topic(segment_bytes=MEBIBYTE)
    fill(broker.bootstrap, topic)
    outcome = archive(sources_of(ConnectionSettings(broker.bootstrap), [topic]), str(tmp_path))
    assert outcome.added
    assert outcome.problems == verify(str(tmp_path)) == []
    end = outcome.added[-1].next_offset
    found = archived(tmp_path)
    assert found == consumed(broker.bootstrap, topic, end, "read_uncommitted")
    assert len(found) == sum(entry.records for entry in outcome.added)


def test_aborted_transactions_are_dropped_by_the_index_beside_the_segment(
    apache_under_test, tmp_path
):
    bootstrap = apache_under_test.bootstrap
    topic = apache_under_test.topic(segment_bytes=MEBIBYTE)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"%d" % number + bytes(100_000), partition=0)
        assert producer.flush(60) == 0  # or the client would drop what it has not sent
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
    del producer
    archive(sources_of(ConnectionSettings(bootstrap), [topic]), str(tmp_path))
    end = find_segments(str(tmp_path))[-1]
    aborted = aborted_in([end.folder])
    assert len(aborted) >= 1
    last = archived(tmp_path)[-1][0] + 1
    committed = archived(tmp_path, aborted=aborted)
    assert committed == consumed(bootstrap, topic, last, "read_committed")
    assert len(committed) < len(archived(tmp_path))
