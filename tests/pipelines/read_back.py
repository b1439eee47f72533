"""What a topic holds, read by the plain client."""

import headwater
from headwater import TopicPartition


def records_of(bootstrap: str, topic: str) -> list:
    """Every record of a topic, by partition and offset."""
    with headwater.Consumer(bootstrap_servers=bootstrap) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        found = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += consumer.poll(5)
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values_of(bootstrap: str, topic: str) -> list:
    """The values alone, in order of themselves."""
    return sorted(record.value for record in records_of(bootstrap, topic))
