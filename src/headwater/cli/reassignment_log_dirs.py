"""The part of a plan that names log dirs: what is wrong with it, how far it is, what undoes it. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from headwater.cli.reassignment_plan import LogDirTargets
from headwater.client.admin import LogDirDescription
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition


def check_log_dirs(dirs: Sequence[LogDirDescription], targets: LogDirTargets) -> None:
    """Raise KafkaError if a broker does not have a log dir that the plan names."""
    for broker, paths in targets.items():
        known = {one.path: one.error for one in dirs if one.broker_id == broker}
        for at, path in paths.items():
            if path not in known:
                raise KafkaError(
                    E.LOG_DIR_NOT_FOUND,
                    f"{at}: broker {broker} has no log dir {path}, only {', '.join(known)}; "
                    "nothing is moved",
                )
            if known[path] is not E.NONE:
                raise KafkaError(
                    known[path],
                    f"{at}: log dir {path} of broker {broker} is offline; nothing is moved",
                )


def log_dir_state(
    dirs: Iterable[LogDirDescription], targets: LogDirTargets, at: TopicPartition
) -> str:
    """How far the moves of a partition between log dirs are; "complete" if none is left."""
    left = []
    for broker, paths in sorted(targets.items()):
        if at not in paths:
            continue
        path = paths[at]
        of_broker = {one.path: one for one in dirs if one.broker_id == broker}
        here = next((one.path for one in of_broker.values() if at in one.sizes), None)
        if here == path:
            continue
        if path in of_broker and at in of_broker[path].future_lags:
            lag = of_broker[path].future_lags[at]
            left.append(f"in progress: broker {broker} copies to {path}, {lag} records to go")
        else:
            left.append(f"broker {broker} has it in {here or 'no log dir'}, not in {path}")
    return "; ".join(left) or "complete"


def present_log_dirs(
    dirs: Iterable[LogDirDescription], targets: Mapping[int, Iterable[TopicPartition]]
) -> LogDirTargets:
    """Where these replicas are now: a plan that leaves them there, and cancels their moves."""
    found: LogDirTargets = {}
    for one in dirs:
        for at in targets.get(one.broker_id, ()):
            if at in one.sizes:
                found.setdefault(one.broker_id, {})[at] = one.path
    return found


def moving_replicas(dirs: Iterable[LogDirDescription]) -> dict[int, list[TopicPartition]]:
    """By broker, the replicas that move between its log dirs."""
    found: dict[int, list[TopicPartition]] = {}
    for one in dirs:
        if one.future_lags:
            found.setdefault(one.broker_id, []).extend(one.future_lags)
    return found
