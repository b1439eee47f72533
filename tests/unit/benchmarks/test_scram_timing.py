"""The measurement of logins in its smallest form, and the test behind it."""

import re

import pytest
from benchmarks.micro import scram_timing


def test_both_ways_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(scram_timing, "USERS", 2)
    monkeypatch.setattr(scram_timing, "WARM_UP", 1)
    scram_timing.main(3, subprocess=False)
    figures = r"known users (\d+) ns, unknown users (\d+) ns, p=([01]\.\d+)\n"
    printed = re.fullmatch(
        rf"in one process: {figures}over loopback:  {figures}", capsys.readouterr().out
    )
    assert printed is not None
    assert all(int(printed[number]) > 0 for number in (1, 2, 4, 5))


@pytest.mark.parametrize(
    ("other", "least", "most"), [(range(100), 0.99, 1.0), (range(40, 140), 0.0, 1e-6)]
)
def test_the_test_tells_a_shift_from_none(other, least, most):
    assert least <= scram_timing.mann_whitney(list(range(100)), list(other)) <= most
