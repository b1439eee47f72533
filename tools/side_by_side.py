"""Commands that wait a lot, run at the same time; their lines come out whole, each with its name.

    python -m tools.side_by_side NAME COMMAND… -- NAME COMMAND… [-- …]

Ends when all of them have, with the first exit code that is not 0; one that fails stops no other.
"""

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

BETWEEN = "--"
LAST_WORDS_S = 10.0
"""What a command left running may keep its output open; nobody waits longer for that."""


def split(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The names and their commands."""
    for is_mark, part in itertools.groupby(words, lambda word: word == BETWEEN):
        if not is_mark:
            name, *command = part
            if not command:
                raise SystemExit(f"{name} has no command: NAME COMMAND… {BETWEEN} NAME COMMAND…")
            yield name, command


def _relay(name: str, process: "subprocess.Popen[str]", lock: threading.Lock) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with lock:
            print(f"{name}: {line}", end="", flush=True)


def run(commands: Sequence[tuple[str, list[str]]]) -> int:
    """Run them all and pass on what they say."""
    lock = threading.Lock()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    running = []
    for name, command in commands:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        relay = threading.Thread(target=_relay, args=(name, process, lock), daemon=True)
        relay.start()
        running.append((process, relay))
    for process, relay in running:
        process.wait()
        relay.join(LAST_WORDS_S)
    return next((process.returncode for process, _ in running if process.returncode), 0)


if __name__ == "__main__":
    raise SystemExit(run(list(split(sys.argv[1:]))))
