"""Sessions with a store across a network: lost connections, lost answers, lost sessions, restarts."""

import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    SessionState,
    StoreError,
    StoreFailure,
    WatchEvent,
)
from tests.integration.cut_proxy import CutProxy
from tests.integration.metadata_stores import (
    SERVED_STORES,
    KazooCase,
    StoreProcess,
    zookeepers,
)

CHROOT = "/one"
SHORT_MS, LONG_MS = 1_000, 30_000


class Link(NamedTuple):
    """A store, and the proxy through which one client reaches it."""

    address: str
    proxy: CutProxy

    def far(self, timeout_ms: int) -> KazooCase:
        return KazooCase(self.proxy.address, timeout_ms, CHROOT)

    def near(self) -> KazooCase:
        return KazooCase(self.address, LONG_MS, CHROOT)


@pytest.fixture(scope="module", params=SERVED_STORES, ids=str)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with SERVED_STORES[request.param]() as found:
        yield found


@pytest.fixture
def link(address: str) -> Iterator[Link]:
    proxy = CutProxy(address)
    yield Link(address, proxy)
    proxy.close()
    cleaner = KazooCase(address, LONG_MS, CHROOT)
    for name in ask(cleaner, "children", "/"):
        ask(cleaner, "delete", f"/{name}", ANY_VERSION)
    cleaner.close()


def ask(case: KazooCase, method: str, *args: Any, **how: Any) -> Any:
    answers: list[Any] = []
    getattr(case.store, method)(*args, answers.append, **how)
    case.until(lambda: bool(answers))
    return answers[0]


def test_a_watch_fires_for_what_changed_while_the_connection_was_lost(link):
    far, near = link.far(LONG_MS), link.near()
    for path in ("/data", "/gone", "/still"):
        ask(near, "create", path, b"")
    seen: list[tuple[WatchEvent, str]] = []

    def watch(event: WatchEvent, path: str) -> None:
        seen.append((event, path))

    for path in ("/data", "/gone", "/still"):
        ask(far, "get", path, watch=watch)
    ask(far, "exists", "/new", watch=watch)
    ask(far, "children", "/", watch=watch)
    link.proxy.cut()
    ask(near, "set", "/data", b"1", ANY_VERSION)
    ask(near, "delete", "/gone", ANY_VERSION)
    ask(near, "create", "/new", b"")
    link.proxy.heal()
    far.until(lambda: len(seen) == 4)
    assert sorted(seen, key=str) == sorted(
        [
            (WatchEvent.DATA, "/data"),
            (WatchEvent.DELETED, "/gone"),
            (WatchEvent.CREATED, "/new"),
            (WatchEvent.CHILDREN, "/"),
        ],
        key=str,
    )
    ask(near, "set", "/still", b"1", ANY_VERSION)
    far.until(lambda: len(seen) == 5)
    assert seen[4] == (WatchEvent.DATA, "/still"), "a watch that missed nothing stays"
    for case in (far, near):
        case.close()


def test_reads_outlive_a_lost_connection_and_writes_say_that_they_may_be_lost(link):
    far = link.far(LONG_MS)
    ask(far, "create", "/a", b"0")
    link.proxy.freeze()
    order: list[tuple[str, Any]] = []
    far.store.get("/a", lambda node: order.append(("read", node)))
    far.store.set("/a", b"1", ANY_VERSION, lambda stat: order.append(("write", stat)))
    far.store.exists("/a", lambda stat: order.append(("read", stat)))
    link.proxy.cut()
    link.proxy.heal()
    far.until(lambda: len(order) == 3)
    assert [what for what, _ in order] == ["read", "write", "read"]
    assert not isinstance(order[0][1], StoreError)
    assert order[1][1].kind is StoreFailure.CONNECTION_LOSS
    assert not isinstance(order[2][1], StoreError)
    assert far.sessions == [SessionState.OPEN], "the session lived through it"
    far.close()


def test_a_session_that_cannot_be_proven_alive_is_lost_without_a_word_of_the_server(link):
    far, near = link.far(SHORT_MS), link.near()
    ask(far, "create", "/mine", b"", ephemeral=True)
    old = far.store.session_id
    gone: list[WatchEvent] = []
    ask(near, "exists", "/mine", watch=lambda event, _: gone.append(event))
    link.proxy.freeze()
    answers: list[Any] = []
    far.store.get("/mine", answers.append)
    far.until(lambda: SessionState.EXPIRED in far.sessions)
    far.until(lambda: bool(answers))
    assert answers[0].kind is StoreFailure.SESSION_EXPIRED
    assert ask(far, "get", "/mine").kind is StoreFailure.SESSION_EXPIRED
    near.until(lambda: gone == [WatchEvent.DELETED])
    link.proxy.cut()
    link.proxy.heal()
    far.until(lambda: far.sessions[-1] is SessionState.OPEN)
    assert far.store.session_id != old
    assert ask(far, "exists", "/mine") is None
    for case in (far, near):
        case.close()


def test_a_session_outlives_a_kill_of_the_store_and_its_restart():
    with tempfile.TemporaryDirectory() as folder:
        process = StoreProcess(folder)
        port = int(process.address.rpartition(":")[2])
        case = KazooCase(process.address, LONG_MS, CHROOT)
        ask(case, "create", "/mine", b"kept", ephemeral=True)
        seen: list[WatchEvent] = []
        ask(case, "get", "/mine", watch=lambda event, _: seen.append(event))
        process.kill()
        process = StoreProcess(folder, port)
        assert ask(case, "get", "/mine").data == b"kept"
        assert case.sessions == [SessionState.OPEN]
        ask(case, "set", "/mine", b"new", ANY_VERSION)
        case.until(lambda: seen == [WatchEvent.DATA])
        case.close()
        other = KazooCase(process.address, LONG_MS, CHROOT)
        assert ask(other, "exists", "/mine") is None, "a closed session leaves nothing"
        other.close()
        process.stop()


def test_a_session_outlives_any_one_member_of_an_ensemble():
    with zookeepers(3) as members:
        case = KazooCase(",".join(member.address for member in members), LONG_MS, CHROOT)
        ask(case, "create", "/mine", b"0", ephemeral=True)
        for number, member in enumerate(members):
            member.kill()
            version = ask(case, "get", "/mine").stat.version
            stored = ask(case, "set", "/mine", b"%d" % number, version)
            while isinstance(stored, StoreError):
                assert stored.kind is StoreFailure.CONNECTION_LOSS, "the outcome is unknown"
                node = ask(case, "get", "/mine")
                stored = ask(case, "set", "/mine", b"%d" % number, node.stat.version)
            assert ask(case, "get", "/mine").data == b"%d" % number
            member.start()
            member.wait_until_serving()
        assert case.sessions == [SessionState.OPEN]
        case.close()
