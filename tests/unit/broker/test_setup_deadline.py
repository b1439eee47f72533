"""The handshake of TLS and the authentication share ten seconds, by a clock of the test."""

from collections.abc import Callable
from copy import copy
from types import SimpleNamespace

import pytest

from headwater.broker.listening import SETUP_TIMEOUT_S, ListenerSecurity
from headwater.broker.server_connection import SaslServerConnection
from headwater.security.principals import Principal

SASL = ListenerSecurity("CLIENTS", "SASL_PLAINTEXT")
LIMIT_MS = int(SETUP_TIMEOUT_S * 1000)


class Time:
    """A monotonic clock, and the timers of a loop that has the same one."""

    def __init__(self) -> None:
        self._now_ms = 5_000_000
        self._timers: dict[object, tuple[float, Callable[[], None]]] = {}

    def monotonic_ms(self) -> int:
        return self._now_ms

    def time(self) -> float:
        return self._now_ms / 1000

    def call_later(self, delay_s: float, call: Callable[[], None]) -> object:
        timer = SimpleNamespace(cancel=lambda: self._timers.pop(timer_id, None))
        timer_id = object()
        self._timers[timer_id] = (self._now_ms + delay_s * 1000, call)
        return timer

    def pass_ms(self, ms: int) -> None:
        self._now_ms += ms
        for timer_id, (due_ms, call) in list(self._timers.items()):
            if due_ms <= self._now_ms:
                del self._timers[timer_id]
                call()


class Transport:
    """Notes whether the connection was aborted."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


@pytest.fixture
def now(monkeypatch) -> Time:
    found = Time()
    monkeypatch.setattr(
        "headwater.broker.session_end.asyncio", SimpleNamespace(get_running_loop=lambda: found)
    )
    return found


@pytest.fixture
def reports() -> list[tuple[str, ...]]:
    return []


@pytest.fixture
def accepted(live, now, reports) -> SaslServerConnection:
    """A connection of which nothing but the address is known."""
    context = copy(live.context)
    context.clock = now
    context.peer_log = SimpleNamespace(warning=lambda *report: reports.append(report))
    return SaslServerConnection(context, SASL, lambda *frame: None, "10.0.0.7")


@pytest.mark.parametrize("handshake_ms", [0, 7000, LIMIT_MS - 1])
def test_authentication_has_what_the_handshake_has_left(now, accepted, reports, handshake_ms):
    transport = Transport()
    now.pass_ms(handshake_ms)
    accepted.connection_made(transport)
    now.pass_ms(LIMIT_MS - handshake_ms - 1)
    assert not transport.aborted
    now.pass_ms(1)
    assert transport.aborted
    why = "closed a connection: it did not authenticate within 10 s"
    assert reports == [("listener CLIENTS", "10.0.0.7", why)]


def test_a_handshake_that_took_all_of_the_time_leaves_none(now, accepted):
    transport = Transport()
    now.pass_ms(LIMIT_MS + 2000)
    accepted.connection_made(transport)
    now.pass_ms(0)
    assert transport.aborted


def test_who_has_authenticated_in_time_stays(now, accepted, reports):
    transport = Transport()
    accepted.connection_made(transport)
    now.pass_ms(LIMIT_MS - 1)
    accepted.authenticated_as(Principal("User", "alice"))
    now.pass_ms(100 * LIMIT_MS)
    assert not transport.aborted
    assert reports == []


def test_what_comes_after_the_end_of_the_time_is_not_read(now, accepted, reports):
    """After a pause of the process, the loop reads before it runs timers."""
    transport = Transport()
    accepted.connection_made(transport)
    now._now_ms += LIMIT_MS
    frame = bytes(12)
    accepted.get_buffer(-1)[: len(frame)] = frame
    accepted.buffer_updated(len(frame))
    assert transport.aborted
    assert len(reports) == 1
