"""Kill and restart a broker under our clients; `python -m tools.client_chaos` does it longer."""

import pytest
from tools import client_chaos

import headwater
from headwater.testing import Broker
from tests.clients.broker_under_test import settle

KILLS = 6


def test_what_is_consumed_is_what_was_acknowledged_while_the_broker_is_killed_every_second():
    report = client_chaos.run(0, kills=KILLS)
    assert report.problems[:5] == []
    assert report.kills == KILLS
    assert len(report.consumed) == len(report.acknowledged) > 100 * KILLS


@pytest.mark.parametrize(
    ("acknowledged", "consumed", "complaint"),
    [
        ({b"a": (0, 0)}, {}, "was lost"),
        ({}, {(0, 0): b"a"}, "never acknowledged"),
        ({b"a": (0, 0)}, {(0, 0): b"a", (0, 1): b"a"}, "is at (0, 1)"),
    ],
)
def test_the_comparison_sees_what_went_wrong(acknowledged, consumed, complaint):
    (problem,) = client_chaos.compare(acknowledged, consumed)
    assert complaint in problem


def test_the_comparison_sees_records_out_of_order():
    stored = {(0, 0): b"1-5", (0, 1): b"2-4", (0, 2): b"1-4", (1, 0): b"1-3"}
    (problem,) = client_chaos.misplaced(stored)
    assert "b'1-4' at (0, 2) comes after number 5" in problem


def test_a_member_that_closes_while_its_coordinator_comes_back_is_gone_from_the_group():
    quick = client_chaos.QUICK
    with (
        Broker(subprocess=True) as broker,
        headwater.Admin(bootstrap_servers=broker.bootstrap, **quick) as admin,
    ):
        broker.create_topic("t")
        for _ in range(3):
            with headwater.Consumer(
                bootstrap_servers=broker.bootstrap, group_id="g", **quick
            ) as member:
                member.subscribe(["t"])
                settle(1, member)
                broker.kill()
                broker.start()
            assert admin.describe_group("g").members == ()


@pytest.mark.parametrize("auto_commit", [True, False])
def test_close_ends_in_its_time_when_the_broker_is_gone(auto_commit):
    with Broker(subprocess=True) as broker:
        broker.create_topic("t")
        member = headwater.Consumer(
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            enable_auto_commit=auto_commit,
            default_api_timeout_ms=600_000,
        )
        member.subscribe(["t"])
        settle(1, member)
        broker.kill()
        member.close(timeout=0.5)  # nothing else would end before the test's own timeout
