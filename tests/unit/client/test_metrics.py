"""Rates and averages over half a minute."""

import pytest

from headwater.client.metrics import WINDOW_MS, Meter, ProducerMetrics


def test_a_rate_counts_the_last_half_minute() -> None:
    meter = Meter()
    for second in range(10):
        meter.add(second * 1000, 50)
    assert meter.rate(10_000) == pytest.approx(50)
    assert meter.rate(10_000 + 2 * WINDOW_MS) == 0
    assert meter.total == 500


def test_average_and_largest_look_at_single_events() -> None:
    meter = Meter()
    meter.add(0, 1)
    meter.add(1, 9)
    assert (meter.average(2), meter.largest(2)) == (5, 9)
    assert (meter.average(10 * WINDOW_MS), meter.largest(10 * WINDOW_MS)) == (0, 0)


def test_the_names_are_kafkas() -> None:
    metrics = ProducerMetrics()
    metrics.gauges["waiting-threads"] = lambda: 3
    told = metrics.read(0)
    assert told["waiting-threads"] == 3
    for name in ("record-send-rate", "record-error-rate", "record-retry-rate", "request-latency-avg",
                 "request-latency-max", "bufferpool-wait-ratio"):  # fmt: skip
        assert told[name] == 0
