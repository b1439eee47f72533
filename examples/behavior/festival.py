"""A festival in small: more comes than the pipeline may take, and nobody notices but the lag.

Producers send at a steady rate, then at two and a half times that, then at a quarter of it. The
pipeline takes the steady rate and no more (`maxOffsetsPerTrigger` at a fixed trigger). Its lag, as
every group tool shows it, rises during the peak and drains after it; how long that takes is
predicted when the peak ends, from how fast the pipeline has read until then. No producer waits, and
every event is in the table afterwards.

    python -m examples.behavior.festival [--out lag.png]
"""

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from examples.behavior.charts import BLUE, LINE, ORANGE, PALE, QUIET, STYLE
from matplotlib import rc_context
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from headwater import Admin, Producer
from headwater.pipelines import spark_session, track_lag, write_stream
from headwater.testing import Broker

TOPIC = "festival"
QUERY = "festival"
PARTITIONS = 2
PATIENCE_S = 120.0
_TICK_S = 0.05
_SAMPLE_S = 0.2


@dataclass(frozen=True)
class Plan:
    """How much comes when; rates are events a second."""

    steady: int = 1_000
    peak: int = 2_500
    after: int = 250
    steady_s: float = 4.0
    peak_s: float = 4.0
    trigger_s: float = 1.0

    @property
    def batch(self) -> int:
        """The most that the pipeline takes at a time; when no more waits, it has caught up."""
        return int(self.steady * self.trigger_s)

    @property
    def excess(self) -> int:
        """What the peak brings beyond what the pipeline takes."""
        return int((self.peak - self.steady) * self.peak_s)

    @property
    def peak_ends_s(self) -> float:
        """Seconds from the start."""
        return self.steady_s + self.peak_s

    def due(self, now_s: float) -> int:
        """How many events should have been sent by then."""
        steady = min(now_s, self.steady_s) * self.steady
        peak = min(max(now_s - self.steady_s, 0), self.peak_s) * self.peak
        return int(steady + peak + max(now_s - self.peak_ends_s, 0) * self.after)


class Sample(NamedTuple):
    """What a group tool shows at one moment."""

    at_s: float
    written: int
    read: int

    @property
    def lag(self) -> int:
        """Written and not yet read."""
        return self.written - self.read


@dataclass
class Outcome:
    """What happened."""

    plan: Plan
    samples: list[Sample] = field(default_factory=list)
    predicted_s: float = 0.0
    """Seconds from the peak's end until no more than a batch waits, as reckoned at that moment."""
    drained_s: float = 0.0
    """The same, as it came."""
    sent: int = 0
    longest_send_s: float = 0.0
    waits_for_room: float = 0.0
    """Milliseconds that sends waited for room in the producer's buffer."""

    @property
    def highest_lag(self) -> int:
        """The most that was ever waiting."""
        return max(sample.lag for sample in self.samples)


class Crowd:
    """Sends what is due, in a thread of its own, and notes how long a `send` ever took."""

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        self.sent = 0
        self.longest_s = 0.0
        self.waits_for_room = 0.0
        self._plan = plan
        self._producer = Producer(bootstrap_servers=bootstrap)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> float:
        """Begin; the moment of the beginning."""
        self._began = time.monotonic()
        self._thread.start()
        return self._began

    def send(self) -> None:
        """One event."""
        before = time.perf_counter()
        self._producer.send(TOPIC, b"event %d" % self.sent)
        self.longest_s = max(self.longest_s, time.perf_counter() - before)
        self.sent += 1

    def _run(self) -> None:
        while not self._stop.wait(_TICK_S):
            due = self._plan.due(time.monotonic() - self._began)
            while self.sent < due:
                self.send()

    def finish(self) -> None:
        """Everyone goes home; returns when all is acknowledged."""
        self._stop.set()
        self._thread.join()
        self.waits_for_room = self._producer.metrics()["bufferpool-wait-time-total"]
        self._producer.close()


def hold(spark: SparkSession, bootstrap: str, folder: Path, plan: Plan | None = None) -> Outcome:
    """Hold the festival; the table is in `folder/table` afterwards."""
    outcome = Outcome(plan or Plan())
    with Admin(bootstrap_servers=bootstrap) as admin:
        listener = track_lag(spark, bootstrap)
        query = write_stream(
            spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(outcome.plan.batch))
            .load()
            .selectExpr("CAST(value AS STRING) AS event", "timestamp"),
            f"delta:{folder}/table",
            checkpoint=f"{folder}/checkpoint",
            name=QUERY,
            trigger={"processingTime": f"{round(outcome.plan.trigger_s * 1000)} milliseconds"},
        )
        crowd = Crowd(bootstrap, outcome.plan)
        try:
            crowd.send()
            query.processAllAvailable()  # the first batch takes seconds, whatever is in it
            _watch(admin, crowd, outcome)
            crowd.finish()
            query.processAllAvailable()
        finally:
            crowd.finish()
            query.stop()
            listener.stop()
    outcome.sent, outcome.longest_send_s = crowd.sent, crowd.longest_s
    outcome.waits_for_room = crowd.waits_for_room
    return outcome


