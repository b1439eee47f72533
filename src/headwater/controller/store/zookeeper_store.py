"""The metadata store of a cluster: ZooKeeper, or `headwater store`, through kazoo.

kazoo runs in its own thread. Replies, watch events and state changes reach the loop in the order in
which they arrived; kazoo's own queues, which would mix them, are bypassed. Calls are answered in the
order in which they were made: a read that is repeated after a lost connection holds back the answers
to later calls.

kazoo does not report that a session has expired while it cannot reach a server. So this file keeps a
lease: the session is known to be alive until one session timeout after the last answered request was
sent. When the lease ends, the session counts as lost and a new one starts, even if a server knows it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from ssl import SSLContext
from typing import Any, NamedTuple, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from headwater.controller.store.kazoo_adapter import (
    CHANGES,
    OrderedHandler,
    acl_from,
    acl_of,
    add_operation,
    error_from,
    multi_results,
    note_negotiated,
    nothing,
    stat_from,
    stop_quietly,
)
from headwater.controller.store.metadata_store import (
    DELIVERIES_PER_TICK,
    AclAndStat,
    Op,
    OpResult,
    Reply,
    SessionState,
    Stat,
    StoreError,
    StoreFailure,
    Watch,
    WatchEvent,
    Znode,
)
from headwater.seams.clock import Clock

log = logging.getLogger(__name__)
# kazoo warns with every attempt to connect; this file logs what an operator needs to know.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)

REMIND_S = 60.0
"""How often a store that does not answer is logged."""

CallSoon = Callable[..., object]
CallLater = Callable[[float, Callable[[], None]], object]


class ZooKeeperSettings(NamedTuple):
    """The address of the ensemble, and the credentials."""

    hosts: str
    """host:port[,host:port...], without a chroot"""
    chroot: str
    session_timeout_ms: int
    digest: str | None = None
    """user:password"""
    set_acl: bool = False
    """Whether new nodes belong to the digest, or to the certificate, of this client."""
    tls: SSLContext | None = None
    """None for plain TCP"""


Negotiated: TypeAlias = Callable[[int, int], object]
"""Called with the time at which a session was requested, and the granted timeout."""
OpenClient: TypeAlias = Callable[[ZooKeeperSettings, Clock, Negotiated], Any]
"""Creates a client without starting it; the simulator has its own."""


def open_kazoo(settings: ZooKeeperSettings, clock: Clock, negotiated: Negotiated) -> KazooClient:
    kazoo = KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_ms / 1000,
        handler=OrderedHandler(settings.tls),
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=2.0),
        auth_data=[("digest", settings.digest)] if settings.digest else None,
        logger=_kazoo_log,
    )
    note_negotiated(kazoo, clock, negotiated)
    return kazoo


class _Seen(NamedTuple):
    """What the read behind a watch saw: it shows after a reconnect whether the watch missed a change."""

    czxid: int
    changed: int
    """mzxid for a watch of a node, pzxid for one of its children"""


@dataclass(eq=False, slots=True)
class _Armed:
    """A watch that has not fired."""

    path: str
    of_children: bool
    watch: Watch
    seen: _Seen | None = None


@dataclass(eq=False, slots=True)
class _Call:
    """A call that has not been answered."""

    send: Callable[[KazooClient], Any]
    """Asks kazoo and returns its AsyncResult."""
    decode: Callable[[Any], Any]
    reply: Reply[Any]
    path: str
    writes: bool
    watch: _Armed | None = None
    sent: bool = False
    sent_ms: int = 0
    answer: list[Any] = field(default_factory=list)
    """Holds the result once there is one."""


class ZooKeeperStore:
    """A MetadataStore in an ensemble. `call_soon` must be safe to call from any thread."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        clock: Clock,
        call_soon: CallSoon,
        call_later: CallLater,
        open_client: OpenClient = open_kazoo,
    ) -> None:
        self._settings = settings
        self._open_client = open_client
        self._clock = clock
        self._call_soon = call_soon
        self._call_later = call_later
        self._listeners: list[Callable[[SessionState], None]] = []
        self._calls: deque[_Call] = deque()
        self._delivering = False
        self._armed: dict[_Armed, None] = {}  # in their order, which a reconnect repeats
        self._connected = False
        self._open = False
        self._closed = False
        self._session_id = 0
        self._timeout_ms = settings.session_timeout_ms
        self._lease_ends_ms = 0
        self._next_proof_ms = 0
        self._lives = 0
        self._seen_zxid = 0  # kazoo's own is 0 once its session has expired
        self._stopping: threading.Thread | None = None
        self._begin()

    # -- MetadataStore

    @property
    def session_id(self) -> int:
        """The owner of the ephemeral nodes created from here."""
        return self._session_id

    def create(
        self,
        path: str,
        data: bytes,
        reply: Reply[str],
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> None:
        """Create a node and answer with its path."""
        acl = acl_of(path, secure=self._settings.set_acl)
        self._submit(
            lambda kazoo: kazoo.create_async(path, data, acl, ephemeral, sequential),
            str, reply, path, writes=True,
        )  # fmt: skip

    def set(self, path: str, data: bytes, version: int, reply: Reply[Stat]) -> None:
        """Replace the data if the node still has `version`."""
        self._submit(
            lambda kazoo: kazoo.set_async(path, data, version), stat_from, reply, path, writes=True
        )

    def delete(self, path: str, version: int, reply: Reply[None]) -> None:
        """Delete a childless node if it still has `version`."""
        self._submit(
            lambda kazoo: kazoo.delete_async(path, version), nothing, reply, path, writes=True
        )

    def multi(self, ops: Sequence[Op], reply: Reply[list[OpResult]]) -> None:
        """All of it or nothing, in order."""

        def send(kazoo: KazooClient) -> Any:
            transaction = kazoo.transaction()
            for op in ops:
                add_operation(transaction, op, secure=self._settings.set_acl)
            return transaction.commit_async()

        self._submit(send, partial(multi_results, ops), reply, "", writes=True)

    def get(self, path: str, reply: Reply[Znode], watch: Watch | None = None) -> None:
        """Data and stat."""
        armed = _Armed(path, False, watch) if watch is not None else None

        def decode(answer: Any) -> Znode:
            stat = stat_from(answer[1])
            self._arm(armed, _Seen(stat.czxid, stat.mzxid))
            return Znode(answer[0], stat)

        self._submit(
            lambda kazoo: kazoo.get_async(path, self._watcher(armed)),
            decode, reply, path, watch=armed,
        )  # fmt: skip

    def exists(self, path: str, reply: Reply[Stat | None], watch: Watch | None = None) -> None:
        """The stat, or None for an absent node."""
        armed = _Armed(path, False, watch) if watch is not None else None

        def decode(answer: Any) -> Stat | None:
            stat = stat_from(answer) if answer is not None else None
            self._arm(armed, _Seen(stat.czxid, stat.mzxid) if stat is not None else None)
            return stat

        self._submit(
            lambda kazoo: kazoo.exists_async(path, self._watcher(armed)),
            decode, reply, path, watch=armed,
        )  # fmt: skip

    def children(self, path: str, reply: Reply[list[str]], watch: Watch | None = None) -> None:
        """The names of the children, sorted."""
        armed = _Armed(path, True, watch) if watch is not None else None

        def decode(answer: Any) -> list[str]:
            names, stat = answer
            self._arm(armed, _Seen(stat.czxid, stat.pzxid))
            return sorted(names)

        self._submit(
            lambda kazoo: kazoo.get_children_async(path, self._watcher(armed), include_data=True),
            decode, reply, path, watch=armed,
        )  # fmt: skip

    def acl(self, path: str, reply: Reply[AclAndStat]) -> None:
        """The ACL of a node, for clients that may read or administer the node."""
        self._submit(lambda kazoo: kazoo.get_acls_async(path), acl_from, reply, path)

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` when the session is lost and when a new one begins."""
        self._listeners.append(listener)

    def close(self) -> None:
        """End the session: its ephemeral nodes vanish, later calls are refused."""
        self._closed = True
        self._fail_calls(StoreFailure.SESSION_EXPIRED)
        self._stopping = self._kazoo.handler.spawn(stop_quietly, self._kazoo)

    def wait_closed(self, timeout_s: float) -> None:
        """Block until the servers have ended the session, for at most `timeout_s`."""
        if self._stopping is not None:
            self._stopping.join(timeout_s)

    # -- calls

    def _submit(
        self,
        send: Callable[[KazooClient], Any],
        decode: Callable[[Any], Any],
        reply: Reply[Any],
        path: str,
        *,
        writes: bool = False,
        watch: _Armed | None = None,
    ) -> None:
        call = _Call(send, decode, reply, path, writes, watch)
        self._calls.append(call)
        if self._closed or (self._lives and not self._open):
            self._answer(call, StoreError(StoreFailure.SESSION_EXPIRED, path))
        elif self._connected:
            self._send(call)

    def _send(self, call: _Call) -> None:
        call.sent, call.sent_ms = True, self._clock.monotonic_ms()
        life = self._lives
        call.send(self._kazoo).rawlink(
            lambda result: self._call_soon(self._completed, life, call, result)
        )

    def _completed(self, life: int, call: _Call, result: Any) -> None:
        if life != self._lives or call.answer:
            return
        failure = result.exception
        if isinstance(failure, ConnectionLoss | ConnectionClosedError):
            if call.writes:
                self._answer(call, StoreError(StoreFailure.CONNECTION_LOSS, call.path))
            call.sent = False  # a read is sent again when the connection is back
            return
        self._extend_lease(call.sent_ms)
        self._seen_zxid = max(self._seen_zxid, self._kazoo.last_zxid)
        if failure is not None:
            self._answer(call, error_from(failure, call.path))
            return
        try:
            self._answer(call, call.decode(result.value))
        except StoreError as refusal:
            self._answer(call, refusal)

    def _answer(self, call: _Call, result: Any) -> None:
        call.answer.append(result)
        if self._calls and self._calls[0] is call:
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        for _ in range(DELIVERIES_PER_TICK):
            if not (self._calls and self._calls[0].answer):
                return
            call = self._calls.popleft()
            try:
                call.reply(call.answer[0])
            except Exception:
                log.exception("a callback of the metadata store failed")
        self._deliver_soon()

    def _fail_calls(self, kind: StoreFailure) -> None:
        for call in self._calls:
            if not call.answer:
                call.answer.append(StoreError(kind, call.path))
        self._deliver_soon()

    # -- watches

    def _watcher(self, armed: _Armed | None) -> Callable[[WatchedEvent], object] | None:
        if armed is None:
            return None
        life = self._lives
        return lambda event: self._call_soon(self._event, life, armed, event)

    def _arm(self, armed: _Armed | None, seen: _Seen | None) -> None:
        if armed is not None:
            armed.seen = seen
            self._armed[armed] = None

    def _event(self, life: int, armed: _Armed, event: WatchedEvent) -> None:
        # kazoo fires every watch with NONE when the connection is lost; those are set again.
        if life == self._lives and event.type in CHANGES:
            self._fire(armed, CHANGES[event.type])

    def _fire(self, armed: _Armed, change: WatchEvent) -> None:
        if armed in self._armed:
            del self._armed[armed]
            armed.watch(change, armed.path)

    def _arm_again(self, armed: _Armed) -> None:
        """After a reconnect, set the watches again, and fire those that missed a change."""

        def decode(answer: Any) -> None:
            stat = answer[1] if armed.of_children else answer
            changed = self._missed(armed, stat)
            if changed is not None:
                self._fire(armed, changed)

        def replied(result: Any) -> None:
            if isinstance(result, StoreError) and result.kind is StoreFailure.NO_NODE:
                self._fire(armed, WatchEvent.DELETED)

        def send(kazoo: KazooClient) -> Any:
            watcher = self._watcher(armed)
            if armed.of_children:
                return kazoo.get_children_async(armed.path, watcher, include_data=True)
            return kazoo.exists_async(armed.path, watcher)

        self._submit(send, decode, replied, armed.path)

    def _missed(self, armed: _Armed, stat: ZnodeStat | None) -> WatchEvent | None:
        seen = armed.seen
        if stat is None:
            return WatchEvent.DELETED if seen is not None else None
        if seen is None:
            return WatchEvent.CREATED
        if stat.czxid != seen.czxid:
            return WatchEvent.DELETED
        changed = stat.pzxid if armed.of_children else stat.mzxid
        if changed == seen.changed:
            return None
        return WatchEvent.CHILDREN if armed.of_children else WatchEvent.DATA

    # -- the session

    def _begin(self) -> None:
        """Start a client with a session of its own."""
        life = self._lives
        negotiated = partial(self._call_soon, self._negotiated, life)
        kazoo = self._kazoo = self._open_client(self._settings, self._clock, negotiated)
        kazoo.last_zxid = self._seen_zxid  # a server whose data is older refuses this client
        kazoo.add_listener(lambda state: self._call_soon(self._state, life, state))
        kazoo.start_async()

    def _negotiated(self, life: int, sent_ms: int, timeout_ms: int) -> None:
        """A server accepted the session with this timeout; it was requested at `sent_ms`."""
        if life == self._lives:
            self._timeout_ms = timeout_ms
            self._lease_ends_ms = sent_ms + timeout_ms

    def _state(self, life: int, state: str) -> None:
        if life != self._lives or self._closed:
            return
        if state == KazooState.CONNECTED:
            self._came_back()
        elif state == KazooState.SUSPENDED:
            self._connected = False
        elif state == KazooState.LOST and self._open:
            self._lose("it has expired")

    def _came_back(self) -> None:
        self._connected = True
        if not self._open:
            self._open = True
            self._session_id = self._kazoo.client_id[0]
            self._lease_ends_ms = self._clock.monotonic_ms() + self._timeout_ms
            self._enter_chroot()
            log.info("session %#x with the metadata store began", self._session_id)
            for listener in self._listeners:
                listener(SessionState.OPEN)
            self._next_proof_ms = self._clock.monotonic_ms()
            self._watch_lease(self._lives)
        for call in self._calls:
            if not (call.answer or call.sent):
                self._send(call)
        for armed in list(self._armed):
            self._arm_again(armed)

    def _enter_chroot(self) -> None:
        """Create the chroot if it is missing; later requests are processed after that."""
        chroot = self._settings.chroot
        names = [name for name in chroot.split("/") if name]
        acl = acl_of("/", secure=self._settings.set_acl)
        for depth in range(len(names)):
            self._kazoo.create_async("/" + "/".join(names[: depth + 1]), b"", acl)
        self._kazoo.chroot = chroot

    def _extend_lease(self, sent_ms: int) -> None:
        self._lease_ends_ms = max(self._lease_ends_ms, sent_ms + self._timeout_ms)

    def _watch_lease(self, life: int) -> None:
        """A few times per timeout, check that the session is alive; end it when the lease is over."""
        if life != self._lives or self._closed:
            return
        now_ms, step_ms = self._clock.monotonic_ms(), self._timeout_ms // 4
        if now_ms > self._next_proof_ms + step_ms:
            # The loop did not run, so it could not check: kazoo may have kept the session alive.
            self._lease_ends_ms = max(self._lease_ends_ms, now_ms + step_ms)
        if now_ms >= self._lease_ends_ms:
            self._lose(f"no server answered within its timeout of {self._timeout_ms} ms")
            return
        if self._connected:
            self._submit(lambda kazoo: kazoo.exists_async("/"), nothing, nothing, "/")
        self._next_proof_ms = now_ms + step_ms
        self._call_later(step_ms / 1000, partial(self._watch_lease, life))

    def _lose(self, reason: str) -> None:
        log.warning("lost session %#x with the metadata store: %s", self._session_id, reason)
        lost = self._kazoo
        self._lives += 1
        self._open = self._connected = False
        self._armed.clear()
        self._fail_calls(StoreFailure.SESSION_EXPIRED)
        for listener in self._listeners:
            listener(SessionState.EXPIRED)
        lost.handler.spawn(stop_quietly, lost)
        self._begin()
        lost_ms = self._clock.monotonic_ms()
        self._call_later(REMIND_S, partial(self._remind, self._lives, lost_ms))

    def _remind(self, life: int, lost_ms: int) -> None:
        if life == self._lives and not self._open and not self._closed:
            log.warning(
                "the metadata store has not answered for %d s: leaders keep serving, no other one "
                "can be elected; check its servers, and that none was restored from an older copy",
                (self._clock.monotonic_ms() - lost_ms) // 1000,
            )
            self._call_later(REMIND_S, partial(self._remind, life, lost_ms))
