"""The processes of `headwater up --brokers`: where they listen, and what of their logs is shown."""

import socket
from pathlib import Path

import pytest

from headwater.cli.up_cluster import METRICS_PORTS_ABOVE, ClusterOptions, _LocalCluster
from headwater.processes.local_nodes import unused_port


def local_cluster(folder: Path, port: int) -> _LocalCluster:
    return _LocalCluster(ClusterOptions(3, None, port, str(folder), {}, "INFO", False))


def test_metrics_move_to_a_free_port_if_theirs_is_taken(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        port = taken - METRICS_PORTS_ABOVE
        chosen = local_cluster(tmp_path, port)._settings(1, port, "store:1")["metrics.listener"]
        assert chosen not in ("", f"127.0.0.1:{taken}")
    free = unused_port()
    port = free - METRICS_PORTS_ABOVE
    chosen = local_cluster(tmp_path, port)._settings(1, port, "store:1")["metrics.listener"]
    assert chosen == f"127.0.0.1:{free}"


def test_waits_of_a_start_are_shown_and_other_warnings_once_all_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = local_cluster(tmp_path, 9092)
    wait = "2026-01-31 12:00:00,123 WARNING server: the start has waited for zk1:2181 to answer"
    other = "2026-01-31 12:00:00,123 WARNING controller.controller_loop: no leader for orders-0"
    for line in (wait, other):
        cluster._print_warning(2, line)
    assert capsys.readouterr().err == f"broker 2: {wait}\n"
    cluster._serving.set()
    cluster._print_warning(2, other)
    assert capsys.readouterr().err == f"broker 2: {other}\n"
