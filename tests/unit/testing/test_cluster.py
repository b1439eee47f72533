"""What is wrong with a call of a test's cluster is said, before any process is started."""

from pathlib import Path

import pytest

import headwater.testing.cluster as cluster_module
from headwater.processes.child import Child, NotStarted
from headwater.testing import Cluster


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    for make in (
        lambda: Cluster(0),
        lambda: Cluster(zookeeper="nonsense"),
        lambda: Cluster(zookeeper="127.0.0.1:2181,zk2:x/chroot"),
    ):
        with pytest.raises(ValueError, match=r"at least one broker|zookeeper cannot be"):
            make()
    cluster = Cluster(3, data_dir=tmp_path)
    for call in (lambda: cluster.kill(4), lambda: cluster.address(4)):
        with pytest.raises(ValueError, match=r"there is no broker 4: this cluster has \[1, 2, 3\]"):
            call()
    with pytest.raises(ValueError, match="name the brokers to kill"):
        cluster.kill()
    with pytest.raises(RuntimeError, match="is not started"):
        cluster.kill(1)


def test_a_broker_that_does_not_run_is_named(tmp_path: Path) -> None:
    cluster = Cluster(3, data_dir=tmp_path)
    cluster._nodes[2].child = Child(["store"], tmp_path / "store.stderr")
    for call in (cluster.pid, cluster.pause, cluster.resume, cluster.fail_disk):
        with pytest.raises(RuntimeError, match=r"broker 2 is not running: start_broker\(2\)"):
            call(2)


def test_a_wait_says_for_what_and_why_before_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_module, "_SILENT_S", 0)
    monkeypatch.setattr(Cluster, "_views", lambda self: [])
    cluster = Cluster(3, data_dir=tmp_path)
    said = r"for a leader of orders-9.* \(no broker knows this partition\)"
    with pytest.raises(TimeoutError, match=said):
        cluster._wait(lambda: cluster._newest("orders", 9), "a leader of orders-9", 0.2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "waiting for a leader of orders-9" in caplog.text
    assert "(no broker knows this partition)" in caplog.text


def test_a_process_that_does_not_start_says_why_also_if_its_log_is_watched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    child = Child(["store", "--data-dir", str(tmp_path / "file" / "x")], tmp_path / "store.stderr")
    lines: list[str] = []
    child.on_log_line = lines.append
    for _ in range(2):
        child.launch()
        with pytest.raises(NotStarted, match=r"headwater store did not start: .* cannot be used"):
            child.wait_ready()
    assert sum("cannot be used" in line for line in lines) == 2


def test_a_process_that_runs_is_not_started_again(tmp_path: Path) -> None:
    child = Child(["store", "--data-dir", str(tmp_path), "--port", "0"], tmp_path / "store.stderr")
    child.launch()
    try:
        child.wait_ready()
        with pytest.raises(RuntimeError, match="runs already"):
            child.launch()
    finally:
        child.stop()
