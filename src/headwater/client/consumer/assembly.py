"""What a consumer is made of: its parts, put together on the event loop."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.consumer.assignors import Assignor, assignors_named
from headwater.client.consumer.deserializers import Deserializer, deserializer, reshaping
from headwater.client.consumer.fetching.fetcher_loop import Fetcher
from headwater.client.consumer.group.commits import Commits
from headwater.client.consumer.group.group_loop import Group
from headwater.client.consumer.handover import Handover
from headwater.client.consumer.interceptors import ConsumerInterceptor, ConsumerInterceptors
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.offset_lookups import OffsetLookups
from headwater.client.consumer.partition_state import PartitionState
from headwater.client.consumer.positions_loop import PositionResolver
from headwater.client.consumer.record import (
    OffsetAndMetadata,
)
from headwater.client.consumer.subscription import Subscription
from headwater.client.errors import (
    WakeupError,
)
from headwater.config.client import ConsumerSettings
from headwater.errors import KafkaError
from headwater.model import ZERO_UUID, TopicPartition
from headwater.records.codec import ColumnReader
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import Network, TcpNetwork
from headwater.seams.randomness import Randomness, SystemRandomness
from headwater.seams.tasks import LoopTasks

log = logging.getLogger(__name__)

Partitions = Iterable[TopicPartition | tuple[str, int]]
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class Assembly:
    """The parts of one consumer and how they know each other."""

    def __init__(
        self,
        *,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[Assignor] = (),
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Any,
    ) -> None:
        self.settings = ConsumerSettings.of(settings)
        for warning in self.settings.warnings():
            log.warning("%s", warning)
        self.subscription = Subscription()
        self.listener: RebalanceListener | None = None
        self._assignors = list(assignors) or assignors_named(
            self.settings.partition_assignment_strategy
        )
        self._reshape = reshaping(
            deserializer("key_deserializer", key_deserializer),
            deserializer("value_deserializer", value_deserializer),
        )
        self._interceptors = ConsumerInterceptors(interceptors) if interceptors else None
        self._clock = clock or SystemClock()
        self._network = network or TcpNetwork()
        self._randomness = randomness or SystemRandomness()
        self._metrics = ConsumerMetrics()
        self._column_reader = ColumnReader()
        self.handover = Handover()
        self._limit = self.settings.max_poll_records
        self.polling = False
        """Whether poll() is under way; not inside a listener, which is the application's time."""
        self._woken = False
        self._unusable: KafkaError | None = None
        self._started = False
        self._fetcher: Fetcher
        self._cluster: Cluster
        self._positions: PositionResolver
        self._lookups: OffsetLookups
        self._commits: Commits
        self._group: Group | None = None

    async def start(self) -> None:
        """Make what lives on the loop; no broker is asked yet."""
        if self._started:
            return
        self._started = True
        settings, tasks = self.settings, LoopTasks()
        self._cluster = Cluster(
            settings,
            self._network,
            self._clock,
            self._randomness,
            tasks,
            auto_create=settings.allow_auto_create_topics,
        )
        self._fetcher = Fetcher(
            settings,
            self._cluster,
            self.subscription,
            self._network,
            self._clock,
            tasks,
            self._reshape,
            self._metrics,
        )
        self._lookups = OffsetLookups(
            self._cluster, committed_only=settings.isolation_level == "read_committed"
        )
        self._commits = Commits(
            settings, self._cluster, self.subscription, self._clock, tasks, self._metrics
        )
        if self._interceptors is not None:
            self._commits.on_commit = self._interceptors.on_commit
        if settings.group_id is not None:
            self._join_group(tasks)
        self._positions = PositionResolver(
            settings.auto_offset_reset,
            self._cluster,
            self.subscription,
            self._fetcher,
            self._lookups,
            tasks,
            self._commits.committed if self._group is not None else None,
        )
        self._fetcher.on_lost_position = self._positions.start
        self._cluster.listeners.append(self._metadata_came)
        self._metrics.gauges = {
            "records-lag-max": lambda: max(self._known(self._lag_of), default=0),
            "records-lead-min": lambda: min(self._known(PartitionState.lead), default=0),
            "assigned-partitions": lambda: len(self.subscription.partitions),
        }

    def _join_group(self, tasks: LoopTasks) -> None:
        self._group = Group(
            self.settings,
            self._cluster,
            self.subscription,
            self._fetcher,
            self._assignors,
            self._commits,
            self._clock,
            tasks,
            self._metrics,
        )
        self._commits.member = self._group.identity
        self._group.in_poll = lambda: self.polling

    def _metadata_came(self) -> None:
        """Leaders may have moved, topics may have been made anew."""
        for state in self.subscription.partitions.values():
            view = self._cluster.topics.get(state.topic)
            if view is None:
                continue
            if view.topic_id == ZERO_UUID:
                continue  # from an old broker, which knows no ids
            if state.topic_id not in (None, view.topic_id) and state.position is not None:
                self._fetcher.made_anew(state)
            state.topic_id = view.topic_id
        if self._group is not None:
            self._group.metadata_came()
        self._fetcher.changed()

    def _undo_interrupted(self) -> None:
        """Before positions are used: read again what an interrupted poll did not return."""
        if self.handover.undo:
            self.handover.restore_positions()
            self._column_reader = ColumnReader()
            self._fetcher.changed(at_once=True)

    def _lag_of(self, state: PartitionState) -> int | None:
        return state.lag(self.settings.isolation_level == "read_committed")

    def _known(self, read: Callable[[PartitionState], int | None]) -> list[int]:
        numbers = [read(state) for state in list(self.subscription.partitions.values())]
        return [number for number in numbers if number is not None]

    def _raise_pending(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")
        if self._fetcher.failures:
            raise self._fetcher.failures.popleft()
