"""Transactions of a client while brokers are killed: their leaders, and their coordinators."""

import itertools
import threading
from contextlib import suppress

from tests.compat.broker_under_test import eventually
from tests.compat.checks.transactions import COMMITTED, PARTITIONS, on_all
from tests.compat.three_brokers import ThreeBrokers
from tests.compat.transactions.programs import Failure, TransactionalClient, TransactionalProducer

PROGRESS = 3
"""A client with this many further committed transactions goes on."""
PACE_S = 0.05
COMMITS = 2
"""How often a commit that times out is repeated before its user gives the producer up."""
REPLACED_S = 300
"""Long enough for a producer that was given up, and for the next one to begin."""


class TransactionWork:
    """Writes a number to every partition in each transaction; every fourth one is aborted."""

    def __init__(self, client: TransactionalClient, brokers: ThreeBrokers):
        self._client = client
        self._brokers = brokers
        self._topic = brokers.topic(PARTITIONS)
        self._id = brokers.fresh("id")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"transactions of {client.name}")
        self.committed: list[int] = []
        self.unknown: list[int] = []
        """Those whose commit failed: nobody knows, but they are whole or not there."""
        self.failures: list[str] = []
        """What the client told its user."""
        self.lost = 0
        """How often it had lost a request, so that its user gave the producer up."""
        self.crash: BaseException | None = None
        self.read: list[list[str]] = []
        """What is in each partition at the end, for a reader of committed records."""

    def start(self) -> None:
        self._thread.start()

    def wait_for_progress(self, when: str) -> None:
        if self.crash:
            return
        goal = len(self.committed) + PROGRESS
        try:
            eventually(lambda: bool(self.crash) or len(self.committed) >= goal, REPLACED_S)
        except AssertionError:
            told = f"{self._client.name} commits nothing {when}; it last said {self.failures[-3:]}"
            self.crash = AssertionError(told)

    @property
    def kills(self) -> int:
        """How many brokers were killed: each one once."""
        return len(self._brokers.nodes.broker_ids)

    def finish(self) -> None:
        """Ends the work and reads what came of it."""
        self._stopping.set()
        self._thread.join()
        if not self.crash:
            self.read = self._client.program().read(
                self._brokers, self._topic, PARTITIONS, COMMITTED
            )

    def _run(self) -> None:
        producer: TransactionalProducer | None = None
        try:
            for number in itertools.count():
                while producer is None and not self._stopping.is_set():
                    producer = self._open()
                if producer is None or self._stopping.wait(PACE_S):
                    return
                producer = self._transaction(producer, number)
        except BaseException as crash:  # noqa: BLE001 - it is raised where the work is judged
            self.crash = crash

    def _open(self) -> TransactionalProducer | None:
        try:
            return self._client.program().open(self._brokers.bootstrap, self._id)
        except Failure as failure:
            self.failures.append(str(failure))
            return None

    def _transaction(
        self, producer: TransactionalProducer, number: int
    ) -> TransactionalProducer | None:
        """One transaction; returns the producer, or None if its user must start another one."""
        try:
            producer.begin()
            producer.send(self._topic, on_all(str(number)))
            if number % 4 < 3:
                self._commit(producer, number)
            else:
                producer.abort()
        except Failure as failure:
            self.failures.append(str(failure))
            self.lost += failure.kind == "lost"
            if failure.kind != "abortable":
                return None
            with suppress(Failure):
                producer.abort()
                return producer
            return None
        return producer

    def _commit(self, producer: TransactionalProducer, number: int) -> None:
        for left in reversed(range(COMMITS)):
            try:
                producer.commit()
            except Failure as failure:
                if failure.kind == "retriable" and left:
                    continue
                self.unknown.append(number)
                raise
            self.committed.append(number)
            return


def commit_through_kills(work: TransactionWork) -> None:
    """Each committed number is read once, in order, in every partition; no other is."""
    if work.crash:
        raise work.crash
    assert work.lost <= work.kills, "a client loses a request to a coordinator that was killed"
    values, *others = work.read
    assert others == [values] * (PARTITIONS - 1), "a transaction is whole or not there"
    numbers = list(map(int, values))
    assert numbers == sorted(set(numbers)), "each is there once, in order"
    assert set(work.committed) <= set(numbers) <= {*work.committed, *work.unknown}
