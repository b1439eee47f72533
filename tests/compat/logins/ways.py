"""The rows of the table: the ways in, and what a client does with each."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.compat.client import NotOffered
from tests.compat.logins.secured_broker import (
    PLAIN_USER,
    SCRAM_USERS,
    SESSION_MS,
    SecuredBroker,
)
from tests.compat.logins.session import LoginClient, Session

LIFE_S = 1.5 * SESSION_MS / 1000
PATIENCE_S = 150
BROKER_ID = 1


class Work:
    """What one client does on its topic; nothing that it wrote may be missing."""

    def __init__(self, session: Session, broker: SecuredBroker, name: str):
        self._session = session
        self.broker = broker
        self._name = name
        self.written: list[str] = []
        self.read: list[str] = []

    def write(self) -> None:
        value = str(len(self.written))
        self._session.produce(self._name, value)
        self.written.append(value)

    def poll(self) -> None:
        self.read += self._session.poll(self._name, self._name)

    def read_all(self) -> None:
        """Reads until all is there."""
        deadline = time.monotonic() + PATIENCE_S
        while not {*self.read} >= {*self.written}:
            assert time.monotonic() < deadline, f"read {self.read} of {self.written}"
            self.poll()

    def describe(self) -> None:
        assert self._session.brokers() == {BROKER_ID}


def walk(work: Work) -> None:
    """Writes, reads in a group, asks for the brokers."""
    for _ in range(3):
        work.write()
    work.read_all()
    work.describe()


def outlive_sessions(work: Work) -> None:
    """Writes and reads on the same clients for longer than a session."""
    ends = time.monotonic() + LIFE_S
    while time.monotonic() < ends:
        work.write()
        work.poll()
        time.sleep(0.02)  # the pace of the writes
    work.read_all()
    work.describe()


def outlive_a_key_store(work: Work) -> None:
    """Is connected while the broker gets another certificate, and connects again after that."""
    work.write()
    work.read_all()
    work.broker.renew_key_store()
    work.write()
    work.read_all()
    work.describe()


@dataclass(frozen=True)
class Way:
    """A way in: the listener, who comes, and how."""

    listener: str
    user: str = "ANONYMOUS"
    mechanism: str = ""
    with_certificate: bool = False
    use: Callable[[Work], None] = walk


_SCRAM_256, _SCRAM_512 = SCRAM_USERS
WAYS = {
    "TLS": Way("TLS"),
    "mutual TLS": Way("MUTUAL", "carol", with_certificate=True),
    "PLAIN over TLS": Way("LOGIN", PLAIN_USER, "PLAIN"),
    "SCRAM-SHA-256": Way("LOGIN", SCRAM_USERS[_SCRAM_256][0], _SCRAM_256),
    "SCRAM-SHA-512": Way("LOGIN", SCRAM_USERS[_SCRAM_512][0], _SCRAM_512),
    "short sessions": Way("SHORT", SCRAM_USERS[_SCRAM_512][1], _SCRAM_512, use=outlive_sessions),
    "a new key store": Way("RENEWED", use=outlive_a_key_store),
}
LONG_WAYS = [name for name, way in WAYS.items() if way.use is not walk]
"""Those in which a client mostly waits."""


def prefix(way: str) -> str:
    """What the topics and groups of a way begin with."""
    return way.replace(" ", "-") + "."


def topic(way: str, client: str) -> str:
    """The topic of a cell, which is its group too."""
    return prefix(way) + client.replace(" ", "-")


def users() -> dict[str, str]:
    """Who may use which prefix."""
    return {prefix(name): way.user for name, way in WAYS.items()}


def take(way: str, client: LoginClient, broker: SecuredBroker) -> None:
    """One cell of the table."""
    chosen = WAYS[way]
    if chosen.mechanism in client.lacks:
        raise NotOffered(client.why)
    session = client.open(
        broker.credentials(chosen.listener, chosen.user, chosen.mechanism, chosen.with_certificate)
    )
    try:
        work = Work(session, broker, topic(way, client.name))
        chosen.use(work)
    finally:
        session.close()
    found = work.read if client.idempotent else list(dict.fromkeys(work.read))
    assert found == work.written
