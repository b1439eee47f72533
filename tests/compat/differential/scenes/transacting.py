"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), DescribeTransactions (65),
ListTransactions (66)."""

from typing import Any

from headwater.wire.messages.groups import FindCoordinatorRequest
from headwater.wire.messages.producers import InitProducerIdRequest
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)
from tests.compat.differential.coordinator import coordinator
from tests.compat.differential.scene import Scene, scene

TIMEOUT_MS = 60_000
NOT_READY = (14, 15, 16, 51)
BUMPS = 5
"""The first version of EndTxn that bumps the epoch."""


def init(name: str | None, timeout_ms: int = TIMEOUT_MS, **expected: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, **expected
    )


def transactions(s: Scene) -> None:
    """Return when transactions are coordinated: the first question makes their topic."""
    find = FindCoordinatorRequest(key="ready", key_type=1, coordinator_keys=[])
    while s.peer.call(find, 3).error_code:
        pass
    started(s, "ready")


def started(s: Scene, name: str, timeout_ms: int = TIMEOUT_MS) -> Any:
    """The producer id and epoch of a new instance."""
    while (answer := s.peer.call(init(name, timeout_ms), 5)).error_code in NOT_READY:
        pass
    assert answer.error_code == 0, answer
    return answer


def expecting(who: Any, epoch: int = 0) -> dict[str, int]:
    return {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch + epoch}


def add(name: str, who: dict[str, int], **topics: list[int]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who["producer_id"],
        v3_and_below_producer_epoch=who["producer_epoch"],
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ],
    )


def begun(s: Scene, name: str, topic: str, who: Any) -> None:
    """Begin a transaction, once the markers of the last one are written."""
    while True:
        answer = s.peer.call(add(name, expecting(who), **{topic: [0]}), 3)
        error = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        if error.partition_error_code not in NOT_READY:
            assert error.partition_error_code == 0, answer
            return


def end(name: str, who: dict[str, int], commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, committed=commit, **who)


def completed(s: Scene, name: str) -> None:
    """Write down how a transaction ended, once its markers are written."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    while s.peer.call(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
        pass
    s.ask("how it ended", request)


@scene
def find_transaction_coordinator(s: Scene) -> None:
    transactions(s)
    for version in (1, 3):
        s.ask("one", FindCoordinatorRequest(key="tx", key_type=1), version)
    s.ask("several", FindCoordinatorRequest(coordinator_keys=["tx", ""], key_type=1))


@scene
def transactional_producers_start(s: Scene) -> None:
    transactions(s)
    for version in range(6):
        s.ask("a new id", init(f"new {version}"), version)
        s.ask("the same id", init(f"new {version}"), version)
        s.ask("no id", init(""), version)
        for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
            s.ask(f"{timeout_ms} ms", init(f"timeout {version}", timeout_ms), version)
    for version in (3, 4, 5):
        name = f"bumped {version}"
        s.ask("without an epoch", init(name, producer_id=5), version)
        s.ask("without a producer id", init(name, producer_epoch=5), version)
        s.ask("that was forgotten", init(name, producer_id=5, producer_epoch=3), version)
        first = started(s, name)
        s.ask("of another", init(name, producer_id=10**9, producer_epoch=0), version)
        s.ask("that it has", init(name, **expecting(first)), version)
        s.ask("retried", init(name, **expecting(first)), version)
        s.ask("of the future", init(name, **expecting(first, 7)), version)
        s.ask("the next one", init(name, **expecting(first, 1)), version)
        s.ask("too old", init(name, **expecting(first)), version)


