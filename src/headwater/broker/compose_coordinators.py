"""Builds the coordinators of a broker, one function for each."""

from headwater.broker.context import Context
from headwater.broker.partition_writer import PartitionWriter
from headwater.broker.timers import PatientTimers
from headwater.broker.wall_clock import BelievedClock
from headwater.coordination.coordinators import Coordinators
from headwater.coordination.group_coordinator import (
    GroupCoordinator,
    group_coordinator,
    offsets_topic,
)
from headwater.coordination.groups.settings import GroupSettings
from headwater.seams.timers import CallLater


def compose_coordinators(context: Context, call_later: CallLater) -> None:
    """Add the coordinators to `context`, whose replicas must exist."""
    timers = PatientTimers(call_later, context.clock.monotonic_ms)
    context.coordinators = Coordinators()
    context.groups = _groups(context, timers)
    context.coordinators.add(context.groups)


def _groups(context: Context, timers: PatientTimers) -> GroupCoordinator:
    topic = offsets_topic(context.settings)
    writer = PartitionWriter(
        topic.name, context.replicas, context.coordinators.append_failed, context.off_loop
    )
    return group_coordinator(
        topic,
        GroupSettings.of(context.settings),
        log=writer,
        topics=context.metadata,
        clock=BelievedClock(context.clock, context.wall_clock),
        randomness=context.randomness,
        call_later=timers,
        rebalances=context.metrics.rebalances,
    )
