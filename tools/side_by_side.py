"""Runs several commands at the same time; prints their lines whole, each with its name.

    python -m tools.side_by_side [--again WORDS] NAME COMMAND… -- NAME COMMAND… [-- …]

Ends when all of them have ended, with the first exit code that is not 0; a failure does not stop
the others. The last lines of failed commands are printed again at the end, where a reader looks
first.

With `--again`, a command with few failed tests runs once more when all have ended, alone and with WORDS
appended. Only that tells a defect from a test that a busy machine was late for; what passes then is
still named at the end, because such a test has a defect of its own.
"""

import itertools
import os
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

BETWEEN = "--"
LAST_WORDS_S = 10.0
"""How long to wait for output that is kept open by processes which a command left running."""
REPEATED_LINES = 12
REPEATED_WIDTH = 300
AGAIN = "--again"
FEW_FAILURES = 3
"""More failed tests than that have a cause in common, which is not the machine."""


@dataclass
class _Command:
    name: str
    words: list[str]
    process: "subprocess.Popen[str]"
    failures: deque[str] = field(default_factory=lambda: deque(maxlen=REPEATED_LINES))
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=REPEATED_LINES))

    def relay(self, lock: threading.Lock) -> None:
        """Print the command's output, each line with its name."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kept = line.rstrip("\n")[:REPEATED_WIDTH]
            self.last_lines.append(kept)
            if kept.startswith(("FAILED ", "ERROR ")):
                self.failures.append(kept)
            with lock:
                print(f"{self.name}: {line}", end="", flush=True)

    def explain_failure(self) -> None:
        print(f"{self.name} failed with exit code {self.process.returncode}:")
        for line in self.failures or self.last_lines:
            print(f"  {line}")


def split(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Return the names and their commands."""
    for is_mark, part in itertools.groupby(words, lambda word: word == BETWEEN):
        if not is_mark:
            name, *command = part
            if not command:
                raise SystemExit(f"{name} has no command: NAME COMMAND… {BETWEEN} NAME COMMAND…")
            yield name, command


def run(commands: Sequence[tuple[str, list[str]]], again: Sequence[str] = ()) -> int:
    """Run all commands and print their output."""
    failed = [command for command in _run_all(commands) if command.process.returncode]
    late = []
    for command in failed:
        command.explain_failure()
        if again and 0 < len(command.failures) <= FEW_FAILURES:
            print(f"{command.name} runs once more, alone")
            second = _run_all([(command.name, [*command.words, *again])])[0]
            if not second.process.returncode:
                late.append(command)
            else:
                second.explain_failure()
    for command in late:
        print(f"{command.name} passed only when it ran alone:")
        for line in command.failures:
            print(f"  {line}")
    broken = [command.process.returncode for command in failed if command not in late]
    return broken[0] if broken else 0


def _run_all(commands: Sequence[tuple[str, list[str]]]) -> list[_Command]:
    lock = threading.Lock()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    running = []
    for name, words in commands:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        )
        command = _Command(name, words, process)
        relay = threading.Thread(target=command.relay, args=(lock,), daemon=True)
        relay.start()
        running.append((command, relay))
    for command, relay in running:
        command.process.wait()
        relay.join(LAST_WORDS_S)
    return [command for command, _ in running]


def main(words: Sequence[str]) -> int:
    """Run what the command line names."""
    if list(words[:1]) == [AGAIN]:
        return run(list(split(words[2:])), shlex.split(words[1]))
    return run(list(split(words)))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
