"""Builds the coordinators of a broker, one function for each."""

from functools import partial

from headwater.broker.context import Context
from headwater.broker.handlers.markers import write_markers
from headwater.broker.handlers.transactions import add_or_verify
from headwater.broker.marker_loop import MarkerLoop
from headwater.broker.partition_writer import PartitionWriter
from headwater.broker.timers import PatientTimers
from headwater.broker.transaction_verifier import TransactionVerifier
from headwater.broker.wall_clock import BelievedClock
from headwater.coordination.coordinators import Coordinators
from headwater.coordination.group_coordinator import (
    GroupCoordinator,
    group_coordinator,
    offsets_topic,
)
from headwater.coordination.groups.settings import GroupSettings
from headwater.coordination.transaction_coordinator import (
    TransactionCoordinator,
    transaction_coordinator,
    transaction_topic,
)
from headwater.coordination.transactions.settings import TransactionSettings
from headwater.seams.timers import CallLater


def compose_coordinators(context: Context, call_later: CallLater) -> None:
    """Add the coordinators to `context`, whose replicas must exist."""
    timers = PatientTimers(call_later, context.clock.monotonic_ms)
    context.coordinators = Coordinators()
    context.groups = _groups(context, timers)
    context.coordinators.add(context.groups)
    context.markers = MarkerLoop(
        context, context.peers.open, partial(write_markers, context), call_later
    )
    context.verifier = TransactionVerifier(
        context, context.peers.open, partial(add_or_verify, context), call_later
    )
    context.transactions = _transactions(context, timers)
    context.coordinators.add(context.transactions)


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


def _transactions(context: Context, timers: PatientTimers) -> TransactionCoordinator:
    topic = transaction_topic(context.settings)
    writer = PartitionWriter(
        topic.name, context.replicas, context.coordinators.append_failed, context.off_loop
    )
    return transaction_coordinator(
        topic,
        TransactionSettings.of(context.settings),
        on_prepared=context.markers.prepared,
        log=writer,
        topics=context.metadata,
        clock=BelievedClock(context.clock, context.wall_clock),
        call_later=timers,
    )
