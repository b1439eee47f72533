"""Every alert rule fires if its reason is there, and is silent without it; the dashboard is complete."""

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from markdown.extensions.toc import slugify

from tests.integration.prometheus_tools import FOLDER, RULES, installed, problems, rules

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "alerts.md"
TARGET = 'instance="a",job="headwater"'


class Case(NamedTuple):
    """Series in promtool's notation: those that provoke the alert, and healthy values of the same."""

    bad: dict[str, str]
    good: dict[str, str]
    minutes: int
    labels: dict[str, str]


def gauge(name, bad, good, minutes, **labels):
    """A case of one series that stays at one value."""
    pairs = "".join(f',{label}="{value}"' for label, value in labels.items())
    series = f"{name}{{{TARGET}{pairs}}}"
    both = {"instance": "a", "job": "headwater", **labels}
    return Case({series: f"{bad}x200"}, {series: f"{good}x200"}, minutes, both)


def of_job(case):
    """A case whose alert is about the cluster."""
    return case._replace(labels={"job": "headwater"})


IDLE = f"headwater_loop_delay_seconds_bucket{{{TARGET},le="
GROUP = {"group": "g", "topic": "t"}
BOTH = {"instance": "a", "job": "headwater"}


def series_of(*names, **labels):
    pairs = "".join(f',{label}="{value}"' for label, value in labels.items())
    return [f"{name}{{{TARGET}{pairs}}}" for name in names]


def pair(names, bad, good, minutes, **labels):
    """A case of two series."""
    keys = series_of(*names, **labels)
    return Case(
        dict(zip(keys, bad, strict=True)),
        dict(zip(keys, good, strict=True)),
        minutes,
        BOTH | labels,
    )


CASES = {
    "HeadwaterBrokerDown": gauge("up", "0", "1", 2),
    "HeadwaterNotServing": gauge("headwater_serving", "0", "1", 12),
    "HeadwaterControllerCount": of_job(gauge("headwater_active_controller", "0", "1", 2)),
    "HeadwaterStoreDisconnected": gauge("headwater_store_connected", "0", "1", 2),
    "HeadwaterOfflinePartitions": of_job(gauge("headwater_offline_partitions", "3", "0", 2)),
    "HeadwaterUncleanElection": gauge("headwater_unclean_elections_total", "0+1", "7", 5),
    "HeadwaterUnderMinIsr": gauge("headwater_under_min_isr_partitions", "1", "0", 2),
    "HeadwaterAtMinIsr": pair(
        ("headwater_at_min_isr_partitions", "headwater_under_replicated_partitions"),
        ("1x200", "1x200"), ("1x200", "0x200"), 20,
    ),
    "HeadwaterUnderReplicated": gauge("headwater_under_replicated_partitions", "1", "0", 6),
    "HeadwaterOfflineReplicas": gauge("headwater_offline_replicas", "1", "0", 6),
    "HeadwaterIsrShrinks": gauge("headwater_isr_shrinks_total", "0+1", "5", 40),
    "HeadwaterFailedLogDir": gauge("headwater_failed_log_dirs", "1", "0", 1),
    "HeadwaterFullLogDir": gauge("headwater_full_log_dirs", "1", "0", 1),
    "HeadwaterDiskNearlyFull": pair(
        ("headwater_log_dir_free_bytes", "headwater_log_dir_size_bytes"),
        ("5x200", "100x200"), ("50x200", "100x200"), 6, dir="/data",
    ),
    "HeadwaterDiskFillsSoon": gauge(
        "headwater_log_dir_free_bytes", "1000-5", "1000-1", 80, dir="/data"
    ),
    "HeadwaterUncleanablePartitions": gauge("headwater_cleaner_uncleanable_partitions", "1", "0", 1),
    "HeadwaterCleanerStopped": gauge("headwater_cleaner_idle_seconds", "700", "14", 1),
    "HeadwaterCleanerWorkersDie": gauge("headwater_cleaner_worker_deaths_total", "0+1", "1", 30),
    "HeadwaterOffsetsTopicGrows": gauge(
        "headwater_log_bytes", "6000000000", "1000000", 70, topic="__consumer_offsets"
    ),
    "HeadwaterLoopBusy": gauge("headwater_loop_idle_ratio", "0.2", "0.8", 12),
    "HeadwaterLoopDelay": Case(
        {f'{IDLE}"0.1"}}': "0+1x200", f'{IDLE}"0.25"}}': "0+5x200", f'{IDLE}"+Inf"}}': "0+5x200"},
        {f'{IDLE}"0.1"}}': "0+5x200", f'{IDLE}"0.25"}}': "0+5x200", f'{IDLE}"+Inf"}}': "0+5x200"},
        12, BOTH,
    ),
    "HeadwaterServerErrors": gauge(
        "headwater_request_errors_total", "0+1", "3", 5, api="Fetch", error="KAFKA_STORAGE_ERROR"
    ),
    "HeadwaterRequestMemory": pair(
        ("headwater_request_memory_bytes", "headwater_request_memory_limit_bytes"),
        ("95x200", "100x200"), ("20x200", "100x200"), 6,
    ),
    "HeadwaterOpenFiles": pair(
        ("process_open_fds", "process_max_fds"), ("90x200", "100x200"), ("20x200", "100x200"), 6
    ),
    "HeadwaterConnectionsRejected": gauge("headwater_connections_rejected_total", "0+1", "9", 5),
    "HeadwaterLagGrows": gauge("headwater_group_lag", "2000+10", "2000-1", 50, **GROUP),
    "HeadwaterGroupNearLogStart": pair(
        ("headwater_group_lead", "headwater_group_lag"),
        ("5x200", "200000x200"), ("5x200", "10x200"), 12, **GROUP,
    ),
    "HeadwaterGroupRebalances": gauge(
        "headwater_group_rebalances_total", "0+2", "2", 20, group="g", reason="session"
    )._replace(labels={"job": "headwater", "group": "g"}),
}  # fmt: skip


