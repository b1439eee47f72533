"""Fetch sessions (KIP-227): a client names its partitions once and then only changes.

Pure: `begin` returns the partitions of a request, and the session selects the partitions of an
incremental response. A session id of 0 in a response means "no session", which is always allowed, so a
full cache only costs bytes. Sessions contain only existing partitions: a request that names others gets
no session and must send all its partitions each time.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headwater.errors import E, KafkaError

FULL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
PARTITIONS_PER_SLOT = 100
"""The most partitions of all sessions, per slot of the cache."""
_LAST_EPOCH = 2**31 - 1

Key: TypeAlias = tuple[str | bytes, int]
"""(topic id, partition) in sessions by topic id, (topic name, partition) in older ones."""


@dataclass(slots=True)
class FetchPartition:
    """A client's fetch of one partition, and the state that the last response reported."""

    key: Key
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    sent_high_watermark: int = -1
    sent_log_start: int = -1

    def update(self, newer: "FetchPartition") -> None:
        """Apply the client's changes to this partition.

        A follower that truncated its log or changed its epoch needs the high watermark again.
        """
        if (
            newer.fetch_offset < self.fetch_offset
            or newer.current_leader_epoch != self.current_leader_epoch
        ):
            self.sent_high_watermark = -1
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset


class WaitingFetch(Protocol):
    """A fetch of a session that waits for records."""

    def expired(self) -> None:
        """Answer now."""


class SessionWatch(Protocol):
    """Tracks which partitions of a session have changed."""

    def listed(self, want: FetchPartition) -> None:
        """A request lists the partition."""

    def forgotten(self, key: Key) -> None:
        """The partition leaves the session."""

    def pending(self) -> list[FetchPartition]:
        """Return the partitions that a fetch must check."""

    def closed(self) -> None:
        """The session ends."""


