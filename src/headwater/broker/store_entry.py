"""How a starting broker enters the metadata store: what it refuses, and how long it waits.

A session that expires meanwhile does not end the start: it goes on, or begins again, in a new session.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

from headwater.broker.callbacks import Latch, wait_for_callback, wait_for_reply
from headwater.broker.local_store import LocalStore
from headwater.broker.registration import (
    JoinError,
    PreviousRegistration,
    prepare_store,
    read_cluster_id,
    read_time,
    share_secret,
)
from headwater.broker.store_mark import older_store_text, read_mark, read_noted_mark
from headwater.broker.store_owner import refuse_foreign_nodes
from headwater.broker.wall_clock import clock_problem
from headwater.config.broker import BrokerSettings
from headwater.controller.store.metadata_store import (
    MetadataStore,
    SessionState,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.znodes import CLUSTER_ID
from headwater.log.log_dir import LogDir
from headwater.model import uuid_text
from headwater.seams import Seams
from headwater.security.broker_handshake import SECRET_BYTES

log = logging.getLogger("headwater.server")

T = TypeVar("T")

ID_TIMEOUT_SESSIONS = 2
"""A registration with this broker's id that outlasts this many session timeouts is another broker's."""
MARK_CHECKS, MARK_CHECK_S = 5, 1.0
"""How often a start looks for its last mark in the store: a server of an ensemble may lag."""
LONG_WAIT_S = 5.0
"""A wait of the start that takes longer is logged."""
MOST_SESSIONS = 5
"""A start that loses this many sessions fails."""


class Entered(NamedTuple):
    """What a start reads in the store of its cluster."""

    cluster_id: str
    secret: bytes


class StartSession:
    """The session of a start: where one expires, the start waits for the next, within a limit.

    The only session of an embedded store ends when its disk fails, and the start with it.
    """

    def __init__(self, local: LocalStore, settings: BrokerSettings) -> None:
        self.losses = 0
        """How many sessions have expired."""
        self._shared = local.is_shared
        self._settings = settings
        self._limit_ms = settings.zookeeper_connection_timeout
        self._is_open = Latch()
        self._is_open.set()
        # What ends the start; None before and after it.
        self._timeout: asyncio.Timeout | None = None
        if self._shared:
            local.store.on_session(self._changed)

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator[None]:
        """Run a start; JoinError if it has no session for too long, or if the store refuses it."""
        timeout = self._timeout = asyncio.timeout(None)
        try:
            async with timeout:
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise JoinError(self._lost_text()) from None
        except StoreError as refusal:
            raise JoinError(self._refused_text(refusal)) from refusal
        finally:
            self._timeout = None

    async def again(self, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step of the start, and again in a new session if the one before expired meanwhile."""
        while True:
            try:
                return await step()
            except StoreError as failure:
                if failure.kind is not StoreFailure.SESSION_EXPIRED or not self._shared:
                    raise
            await wait_for_callback(self._is_open.when_set)

    async def ask(self, ask: Callable[[Callable[[T | StoreError], None]], None]) -> T:
        """Call the store and wait for its reply, which comes from a session that did not expire."""
        return await self.again(partial(wait_for_reply, ask))

    def _changed(self, session: SessionState) -> None:
        timeout = self._timeout
        if timeout is None or timeout.expired():
            return
        if session is SessionState.OPEN:
            self._is_open.set()
            timeout.reschedule(None)
            return
        self.losses += 1
        self._is_open = Latch()
        if self.losses < MOST_SESSIONS:
            log.warning(
                "the start lost its session with the metadata store at %s and goes on in a new one, "
                "which must begin within %d ms",
                self._settings.zookeeper_connect,
                self._limit_ms,
            )
            timeout.reschedule(asyncio.get_running_loop().time() + self._limit_ms / 1000)
        else:
            timeout.reschedule(0)

    def _lost_text(self) -> str:
        address = self._settings.zookeeper_connect
        if self.losses < MOST_SESSIONS:
            return (
                f"the start lost its session with the metadata store, and no server of "
                f"zookeeper.connect={address} gave it another one within {self._limit_ms} ms: start "
                "ZooKeeper (or `headwater store`), then this broker"
            )
        return (
            f"the start lost {self.losses} sessions with the metadata store at {address}: check its "
            "servers, the network, and whether this machine is overloaded, then start the broker again"
        )

    def _refused_text(self, refusal: StoreError) -> str:
        if refusal.kind is StoreFailure.NOT_AUTHORIZED:
            return (
                f"ZooKeeper does not let this broker use {refusal.path}: give it the login "
                "(zookeeper.digest.username, zookeeper.digest.password) or the certificate "
                "(zookeeper.ssl.keystore.location) that the brokers of this cluster have"
            )
        where = f"at {self._settings.zookeeper_connect}" if self._shared else "of this broker"
        return (
            f"the metadata store {where} failed during the start ({refusal}): see the log, repair the "
            "store and start the broker again"
        )


