"""`make run`: a broker, an evening in a shop, the reference pipeline on Spark, and its answers.

Ends by itself unless its output is a terminal; there the broker stays up until Ctrl-C.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
from deltalake import DeltaTable
from examples.behavior.charts import CHARTS, draw_all, euros
from examples.behavior.checks import Check, check_all, reasons, record_count, row_count
from examples.behavior.events import BEGINS, HOURS, LATEST_ARRIVAL, Shop, Truth
from examples.behavior.graph import picture
from examples.behavior.produce import DEAD, EVENTS, PROFILES, PURCHASES, create_topics, produce
from examples.behavior.recording import Recorder
from examples.behavior.report import Report, cell, header, write
from rich.console import Console
from rich.table import Table

from headwater.pipelines import load_project, run
from headwater.pipelines.declaring.declare import Project
from headwater.pipelines.running.display import Display
from headwater.testing import Broker

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "build" / "behavior"
PER_BEHAVIOR = "per-behavior"
SHOWN = {
    "per_minute": ("events", "the busiest minutes", 6),
    "funnel": ("of_first", "how far people go", 4),
    "top_items": ("revenue", "what earns the most", 8),
    "sessions": ("bought", "the best visits", 6),
    "by_level": ("revenue", "what members spend", 4),
}
"""Of each gold table: by what it is sorted here, what that shows, and how many rows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it all; 0 if the tables hold exactly what was sent."""
    options = _options(arguments)
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    shutil.rmtree(options.out, ignore_errors=True)
    settings = {"log.retention.ms": "-1"}
    with Broker(settings, data_dir=str(options.out / "broker"), subprocess=True) as broker:
        console.print(f"[bold]broker[/]     ready at {broker.bootstrap} (pid {broker.pid})")
        truth = _fill(broker.bootstrap, options, console)
        os.environ["BEHAVIOR_TOPICS"] = options.topics
        project = load_project(
            HERE,
            overrides={
                "bootstrap_servers": broker.bootstrap,
                "storage": str(options.out / "tables"),
            },
        )
        batches, seconds = _run_pipeline(project, options.master, console)
        checks = check_all(project.storage, broker.bootstrap, truth)
        tables = {**_gold(project.storage), "batches": batches, "reasons": reasons(project.storage)}
        _show_checks(checks, tables["reasons"], console)
        _show(tables, console)
        page = _report(project, checks, tables, seconds, options.out / "charts")
        console.print(f"\n[bold]report[/]     {page} and {len(CHARTS)} PNGs beside it")
        whole = all(check.holds for check in checks)
        if whole and sys.stdout.isatty():
            _stay(broker.bootstrap, page, console)
    return 0 if whole else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="examples.behavior", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="how many (200000)")
    parser.add_argument("--seed", type=int, default=11, help="another seed, another evening (11)")
    parser.add_argument(
        "--topics",
        choices=("one", PER_BEHAVIOR),
        default="one",
        help="one topic for all events, or one for each behavior (one)",
    )
    parser.add_argument("--out", type=Path, default=OUT, help="where everything is written")
    parser.add_argument("--master", default="local[*]", help="the Spark that runs it (local[*])")
    return parser.parse_args(arguments)


def _fill(bootstrap: str, options: argparse.Namespace, console: Console) -> Truth:
    """Send an evening's events and everyone's profile."""
    split = options.topics == PER_BEHAVIOR
    create_topics(bootstrap, per_behavior=split)
    truth, shop = Truth(), Shop(options.seed)
    began = evening_ms(datetime.now(UTC))
    started = time.perf_counter()
    produce(bootstrap, PROFILES, list(shop.profiles(began)), console)
    arrivals = shop.arrivals(options.events, began, truth)
    produce(bootstrap, EVENTS, arrivals, console, per_behavior=split)
    console.print(
        f"[bold]events[/]     {truth.arrivals:,} sent in {time.perf_counter() - started:.1f} s: "
        f"{truth.repeated:,} are duplicates, {truth.dead:,} are broken or far too late"
    )
    return truth


def evening_ms(now: datetime) -> int:
    """When the last evening began whose latest event has arrived: brokers refuse the future."""
    began = now.replace(hour=BEGINS.hour, minute=BEGINS.minute, second=0, microsecond=0)
    while began + timedelta(hours=HOURS) + LATEST_ARRIVAL > now:
        began -= timedelta(days=1)
    return int(began.timestamp() * 1000)


def _run_pipeline(project: Project, master: str, console: Console) -> tuple[pd.DataFrame, float]:
    """The batches of the run, and the seconds it took."""
    started = time.perf_counter()
    with Display(recorder := Recorder(), sys.stdout):
        run(project, once=True, master=master, progress=recorder)
    seconds = time.perf_counter() - started
    console.print(f"[bold]pipeline[/]   done in {seconds:.1f} s")
    return recorder.batches(), seconds


def _gold(tables: Path) -> dict[str, pd.DataFrame]:
    return {name: DeltaTable(tables / name).to_pandas() for name in SHOWN}


def _show_checks(checks: Sequence[Check], refused: pd.DataFrame, console: Console) -> None:
    shown = Table("what", "found", "sent", "", title="Was anything lost or doubled?")
    for check in checks:
        verdict = "ok" if check.holds else "[red]WRONG"
        shown.add_row(check.what, f"{check.found:,}", f"{check.sent:,}", verdict)
    console.print(shown)
    shown = Table("unmet expectation", "events", title="Why were events refused?")
    for row in refused.itertuples():
        shown.add_row(str(row.reason), f"{row.events:,}")
    console.print(shown)


def _show(tables: dict[str, pd.DataFrame], console: Console) -> None:
    for name, (column, what, rows) in SHOWN.items():
        table = tables[name].sort_values(column, ascending=False)
        columns = [str(each) for each in table.columns]
        shown = Table(*map(header, columns), title=f"{name}: {what} ({len(table):,} rows)")
        for row in table.head(rows).itertuples(index=False, name=None):
            shown.add_row(*map(cell, columns, row))
        console.print(shown)


def _report(
    project: Project,
    checks: Sequence[Check],
    tables: dict[str, pd.DataFrame],
    seconds: float,
    folder: Path,
) -> Path:
    report = Report(
        checks=checks,
        numbers=_numbers(tables),
        graph=picture(project.declarations, _counts(project)),
        pictures=draw_all(tables, folder),
        tables=tables,
        storage=project.storage,
        seconds=seconds,
    )
    return write(report, folder)


def _counts(project: Project) -> dict[str, int]:
    """Rows of each table and records of each topic, by the keys of the graph."""
    folders = [log.parent for log in project.storage.glob("*/_delta_log")]
    tables = {folder.name: row_count(folder) for folder in folders}
    read = {topic for dataset in project.declarations.datasets.values() for topic in dataset.topics}
    topics = sorted(read | {DEAD, PURCHASES})
    servers = project.bootstrap_servers
    return tables | {f"topic:{topic}": record_count(servers, topic) for topic in topics}


def _numbers(tables: dict[str, pd.DataFrame]) -> dict[str, str]:
    return {
        "events": f"{tables['per_minute']['events'].sum():,}",
        "people": f"{tables['by_level']['users'].sum():,}",
        "visits": f"{len(tables['sessions']):,}",
        "purchases": f"{tables['sessions']['bought'].sum():,}",
        "revenue": euros(tables["by_level"]["revenue"].sum()),
    }


def _stay(bootstrap: str, page: Path, console: Console) -> None:
    console.print(f"\nThe broker stays up at {bootstrap} until Ctrl-C. In another terminal, try:")
    console.print(
        f"  .venv/bin/headwater groups describe behavior.bronze --bootstrap-server {bootstrap}"
    )
    console.print(
        f"  .venv/bin/headwater consume {DEAD} --from earliest --bootstrap-server {bootstrap}"
    )
    console.print(f"and open {page.as_uri()}")
    with suppress(KeyboardInterrupt):
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
