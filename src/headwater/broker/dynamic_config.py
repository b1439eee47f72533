"""Applies changed settings of topics, users and of this broker while it runs."""

import logging
from collections.abc import Iterable, Mapping

from headwater.broker.context import Context
from headwater.broker.listening import connection_limits
from headwater.broker.open_files import OpenFiles
from headwater.broker.quota_nodes import entity_at
from headwater.config.broker import BrokerSettings
from headwater.controller.store.znodes import DEFAULT_ENTITY
from headwater.controller.topic_rules import ControllerSettings
from headwater.replication.throttles import ReplicationThrottles
from headwater.security.quotas import QUOTA_KEYS, stored_quotas

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
        context.connection_quotas.use(connection_limits(settings, self._open_files))
        context.controller.use_settings(controller_settings(settings))
        _use_rates(context.throttles, settings)
        for topic in context.replicas.topics():
            context.replicas.topic_settings_changed(topic)
        context.changed()

    def client_changed(self, kind: str, name: str, overrides: Mapping[str, str]) -> None:
        """Apply the quotas of a user, a client or an address, and the credentials of a user."""
        if kind == "users" and name != DEFAULT_ENTITY:
            self._user_changed(name, overrides)
        entity = entity_at(kind, name)
        quotas = stored_quotas(entity, overrides)
        ignored = sorted(QUOTA_KEYS & overrides.keys() - quotas.keys())
        if ignored:
            log.warning("ignored stored quotas of %s: %s", entity, ", ".join(ignored))
        self._context.client_quotas.set(entity, quotas)

    def _user_changed(self, user: str, overrides: Mapping[str, str]) -> None:
        """Apply the stored credentials of a user to logins from now on."""
        for mechanism in self._context.users.replace(user, overrides):
            log.warning(
                "the stored %s credential of user %r cannot be read: set the password again",
                mechanism,
                user,
            )

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
        min_insync_replicas=settings.min_insync_replicas,
        unclean_leader_election=settings.unclean_leader_election_enable,
        delete_topic_enable=settings.delete_topic_enable,
        inter_broker_listener=settings.inter_broker_listener.name,
        auto_leader_rebalance=settings.auto_leader_rebalance_enable,
        leader_imbalance_check_ms=settings.leader_imbalance_check_interval_seconds * 1000,
        leader_imbalance_percentage=settings.leader_imbalance_per_broker_percentage,
    )
