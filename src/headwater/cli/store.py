"""`headwater store`: a metadata store with ZooKeeper's protocol, for development and tests."""

import json
import threading

import click

from headwater.cli.up import stop_with_stdin


@click.command("store")
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen at this address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=2181,
    show_default=True,
    help="Listen on this port; 0 takes a free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    default="headwater-store",
    show_default=True,
    help="Keep the data in this folder.",
)
@click.option(
    "--log-level",
    default="INFO",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="How much to log.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address and the log as JSON.")
@click.option(
    "--until-stdin-closes",
    is_flag=True,
    help="Also stop when standard input closes, when the program that started the store ends.",
)
def command(
    host: str, port: int, data_dir: str, log_level: str, as_json: bool, until_stdin_closes: bool
) -> None:
    """Serve a metadata store that speaks ZooKeeper's protocol, until SIGTERM or Ctrl-C.

    Any ZooKeeper client can use it. It is one process with one disk and meant for development and
    tests; in production, run a ZooKeeper ensemble.
    """
    from headwater.observe import logs
    from headwater.zookeeper.process import run

    logs.set_up(log_level.upper(), as_json=as_json)
    if until_stdin_closes:
        threading.Thread(target=stop_with_stdin, name="stdin", daemon=True).start()

    def ready(address: str) -> None:
        if as_json:
            click.echo(json.dumps({"address": address, "data": data_dir}))
        else:
            click.echo(f"headwater store is ready at {address} (data in {data_dir})")
            click.echo("one process, one disk: in production, run a ZooKeeper ensemble", err=True)

    run(host, port, data_dir, ready)
