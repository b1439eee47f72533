"""At least once: work first, then commit. A crash in between repeats records."""

from job import batches, open_consumer, open_ledger, start


def run(bootstrap: str, path: str, group: str) -> None:
    """Copy the orders; none is lost."""
    ledger = open_ledger(path)
    with open_consumer(bootstrap, group, enable_auto_commit=False) as consumer:
        for records in batches(consumer):
            for record in records:
                ledger.execute("INSERT INTO ledger VALUES (?, ?)", (record.offset, record.value))
                ledger.commit()
            consumer.commit()  # up to here the records would be read again


if __name__ == "__main__":
    start(run)
