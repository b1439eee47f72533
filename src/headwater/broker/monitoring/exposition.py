"""The metrics of a broker as Prometheus' text, made in steps."""

from collections.abc import Collection, Iterator
from functools import partial
from heapq import nlargest

from headwater import __version__
from headwater.broker.cleaner_loop import LogCleaner
from headwater.broker.context import Context
from headwater.broker.monitoring.end_offsets import EndOffsets
from headwater.broker.monitoring.loop_watch import LoopWatch
from headwater.broker.monitoring.metric_table import METRICS
from headwater.broker.monitoring.survey import (
    MOST_CLIENTS,
    MOST_TOPICS,
    OTHER,
    GroupPosition,
    Survey,
    TopicTotals,
    take_survey,
)
from headwater.broker.storage_health import StorageHealth
from headwater.broker.turns import Steps
from headwater.errors import error_of
from headwater.observe.metrics import Histogram, Metrics, Sample
from headwater.wire.apis import API


class Exposition:
    """Reads everything that the table lists. Builds one text at a time."""

    def __init__(
        self,
        context: Context,
        cleaner: LogCleaner,
        health: StorageHealth,
        ends: EndOffsets,
        watch: LoopWatch | None,
    ) -> None:
        self.registry = Metrics(METRICS)
        self._context = context
        self._counters = context.metrics
        self._ends = ends
        self._found = Survey()
        self._show_broker()
        self._show_requests()
        self._show_topics()
        self._show_replicas()
        self._show_groups()
        self._show_storage(health)
        _show_cleaner(self.registry, cleaner)
        if watch is not None:
            _show_watch(self.registry, watch)

    def text(self, asked: Collection[str] = ()) -> Steps[bytes]:
        """Make the text in steps; `asked` are topics whose partitions are shown one by one."""
        self._found = yield from take_survey(self._context, self._ends, asked)
        lines: list[str] = []
        for line in self.registry.lines():
            lines.append(line)
            yield
        self._found = Survey()
        yield from self._ends.ask_leaders()
        return "".join(lines).encode()

    # -- what is shown

    def _show_broker(self) -> None:
        show, context, counters = self.registry, self._context, self._counters
        names = (__version__, context.metadata.cluster_id, str(context.node_id))
        show.show("headwater_build_info", lambda: [(names, 1)])
        show.show_one("headwater_serving", lambda: int(context.serving))
        show.show_one("headwater_recovery_seconds", lambda: counters.recovery_ms / 1000)
        show.show_one("headwater_recovery_scanned_bytes", lambda: counters.recovery_bytes)
        show.show_one("headwater_store_connected", lambda: int(counters.store_connected))

    def _show_requests(self) -> None:
        show, context, counters = self.registry, self._context, self._counters
        quotas, sessions = context.connection_quotas, context.sessions
        show.show("headwater_requests_total", self._requests)
        show.show("headwater_request_errors_total", self._errors)
        show.show_histograms("headwater_request_seconds", self._request_times)
        show.show_one("headwater_waiting_requests", lambda: len(context.purgatory))
        show.show_one("headwater_connections", lambda: len(quotas.open))
        show.show_one(
            "headwater_connections_rejected_total",
            lambda: quotas.rejected + context.client_quotas.rejected_connections,
        )
        show.show("headwater_quota_throttle_seconds_total", self._throttle_times)
        show.show("headwater_clients", self._clients)
        show.show(
            "headwater_network_bytes_total",
            lambda: [
                (("in",), counters.closed_bytes_in + self._found.bytes_in),
                (("out",), counters.closed_bytes_out + self._found.bytes_out),
            ],
        )
        show.show_one(
            "headwater_request_memory_bytes",
            lambda: context.memory.used + context.memory_before_login.used,
        )
        show.show_one("headwater_request_memory_limit_bytes", lambda: context.memory.limit)
        show.show_one("headwater_fetch_sessions", lambda: len(sessions))
        show.show_one("headwater_fetch_session_evictions_total", lambda: sessions.evictions)

    def _show_topics(self) -> None:
        show, counters = self.registry, self._counters
        show.show("headwater_topic_bytes_total", self._topic_bytes)
        show.show_one("headwater_replication_bytes_in_total", lambda: counters.replication_bytes_in)
        show.show("headwater_topic_end_offset", lambda: _each(self._topics, "end_offset"))
        show.show("headwater_log_bytes", lambda: _each(self._topics, "size"))
        show.show("headwater_log_segments", lambda: _each(self._topics, "segments"))
        for name, attribute in (
            ("headwater_partition_log_bytes", "size"),
            ("headwater_partition_start_offset", "start_offset"),
            ("headwater_partition_end_offset", "end_offset"),
        ):
            show.show(name, partial(self._partitions, attribute))
        show.show_one(
            "headwater_topics_left_out", lambda: max(0, len(self._found.topics) - MOST_TOPICS)
        )

    def _show_replicas(self) -> None:
        show, context, counters = self.registry, self._context, self._counters
        for name, attribute in (
            ("headwater_partitions", "partitions"),
            ("headwater_leaders", "leaders"),
            ("headwater_under_replicated_partitions", "under_replicated"),
            ("headwater_under_min_isr_partitions", "under_min_isr"),
            ("headwater_at_min_isr_partitions", "at_min_isr"),
            ("headwater_offline_replicas", "offline_replicas"),
            ("headwater_cluster_topics", "cluster_topics"),
            ("headwater_cluster_partitions", "cluster_partitions"),
            ("headwater_offline_partitions", "offline_partitions"),
            ("headwater_preferred_replica_imbalance", "imbalance"),
        ):
            show.show_one(name, partial(self._total, attribute))
        show.show_one("headwater_isr_shrinks_total", lambda: counters.isr_shrinks)
        show.show_one("headwater_isr_expands_total", lambda: counters.isr_expands)
        controller = context.controller
        show.show_one("headwater_active_controller", lambda: int(controller.active))
        show.show_one(
            "headwater_live_brokers",
            lambda: len(context.metadata.brokers) if controller.active else 0,
        )
        show.show_one("headwater_unclean_elections_total", lambda: controller.unclean_elections)

    def _show_groups(self) -> None:
        show = self.registry
        show.show(
            "headwater_groups",
            lambda: (((state,), count) for state, count in self._found.group_states.items()),
        )
        show.show("headwater_group_lag", lambda: _positions(self._groups, "lag"))
        show.show("headwater_group_lead", lambda: _positions(self._groups, "lead"))
        show.show_one("headwater_groups_left_out", self._groups_left_out)
        show.show("headwater_group_rebalances_total", self._rebalances)

    def _show_storage(self, health: StorageHealth) -> None:
        dirs = self._context.replicas.log_dirs
        self.registry.show_one(
            "headwater_failed_log_dirs",
            lambda: sum(one.offline is not None for one in dirs.dirs) + len(dirs.missing),
        )
        self.registry.show_one("headwater_full_log_dirs", lambda: health.full_dirs)
        self.registry.show_one(
            "headwater_scrub_damaged_segments_total", lambda: self._counters.damaged_segments
        )

    # -- reading

    def _total(self, attribute: str) -> int:
        found: int = getattr(self._found, attribute)
        return found

    @property
    def _topics(self) -> list[tuple[str, TopicTotals]]:
        return list(self._found.topics.items())[:MOST_TOPICS]

    def _topic_bytes(self) -> Iterator[Sample]:
        for name, topic in list(self._counters.topics.items())[:MOST_TOPICS]:
            yield (name, "in"), topic.bytes_in
            yield (name, "out"), topic.bytes_out
            yield (name, "to_followers"), topic.bytes_to_followers

    def _partitions(self, attribute: str) -> Iterator[Sample]:
        for row in self._found.asked:
            yield (row.topic, row.partition), getattr(row, attribute)

    @property
    def _groups(self) -> list[GroupPosition]:
        return self._found.positions

    def _groups_left_out(self) -> int:
        return self._found.left_out_groups

    def _requests(self) -> Iterator[Sample]:
        for key, api in API.items():
            if served := self._counters.requests(key):
                yield (api.name,), served

    def _errors(self) -> Iterator[Sample]:
        for (key, code), count in list(self._counters.errors.items()):
            yield (API[key].name, error_of(code).name), count

    def _request_times(self) -> Iterator[tuple[tuple[str], Histogram]]:
        for key, counters in self._counters.apis.items():
            yield (API[key].name,), counters.time_ms

    def _clients(self) -> Iterator[Sample]:
        clients = self._found.clients
        shown = nlargest(MOST_CLIENTS, clients.items(), key=lambda row: row[1])
        yield from shown
        if len(shown) < len(clients):
            yield (OTHER, OTHER), clients.total() - sum(count for _, count in shown)

    def _throttle_times(self) -> Iterator[Sample]:
        throttled = self._context.client_quotas.throttled()
        for bucket in nlargest(MOST_CLIENTS, throttled, key=lambda one: one.throttled_us):
            key, user, client_id = bucket.owner
            yield (key, user or "", client_id or ""), bucket.throttled_us / 1e6

    def _rebalances(self) -> Iterator[Sample]:
        for (group, reason), count in list(self._counters.rebalances.by_group.items()):
            yield (group, reason.name.lower()), count


