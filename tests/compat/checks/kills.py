"""What clients keep while each of three brokers is killed and started again in turn.

One round of kills serves all clients: each has a topic that it writes to all the time, a member of
a group that reads it, and creates a topic whenever a broker is gone. Every broker is the leader of
some of the topics, the coordinator of some of the groups or the controller when its turn comes. Clients
with transactions run one after the other all the time (`transaction_kills`).
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.compat.broker_under_test import eventually
from tests.compat.checks.transaction_kills import TransactionWork
from tests.compat.client import BEGINNING, END, Client
from tests.compat.clients.java_tools import JavaTools
from tests.compat.member import Member, Writer, wait_until
from tests.compat.three_brokers import PATIENCE_S, ThreeBrokers
from tests.compat.transactions.programs import TransactionalClient

FILTERS = "kafka-topics without a broker"
SESSION_MS = 60000
PROGRESS = 10
"""A writer with this many further records goes on."""


@dataclass
class Work:
    """What one client did during the kills."""

    client: Client
    topic: str
    group: str
    writer: Writer
    member: Member
    rebalances: int = 0
    """How often the assignment of the member changed during the kills."""
    topics: list[str] = field(default_factory=list)
    problems: list[Exception] = field(default_factory=list)
    """What was raised when it created topics."""
    values: list[int] = field(default_factory=list)
    """What is in its topic at the end."""
    committed: dict[int, int] = field(default_factory=dict)

    def create_topic(self, name: str) -> None:
        """Creates a topic, at the second try if the client leaves that to its user."""

        def created() -> bool:
            self.client.create_topic(name, 1, {}, replicas=2)
            return True

        try:
            created() if self.client.tries_other_brokers else eventually(created, PATIENCE_S)
        except Exception as problem:  # noqa: BLE001 - whatever its user would see
            self.problems.append(problem)
        else:
            self.topics.append(name)


class Kills:
    """One round of kills, in a thread of its own."""

    def __init__(
        self,
        brokers: ThreeBrokers,
        clients: Iterable[Client],
        transactional: Iterable[TransactionalClient],
    ):
        self._brokers = brokers
        self._clients = list(clients)
        self._transactional = list(transactional)
        self._transactions: dict[str, TransactionWork] = {}
        self._done: Future[dict[str, Work]] = Future()
        self.shown: dict[str, str] = {}
        """What `kafka-topics --describe` shows while a broker is gone, by its filter."""

    def start(self, after: Iterable[Future[str | None]]) -> None:
        """Begins when these are done: their brokers must live."""
        steady = list(after)

        def run() -> None:
            wait(steady)
            try:
                self._done.set_result(self._run())
            except BaseException as failure:  # noqa: BLE001 - it is raised where it is asked for
                self._done.set_exception(failure)

        threading.Thread(target=run, name="kills").start()

    def work(self, client: Client) -> Work:
        """What became of a client's work, once all is done."""
        return self._done.result()[client.name]

    def transactions(self, client: str) -> TransactionWork:
        """What became of a client's transactions, once all is done."""
        self._done.result()
        return self._transactions[client]

    def _run(self) -> dict[str, Work]:
        with ExitStack() as running:
            work = {client.name: self._begin(client, running) for client in self._clients}
            self._begin_transactions()
            for one in work.values():
                wait_until("it reads", lambda one=one: bool(one.member.records), one.member)  # type: ignore[misc]
                one.rebalances = len(one.member.assignments)
            for broker_id in self._brokers.nodes.broker_ids:
                self._kill_and_restart(broker_id, work)
            for transactions in self._transactions.values():
                transactions.finish()
            for one in work.values():
                self._finish(one)
        return work

    def _begin_transactions(self) -> None:
        for client in self._transactional:
            work = TransactionWork(client, self._brokers)
            work.start()
            self._transactions[client.name] = work
        for work in self._transactions.values():
            work.wait_for_progress("at first")

    def _begin(self, client: Client, running: ExitStack) -> Work:
        topic, group = self._brokers.topic(), self._brokers.fresh("group")
        writer = running.enter_context(client.writer(topic))
        member = running.enter_context(client.member(group, topic, session_ms=SESSION_MS))
        return Work(client, topic, group, writer, member)

    def _kill_and_restart(self, broker_id: int, work: Mapping[str, Work]) -> None:
        nodes = self._brokers.nodes
        nodes.kill(broker_id)
        with ThreadPoolExecutor() as threads:
            for one in work.values():
                threads.submit(one.create_topic, self._brokers.fresh("meanwhile"))
            self._wait_for_progress(f"without broker {broker_id}", work)
            if not self.shown:
                self._look(work)
            nodes.start_broker(broker_id)
        self._brokers.wait_until_in_sync(*(one.topic for one in work.values()))
        self._wait_for_progress(f"with broker {broker_id} again", work)

    def _wait_for_progress(self, when: str, work: Mapping[str, Work]) -> None:
        for name, one in work.items():
            goal = len(one.writer.acknowledged) + PROGRESS

            def further(one: Work = one, goal: int = goal) -> bool:
                return bool(one.writer.failures) or len(one.writer.acknowledged) >= goal

            wait_until(f"{name} writes {when}", further, one.writer)
        for transactions in self._transactions.values():
            transactions.wait_for_progress(when)

    def _look(self, work: Mapping[str, Work]) -> None:
        """Lists partitions by what they lack, until the broker is missed."""
        java = work.get(JavaTools.name)
        if java is None or not isinstance(java.client, JavaTools):
            return
        tools = java.client

        def shown(wanted: str) -> str:
            self.shown[wanted] = tools.run("kafka-topics", "--describe", f"--{wanted}").stdout
            return self.shown[wanted]

        eventually(lambda: java.topic in shown("under-replicated-partitions"), PATIENCE_S)
        for wanted in (
            "at-min-isr-partitions",
            "under-min-isr-partitions",
            "unavailable-partitions",
        ):
            shown(wanted)

    def _finish(self, one: Work) -> None:
        hand = self._brokers.hand
        one.writer.leave()
        end = hand.offsets(one.topic, END)[0]
        one.values = [int(r.value or b"-1") for r in hand.consume(one.topic, BEGINNING, end)]
        wait_until("all is read", lambda: len(one.member.records) >= end, one.member)
        eventually(lambda: hand.committed(one.group, one.topic) == {0: end}, PATIENCE_S)
        one.committed = hand.committed(one.group, one.topic)
        one.rebalances = len(one.member.assignments) - one.rebalances
        one.member.leave()


