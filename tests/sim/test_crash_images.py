"""Storage that stops at any file operation starts again, and has everything that it promised."""

import logging
from collections import Counter

import pytest

from simulator.images.mistakes import MISTAKES
from simulator.images.run import run_mistaken_play, run_play

PARTS, PLAYS = 4, 5
ENOUGH_PLAYS = 25
KINDS = {
    "process killed", "unsynced lost", "torn", "write cut short", "write torn", "bit rot",
    "written after a start",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    """Thousands of starts find damage and say so."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_image_breaks_a_promise(part):
    images: Counter[str] = Counter()
    for seed in range(part * PLAYS, (part + 1) * PLAYS):
        verdict = run_play(seed)
        assert verdict.complaints == [], f"play {seed}"
        images += verdict.images
    assert images.total() >= 20_000 / PARTS
    assert set(images) == KINDS


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake):
    first = MISTAKES[mistake].first
    plays = range(first, first + ENOUGH_PLAYS)
    assert any(run_mistaken_play(seed, mistake).complaints for seed in plays)


def test_a_play_can_be_repeated():
    one, other = run_play(3), run_play(3)
    assert one == other
