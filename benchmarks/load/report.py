"""The result: a table for people, ratios first, and the same as JSON with every sample."""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.load.cases import Case
from benchmarks.load.rounds import Samples, Scale, rate
from benchmarks.load.targets import Figure

_RESULTS = Path(__file__).parents[2] / "bench-results"


def table(figures: Sequence[Figure]) -> str:
    """One line a figure: median, spread, limit, verdict; those that missed are easy to find."""
    width = max((len(f.case) for f in figures), default=0)
    lines = [f"{'case':{width}}  {'measure':50} {'median':>10} {'low … high':>21} {'target':>8}"]
    for figure in figures:
        spread = f"{_number(min(figure.values))} … {_number(max(figure.values))}"
        limit = "" if figure.limit is None else str(figure.limit)
        lines.append(
            f"{figure.case:{width}}  {figure.measure:50} {_number(figure.median):>10} "
            f"{spread:>21} {limit:>8}  {figure.verdict}"
        )
    return "\n".join(lines)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def samples_table(cases: Sequence[Case], samples: Samples) -> str:
    """Rates, latencies and CPU of each server: medians over the rounds."""
    lines = [
        f"{'case':28} {'server':10} {'rate':>16} {'p50 µs':>10} {'p99 µs':>10} {'CPU µs/req':>11}"
    ]
    for case in cases:
        for server, runs in samples.get(case.name, {}).items():
            middle = {
                word: statistics.median(getattr(run, word) for run in runs)
                for word in ("p50_us", "p99_us", "cpu_us_per_request")
            }
            speed = statistics.median(rate(case, run) for run in runs)
            lines.append(
                f"{case.name:28} {server:10} {speed:>10,.0f} {case.rate_unit:5} "
                f"{middle['p50_us']:>10,.0f} {middle['p99_us']:>10,.0f} "
                f"{middle['cpu_us_per_request']:>11,.2f}"
            )
    return "\n".join(lines)


def verdicts(figures: Sequence[Figure], failures: Mapping[str, str]) -> str:
    """How many targets were met, the names of the others, and what could not be measured."""
    judged = [f for f in figures if f.limit is not None]
    missed = [f for f in judged if f.verdict == "missed"]
    lines = [f"{len(judged) - len(missed)} of {len(judged)} targets met"]
    lines += [
        f"  missed: {f.case}, {f.measure}: {_number(f.median)}, target {f.limit}" for f in missed
    ]
    lines += [f"  failed: {case}, {reason}" for case, reason in failures.items()]
    return "\n".join(lines)


def save(figures: Sequence[Figure], samples: Samples, scale: Scale, kind: str = "load") -> Path:
    """Writes everything to a new file under `bench-results`."""
    _RESULTS.mkdir(exist_ok=True)
    path = _RESULTS / time.strftime(f"{kind}-%Y%m%d-%H%M%S.json")
    result = {
        "machine": _machine(),
        "scale": asdict(scale),
        "figures": [
            {
                **asdict(f),
                "median": f.median,
                "limit": f.limit and str(f.limit),
                "verdict": f.verdict,
            }
            for f in figures
        ],
        "samples": {
            case: {server: [asdict(run) for run in runs] for server, runs in by_server.items()}
            for case, by_server in samples.items()
        },
    }
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False))
    return path


def _machine() -> Mapping[str, str | int | None]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "load average": f"{os.getloadavg()[0]:.2f}",
    }
