"""Copy a topic to another, each record once, until SIGTERM or Ctrl-C.

    python examples/transactions/copier.py localhost:9092 orders orders-copy copier-1

The last argument names this process among those that share the work: it keeps the name after a
restart, and no two processes have the same one.
"""

import signal
import sys
import threading

from headwater import ConsumerRecord, transform


def same(record: ConsumerRecord) -> bytes | None:
    """Return what to write for a record: here, its value."""
    return record.value


def main(bootstrap: str, source: str, target: str, name: str) -> None:
    """Copy until a signal comes."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    copied = transform(
        source,
        target,
        same,
        bootstrap_servers=bootstrap,
        group_id=f"copy of {source}",
        transactional_id=name,
        stop=stop.is_set,
    )
    print(f"{copied} records copied")


if __name__ == "__main__":
    main(*sys.argv[1:])
