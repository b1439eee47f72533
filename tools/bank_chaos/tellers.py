"""Clients that transfer money, one transfer or several in a transaction: ours and confluent-kafka's."""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import confluent_kafka

import headwater
from headwater.errors import KafkaError
from tools.bank_chaos.transfers import Transfer, transfers
from tools.chaos_clients import CONFLUENT_QUICK
from tools.client_chaos import QUICK
from tools.cluster_chaos.history import History

TIMEOUT_MS = 10_000
"""The timeout of every transaction."""
PATIENCE_S = 20.0
ABORTS = 0.12
"""How often a transaction is given up by its client."""
AT_ONCE = (1, 1, 10, 40)
"""How many transfers share a transaction."""
TAKEOVERS = 0.01
"""How often another producer takes over in the middle of a transaction."""


class Teller:
    """Transfers on a thread of its own until it is stopped."""

    def __init__(self, bootstrap: str, name: str, history: History, chance: random.Random) -> None:
        self.name = name
        self.committed = 0
        self.newest_commit = 0.0
        """When the newest transfer that committed had begun."""
        self.bootstrap = bootstrap
        self.history = history
        self.chance = chance
        self._transfers = transfers(name, chance)
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """End the transfer under way and begin no other."""
        self.stopping.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.problem(f"does not end within {timeout_s:.0f} s")

    def problem(self, text: str) -> None:
        self.history.note("problem", text=f"teller {self.name}: {text}")

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
        except Exception as failure:  # noqa: BLE001 - a finding
            self.problem(f"ended with {failure!r}")

    def work(self) -> None:
        """Use one producer until it is stopped or fenced."""
        raise NotImplementedError

    def transact(self, do: Callable[[list[Transfer], Callable[[], None]], bool]) -> None:
        """Do some transfers: `do` calls its second argument before it asks to commit.

        It returns whether they are committed, and raises if the producer cannot go on.
        """
        began = time.monotonic()
        chosen = [next(self._transfers) for _ in range(self.chance.choice(AT_ONCE))]
        asked = threading.Event()
        # As long as nobody asks to commit them, they must not be visible.
        outcome = "aborted"
        try:
            done = do(chosen, asked.set)
            outcome = "committed" if done else "aborted"
            if done:
                self.committed += len(chosen)
                self.newest_commit = began
        except BaseException:
            outcome = "unknown" if asked.is_set() else "aborted"
            raise
        finally:
            names = [legs[0].transfer for legs in chosen]
            self.history.note("ended", transfers=names, outcome=outcome)


def insist(call: Callable[[], Any]) -> Any:
    """Repeat a call of ours that did not finish in its time."""
    while True:
        try:
            return call()
        except headwater.RetriableTransactionError:
            continue


class OwnTeller(Teller):
    """A producer of ours."""

    def work(self) -> None:
        producer = self._producer()
        try:
            insist(producer.init_transactions)
            while not self.stopping.is_set():
                if self.chance.random() < TAKEOVERS:
                    producer = self._take_over(producer)
                self.transact(partial(self._transfer, producer))
        except headwater.FatalTransactionError as over:
            self.history.note("fatal", teller=self.name, error=str(over))
        finally:
            _close(producer)

    def _producer(self) -> headwater.Producer:
        return headwater.Producer(
            bootstrap_servers=self.bootstrap, client_id=self.name, transactional_id=self.name,
            transaction_timeout_ms=TIMEOUT_MS, max_block_ms=int(1000 * PATIENCE_S),
            delivery_timeout_ms=600_000, linger_ms=0, **QUICK,
        )  # fmt: skip

    def _transfer(
        self, producer: headwater.Producer, chosen: list[Transfer], ask: Callable[[], None]
    ) -> bool:
        producer.begin_transaction()
        try:
            _send(producer, chosen)
            if self.chance.random() >= ABORTS:
                ask()
                insist(producer.commit_transaction)
                return True
        except (headwater.AbortableTransactionError, headwater.TimedOutError):
            pass
        insist(producer.abort_transaction)
        return False

    def _take_over(self, older: headwater.Producer) -> headwater.Producer:
        """Begin with a newer producer while the older one has a transaction open."""
        newer = self._producer()

        def fenced(chosen: list[Transfer], _: Callable[[], None]) -> bool:
            older.begin_transaction()
            _send(older, chosen)
            insist(newer.init_transactions)
            try:
                insist(older.commit_transaction)
            except headwater.ProducerFencedError:
                self.history.note("fenced", teller=self.name)
            except headwater.AbortableTransactionError:
                pass  # a record came after the newer producer
            else:
                self.problem(f"a fenced producer committed {chosen}")
            return False

        try:
            self.transact(fenced)
        except BaseException:
            _close(newer)
            raise
        finally:
            _close(older)
        return newer


def _send(producer: headwater.Producer, chosen: list[Transfer]) -> None:
    for leg in chain.from_iterable(chosen):
        producer.send(leg.place.topic, leg.as_value(), partition=leg.place.partition)


def _close(producer: headwater.Producer) -> None:
    try:
        producer.close(PATIENCE_S)
    except KafkaError:
        return


class ConfluentTeller(Teller):
    """A producer of confluent-kafka."""

    def work(self) -> None:
        producer = confluent_producer(self.bootstrap, self.name)
        try:
            insist_confluent(partial(producer.init_transactions, PATIENCE_S), self.history)
            while not self.stopping.is_set():
                self.transact(partial(self._transfer, producer))
        except confluent_kafka.KafkaException as over:
            self.history.note("fatal", teller=self.name, error=str(over))

    def _transfer(
        self, producer: confluent_kafka.Producer, chosen: list[Transfer], ask: Callable[[], None]
    ) -> bool:
        producer.begin_transaction()
        try:
            send_confluent(producer, chosen)
            if self.chance.random() >= ABORTS:
                ask()
                insist_confluent(partial(producer.commit_transaction, PATIENCE_S), self.history)
                return True
        except confluent_kafka.KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        insist_confluent(partial(producer.abort_transaction, PATIENCE_S), self.history)
        return False


def confluent_producer(bootstrap: str, transactional_id: str) -> confluent_kafka.Producer:
    """Return a transactional producer of confluent-kafka."""
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": transactional_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "message.timeout.ms": TIMEOUT_MS,
            "linger.ms": 0,
            "socket.timeout.ms": 10_000,
            "request.timeout.ms": 5000,
            **CONFLUENT_QUICK,
        }
    )


def send_confluent(producer: confluent_kafka.Producer, chosen: list[Transfer]) -> None:
    """Send the legs of transfers; the end of the transaction says what became of them."""
    for leg in chain.from_iterable(chosen):
        producer.produce(leg.place.topic, leg.as_value(), partition=leg.place.partition)


def insist_confluent(call: Callable[[], Any], history: History) -> Any:
    """Repeat a call of confluent-kafka that may be repeated."""
    while True:
        try:
            return call()
        except confluent_kafka.KafkaException as failure:
            history.note("again", call=repr(call), error=str(failure))
            if not failure.args[0].retriable():
                raise
