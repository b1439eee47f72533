"""Fetches and builds what the suite needs, ahead of its first run: `python -m tests.compat.prepare`.

What this machine cannot have is named and left out; the tests that need it are skipped, or slow.
"""

import sys
from collections.abc import Callable

from tools.class_archive import ArchiveUnavailable
from tools.class_archive import make as make_class_archive
from tools.jars import SETS, JarsUnavailable, jars
from tools.java import KAFKA

from tests.compat.client import Unavailable
from tests.compat.clients import franz
from tests.compat.clients.kcat import Kcat
from tests.compat.logins import frameworks
from tests.compat.tool_server import compiled

STEPS: dict[str, Callable[[], object]] = {
    **{f"jars of {name}": lambda name=name: jars(name) for name in SETS},  # type: ignore[misc]
    "the server of the Java tools": lambda: compiled("ToolServer", KAFKA),
    "the transactions of the Java clients": lambda: compiled("Transactions", "kafka-clients-3.9.2"),
    "the reader of every offset": lambda: compiled("EveryOffset", "kafka-clients-3.9.2"),
    "the logins of the Java clients": lambda: compiled("Logins", "kafka-clients-3.9.2"),
    "the word count of Kafka Streams": lambda: compiled("WordCount", "kafka-streams-4.3.1"),
    "Kafka Streams and Connect that log in": lambda: compiled("Frameworks", *frameworks.JARS),
    "the franz-go program": franz.build,
    "kcat": lambda: Kcat("nowhere:0"),
    "the archive of Spark's classes": make_class_archive,
}


def main() -> None:
    """Takes every step it can."""
    for name, step in STEPS.items():
        try:
            step()
        except (Unavailable, JarsUnavailable, ArchiveUnavailable) as missing:
            sys.stderr.write(f"without {name}: {missing}\n")


if __name__ == "__main__":
    main()