class CachedSession:
    """The fetch session of one client."""

    __slots__ = (
        "by_id", "epoch", "last_used_ms", "partitions", "privileged", "session_id", "waiting", "watch",
    )  # fmt: skip

    def __init__(self, session_id: int, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: dict[Key, FetchPartition] = {}
        # The fetch that waits now: the next one of the session ends its wait.
        self.waiting: WaitingFetch | None = None
        # Without one, every fetch looks at all partitions.
        self.watch: SessionWatch | None = None

    def update(self, wanted: Sequence[FetchPartition], forgotten: Sequence[Key]) -> None:
        """Add, change and remove partitions; keep their order."""
        for want in wanted:
            known = self.partitions.get(want.key)
            if known is None:
                self.partitions[want.key] = want
            else:
                known.update(want)
        for key in forgotten:
            self.partitions.pop(key, None)
        watch = self.watch
        if watch is not None:
            for want in wanted:
                if want.key in self.partitions:
                    watch.listed(self.partitions[want.key])
            for key in forgotten:
                watch.forgotten(key)

    def close(self) -> None:
        """End the session: nothing is watched for it any more."""
        if self.watch is not None:
            self.watch.closed()

    def pending(self) -> list[FetchPartition]:
        """Return the partitions that a fetch has to look at."""
        if self.watch is not None:
            return self.watch.pending()
        return list(self.partitions.values())

    def rotate(self, key: Key) -> None:
        """Move a partition that got bytes to the end, so that the others are served first."""
        self.partitions[key] = self.partitions.pop(key)


@dataclass(slots=True)
class FetchContext:
    """One fetch: its partitions, and the selection for its response."""

    session: CachedSession | None
    incremental: bool
    partitions: list[FetchPartition]

    @property
    def session_id(self) -> int:
        """Return the session id of the response."""
        return 0 if self.session is None else self.session.session_id

    def mentions(
        self, want: FetchPartition, high_watermark: int, log_start: int, news: bool
    ) -> bool:
        """Return whether the response must include this partition; record what it reports."""
        changed = want.sent_high_watermark != high_watermark or want.sent_log_start != log_start
        if self.session is not None:
            want.sent_high_watermark, want.sent_log_start = high_watermark, log_start
        return news or changed or not self.incremental

    def served(self, wants: Iterable[FetchPartition]) -> None:
        """Rotate the partitions that got bytes."""
        if self.session is not None:
            for want in wants:
                if want.key in self.session.partitions:
                    self.session.rotate(want.key)


class FetchSessionCache:
    """A bounded cache of sessions."""

    def __init__(self, slots: int, fresh_id: "Iterator[int]") -> None:
        self.slots = slots
        self.evictions = 0
        self._fresh_id = fresh_id
        self._sessions: dict[int, CachedSession] = {}
        # The session of each follower's connection: a new one replaces the one before.
        self._owned: dict[str, int] = {}
        self.partitions = 0
        """The number of partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        now_ms: int,
        session_id: int,
        epoch: int,
        by_id: bool,
        wanted: list[FetchPartition],
        forgotten: list[Key],
        privileged: bool = False,
        owner: str | None = None,
        exists: Callable[[Key], bool] = lambda key: True,
    ) -> FetchContext:
        """Return the context of a request; KafkaError for an unknown session or a wrong epoch."""
        if epoch in (FULL_EPOCH, FINAL_EPOCH):
            self._drop(session_id)
            session = None
            if epoch == FULL_EPOCH and all(exists(want.key) for want in wanted):
                if owner is not None:
                    self._drop(self._owned.pop(owner, 0))
                session = self._create(now_ms, by_id, wanted, privileged)
                if owner is not None and session is not None:
                    self._owned[owner] = session.session_id
            return FetchContext(session, incremental=False, partitions=wanted)
        return self._continue(now_ms, session_id, epoch, by_id, wanted, forgotten, exists)

    @property
    def _most_partitions(self) -> int:
        return self.slots * PARTITIONS_PER_SLOT

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)
            session.close()

    def _continue(
        self,
        now_ms: int,
        session_id: int,
        epoch: int,
        by_id: bool,
        wanted: list[FetchPartition],
        forgotten: list[Key],
        exists: Callable[[Key], bool],
    ) -> FetchContext:
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(E.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(E.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(E.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.waiting is not None:
            session.waiting.expired()
        new = [want.key for want in wanted if want.key not in session.partitions]
        if new and (
            self.partitions + len(new) > self._most_partitions or not all(map(exists, new))
        ):
            self._drop(session_id)  # the client sends a full request next, and gets no session
            raise KafkaError(E.FETCH_SESSION_ID_NOT_FOUND)
        self.partitions -= len(session.partitions)
        session.update(wanted, forgotten)
        self.partitions += len(session.partitions)
        session.last_used_ms = now_ms
        if not session.partitions:
            del self._sessions[session_id]
            session.close()
            return FetchContext(None, incremental=True, partitions=[])
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext(session, incremental=True, partitions=session.pending())

    def _create(
        self, now_ms: int, by_id: bool, wanted: list[FetchPartition], privileged: bool
    ) -> CachedSession | None:
        if len(self._sessions) >= self.slots and not self._evict(now_ms, len(wanted), privileged):
            return None
        if not self._make_room(now_ms, len(wanted)):
            return None
        session_id = next(number for number in self._fresh_id if number not in self._sessions)
        session = CachedSession(session_id, by_id, privileged, now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        self.partitions += len(session.partitions)
        return session

    def _make_room(self, now_ms: int, size: int) -> bool:
        """Drop idle sessions until `size` more partitions fit."""
        while self.partitions + size > self._most_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= EVICTION_MS:
                return False
            self._drop(oldest.session_id)
            self.evictions += 1
        return True

    def _evict(self, now_ms: int, size: int, privileged: bool) -> bool:
        """Drop the least recently used session if it is idle or smaller than the new one."""
        for session_id, old in self._sessions.items():
            idle = now_ms - old.last_used_ms > EVICTION_MS
            outranked = privileged and not old.privileged
            larger = privileged >= old.privileged and size > len(old.partitions)
            if idle or outranked or larger:
                self._drop(session_id)
                self.evictions += 1
                return True
            if not old.privileged:
                break
        return False
