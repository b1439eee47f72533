"""What clients and the nemesis did, in order, as lines of JSON."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Event: TypeAlias = dict[str, Any]
"""`what` says what happened, `t` when: microseconds since the run began."""


class Written(NamedTuple):
    """A record as its writer named it: the numbers of one client and key grow by one."""

    client: str
    key: str
    number: int

    def as_value(self, padding: int = 0) -> bytes:
        return f"{self.client}:{self.key}:{self.number}:".encode() + b"." * padding

    @classmethod
    def from_value(cls, value: bytes | None) -> "Written":
        client, key, number, _ = (value or b"").split(b":", 3)
        return cls(client.decode(), key.decode(), int(number))


class History:
    """A file that grows by one line for each event; any thread may add to it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._out = file.open("w", encoding="utf-8", buffering=1 << 16)
        self._lock = threading.Lock()
        self._began = time.monotonic_ns()

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._began) // 1000

    def note(self, what: str, **fields: Any) -> None:
        """Add an event that happened just now."""
        with self._lock:
            if not self._out.closed:
                line = json.dumps({"t": self.now_us(), "what": what, **fields})
                self._out.write(line + "\n")

    def close(self) -> None:
        """Write everything; events that come later are dropped."""
        with self._lock:
            self._out.close()


def read_history(file: Path) -> Iterator[Event]:
    """The events of a run, in their order."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
