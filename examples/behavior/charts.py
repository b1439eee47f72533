"""The gold tables as pictures: one PNG for each, and a page that has them all.

Each chart answers one question, which is its title; numbers stand at the marks, so that nobody has
to trace a grid line.
"""

import base64
import html
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

matplotlib.use("Agg")

INK = "#1f2933"
QUIET = "#7b8794"
LINE = "#e4e7eb"
BLUE = "#2a6fb0"
PALE = "#b9d3ea"
ORANGE = "#d9662b"
COLORS = {
    "browse": "#2a6fb0",
    "like": "#b5487f",
    "favourite": "#8a63b8",
    "comment": "#7b8794",
    "cart": "#d99a1c",
    "buy": "#d9662b",
}
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "svg.fonttype": "none",
    "figure.dpi": 110,
}


@dataclass(frozen=True)
class Chart:
    """A question, how to draw its answer, and the table the answer comes from."""

    name: str
    title: str
    table: str
    draw: Callable[[Axes, pd.DataFrame], None]
    size: tuple[float, float] = (9, 4)


def draw_all(tables: Mapping[str, pd.DataFrame], numbers: Mapping[str, str], folder: Path) -> Path:
    """Write the PNGs and `report.html` into the folder; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for chart in CHARTS:
        table = tables[chart.table]
        picture = _png(chart, table)
        (folder / f"{chart.name}.png").write_bytes(picture)
        sections.append(_section(chart, picture, table))
    page = folder / "report.html"
    page.write_text(_page(numbers, sections), encoding="utf-8")
    return page


def _png(chart: Chart, table: pd.DataFrame) -> bytes:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=chart.size, layout="constrained")
        axes = figure.subplots()
        axes.set_title(chart.title, loc="left", fontsize=12, fontweight="bold", pad=12)
        chart.draw(axes, table)
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=150, bbox_inches="tight", pad_inches=0.2)
    return written.getvalue()


def per_minute(axes: Axes, table: pd.DataFrame) -> None:
    """Events a minute, a line for each behaviour, on a logarithmic scale: the rare ones count too."""
    counts = table.pivot_table(index="minute", columns="behavior", values="events").fillna(0)
    total = counts.sum(axis=1)
    counts = counts[total >= total.median() / 2]  # the first and last minutes are not whole
    smooth = counts.rolling(3, center=True, min_periods=1).mean()
    for name in counts.columns:
        axes.plot(smooth.index, smooth[name], color=COLORS[name], linewidth=1.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=LINE)
    axes.set_ylabel("events a minute, log scale")
    axes.margins(x=0)
    axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
    for name, height in _apart(smooth.iloc[-10:].mean()):
        axes.annotate(
            name,
            (counts.index[-1], height),
            xytext=(6, 0),
            textcoords="offset points",
            color=COLORS[name],
            va="center",
            annotation_clip=False,
        )
    peak = counts.sum(axis=1).idxmax()
    axes.annotate(
        f"festival: {counts.sum(axis=1).max():,.0f} a minute",
        (peak, counts.to_numpy().max()),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        color=QUIET,
    )


def funnel(axes: Axes, table: pd.DataFrame) -> None:
    """How many people reach each step, and what part of the step before."""
    steps = table.sort_values("step")
    axes.barh(steps["stage"], steps["users"], color=BLUE, height=0.62)
    axes.invert_yaxis()
    _bare(axes)
    before = None
    for row in steps.itertuples():
        part = f"   {row.users / before:.0%} of the step before" if before else ""
        axes.text(row.users, row.stage, f"  {row.users:,}{part}", va="center")
        before = row.users
    axes.set_xlim(0, steps["users"].max() * 1.35)


def top_items(axes: Axes, table: pd.DataFrame) -> None:
    """The items that brought in the most."""
    best = table.sort_values("revenue", ascending=False).head(12)
    names = [f"{row.item_id} · {row.category}" for row in best.itertuples()]
    axes.barh(names, best["revenue"], color=BLUE, height=0.66)
    axes.invert_yaxis()
    _bare(axes)
    for name, row in zip(names, best.itertuples(), strict=True):
        axes.text(row.revenue, name, f"  {row.revenue:,.0f}  ({row.bought:,} bought)", va="center")
    axes.set_xlim(0, best["revenue"].max() * 1.22)


def sessions(axes: Axes, table: pd.DataFrame) -> None:
    """How long visits are, and in which of them something was bought."""
    edges = [0, 1, 2, 5, 10, 20, 30, 60, 120, 10_000]
    labels = [
        "<1",
        "1 to 2",
        "2 to 5",
        "5 to 10",
        "10 to 20",
        "20 to 30",
        "30 to 60",
        "60 to 120",
        ">120",
    ]
    bins = pd.cut(table["minutes"], edges, labels=labels, right=False)
    counts = table.groupby([bins, table["bought"] > 0], observed=False).size().unstack(fill_value=0)
    left, bought = counts.get(False, 0), counts.get(True, 0)
    axes.bar(labels, bought, color=ORANGE, width=0.8, label="something was bought")
    axes.bar(labels, left, bottom=bought, color=PALE, width=0.8, label="nothing was bought")
    axes.set_xlabel("minutes")
    axes.set_ylabel("visits")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=LINE)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper right")


def by_level(axes: Axes, table: pd.DataFrame) -> None:
    """What the people of each membership level spend, per head."""
    rows = table.sort_values("revenue_per_user", ascending=False)
    axes.barh(rows["level"], rows["revenue_per_user"], color=BLUE, height=0.6)
    axes.invert_yaxis()
    _bare(axes)
    for row in rows.itertuples():
        told = f"  {row.revenue_per_user:,.2f}  ({row.users:,} people)"
        axes.text(row.revenue_per_user, row.level, told, va="center")
    axes.set_xlim(0, rows["revenue_per_user"].max() * 1.3)


def _apart(heights: "pd.Series[float]", factor: float = 1.5) -> Iterator[tuple[str, float]]:
    """Heights of labels on a logarithmic scale, moved down where they would touch."""
    above = float("inf")
    for name, height in heights.sort_values(ascending=False).items():
        above = min(float(height), above / factor)
        yield str(name), above


def _bare(axes: Axes) -> None:
    """Numbers stand at the bars: no scale is needed."""
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


CHARTS = (
    Chart("per-minute", "When do people come, and what do they do?", "per_minute", per_minute),
    Chart("funnel", "How far do they go?", "funnel", funnel, (9, 2.6)),
    Chart("top-items", "Which items earn the most?", "top_items", top_items, (9, 4.4)),
    Chart("sessions", "How long is a visit, and does it end in a purchase?", "sessions", sessions),
    Chart("levels", "What does a member spend?", "by_level", by_level, (9, 2.2)),
)

_ROWS_SHOWN = 20


def _section(chart: Chart, picture: bytes, table: pd.DataFrame) -> str:
    data = base64.b64encode(picture).decode()
    rows = table.head(_ROWS_SHOWN).to_html(index=False, border=0, float_format="{:,.2f}".format)
    more = f" (first {_ROWS_SHOWN} of {len(table):,})" if len(table) > _ROWS_SHOWN else ""
    return (
        f'<section><img alt="{html.escape(chart.title)}" src="data:image/png;base64,{data}">'
        f"<details><summary>table {html.escape(chart.table)}{more}</summary>{rows}</details></section>"
    )


def _page(numbers: Mapping[str, str], sections: list[str]) -> str:
    tiles = "".join(
        f"<div><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>"
        for name, value in numbers.items()
    )
    return _PAGE.format(tiles=tiles, sections="\n".join(sections))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>User behaviour</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; margin: 1.5rem 0; }}
.tiles b {{ display: block; font-size: 1.5rem; }}
.tiles span {{ color: #7b8794; }}
section {{ margin: 2.5rem 0; }}
img {{ width: 100%; height: auto; }}
summary {{ color: #7b8794; cursor: pointer; }}
table {{ border-collapse: collapse; font-size: 13px; margin-top: .5rem; }}
td, th {{ text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #e4e7eb; }}
</style></head><body>
<h1>User behaviour</h1>
<div class="tiles">{tiles}</div>
{sections}
</body></html>
"""