def _watch(admin: Admin, crowd: Crowd, outcome: Outcome) -> None:
    """Sample the lag until the peak has drained."""
    plan = outcome.plan
    began = crowd.start()
    while True:
        time.sleep(_SAMPLE_S)
        sample = _sample(admin, time.monotonic() - began)
        outcome.samples.append(sample)
        if sample.at_s > PATIENCE_S:
            raise TimeoutError(f"the lag is still {sample.lag} after {PATIENCE_S:.0f} s")
        if sample.at_s > plan.peak_ends_s:
            outcome.predicted_s = outcome.predicted_s or predicted_s(outcome)
            outcome.drained_s = sample.at_s - plan.peak_ends_s
            if sample.lag <= plan.batch:
                return


def predicted_s(outcome: Outcome) -> float:
    """What waits now, by how much more is read than will come."""
    plan, now = outcome.plan, outcome.samples[-1]
    # Reading goes in steps of a batch: from step to step the time is right.
    steps = [after for before, after in pairwise(outcome.samples) if after.read > before.read]
    rate = float(plan.steady)
    if len(steps) > 1:
        rate = (steps[-1].read - steps[0].read) / (steps[-1].at_s - steps[0].at_s)
    return (now.lag - plan.batch) / max(rate - plan.after, 1)


def _sample(admin: Admin, at_s: float) -> Sample:
    partitions = [(TOPIC, number) for number in range(PARTITIONS)]
    read = sum(offset.offset for offset in admin.group_offsets(QUERY).values())
    return Sample(at_s, sum(admin.end_offsets(partitions).values()), read)


def draw(outcome: Outcome, file: Path) -> None:
    """The lag over time, with the prediction that was made at the peak's end."""
    plan, samples = outcome.plan, outcome.samples
    times = [sample.at_s for sample in samples]
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.subplots()
        axes.set_title(
            "How far behind is the pipeline, and when will it be done?",
            loc="left",
            fontsize=12,
            fontweight="bold",
            pad=12,
        )
        axes.axvspan(plan.steady_s, plan.peak_ends_s, color=LINE, linewidth=0)
        axes.text(plan.steady_s, outcome.highest_lag * 1.06, " peak", color=QUIET, va="bottom")
        axes.fill_between(times, [sample.lag for sample in samples], color=PALE)
        axes.plot(times, [sample.lag for sample in samples], color=BLUE, linewidth=1.8)
        at_end = next(sample for sample in samples if sample.at_s > plan.peak_ends_s)
        done = at_end.at_s + outcome.predicted_s
        axes.plot([at_end.at_s, done], [at_end.lag, plan.batch], color=ORANGE, linestyle="--")
        axes.text(
            *(0.99, 0.97),  # the corner that a lag which drains leaves free
            f"predicted: drained in {outcome.predicted_s:.1f} s\nit took {outcome.drained_s:.1f} s",
            transform=axes.transAxes,
            ha="right",
            va="top",
            color=ORANGE,
        )
        axes.set_xlabel("seconds")
        axes.set_ylabel("events not yet read")
        axes.set_ylim(0, outcome.highest_lag * 1.18)
        axes.margins(x=0)
        axes.grid(axis="y", color=LINE)
        figure.savefig(file, dpi=150, bbox_inches="tight", pad_inches=0.2)


def main() -> int:
    """Hold one with a broker and a Spark of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("festival-lag.png"))
    options = parser.parse_args()
    spark = spark_session("festival", settings={"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder, Broker(subprocess=True) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        outcome = hold(spark, broker.bootstrap, Path(folder))
        spark.stop()
    draw(outcome, options.out)
    print(
        f"{outcome.sent:,} events; the lag rose to {outcome.highest_lag:,}; it was predicted to drain "
        f"in {outcome.predicted_s:.1f} s and took {outcome.drained_s:.1f} s; the longest send took "
        f"{outcome.longest_send_s * 1000:.1f} ms; the chart is {options.out}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
