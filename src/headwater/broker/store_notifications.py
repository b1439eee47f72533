"""Follows a list of notifications in the metadata store: sequential nodes that name what changed."""

import logging
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Generic, Protocol, TypeAlias, TypeVar

from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    MetadataStore,
    StoreError,
    StoreFailure,
    WatchEvent,
    Znode,
)

log = logging.getLogger("headwater.server")

T = TypeVar("T")
Then: TypeAlias = Callable[[StoreError | None], None]
"""Called with the error of a read that failed, if one did."""

KEPT_NOTIFICATIONS = 1000
DELETED_AT_ONCE = 200
"""How many old notifications go with each list of them."""


class Done(Protocol):
    """Called at the end of a read, with the error if it failed."""

    def __call__(self, failure: StoreError | None = None) -> None:
        """The read is over."""


class StoreNotifications(Generic[T]):
    """Follows one list of notifications. The newest are kept for brokers that are behind."""

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        decode: Callable[[bytes], T],
        changed: Callable[[T, Done], None],
        missed: Callable[[], None],
    ) -> None:
        self._store = store
        self._path, _, self._name = prefix.rpartition("/")
        self._decode = decode
        self._changed = changed
        self._missed = missed
        self._applied: int | None = None
        """The newest notification that was followed; None to skip all that exist."""
        self._own: set[int] = set()
        """Notifications of this broker's own writes, which are in force already."""
        self._lists: deque[tuple[list[str] | StoreError, Then]] = deque()
        """Lists to follow, one after the other."""
        self._failure: StoreError | None = None
        """Why the list that is followed was not read, or what it names."""

    def follow_from_now(self) -> None:
        """Watch for new notifications; skip existing ones, whose subjects the caller reads anyway."""
        self._applied = None
        self._own.clear()
        self._notified(WatchEvent.CHILDREN, self._path)

    def ignore(self, path: str) -> None:
        """Ignore the notification at `path`, which this broker wrote itself."""
        parent, _, name = path.rpartition("/")
        if parent == self._path and name != self._name:
            self._own.add(self._number(name))

    def catch_up(self, then: Then) -> None:
        """Follow the existing notifications, then call `then`, with an error if some could not be read."""
        self._store.children(self._path, partial(self._listed, then))

    def _notified(self, change: WatchEvent, path: str) -> None:
        self._store.children(self._path, partial(self._listed, lambda _: None), self._notified)

    def _listed(self, then: Then, names: list[str] | StoreError) -> None:
        """An error ends in a new session, which reads everything again."""
        self._lists.append((names, then))
        if len(self._lists) == 1:
            self._follow_next()

    def _follow_next(self) -> None:
        names, _ = self._lists[0]
        self._failure = None
        if isinstance(names, StoreError):
            self._failure, names = names, []
        numbers = sorted(map(self._number, names))
        applied, newest = self._applied, numbers[-1] if numbers else -1
        self._applied = newest if applied is None else max(applied, newest)
        fresh = [number for number in numbers if applied is not None and number > applied]
        for number in numbers[:-KEPT_NOTIFICATIONS][:DELETED_AT_ONCE]:
            self._store.delete(self._at(number), ANY_VERSION, lambda _: None)
        if fresh and applied is not None and fresh[0] > applied + 1:
            self._missed()
            fresh = []
        things: dict[T, None] = {}
        foreign = [number for number in fresh if number not in self._own]
        self._own.difference_update(fresh)
        each_at_once(
            foreign,
            partial(self._read, things),
            lambda: each_at_once(things, self._read_changed, self._followed),
        )

    def _read_changed(self, thing: T, done: Done) -> None:
        def read(failure: StoreError | None = None) -> None:
            self._failure = self._failure or failure
            done()

        self._changed(thing, read)

    def _followed(self) -> None:
        _, then = self._lists.popleft()
        then(self._failure)
        if self._lists:
            self._follow_next()

    def _read(self, things: dict[T, None], number: int, done: Done) -> None:
        def read(node: Znode | StoreError) -> None:
            try:
                if isinstance(node, Znode):
                    things[self._decode(node.data)] = None
                elif node.kind is not StoreFailure.NO_NODE:
                    self._failure = node
            except ValueError as undecodable:
                log.error("skipped a node of the metadata store: %s", undecodable)
            done()

        self._store.get(self._at(number), read)

    def _at(self, number: int) -> str:
        return f"{self._path}/{self._name}{number:010d}"

    def _number(self, name: str) -> int:
        return int(name.removeprefix(self._name))


def each_at_once(
    things: Collection[T], act: Callable[[T, Done], None], then: Callable[[], None]
) -> None:
    """Call `act` for all of them at once; call `then` after the last one is done."""
    left = len(things)

    def done(failure: StoreError | None = None) -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    if not left:
        then()
    for thing in list(things):
        act(thing, done)
