"""One row per API that this broker serves; dispatch derives everything else from it."""

from collections.abc import Callable
from enum import Flag, auto
from typing import Any, NamedTuple

from headwater.broker.context import Context
from headwater.broker.handlers import (
    api_versions,
    cluster,
    configs,
    control,
    coordinators,
    delete_records,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    topics,
)
from headwater.broker.turns import Steps
from headwater.wire.apis import API, Api
from headwater.wire.schema import Struct

Handler = Callable[[Context, Any, Any], Struct | Steps[Struct | None] | None]
"""A handler whose work grows with its request or answer is a generator: see `turns`."""


class Listeners(Flag):
    """Where an API is served: on the listeners of clients, or on the controller's channel."""

    CLIENT = auto()
    CONTROL = auto()


class ServedApi(NamedTuple):
    """One row."""

    api: Api
    handler: Handler
    listeners: Listeners = Listeners.CLIENT


def _row(key: int, handler: Handler, listeners: Listeners = Listeners.CLIENT) -> ServedApi:
    return ServedApi(API[key], handler, listeners)


SERVED: dict[int, ServedApi] = {
    row.api.key: row
    for row in (
        _row(0, produce.handle_produce),
        _row(1, fetch.handle_fetch),
        _row(2, offsets.handle_list_offsets),
        _row(3, metadata.handle_metadata),
        _row(4, control.handle_leader_and_isr, Listeners.CONTROL),
        _row(5, control.handle_stop_replica, Listeners.CONTROL),
        _row(6, control.handle_update_metadata, Listeners.CONTROL),
        _row(8, group_offsets.handle_offset_commit),
        _row(9, group_offsets.handle_offset_fetch),
        _row(10, coordinators.handle_find_coordinator),
        _row(11, groups.handle_join_group),
        _row(12, groups.handle_heartbeat),
        _row(13, groups.handle_leave_group),
        _row(14, groups.handle_sync_group),
        _row(15, groups.handle_describe_groups),
        _row(16, groups.handle_list_groups),
        _row(18, api_versions.handle_api_versions),
        _row(19, topics.handle_create_topics),
        _row(20, topics.handle_delete_topics),
        _row(21, delete_records.handle_delete_records),
        _row(22, producers.handle_init_producer_id),
        _row(23, offsets.handle_offset_for_leader_epoch),
        _row(32, configs.handle_describe_configs),
        _row(33, configs.handle_alter_configs),
        _row(35, log_dirs.handle_describe_log_dirs),
        _row(37, topics.handle_create_partitions),
        _row(42, groups.handle_delete_groups),
        _row(44, configs.handle_incremental_alter_configs),
        _row(47, group_offsets.handle_offset_delete),
        _row(60, cluster.handle_describe_cluster),
        _row(61, producers.handle_describe_producers),
        _row(74, configs.handle_list_config_resources),
        _row(75, metadata.handle_describe_topic_partitions),
    )
}

NOT_SERVED = {
    7: "ControlledShutdown needs a second broker that takes the partitions over",
}
"""APIs of the wire table that have no row, and why."""


def served_on(listeners: Listeners) -> dict[int, ServedApi]:
    """The rows of one kind of listener."""
    return {key: row for key, row in SERVED.items() if row.listeners & listeners}
