"""`python -m tools.cluster_chaos`: three brokers, real faults, and then every promise is checked.

Producers and groups of our clients and of confluent-kafka work without a pause while a nemesis
kills, pauses, partitions and starves brokers and their metadata store. Everything is written to a
history, from which a checker tells what was lost, doubled, reordered or went back; the files of all
brokers are compared at the end. A seed decides which faults come when; what the machine does
meanwhile is its own.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tools.cluster_chaos.run import Plan, run


def main() -> int:
    """Run, print a summary for each seed; 1 if a promise was broken."""
    options = _options()
    broken = 0
    first = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    for seed in range(first, first + options.seeds):
        print(f"seed {seed}", flush=True)
        folder = (
            Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
            if options.folder is None
            else options.folder / f"seed-{seed}"
        )
        kinds = options.kinds.split(",") if options.kinds else None
        report = run(Plan(seed, options.seconds, options.zookeeper, kinds), folder, _say)
        print(json.dumps(report.summary(), indent=2), flush=True)
        broken += bool(report.problems)
        if report.problems or options.folder is not None:
            print(f"history and files: {folder}")
        else:
            shutil.rmtree(folder)
    print("FAILED" if broken else "nothing lost, doubled, reordered or gone back")
    sys.stdout.flush()
    return 1 if broken else 0


def _say(line: str) -> None:
    print(line, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster_chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; any by default")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--seconds", type=float, default=180, help="how long faults come, for each")
    parser.add_argument(
        "--zookeeper", action="store_true", help="a ZooKeeper in place of the store"
    )
    parser.add_argument("--kinds", help="only these kinds of faults, with commas between them")
    parser.add_argument("--folder", type=Path, help="keep histories and files here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
