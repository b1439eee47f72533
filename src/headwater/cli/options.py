"""The options that every command with a cluster shares, and the step from click into asyncio."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import click

from headwater.cli.cluster import Cluster

P = ParamSpec("P")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
bootstrap_option = click.option(
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    envvar="HEADWATER_BOOTSTRAP",
    show_default=True,
    show_envvar=True,
    help="A broker to ask; several are separated by commas.",
)
setting_option = click.option(
    "-o",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one config key of the client, in Kafka's words; may be repeated.",
)


def on_cluster(
    work: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Give a command its options and an open cluster as the first argument."""

    @bootstrap_option
    @click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the cluster.",
    )
    @json_option
    @wraps(work)
    def run(bootstrap: str, timeout: float, *args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(
            _with_cluster(bootstrap, timeout, lambda cluster: work(cluster, *args, **kwargs))
        )

    return run


async def _with_cluster(
    bootstrap: str, timeout_s: float, work: Callable[[Cluster], Coroutine[Any, Any, None]]
) -> None:
    async with Cluster(bootstrap, timeout_s=timeout_s) as cluster:
        await work(cluster)


def assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE arguments as a dict; a usage error for anything else."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{text}: write KEY=VALUE")
        found[name.strip()] = value
    return found


def client_settings(
    bootstrap: str, texts: tuple[str, ...], **defaults: object
) -> dict[str, object]:
    """The keywords of a client: defaults of the command, then what -o says."""
    chosen = {name.replace(".", "_"): value for name, value in assignments(texts).items()}
    return {**defaults, **chosen, "bootstrap_servers": bootstrap}
