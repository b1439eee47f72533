"""Follows the delegation tokens in the metadata store, and changes them there.

Reads all of them at the start, then follows notifications. Any broker changes a token, on the
condition that nobody else has changed it meanwhile; if so, it decides again. A change is in force
here before it is answered, and on other brokers as soon as the store notifies them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from headwater.broker.store_notifications import Done, StoreNotifications, each_at_once
from headwater.broker.token_nodes import (
    BASE_PATHS,
    CHANGE_PREFIX,
    decode_change,
    decode_token,
    encode_change,
    encode_token,
    token_path,
)
from headwater.controller.metadata_loader import BatchedReads
from headwater.controller.store.certain_write import write_surely
from headwater.controller.store.metadata_store import (
    OVERTAKEN,
    Create,
    Delete,
    MetadataStore,
    Op,
    OpResult,
    SessionState,
    Set,
    Stat,
    StoreError,
    StoreFailure,
    Znode,
)
from headwater.controller.store.znodes import TOKENS
from headwater.errors import E, KafkaError
from headwater.security.delegation_tokens import DelegationTokens, TokenInformation

log = logging.getLogger("headwater.server")

MOST_TRIES = 100
"""How often a change is tried again after another broker was faster."""

Decide: TypeAlias = Callable[[TokenInformation], TokenInformation | None]
"""Returns the changed token, None to remove it; a KafkaError leaves it unchanged."""
Changed: TypeAlias = Callable[[TokenInformation | KafkaError | None], None]
"""Gets the changed token, None if it was removed, or the error if nothing changed."""


class TokenChanges:
    """The delegation tokens of the cluster."""

    def __init__(self, store: MetadataStore, tokens: DelegationTokens) -> None:
        self.tokens = tokens
        self._store = store
        self._versions: dict[str, int] = {}
        self._found: set[str] | None = None
        """The tokens found so far, while all of them are read."""
        self._ready: Callable[[], None] | None = None
        self._notifications = StoreNotifications(
            store, CHANGE_PREFIX, decode_change, self._changed, self._read_all
        )
        store.on_session(self._session_changed)

    def start(self, ready: Callable[[], None]) -> None:
        """Read everything, then call `ready`."""
        self._ready = ready
        for path in BASE_PATHS:
            self._store.create(path, b"", lambda _: None)
        self._read_all()

    # -- reading

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.OPEN:
            self._read_all()

    def _read_all(self) -> None:
        """Read every node, after the notifications: what changes meanwhile is notified again."""
        self._notifications.follow_from_now()
        found = self._found = set()
        reads = BatchedReads(self._store, partial(self._loaded, found))

        def nodes(ids: list[str]) -> Iterator[tuple[str, Callable[[Znode], None]]]:
            for token_id in ids:
                yield token_path(token_id), partial(self._read, token_id)

        reads.children(TOKENS, lambda ids: reads.get_all(nodes(ids)))

    def _loaded(self, found: set[str], failure: StoreError | None) -> None:
        if self._found is not found:
            return  # another session began to read again
        if failure is not None:
            log.warning("cannot read delegation tokens from the metadata store: %s", failure)
            return  # the next session reads them again
        self._found = None
        for token_id in self._versions.keys() - found:
            self._forget(token_id)
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()

    def _read(self, token_id: str, node: Znode) -> None:
        try:
            self._put(decode_token(token_id, node.data), node.stat.version)
        except ValueError:
            self._forget(token_id)
            raise

    def _changed(self, token_id: str, done: Done) -> None:
        """Read a token that a notification names."""

        def read(node: Znode | StoreError) -> None:
            failure = None
            try:
                if isinstance(node, Znode):
                    self._read(token_id, node)
                elif node.kind is StoreFailure.NO_NODE:
                    self._forget(token_id)
                else:
                    failure = node
            except ValueError as undecodable:
                log.error("skipped a node of the metadata store: %s", undecodable)
            done(failure)

        self._store.get(token_path(token_id), read)

    def _put(self, token: TokenInformation, version: int) -> None:
        if self._found is not None:
            self._found.add(token.token_id)
        self._versions[token.token_id] = version
        self.tokens.put(token)

    def _forget(self, token_id: str) -> None:
        self._versions.pop(token_id, None)
        self.tokens.remove(token_id)

    # -- changing

    def create(self, token: TokenInformation, reply: Changed) -> None:
        """Store a new token."""

        def stored(results: list[OpResult] | StoreError) -> None:
            self.tokens.count(token, -1)
            if isinstance(results, StoreError):
                reply(_not_stored(results))
            else:
                self._put(token, 0)
                self._notifications.ignore(str(results[1]))
                reply(token)

        self.tokens.count(token, 1)
        node = Create(token_path(token.token_id), encode_token(token))
        write_surely(self._store, [node, _notice(token.token_id)], stored)

    def change(self, hmac: bytes, decide: Decide, reply: Changed) -> None:
        """Replace the token with this HMAC by what `decide` returns."""

        def change(failure: StoreError | None = None) -> None:
            if failure is not None:
                reply(_not_stored(failure))
                return
            token = self.tokens.with_hmac(hmac)
            if token is None:
                reply(KafkaError(E.DELEGATION_TOKEN_NOT_FOUND))
            else:
                _Change(self, token.token_id, decide, reply).begin()

        if self.tokens.with_hmac(hmac) is None:
            self._notifications.catch_up(change)  # another broker may have made it just now
        else:
            change()

    def remove(self, ids: Sequence[str], done: Callable[[StoreError | None], None]) -> None:
        """Remove tokens, all or none: none if one of them has changed."""
        ops: list[Op] = []
        for token_id in ids:
            ops += [Delete(token_path(token_id), self._versions[token_id]), _notice(token_id)]

        def removed(results: list[OpResult] | StoreError) -> None:
            if not isinstance(results, StoreError):
                for token_id, notice in zip(ids, results[1::2], strict=True):
                    self._forget(token_id)
                    self._notifications.ignore(str(notice))
                done(None)
            elif results.kind in OVERTAKEN:
                each_at_once(ids, self._changed, lambda: done(results))
            else:
                done(results)

        write_surely(self._store, ops, removed)

    def read_node(self, token_id: str, reply: Callable[[Znode | StoreError], None]) -> None:
        """Read a token's node."""
        self._store.get(token_path(token_id), reply)

    def write(
        self,
        token_id: str,
        token: TokenInformation | None,
        version: int,
        reply: Callable[[StoreError | None], None],
    ) -> None:
        """Replace a token that still has this version, or remove it."""
        path = token_path(token_id)
        write = Delete(path, version) if token is None else Set(path, encode_token(token), version)

        def written(results: list[OpResult] | StoreError) -> None:
            if isinstance(results, StoreError):
                reply(results)
                return
            made, notice = results
            if token is not None and isinstance(made, Stat):
                self._put(token, made.version)
            else:
                self._forget(token_id)
            self._notifications.ignore(str(notice))
            reply(None)

        write_surely(self._store, [write, _notice(token_id)], written)


