import logging

import pytest

from headwater.observe.rate_limited_log import RateLimitedLog


class Hand:
    """A clock moved by hand."""

    now = 0

    def __call__(self) -> int:
        return self.now


def test_a_source_that_repeats_itself_is_logged_once_per_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Hand()
    peers = RateLimitedLog(logging.getLogger("peers"), clock, interval_ms=1000)
    for _ in range(500):
        peers.warning("frame", "10.0.0.1", "a frame of 2 GB")
    peers.warning("frame", "10.0.0.2", "a frame of 2 GB")
    peers.warning("version", "10.0.0.1", "a version that does not exist")
    assert len(caplog.messages) == 3
    clock.now = 1000
    peers.warning("frame", "10.0.0.1", "a frame of 2 GB")
    assert caplog.messages[-1].endswith("(499 more like this since the last line)")


def test_inventing_sources_costs_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    peers = RateLimitedLog(logging.getLogger("peers"), Hand(), capacity=8)
    for number in range(100):
        peers.warning("frame", f"source {number}", "garbage")
        peers.warning("frame", f"source {number}", "garbage")
    assert len(peers._until) == len(peers._suppressed) == 8


def test_a_source_with_control_characters_stays_on_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    RateLimitedLog(logging.getLogger("peers"), Hand()).warning("client", "x\n" * 1000, "garbage")
    assert "\n" not in caplog.messages[0]
    assert len(caplog.messages[0]) < 1100