@scene
def transactional_producers_are_fenced(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("fenced")
    first = started(s, "fenced")
    begun(s, "fenced", "fenced", first)
    s.ask("while a transaction runs", init("fenced"))
    second = started(s, "fenced")
    s.note("epochs", second.producer_epoch - first.producer_epoch)
    for version in range(4):
        old = add("fenced", expecting(first), fenced=[0])
        s.ask("the old one adds", old, version)
        offsets = AddOffsetsToTxnRequest(
            transactional_id="fenced", group_id="g", **expecting(first)
        )
        s.ask("the old one adds offsets", offsets, version)
    for version in range(6):
        s.ask("the old one commits", end("fenced", expecting(first)), version)
    for version in (3, 4, 5):
        s.ask("the old one bumps", init("fenced", **expecting(first)), version)
    completed(s, "fenced")


@scene
def partitions_join_a_transaction(s: Scene) -> None:
    transactions(s)
    coordinator(s)
    s.topic("added", 3)
    for version in range(4):
        name = f"adder {version}"
        who = started(s, name)
        me = expecting(who)
        other, newer = me | {"producer_id": 10**9}, expecting(who, 1)
        s.ask("nothing", add(name, me), version)
        s.ask("no topic", add(name, me, absent=[0]), version)
        s.ask("no partition", add(name, me, added=[3, 0]), version)
        s.ask("a negative partition", add(name, me, added=[-1]), version)
        s.ask("good and bad", add(name, me, added=[0, 1], absent=[0]), version)
        s.ask("an internal topic", add(name, me, __consumer_offsets=[0]), version)
        s.ask("no id", add("", me, added=[0]), version)
        s.ask("an unknown id", add("nobody", me, added=[0]), version)
        s.ask("another producer", add(name, other, added=[0]), version)
        s.ask("another epoch", add(name, newer, added=[0]), version)
        s.ask("two", add(name, me, added=[0, 1]), version)
        s.ask("one again", add(name, me, added=[1]), version)
        s.ask("a third", add(name, me, added=[2]), version)
        s.ask("nothing more", add(name, me), version)
        s.ask("all of them", DescribeTransactionsRequest(transactional_ids=[name]))
    for version in range(5):
        name = f"offsets {version}"
        who = started(s, name)
        me = expecting(who)

        def offsets(name: str = name, **who: int) -> AddOffsetsToTxnRequest:
            return AddOffsetsToTxnRequest(transactional_id=name, group_id="g", **who)

        s.ask("no id", offsets("", **me), version)
        s.ask("an unknown id", offsets("nobody", **me), version)
        s.ask("another producer", offsets(**me | {"producer_id": 10**9}), version)
        s.ask("another epoch", offsets(**expecting(who, 1)), version)
        s.ask("offsets", offsets(**me), version)
        s.ask("offsets again", offsets(**me), version)
        s.ask("with them", DescribeTransactionsRequest(transactional_ids=[name]))


@scene
def transactions_end(s: Scene) -> None:
    transactions(s)
    s.topic("ended")
    for version in range(5):
        for commit in (True, False):
            name = f"end {version} {commit}"
            who = started(s, name)
            me = expecting(who)
            s.ask("no id", end("", me), version)
            s.ask("an unknown id", end("nobody", me), version)
            s.ask("nothing to commit", end(name, me), version)
            s.ask("nothing to abort", end(name, me, False), version)
            begun(s, name, "ended", who)
            s.ask("another producer", end(name, me | {"producer_id": 10**9}), version)
            s.ask("an older epoch", end(name, expecting(who, -1)), version)
            s.ask("a newer epoch", end(name, expecting(who, 1)), version)
            s.ask("the end", end(name, me, commit), version)
            completed(s, name)
            s.ask("the end again", end(name, me, commit), version)
            s.ask("another end", end(name, me, not commit), version)
            begun(s, name, "ended", who)
            s.ask("the next transaction", end(name, me, not commit), version)
            completed(s, name)


@scene
def transactions_end_with_a_bump(s: Scene) -> None:
    transactions(s)
    s.topic("bumping")
    for first_commit in (True, False, None):
        for commit in (True, False):
            for epoch in (-2, -1, 0, 1):
                name = f"bump {first_commit} {commit} {epoch}"
                who = started(s, name)
                who = started(s, name)
                if first_commit is not None:
                    begun(s, name, "bumping", who)
                    who = s.ask("the first end", end(name, expecting(who), first_commit), BUMPS)
                    completed(s, name)
                label = f"{name}: epoch {epoch}"
                s.ask(label, end(name, expecting(who, epoch), commit), BUMPS)
                completed(s, name)
    who = started(s, "bumped ids")
    me = expecting(who)
    s.ask("an unknown id", end("nobody", me), BUMPS)
    s.ask("another producer", end("bumped ids", me | {"producer_id": 10**9}), BUMPS)
    begun(s, "bumped ids", "bumping", who)
    s.ask("while it runs, with an older epoch", end("bumped ids", expecting(who, -1)), BUMPS)
    s.ask("while it runs, with a newer epoch", end("bumped ids", expecting(who, 1)), BUMPS)
    who = s.ask("the end", end("bumped ids", me), BUMPS)
    completed(s, "bumped ids")
    s.ask("bumped by hand", init("bumped ids", **expecting(who)))
    s.ask("retried", init("bumped ids", **expecting(who)))


@scene
def transactions_are_listed(s: Scene) -> None:
    transactions(s)
    s.topic("in-a-list", 2)
    for name in ("list idle", "list open", "list done"):
        who = started(s, name)
        if name != "list idle":
            begun(s, name, "in-a-list", who)
        if name == "list done":
            s.ask("the end", end(name, expecting(who)))
            completed(s, name)
    s.ask(
        "by name",
        DescribeTransactionsRequest(
            transactional_ids=["list open", "nobody", "", "list idle", "list done"]
        ),
    )
    s.ask("nothing", DescribeTransactionsRequest())
    for version in (0, 1, 2):
        for states in (["Ongoing"], ["Dead"], ["ongoing"], ["Nonsense", "Ongoing"]):
            request = ListTransactionsRequest(
                state_filters=states, producer_id_filters=[who.producer_id]
            )
            s.ask(f"in {states}", request, version)
        by_id = ListTransactionsRequest(producer_id_filters=[who.producer_id])
        s.ask("by producer", by_id, version)
        s.ask("by no producer", ListTransactionsRequest(producer_id_filters=[10**9]), version)
    for version in (1, 2):
        for ms in (-1, 86_400_000):
            request = ListTransactionsRequest(
                duration_filter=ms, producer_id_filters=[who.producer_id]
            )
            s.ask(f"longer than {ms}", request, version)
    patterns = ["", ".*", "list open", "list", "list.*", "[x", "LIST.*", "(", "(?i)LIST.*"]
    for pattern in patterns:
        request = ListTransactionsRequest(
            transactional_id_pattern=pattern, producer_id_filters=[who.producer_id]
        )
        s.ask(f"like {pattern!r}", request)
