"""A seed is a whole run: the same bytes on any machine, whatever the order of its sets."""

import os
import subprocess
import sys

from simulator.cluster_run import simulate_cluster
from simulator.run import simulate

SEEDS = range(3, 9)
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
    return told.stdout.split()


def test_a_seed_gives_the_same_trace_under_two_hash_seeds():
    first, second = _digests("1"), _digests("2")
    assert len(first) == 2 * len(SEEDS)
    assert first == second


def test_a_seed_gives_the_same_trace_twice_in_one_process():
    assert simulate(11).digest == simulate(11).digest
    assert simulate_cluster(11).digest == simulate_cluster(11).digest


def test_two_seeds_give_two_traces():
    assert simulate(11).digest != simulate(12).digest
