"""Troubles told one by one: a torn journal, a full disk, a broken one."""

import copy

import pytest

from simulator.cluster import Cluster
from simulator.disk import File
from tests.sim.support import Scene

HOUR_S = 3600
TEN_YEARS_MS = 10 * 365 * 86_400_000
JOURNAL = "/data/headwater-metadata/journal"


def _file(cluster: Cluster, path: str) -> File:
    file = cluster.node.disk.find(path)
    assert isinstance(file, File)
    return file


@pytest.fixture
def cluster():
    with Cluster(1) as cluster:
        yield cluster


def test_a_store_whose_journal_is_torn_in_its_last_group_starts_with_what_was_promised(cluster):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic("kept")
    whole = len(_file(cluster, JOURNAL).data)
    scene.create_topic("torn")
    cluster.node.crash()
    content = bytes(_file(cluster, JOURNAL).data)
    disk = copy.deepcopy(cluster.node.disk)
    for size in range(whole, len(content), max(1, (len(content) - whole) // 25)):
        cluster.node.disk = copy.deepcopy(disk)
        _file(cluster, JOURNAL).data[:] = content[:size]
        assert cluster.start(), cluster.complaints
        assert "kept" in scene.topics()
        cluster.node.crash()


def test_a_full_disk_refuses_writes_serves_reads_and_takes_writes_again(cluster):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic()
    assert scene.produce() == "NONE"
    cluster.node.faults.full = True
    assert scene.produce() == "KAFKA_STORAGE_ERROR"
    assert scene.produce() == "KAFKA_STORAGE_ERROR"
    assert scene.read_error() == "NONE"
    cluster.node.faults.full = False
    scene.let_pass(2)
    assert scene.produce() == "NONE"
    scene.audit()
    assert scene.ends() == (0, 2)
    assert cluster.complaints == []


def test_a_broker_that_dies_on_a_full_disk_starts_serves_reads_and_recovers(cluster):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic(segment_bytes="5000", index_interval_bytes="500")
    for _ in range(6):
        assert scene.produce(size=1500) == "NONE"
    scene.let_pass(2)
    cluster.node.faults.full = True
    for _ in range(3):
        assert scene.produce() == "KAFKA_STORAGE_ERROR"
        cluster.node.crash()
        assert cluster.start(), cluster.complaints
        assert scene.read_error() == "NONE"
        assert scene.ends() == (0, 6)
    cluster.node.faults.full = False
    scene.let_pass(3)
    assert scene.produce() == "NONE"
    scene.audit()
    cluster.stop()
    cluster.node.verify_logs()
    assert cluster.complaints == []


@pytest.mark.parametrize("flushed", [False, True])
def test_a_broker_on_a_full_disk_stops_in_order_and_loses_nothing(cluster, flushed):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic()
    assert scene.produce() == "NONE"
    if flushed:
        cluster.stop()
        assert cluster.start()
    cluster.node.faults.full = True
    if not flushed:
        assert scene.produce() == "KAFKA_STORAGE_ERROR"
    cluster.stop()
    assert cluster.complaints == []
    assert _file(cluster, "/data/headwater-run").data, "its logs count as lossy"
    cluster.node.faults.full = False
    assert cluster.start()
    scene.audit()
    assert scene.ends() == (0, 1)
    assert scene.produce() == "NONE"
    assert cluster.complaints == []


@pytest.mark.parametrize(
    ("operation", "configs"),
    [("write", {}), ("fdatasync", {"flush_messages": "1"}), ("sync_dir", {"flush_messages": "1"})],
)
def test_a_broken_disk_is_offline_until_it_is_mended_and_the_broker_restarted(
    cluster, operation, configs
):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic(**configs)
    if operation != "sync_dir":  # that of a segment is synced with its first records
        assert scene.produce() == "NONE"
    cluster.node.faults.broken = operation
    assert scene.produce() == "KAFKA_STORAGE_ERROR"
    cluster.node.faults.broken = ""
    scene.let_pass(3)
    assert scene.produce() == "KAFKA_STORAGE_ERROR"
    assert scene.read_error() == "KAFKA_STORAGE_ERROR"
    cluster.node.crash()
    assert cluster.start()
    assert scene.produce() == "NONE"
    scene.audit()
    assert cluster.complaints == []


def test_a_clean_stop_leaves_nothing_that_a_power_cut_could_take(cluster):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic(segment_bytes="5000")
    for _ in range(4):
        assert scene.produce(size=2000) == "NONE"
    cluster.stop()
    cluster.node.lose_power()
    assert cluster.start()
    scene.audit()
    assert scene.ends() == (0, 4)
    assert cluster.complaints == []


@pytest.mark.parametrize("clean", [True, False], ids=["stop", "crash"])
def test_records_outlive_a_restart_with_a_clock_years_ahead_but_not_for_ever(cluster, clean):
    cluster.start()
    scene = Scene(cluster)
    scene.create_topic(segment_bytes="5000")
    for _ in range(4):
        assert scene.produce(size=2000) == "NONE"
    for skew_ms in (TEN_YEARS_MS, 0, TEN_YEARS_MS):
        if clean:
            cluster.stop()
        else:
            cluster.node.crash()
        cluster.node.skew_ms = skew_ms
        assert cluster.start()
        scene.let_pass(HOUR_S / 2)
        assert scene.ends() == (0, 4)
    scene.let_pass(HOUR_S)
    assert scene.ends() == (4, 4), "after an hour the clock counts"


def test_two_lives_at_once_are_refused_by_the_lock(cluster):
    cluster.start()
    first = cluster.node.life
    cluster.node.life = None
    cluster.start()
    cluster.node.life = first
    assert "in use by another" in cluster.complaints[0]
