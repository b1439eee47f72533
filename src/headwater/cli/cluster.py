"""`headwater cluster`: the id of the cluster, its controller and its brokers."""

import click

from headwater.cli.options import with_admin
from headwater.cli.output import show, show_json
from headwater.client.admin import Admin


@click.command("cluster")
@with_admin
async def command(admin: Admin, as_json: bool) -> None:
    """Describe the cluster: its id, its controller and its brokers with their folders."""
    cluster = await admin.describe_cluster()
    dirs = await admin.describe_log_dirs()
    rows = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "controller": node.id == cluster.controller_id,
            "bytes": sum(sum(one.sizes.values()) for one in dirs if one.broker_id == node.id),
            "log_dirs": [one.path for one in dirs if one.broker_id == node.id],
        }
        for node in cluster.brokers
    ]
    if as_json:
        show_json({"cluster_id": cluster.cluster_id, "brokers": rows})
    else:
        show(rows, as_json=False, title=f"cluster {cluster.cluster_id}")
