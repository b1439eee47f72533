"""The programs of the clients, as the checks see them: producers by the verb, and reading."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.compat.broker_under_test import BrokerUnderTest
from tests.compat.client import Message
from tests.compat.clients import franz
from tests.compat.line_server import LineServer
from tests.compat.tool_server import program_command

END = "end"
LONGEST_TIMEOUT_MS = 900_000
"""The default of transaction.max.timeout.ms: no test waits for it."""
_numbers = itertools.count(1)


class Failure(Exception):
    """A client told its user of an error; `kind` is fatal, abortable, retriable or lost.

    Lost: it waited for nothing, and would have told nothing (`kafka_python.RequestLost`).
    """

    def __init__(self, error: str, kind: str):
        super().__init__(error)
        self.kind = kind


class Program:
    """A running program of one client."""

    def __init__(self, command: list[str], name: str):
        self._server = LineServer(command, name)

    def ask(self, verb: str, **request: Any) -> Any:
        answer = self._server.ask(verb=verb, **request)
        if "error" in answer:
            raise Failure(answer["error"], answer["kind"])
        return answer["result"]

    def open(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = LONGEST_TIMEOUT_MS
    ) -> "TransactionalProducer":
        """A producer whose transactions are initialized."""
        settings = {"bootstrap": bootstrap, "transactional_id": transactional_id}
        name = f"producer-{next(_numbers)}"
        self.ask("open", producer=name, timeout_ms=timeout_ms, **settings)
        return TransactionalProducer(self, name)

    def read(
        self, broker: BrokerUnderTest, topic: str, partitions: int, isolation: str
    ) -> list[list[str]]:
        """The values in each partition, up to a record that this writes as the last.

        A record behind an open transaction is not read, so this waits until there is none.
        """
        last = [Message(END.encode(), partition=partition) for partition in range(partitions)]
        broker.hand.produce(topic, last)
        where = {"bootstrap": broker.bootstrap, "topic": topic, "partitions": partitions}
        return list(self.ask("read", isolation=isolation, until=END, **where))

    def transform(self, bootstrap: str, **request: Any) -> None:
        """Copies a topic with the offsets of a group, and aborts some of the transactions."""
        self.ask("transform", bootstrap=bootstrap, **request)

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self._server.close()


class TransactionalProducer:
    """A producer in a program."""

    def __init__(self, program: Program, name: str):
        self._program = program
        self._name = name

    def _ask(self, verb: str, **request: Any) -> None:
        self._program.ask(verb, producer=self._name, **request)

    def begin(self) -> None:
        self._ask("begin")

    def send(self, topic: str, rows: Iterable[tuple[int, str]], *, flush: bool = True) -> None:
        """Sends values to partitions, and waits until they are delivered."""
        self._ask("send", topic=topic, rows=list(rows), flush=flush)

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close")


class TransactionalClient:
    """A client with transactions; its program starts when it is first asked for."""

    def __init__(
        self,
        name: str,
        version: int,
        command: Callable[[], list[str]],
        *,
        aborts_unsent: bool = True,
    ):
        self.name = name
        self.aborts_unsent = aborts_unsent
        """Whether it may abort right after `produce`, while its requests are under way."""
        self.version = version
        """The transaction.version that it speaks: 2 if the epoch rises with every transaction."""
        self._command = command
        self._starting = threading.Lock()
        self._program: Program | None = None

    def program(self) -> Program:
        """The program that all checks share."""
        with self._starting:
            if self._program is None:
                self._program = self.another_program()
            return self._program

    def another_program(self) -> Program:
        """One more, for a check that kills it."""
        return Program(self._command(), self.name)

    def close(self) -> None:
        if self._program is not None:
            self._program.close()


def _python(module: str) -> Callable[[], list[str]]:
    here = __package__
    return lambda: [sys.executable, "-m", f"{here}.python_program", f"{here}.{module}"]


def _java(version: str) -> Callable[[], list[str]]:
    """One set of classes for both: what is compiled with the older clients runs with the newer."""
    jars = "kafka-clients-"
    return lambda: program_command("Transactions", jars + version, compile_with=jars + "3.9.2")


def transactional_clients() -> dict[str, TransactionalClient]:
    """The clients by name, none of them started."""
    clients = [
        # It ends a transaction that the coordinator has not begun, and dies of INVALID_TXN_STATE.
        TransactionalClient("confluent-kafka", 1, _python("confluent"), aborts_unsent=False),
        TransactionalClient("kafka-python", 1, _python("kafka_python")),
        TransactionalClient("aiokafka", 1, _python("aiokafka_client")),
        TransactionalClient("franz-go", 2, lambda: [str(franz.build()), "transactions"]),
        TransactionalClient("Java 4.3", 2, _java("4.3.1")),
        TransactionalClient("Java 3.9", 1, _java("3.9.2")),
    ]
    return {client.name: client for client in clients}
