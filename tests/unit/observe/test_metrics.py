import re

import pytest

from headwater.observe.metrics import Metrics

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\Z")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|\Z)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def parse(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a Prometheus text, strictly; AssertionError for anything else."""
    assert text.endswith("\n")
    found = {}
    for line in text.splitlines():
        if line.startswith(("# HELP ", "# TYPE ")):
            continue
        sample = SAMPLE.match(line)
        assert sample, line
        labels, position = set(), 0
        body = sample["labels"] or ""
        while position < len(body):
            label = LABEL.match(body, position)
            assert label, line
            labels.add((label[1], re.sub(r'\\[\\"n]', lambda m: ESCAPES[m[0]], label[2])))
            position = label.end()
        key = sample["name"], frozenset(labels)
        assert key not in found
        found[key] = float(sample["value"])
    return found


def test_a_counter_counts_and_is_the_same_one_when_asked_again() -> None:
    metrics = Metrics()
    metrics.counter("requests_total", {"api": "Fetch"}).value += 2
    metrics.counter("requests_total", {"api": "Fetch"}).value += 1
    metrics.counter("requests_total", {"api": "Produce"}).value += 7
    assert parse(metrics.prometheus_text()) == {
        ("requests_total", frozenset({("api", "Fetch")})): 3,
        ("requests_total", frozenset({("api", "Produce")})): 7,
    }


def test_a_gauge_may_be_asked_at_the_scrape() -> None:
    metrics = Metrics()
    open_files = [1, 2, 3]
    metrics.gauge("open_files", read=lambda: len(open_files))
    metrics.gauge("loop_delay_seconds").value = 0.25
    open_files.pop()
    assert parse(metrics.prometheus_text()) == {
        ("open_files", frozenset()): 2,
        ("loop_delay_seconds", frozenset()): 0.25,
    }


def test_a_histogram_has_cumulative_buckets_sum_and_count() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("latency_ms", bounds=(1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 100.0):
        histogram.observe(value)
    text = metrics.prometheus_text()
    assert "# TYPE latency_ms histogram" in text
    assert parse(text) == {
        ("latency_ms_bucket", frozenset({("le", "1")})): 2,
        ("latency_ms_bucket", frozenset({("le", "5")})): 3,
        ("latency_ms_bucket", frozenset({("le", "+Inf")})): 4,
        ("latency_ms_sum", frozenset()): 104.5,
        ("latency_ms_count", frozenset()): 4,
    }


def test_label_values_of_a_peer_cannot_break_the_format() -> None:
    metrics = Metrics()
    hostile = 'x"} 1\nfake_total 9\\'
    metrics.counter("by_client_total", {"client": hostile}, help="two\nlines").value = 1
    assert parse(metrics.prometheus_text()) == {
        ("by_client_total", frozenset({("client", hostile)})): 1
    }


def test_a_deleted_topic_leaves_no_numbers_behind() -> None:
    metrics = Metrics()
    metrics.counter("bytes_total", {"topic": "a"}).value = 1
    metrics.counter("bytes_total", {"topic": "b"}).value = 1
    metrics.gauge("size", {"topic": "a", "partition": "0"}).value = 1
    metrics.drop({"topic": "a"})
    assert set(parse(metrics.prometheus_text())) == {
        ("bytes_total", frozenset({("topic", "b")})),
    }


def test_one_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("requests_total")
    with pytest.raises(TypeError, match="requests_total is a counter, not a gauge"):
        metrics.gauge("requests_total", {"api": "Fetch"})
