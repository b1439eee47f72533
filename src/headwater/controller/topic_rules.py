"""Checks whether a topic may be created, grown or deleted. Pure: raises KafkaError.

The order of the checks is Kafka's, so that a request wrong in two ways gets the same error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.config.topic import TopicSettings
from headwater.controller.commands import BROKER_DEFAULT, MorePartitions, TopicCreation
from headwater.controller.placement import Site
from headwater.controller.state import ClusterState, TopicState, metric_name
from headwater.controller.store.znodes import (
    MAX_ASSIGNMENT_BYTES,
    MAX_CONFIG_BYTES,
    encode_config,
)
from headwater.errors import E, KafkaError
from headwater.model import INTERNAL_TOPICS, topic_name_problem

MAX_PARTITIONS_PER_REQUEST = 10_000


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The broker settings that the controller uses."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    delete_topic_enable: bool = True
    inter_broker_listener: str = "PLAINTEXT"
    auto_leader_rebalance: bool = True
    leader_imbalance_check_ms: int = 300_000
    leader_imbalance_percentage: int = 10


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """Partitions to create; `replicas` is None if they are still to be placed."""

    first: int
    count: int
    replication_factor: int
    config: dict[str, str]
    replicas: Sequence[tuple[int, ...]] | None = None


def plan_topic(new: TopicCreation, state: ClusterState, settings: ControllerSettings) -> TopicPlan:
    """Check a new topic, and plan its partitions."""
    _check_name(new, state)
    config = _checked_config(new.configs)
    if new.assignments:
        replicas = _explicit(new, state.brokers)
        _check_fits(new.name, 0, len(replicas), len(replicas[0]), state)
        return TopicPlan(0, len(replicas), len(replicas[0]), config, replicas)
    count, factor = _counts(new, state, settings)
    _check_fits(new.name, 0, count, factor, state)
    return TopicPlan(0, count, factor, config)


def _check_name(new: TopicCreation, state: ClusterState) -> None:
    problem = topic_name_problem(new.name)
    if problem:
        raise KafkaError(E.INVALID_TOPIC_EXCEPTION, problem)
    topic = state.topics.get(new.name)
    if topic is not None:
        state_of = "is still being deleted" if topic.deleting else "already exists"
        raise KafkaError(E.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} {state_of}")
    if new.name in INTERNAL_TOPICS and not new.internal:
        raise KafkaError(
            E.INVALID_TOPIC_EXCEPTION,
            f"topic {new.name!r} is internal: the broker creates it when it is first needed",
        )
    other = state.by_metric_name.get(metric_name(new.name))
    if other is not None:
        raise KafkaError(
            E.INVALID_TOPIC_EXCEPTION,
            f"topic {new.name!r} and the existing topic {other!r} differ only in '.' and '_'",
        )


def _checked_config(configs: Mapping[str, str | None]) -> dict[str, str]:
    config: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise KafkaError(E.INVALID_CONFIG, f"{name} has no value")
        config[name] = value
    problem = TopicSettings.check(config)
    if problem is not None:
        raise problem
    check_configs_fit(config)
    return config


def check_configs_fit(overrides: Mapping[str, str]) -> None:
    """Refuse overrides that the metadata store would not take."""
    size = len(encode_config(overrides))
    if size > MAX_CONFIG_BYTES:
        raise KafkaError(
            E.INVALID_CONFIG,
            f"the configs take {size} bytes, of which the metadata store holds {MAX_CONFIG_BYTES}; "
            "shorten the longest value",
        )


def _check_fits(name: str, present: int, partitions: int, factor: int, state: ClusterState) -> None:
    """Refuse more partitions than the node of a topic can list in the metadata store."""
    if partitions - present > MAX_PARTITIONS_PER_REQUEST:
        return  # refused for that
    digits = len(str(max(state.brokers, default=0)))
    size = partitions * (len(str(partitions)) + 4 + factor * (digits + 1))
    if size > MAX_ASSIGNMENT_BYTES:
        raise KafkaError(
            E.INVALID_PARTITIONS,
            f"topic {name!r} would have {partitions} partitions of {factor} replicas, more than the "
            "metadata store can list for one topic; use several topics",
        )


def _counts(
    new: TopicCreation, state: ClusterState, settings: ControllerSettings
) -> tuple[int, int]:
    factor = new.replication_factor
    factor = settings.default_replication_factor if factor == BROKER_DEFAULT else factor
    if factor <= 0:
        raise KafkaError(
            E.INVALID_REPLICATION_FACTOR,
            f"the replication factor must be at least 1, or -1 for the broker's default, not {factor}",
        )
    count = settings.num_partitions if new.partitions == BROKER_DEFAULT else new.partitions
    if count <= 0:
        raise KafkaError(
            E.INVALID_PARTITIONS,
            f"the number of partitions must be at least 1, or -1 for the broker's default, not {count}",
        )
    factor = min(factor, max(1, len(state.brokers))) if new.clamped else factor
    _check_factor(factor, state)
    return count, factor


def _check_factor(factor: int, state: ClusterState) -> None:
    if factor > len(state.brokers):
        raise KafkaError(
            E.INVALID_REPLICATION_FACTOR,
            f"the replication factor {factor} is larger than the number of live brokers, {len(state.brokers)}",
        )


def sites(state: ClusterState) -> list[Site]:
    """The live brokers, for placement."""
    return [Site(broker.broker_id, broker.node.rack) for broker in state.brokers.values()]


def _explicit(new: TopicCreation, live: Iterable[int]) -> list[tuple[int, ...]]:
    if (new.partitions, new.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
        raise KafkaError(
            E.INVALID_REQUEST,
            "with an explicit assignment, set partitions and replication factor to -1",
        )
    replicas: dict[int, tuple[int, ...]] = {}
    for partition, brokers in new.assignments:
        if partition in replicas:
            raise _bad_assignment(f"partition {partition} is assigned twice")
        replicas[partition] = tuple(brokers)
    for partition in range(len(replicas)):
        if partition not in replicas:
            raise _bad_assignment(
                f"partition {partition} is missing: number them from 0 without gaps"
            )
    in_order = [brokers for _, brokers in sorted(replicas.items())]
    _check_assignments(in_order, live, len(in_order[0]))
    return in_order


def _check_assignments(
    assignments: Sequence[Sequence[int]], live: Iterable[int], factor: int
) -> None:
    known = set(live)
    for brokers in assignments:
        if not brokers:
            raise _bad_assignment("an assignment has no brokers")
        if len(set(brokers)) < len(brokers):
            raise _bad_assignment(f"an assignment names a broker twice: {list(brokers)}")
        unknown = sorted(set(brokers) - known)
        if unknown:
            raise _bad_assignment(f"an assignment names brokers that are not live: {unknown}")
        if len(brokers) != factor:
            raise _bad_assignment(
                f"every partition needs the same number of replicas: {len(brokers)} here, {factor} elsewhere"
            )


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(E.INVALID_REPLICA_ASSIGNMENT, message)


def plan_partitions(more: MorePartitions, state: ClusterState) -> TopicPlan:
    """Plan the partitions to add to an existing topic."""
    topic = existing_topic(more.name, state)
    present = len(topic.partitions)
    if more.name in INTERNAL_TOPICS:
        raise KafkaError(
            E.INVALID_REQUEST,
            f"topic {more.name!r} is internal: with other partitions, groups would lose their offsets",
        )
    if more.total <= present:
        raise KafkaError(E.INVALID_PARTITIONS, _not_more(more, present))
    if any(partition.moving for partition in topic.partitions.values()):
        raise KafkaError(
            E.REASSIGNMENT_IN_PROGRESS,
            f"topic {more.name!r} is being reassigned; add partitions when that has ended",
        )
    added = more.total - present
    factor = topic.replication_factor()
    _check_fits(more.name, present, more.total, factor, state)
    if more.assignments is None:
        _check_factor(factor, state)
        return TopicPlan(present, added, factor, topic.config)
    if len(more.assignments) != added:
        raise _bad_assignment(f"{added} partitions to add, but {len(more.assignments)} assignments")
    _check_assignments(more.assignments, state.brokers, factor)
    return TopicPlan(present, added, factor, topic.config, [tuple(one) for one in more.assignments])


def _not_more(more: MorePartitions, present: int) -> str:
    partitions = f"{present} partition{'' if present == 1 else 's'}"
    if more.total == present:
        return f"topic {more.name!r} already has {partitions}"
    return (
        f"topic {more.name!r} has {partitions} and cannot shrink to {more.total}: "
        "the records of a dropped partition would be lost"
    )


def existing_topic(name: str, state: ClusterState) -> TopicState:
    """The topic, unless it is unknown or being deleted."""
    topic = state.topics.get(name)
    if topic is None or topic.deleting:
        raise KafkaError(E.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    return topic


def deletable_topic(name: str, state: ClusterState, settings: ControllerSettings) -> TopicState:
    """The topic, if it may be deleted."""
    if not settings.delete_topic_enable:
        raise KafkaError(E.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
    topic = existing_topic(name, state)
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            E.INVALID_REQUEST, f"topic {name!r} is internal: groups and transactions live in it"
        )
    return topic


def duplicates(names: Iterable[str]) -> set[str]:
    """The names that appear more than once."""
    seen: set[str] = set()
    twice: set[str] = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return twice
