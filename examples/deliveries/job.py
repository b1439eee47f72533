"""The job that the examples share: copy every order into a ledger, a table in SQLite.

The examples differ in one thing only: when the offset is committed.

    commit before the work   at_most_once.py    a crash may lose records, none comes twice
    commit after the work    at_least_once.py   a crash may repeat records, none is lost
    commit with the work     exactly_once.py    neither
    commit by the clock      auto_commit.py     either, depending on the code around it

Each runs as `python examples/deliveries/NAME.py BOOTSTRAP LEDGER.db` and ends when it has read what
was there when it began. tests/clients/test_deliveries.py kills each of them at every step.
"""

import argparse
import sqlite3
from collections.abc import Callable, Iterator

from headwater import Consumer, ConsumerRecord, RebalanceListener, TopicPartition

TOPIC = "orders"


def open_ledger(path: str) -> sqlite3.Connection:
    """The database with its one table, without a rule against repeated rows."""
    ledger = sqlite3.connect(path)
    ledger.execute("CREATE TABLE IF NOT EXISTS ledger (place INTEGER, text TEXT)")
    ledger.commit()
    return ledger


def open_consumer(bootstrap: str, group: str, **options: object) -> Consumer:
    """A member with a lasting name: after a crash it has its partitions back at once."""
    return Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id="copier",
        auto_offset_reset="earliest",
        max_poll_records=2,
        value_deserializer="string",
        **options,
    )


def batches(
    consumer: Consumer, listener: RebalanceListener | None = None
) -> Iterator[list[ConsumerRecord]]:
    """What poll() finds, until all that was there at the beginning is read."""
    consumer.subscribe([TOPIC], listener=listener)
    ends: dict[TopicPartition, int] = {}
    while True:
        records = consumer.poll(0.1)
        if records:
            yield records
        if not ends and consumer.assignment():
            ends = consumer.end_offsets(consumer.assignment())
        if ends and all(consumer.position(place) >= end for place, end in ends.items()):
            return


def start(run: Callable[[str, str, str], None]) -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=run.__doc__)
    parser.add_argument("bootstrap", help="a broker, HOST:PORT")
    parser.add_argument("ledger", help="the file of the database")
    parser.add_argument("--group", default="ledger", help="the consumer group")
    options = parser.parse_args()
    run(options.bootstrap, options.ledger, options.group)
