"""The embedded store against a plain model, with restarts, and with a crash at any byte of a write."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.controller.store.metadata_store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Op,
    Set,
    StoreError,
    StoreFailure,
)
from headwater.controller.store.tree import Tree
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")
JOURNAL = "/store/journal"

paths = st.sampled_from(PATHS)
versions = st.sampled_from((ANY_VERSION, 0, 1, 2))
data = st.binary(max_size=12)
ops = st.one_of(
    st.builds(Create, paths, data, ephemeral=st.booleans()),
    st.builds(Create, st.sampled_from(("/a/n_", "/b/n_")), data, sequential=st.just(True)),
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
transactions = st.lists(ops, min_size=1, max_size=4)


class Model:
    """Nodes as path -> (data, version, ephemeral), and a counter per parent. No cleverness."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, bool]] = {"/": (b"", 0, False)}
        self.counters: dict[str, int] = {}

    def copy(self) -> "Model":
        other = Model()
        other.nodes, other.counters = dict(self.nodes), dict(self.counters)
        return other

    def restart(self) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if not node[2]}

    def multi(self, many: list[Op]) -> StoreFailure | None:
        trial = self.copy()
        for op in many:
            failure = trial.one(op)
            if failure is not None:
                return failure
        self.nodes, self.counters = trial.nodes, trial.counters
        return None

    def one(self, op: Op) -> StoreFailure | None:
        if isinstance(op, Create):
            return self._create(op)
        if op.path not in self.nodes:
            return StoreFailure.NO_NODE
        _, version, ephemeral = self.nodes[op.path]
        if op.version not in (ANY_VERSION, version):
            return StoreFailure.BAD_VERSION
        if isinstance(op, Set):
            self.nodes[op.path] = (op.data, version + 1, ephemeral)
        elif isinstance(op, Delete):
            if any(path.startswith(op.path + "/") for path in self.nodes):
                return StoreFailure.NOT_EMPTY
            del self.nodes[op.path]
            self.counters.pop(op.path, None)
        return None

    def _create(self, op: Create) -> StoreFailure | None:
        parent = op.path.rpartition("/")[0] or "/"
        if parent not in self.nodes:
            return StoreFailure.NO_NODE
        if self.nodes[parent][2]:
            return StoreFailure.EPHEMERAL_PARENT
        count = self.counters.get(parent, 0)
        path = f"{op.path}{count:010d}" if op.sequential else op.path
        if path in self.nodes:
            return StoreFailure.NODE_EXISTS
        self.nodes[path] = (op.data, 0, op.ephemeral)
        self.counters[parent] = count + 1
        return None


def seen(tree: Tree) -> dict[str, tuple[bytes, int, bool]]:
    return {path: (n.data, n.version, n.owner != 0) for path, n in tree.nodes.items()}


def run(loop: FakeLoop, store: Any, many: list[Op]) -> Any:
    answers: list[Any] = []
    store.multi(many, answers.append)
    loop.run()
    return answers[0]


@given(st.lists(st.one_of(transactions, st.none()), max_size=25))
def test_the_store_does_what_the_model_does_over_any_restarts(script):
    loop, files, model = FakeLoop(), MemoryFiles(), Model()
    store = embedded(loop, files)
    zxid = 0
    for many in script:
        if many is None:
            store.close()
            loop.run()
            store = embedded(loop, files)
            model.restart()
        else:
            result = run(loop, store, many)
            expected = model.multi(many)
            assert (result.kind if isinstance(result, StoreError) else None) == expected
        assert seen(store.tree) == model.nodes
        assert store.tree.zxid >= zxid
        zxid = store.tree.zxid


@given(st.lists(transactions, min_size=1, max_size=8), st.data())
def test_a_crash_at_any_byte_keeps_exactly_the_whole_writes_before_it(script, draw):
    loop, files, model = FakeLoop(), MemoryFiles(), Model()
    store = embedded(loop, files)
    promised = [(0, model.copy())]
    for many in script:
        run(loop, store, many)
        model.multi(many)
        promised.append((len(files.content[JOURNAL]), model.copy()))
    cut = draw.draw(st.integers(0, len(files.content[JOURNAL])), label="cut")
    torn = draw.draw(st.binary(max_size=8), label="torn")
    del files.content[JOURNAL][cut:]
    files.content[JOURNAL].extend(torn)
    survived = [known for end, known in promised if end <= cut][-1]
    survived.restart()
    assert seen(embedded(loop, files).tree) == survived.nodes
    assert seen(embedded(loop, files).tree) == survived.nodes, "recovery is not repeatable"
