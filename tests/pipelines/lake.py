"""What tests look at from outside: tables by their own libraries, topics by a plain consumer."""

from deltalake import DeltaTable

import headwater


def rows_of(place, *columns):
    """The rows of a Delta table as tuples of some columns, in order."""
    table = DeltaTable(str(place)).to_pyarrow_table()
    names = columns or table.column_names
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def records_of(bootstrap, topic):
    """All committed records of a topic."""
    with headwater.Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        places = [(topic, number) for number in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        found = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += consumer.poll(5.0)
    return found


def headers_of(record):
    return {name: (value or b"").decode() for name, value in record.headers}


def committed(bootstrap, group):
    """What a group has committed, by partition."""
    with headwater.Admin(bootstrap_servers=bootstrap) as admin:
        return {where: at.offset for where, at in admin.group_offsets(group).items()}
