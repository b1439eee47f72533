"""The options of runs with real faults under a cluster."""

import argparse
from pathlib import Path


def option_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that all runs have."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--seed", type=int, help="the first seed; any by default")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--seconds", type=float, default=180, help="how long faults come, for each")
    parser.add_argument(
        "--zookeeper", action="store_true", help="a ZooKeeper in place of the store"
    )
    parser.add_argument("--kinds", help="only these kinds of faults, with commas between them")
    parser.add_argument("--folder", type=Path, help="keep histories and files here")
    return parser
