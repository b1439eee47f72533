"""kill -9 under load, eight times; `make chaos` does it two hundred times."""

import random

import pytest
from tools import chaos
from tools.recreated_topic import RecreatedTopic

ROUNDS = 8


def test_nothing_acknowledged_is_lost_by_kill_9_under_load():
    seed = random.SystemRandom().randrange(10**9)
    report = chaos.run(ROUNDS, seed)
    assert report.problems == [], f"seed {seed}"
    assert report.kills == ROUNDS
    assert report.commits > ROUNDS
    assert report.deletions > 0
    assert report.read_back >= report.acknowledged > ROUNDS * 50


# The check itself must be able to fail.


@pytest.mark.parametrize(
    ("acknowledged", "there", "complaint"),
    [
        ({0: 0, 1: 1}, {0: 0}, "record 1 was acknowledged at 1; there is None"),
        ({0: 0, 1: 1}, {0: 0, 1: 2}, "record 1 was acknowledged at 1; there is 2"),
        ({}, {0: 0, 1: 0}, "record 0 at 1 comes after record 0"),
        ({}, {0: 0, 1: 2}, "record 2 at 1 comes after record 0"),
        ({}, {0: 1, 1: 0}, "record 1 at 0 comes after record -1"),
    ],
)
def test_the_check_sees_what_went_wrong(acknowledged, there, complaint):
    assert complaint in chaos.compare(acknowledged, there, idempotent=True)


def test_the_check_allows_repeats_only_where_a_producer_may_repeat():
    there = {0: 0, 1: 1, 2: 0, 3: 1, 4: 2}
    assert chaos.compare({3: 1}, there, idempotent=False) == []
    assert chaos.compare({3: 1}, there, idempotent=True) != []


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        ({(0, 0): b"3:0:0:"}, None),
        ({}, "1 acknowledged records are lost"),
        ({(0, 0): b"3:0:1:"}, "1 acknowledged records are lost"),
        ({(0, 0): b"3:0:0:", (1, 4): b"1:0:0:"}, "records of former topics"),
    ],
)
def test_a_topic_that_was_created_again_has_its_own_records_and_no_others(there, problem):
    recreated = RecreatedTopic.__new__(RecreatedTopic)
    recreated.life, recreated.acknowledged = 3, {(0, 0): b"3:0:0:"}
    problems = recreated.check(there)
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]
