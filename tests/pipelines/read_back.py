"""What a topic holds, read by the plain client."""

import headwater
from headwater import TopicPartition


def records_of(bootstrap: str, topic: str, committed: bool = False) -> list:
    """Every record of a topic, or only what is committed, by partition and offset."""
    isolation = "read_committed" if committed else "read_uncommitted"
    with headwater.Consumer(bootstrap_servers=bootstrap, isolation_level=isolation) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        found = list(consumer.read_to_end())
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values_of(bootstrap: str, topic: str) -> list:
    """The values alone, in order of themselves."""
    return sorted(record.value for record in records_of(bootstrap, topic))


def committed_of(bootstrap: str, topic: str) -> list:
    """The values that a read_committed reader sees, in order of themselves."""
    return sorted(record.value for record in records_of(bootstrap, topic, committed=True))
