"""Whether the first step of SCRAM tells known users from unknown ones by its time.

    python -m benchmarks.micro.scram_timing

Prints the medians and the p-value of a Mann-Whitney test over 10,000 tries of each; a p-value below
0.01 in most runs on a quiet machine would be a leak.
"""

import gc
import math
import random
import secrets
import statistics
import time

from headwater.security.scram import ScramServer
from headwater.security.scram_credentials import SCRAM_SHA_512, ScramCredential
from headwater.security.scram_users import ScramUsers

USERS = 1000
TRIES = 10_000


def main() -> None:
    """Measure, in a random order, and print."""
    users = ScramUsers(secrets.token_bytes(32))
    for number in range(USERS):
        parts = (secrets.token_bytes(size) for size in (26, 64, 64))
        credential = ScramCredential(*parts, 8192)
        users.replace(f"user-{number:06d}", {SCRAM_SHA_512.name: credential.encode()})
    took: dict[str, list[int]] = {"user": [], "else": []}
    order = [*took] * TRIES
    random.shuffle(order)
    gc.disable()
    for kind in (*order[:1000], *order):
        took[kind].append(_first_step_ns(users, f"{kind}-{random.randrange(USERS):06d}"))
    known, unknown = (times[-TRIES:] for times in took.values())
    print(f"known users {statistics.median(known):.0f} ns", end=", ")
    print(f"unknown users {statistics.median(unknown):.0f} ns", end=", ")
    print(f"p={mann_whitney(known, unknown):.3f}")


def _first_step_ns(users: ScramUsers, name: str) -> int:
    server = ScramServer(
        SCRAM_SHA_512, lambda one, _: (users.credential(SCRAM_SHA_512, one), one), bytes(24)
    )
    token = f"n,,n={name},r=fyko+d2lbbFgONRv9qkx".encode()
    began = time.perf_counter_ns()
    server.feed(token)
    return time.perf_counter_ns() - began


def mann_whitney(one: list[int], other: list[int]) -> float:
    """Return the two-sided p-value that both are of one distribution, by the normal approximation."""
    values = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks, start = 0.0, 0
    while start < len(values):
        end = start
        while end < len(values) and values[end][0] == values[start][0]:
            end += 1
        mine = sum(1 for _, whose in values[start:end] if not whose)
        ranks += mine * (start + end + 1) / 2
        start = end
    size, others = len(one), len(other)
    mean = size * others / 2
    deviation = math.sqrt(size * others * (size + others + 1) / 12)
    return math.erfc(abs(ranks - size * (size + 1) / 2 - mean) / deviation / math.sqrt(2))


if __name__ == "__main__":
    main()