def _each(topics: list[tuple[str, TopicTotals]], attribute: str) -> Iterator[Sample]:
    for name, totals in topics:
        yield (name,), getattr(totals, attribute)


def _positions(positions: list[GroupPosition], attribute: str) -> Iterator[Sample]:
    for row in positions:
        yield (row.group, row.topic), getattr(row, attribute)


def _show_cleaner(show: Metrics, cleaner: LogCleaner) -> None:
    show.show_one("headwater_cleaner_passes_total", lambda: cleaner.passes)
    show.show_one("headwater_cleaner_read_bytes_total", lambda: cleaner.read_bytes)
    show.show_one("headwater_cleaner_kept_bytes_total", lambda: cleaner.kept_bytes)
    show.show_one("headwater_cleaner_last_pass_seconds", lambda: cleaner.last_pass_ms / 1000)
    show.show_one("headwater_cleaner_worker_deaths_total", lambda: cleaner.worker_deaths)
    show.show_one("headwater_cleaner_uncleanable_partitions", lambda: len(cleaner.uncleanable))
    show.show_one("headwater_cleaner_max_dirty_ratio", lambda: cleaner.dirtiest_ratio)
    show.show_one("headwater_cleaner_max_delay_seconds", lambda: cleaner.most_overdue_ms / 1000)
    show.show_one("headwater_cleaner_idle_seconds", lambda: cleaner.idle_ms / 1000)


def _show_watch(show: Metrics, watch: LoopWatch) -> None:
    show.show_histograms("headwater_loop_delay_seconds", lambda: [((), watch.delay_ms)])
    show.show_histograms("headwater_gc_pause_seconds", lambda: [((), watch.gc_pause_ms)])
    show.show_one("headwater_loop_idle_ratio", lambda: watch.idle_ratio)
    show.show_one("process_resident_memory_bytes", lambda: watch.use.resident_bytes)
    show.show_one("process_open_fds", lambda: watch.use.open_files)
    show.show_one("process_max_fds", lambda: watch.use.max_files)
    show.show_one("process_cpu_seconds_total", lambda: watch.use.cpu_seconds)
    show.show(
        "headwater_log_dir_size_bytes",
        lambda: (((path,), size) for path, (size, _) in watch.spaces.items()),
    )
    show.show(
        "headwater_log_dir_free_bytes",
        lambda: (((path,), free) for path, (_, free) in watch.spaces.items()),
    )
