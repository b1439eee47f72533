"""`headwater brokers`: the brokers, what they lead and what they hold."""

from collections.abc import Iterable

import click

from headwater.cli.options import with_admin
from headwater.cli.output import show, show_json
from headwater.client.admin import Admin, LogDirDescription
from headwater.client.admin.brokers import ClusterDescription
from headwater.client.cluster import TopicView
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition


@click.group("brokers")
def command() -> None:
    """List and describe brokers."""


async def _topics(admin: Admin) -> list[TopicView]:
    return list((await admin.describe_topics(await admin.list_topics(internal=True))).values())


@command.command("list")
@with_admin
async def list_(admin: Admin, as_json: bool) -> None:
    """List the brokers with the partitions that they lead and hold; those that are down have no host."""
    show(broker_rows(await admin.describe_cluster(), await _topics(admin)), as_json=as_json)


def broker_rows(
    cluster: ClusterDescription, topics: Iterable[TopicView]
) -> list[dict[str, object]]:
    """Return a row for each live broker, and for each other one that has replicas.

    A broker that is down is in sync with nothing, although the last in-sync set of a partition may
    still name it.
    """
    partitions = [row for view in topics for row in view.partitions]
    live = {node.id: node for node in cluster.brokers}
    known = live.keys() | {replica for row in partitions for replica in row.replicas}
    rows: list[dict[str, object]] = []
    for number in sorted(known):
        node = live.get(number)
        rows.append(
            {
                "broker": number,
                "host": node and node.host,
                "port": node and node.port,
                "rack": node and node.rack,
                "controller": number == cluster.controller_id,
                "leads": sum(row.leader == number for row in partitions),
                "preferred": sum(row.replicas[:1] == (number,) for row in partitions),
                "replicas": sum(number in row.replicas for row in partitions),
                "in_sync": sum(number in row.isr for row in partitions) if node else 0,
            }
        )
    return rows


@command.command()
@click.argument("broker_id", type=click.IntRange(0))
@with_admin
async def describe(admin: Admin, broker_id: int, as_json: bool) -> None:
    """Describe one broker: its log directories, and each replica that it holds."""
    cluster, topics = await admin.describe_cluster(), await _topics(admin)
    if broker_id not in [node.id for node in cluster.brokers]:
        live = ", ".join(str(node.id) for node in cluster.brokers)
        raise KafkaError(
            E.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not live; live brokers: {live}"
        )
    dirs = await admin.describe_log_dirs([broker_id])
    size = {at: count for one in dirs for at, count in one.sizes.items()}
    log_dir = {at: one.path for one in dirs for at in one.sizes}
    moving_to = {at: one.path for one in dirs for at in one.future_lags}
    rows = [
        {
            "topic": view.name,
            "partition": row.partition,
            "role": "leader" if row.leader == broker_id else "follower",
            "preferred": row.replicas[0] == broker_id,
            "in_sync": broker_id in row.isr,
            "bytes": size.get(at := TopicPartition(view.name, row.partition)),
            "log_dir": log_dir.get(at),
            "moving_to": moving_to.get(at),
        }
        for view in topics
        for row in view.partitions
        if broker_id in row.replicas
    ]
    folders = [_log_dir_row(one) for one in dirs]
    if as_json:
        show_json({"broker": broker_id, "log_dirs": folders, "replicas": rows})
        return
    show(folders, as_json=False)
    click.echo()
    show(rows, as_json=False, nothing="the broker holds no replicas")


@command.command("log-dirs")
@click.argument("broker_ids", nargs=-1, type=click.IntRange(0))
@with_admin
async def log_dirs(admin: Admin, broker_ids: tuple[int, ...], as_json: bool) -> None:
    """List the log dirs of brokers, all by default, with what they hold and what is moved to them."""
    dirs = await admin.describe_log_dirs(broker_ids or None)
    show([{"broker": one.broker_id, **_log_dir_row(one)} for one in dirs], as_json=as_json)


def _log_dir_row(one: LogDirDescription) -> dict[str, object]:
    return {
        "log_dir": one.path,
        "error": one.error.name,
        "replicas": len(one.sizes),
        "bytes": sum(one.sizes.values()),
        "moving_in": len(one.future_lags),
        "records_to_copy": sum(one.future_lags.values()),
        "usable_bytes": one.usable_bytes,
    }
