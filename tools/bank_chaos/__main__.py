"""`python -m tools.bank_chaos`: bank transfers as transactions on three brokers, and real faults.

Producers of ours and of confluent-kafka transfer money between accounts in several partitions, one
transfer in a transaction; two more carry out transfers that records request, with their offsets. A
nemesis kills, pauses, partitions and starves brokers and their metadata store. Readers of committed
transactions must always see the same sum of all accounts.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tools.bank_chaos.run import BankPlan, run_bank


def main() -> int:
    """Run, print a summary for each seed; 1 if a promise was broken."""
    options = _options()
    broken = transfers = 0
    first = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    for seed in range(first, first + options.seeds):
        print(f"seed {seed}", flush=True)
        folder = (
            Path(tempfile.mkdtemp(prefix="headwater-bank-"))
            if options.folder is None
            else options.folder / f"seed-{seed}"
        )
        kinds = options.kinds.split(",") if options.kinds else None
        plan = BankPlan(seed, options.seconds, options.zookeeper, kinds)
        report = run_bank(plan, folder, lambda line: print(line, flush=True))
        print(json.dumps(report.summary(), indent=2), flush=True)
        broken += bool(report.problems)
        transfers += report.findings.committed
        if report.problems or options.folder is not None:
            print(f"history and files: {folder}")
        else:
            shutil.rmtree(folder)
    print(f"{transfers} transfers: " + ("FAILED" if broken else "the sum was always the same"))
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bank_chaos", description=__doc__)
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