class StoreEntry:
    """Enters the metadata store: refuses one that this broker must not use, and prepares an empty one."""

    def __init__(
        self, local: LocalStore, settings: BrokerSettings, seams: Seams, session: StartSession
    ) -> None:
        self._local = local
        self._settings = settings
        self._seams = seams
        self._session = session
        self._fresh_id = uuid_text(seams.randomness.uuid())
        self._fresh_secret = seams.randomness.below(1 << 8 * SECRET_BYTES).to_bytes(SECRET_BYTES)

    async def enter(self) -> Entered:
        """Run all steps in one session: the next session may find other data in the store."""
        return await self._session.again(self._enter)

    async def _enter(self) -> Entered:
        local, store = self._local, self._local.store
        if local.is_shared:
            losses = self._session.losses
            await self._refuse_other_cluster(store)
            await self._refuse_older(store)
            await self._wait_for_id(store)
            if self._session.losses > losses:
                raise StoreError(StoreFailure.SESSION_EXPIRED, CLUSTER_ID)
        cluster_id = await wait_for_reply(partial(prepare_store, store, self._fresh_id))
        secret = await wait_for_reply(partial(share_secret, store, self._fresh_secret))
        if local.owned is not None:
            await refuse_foreign_nodes(local.owned, self._settings.zookeeper_address[1], secret)
        if local.refuses_other_time:
            await self._refuse_other_time(store)
        return Entered(cluster_id, secret)

    async def _refuse_other_cluster(self, store: MetadataStore) -> None:
        """Refuse a store that does not answer, or that does not hold the cluster of the local data."""
        settings = self._settings
        limit_ms = settings.zookeeper_connection_timeout
        try:
            async with asyncio.timeout(limit_ms / 1000):
                with _logged_if_long(f"zookeeper.connect={settings.zookeeper_connect} to answer"):
                    stored = await wait_for_reply(partial(read_cluster_id, store))
        except TimeoutError:
            raise JoinError(
                f"no server of zookeeper.connect={settings.zookeeper_connect} answered within "
                f"{limit_ms} ms: start ZooKeeper (or `headwater store`), or correct the address"
            ) from None
        for path in settings.log_dirs:
            known = LogDir(self._seams.files, path).known_cluster()
            if known is not None and known != stored:
                found = f"holds cluster {stored}:" if stored else "is empty: restore its data,"
                raise JoinError(
                    f"{path} belongs to cluster {known}, but the metadata store at "
                    f"{settings.zookeeper_connect} {found} correct zookeeper.connect, or choose "
                    "another log.dirs"
                )

    async def _refuse_older(self, store: MetadataStore) -> None:
        """Refuse a store that lacks the last mark of this broker."""
        noted = read_noted_mark(self._seams.files, self._settings.log_dirs)
        found = 0
        for _ in range(MARK_CHECKS):
            found = await wait_for_reply(partial(read_mark, store, self._settings.node_id))
            if found >= noted:
                return
            await asyncio.sleep(MARK_CHECK_S)
        raise JoinError(
            f"the metadata store was restored from an older copy: {older_store_text(found, noted)}"
        )

    async def _refuse_other_time(self, store: MetadataStore) -> None:
        """Refuse to run with a clock that is far from the store's, which all brokers share."""
        store_ms = await wait_for_reply(partial(read_time, store))
        problem = clock_problem(self._seams.clock.wall_ms(), store_ms)
        if problem is not None:
            raise JoinError(problem)

    async def _wait_for_id(self, store: MetadataStore) -> None:
        """Wait for an earlier registration of this broker to end before changing anything."""
        settings, gone, losses = self._settings, Latch(), self._session.losses
        previous = PreviousRegistration(store, settings.node_id, gone.set)
        limit_ms = ID_TIMEOUT_SESSIONS * settings.zookeeper_session_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                with _logged_if_long(f"an earlier session of node.id={settings.node_id} to end"):
                    await wait_for_callback(gone.when_set)
        except TimeoutError:
            if self._session.losses > losses:
                return  # while the store was away, no session could end: this is done again
            ends = previous.node.endpoints if previous.node is not None else ()
            raise JoinError(
                f"node.id={settings.node_id} is in use by a broker at "
                f"{', '.join(f'{end.host}:{end.port}' for end in ends)}: stop it, or choose "
                "another node.id for this one"
            ) from None


@contextmanager
def _logged_if_long(what: str) -> Iterator[None]:
    def tell() -> None:
        log.warning("the start has waited for %s for %g s", what, LONG_WAIT_S)

    timer = asyncio.get_running_loop().call_later(LONG_WAIT_S, tell)
    try:
        yield
    finally:
        timer.cancel()
