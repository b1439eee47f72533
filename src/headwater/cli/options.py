"""The options that all commands with a cluster share, and the call from click into asyncio."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from headwater.cli.app import AS_JSON
from headwater.cli.client_config import (
    BOOTSTRAP,
    DEFAULT_BOOTSTRAP,
    config_file,
    default_bootstrap,
    file_settings,
)
from headwater.cli.reach_broker import admin_for, cancel_if_unreachable
from headwater.client.admin import Admin
from headwater.config.client import AdminSettings, ClientSettings
from headwater.config.client_tls import ALIASES
from headwater.config.keys import ConfigError

if TYPE_CHECKING:
    from headwater.pipelines.connection_settings import ConnectionSettings

P = ParamSpec("P")


def _note_json(ctx: click.Context, option: click.Parameter, value: bool) -> bool:
    ctx.meta[AS_JSON] = value
    return value


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_note_json, help="Print JSON, errors too."
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a response; a broker must answer within 5 s.",
)
bootstrap_option = click.option(
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    default=default_bootstrap,
    envvar="HEADWATER_BOOTSTRAP",
    show_default=DEFAULT_BOOTSTRAP,
    show_envvar=True,
    help="One or more brokers to connect to, separated by commas.",
)
setting_option = click.option(
    "-o",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one of the client's config keys, such as isolation.level=read_committed; may be repeated.",
)
connecting_option = click.option(
    "-o",
    "client_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one config key of all clients, such as security.protocol=SSL; may be repeated. Secrets "
    "belong into a file for --config.",
)


def with_admin(
    work: Callable[Concatenate[Admin, P], Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Add the cluster options to a command and pass it an admin as the first argument."""

    @bootstrap_option
    @timeout_option
    @json_option
    @wraps(work)
    def run(bootstrap: str, timeout: float, *args: P.args, **kwargs: P.kwargs) -> None:
        async def with_admin() -> None:
            async with admin_for(bootstrap, timeout) as admin:
                await cancel_if_unreachable(bootstrap, timeout, work(admin, *args, **kwargs))

        asyncio.run(with_admin())

    return run


def user_name(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """Return the name of a user as users and quotas have it; else it is a usage error."""
    if name == "":
        raise click.UsageError("the name of a user is empty: write one, alice for example")
    if name is not None and name.startswith("User:"):
        raise click.UsageError(f"{name} is a principal: write {name.removeprefix('User:')}")
    return name


def argument_bytes(text: str) -> bytes:
    """Return the bytes of an argument, also if they are not UTF-8."""
    return os.fsencode(text)


def separator_bytes(text: str) -> bytes:
    r"""Return the bytes of a separator; `\t`, `\n` and `\0` stand for a tab, a newline and a zero byte."""
    for written, meant in (("\\t", "\t"), ("\\n", "\n"), ("\\0", "\0")):
        text = text.replace(written, meant)
    return argument_bytes(text)


def parse_assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse KEY=VALUE arguments; a usage error for anything else."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{text}: write KEY=VALUE")
        found[name.strip()] = value
    return found


def client_settings(
    role: type[ClientSettings], bootstrap: str, texts: tuple[str, ...], **defaults: object
) -> dict[str, Any]:
    """Return the keywords of a client: the command's defaults, then the config file, then -o."""
    chosen = _assigned_settings(texts)
    layers = {**file_settings(role), **chosen, BOOTSTRAP: bootstrap}
    return {**defaults, **{name.replace(".", "_"): value for name, value in layers.items()}}


def connection_settings(bootstrap: str, texts: tuple[str, ...]) -> "ConnectionSettings":
    """Return how a pipeline or an archive connects: the config file, then -o."""
    from headwater.pipelines.connection_settings import ConnectionSettings

    given = {name.replace("_", "."): value for name, value in _assigned_settings(texts).items()}
    chosen = {ALIASES.get(name, name): value for name, value in given.items()}
    try:
        connection = ConnectionSettings(bootstrap, config_file(), chosen)
    except ConfigError as wrong:
        raise click.UsageError(f"-o {wrong.message}") from None
    AdminSettings.of(connection.client)  # reports contradictions before anything connects
    return connection


def _assigned_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse the values of -o."""
    chosen = parse_assignments(texts)
    if {BOOTSTRAP, BOOTSTRAP.replace(".", "_")} & chosen.keys():
        raise click.UsageError(f"-o {BOOTSTRAP}: name brokers with --bootstrap-server")
    return chosen
