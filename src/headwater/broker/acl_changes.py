"""Follows the ACLs in the metadata store, and changes them there.

Reads all of them at the start, then follows notifications. A change is conditional: it counts up the
version of `LITERAL_CHANGES`, so that of several brokers that change ACLs at once, one succeeds and
the others look again. It is in force here before it is answered, and on other brokers as soon as the
store notifies them.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import NamedTuple, TypeVar

from headwater.broker.store_notifications import Done, StoreNotifications, Then, each_at_once
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
from headwater.errors import E, KafkaError
from headwater.security.acl_index import AclIndex
from headwater.security.acl_nodes import (
    BASE_PATHS,
    CHANGE_PREFIX,
    DENIES_ALL,
    LITERAL_CHANGES,
    MAX_NODE_BYTES,
    PREFIXED_CHANGES,
    TYPE_PATHS,
    change_path,
    decode_change,
    decode_entries,
    encode_change,
    encode_entries,
    node_path,
    pattern_of,
)
from headwater.security.acls import AclEntry, ResourcePattern
from headwater.security.standard_authorizer import StandardAuthorizer

log = logging.getLogger("headwater.server")

T = TypeVar("T")

PATTERNS_AT_ONCE = 100
"""How many nodes one write changes."""
MAX_WRITE_BYTES = MAX_NODE_BYTES
"""How large a write of several nodes is. ZooKeeper ends the connection of a client that sends 1 MiB."""
MOST_TRIES = 100
"""How often a write is tried again after another broker was faster."""


class AclEdit(NamedTuple):
    """The ACLs to add to and remove from one pattern."""

    added: frozenset[AclEntry] = frozenset()
    removed: frozenset[AclEntry] = frozenset()


class AclOutcome(NamedTuple):
    """The result of an edit: the ACLs that this edit itself removed, or why nothing changed."""

    removed: frozenset[AclEntry] = frozenset()
    failure: KafkaError | None = None


Outcomes = dict[ResourcePattern, AclOutcome]


class AclChanges:
    """The ACLs of the cluster, for the authorizer of this broker."""

    def __init__(
        self,
        store: MetadataStore,
        authorizer: StandardAuthorizer,
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._on_change = on_change
        self._versions: dict[ResourcePattern, int] = {}
        self._loading: AclIndex | None = None
        """The ACLs read so far, while all of them are read; those in force stay until then."""
        self._ready: Callable[[], None] | None = None
        self._lists = [
            StoreNotifications(
                store, f"{path}/{CHANGE_PREFIX}", decode_change, self._changed, self._read_all
            )
            for path in (LITERAL_CHANGES, PREFIXED_CHANGES)
        ]
        self._writes: deque[_Write] = deque()
        store.on_session(self._session_changed)

    def start(self, ready: Callable[[], None]) -> None:
        """Read everything, then call `ready`."""
        self._ready = ready
        for path in BASE_PATHS:
            self._store.create(path, b"", lambda _: None)
        self._read_all()

    @property
    def index(self) -> AclIndex:
        """The ACLs in force; to be read only."""
        return self._authorizer.index

    # -- reading

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.OPEN:
            self._read_all()

    def _read_all(self) -> None:
        """Read every node, after the notifications: what changes meanwhile is notified again."""
        for one in self._lists:
            one.follow_from_now()
        loading = self._loading = AclIndex()
        self._versions = {}
        reads = BatchedReads(self._store, partial(self._loaded, loading))
        for parent in TYPE_PATHS:
            reads.children(parent, partial(self._found, reads, parent))

    def _found(self, reads: BatchedReads, parent: str, segments: list[str]) -> None:
        def nodes() -> Iterator[tuple[str, Callable[[Znode], None]]]:
            for segment in segments:
                yield f"{parent}/{segment}", partial(self._read, pattern_of(parent, segment))

        reads.get_all(nodes())

    def _loaded(self, loading: AclIndex, failure: StoreError | None) -> None:
        if self._loading is not loading:
            return  # another session began to read again
        if failure is not None:
            log.warning("cannot read ACLs from the metadata store: %s", failure)
            return  # the next session reads them again
        self._loading = None
        self._authorizer.use(loading)
        self._on_change()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()
        self._write_next()

    def _read(self, pattern: ResourcePattern, node: Znode) -> None:
        entries = decode_entries(node.data)
        if entries is DENIES_ALL:
            log.error(
                "%s cannot be read, so everything is denied there: repair or delete the node",
                node_path(pattern),
            )
        self._apply(pattern, entries, node.stat.version)

    def _changed(self, pattern: ResourcePattern, done: Done) -> None:
        """Read the ACLs of a pattern that a notification names."""

        def read(node: Znode | StoreError) -> None:
            if isinstance(node, Znode):
                self._read(pattern, node)
            elif node.kind is StoreFailure.NO_NODE:
                self._apply(pattern, (), None)
            else:
                done(node)
                return
            done(None)

        self._store.get(node_path(pattern), read)

    def _apply(
        self, pattern: ResourcePattern, entries: Iterable[AclEntry], version: int | None
    ) -> None:
        if version is None:
            self._versions.pop(pattern, None)
        else:
            self._versions[pattern] = version
        if self._loading is not None:
            self._loading.replace(pattern, entries)
        self._authorizer.replace(pattern, entries)
        self._on_change()

    # -- writing

    def write(
        self, edits: Mapping[ResourcePattern, AclEdit], reply: Callable[[Outcomes], None]
    ) -> None:
        """Change ACLs; reply once the change is stored and in force on this broker."""
        self._writes.append(_Write(edits, reply))
        if len(self._writes) == 1:
            self._write_next()

    @property
    def loading(self) -> bool:
        """Return whether all ACLs are being read: those in force may be old."""
        return self._loading is not None

    def catch_up(self, then: Then) -> None:
        """Call `then` once this broker knows all changes that were answered before.

        With an error it may not: the store cannot be read. While all ACLs are being read, it does not
        know them either.
        """
        first, second = self._lists

        def go_on(failure: StoreError | None) -> None:
            if failure is None:
                second.catch_up(then)
            else:
                then(failure)

        first.catch_up(go_on)

    def _write_next(self) -> None:
        """Continue with the first write, unless all ACLs are being read: then after that."""
        if self._writes and self._loading is None:
            write = self._writes[0]
            if write.left:
                self._store.get(LITERAL_CHANGES, partial(self._versioned, write))
            else:
                self._finish(write)

    def _finish(self, write: "_Write") -> None:
        self._writes.popleft()
        write.reply(write.outcomes)
        self._write_next()

    def _versioned(self, write: "_Write", node: Znode | StoreError) -> None:
        if isinstance(node, StoreError):
            self._fail(write, node)
        else:
            self.catch_up(partial(self._caught_up, write, node.stat.version))

    def _caught_up(self, write: "_Write", version: int, failure: StoreError | None) -> None:
        if self._loading is not None:
            return
        if failure is None:
            self._store_some(write, version)
        else:
            self._fail(write, failure)

    def _store_some(self, write: "_Write", version: int) -> None:
        index, ops, size = self._authorizer.index, list[Op](), 0
        some: list[ResourcePattern] = []
        stored: dict[ResourcePattern, list[AclEntry]] = {}
        for pattern, edit in islice(write.left.items(), PATTERNS_AT_ONCE):
            before = index.entries(pattern)
            removed = edit.removed.intersection(before)
            after = [one for one in before if one not in removed]
            after += sorted(edit.added.difference(before))
            if after == before:
                write.outcomes[pattern] = AclOutcome(removed)
                some.append(pattern)
                continue
            data = encode_entries(after)
            size += len(data) + len(node_path(pattern)) + len(encode_change(pattern))
            if ops and size > MAX_WRITE_BYTES:
                break  # the next write has it
            write.outcomes[pattern] = AclOutcome(removed)
            some.append(pattern)
            if len(data) > MAX_NODE_BYTES and len(after) > len(before):
                write.outcomes[pattern] = AclOutcome(failure=_too_many(pattern))
                continue
            stored[pattern] = after
            ops += self._ops(pattern, data if after else None)
        if ops:
            ops.insert(0, Set(LITERAL_CHANGES, _fingerprint(ops), version))
            write_surely(self._store, ops, partial(self._stored, write, some, stored))
        else:
            self._stored(write, some, stored, [])

    def _ops(self, pattern: ResourcePattern, data: bytes | None) -> list[Op]:
        path, version = node_path(pattern), self._versions.get(pattern)
        change = Create(change_path(pattern), encode_change(pattern), sequential=True)
        if version is None:
            return [Create(path, data or b""), change]
        return [Delete(path, version) if data is None else Set(path, data, version), change]

    def _stored(
        self,
        write: "_Write",
        some: Iterable[ResourcePattern],
        stored: dict[ResourcePattern, list[AclEntry]],
        results: list[OpResult] | StoreError,
    ) -> None:
        if isinstance(results, StoreError):
            write.tries += 1
            if results.kind in OVERTAKEN and write.tries < MOST_TRIES:
                each_at_once(stored, self._changed, self._write_next)
            else:
                self._fail(write, results)
            return
        for (pattern, entries), made, change in zip(
            stored.items(), results[1::2], results[2::2], strict=True
        ):
            version = 0 if isinstance(made, str) else None
            self._apply(pattern, entries, made.version if isinstance(made, Stat) else version)
            for one in self._lists:
                one.ignore(str(change))
        for pattern in some:
            del write.left[pattern]
        write.tries = 0
        self._write_next()

    def _fail(self, write: "_Write", failure: StoreError) -> None:
        why = KafkaError(
            E.REQUEST_TIMED_OUT, f"the metadata store did not store it ({failure}): try again"
        )
        write.outcomes |= {pattern: AclOutcome(failure=why) for pattern in write.left}
        self._finish(write)


class _Write:
    """A change of some patterns, and what is left of it to do."""

    def __init__(
        self, edits: Mapping[ResourcePattern, AclEdit], reply: Callable[[Outcomes], None]
    ) -> None:
        self.left = dict(edits)
        self.reply = reply
        self.outcomes: Outcomes = {}
        self.tries = 0


def _fingerprint(ops: Iterable[Op]) -> bytes:
    """Return a unique mark of a write, by which its outcome is looked up after a lost connection."""
    return sha256(repr(ops).encode()).hexdigest().encode()


def _too_many(pattern: ResourcePattern) -> KafkaError:
    return KafkaError(
        E.INVALID_REQUEST,
        f"the ACLs of {pattern.resource_type.name.lower()} {pattern.name!r} would exceed "
        f"{MAX_NODE_BYTES} bytes: use a prefixed pattern, or fewer principals",
    )
