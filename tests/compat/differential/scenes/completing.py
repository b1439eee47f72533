"""What is answered between the decision about a transaction and its last marker."""

from collections.abc import Callable
from typing import Any

from headwater.wire.messages.transactions import DescribeTransactionsRequest
from headwater.wire.schema import Struct
from tests.compat.differential.compare import UNSEEN
from tests.compat.differential.coordinator import coordinator
from tests.compat.differential.scene import Scene, scene
from tests.compat.differential.scenes.transacting import (
    BUMPS,
    add,
    end,
    expecting,
    init,
    started,
    transactions,
)

PARTITIONS = 200
"""Their markers take longer than the requests that are sent together with the end."""
ATTEMPTS = 20
Ask = Callable[[str, Any], tuple[Struct, int]]


def meanwhile(s: Scene, label: str, ended: int, ask: Ask) -> None:
    """Write down the answer to `ask(name, who)`, if it came while markers were written."""
    for attempt in range(ATTEMPTS):
        name = f"{label} {ended} {attempt}"
        who = started(s, name)
        s.peer.call(add(name, expecting(who), completing=list(range(PARTITIONS))), 3)
        describe = DescribeTransactionsRequest(transactional_ids=[name])
        question, version = ask(name, who)
        with s.line() as line:
            line.send(end(name, expecting(who)), ended)
            line.send(describe, 0)
            line.send(question, version)
            line.send(describe, 0)
            _, before, answer, after = [line.receive() for _ in range(4)]
        states = [it.transaction_states[0].transaction_state for it in (before, after)]
        if states == ["PrepareCommit", "PrepareCommit"]:
            s.note(f"{label}, ended with version {ended}", answer)
            return
    s.note(f"{label}, ended with version {ended}", UNSEEN)


@scene
def transactions_that_are_being_completed(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("completing", PARTITIONS)
    for ended in (4, BUMPS):
        for version in (4, BUMPS):
            for commit, epoch in ((True, 0), (False, 0), (True, 1), (False, 1), (True, 2)):
                label = f"end {version}, commit {commit}, epoch {epoch}"
                meanwhile(s, label, ended, _end(version, commit, epoch))
            label = f"end {version} of another producer"
            meanwhile(s, label, ended, _end(version, producer_id=10**9))
        meanwhile(s, "a new instance", ended, lambda name, who: (init(name), 5))
        for epoch in (0, 1):
            meanwhile(s, f"bump of epoch {epoch}", ended, _bump(epoch))


def _end(version: int, commit: bool = True, epoch: int = 0, **other: int) -> Ask:
    return lambda name, who: (end(name, expecting(who, epoch) | other, commit), version)


def _bump(epoch: int) -> Ask:
    return lambda name, who: (init(name, **expecting(who, epoch)), 5)
