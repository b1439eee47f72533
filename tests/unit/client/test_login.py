"""How often a client logs in is not for a broker to decide."""

import asyncio

import pytest

from headwater.client import login
from headwater.client.login import LONGEST_SESSION_MS, SHORTEST_SESSION_MS, PasswordLogin
from headwater.config.client_sasl import SaslCredentials

CREDENTIALS = SaslCredentials("PLAIN", "alice", "pencil", False)


class Middle:
    """A Randomness without surprises."""

    def below(self, limit: int) -> int:
        return limit // 2


class Connection:
    """Notes when the client will log in again."""

    def __init__(self) -> None:
        self.delays_s: list[float] = []

    def call_later(self, delay_s: float, call: object) -> None:
        self.delays_s.append(delay_s)


def delays(monkeypatch, lifetime_ms: int) -> list[float]:
    async def log_in(*_: object) -> int:
        return lifetime_ms

    monkeypatch.setattr(login, "log_in", log_in)
    connection = Connection()
    asyncio.run(PasswordLogin(CREDENTIALS, Middle()).prepare(connection))
    return connection.delays_s


@pytest.mark.parametrize(
    ("lifetime_ms", "taken_as_ms"),
    [
        (1, SHORTEST_SESSION_MS),
        (SHORTEST_SESSION_MS - 1, SHORTEST_SESSION_MS),
        (600_000, 600_000),
        (LONGEST_SESSION_MS + 1000, LONGEST_SESSION_MS),
        (2**63 - 1, LONGEST_SESSION_MS),
    ],
)
def test_the_session_that_a_broker_gives_is_bounded(monkeypatch, lifetime_ms, taken_as_ms):
    assert delays(monkeypatch, lifetime_ms) == [taken_as_ms * 0.9 / 1000]


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63)])
def test_a_session_without_an_end_is_not_renewed(monkeypatch, lifetime_ms):
    assert delays(monkeypatch, lifetime_ms) == []
