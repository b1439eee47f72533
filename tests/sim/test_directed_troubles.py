"""Whole clusters under troubles that are longer, or in another order, than those of random plans."""

import logging
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

from headwater.broker.registration import Registration, prepare_store
from simulator.cluster_bugs import CLUSTER_BUGS
from simulator.cluster_plan import SESSION_MS, ClusterPlan, Trouble
from simulator.cluster_run import simulate_cluster

SETTINGS = {"leader.imbalance.check.interval.seconds": "300"}
SLOW_FETCHES = {"replica.lag.time.max.ms": "40000", "replica.fetch.wait.max.ms": "20000"}
CALM = replace(
    ClusterPlan.of(1), troubles=(), settings=SETTINGS, slowest_network_ms=5, slowest_thread_ms=20,
    cold=0.0, short=0.0, producers=1, records=20, recreated=False, members=0, min_insync=2,
    transactors=0, transformers=0, moves=(),
)  # fmt: skip
AWAY_MS = 600_000
MINUTES = 9
"""How many whole minutes of it come after the sessions have ended."""


class Seen:
    """What was written about partitions, and how much was acknowledged, at some times of a run."""

    def __init__(self, *times_ms):
        self.looks = dict.fromkeys(times_ms, self._look)
        self.versions = []
        self.acknowledged = []

    def _look(self, run):
        self.versions.append(run.view.versions())
        self.acknowledged.append(run.promises.acknowledged())


def simulated(looks, *troubles, **changes):
    numbered = [replace(one, number=number) for number, one in enumerate(troubles)]
    return simulate_cluster(1, plan=replace(CALM, troubles=tuple(numbered), **changes), looks=looks)


def check(verdict):
    assert verdict.good, verdict.complaints
    assert sum(verdict.injected.values()) == len(verdict.plan.troubles)


def test_a_pause_below_the_session_changes_no_leader_and_no_in_sync_set():
    seen = Seen(1900, 9000)
    roles = ("leader", "controller", "coordinator")
    pauses = [Trouble(2000 * n, "short pause", who, 500) for n, who in enumerate(roles, 1)]
    check(simulated(seen.looks, *pauses, members=1))
    assert seen.versions[0] == seen.versions[1]
    assert seen.acknowledged[0] < seen.acknowledged[1]


def test_the_others_go_on_during_a_pause_of_ten_sessions():
    seen = Seen(1900, 2000 + 9 * SESSION_MS)
    check(simulated(seen.looks, Trouble(2000, "pause", "leader", 10 * SESSION_MS)))
    assert all(seen.versions[0][at] < version for at, version in seen.versions[1].items())
    assert seen.acknowledged[0] < seen.acknowledged[1]


def test_leaders_do_not_go_to_and_fro_while_all_disks_are_full():
    """Each one gives up once at most: a replica with a full disk is eligible, and never in sync."""
    seen = Seen(1900, 13_000)
    full = [Trouble(2000 + 150 * n, "full disk", "any", 12_000) for n in range(6)]
    verdict = simulated(seen.looks, *full)
    assert verdict.good, verdict.complaints
    assert verdict.injected["full disk"] >= 3
    for at, version in seen.versions[0].items():
        assert version + 1 <= seen.versions[1][at] <= version + 3


def test_five_leaders_are_killed_one_after_another():
    """Each new leader dies while the one before is about to return."""
    kills = [Trouble(2000 * n, "crash", "leader", 1900) for n in range(1, 6)]
    check(simulated({}, *kills, producers=2))


def test_leaders_go_on_while_zookeeper_is_away_for_ten_minutes(caplog):
    """A broker says so once a minute; no state can be written, and none is asked for in vain."""
    seen = Seen(1900, 10_000, AWAY_MS)
    product = logging.getLogger("headwater")

    def listen(_):
        product.setLevel(logging.WARNING)

    def stop_listening(_):
        product.setLevel(logging.ERROR)

    product.addHandler(caplog.handler)
    try:
        looks = {**seen.looks, 1950: listen, AWAY_MS + 1950: stop_listening}
        away = Trouble(2000, "zookeeper restart", "any", AWAY_MS)
        settings = {**SETTINGS, **SLOW_FETCHES}
        check(simulated(looks, away, records=60, pause_ms=20_000, settings=settings))
    finally:
        product.removeHandler(caplog.handler)
    assert seen.versions[0] == seen.versions[1] == seen.versions[2]
    assert seen.acknowledged[1] < seen.acknowledged[2]
    lines = Counter(record.getMessage().split()[0] for record in caplog.records)
    assert lines == {"lost": 3, "no": 1, "the": 3 * MINUTES}, caplog.text
    assert caplog.text.count("the metadata store has not answered for") == 3 * MINUTES


def test_no_broker_joins_a_zookeeper_without_its_data_or_deletes_a_log():
    seen = Seen(10_000, 70_000)
    wiped = Trouble(2000, "zookeeper wiped", "any", 70_000)
    restarted = Trouble(68_000, "crash", "any", 500)
    check(simulated(seen.looks, wiped, restarted, records=60, pause_ms=2000))
    assert seen.versions == [{}, {}]
    assert seen.acknowledged[0] < seen.acknowledged[1], "the leaders go on"


def test_a_broker_that_joins_a_zookeeper_without_its_data_is_found():
    def join(self, _):
        prepare_store(self._store, self._cluster_id, lambda _: self._create())

    with patch.object(Registration, "_cluster_read", join):
        verdict = simulated({}, Trouble(2000, "zookeeper wiped", "any", 5000))
    assert not verdict.good


def test_no_broker_goes_back_to_leaders_that_a_deposed_controller_names_late():
    """With the bug M1, brokers believe it; without, the same schedules break nothing."""

    def verdict(at_ms):
        swaps = [Trouble(2000 + 50 * n, "leaders swapped", "any", 1000) for n in range(2)]
        return simulated({}, *swaps, Trouble(at_ms, "late control requests", "follower", 1000))

    times_ms = (2550, 2300, 2600)
    with CLUSTER_BUGS["M1"].plant():
        found = next(at_ms for at_ms in times_ms if not verdict(at_ms).good)
        assert "I14: " in verdict(found).complaints[0]
    check(verdict(found))
