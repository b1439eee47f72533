"""Automatic commits, and the two ways in which they surprise.

poll() commits, from time to time, the position: what it has handed out before. That says nothing about
whether the work on it is done, and nothing is committed between two such moments.
"""

from job import batches, open_consumer, open_ledger, start

from headwater import ConsumerRecord


def run_inline(bootstrap: str, path: str, group: str) -> None:
    """Work at once: after a crash, what was done since the last automatic commit is done again."""
    ledger = open_ledger(path)
    with open_consumer(bootstrap, group, auto_commit_interval_ms=5000) as consumer:
        for records in batches(consumer):
            for record in records:
                ledger.execute("INSERT INTO ledger VALUES (?, ?)", (record.offset, record.value))
                ledger.commit()


def run_gathering(bootstrap: str, path: str, group: str) -> None:
    """Gather, then work: what waits in the basket may be committed, and is lost in a crash."""
    ledger = open_ledger(path)
    basket: list[ConsumerRecord] = []
    with open_consumer(bootstrap, group, auto_commit_interval_ms=1) as consumer:
        for records in batches(consumer):
            basket += records
            if len(basket) >= 4:
                rows = [(record.offset, record.value) for record in basket]
                ledger.executemany("INSERT INTO ledger VALUES (?, ?)", rows)
                ledger.commit()
                basket.clear()
        for record in basket:
            ledger.execute("INSERT INTO ledger VALUES (?, ?)", (record.offset, record.value))
            ledger.commit()


if __name__ == "__main__":
    start(run_gathering)
