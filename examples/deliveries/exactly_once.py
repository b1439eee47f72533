"""Exactly once: work and offset in one transaction of the database. A crash undoes both or neither."""

from job import batches, open_consumer, open_ledger, start

from headwater import SqlOffsets


def run(bootstrap: str, path: str, group: str) -> None:
    """Copy the orders; none is lost and none comes twice."""
    ledger = open_ledger(path)
    offsets = SqlOffsets(ledger, group)
    with open_consumer(bootstrap, group, enable_auto_commit=False) as consumer:
        for records in batches(consumer, listener=offsets.listener(consumer)):
            with offsets.transaction(records) as cursor:
                for record in records:
                    row = (record.offset, record.value)
                    cursor.execute("INSERT INTO ledger VALUES (?, ?)", row)


if __name__ == "__main__":
    start(run)
