"""A seed is a whole run: the same bytes on any machine, whatever the order of its sets."""

import os
import subprocess
import sys

import pytest

SEEDS = (3, 4, 5, 6, 29, 3)
"""In 29 clients log in. The last one runs a second time in the same process."""
SCRIPT = """
import sys
from simulator.cluster_run import simulate_cluster
from simulator.run import simulate
for seed in map(int, sys.argv[1:]):
    print(simulate(seed).digest, simulate_cluster(seed).digest)
"""


def _digests(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SCRIPT, *map(str, SEEDS)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return told.stdout.splitlines()


@pytest.fixture(scope="module")
def digests():
    return _digests("1"), _digests("2")


def test_a_seed_gives_the_same_trace_under_two_hash_seeds(digests):
    first, second = digests
    assert len(first) == len(SEEDS)
    assert first == second


def test_a_seed_gives_the_same_trace_twice_in_one_process(digests):
    assert digests[0][0] == digests[0][-1]


def test_two_seeds_give_two_traces(digests):
    words = " ".join(digests[0][:-1]).split()
    assert len(set(words)) == len(words) == 2 * (len(SEEDS) - 1)
