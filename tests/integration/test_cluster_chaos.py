"""A short chaos run of a cluster, and the checker of such runs with planted faults."""

from pathlib import Path

import pytest
from tools.cluster_chaos.checker import check
from tools.cluster_chaos.disk_audit import StoredBatch, compare_replicas
from tools.cluster_chaos.run import Plan, run

SEED = 20
KINDS = ("kill leader", "pause beyond session", "cut from store")


def test_a_cluster_keeps_its_promises_through_a_few_faults(tmp_path: Path) -> None:
    """`make chaos` brings all kinds, by seed and for longer."""
    told: list[str] = []
    report = run(Plan(SEED, 0, kinds=KINDS, once=True), tmp_path, told.append)
    assert report.problems == [], told
    assert report.findings.faults == dict.fromkeys(KINDS, 1)
    assert report.findings.survived == set(KINDS)
    assert report.findings.commits > 0
    assert report.findings.stored >= len(report.findings.acknowledged) > 100


def test_a_cluster_of_security_init_keeps_its_promises(tmp_path: Path) -> None:
    told: list[str] = []
    report = run(Plan(SEED, 0, kinds=KINDS[:1], once=True, secured=True), tmp_path, told.append)
    assert report.problems == [], told
    assert report.findings.survived == set(KINDS[:1])
    assert len(report.findings.acknowledged) > 100


# -- the checker must be able to fail


def ack(offset: int, number: int, client: str = "w", key: str = "k") -> dict[str, object]:
    return at("ack", offset, number, client, key)


def stored(offset: int, number: int, client: str = "w", key: str = "k") -> dict[str, object]:
    return at("stored", offset, number, client, key)


def read(offset: int, number: int) -> dict[str, object]:
    return {**at("read", offset, number), "group": "g"}


def at(what: str, offset: int, number: int, client: str = "w", key: str = "k") -> dict[str, object]:
    return {
        "t": 0, "what": what, "topic": "t", "partition": 0, "offset": offset,
        "client": client, "key": key, "number": number,
    }  # fmt: skip


def commit(what: str, began: int, ended: int, offset: int) -> dict[str, object]:
    return {
        "t": ended, "began": began, "what": what, "group": "g", "topic": "t", "partition": 0,
        "offset": offset,
    }  # fmt: skip


def total(sent: int, client: str = "w") -> dict[str, object]:
    return {"t": 0, "what": "total", "client": client, "key": "k", "sent": sent}


def test_a_sound_history_has_no_problems() -> None:
    found = check(
        [
            ack(0, 0), ack(1, 1), ack(-1, 1), read(0, 0), read(1, 1), read(1, 1),
            commit("commit", 5, 9, 1), commit("committed", 6, 7, 0), commit("committed", 10, 11, 1),
            commit("commit", 12, 13, 2), stored(0, 0), stored(1, 1), total(2),
        ]
    )  # fmt: skip
    assert found.problems == []
    assert (len(found.acknowledged), found.stored, found.reads, found.commits) == (2, 2, 3, 2)


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([ack(0, 0), total(1)], "lost: "),
        ([ack(0, 0), stored(0, 1), total(2)], "lost: "),
        ([ack(-1, 0), stored(0, 1), total(2)], "lost: "),
        ([ack(0, 0), stored(0, 0), stored(1, 0), total(1)], "doubled: "),
        ([stored(0, 1), stored(1, 0), total(2)], "reordered: "),
        ([ack(1, 0), stored(0, 1), stored(1, 0), total(2)], "comes right after number -1"),
        ([ack(0, 0), ack(0, 1), stored(0, 0), stored(1, 1), total(2)], "one offset for two"),
        ([ack(-1, 0), stored(0, 1), stored(1, 0), total(2)], "comes right after number -1"),
        ([stored(0, 5), total(2)], "never sent: "),
        ([read(0, 0), total(1)], "read what is not stored: "),
        ([read(0, 0), read(0, 1), stored(0, 0), total(2)], "changed under a reader: "),
        ([ack(0, 0), stored(0, 0), ack(1, 1), stored(1, 1), read(0, 0), total(2)], "missed: "),
        ([{"t": 0, "what": "group", "group": "g"}, stored(0, 0), total(1)], "missed: "),
        ([commit("commit", 1, 2, 7), commit("committed", 3, 4, 6)], "went back: "),
        ([commit("commit", 1, 2, 7), commit("committed", 3, 4, -1)], "went back: "),
        ([commit("commit", 1, 2, 7), commit("commit", 3, 4, 6)], "went back: "),
        ([commit("committed", 1, 2, 7), commit("committed", 3, 4, 6)], "went back: "),
        ([{"t": 0, "what": "problem", "text": "broker 1 ended by itself"}], "ended by itself"),
    ],
)
def test_the_checker_sees_what_went_wrong(events: list[dict[str, object]], problem: str) -> None:
    found = check(events)
    assert any(problem in text for text in found.problems), found.problems


def test_a_producer_that_is_not_idempotent_may_store_a_record_again() -> None:
    repeats = {"t": 0, "what": "client", "client": "w", "repeats": True}
    again = [stored(0, 0), stored(1, 1), stored(2, 0), stored(3, 1), stored(4, 2), total(3)]
    assert check([repeats, *again]).problems == []
    assert check(again).problems != []


def test_a_copy_under_another_producer_epoch_is_its_clients() -> None:
    renumbers = {"t": 0, "what": "client", "client": "w", "repeats": False, "renumbers": True}
    again = [stored(0, 0), stored(1, 1), stored(2, 0), stored(3, 1), stored(4, 2), total(3)]
    epochs = {("t", 0, offset): (7, int(offset > 1)) for offset in range(5)}
    found = check([renumbers, *again], producers=epochs)
    assert (found.problems, found.renumbered) == ([], 2)
    assert check(again, producers=epochs).doubled == 2, "of a client that must not do it"
    same = dict.fromkeys(epochs, (7, 0))
    assert check([renumbers, *again], producers=same).doubled == 2


FIRST, SECOND = StoredBatch(0, 4, 1, 11), StoredBatch(5, 9, 2, 22)


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ({1: [FIRST, SECOND], 2: [FIRST, SECOND]}, ""),
        ({1: [FIRST, SECOND], 2: [SECOND]}, ""),  # retention has come to one of them only
        ({1: [FIRST, SECOND], 2: [FIRST]}, "1 acknowledged records are missing on broker 2"),
        ({1: [FIRST, SECOND], 2: [FIRST]}, "brokers 1 and 2 differ"),
        ({1: [FIRST, SECOND], 2: [FIRST, SECOND._replace(crc=1)]}, "brokers 1 and 2 differ"),
        ({1: [FIRST, SECOND], 2: []}, "missing on broker 2"),
    ],
)
def test_the_audit_sees_replicas_that_differ(
    contents: dict[int, list[StoredBatch]], problem: str
) -> None:
    problems = compare_replicas("t-0", contents, {7})
    assert bool(problems) == bool(problem)
    assert not problem or any(problem in text for text in problems), problems


def test_the_audit_sees_a_replica_that_lost_its_beginning() -> None:
    problems = compare_replicas("t-0", {1: [FIRST, SECOND], 2: [SECOND]}, {2, 7})
    assert problems == ["t-0: 1 acknowledged records are missing on broker 2, such as those at [2]"]