KillCheck = Callable[[Work], None]
KILL_CHECKS: dict[str, KillCheck] = {}


def kill_check(name: str) -> Callable[[KillCheck], KillCheck]:
    """Enters a function into the table of three brokers under `name`."""

    def enter(function: KillCheck) -> KillCheck:
        KILL_CHECKS[name] = function
        return function

    return enter


@kill_check("produce through kills")
def produce_through_kills(work: Work) -> None:
    assert work.writer.failures == []
    assert work.values == list(range(len(work.values))), "each number is there once, in order"
    assert work.writer.acknowledged == work.values


@kill_check("consume through kills")
def consume_through_kills(work: Work) -> None:
    assert work.member.records == [(0, offset) for offset in range(len(work.values))]


@kill_check("group through kills")
def group_through_kills(work: Work) -> None:
    """A group goes on with its next coordinator as it was, unless its client joins again."""
    assert work.rebalances == 0 or not work.client.keeps_its_place
    assert work.committed == {0: len(work.values)}


@kill_check("admin through kills")
def admin_through_kills(work: Work) -> None:
    """Also while there is no controller."""
    assert work.problems == []
    assert len(work.topics) == 3


def show_what_lacks_replicas(work: Work, shown: Mapping[str, str]) -> None:
    """kafka-topics lists partitions by what they lack: one of three replicas, of which two suffice."""
    assert f"Topic: {work.topic}\t" in shown["under-replicated-partitions"]
    assert f"Topic: {work.topic}\t" in shown["at-min-isr-partitions"]
    assert work.topic not in shown["under-min-isr-partitions"]
    assert work.topic not in shown["unavailable-partitions"]
