"""When a client logs in again, which is not for a broker to decide, and what a failure of it does."""

import asyncio
from collections.abc import Callable

import pytest

from headwater.client import login
from headwater.client.login import LONGEST_SESSION_MS, SHORTEST_SESSION_MS, PasswordLogin
from headwater.config.client_sasl import SaslCredentials
from headwater.errors import E, KafkaError

CREDENTIALS = SaslCredentials("PLAIN", "alice", "pencil", False)


class Middle:
    """A Randomness without surprises."""

    def below(self, limit: int) -> int:
        return limit // 2


class Connection:
    """Notes when the client will log in again, and what became of it."""

    address = "127.0.0.1:9092"
    is_open = True

    def __init__(self) -> None:
        self.delays_s: list[float] = []
        self.renew: Callable[[], None]
        self.paused = False
        self.aborted: asyncio.Future[KafkaError]

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delays_s.append(delay_s)
        self.renew = call

    async def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def abort(self, why: KafkaError) -> None:
        self.aborted.set_result(why)


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


@pytest.mark.parametrize("broken", ["begin", "get_ready", "prepare"])
def test_a_bug_in_a_later_login_ends_the_connection_and_is_logged(monkeypatch, caplog, broken):
    async def log_in(*_: object) -> int:
        return 600_000

    def bug(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    async def run() -> None:
        connection, user = Connection(), PasswordLogin(CREDENTIALS, Middle())
        connection.aborted = asyncio.get_running_loop().create_future()
        await user.prepare(connection)
        monkeypatch.setattr(user, broken, bug)
        connection.renew()
        why = await asyncio.wait_for(connection.aborted, 60)
        assert why.code is E.NETWORK_EXCEPTION
        assert "internal error while authenticating to 127.0.0.1:9092 again" in str(why)

    monkeypatch.setattr(login, "log_in", log_in)
    asyncio.run(run())
    assert "on purpose" in caplog.text


def test_requests_go_on_after_a_later_login(monkeypatch):
    async def log_in(*_: object) -> int:
        return 600_000

    async def run() -> None:
        connection, user = Connection(), PasswordLogin(CREDENTIALS, Middle())
        connection.aborted = asyncio.get_running_loop().create_future()
        await user.prepare(connection)
        connection.renew()
        await asyncio.gather(*user._renewals)
        assert len(connection.delays_s) == 2
        assert not connection.paused
        assert not connection.aborted.done()

    monkeypatch.setattr(login, "log_in", log_in)
    asyncio.run(run())
