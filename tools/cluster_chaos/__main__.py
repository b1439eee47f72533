"""`python -m tools.cluster_chaos`: three brokers, real faults, and then every promise is checked.

Producers and groups of our clients and of confluent-kafka work without a pause while a nemesis
kills, pauses, partitions and starves brokers and their metadata store. Everything is written to a
history, from which a checker tells what was lost, doubled, reordered or went back; the files of all
brokers are compared at the end. A seed decides which faults come when; what the machine does
meanwhile is its own.

Odd seeds are secured: brokers and clients run with the files of `headwater security init`, so with
SASL_SSL on every connection, and with ACLs, which an operator changes.
"""

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tools.cluster_chaos.options import option_parser
from tools.cluster_chaos.run import Plan, run


def main() -> int:
    """Run, print a summary for each seed; 1 if a promise was broken."""
    parser = option_parser("python -m tools.cluster_chaos", __doc__)
    parser.add_argument(
        "--secured", choices=("odd", "all", "none"), default="odd", help="which seeds are secured"
    )
    options = parser.parse_args()
    broken = 0
    first = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    for seed in range(first, first + options.seeds):
        secured = options.secured == "all" or (options.secured == "odd" and seed % 2 == 1)
        print(f"seed {seed}{', secured' if secured else ''}", flush=True)
        folder = (
            Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
            if options.folder is None
            else options.folder / f"seed-{seed}"
        )
        kinds = options.kinds.split(",") if options.kinds else None
        plan = Plan(seed, options.seconds, options.zookeeper, kinds, secured=secured)
        report = run(plan, folder, _say)
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


if __name__ == "__main__":
    sys.exit(main())
