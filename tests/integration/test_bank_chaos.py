"""A short run of bank transfers under faults, and the checker of such runs with planted faults."""

from pathlib import Path

import pytest
from tools.bank_chaos.checker import check_bank
from tools.bank_chaos.run import BankPlan, run_bank
from tools.bank_chaos.transfers import Leg

SEED = 4
KINDS = ("kill coordinator", "kill leader")
TIMEOUT_S = 10.0


def test_a_bank_keeps_its_sum_while_its_brokers_are_killed(tmp_path: Path) -> None:
    """`make chaos` brings all kinds of faults, by seed and for longer."""
    told: list[str] = []
    plan = BankPlan(SEED, 0, kinds=KINDS, strikes=len(KINDS))
    report = run_bank(plan, tmp_path, told.append)
    assert report.problems == [], told
    found = report.findings
    assert sum(found.faults.values()) >= len(KINDS)
    assert found.committed > 50
    assert found.transactions["committed"] > 0
    assert found.transactions["aborted"] > 0
    assert found.reads >= 2 * found.committed


# -- the checker must be able to fail

DEBIT, CREDIT = Leg("a-0", 0, 2, 1, -5), Leg("a-0", 1, 2, 2, 5)


def ended(outcome: str, *names: str) -> dict[str, object]:
    return {"t": 0, "what": "ended", "transfers": list(names or ["a-0"]), "outcome": outcome}


def stored(leg: Leg, offset: int = 0, partition: int | None = None) -> dict[str, object]:
    return seen("stored", leg, offset, partition)


def read(leg: Leg, offset: int = 0) -> dict[str, object]:
    return {**seen("read", leg, offset, None), "reader": "r"}


def seen(what: str, leg: Leg, offset: int, partition: int | None) -> dict[str, object]:
    topic, number = leg.place
    at = number if partition is None else partition
    return {
        "t": 0, "what": what, "topic": topic, "partition": at, "offset": offset, "leg": list(leg)
    }  # fmt: skip


BOTH = [stored(DEBIT), stored(CREDIT)]
BOTH_READ = [read(DEBIT), read(CREDIT)]


@pytest.mark.parametrize("outcome", ["committed", "unknown"])
def test_a_sound_history_has_no_problems(outcome: str) -> None:
    found = check_bank([*BOTH_READ, ended(outcome), *BOTH], timeout_s=TIMEOUT_S)
    assert found.problems == []
    assert (found.committed, found.reads, found.transactions[outcome]) == (1, 2, 1)


@pytest.mark.parametrize("outcome", ["aborted", "unknown"])
def test_a_transfer_that_did_not_happen_is_sound(outcome: str) -> None:
    stable = {"t": 0, "what": "stable", "after_s": 19.0}
    found = check_bank([ended(outcome), stable], timeout_s=TIMEOUT_S)
    assert (found.problems, found.committed, found.longest_open_s) == ([], 0, 19.0)


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([ended("committed"), stored(DEBIT)], "torn: a-0"),
        ([ended("unknown"), stored(CREDIT)], "torn: a-0"),
        ([ended("unknown"), stored(CREDIT)], "sum: all accounts have 5 too much"),
        ([ended("committed")], "lost: a-0"),
        ([ended("committed"), *BOTH, stored(DEBIT, 1)], "doubled: a-0"),
        ([ended("aborted"), *BOTH], "aborted read: a-0 is stored"),
        ([ended("aborted"), read(DEBIT)], "aborted read: r got"),
        ([ended("committed"), *BOTH, read(DEBIT)], "never got"),
        ([ended("committed"), *BOTH, read(DEBIT)], "has only"),
        ([ended("committed"), read(DEBIT), read(CREDIT), stored(CREDIT)], "there is None"),
        (
            [ended("committed"), *BOTH, read(DEBIT), read(CREDIT._replace(amount=6))],
            "sum: r has 30001",
        ),
        ([ended("committed"), *BOTH, *BOTH_READ, read(DEBIT._replace(amount=1))], "sum: r got"),
        ([*BOTH], "never sent: a-0"),
        ([{"t": 0, "what": "requested", "transfer": "request-own-0"}], "lost: request-own-0"),
        ([{"t": 0, "what": "stable", "after_s": 20.1}], "stuck: "),
        ([{"t": 0, "what": "problem", "text": "a fenced producer committed"}], "a fenced producer"),
    ],
)
def test_the_checker_sees_what_went_wrong(events: list[dict[str, object]], problem: str) -> None:
    found = check_bank(events, timeout_s=TIMEOUT_S)
    assert any(problem in text for text in found.problems), found.problems


def test_a_request_without_an_acknowledgment_may_be_carried_out() -> None:
    legs = [leg._replace(transfer="request-own-3") for leg in (DEBIT, CREDIT)]
    assert check_bank([stored(leg) for leg in legs], timeout_s=TIMEOUT_S).problems == []