class _Change:
    """A change of one token: reads it, decides, writes, and begins again if it was overtaken."""

    def __init__(
        self, changes: TokenChanges, token_id: str, decide: Decide, reply: Changed
    ) -> None:
        self._changes = changes
        self._token_id = token_id
        self._decide = decide
        self._reply = reply
        self._tries = 0

    def begin(self) -> None:
        self._tries += 1
        self._changes.read_node(self._token_id, self._read)

    def _read(self, node: Znode | StoreError) -> None:
        if isinstance(node, StoreError):
            is_gone = node.kind is StoreFailure.NO_NODE
            self._reply(KafkaError(E.DELEGATION_TOKEN_NOT_FOUND) if is_gone else _not_stored(node))
            return
        try:
            decided = self._decide(decode_token(self._token_id, node.data))
        except ValueError:
            self._reply(KafkaError(E.DELEGATION_TOKEN_NOT_FOUND))
        except KafkaError as refused:
            self._reply(refused)
        else:
            written = partial(self._written, decided)
            self._changes.write(self._token_id, decided, node.stat.version, written)

    def _written(self, decided: TokenInformation | None, failure: StoreError | None) -> None:
        if failure is None:
            self._reply(decided)
        elif failure.kind in OVERTAKEN and self._tries < MOST_TRIES:
            self.begin()
        else:
            self._reply(_not_stored(failure))


def _notice(token_id: str) -> Create:
    return Create(CHANGE_PREFIX, encode_change(token_id), sequential=True)


def _not_stored(failure: StoreError) -> KafkaError:
    return KafkaError(
        E.REQUEST_TIMED_OUT, f"the metadata store did not store it ({failure}): try again"
    )