def promtool_test(name, rule, case, *, fires, docs):
    series = case.bad if fires else case.good
    url = f"{docs}operations/alerts.html#{slugify(name, '-')}"
    alert = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {"summary": rule["annotations"]["summary"], "runbook_url": url},
    }
    return {
        "external_labels": {"docs": docs},
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{case.minutes}m",
                "alertname": name,
                "exp_alerts": [alert] if fires else [],
            }
        ],
    }


def test_each_rule_has_a_case_that_provokes_it_and_a_section_that_explains_it():
    assert sorted(CASES) == sorted(rules())
    sections = re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == list(rules())


def test_each_rule_links_to_its_section_of_the_site():
    """The links name a page as mkdocs does, and a heading as its table of contents does."""
    settings = (PAGE.parents[2] / "mkdocs.yml").read_text(encoding="utf-8")
    assert "use_directory_urls: false" in settings, "else the page is operations/alerts/"
    page = PAGE.relative_to(PAGE.parents[1]).with_suffix(".html")
    for name, rule in rules().items():
        link = f"{{{{ $externalLabels.docs }}}}{page}#{slugify(name, '-')}"
        assert rule["annotations"]["runbook_url"] == link
    prometheus = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    assert prometheus["global"]["external_labels"] == {"docs": ""}


@pytest.mark.parametrize("docs", ["", "https://docs.example.com/headwater/"])
@pytest.mark.parametrize("fires", [True, False], ids=["provoked", "healthy"])
def test_rules_fire_when_provoked_and_only_then(tmp_path, fires, docs):
    tests = [
        promtool_test(name, rule, CASES[name], fires=fires, docs=docs)
        for name, rule in rules().items()
    ]
    file = tmp_path / "alerts_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    done = subprocess.run(
        [installed("promtool"), "test", "rules", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboard_name_only_metrics_of_the_table():
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(shown) > 30
    for expression in (*shown, *(rule["expr"] for rule in rules().values())):
        assert problems(expression) == [], expression
    assert problems('rate(headwater_loop_delay_seconds{topic="x"}[1m])') == [
        "headwater_loop_delay_seconds",
        "topic",
    ]
