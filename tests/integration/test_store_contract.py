"""What every metadata store promises. A new store joins by adding its maker to STORES."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import pytest

from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Set,
    Stat,
    StoreError,
    StoreFailure,
    WatchEvent,
    Znode,
)
from tests.integration.metadata_stores import (
    EmbeddedCase,
    KazooCase,
    SimulatedCase,
    StoreProcess,
    zookeepers,
)

SESSION_MS = 60_000
"""Longer than a case that waits while the others run."""


def _embedded() -> Iterator[Callable[[], Any]]:
    yield lambda: EmbeddedCase("")


def _served() -> Iterator[Callable[[], Any]]:
    with tempfile.TemporaryDirectory() as folder:
        process = StoreProcess(folder)
        yield lambda: KazooCase(process.address, SESSION_MS)
        assert process.stop() == 0


def _zookeeper() -> Iterator[Callable[[], Any]]:
    with zookeepers(1) as (server,):
        yield lambda: KazooCase(server.address, SESSION_MS)


def _ensemble() -> Iterator[Callable[[], Any]]:
    """Three servers, of which the leader dies."""
    with zookeepers(3) as members:
        next(member for member in members if "Mode: leader" in member.report()).kill()
        address = ",".join(member.address for member in members)
        yield lambda: KazooCase(address, SESSION_MS)


def _simulated() -> Iterator[Callable[[], Any]]:
    yield SimulatedCase


STORES = {
    "embedded": _embedded,
    "headwater store": _served,
    "zookeeper": _zookeeper,
    "ensemble": _ensemble,
    "simulated": _simulated,
}


@pytest.fixture(scope="module", params=STORES, ids=str)
def open_case(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    yield from STORES[request.param]()


@pytest.fixture
def case(open_case: Callable[[], Any]) -> Iterator[Any]:
    made = open_case()
    yield made
    made.close()


def call(case: Any, ask: Callable[[Callable[[Any], None]], object]) -> Any:
    answers: list[Any] = []
    ask(answers.append)
    assert answers == [], "a reply came inside the call"
    case.settle()
    assert len(answers) == 1
    return answers[0]


def create(case: Any, path: str, data: bytes = b"", **how: bool) -> Any:
    return call(case, lambda reply: case.store.create(path, data, reply, **how))


def get(case: Any, path: str) -> Any:
    return call(case, lambda reply: case.store.get(path, reply))


def multi(case: Any, *ops: Any) -> Any:
    return call(case, lambda reply: case.store.multi(ops, reply))


def kind(answer: Any) -> StoreFailure:
    assert isinstance(answer, StoreError), answer
    return answer.kind


def test_a_created_node_can_be_read(case):
    assert create(case, "/a", b"one") == "/a"
    node = get(case, "/a")
    assert node.data == b"one"
    assert node.stat.version == 0
    assert node.stat.czxid == node.stat.mzxid > 0


def test_what_is_there_is_not_created_again(case):
    create(case, "/a")
    assert kind(create(case, "/a")) is StoreFailure.NODE_EXISTS


def test_a_node_needs_a_parent(case):
    assert kind(create(case, "/a/b")) is StoreFailure.NO_NODE


def test_an_absent_node_is_reported_as_such(case):
    assert kind(get(case, "/a")) is StoreFailure.NO_NODE
    assert call(case, lambda reply: case.store.exists("/a", reply)) is None
    assert kind(call(case, lambda reply: case.store.children("/a", reply))) is StoreFailure.NO_NODE
    deleted = call(case, lambda reply: case.store.delete("/a", ANY_VERSION, reply))
    assert kind(deleted) is StoreFailure.NO_NODE


def test_set_counts_versions_and_refuses_an_old_one(case):
    create(case, "/a")
    first = call(case, lambda reply: case.store.set("/a", b"1", 0, reply))
    assert isinstance(first, Stat)
    assert first.version == 1
    assert first.mzxid > first.czxid
    stale = call(case, lambda reply: case.store.set("/a", b"2", 0, reply))
    assert kind(stale) is StoreFailure.BAD_VERSION
    assert get(case, "/a").data == b"1"


def test_delete_refuses_an_old_version_and_a_parent(case):
    create(case, "/a")
    create(case, "/a/b")
    assert kind(call(case, lambda r: case.store.delete("/a", 0, r))) is StoreFailure.NOT_EMPTY
    assert kind(call(case, lambda r: case.store.delete("/a/b", 3, r))) is StoreFailure.BAD_VERSION
    assert call(case, lambda r: case.store.delete("/a/b", 0, r)) is None
    assert call(case, lambda r: case.store.children("/a", r)) == []


def test_children_are_sorted_names(case):
    create(case, "/a")
    for name in ("c", "b", "d"):
        create(case, f"/a/{name}")
    assert call(case, lambda reply: case.store.children("/a", reply)) == ["b", "c", "d"]


def test_sequential_names_never_repeat(case):
    create(case, "/a")
    first = create(case, "/a/n_", sequential=True)
    call(case, lambda reply: case.store.delete(first, ANY_VERSION, reply))
    second = create(case, "/a/n_", sequential=True)
    assert second > first
    assert len(first) == len(second) == len("/a/n_") + 10


def test_a_multi_does_all_or_nothing(case):
    create(case, "/a", b"x")
    refused = multi(
        case, Set("/a", b"y"), Create("/b"), Create("/b/c"), Delete("/b/c"), Check("/a", 7)
    )
    assert kind(refused) is StoreFailure.BAD_VERSION
    assert get(case, "/a").data == b"x"
    assert get(case, "/a").stat.version == 0
    assert kind(get(case, "/b")) is StoreFailure.NO_NODE
    assert call(case, lambda reply: case.store.children("/", reply)).count("b") == 0


def test_a_multi_sees_its_own_earlier_steps(case):
    results = multi(case, Create("/a"), Set("/a", b"1", 0), Check("/a", 1), Create("/a/b"))
    assert results[0] == "/a"
    assert results[1].version == 1
    assert results[2] is None
    assert get(case, "/a").data == b"1"


def test_an_ephemeral_node_ends_with_its_session(case):
    create(case, "/e", ephemeral=True)
    owner = get(case, "/e").stat.ephemeral_owner
    assert owner == case.store.session_id != 0
    assert kind(create(case, "/e/child")) is StoreFailure.EPHEMERAL_PARENT
    case.reopen()
    assert kind(get(case, "/e")) is StoreFailure.NO_NODE
    assert case.store.session_id != owner


def test_transaction_numbers_grow_over_restarts(case):
    create(case, "/e", ephemeral=True)
    before = get(case, "/e").stat.czxid
    case.reopen()
    create(case, "/e", ephemeral=True)
    assert get(case, "/e").stat.czxid > before


def test_data_and_versions_survive_a_restart(case):
    create(case, "/a", b"0")
    call(case, lambda reply: case.store.set("/a", b"1", 0, reply))
    name = create(case, "/a/n_", sequential=True)
    before = get(case, "/a")
    case.reopen()
    assert get(case, "/a") == before
    assert create(case, "/a/n_", sequential=True) > name


def test_a_data_watch_fires_once_and_before_the_reply(case):
    create(case, "/a")
    order: list[Any] = []
    call(case, lambda r: case.store.get("/a", r, lambda change, path: order.append((change, path))))
    case.store.set("/a", b"1", ANY_VERSION, lambda _: order.append("reply"))
    case.settle()
    call(case, lambda reply: case.store.set("/a", b"2", ANY_VERSION, reply))
    assert order == [(WatchEvent.DATA, "/a"), "reply"]


def test_an_exists_watch_sees_the_node_come_and_go(case):
    seen: list[WatchEvent] = []

    def watch(change: WatchEvent, path: str) -> None:
        seen.append(change)
        case.store.exists("/a", lambda _: None, watch)

    call(case, lambda reply: case.store.exists("/a", reply, watch))
    create(case, "/a")
    call(case, lambda reply: case.store.delete("/a", ANY_VERSION, reply))
    assert seen == [WatchEvent.CREATED, WatchEvent.DELETED]


def test_a_children_watch_sees_children_and_not_data(case):
    create(case, "/a")
    seen: list[WatchEvent] = []
    call(
        case, lambda reply: case.store.children("/a", reply, lambda change, _: seen.append(change))
    )
    call(case, lambda reply: case.store.set("/a", b"1", ANY_VERSION, reply))
    assert seen == []
    create(case, "/a/b")
    assert seen == [WatchEvent.CHILDREN]


def test_no_watch_is_left_on_a_node_that_is_not_there(case):
    seen: list[WatchEvent] = []
    call(case, lambda reply: case.store.get("/a", reply, lambda change, _: seen.append(change)))
    create(case, "/a")
    assert seen == []


def test_a_refused_multi_wakes_nobody(case):
    create(case, "/a")
    seen: list[WatchEvent] = []
    call(case, lambda reply: case.store.get("/a", reply, lambda change, _: seen.append(change)))
    multi(case, Set("/a", b"1"), Check("/a", 9))
    assert seen == []


def test_replies_come_in_the_order_of_the_calls(case):
    order: list[str] = []
    case.store.create("/a", b"", lambda _: order.append("create"))
    case.store.get("/a", lambda node: order.append(type(node).__name__))
    case.store.set("/a", b"", 0, lambda _: order.append("set"))
    case.settle()
    assert order == ["create", Znode.__name__, "set"]


def test_a_closed_store_refuses(case):
    case.store.close()
    case.settle()
    assert kind(create(case, "/a")) is StoreFailure.SESSION_EXPIRED


def _random_calls(seed: int, count: int) -> Iterator[tuple[str, tuple[Any, ...], dict[str, bool]]]:
    """Calls on a small tree, so that most of them meet something."""
    chance = Random(seed)
    paths = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/b/n_0000000001"]
    versions = [ANY_VERSION, ANY_VERSION, 0, 1, 2]

    def op() -> Any:
        path, version, data = chance.choice(paths), chance.choice(versions), chance.randbytes(3)
        match chance.randrange(6):
            case 0 | 1:
                return Create(path, data, ephemeral=chance.random() < 0.2)
            case 2:
                return Create(chance.choice(["/a/n_", "/b/n_"]), data, sequential=True)
            case 3:
                return Set(path, data, version)
            case 4:
                return Delete(path, version)
            case _:
                return Check(path, version)

    for _ in range(count):
        one = op()
        match chance.randrange(5):
            case 0:
                yield "multi", ([op() for _ in range(chance.randrange(1, 5))],), {}
            case 1:
                yield chance.choice(["get", "exists", "children"]), (one.path,), {}
            case _ if isinstance(one, Create):
                how = {"ephemeral": one.ephemeral, "sequential": one.sequential}
                yield "create", (one.path, one.data), how
            case _ if isinstance(one, Set):
                yield "set", (one.path, one.data, one.version), {}
            case _ if isinstance(one, Delete):
                yield "delete", (one.path, one.version), {}
            case _:
                yield "multi", ([one],), {}


def _comparable(answer: Any) -> Any:
    """An answer without what depends on the store: its numbers of transactions, times, sessions."""
    if isinstance(answer, StoreError):
        return answer.kind, answer.index
    if isinstance(answer, Znode):
        return answer.data, _comparable(answer.stat)
    if isinstance(answer, Stat):
        same = (answer.version, answer.cversion, answer.num_children, answer.data_length)
        return (*same, answer.ephemeral_owner != 0, answer.mzxid > answer.czxid)
    if isinstance(answer, list):
        return [_comparable(one) for one in answer]
    return answer


def test_random_calls_get_the_same_answers_from_every_store():
    with ExitStack() as stack:
        opened = [stack.enter_context(contextmanager(maker)()) for maker in STORES.values()]
        cases = [open_case() for open_case in opened]
        given: list[list[Any]] = [[] for _ in cases]
        for case, answers in zip(cases, given, strict=True):
            for seed in range(10):
                for method, args, how in _random_calls(seed, 1000):
                    getattr(case.store, method)(*args, answers.append, **how)
                case.settle()
        embedded, *others = [[_comparable(answer) for answer in answers] for answers in given]
        assert len(embedded) == 10_000
        kinds = {answer[0] for answer in embedded if isinstance(answer, tuple)}
        assert len(kinds & set(StoreFailure)) >= 5, "the calls are too tame to compare anything"
        for other in others:  # pytest would print all of both
            pairs = enumerate(zip(embedded, other, strict=True))
            assert next((pair for pair in pairs if pair[1][0] != pair[1][1]), None) is None
        for case in cases:
            case.close()
