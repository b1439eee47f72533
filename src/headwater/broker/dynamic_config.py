"""Applies changed settings of topics and of this broker while it runs."""

import logging
from collections.abc import Iterable, Mapping

from headwater.broker.context import Context
from headwater.broker.listening import connection_limits
from headwater.broker.open_files import OpenFiles
from headwater.config.broker import BrokerSettings
from headwater.controller.topic_rules import ControllerSettings
from headwater.replication.throttles import ReplicationThrottles

log = logging.getLogger("headwater.server")


class DynamicConfig:
    """Updates `Context.settings`, `Context.topic_overrides` and the state derived from them."""

    def __init__(self, context: Context, open_files: OpenFiles) -> None:
        self._context = context
        self._open_files = open_files

    def topic_changed(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply new overrides of one topic."""
        context = self._context
        context.topic_overrides[topic] = dict(overrides)
        settings = context.topic_settings(topic)
        context.throttles.cover(
            topic,
            settings.leader_replication_throttled_replicas,
            settings.follower_replication_throttled_replicas,
        )
        context.replicas.topic_settings_changed(topic)
        context.changed()

    def broker_changed(self, scope: str, overrides: Mapping[str, str]) -> None:
        """Apply new overrides of this broker, or of all brokers; both are read again."""
        context = self._context
        settings = context.settings.with_dynamic(
            context.configs.broker_overrides(""),
            context.configs.broker_overrides(str(context.node_id)),
        )
        for problem in settings.ignored:
            log.warning("ignored a stored broker setting: %s", problem.message)
        context.settings = settings
        context.connection_quotas.limits = connection_limits(settings, self._open_files)
        context.controller.use_settings(controller_settings(settings))
        _use_rates(context.throttles, settings)
        for topic in context.replicas.topics():
            context.replicas.topic_settings_changed(topic)
        context.changed()

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Drop the overrides of deleted topics."""
        for topic in topics:
            self._context.configs.forget(topic)
            self._context.topic_overrides.pop(topic, None)
            self._context.throttles.cover(topic, (), ())


def replication_throttles(settings: BrokerSettings) -> ReplicationThrottles:
    """Return throttles with the rates of the settings; what they cover is up to the topics."""
    throttles = ReplicationThrottles(
        settings.node_id,
        settings.replication_quota_window_num,
        settings.replication_quota_window_size_seconds * 1000,
        (
            settings.alter_log_dirs_replication_quota_window_num,
            settings.alter_log_dirs_replication_quota_window_size_seconds * 1000,
        ),
    )
    _use_rates(throttles, settings)
    return throttles


def _use_rates(throttles: ReplicationThrottles, settings: BrokerSettings) -> None:
    throttles.use_rates(
        settings.leader_replication_throttled_rate,
        settings.follower_replication_throttled_rate,
        settings.replica_alter_log_dirs_io_max_bytes_per_second,
    )


def controller_settings(settings: BrokerSettings) -> ControllerSettings:
    """Return the broker settings that the controller uses."""
    return ControllerSettings(
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        unclean_leader_election=settings.unclean_leader_election_enable,
        delete_topic_enable=settings.delete_topic_enable,
        inter_broker_listener=settings.inter_broker_listener.name,
        auto_leader_rebalance=settings.auto_leader_rebalance_enable,
        leader_imbalance_check_ms=settings.leader_imbalance_check_interval_seconds * 1000,
        leader_imbalance_percentage=settings.leader_imbalance_per_broker_percentage,
    )
