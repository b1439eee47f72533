"""Follows the overrides of topics, brokers, users, clients and addresses in the store, and reports each change.

Reads all of them at the start, then follows the notifications below /config/changes. The newest
hundred notifications are kept for brokers that are behind; a broker that missed more reads all again.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice

from headwater.controller.metadata_loader import BatchedReads
from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    MetadataStore,
    SessionState,
    StoreError,
    StoreFailure,
    WatchEvent,
    Znode,
)
from headwater.controller.store.znodes import (
    CONFIG_CHANGE_PREFIX,
    CONFIG_CHANGES,
    DEFAULT_ENTITY,
    clients_of_user,
    config_path,
    decode_config,
    decode_config_change,
    unquote_entity,
    user_of_clients,
)

log = logging.getLogger(__name__)

KEPT_NOTIFICATIONS = 100
READ_AT_ONCE = 100
_OF_CLIENTS = ("users", "clients", "ips")
_NAME_PREFIX = CONFIG_CHANGE_PREFIX.rpartition("/")[2]


class ConfigChanges:
    """The overrides known to this broker. `on_broker_config` gets "" for the cluster-wide default."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        on_topic_config: Callable[[str, Mapping[str, str]], None],
        on_broker_config: Callable[[str, Mapping[str, str]], None],
        on_client_config: Callable[[str, str, Mapping[str, str]], None],
    ) -> None:
        self._store = store
        self._own = str(broker_id)
        self._on_topic_config = on_topic_config
        self._on_broker_config = on_broker_config
        self._on_client_config = on_client_config
        """Called with the type and the name of a user, a client or an address."""
        self._topics: dict[str, dict[str, str]] = {}
        self._brokers: dict[str, dict[str, str]] = {}
        self._applied = -1
        self._old: deque[int] = deque()
        """Notifications to delete."""
        self._newest_old = -1
        # What waits for the first complete read; a session that expires meanwhile delays it.
        self._ready: Callable[[], None] | None = None
        self._waiting: list[tuple[int, Callable[[], object]]] = []
        store.on_session(self._session_changed)

    def start(self, ready: Callable[[], None]) -> None:
        """Read and report everything, then call `ready`."""
        self._ready = ready
        self._read_again()

    def _read_again(self) -> None:
        self._store.children(CONFIG_CHANGES, partial(self._listed, True), self._notified)

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        return self._topics.get(name, {})

    def broker_overrides(self, scope: str) -> Mapping[str, str]:
        """Return the overrides of a broker by its id, or of all brokers for ""."""
        return self._brokers.get(scope, {})

    def learn(self, topics: Iterable[str], then: Callable[[], None]) -> None:
        """Call `then` once the overrides of `topics` are known, at once if they are."""
        unknown = iter([name for name in dict.fromkeys(topics) if name not in self._topics])

        def read_more() -> None:
            some = list(islice(unknown, READ_AT_ONCE))
            if not some:
                then()
                return
            reads = BatchedReads(self._store, lambda _: read_more())
            for name in some:
                reads.get(config_path("topics", name), partial(self._read, "topics", name))

        read_more()

    def forget(self, topic: str) -> None:
        """Drop the overrides of a deleted topic: a new topic of that name has its own."""
        self._topics.pop(topic, None)

    def when_applied(self, notification: int, then: Callable[[], object]) -> None:
        """Call `then` once the broker has applied this notification."""
        if notification <= self._applied:
            then()
        else:
            self._waiting.append((notification, then))

    def catch_up(self, then: Callable[[], None]) -> None:
        """Call `then` once this broker has applied every change that was stored before this call."""

        def listed(names: list[str] | StoreError) -> None:
            numbers = [] if isinstance(names, StoreError) else _numbers(names)
            self.when_applied(max(numbers, default=-1), then)

        def synchronized(_: object) -> None:
            self._store.children(CONFIG_CHANGES, listed)

        # A write, even one that is refused, passes the leader of an ensemble: a read after it is fresh.
        self._store.delete(f"{CONFIG_CHANGES}/none", ANY_VERSION, synchronized)

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.OPEN:
            self._read_again()

    def _notified(self, change: WatchEvent, path: str) -> None:
        self._store.children(CONFIG_CHANGES, partial(self._listed, False), self._notified)

    def _listed(self, everything: bool, names: list[str] | StoreError) -> None:
        if isinstance(names, StoreError):
            log.warning("cannot read config changes from the metadata store: %s", names)
            return
        numbers = _numbers(names)
        fresh = [number for number in numbers if number > self._applied]
        newest = numbers[-1] if numbers else self._applied
        missed = bool(fresh) and fresh[0] > self._applied + 1

        def ended(failure: StoreError | None) -> None:
            if failure is None or failure.kind is not StoreFailure.SESSION_EXPIRED:
                self._caught_up(newest, numbers)  # else the next session reads everything again

        reads = BatchedReads(self._store, ended)
        if everything or missed:
            self._read_all(reads)
        else:
            read = partial(self._read_entity, reads)
            reads.get_all((_notification_path(number), read) for number in fresh)
        reads.children(CONFIG_CHANGES, lambda _: None)  # ends the reads even if nothing is new

    def _read_all(self, reads: BatchedReads) -> None:
        for kind in ("topics", "brokers", *_OF_CLIENTS):
            reads.children(f"/config/{kind}", partial(self._read_kind, reads, kind))

    def _read_kind(self, reads: BatchedReads, kind: str, segments: list[str]) -> None:
        names = map(unquote_entity, segments)
        read = partial(self._read_user, reads) if kind == "users" else partial(self._read, kind)
        reads.get_all(
            (config_path(kind, name), partial(read, name))
            for name in names
            if self._concerns(kind, name)
        )

    def _read_user(self, reads: BatchedReads, name: str, node: Znode) -> None:
        self._read("users", name, node)
        if node.stat.num_children:
            clients = clients_of_user(name)
            reads.children(f"/config/{clients}", partial(self._read_kind, reads, clients))

    def _read_entity(self, reads: BatchedReads, node: Znode) -> None:
        kind, name = decode_config_change(node.data)
        if self._concerns(kind, name):
            reads.get(config_path(kind, name), partial(self._read, kind, name))

    def _concerns(self, kind: str, name: str) -> bool:
        """Return whether this broker uses the overrides of an entity."""
        if kind == "brokers":
            return name in (self._own, DEFAULT_ENTITY)
        return kind in ("topics", *_OF_CLIENTS) or user_of_clients(kind) is not None

    def _read(self, kind: str, name: str, node: Znode) -> None:
        overrides = decode_config(config_path(kind, name), node.data)
        if kind == "topics":
            self._topics[name] = overrides
            self._on_topic_config(name, overrides)
        elif kind != "brokers":
            self._on_client_config(kind, name, overrides)
        else:
            scope = "" if name == DEFAULT_ENTITY else name
            self._brokers[scope] = overrides
            self._on_broker_config(scope, overrides)

    def _caught_up(self, newest: int, numbers: list[int]) -> None:
        self._applied = max(self._applied, newest)
        old = numbers[:-KEPT_NOTIFICATIONS]
        idle = not self._old
        self._old.extend(number for number in old if number > self._newest_old)
        self._newest_old = max(self._newest_old, max(old, default=-1))
        if idle:
            self._delete_old()
        due = [then for number, then in self._waiting if number <= self._applied]
        self._waiting = [one for one in self._waiting if one[0] > self._applied]
        for then in due:
            then()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()

    def _delete_old(self, result: object = None) -> None:
        """Delete the oldest notifications, one after the other: there may be thousands."""
        if isinstance(result, StoreError) and result.kind is not StoreFailure.NO_NODE:
            self._old.clear()  # the next session finds them again
            self._newest_old = -1
        if self._old:
            path = _notification_path(self._old.popleft())
            self._store.delete(path, ANY_VERSION, self._delete_old)


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(int(name.removeprefix(_NAME_PREFIX)) for name in names)


def _notification_path(number: int) -> str:
    return f"{CONFIG_CHANGE_PREFIX}{number:010d}"
