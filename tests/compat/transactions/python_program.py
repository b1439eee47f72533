"""Transactions of a Python client: reads requests as lines of JSON, prints an answer to each.

    python -m tests.compat.transactions.python_program MODULE

MODULE has `Transactional`, `read`, `transform` and `kind_of`, as `confluent` has.
"""

import importlib
import json
import logging
import sys
import threading
from typing import Any

_printing = threading.Lock()


class Verbs:
    """What a request may ask for; a producer lives on between requests under the name it was given."""

    def __init__(self, module: Any):
        self._module = module
        self._producers: dict[str, Any] = {}

    def open(self, producer: str, **settings: Any) -> None:
        self._producers[producer] = self._module.Transactional(**settings)

    def begin(self, producer: str) -> None:
        self._producers[producer].begin()

    def send(self, producer: str, topic: str, rows: list[tuple[int, str]], flush: bool) -> None:
        made = self._producers[producer]
        made.send(topic, [(partition, value.encode()) for partition, value in rows])
        if flush:
            made.flush()

    def commit(self, producer: str) -> None:
        self._producers[producer].commit()

    def abort(self, producer: str) -> None:
        self._producers[producer].abort()

    def close(self, producer: str) -> None:
        self._producers.pop(producer).close()

    def read(self, partitions: int, until: str, **settings: Any) -> list[list[str]]:
        """The values of each partition, up to the value `until`."""
        found: list[list[str]] = [[] for _ in range(partitions)]
        open_ends = set(range(partitions))
        for partition, value in self._module.read(partitions=partitions, **settings):
            if partition in open_ends and value != until.encode():
                found[partition].append(value.decode())
            else:
                open_ends.discard(partition)
            if not open_ends:
                break
        return found

    def transform(self, **settings: Any) -> None:
        self._module.transform(**settings)


def answer(module: Any, verbs: Verbs, request: dict[str, Any]) -> None:
    """Does what a request asks for and tells what came of it."""
    number, verb = request.pop("id"), request.pop("verb")
    try:
        said = {"result": getattr(verbs, verb)(**request)}
    except Exception as problem:  # noqa: BLE001 - whatever its user would see
        said = {"error": f"{type(problem).__name__}: {problem}", "kind": module.kind_of(problem)}
    with _printing:
        sys.stdout.write(json.dumps({"id": number, **said}) + "\n")
        sys.stdout.flush()


def main(name: str) -> None:
    """Answers until its input ends."""
    logging.disable()  # of brokers that are gone, aiokafka tells a hundred times a second
    module = importlib.import_module(name)
    verbs = Verbs(module)
    for line in sys.stdin:
        given = (module, verbs, json.loads(line))
        threading.Thread(target=answer, args=given, daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
