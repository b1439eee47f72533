"""The run and its gold tables as pictures, a PNG each.

Each chart answers one question, which is its title. Marks carry their numbers, so that no reader
has to trace a grid line. Times are UTC, money is in euros.
"""

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

_THOUSANDS = FuncFormatter(lambda value, _: f"{value:,.0f}")


@dataclass(frozen=True)
class Chart:
    """A question, how to draw its answer, and the table the answer comes from."""

    name: str
    title: str
    table: str
    draw: Callable[[Axes, pd.DataFrame], None]
    size: tuple[float, float] = (9, 4)


def draw_all(tables: Mapping[str, pd.DataFrame], folder: Path) -> dict[str, bytes]:
    """Write each chart as a PNG into the folder; the pictures by the names of their charts."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {chart.name: _png(chart, tables[chart.table]) for chart in CHARTS}
    for name, picture in pictures.items():
        (folder / f"{name}.png").write_bytes(picture)
    return pictures


def _png(chart: Chart, table: pd.DataFrame) -> bytes:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=chart.size, layout="constrained")
        axes = figure.subplots()
        axes.set_title(chart.title, loc="left", fontsize=12, fontweight="bold", pad=12)
        chart.draw(axes, table)
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=150, bbox_inches="tight", pad_inches=0.2)
    return written.getvalue()


def lag(axes: Axes, table: pd.DataFrame) -> None:
    """Records that waited in the topics, from batch to batch."""
    reading = table[table["lag"].notna()].reset_index(drop=True)
    ends = _seconds(reading, table) + reading["seconds"]
    before = float(reading["lag"].iloc[0] + reading["rows"].iloc[0])
    times = [0.0, *ends]
    waiting = [before, *reading["lag"]]
    axes.fill_between(times, waiting, step="post", color=PALE, linewidth=0)
    axes.step(times, waiting, where="post", color=BLUE, linewidth=1.8)
    axes.annotate(
        f"{before:,.0f} records are waiting",
        (0, before),
        xytext=(4, 3),
        textcoords="offset points",
        color=QUIET,
    )
    axes.annotate(
        f"lag {waiting[-1]:,.0f} after {times[-1]:.0f} s",
        (times[-1], waiting[-1]),
        xytext=(6, 6),
        textcoords="offset points",
        color=QUIET,
    )
    axes.set_ylim(0, before * 1.15)
    axes.set_xlim(0, float((_seconds(table, table) + table["seconds"]).max()))
    axes.yaxis.set_major_formatter(_THOUSANDS)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_ylabel("records not yet read")
    axes.set_xlabel("seconds since the first batch")
    axes.grid(axis="y", color=LINE)


def batches(axes: Axes, table: pd.DataFrame) -> None:
    """Each batch as a bar: when it ran, how long, how many rows."""
    began = _seconds(table, table)
    flows = list(dict.fromkeys(table["flow"]))
    end = float((began + table["seconds"]).max())
    axes.barh(
        table["flow"], table["seconds"], left=began, color=BLUE, edgecolor="white", height=0.6
    )
    for flow in flows:
        rows = table[table["flow"] == flow]
        last = rows.index[-1]
        told = f"  {rows['rows'].sum():,} rows, slowest batch {rows['seconds'].max():.1f} s"
        axes.text(began[last] + rows["seconds"].iloc[-1], flow, told, va="center", color=QUIET)
    axes.set_ylim(len(flows) - 0.5, -0.5)
    axes.set_xlim(0, end * 1.45)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_xlabel("seconds since the first batch")


def reasons(axes: Axes, table: pd.DataFrame) -> None:
    """Why records were refused."""
    axes.barh(table["reason"], table["events"], color=ORANGE, height=0.6)
    axes.invert_yaxis()
    _bare(axes)
    for row in table.itertuples():
        axes.text(row.events, row.reason, f"  {row.events:,}", va="center")
    axes.set_xlim(0, table["events"].max() * 1.15)


def per_minute(axes: Axes, table: pd.DataFrame) -> None:
    """Events per minute, a line for each behavior and one for all, on a logarithmic scale."""
    counts = table.pivot_table(index="minute", columns="behavior", values="events").fillna(0)
    total = counts.sum(axis=1)
    whole = total >= total.median() / 2  # the first and last minutes are not complete
    counts, total = counts[whole], total[whole]
    smooth = counts.rolling(3, center=True, min_periods=1).mean()
    axes.plot(total.index, total, color=INK, linewidth=1.0)
    for name in counts.columns:
        axes.plot(smooth.index, smooth[name], color=COLORS[name], linewidth=1.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_THOUSANDS)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=LINE)
    axes.set_ylabel("events per minute (log scale)")
    axes.set_xlabel(f"{counts.index[0]:%A, %-d %B %Y}, UTC")
    axes.margins(x=0)
    axes.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
    ends = pd.concat([smooth.iloc[-10:].mean(), pd.Series({"all": total.iloc[-10:].mean()})])
    for name, height in _apart(ends):
        axes.annotate(
            name,
            (counts.index[-1], height),
            xytext=(6, 0),
            textcoords="offset points",
            color=COLORS.get(name, INK),
            va="center",
            annotation_clip=False,
        )
    peak = total.idxmax()
    axes.annotate(
        f"festival: {total.max():,.0f} events in the minute of {peak:%H:%M}",
        (peak, total.max()),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        color=QUIET,
    )
    axes.set_ylim(top=total.max() * 1.8)


def funnel(axes: Axes, table: pd.DataFrame) -> None:
    """People who took every step so far, and their share of the step before."""
    steps = table.sort_values("step")
    axes.barh(steps["stage"], steps["users"], color=BLUE, height=0.62)
    axes.invert_yaxis()
    _bare(axes)
    for row in steps.itertuples():
        share = f" people, {row.of_previous:.0%} of the step before" if row.step > 1 else " people"
        axes.text(row.users, row.stage, f"  {row.users:,}{share}", va="center")
    axes.set_xlim(0, steps["users"].max() * 1.4)


def top_items(axes: Axes, table: pd.DataFrame) -> None:
    """What each item earned by how often it was looked at: the best are named."""
    table = table.assign(browsed=table["browsed"].clip(lower=0.5))  # a log scale has no zero
    axes.scatter(table["browsed"], table["revenue"], s=22, color=PALE, linewidth=0)
    best = table.sort_values("revenue", ascending=False).head(8)
    axes.scatter(best["browsed"], best["revenue"], s=30, color=BLUE, linewidth=0)
    for row in best.itertuples():
        axes.annotate(
            f"{row.item_id} ({row.category}): {euros(row.revenue)}",
            (row.browsed, row.revenue),
            xytext=(-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_THOUSANDS)
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlim(left=table["browsed"].min() / 3)
    axes.set_xlabel("times looked at (log scale)")
    axes.set_ylabel("revenue in euros (log scale)")
    axes.grid(color=LINE)
    axes.set_axisbelow(True)


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
    axes.set_xlabel("length of the visit in minutes")
    axes.set_ylabel("visits")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(_THOUSANDS)
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
        told = f"  {euros(row.revenue_per_user, 2)} each, {row.users:,} people"
        axes.text(row.revenue_per_user, row.level, told, va="center")
    axes.set_xlim(0, rows["revenue_per_user"].max() * 1.3)


def euros(amount: float, places: int = 0) -> str:
    """An amount with its unit."""
    return f"€{amount:,.{places}f}"


def _seconds(batches: pd.DataFrame, run: pd.DataFrame) -> "pd.Series[float]":
    """When each batch began, in seconds since the first batch of the run."""
    return (batches["began"] - run["began"].min()).dt.total_seconds()


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
    Chart("lag", "How far behind was the pipeline?", "batches", lag, (9, 2.6)),
    Chart("batches", "Which flow ran when, and for how long?", "batches", batches, (9, 2.2)),
    Chart("dead-letters", "Why were events refused?", "reasons", reasons, (9, 2.2)),
    Chart("per-minute", "When do people come, and what do they do?", "per_minute", per_minute),
    Chart("funnel", "How far do they go?", "funnel", funnel, (9, 2.6)),
    Chart("top-items", "Which items earn the most?", "top_items", top_items, (9, 4.4)),
    Chart("sessions", "How long is a visit, and does it end in a purchase?", "sessions", sessions),
    Chart("levels", "What does a member spend?", "by_level", by_level, (9, 2.2)),
)
