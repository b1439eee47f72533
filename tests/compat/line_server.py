"""A program that answers requests: each is a line of JSON on its standard input, so is each answer."""

import itertools
import json
import subprocess
import threading
from concurrent.futures import Future
from typing import IO, Any

WAIT_S = 180


class LineServer:
    """Runs the program; safe for several threads at once. An answer has the `id` of its request."""

    def __init__(self, command: list[str], name: str):
        self.name = name
        self._ids = itertools.count()
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._sending = threading.Lock()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._listener = threading.Thread(target=self._listen, args=(self._answers,), daemon=True)
        self._listener.start()

    def ask(self, timeout: float = WAIT_S, **request: Any) -> dict[str, Any]:
        """Sends a request and waits for its answer."""
        answer = Future[dict[str, Any]]()
        with self._sending:
            number = next(self._ids)
            self._waiting[number] = answer
            self._requests.write(json.dumps({"id": number, **request}) + "\n")
            self._requests.flush()
        try:
            return answer.result(timeout)
        except TimeoutError:
            raise AssertionError(f"{self.name} did not answer to {request}") from None

    def _listen(self, answers: IO[str]) -> None:
        for line in answers:
            answer = json.loads(line)
            self._waiting.pop(answer.pop("id")).set_result(answer)
        with self._sending:
            for lost in self._waiting.values():
                lost.set_exception(AssertionError(f"{self.name} ended without an answer"))
            self._waiting.clear()

    def kill(self) -> None:
        """Ends the program with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def close(self) -> None:
        """Ends the program's input and waits until it has ended."""
        self._requests.close()
        try:
            self._process.wait(timeout=WAIT_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._close_pipes()

    def _close_pipes(self) -> None:
        self._requests.close()
        self._listener.join()
        self._answers.close()
