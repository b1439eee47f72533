"""`python -m tools.bank_chaos`: bank transfers as transactions on three brokers, and real faults.

Producers of ours and of confluent-kafka transfer money between accounts in several partitions, one
transfer in a transaction; two more carry out transfers that records request, with their offsets. A
nemesis kills, pauses, partitions and starves brokers and their metadata store. Readers of committed
transactions must always see the same sum of all accounts.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tools.bank_chaos.run import BankPlan, run_bank
from tools.cluster_chaos.options import option_parser


def main() -> int:
    """Run, print a summary for each seed; 1 if a promise was broken."""
    options = option_parser("python -m tools.bank_chaos", __doc__).parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
