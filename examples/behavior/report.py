"""One HTML page about a run: was it right, what ran, where the tables are, and what they say."""

import base64
import html
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from deltalake import DeltaTable
from examples.behavior.charts import CHARTS, Chart, euros
from examples.behavior.checks import Check

_MONEY = ("revenue", "revenue_per_user", "price")
_SHARES = ("of_first", "of_previous")
_ABOUT_THE_RUN = ("lag", "batches", "dead-letters")
_ROWS_SHOWN = 20


@dataclass(frozen=True)
class Report:
    """Everything the page shows."""

    checks: Sequence[Check]
    numbers: Mapping[str, str]
    graph: str
    """SVG."""
    pictures: Mapping[str, bytes]
    tables: Mapping[str, pd.DataFrame]
    storage: Path
    seconds: float


def write(report: Report, folder: Path) -> Path:
    """Write `report.html` into the folder; its path."""
    page = folder / "report.html"
    page.write_text(_page(report, folder), encoding="utf-8")
    return page


def header(column: str) -> str:
    """A column's name for people."""
    return f"{column} (UTC)" if column in ("minute", "started", "began") else column


def cell(column: str, value: object) -> str:
    """A value for people: thousands apart, money with its unit, times with their date."""
    if isinstance(value, pd.Timestamp | datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, float) and pd.isna(value):
        return "-"
    if column in _SHARES:
        return f"{value:.0%}"
    if column in _MONEY:
        return euros(float(str(value)), 2)
    if isinstance(value, float):
        return f"{value:,.2f}".removesuffix(".00")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _page(report: Report, folder: Path) -> str:
    wrong = [check.what for check in report.checks if not check.holds]
    sent = next(check.sent for check in report.checks)
    verdict = (
        f"Wrong: {', '.join(wrong)}"
        if wrong
        else f"{sent:,} records in, every one accounted for: none lost, none doubled"
    )
    about_run = [chart for chart in CHARTS if chart.name in _ABOUT_THE_RUN]
    about_shop = [chart for chart in CHARTS if chart.name not in _ABOUT_THE_RUN]
    return _PAGE.format(
        when=f"{datetime.now(UTC):%A, %-d %B %Y, %H:%M} UTC",
        seconds=f"{report.seconds:.0f}",
        verdict=html.escape(verdict),
        color="#a61b1b" if wrong else "#1c6b45",
        checks=_table(
            ("", "found", "sent"),
            ((check.what, f"{check.found:,}", f"{check.sent:,}") for check in report.checks),
        ),
        graph=report.graph,
        run="".join(_section(chart, report) for chart in about_run),
        tables=_table(("table", "rows", "files", "MiB", "folder"), _files(report.storage, folder)),
        tiles="".join(
            f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"
            for name, value in report.numbers.items()
        ),
        shop="".join(_section(chart, report) for chart in about_shop),
    )


def _section(chart: Chart, report: Report) -> str:
    data = base64.b64encode(report.pictures[chart.name]).decode()
    table = report.tables[chart.table]
    more = f", first {_ROWS_SHOWN} of {len(table):,} rows" if len(table) > _ROWS_SHOWN else ""
    columns = [str(column) for column in table.columns]
    rows = (
        [html.escape(cell(column, value)) for column, value in zip(columns, row, strict=True)]
        for row in table.head(_ROWS_SHOWN).itertuples(index=False, name=None)
    )
    return (
        f'<figure><img alt="{html.escape(chart.title)}" src="data:image/png;base64,{data}">'
        f"<details><summary>the numbers: {html.escape(chart.table)}{more}</summary>"
        f"{_table(map(header, columns), rows)}</details></figure>"
    )


def _files(storage: Path, folder: Path) -> Iterable[tuple[str, ...]]:
    """A row for each table: how large it is, and a link to it."""
    for log in sorted(storage.glob("*/_delta_log")):
        table = DeltaTable(log.parent)
        actions = table.get_add_actions(flatten=True)
        sizes = actions.column("size_bytes").to_pylist() if actions.num_rows else []
        rows = int(table.to_pyarrow_dataset().count_rows())
        link = html.escape(os.path.relpath(log.parent, folder))
        yield (
            html.escape(log.parent.name),
            f"{rows:,}",
            f"{len(sizes):,}",
            f"{sum(sizes) / 2**20:,.1f}",
            f'<a href="{link}/">{link}</a>',
        )


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in headers)
    body = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>An evening in a shop, from topic to table</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: 0; }}
h2 {{ font-size: 1.2rem; margin: 3rem 0 .5rem; }}
.quiet, summary {{ color: #616e7c; }}
.verdict {{ font-size: 1.1rem; font-weight: 600; color: {color}; margin: 1rem 0; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 1rem 0; }}
.tiles b {{ display: block; font-size: 1.5rem; }}
.tiles span {{ color: #616e7c; }}
.wide {{ overflow-x: auto; }}
figure {{ margin: 1.5rem 0; }}
img, svg {{ width: 100%; height: auto; }}
svg .name {{ font: 600 13px system-ui, sans-serif; fill: #1f2933; }}
svg .rows {{ font: 12px system-ui, sans-serif; fill: #616e7c; }}
.legend span {{ margin-right: 1.2rem; }}
.legend i {{ display: inline-block; width: .7rem; height: .7rem; border-radius: 2px; margin-right: .4rem; }}
summary {{ cursor: pointer; }}
table {{ border-collapse: collapse; font-size: 13px; margin-top: .5rem; font-variant-numeric: tabular-nums; }}
td, th {{ text-align: right; padding: .25rem .8rem; border-bottom: 1px solid #e4e7eb; white-space: nowrap; }}
td:first-child, th:first-child {{ text-align: left; padding-left: 0; }}
</style></head><body>
<h1>An evening in a shop, from topic to table</h1>
<p class="quiet">A Headwater broker, the pipeline in <code>examples/behavior</code> on Spark, {seconds} s. {when}.</p>
<p class="verdict">{verdict}</p>
<details><summary>each check</summary>{checks}</details>
<h2>The pipeline</h2>
<p class="legend quiet"><span><i style="background:#d99a1c"></i>topic</span><span><i style="background:#2a6fb0"></i>table</span><span><i style="background:#3f9168"></i>view</span><span><i style="background:#d9662b"></i>refused events</span></p>
{graph}
{run}
<h2>The tables</h2>
{tables}
<h2>The shop</h2>
<div class="tiles">{tiles}</div>
{shop}
</body></html>
"""
