"""The figures of failovers, without a cluster."""

from benchmarks.cluster.failover import Target, percentile, row


def test_a_percentile_is_one_of_the_pauses():
    assert [percentile([3, 1, 2], percent) for percent in (0, 33, 50, 99, 100)] == [1, 1, 2, 3, 3]


def test_a_row_marks_what_misses_its_target():
    pauses_ms = [float(number) for number in range(1, 101)]
    assert row("kill", pauses_ms, Target(50, 98)).split() == [
        "kill", "100", "50", "90", "99!", "100",
    ]  # fmt: skip
