"""`make run`: a broker, an evening in a shop, the reference pipeline on Spark, and its answers.

Ends by itself when its output is no terminal; on a terminal the broker stays up until Ctrl-C.
"""

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd
from deltalake import DeltaTable
from examples.behavior.charts import CHARTS, draw_all
from examples.behavior.events import HOURS, Shop, Truth
from examples.behavior.produce import DEAD, EVENTS, PROFILES, PURCHASES, create_topics, produce
from rich.console import Console
from rich.table import Table

from headwater import Admin
from headwater.pipelines import load_project, run
from headwater.pipelines.running.display import Display
from headwater.pipelines.running.progress import Progress
from headwater.testing import Broker

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "build" / "behavior"
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
        truth = _fill(broker.bootstrap, options.events, options.seed, console)
        _run_pipeline(broker.bootstrap, options.out, options.master, console)
        tables = _gold(options.out / "tables")
        whole = _judge(options.out / "tables", broker.bootstrap, truth, console)
        _show(tables, console)
        page = draw_all(tables, _numbers(truth, tables), options.out / "charts")
        console.print(f"\n[bold]charts[/]     {page} and {len(CHARTS)} PNGs beside it")
        if whole and sys.stdout.isatty():
            _stay(broker.bootstrap, page, console)
    return 0 if whole else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="examples.behavior", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="how many (200000)")
    parser.add_argument("--seed", type=int, default=11, help="another seed, another evening (11)")
    parser.add_argument("--out", type=Path, default=OUT, help="where everything is written")
    parser.add_argument("--master", default="local[*]", help="the Spark that runs it (local[*])")
    return parser.parse_args(arguments)


def _fill(bootstrap: str, events: int, seed: int, console: Console) -> Truth:
    """An evening's events, which ended some hours ago, and everyone's profile.

    Not even the latest of them may come from the future: a broker refuses that.
    """
    create_topics(bootstrap)
    truth, shop = Truth(), Shop(seed)
    began = (int(time.time()) - 2 * HOURS * 3600) // 60 * 60_000
    started = time.perf_counter()
    produce(bootstrap, PROFILES, list(shop.profiles(began)), console)
    produce(bootstrap, EVENTS, shop.arrivals(events, began, truth), console)
    console.print(
        f"[bold]events[/]     {truth.arrivals:,} sent in {time.perf_counter() - started:.1f} s: "
        f"{truth.repeated:,} repeat another, {truth.dead:,} are broken or far too late"
    )
    return truth


def _run_pipeline(bootstrap: str, out: Path, master: str, console: Console) -> None:
    project = load_project(
        HERE, overrides={"bootstrap_servers": bootstrap, "storage": str(out / "tables")}
    )
    started = time.perf_counter()
    with Display(progress := Progress(), sys.stdout):
        run(project, once=True, master=master, progress=progress)
    console.print(f"[bold]pipeline[/]   done in {time.perf_counter() - started:.1f} s")


def _gold(tables: Path) -> dict[str, pd.DataFrame]:
    return {name: DeltaTable(tables / name).to_pandas() for name in SHOWN}


def _judge(tables: Path, bootstrap: str, truth: Truth, console: Console) -> bool:
    """Whether each record sent is where it belongs, and nowhere twice."""
    silver = DeltaTable(tables / "silver").to_pandas(columns=["event_id", "behavior", "price"])
    quarantine = DeltaTable(tables / "quarantine").to_pandas()
    bought = silver[silver["behavior"] == "buy"]
    checks = {
        "in bronze, every record": (_rows(tables / "bronze"), truth.arrivals),
        "in silver, each event once": (silver["event_id"].nunique(), truth.good.total()),
        "in silver, rows": (len(silver), truth.good.total()),
        "in quarantine": (len(quarantine), truth.dead),
        "dead letters in the topic": (_records(bootstrap, DEAD), truth.dead),
        "purchases in the topic": (_records(bootstrap, PURCHASES), truth.good["buy"]),
        "revenue in cents": (round(bought["price"].sum() * 100), truth.cents),
        "lag": (_lag(bootstrap), 0),
    }
    shown = Table("what", "found", "sent", "", title="Was anything lost or doubled?")
    for name, (found, sent) in checks.items():
        shown.add_row(name, f"{found:,}", f"{sent:,}", "ok" if found == sent else "[red]WRONG")
    console.print(shown)
    _show_dead(quarantine, console)
    return all(found == sent for found, sent in checks.values())


def _show_dead(quarantine: pd.DataFrame, console: Console) -> None:
    """What the dead letters lack; one may lack several things."""
    shown = Table("it is not so that it", "events", title="Why is an event a dead letter?")
    for reason, count in quarantine["_reasons"].explode().value_counts().items():
        shown.add_row(str(reason), f"{count:,}")
    console.print(shown)


def _rows(table: Path) -> int:
    return int(DeltaTable(table).to_pyarrow_dataset().count_rows())


def _records(bootstrap: str, topic: str) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        count = len(admin.describe_topics([topic])[topic].partitions)
        return sum(admin.end_offsets([(topic, number) for number in range(count)]).values())


def _lag(bootstrap: str) -> int:
    """What the pipeline's groups have not read, as every group tool computes it."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        committed = {
            partition: offset.offset
            for group in admin.list_groups()
            if group.group_id.startswith("behavior.")
            for partition, offset in admin.group_offsets(group.group_id).items()
        }
        ends = admin.end_offsets(list(committed))
    return sum(ends[partition] - offset for partition, offset in committed.items())


def _show(tables: dict[str, pd.DataFrame], console: Console) -> None:
    for name, (column, what, rows) in SHOWN.items():
        table = tables[name].sort_values(column, ascending=False)
        shown = Table(*map(str, table.columns), title=f"{name}: {what} ({len(table):,} rows)")
        for row in table.head(rows).itertuples(index=False):
            shown.add_row(*map(_cell, row))
        console.print(shown)


def _cell(value: object) -> str:
    if isinstance(value, pd.Timestamp):
        return f"{value:%H:%M:%S}"
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _numbers(truth: Truth, tables: dict[str, pd.DataFrame]) -> dict[str, str]:
    return {
        "events": f"{tables['per_minute']['events'].sum():,}",
        "people": f"{tables['by_level']['users'].sum():,}",
        "visits": f"{len(tables['sessions']):,}",
        "purchases": f"{tables['sessions']['bought'].sum():,}",
        "revenue": f"{tables['by_level']['revenue'].sum():,.0f}",
        "dead letters": f"{truth.dead:,}",
    }


def _stay(bootstrap: str, page: Path, console: Console) -> None:
    console.print(f"\nThe broker stays up at {bootstrap} until Ctrl-C. In another terminal, try:")
    console.print(f"  .venv/bin/headwater groups describe behavior.bronze -b {bootstrap}")
    console.print(f"  .venv/bin/headwater consume {DEAD} --from start -b {bootstrap}")
    console.print(f"and open {page.as_uri()}")
    with suppress(KeyboardInterrupt):
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
