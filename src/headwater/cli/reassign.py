"""`headwater reassign`: plan, execute, list, verify and cancel moves to other brokers and log dirs."""

from typing import IO

import click

from headwater.cli.name_completion import TOPIC
from headwater.cli.options import with_admin
from headwater.cli.output import show
from headwater.cli.reach_broker import require_topics
from headwater.cli.reassignment_log_dirs import (
    check_log_dirs,
    log_dir_state,
    moving_replicas,
    present_log_dirs,
)
from headwater.cli.reassignment_plan import (
    ANY_LOG_DIR,
    Assignment,
    LogDirTargets,
    ReassignmentPlan,
    decode,
    encode,
    plan,
)
from headwater.cli.reassignment_throttle import remove_throttles, throttle
from headwater.client.admin import Admin, LogDirDescription, PartitionReassignment
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

plan_argument = click.argument("file", type=click.File())


@click.group("reassign")
def command() -> None:
    """Move partitions to other brokers and log dirs, with Kafka's JSON as the plan."""


def _read(file: IO[str]) -> ReassignmentPlan:
    try:
        return decode(file.read())
    except ValueError as wrong:
        raise click.UsageError(f"{file.name}: {wrong}") from None


async def _present(admin: Admin, names: tuple[str, ...] | list[str]) -> Assignment:
    views = await admin.describe_topics(names)
    return {
        TopicPartition(view.name, row.partition): row.replicas
        for view in views.values()
        for row in view.partitions
    }


async def _log_dirs(admin: Admin, targets: LogDirTargets) -> list[LogDirDescription]:
    return await admin.describe_log_dirs(sorted(targets)) if targets else []


@command.command("plan")
@click.argument("names", nargs=-1, shell_complete=TOPIC)
@click.option(
    "--brokers",
    metavar="ID,ID,...",
    help="The brokers that will hold the topics; by default all live brokers.",
)
@click.option(
    "-r", "--replication-factor", type=click.IntRange(1), help="Another number of replicas."
)
@with_admin
async def plan_(
    admin: Admin,
    names: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    as_json: bool,
) -> None:
    """Print a plan that spreads topics, all by default, evenly over brokers and racks.

    Save it and pass it to execute. Replicas stay where they are as far as possible.
    """
    await require_topics(admin, names)
    live = {node.id: node.rack for node in (await admin.describe_cluster()).brokers}
    chosen = _chosen(brokers, live)
    present = await _present(admin, names or await admin.list_topics(internal=True))
    try:
        planned = plan(present, chosen, replication_factor)
    except ValueError as impossible:
        raise KafkaError(E.INVALID_REPLICATION_FACTOR, str(impossible)) from None
    moved = {at: replicas for at, replicas in planned.items() if replicas != present[at]}
    copies = sum(len(set(replicas) - set(present[at])) for at, replicas in moved.items())
    click.echo(f"{len(moved)} partitions change, {copies} replicas are copied", err=True)
    click.echo(encode(moved))


def _chosen(brokers: str | None, live: dict[int, str | None]) -> dict[int, str | None]:
    if brokers is None:
        return live
    words = [word.strip() for word in brokers.split(",")]
    if wrong := [word for word in words if not word.isdecimal()]:
        raise click.UsageError(f"--brokers {brokers}: {wrong[0]!r} is not the id of a broker")
    ids = [int(word) for word in words]
    if dead := [broker for broker in ids if broker not in live]:
        raise click.UsageError(f"--brokers {brokers}: broker {dead[0]} is not live")
    return {broker: live[broker] for broker in ids}


@command.command()
@plan_argument
@click.option(
    "--rollback",
    type=click.File("w"),
    help="Write the present assignment to this file, as a plan that undoes this one.",
)
@click.option(
    "--throttle",
    "rate",
    metavar="BYTES",
    type=click.IntRange(1),
    help="Copy at most this many bytes per second on each broker, until verify removes the limit.",
)
@with_admin
async def execute(
    admin: Admin, file: IO[str], rollback: IO[str] | None, rate: int | None, as_json: bool
) -> None:
    """Begin the moves of a plan; FILE is - for standard input. All of them begin, or none.

    "log_dirs" in the plan moves replicas to these log dirs of their brokers ("any": no matter which).
    Executed again with another --throttle, it changes the limit of the moves under way.
    """
    targets, log_dirs = _read(file)
    present = await _present(admin, sorted({at.topic for at in targets}))
    if unknown := [at for at in targets if at not in present]:
        raise KafkaError(
            E.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {unknown[0]}; nothing is moved"
        )
    dirs = await _log_dirs(admin, log_dirs)
    check_log_dirs(dirs, log_dirs)
    if rollback is not None:
        moving = await admin.list_reassignments()
        origins = {at: _origin(present[at], moving.get(at)) for at in targets}
        rollback.write(encode(origins, present_log_dirs(dirs, log_dirs)) + "\n")
    if rate is not None:
        await throttle(admin, present, targets, rate)
        click.echo(
            f"copies are limited to {rate} bytes/s on each broker; `headwater reassign verify` "
            "removes the limit once the moves are complete",
            err=True,
        )
    await admin.reassign_partitions(targets)
    if log_dirs:
        await admin.alter_replica_log_dirs(log_dirs)
    rows = []
    for at, replicas in sorted(targets.items()):
        row: dict[str, object] = {"topic": at.topic, "partition": at.partition}
        row |= {"from": list(present[at]), "to": list(replicas)}
        if log_dirs:
            row["log_dirs"] = [log_dirs.get(broker, {}).get(at, ANY_LOG_DIR) for broker in replicas]
        rows.append(row)
    show(rows, as_json=as_json, nothing="the plan moves nothing")


