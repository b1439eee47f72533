"""Mistakes that brokers make with logins, rights and quotas, on demand.

B36 is in the catalogue of bugs; the others have names of our own.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from headwater.broker import client_quotas
from headwater.broker.acl_changes import AclChanges
from headwater.broker.client_quotas import ClientQuotas
from headwater.broker.dispatch import Dispatch
from headwater.broker.handlers import fetch, sasl
from headwater.broker.handlers.fetch import _Fetch
from headwater.broker.handlers.fetch_throttles import throttle_of
from headwater.broker.store_notifications import StoreNotifications
from headwater.controller.store.metadata_store import ANY_VERSION, Delete, Set, WatchEvent
from headwater.log.log_dir import LogDir, dir_at
from headwater.replication import log_dir_moves
from headwater.security.acl_nodes import PREFIXED_CHANGES
from headwater.security.acls import AclEntry, ResourcePattern
from headwater.security.sasl_session import SaslSession
from headwater.security.scram_users import ScramUsers
from headwater.security.standard_authorizer import StandardAuthorizer
from simulator.planting import ClusterBug
from simulator.security.users import OF

log = logging.getLogger("headwater.server")


@contextmanager
def _edits_overwrite() -> Iterator[None]:
    """A change of ACLs is stored whatever others have stored meanwhile (B36, KAFKA-3328)."""
    store_some, ops = AclChanges._store_some, AclChanges._ops

    def blindly(self: AclChanges, write: Any, version: int) -> None:
        store_some(self, write, ANY_VERSION)

    def unconditional(self: AclChanges, pattern: ResourcePattern, data: bytes | None) -> list[Any]:
        return [_at_any_version(op) for op in ops(self, pattern, data)]

    with (
        patch.object(AclChanges, "_store_some", blindly),
        patch.object(AclChanges, "_ops", unconditional),
    ):
        yield


def _at_any_version(op: Any) -> Any:
    if isinstance(op, Set):
        return Set(op.path, op.data, ANY_VERSION)
    return Delete(op.path, ANY_VERSION) if isinstance(op, Delete) else op


@contextmanager
def _served_before_login() -> Iterator[None]:
    """Clients are served before they have logged in (A1)."""
    begin = Dispatch.__init__

    def careless(self: Dispatch, *args: Any) -> None:
        begin(self, *args)
        self._table = {
            key: row._replace(before_authentication=True) for key, row in self._table.items()
        }

    with patch.object(Dispatch, "__init__", careless):
        yield


@contextmanager
def _sessions_without_end() -> Iterator[None]:
    """A session goes on after its end (A2)."""
    with patch.object(sasl, "_expire", lambda *_: None):
        yield


@contextmanager
def _former_password_valid() -> Iterator[None]:
    """A broker keeps the first password of a user that it has heard of (A3)."""
    replace = ScramUsers.replace

    def once(self: ScramUsers, user: str, configs: Mapping[str, str]) -> list[str]:
        return [] if self.of(user) else replace(self, user, configs)

    with patch.object(ScramUsers, "replace", once):
        yield


@contextmanager
def _notified_once() -> Iterator[None]:
    """A broker does not watch for changes of prefixed ACLs by others (A4)."""
    notified = StoreNotifications._notified

    def once(self: StoreNotifications[Any], change: WatchEvent, path: str) -> None:
        if self._path == PREFIXED_CHANGES:
            self._store.children(self._path, partial(self._listed, lambda _: None))
        else:
            notified(self, change, path)

    with patch.object(StoreNotifications, "_notified", once):
        yield


@contextmanager
def _decisions_kept() -> Iterator[None]:
    """Decisions are remembered beyond a change of the ACLs (A5)."""
    replace = StandardAuthorizer.replace

    def keep(self: StandardAuthorizer, pattern: ResourcePattern, entries: Any) -> None:
        decided = self._decided
        replace(self, pattern, entries)
        self._decided = decided

    with patch.object(StandardAuthorizer, "replace", keep):
        yield


@contextmanager
def _rights_kept_by_routes() -> Iterator[None]:
    """The fast path and waiting fetches keep the rights that they began with (A6)."""
    apply = AclChanges._apply

    def quietly(
        self: AclChanges, pattern: ResourcePattern, entries: tuple[AclEntry, ...], version: int
    ) -> None:
        changed, self._on_change = self._on_change, lambda: None
        apply(self, pattern, entries, version)
        self._on_change = changed

    with patch.object(AclChanges, "_apply", quietly):
        yield


@contextmanager
def _tokens_logged() -> Iterator[None]:
    """A broker logs the tokens of logins (A7, CVE-2026-33558)."""
    feed = SaslSession.feed

    def telling(self: SaslSession, token: bytes, now_ms: int) -> Any:
        log.debug("a token of %s: %r", self.mechanism, token)
        return feed(self, token, now_ms)

    with patch.object(SaslSession, "feed", telling):
        yield


@contextmanager
def _records_of_another_fetch() -> Iterator[None]:
    """A fetch is answered with the records that were found for the one before (A8)."""
    partition_answer = _Fetch._partition_answer
    former: list[Any] = []

    def mixed(self: _Fetch, part: Any) -> Any:
        answer = partition_answer(self, part)
        tenants = part.replica is not None and part.replica.topic_partition.topic in OF.values()
        if answer.records and tenants and not self.reader.is_follower:
            former.append(answer.records)
            answer.records = former.pop(0) if len(former) > 1 else answer.records
        return answer

    with patch.object(_Fetch, "_partition_answer", mixed):
        yield


@contextmanager
def _makes_what_clients_name() -> Iterator[None]:
    """A broker makes the folder that a client names as a log dir before it refuses the move (A9)."""

    def made(dirs: Iterable[LogDir], path: str) -> LogDir:
        known = list(dirs)
        known[0]._files.mkdir(path)
        return dir_at(known, path)

    with patch.object(log_dir_moves, "dir_at", made):
        yield


@contextmanager
def _quota_not_asked() -> Iterator[None]:
    """Produce requests do not count against a quota (Q1)."""
    with patch.object(ClientQuotas, "admit", lambda *_: 0):
        yield


@contextmanager
def _brokers_held() -> Iterator[None]:
    """Followers are held to the quota of clients (Q2)."""

    def same_for_all(context: Any, request: Any, reader: Any) -> Any:
        return throttle_of(context, request, reader._replace(is_follower=False))

    with (
        patch.object(client_quotas, "BROKER", "nobody"),
        patch.object(fetch, "throttle_of", same_for_all),
    ):
        yield


_LIGHT = MappingProxyType(
    {
        "secured": True, "recreated": False, "transactors": 0, "transformers": 0, "members": 0,
        "producers": 1, "records": 10,
    }
)  # fmt: skip
_CALM = ("short pause", "client pause", "leaders moved")

SECURITY_BUGS: dict[str, ClusterBug] = {
    "B36": ClusterBug(_edits_overwrite, _CALM, plan={**_LIGHT, "slowest_network_ms": 80}, first=9),
    "A1": ClusterBug(_served_before_login, _CALM, plan=_LIGHT),
    "A2": ClusterBug(_sessions_without_end, _CALM, plan=_LIGHT),
    "A3": ClusterBug(_former_password_valid, _CALM, plan=_LIGHT),
    "A4": ClusterBug(_notified_once, _CALM, plan=_LIGHT),
    "A5": ClusterBug(_decisions_kept, _CALM, plan=_LIGHT),
    "A6": ClusterBug(_rights_kept_by_routes, _CALM, plan=_LIGHT),
    "A7": ClusterBug(_tokens_logged, _CALM, plan=_LIGHT),
    "A8": ClusterBug(_records_of_another_fetch, _CALM, plan=_LIGHT),
    "A9": ClusterBug(_makes_what_clients_name, _CALM, plan=_LIGHT),
    "Q1": ClusterBug(_quota_not_asked, _CALM, plan=_LIGHT),
    "Q2": ClusterBug(_brokers_held, _CALM, plan=_LIGHT),
}
