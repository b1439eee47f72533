"""Simulated crash schedules by the thousand: `python -m tools.simulate --seeds 2000`.

A seed that breaks a promise is told with what broke; `--seed S --trace FILE` runs it again and
writes down everything that happened.
"""

import argparse
import sys
import time
from pathlib import Path

from simulator.bugs import BUGS, simulate_buggy
from simulator.run import Verdict, simulate


def main() -> int:
    """Run the seeds asked for; 1 if a promise was broken."""
    options = _options()
    first = options.first if options.seed is None else options.seed
    count = options.seeds if options.seed is None else 1
    began, broken, events = time.perf_counter(), 0, 0
    for seed in range(first, first + count):
        if options.buggy:
            verdict = simulate_buggy(seed, options.buggy)
        else:
            verdict = simulate(seed, keep_trace=options.trace is not None)
        events += verdict.events
        if not verdict.good or options.seed is not None:
            _tell(verdict)
        broken += not verdict.good
        if options.trace is not None:
            options.trace.write_text("\n".join(verdict.trace) + "\n")
    took = time.perf_counter() - began
    _say(f"{count} seeds, {events} events, {broken} broken, {took:.1f} s")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run only this one and tell about it")
    parser.add_argument("--buggy", choices=BUGS, help="plant this bug, to see that it is found")
    parser.add_argument("--trace", type=Path, help="write the last run's events to this file")
    return parser.parse_args()


def _tell(verdict: Verdict) -> None:
    _say(
        f"seed {verdict.seed}: {'good' if verdict.good else 'BROKEN'}, trace {verdict.digest}, "
        f"{verdict.lives} lives, {verdict.acknowledged} records acknowledged, {verdict.fault_plan}"
    )
    for complaint in verdict.complaints[:10]:
        _say(f"    {complaint}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
