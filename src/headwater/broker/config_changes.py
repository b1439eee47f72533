"""Follows the overrides of topics and brokers in the store, and reports each change.

Reads all of them at the start, then follows the notifications below /config/changes. The newest
hundred notifications are kept for brokers that are behind; a broker that missed more reads all again.
"""

import logging
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
    config_path,
    decode_config,
    decode_config_change,
    unquote_entity,
)

log = logging.getLogger(__name__)

KEPT_NOTIFICATIONS = 100
READ_AT_ONCE = 100
_NAME_PREFIX = CONFIG_CHANGE_PREFIX.rpartition("/")[2]


class ConfigChanges:
    """The overrides known to this broker. `on_broker_config` gets "" for the cluster-wide default."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        on_topic_config: Callable[[str, Mapping[str, str]], None],
        on_broker_config: Callable[[str, Mapping[str, str]], None],
    ) -> None:
        self._store = store
        self._own = str(broker_id)
        self._on_topic_config = on_topic_config
        self._on_broker_config = on_broker_config
        self._topics: dict[str, dict[str, str]] = {}
        self._brokers: dict[str, dict[str, str]] = {}
        self._applied = -1
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

    def _session_changed(self, session: SessionState) -> None:
        if session is SessionState.OPEN:
            self._read_again()

    def _notified(self, change: WatchEvent, path: str) -> None:
        self._store.children(CONFIG_CHANGES, partial(self._listed, False), self._notified)

    def _listed(self, everything: bool, names: list[str] | StoreError) -> None:
        if isinstance(names, StoreError):
            log.warning("cannot read config changes from the metadata store: %s", names)
            return
        numbers = sorted(int(name.removeprefix(_NAME_PREFIX)) for name in names)
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
            for number in fresh:
                reads.get(_notification_path(number), partial(self._read_entity, reads))
        reads.children(CONFIG_CHANGES, lambda _: None)  # ends the reads even if nothing is new

    def _read_all(self, reads: BatchedReads) -> None:
        for kind in ("topics", "brokers"):
            reads.children(f"/config/{kind}", partial(self._read_kind, reads, kind))

    def _read_kind(self, reads: BatchedReads, kind: str, segments: list[str]) -> None:
        for segment in segments:
            self._read_one(reads, kind, unquote_entity(segment))

    def _read_entity(self, reads: BatchedReads, node: Znode) -> None:
        kind, name = decode_config_change(node.data)
        self._read_one(reads, kind, name)

    def _read_one(self, reads: BatchedReads, kind: str, name: str) -> None:
        if kind == "topics" or (kind == "brokers" and name in (self._own, DEFAULT_ENTITY)):
            reads.get(config_path(kind, name), partial(self._read, kind, name))

    def _read(self, kind: str, name: str, node: Znode) -> None:
        overrides = decode_config(config_path(kind, name), node.data)
        if kind == "topics":
            self._topics[name] = overrides
            self._on_topic_config(name, overrides)
        else:
            scope = "" if name == DEFAULT_ENTITY else name
            self._brokers[scope] = overrides
            self._on_broker_config(scope, overrides)

    def _caught_up(self, newest: int, numbers: list[int]) -> None:
        self._applied = max(self._applied, newest)
        for number in numbers[:-KEPT_NOTIFICATIONS]:
            self._store.delete(_notification_path(number), ANY_VERSION, lambda _: None)
        due = [then for number, then in self._waiting if number <= self._applied]
        self._waiting = [one for one in self._waiting if one[0] > self._applied]
        for then in due:
            then()
        ready, self._ready = self._ready, None
        if ready is not None:
            ready()


def _notification_path(number: int) -> str:
    return f"{CONFIG_CHANGE_PREFIX}{number:010d}"
