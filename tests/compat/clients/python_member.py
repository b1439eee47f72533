"""Runs a member of a Python client in its own process and prints its events as JSON lines.

    python -m tests.compat.clients.python_member MODULE BOOTSTRAP GROUP TOPIC SESSION_MS [INSTANCE]

MODULE has `run_member(options, emit)`; it returns when `options.leaving` is set, after closing.
"""

import importlib
import json
import signal
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.compat.member import Acknowledged, Assigned, Delivered, Event, Failed, Member


@dataclass(frozen=True)
class MemberOptions:
    """How to join; `leaving` is set by SIGTERM."""

    bootstrap: str
    group: str
    topic: str
    session_ms: int
    instance: str | None
    leaving: threading.Event = field(default_factory=threading.Event)


def start_member(
    module: str, bootstrap: str, group: str, topic: str, session_ms: int, instance: str | None
) -> Member:
    """Starts the process that `main` below is."""
    command = [sys.executable, "-m", __name__, module, bootstrap, group, topic, str(session_ms)]
    return Member(command + ([instance] if instance else []), parse_event, name=module)


def parse_event(line: str) -> Event:
    """Reads one JSON line; anything else is noise that a timeout will show."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if "assigned" in event:
        return Assigned(frozenset(event["assigned"]))
    if "acknowledged" in event:
        return Acknowledged(event["acknowledged"])
    if "failed" in event:
        return Failed(event["failed"])
    if "records" in event:
        return Delivered([(partition, offset) for partition, offset in event["records"]])
    return None


def emit(**event: Any) -> None:
    """Prints an event for `parse_event`."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main(
    module: str,
    bootstrap: str,
    group: str,
    topic: str,
    session_ms: str,
    instance: str | None = None,
) -> None:
    """The member process."""
    options = MemberOptions(bootstrap, group, topic, int(session_ms), instance)
    signal.signal(signal.SIGTERM, lambda *_: options.leaving.set())
    importlib.import_module(module).run_member(options, emit)


if __name__ == "__main__":
    main(*sys.argv[1:])
