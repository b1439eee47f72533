"""Which replicas to move where, and Kafka's JSON for it. Pure.

A plan keeps the replicas on brokers that stay, puts the others on the brokers with the fewest, in racks
that the partition does not have yet, then moves single replicas until the brokers hold equally many.
Each assignment is ordered such that brokers are the preferred leader of equally many partitions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from headwater.model import TopicPartition

Assignment: TypeAlias = dict[TopicPartition, tuple[int, ...]]
LogDirTargets: TypeAlias = dict[int, dict[TopicPartition, str]]
"""By broker, the log dir that each of these replicas is to be in."""
ANY_LOG_DIR = "any"


class ReassignmentPlan(NamedTuple):
    """Kafka's JSON: where replicas are to be, and in which log dirs some of them."""

    replicas: Assignment
    log_dirs: LogDirTargets


def plan(
    present: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """Spread partitions over the brokers in `racks`; ValueError if these are too few."""
    wanted = {at: replication_factor or len(replicas) for at, replicas in present.items()}
    if wanted and max(wanted.values()) > len(racks):
        raise ValueError(
            f"{max(wanted.values())} replicas need as many brokers, and there are {len(racks)}"
        )
    held = dict.fromkeys(racks, 0)
    planned: dict[TopicPartition, list[int]] = {}
    for at, replicas in present.items():
        planned[at] = [broker for broker in replicas if broker in racks][: wanted[at]]
        for broker in planned[at]:
            held[broker] += 1
    for at, brokers in planned.items():
        while len(brokers) < wanted[at]:
            free = (broker for broker in racks if broker not in brokers)
            chosen = min(free, key=lambda one: (_in_rack(one, brokers, racks), held[one], one))
            brokers.append(chosen)
            held[chosen] += 1
    for holders in (present, None):  # what needs no copy comes first
        for first_place in (1, 0):  # followers before preferred leaders
            while _even_out(planned, racks, held, holders, first_place):
                pass
    return _with_spread_leaders(planned)


def _in_rack(broker: int, others: Sequence[int], racks: Mapping[int, str | None]) -> int:
    return sum(racks[one] == racks[broker] for one in others)


def _even_out(
    planned: Mapping[TopicPartition, list[int]],
    racks: Mapping[int, str | None],
    held: dict[int, int],
    holders: Mapping[TopicPartition, Sequence[int]] | None,
    first_place: int,
) -> bool:
    """Move replicas from brokers that hold more to those that hold less; whether any moved.

    With `holders`, only to brokers that have a replica of the partition now.
    """
    moved = False
    for at, brokers in planned.items():
        targets = racks if holders is None else [one for one in holders[at] if one in racks]
        for place, broker in list(enumerate(brokers))[first_place:]:
            others = [one for one in brokers if one != broker]
            free = [
                one
                for one in targets
                if one not in brokers
                and held[broker] - held[one] > 1
                and _in_rack(one, others, racks) <= _in_rack(broker, others, racks)
            ]
            if free:
                chosen = min(free, key=lambda one: (held[one], one))
                brokers[place] = chosen
                held[broker] -= 1
                held[chosen] += 1
                moved = True
    return moved


def _with_spread_leaders(replicas: Mapping[TopicPartition, Sequence[int]]) -> Assignment:
    leads: dict[int, int] = {}
    ordered: Assignment = {}
    for at, brokers in replicas.items():
        first = min(brokers, key=lambda one: leads.get(one, 0))
        leads[first] = leads.get(first, 0) + 1
        ordered[at] = (first, *(one for one in brokers if one != first))
    return ordered


def encode(
    assignment: Mapping[TopicPartition, Sequence[int]], log_dirs: LogDirTargets | None = None
) -> str:
    """Kafka's JSON, as kafka-reassign-partitions reads and writes it."""
    rows = []
    for at, replicas in sorted(assignment.items()):
        row = {"topic": at.topic, "partition": at.partition, "replicas": list(replicas)}
        paths = [(log_dirs or {}).get(broker, {}).get(at, ANY_LOG_DIR) for broker in replicas]
        if set(paths) - {ANY_LOG_DIR}:
            row["log_dirs"] = paths
        rows.append(row)
    return json.dumps({"version": 1, "partitions": rows})


def decode(text: str) -> ReassignmentPlan:
    """Read that JSON; ValueError says what is wrong with it."""
    try:
        value = json.loads(text)
    except ValueError as broken:
        raise ValueError(f"this is not JSON: {broken}") from None
    rows = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(rows, list) or value.get("version", 1) != 1:
        raise ValueError('write {"version": 1, "partitions": [{"topic", "partition", "replicas"}]}')
    found = ReassignmentPlan({}, {})
    for row in rows:
        try:
            at = TopicPartition(str(row["topic"]), int(row["partition"]))
            if not isinstance(row["replicas"], list):
                raise TypeError
            replicas = tuple(int(broker) for broker in row["replicas"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                'a partition is {"topic": "orders", "partition": 0, "replicas": [1, 2]}, '
                f"not {json.dumps(row)}"
            ) from None
        if at in found.replicas:
            raise ValueError(f"{at} appears twice")
        found.replicas[at] = replicas
        for broker, path in _log_dirs(at, replicas, row.get("log_dirs")).items():
            found.log_dirs.setdefault(broker, {})[at] = path
    return found


def _log_dirs(at: TopicPartition, replicas: tuple[int, ...], paths: object) -> dict[int, str]:
    if paths is None:
        return {}
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ValueError(f'the log_dirs of {at} are a list of paths, such as ["/disk2", "any"]')
    if len(paths) != len(replicas):
        raise ValueError(f"{at} has {len(replicas)} replicas and {len(paths)} log_dirs")
    named = zip(replicas, paths, strict=True)
    return {broker: path for broker, path in named if path != ANY_LOG_DIR}
