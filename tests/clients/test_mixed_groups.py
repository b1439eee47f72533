"""Our consumer, confluent-kafka and kafka-python in one group: one assignment, each record once."""

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.clients.member import CLIENTS
from tests.compat.clients.python_member import parse_event
from tests.compat.member import Member, wait_until

STRATEGIES = ["range", "cooperative-sticky"]
PARTITIONS = 6
PER_ROUND = 60


class MixedGroup:
    """The members that run, and what all that ever ran have read."""

    def __init__(self, broker, strategy):
        self._broker, self._strategy = broker, strategy
        self._topic, self._group = broker.topic(partitions=PARTITIONS), broker.name("mixed")
        self._running, self._all, self._stored = {}, [], 0

    def join(self, client):
        where = (self._broker.bootstrap, self._group, self._topic, self._strategy)
        command = [sys.executable, "-m", "tests.clients.member", client, *where]
        member = self._running[client] = Member(command, parse_event, name=client)
        self._all.append(member)

    def leave(self, client):
        self._running.pop(client).leave()

    def crash(self, client):
        self._running.pop(client).crash()

    def shares(self):
        """Every partition has one owner, and everybody has a fair share."""
        fair = PARTITIONS // len(self._running)
        wait_until(
            f"{sorted(self._running)} share",
            lambda: (
                all(len(one.partitions) == fair for one in self._running.values())
                and len(frozenset().union(*(one.partitions for one in self._running.values())))
                == PARTITIONS
            ),
            *self._running.values(),
        )

    def store(self):
        """More records, a tenth in each partition at a time."""
        self._broker.fill(self._topic, [b"v"] * PER_ROUND, key=lambda n: b"%d" % (n + self._stored))
        self._stored += PER_ROUND

    def reads_all_once(self):
        wait_until(
            f"{self._stored} records are read", lambda: len(self._read()) >= self._stored, *self._all
        )  # fmt: skip
        read = self._read()
        assert len(read) == len(set(read)) == self._stored

    def _read(self):
        return [row for member in self._all for row in member.records]

    def close(self):
        for member in self._all:
            member.__exit__()


@contextlib.contextmanager
def under_load(group):
    """Records are stored while the block runs."""
    done = threading.Event()

    def work():
        while not done.is_set():
            group.store()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_three_kinds_of_clients_are_one_group(broker):
    """Both strategies at once: most of the time is spent waiting for sessions to end."""
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(come_crash_and_go, broker, strategy) for strategy in STRATEGIES]
    for run in runs:
        run.result()


def come_crash_and_go(broker, strategy):
    with contextlib.closing(MixedGroup(broker, strategy)) as group:
        for client in CLIENTS:
            with under_load(group):
                group.join(client)
                group.shares()
            group.reads_all_once()
        for client in CLIENTS:
            group.crash(client)
            group.store()
            group.shares()
            group.reads_all_once()
            with under_load(group):
                group.join(client)
                group.shares()
            group.reads_all_once()
        for client in list(CLIENTS)[:2]:
            with under_load(group):
                group.leave(client)
                group.shares()
            group.reads_all_once()
