"""At most once: commit first, then work. A crash in between loses records."""

from job import batches, open_consumer, open_ledger, start


def run(bootstrap: str, path: str, group: str) -> None:
    """Copy the orders; none comes twice."""
    ledger = open_ledger(path)
    with open_consumer(bootstrap, group, enable_auto_commit=False) as consumer:
        for records in batches(consumer):
            consumer.commit()  # from here on nobody will read these records again
            for record in records:
                ledger.execute("INSERT INTO ledger VALUES (?, ?)", (record.offset, record.value))
                ledger.commit()


if __name__ == "__main__":
    start(run)
