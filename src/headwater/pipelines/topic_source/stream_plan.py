"""Plans where each micro-batch of a stream begins and ends, on the driver.

Spark keeps offsets in its checkpoint, but not where a query began. A query that starts at `latest`
and dies in its first batch would start later the next time and lose the records between. So if a
start cannot be computed again, the first batch is empty: Spark does keep its end, which is the
start.
"""

from typing import Final

from headwater.config.keys import ConfigError
from headwater.model import TopicPartition, Uuid
from headwater.pipelines.topic_source.offsets import OffsetRange, Offsets, advance, backlog, ranges
from headwater.pipelines.topic_source.options import SourceOptions
from headwater.pipelines.topic_source.pace import Pace
from headwater.pipelines.topic_source.topics_view import TopicsView
from headwater.seams.clock import Clock, SystemClock

NEVER: Final = 1 << 62


class StreamPlan:
    """One run of one streaming query."""

    def __init__(
        self,
        options: SourceOptions,
        view: TopicsView | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = options
        self._view = TopicsView(options) if view is None else view
        self._clock = SystemClock() if clock is None else clock
        self._ids: dict[str, Uuid] = {}
        self._anew: set[str] = set()
        """Topics that the last lookup found recreated."""
        self._same: set[str] = set()
        """Topics that the last lookup found unchanged."""
        self._initial: Offsets | None = None
        self._pinned: Offsets | None = None
        """The start, until the batch that records it is planned."""
        self._pin_told = False
        self._target: Offsets | None = None
        self._pace = None if options.target_ms is None else Pace(options.target_ms)
        self._planned_ms: int | None = None
        """When the last batch with something to read was planned."""
        self._planned_rows = 0
        self._planned_less = False
        """Whether the limit kept that batch from reading all that there was."""
        self.known_latest: Offsets | None = None
        """The ends of the topics at the last lookup."""

    def initial(self) -> Offsets:
        """Return where a query without a checkpoint begins; constant for the whole run."""
        if self._initial is None:
            seen = self._view.all_seen()
            self._ids.update(seen.ids)
            ends = self._view.ends(seen.partitions)
            self._initial = self._view.starts(self._options.starting, ends)
            if (
                self._target is not None
            ):  # the end was fixed before the start: later records are beyond it
                self._target = dict(ends.latest)
            if not self._options.starting.repeatable:
                self._pinned = self._initial
        return self._initial

    def stop_here(self) -> None:
        """Fix the end of the stream to the current ends, for Trigger.AvailableNow."""
        self._target = self._latest({})

    def next_end(self, start: Offsets, max_rows: int | None, min_rows: int | None) -> Offsets:
        """Return where the batch from `start` ends; `start` itself if none is due."""
        if self._pins(start):
            return start
        latest = self._target if self._target is not None else self._latest(start)
        self.known_latest = latest
        rewound = self._rewound(start, latest)
        available = backlog(start, latest)
        if self._too_few(available, min_rows) and not rewound:
            return start
        limit = max_rows
        if self._pace is not None and limit is not None:
            limit = min(limit, self._paced())
        end = advance(start, latest, limit, rewound)
        if end != start:
            self._planned_ms = self._clock.monotonic_ms()
            self._planned_rows = sum(one.size for one in ranges(start, end))
            self._planned_less = limit is not None and available > limit
        return end

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return what a batch reads."""
        if start == self._pinned:
            self._pinned = None  # from now on this offset is an ordinary one
            return []
        return ranges(start, end)

    def _pins(self, start: Offsets) -> bool:
        """Whether the empty first batch is due; a second call means that it is over."""
        if start != self._pinned:
            return False
        if self._pin_told:
            self._pinned = None
            return False
        self._pin_told = True
        return True

    # -- batch sizes

    def _too_few(self, available: int, min_rows: int | None) -> bool:
        """Whether to wait for more rows: not in the first batch, and not forever."""
        if min_rows is None or self._target is not None or available >= min_rows:
            return False
        return self._since_planned() < self._options.max_delay_ms

    def _paced(self) -> int:
        """Return the row limit for the target duration; a new call means the last batch is over."""
        assert self._pace is not None
        if self._planned_rows:
            elapsed = self._since_planned()
            self._pace.took(self._planned_rows, elapsed, limited=self._planned_less)
            self._planned_rows = 0
        return self._pace.rows

    def _since_planned(self) -> int:
        planned = self._planned_ms
        return NEVER if planned is None else self._clock.monotonic_ms() - planned

    # -- changes of topics

    def _latest(self, start: Offsets) -> Offsets:
        """Look up the ends of all partitions; retry if one is behind what was read.

        A new leader may briefly report a lower end than the old one.
        """
        attempt = 0
        while True:
            attempt += 1
            seen = self._view.seen()
            self._anew = {
                name for name, known in seen.ids.items() if self._ids.get(name, known) != known
            }
            self._same = seen.ids.keys() & self._ids.keys() - self._anew
            latest = self._view.visible_ends(seen.partitions, start)
            behind = any(latest.get(where, 0) < offset for where, offset in start.items())
            if not behind or attempt >= self._options.lookups:
                self._ids.update(seen.ids)
                return latest
            self._view.brokers.pause(self._options.lookup_interval_ms)

    def _rewound(self, start: Offsets, latest: Offsets) -> list[TopicPartition]:
        """Return partitions with other records than those read so far."""
        self._check_checkpoint(start, latest)
        found = []
        for where, offset in sorted(start.items()):
            if where not in latest:
                self._view.lost(
                    f"{where} is gone: the topic was deleted after the query had read to offset {offset}"
                )
            elif where.topic in self._same and latest[where] < offset:
                self._view.lost(
                    f"{where}: the log was truncated: the query had read to offset {offset}, and the "
                    f"partition ends at {latest[where]}. With failOnDataLoss=false the query "
                    f"continues at {offset}, without records written before it"
                )
            elif offset and (where.topic in self._anew or latest[where] < offset):
                self._view.lost(
                    f"{where}: the topic was deleted and recreated: the query had read to offset "
                    f"{offset}, and the partition ends at {latest[where]}. Start over with a new "
                    f"checkpoint; with failOnDataLoss=false the new topic is read from its beginning"
                )
                found.append(where)
        self._anew = set()
        return found

    def _check_checkpoint(self, start: Offsets, latest: Offsets) -> None:
        """Refuse the offsets of another source: Spark numbers a query's inputs by their order."""
        theirs = sorted({where.topic for where in start})
        ours = {where.topic for where in latest}
        if not theirs or not ours or ours & set(theirs) or self._options.pattern is not None:
            return
        raise ConfigError(
            f"the checkpoint is of a stream from {', '.join(theirs)}, and this one reads "
            f"{', '.join(sorted(ours))}: keep the order of a query's inputs, or use a new "
            "checkpoint"
        )
