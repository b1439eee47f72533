import re

import pytest

from headwater.observe.metrics import Histogram, MetricRow, Metrics

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\Z")
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|\Z)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
TABLE = (
    MetricRow("requests_total", "counter", "two\nlines", ("api",)),
    MetricRow("open_files", "gauge", "Open."),
    MetricRow("latency_seconds", "histogram", "Time.", ("api",)),
)


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


def test_numbers_are_read_when_the_text_is_made() -> None:
    metrics, counts, files = Metrics(TABLE), {"Fetch": 3}, [1, 2, 3]
    metrics.show("requests_total", lambda: (((api,), count) for api, count in counts.items()))
    metrics.show_one("open_files", lambda: len(files))
    files.pop()
    counts["Produce"] = 7
    assert parse(metrics.prometheus_text()) == {
        ("requests_total", frozenset({("api", "Fetch")})): 3,
        ("requests_total", frozenset({("api", "Produce")})): 7,
        ("open_files", frozenset()): 2,
    }


def test_a_histogram_has_cumulative_buckets_sum_and_count_in_its_unit() -> None:
    metrics, fetch, unused = Metrics(TABLE), Histogram((1.0, 5.0), 1000), Histogram((1.0,))
    metrics.show_histograms("latency_seconds", lambda: [(("Fetch",), fetch), (("Join",), unused)])
    for value in (0.5, 1.0, 3.0, 100.0):
        fetch.observe(value)
    text = metrics.prometheus_text()
    assert "# TYPE latency_seconds histogram" in text
    api = ("api", "Fetch")
    assert parse(text) == {
        ("latency_seconds_bucket", frozenset({api, ("le", "0.001")})): 2,
        ("latency_seconds_bucket", frozenset({api, ("le", "0.005")})): 3,
        ("latency_seconds_bucket", frozenset({api, ("le", "+Inf")})): 4,
        ("latency_seconds_sum", frozenset({api})): 0.1045,
        ("latency_seconds_count", frozenset({api})): 4,
    }


def test_label_values_of_a_peer_cannot_break_the_format() -> None:
    metrics, hostile = Metrics(TABLE), 'x"} 1\nfake_total 9\\'
    metrics.show("requests_total", lambda: [((hostile,), 1)])
    assert parse(metrics.prometheus_text()) == {
        ("requests_total", frozenset({("api", hostile)})): 1
    }


def test_a_name_that_the_table_lacks_is_an_error() -> None:
    with pytest.raises(KeyError, match="other_total"):
        Metrics(TABLE).show_one("other_total", lambda: 1)
