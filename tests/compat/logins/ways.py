"""The rows of the table: the ways in, and what a client does with each."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.compat.client import NotOffered
from tests.compat.logins.secured_broker import (
    APPLICATIONS,
    SESSION_MS,
    TOKEN_OWNERS,
    USERS,
    SecuredBroker,
)
from tests.compat.logins.session import (
    DELEGATION_TOKEN,
    SHORT_SESSIONS,
    Credentials,
    LoginClient,
    Session,
)

LIFE_S = 1.5 * SESSION_MS / 1000
PACE_S = 0.05
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
        time.sleep(PACE_S)
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
    by_token: bool = False
    """Whether a delegation token of the user logs in."""
    use: Callable[[Work], None] = walk

    @property
    def needs(self) -> tuple[str, ...]:
        """What a client must have."""
        login = DELEGATION_TOKEN if self.by_token else self.mechanism
        return (login, SHORT_SESSIONS) if self.use is outlive_sessions else (login,)

    def credentials(self, broker: SecuredBroker) -> Credentials:
        """What a client shows."""
        if self.by_token:
            return broker.token_credentials(self.listener, self.user, self.mechanism)
        if self.mechanism:
            return broker.login_credentials(self.listener, self.user, self.mechanism)
        return broker.tls_credentials(self.listener, self.user if self.with_certificate else "")


_OWNER, _SHORT_OWNER = TOKEN_OWNERS
_AT = {"OAUTHBEARER": "LOGIN"}
"""Where sessions are short: this one ends with its token."""
WALKS = {
    "TLS": Way("TLS"),
    "mutual TLS": Way("MUTUAL", "carol", with_certificate=True),
    "PLAIN over TLS": Way("LOGIN", USERS["PLAIN"][0], "PLAIN"),
    "SCRAM-SHA-256": Way("LOGIN", USERS["SCRAM-SHA-256"][0], "SCRAM-SHA-256"),
    "SCRAM-SHA-512": Way("LOGIN", USERS["SCRAM-SHA-512"][0], "SCRAM-SHA-512"),
    "OAUTHBEARER": Way("LOGIN", USERS["OAUTHBEARER"][0], "OAUTHBEARER"),
    DELEGATION_TOKEN: Way("LOGIN", _OWNER, "SCRAM-SHA-256", by_token=True),
}
WAYS = {
    **WALKS,
    **{
        f"short sessions, {mechanism}": Way(
            _AT.get(mechanism, "SHORT"), short, mechanism, use=outlive_sessions
        )
        for mechanism, (_, short) in USERS.items()
    },
    f"short sessions, {DELEGATION_TOKEN}": Way(
        "SHORT", _SHORT_OWNER, "SCRAM-SHA-512", by_token=True, use=outlive_sessions
    ),
    "a new key store": Way("RENEWED", use=outlive_a_key_store),
    "a new key store, mutual TLS": Way(
        "RENEWED", "dave", with_certificate=True, use=outlive_a_key_store
    ),
}
LONG_WAYS = [name for name in WAYS if name not in WALKS]
"""Those in which a client mostly waits."""


def prefix(way: str) -> str:
    """What the topics and groups of a way begin with."""
    return way.replace(",", "").replace(" ", "-") + "."


def topic(way: str, client: str) -> str:
    """The topic of a cell, which is its group too."""
    return prefix(way) + client.replace(" ", "-")


def application(way: str, name: str) -> str:
    """The name of what a whole application has on a way in: topics, groups, transactional ids."""
    return f"{APPLICATIONS}{prefix(way)}{name}"


def users() -> dict[str, str]:
    """Who may use which prefix."""
    return {prefix(name): way.user for name, way in WAYS.items()}


def take(way: str, client: LoginClient, broker: SecuredBroker) -> None:
    """One cell of the table."""
    chosen = WAYS[way]
    for need in chosen.needs:
        if need in client.lacks:
            raise NotOffered(client.lacks[need])
    session = client.open(chosen.credentials(broker))
    try:
        work = Work(session, broker, topic(way, client.name))
        chosen.use(work)
    finally:
        session.close()
    found = work.read if client.idempotent else list(dict.fromkeys(work.read))
    assert found == work.written
