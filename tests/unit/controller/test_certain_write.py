"""A multi whose answer was lost: applied once, and answered as if nothing had happened."""

import pytest

from headwater.controller.store.certain_write import MOST_TRIES, write_surely
from headwater.controller.store.metadata_store import (
    Check,
    Create,
    Delete,
    Set,
    StoreError,
    StoreFailure,
)
from tests.unit.controller.fake_loop import FakeLoop, MemoryFiles, embedded

LOST = StoreFailure.CONNECTION_LOSS


class Flaky:
    """A store that loses the answers to its next multis, before or after they are applied."""

    def __init__(self, *losses: str) -> None:
        self.loop = FakeLoop()
        self.store = embedded(self.loop, MemoryFiles())
        self.losses = list(losses)
        self.multis = 0
        for op in (Create("/set", b"old"), Create("/gone"), Create("/queue"), Create("/epoch")):
            self.store.multi([op], lambda _: None)
        self.loop.run()

    def multi(self, ops, reply):
        self.multis += 1
        loss = self.losses.pop(0) if self.losses else ""
        lost = StoreError(LOST, "")
        if loss == "before":
            self.store.get("/", lambda _: reply(lost))
        else:
            self.store.multi(ops, lambda result: reply(lost if loss else result))

    def get(self, path, reply):
        self.store.get(path, reply)

    def write(self, *ops):
        answers = []
        write_surely(self, [Check("/epoch", 0), *ops], answers.append)
        self.loop.run()
        (answer,) = answers
        return answer

    def children(self, path):
        names = []
        self.store.children(path, names.append)
        self.loop.run()
        return names[0]


@pytest.mark.parametrize("losses", [(), ("before",), ("after",), ("before", "after")])
@pytest.mark.parametrize(
    "ops",
    [
        [Set("/set", b"new", 0), Delete("/gone")],
        [Create("/made", b"x"), Set("/set", b"new", -1)],
        [Delete("/gone"), Create("/made")],
    ],
    ids=["set", "create", "delete"],
)
def test_it_is_applied_once_and_answered_in_full(losses, ops):
    store = Flaky(*losses)
    results = store.write(*ops)
    assert not isinstance(results, StoreError)
    for op, result in zip(ops, results[1:], strict=True):
        match op:
            case Set():
                assert result.version == 1
            case Create():
                assert result == op.path
            case Delete():
                assert result is None
    assert store.multis == 1 + losses.count("before")


def test_what_shows_nowhere_is_sent_again():
    store = Flaky("after")
    results = store.write(Set("/set", b"new"), Create("/queue/n_", sequential=True))
    assert results[-1] == "/queue/n_0000000001"
    assert len(store.children("/queue")) == 2


def test_a_refusal_is_a_refusal():
    store = Flaky("before")
    refused = store.write(Set("/set", b"new", 7))
    assert (refused.kind, store.multis) == (StoreFailure.BAD_VERSION, 2)
    refused = Flaky().write(Create("/set", b"other"))
    assert refused.kind is StoreFailure.NODE_EXISTS


def test_a_store_that_never_answers_is_given_up():
    store = Flaky(*["before"] * 9)
    assert store.write(Delete("/gone")).kind is LOST
    assert store.multis == MOST_TRIES
