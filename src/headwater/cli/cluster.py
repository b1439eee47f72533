"""`headwater cluster`: the id of the cluster, its controller and its brokers."""

import click

from headwater.cli.options import with_admin
from headwater.cli.output import if_allowed, show, show_json
from headwater.client.admin import Admin, LogDirDescription


@click.command("cluster")
@with_admin
async def command(admin: Admin, as_json: bool) -> None:
    """Describe the cluster: its id, its controller and its brokers with their folders."""
    cluster = await admin.describe_cluster()
    dirs = await if_allowed("BYTES and LOG_DIRS", admin.describe_log_dirs())
    rows = [
        {
            "broker": node.id,
            "host": node.host,
            "port": node.port,
            "controller": node.id == cluster.controller_id,
            **_log_dirs_of(node.id, dirs),
        }
        for node in cluster.brokers
    ]
    if as_json:
        show_json({"cluster_id": cluster.cluster_id, "brokers": rows})
    else:
        show(rows, as_json=False, title=f"cluster {cluster.cluster_id}")


def _log_dirs_of(broker: int, dirs: list[LogDirDescription] | None) -> dict[str, object]:
    if dirs is None:
        return {"bytes": None, "log_dirs": None}
    own = [one for one in dirs if one.broker_id == broker]
    return {
        "bytes": sum(sum(one.sizes.values()) for one in own),
        "log_dirs": [one.path for one in own],
    }