def _origin(present: tuple[int, ...], move: PartitionReassignment | None) -> tuple[int, ...]:
    """Where a partition was before a move under way, which shows old and new replicas."""
    return tuple(one for one in present if move is None or one not in move.adding)


@command.command("list")
@with_admin
async def list_(admin: Admin, as_json: bool) -> None:
    """List the moves to other brokers; `headwater brokers log-dirs` shows those between disks."""
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for at, move in sorted((await admin.list_reassignments()).items())
    ]
    show(rows, as_json=as_json, nothing="nothing is being moved")


@command.command()
@plan_argument
@click.option("--preserve-throttles", is_flag=True, help="Keep the limits that execute has set.")
@with_admin
async def verify(admin: Admin, file: IO[str], preserve_throttles: bool, as_json: bool) -> None:
    """Show how far the moves of a plan are; exit code 1 unless all have ended as planned.

    When nothing of the plan is being moved any more, the limits of --throttle are removed.
    """
    targets, log_dirs = _read(file)
    moving = await admin.list_reassignments()
    dirs = await _log_dirs(admin, log_dirs)
    there = set(await admin.list_topics(internal=True))
    present = await _present(admin, sorted({at.topic for at in targets} & there))
    rows = []
    for at, replicas in sorted(targets.items()):
        state = _state(replicas, present.get(at), moving.get(at))
        if state == "complete":
            state = log_dir_state(dirs, log_dirs, at)
        rows.append({"topic": at.topic, "partition": at.partition, "state": state})
    show(rows, as_json=as_json, nothing="the plan moves nothing")
    if not preserve_throttles and not any(at in moving for at in targets):
        topics = {at.topic for at in present}
        if await remove_throttles(admin, topics):
            click.echo("the limits of replication are removed", err=True)
    if any(row["state"] != "complete" for row in rows):
        raise click.exceptions.Exit(1)


def _state(
    target: tuple[int, ...], present: tuple[int, ...] | None, move: PartitionReassignment | None
) -> str:
    if present is None:
        return "no such partition"
    if move is not None:
        added = ",".join(map(str, move.adding)) or "none"
        removed = ",".join(map(str, move.removing)) or "none"
        return f"in progress: adds {added}, removes {removed}"
    if present == target:
        return "complete"
    return f"on {','.join(map(str, present))}, not as planned"


@command.command()
@click.argument("file", type=click.File(), required=False)
@click.option("--all", "everything", is_flag=True, help="Cancel every move under way.")
@with_admin
async def cancel(admin: Admin, file: IO[str] | None, everything: bool, as_json: bool) -> None:
    """Cancel the moves of a plan, or all; the partitions stay where they were."""
    if (file is None) != everything:
        raise click.UsageError("give the file of a plan, or --all")
    moving = await admin.list_reassignments()
    wanted = None if file is None else _read(file)
    dirs = await admin.describe_log_dirs(None if wanted is None else sorted(wanted.log_dirs))
    cancelled = {at for at in moving if wanted is None or at in wanted.replicas}
    if cancelled:
        await admin.reassign_partitions(dict.fromkeys(sorted(cancelled)))
    copies = {
        broker: [at for at in replicas if wanted is None or at in wanted.log_dirs.get(broker, {})]
        for broker, replicas in moving_replicas(dirs).items()
    }
    if any(copies.values()):
        await admin.alter_replica_log_dirs(present_log_dirs(dirs, copies))
        cancelled |= {at for replicas in copies.values() for at in replicas}
    rows = [
        {"topic": at.topic, "partition": at.partition, "cancelled": True}
        for at in sorted(cancelled)
    ]
    show(rows, as_json=as_json, nothing="nothing is being moved")
