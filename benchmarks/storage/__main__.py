"""`python -m benchmarks.storage`: everything, or a part of it.

--quick            two short rounds with small logs
--cases PATTERN    only cases whose name matches, e.g. 'compaction*'; repeatable
--list             the names of all cases
"""

import argparse
from collections.abc import Callable
from fnmatch import fnmatch

from benchmarks.load import report, rounds
from benchmarks.load.rounds import Scale
from benchmarks.load.targets import Figure
from benchmarks.storage import compaction, disturbance, reading, syncing

CASES: dict[str, Callable[[Scale], list[Figure]]] = {
    "compaction": compaction.compaction,
    "compaction-pure": compaction.compaction_pure,
    "produce-while-compacting": disturbance.produce_while_compacting,
    "fsync": syncing.acknowledged_after_fsync,
    "index-memory": reading.index_memory,
    "log-verify": reading.log_verify,
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage")
    parser.add_argument("--quick", action="store_true", help="two short rounds with small logs")
    parser.add_argument("--cases", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--list", action="store_true", help="name all cases and stop")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(CASES))
        return
    scale = rounds.QUICK if chosen.quick else rounds.FULL
    figures: list[Figure] = []
    for name, measure in CASES.items():
        if any(fnmatch(name, pattern) for pattern in chosen.cases or ["*"]):
            print(f"measuring {name}", flush=True)
            figures += measure(scale)
    path = report.save(figures, {}, scale, "storage")
    print(f"\n{report.table(figures)}\n\n{report.verdicts(figures, {})}\nsamples: {path}")


if __name__ == "__main__":
    main()
