"""Runs plays and checks their crash images."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from simulator.images.mistakes import MISTAKES
from simulator.images.play import Play

IMAGES_PER_PLAY = 4000


class PlayVerdict(NamedTuple):
    """The result of one play."""

    seed: int
    operations: int
    images: Counter[str]
    complaints: list[str]


def run_play(
    seed: int, most_images: int = IMAGES_PER_PLAY, often: Sequence[str] = (), topic: str = ""
) -> PlayVerdict:
    """Run one play and check its images."""
    play = Play(seed, most_images, often, topic)
    play.run()
    checker = play.checker
    return PlayVerdict(seed, checker.operations, checker.counts, checker.complaints)


def run_mistaken_play(seed: int, name: str) -> PlayVerdict:
    """Run a play with a planted mistake, with the steps that bring it to light soonest."""
    mistake = MISTAKES[name]
    with mistake.plant():
        return run_play(seed, often=mistake.often, topic=mistake.topic)
