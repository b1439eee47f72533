"""The audit log: one line of JSON for each refused request or login, and for each change of rights.

A line says who, from where, what, and which rule decided. Everything in it is escaped, and no value
of a setting, password or token ever is in it. A refusal that repeats within ten seconds is counted in
the next line; a client that is refused many different things has a limited number of lines.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headwater.security.acls import AclOperation, AclResourceType

if TYPE_CHECKING:
    from headwater.broker.request import Request
    from headwater.broker.server_connection import ServerConnection
    from headwater.security.principals import Principal

log = logging.getLogger("headwater.audit")

INTERVAL_MS = 10_000
CAPACITY = 1024
"""How many different refusals are counted; the oldest are dropped first."""
MOST_LINES = 100
"""How many different refusals of one client are logged in `INTERVAL_MS`: clients can invent names."""
MAX_TEXT = 256
MAX_DETAILS = 20
"""Longer lists in a line end with the number of those left out."""

_Value: TypeAlias = "str | int | list[str]"
_Refusal: TypeAlias = tuple[object, ...]
"""Who was refused what, and from where."""


class Peer(Protocol):
    """Who is behind a line: a connection, or a client whose request another broker forwarded."""

    @property
    def principal(self) -> "Principal": ...

    @property
    def host(self) -> str: ...


class AuditLog:
    """Writes the lines."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._said: dict[_Refusal, tuple[int, int]] = {}
        """Until when a refusal is only counted, and how often it was."""
        self._lines: dict[tuple[str, str], tuple[int, int]] = {}
        """By client: since when its lines are counted, and how many there are."""

    def refused(
        self,
        request: "Request",
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        rule: Callable[[], str],
    ) -> None:
        """Note that a client lacked a right."""
        peer, api = request.connection, request.row.api.name
        key = (str(peer.principal), peer.host, api, operation, resource_type, name[:MAX_TEXT])
        repeated = self._repeated(peer, key)
        if repeated is not None:
            what: dict[str, _Value] = {
                "api": api,
                "operation": operation.name,
                "resource": resource_type.name,
                "name": name,
                "rule": rule(),
            }
            self._write("refused", peer, {**what, **repeated})

    def login_refused(self, peer: "ServerConnection", mechanism: str, why: str) -> None:
        """Note that a peer could not prove who it is."""
        repeated = self._repeated(peer, (peer.host, peer.listener, mechanism, why[:MAX_TEXT]))
        if repeated is not None:
            what: dict[str, _Value] = {
                "listener": peer.listener,
                "mechanism": mechanism,
                "rule": why,
            }
            self._write("login refused", peer, {**what, **repeated})

    def _repeated(self, peer: Peer, key: _Refusal) -> dict[str, int] | None:
        """Return how often a refusal was repeated since its last line; None if it is not logged now."""
        now = self._now_ms()
        until, repeated = self._said.get(key, (now, 0))
        if now < until:
            self._said[key] = until, repeated + 1
            return None
        if not self._has_line(peer, now):
            return None
        self._said.pop(key, None)
        _make_room(self._said)
        self._said[key] = now + INTERVAL_MS, 0
        return {"repeated": repeated} if repeated else {}

    def _has_line(self, peer: Peer, now: int) -> bool:
        """Count a line of a client; return whether it is within the limit."""
        client = str(peer.principal), peer.host
        since, lines = self._lines.pop(client, (now, 0))
        if now - since >= INTERVAL_MS:
            since, lines = now, 0
        _make_room(self._lines)
        self._lines[client] = since, lines + 1
        if lines == MOST_LINES:
            why = f"more than {MOST_LINES} different ones in {INTERVAL_MS // 1000} s"
            self._write("refusals left out", peer, {"rule": why})
        return lines < MOST_LINES

    def changed(
        self, request: "Request", event: str, name: str, rule: str, details: Iterable[str] = ()
    ) -> None:
        """Note a change of ACLs, users, quotas, tokens or configs; details hold no secret."""
        shown = [one[:MAX_TEXT] for one in details]
        left_out = len(shown) - MAX_DETAILS
        if left_out > 0:
            shown[MAX_DETAILS:] = [f"and {left_out} more"]
        what: dict[str, _Value] = {"api": request.row.api.name, "name": name, "rule": rule}
        if shown:
            what["changes"] = shown
        self._write(event, request.connection, what)

    def changed_here(self, event: str, name: str, owner: str) -> None:
        """Note a change that this broker makes without a request."""
        log.info("%s", json.dumps({"event": event, "name": name, "owner": owner[:MAX_TEXT]}))

    def _write(self, event: str, peer: Peer, what: Mapping[str, _Value]) -> None:
        line = {
            "event": event,
            "principal": str(peer.principal)[:MAX_TEXT],
            "host": peer.host,
        } | {
            key: value[:MAX_TEXT] if isinstance(value, str) else value
            for key, value in what.items()
        }
        log.info("%s", json.dumps(line))


def _make_room(remembered: dict[Any, tuple[int, int]]) -> None:
    if len(remembered) >= CAPACITY:
        del remembered[next(iter(remembered))]
