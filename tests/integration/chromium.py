"""A page in a real browser, driven over a pipe by the Chrome DevTools protocol."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

FOUND = shutil.which("chromium")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Chromium:
    """One browser with one page at a time."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._ids = itertools.count(1)
        self._unread = b""
        self._session = ""

    def open(self, url: str) -> None:
        """A new page that has been loaded."""
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        self._call("Page.enable")
        self.go(url)

    def go(self, url: str) -> None:
        """Leave the page for another one."""
        self._call("Page.navigate", {"url": url})
        self._event("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        told = self._call(
            "Runtime.evaluate",
            {"expression": script, "awaitPromise": True, "returnByValue": True},
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def _call(self, method: str, params: dict | None = None) -> dict:
        number = next(self._ids)
        command = {"id": number, "method": method, "params": params or {}}
        if self._session and not method.startswith("Target."):
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]

    def _event(self, name: str) -> None:
        while self._next().get("method") != name:
            pass

    def _next(self) -> dict:
        while b"\0" not in self._unread:
            part = os.read(self._answers, 65536)
            assert part, "the browser has ended"
            self._unread += part
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Start the browser; it reads commands from descriptor 3 and answers on 4."""
    assert FOUND is not None
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        line = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
        process = subprocess.Popen(
            ["bash", "-c", line, FOUND, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(read_commands, write_answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        try:
            yield Chromium(commands, answers)
        finally:
            process.terminate()
            process.wait(60)
            os.close(commands)
            os.close(answers)
