"""`headwater up`: one broker in the foreground."""

import contextlib
import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from headwater.cli.app import CONFIG_FILE
from headwater.config.broker import BrokerSettings
from headwater.config.keys import ConfigError
from headwater.config.profiles import PROFILES

if TYPE_CHECKING:
    from headwater.cli.up_cluster import ClusterOptions

WITHOUT_FILE = {"group.initial.rebalance.delay.ms": "0"}
"""Settings without --config, as in Kafka's own server.properties: the first member of a group gets its
partitions at once."""


@click.command("up")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Listen at this port; 0 takes a free one. On 127.0.0.1, or where the one listener of "
    "--config is.",
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="Keep the data in this folder.")
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False),
    help="Read settings from a properties file.",
)
@click.option(
    "-o",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one config key; may be repeated.",
)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="Apply the broker settings of a profile and print them; other options win.",
)
@click.option(
    "--log-level",
    default="INFO",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="How much to log.",
)
@click.option(
    "--log-dir",
    type=click.Path(file_okay=False),
    help="Write server.log, controller.log and state-change.log to this folder as well; "
    "each is rotated at 64 MiB, five older ones are kept.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    help="Start a cluster of this many brokers, each a process of its own.",
)
@click.option(
    "--zookeeper",
    metavar="HOSTS",
    help="Let the brokers of --brokers use this ZooKeeper (HOST:PORT,...[/CHROOT]) instead of a "
    "store that starts and stops with them.",
)
@click.option(
    "--unsafe-plaintext",
    is_flag=True,
    envvar="HEADWATER_UNSAFE_PLAINTEXT",
    show_envvar=True,
    help="Allow PLAINTEXT listeners that other machines reach.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the address and the log as JSON.")
@click.option(
    "--until-stdin-closes",
    is_flag=True,
    help="Also stop when standard input closes, when the program that started the broker ends.",
)
def command(
    port: int | None,
    data_dir: str | None,
    file: str | None,
    assignments: tuple[str, ...],
    profile: str | None,
    log_level: str,
    log_dir: str | None,
    brokers: int | None,
    zookeeper: str | None,
    unsafe_plaintext: bool,
    as_json: bool,
    until_stdin_closes: bool,
) -> None:
    """Start a broker and serve until SIGTERM or Ctrl-C.

    Without options it listens on 127.0.0.1:9092 and keeps its data in ./headwater-data. Options
    set with -o override --port and --data-dir, which override the file. --port changes the port of
    the file's listener, never its protocol or host; with several, it is refused. Without a file,
    group.initial.rebalance.delay.ms is 0: the first member of a group does not wait for others.

    With --brokers N it starts a cluster on this machine: broker 1 listens at --port, the others at
    the ports after it, and topics have three replicas where there are three brokers. --config then
    has what all brokers share; broker 1 listens at the port of its listener. Keys such as
    listener.name.sasl_ssl.KEY are for clients; between the brokers the keys without a listener count.
    """
    _refuse_client_config()
    if brokers is not None:
        _refuse_with_brokers(log_dir)
        from headwater.cli.up_cluster import ClusterOptions

        chosen = {**_of_profile(profile), **_assigned(assignments)}
        _run_cluster(
            ClusterOptions(
                brokers, zookeeper, port, data_dir, chosen, log_level.upper(), as_json, file,
                unsafe_plaintext,
            ),
            until_stdin_closes=until_stdin_closes,
        )  # fmt: skip
        return
    if zookeeper is not None:
        raise click.UsageError(
            "--zookeeper needs --brokers; one broker of a cluster takes -o zookeeper.connect=HOSTS"
        )
    settings = settings_from(port, data_dir, file, assignments, profile)
    if not unsafe_plaintext:
        refuse_plaintext(settings)
    _refuse_cluster_folder(Path(settings.log_dirs[0]))
    if until_stdin_closes:
        threading.Thread(target=stop_with_stdin, name="stdin", daemon=True).start()
    _run_broker(settings, log_level.upper(), log_dir, as_json=as_json)


def _run_broker(
    settings: BrokerSettings, log_level: str, log_dir: str | None, *, as_json: bool
) -> None:
    # Imported here, after the settings are checked, so that usage errors appear at once.
    from headwater.broker.process import run
    from headwater.broker.registration import JoinError
    from headwater.controller.store.journal import StoreDamaged
    from headwater.log.log_dir import LogDirError
    from headwater.observe import logs

    logs.set_up(log_level, as_json=as_json)
    if log_dir is not None:
        try:
            logs.add_files(log_dir, as_json=as_json)
        except OSError as problem:
            raise click.ClickException(f"--log-dir {log_dir} cannot be used: {problem}") from None

    def ready(address: str, metrics: str | None) -> None:
        data = list(settings.log_dirs)
        if as_json:
            about = {"address": address, "node_id": settings.node_id, "data": data}
            line = json.dumps({**about, "metrics": metrics and f"http://{metrics}/metrics"})
        else:
            shown = f", metrics at http://{metrics}/metrics" if metrics else ""
            folders = ", ".join(map(_from_here, data))
            line = f"headwater is ready at {address} (data in {folders}{shown})"
        click.echo(line)  # click flushes: a script waits for this line

    try:
        run(settings, ready)
    except (LogDirError, StoreDamaged, JoinError) as problem:
        raise click.ClickException(str(problem)) from problem


def _from_here(path: str) -> str:
    """Return a path as people write it: a relative one for what is below this folder."""
    here = os.getcwd()
    return os.path.relpath(path) if Path(path).is_relative_to(here) else path


def _run_cluster(options: "ClusterOptions", *, until_stdin_closes: bool) -> None:
    from headwater.cli.up_cluster import run

    # A bad key is reported once, not by each broker.
    settings = BrokerSettings.load(options.file, options.settings)
    if not options.unsafe_plaintext:
        refuse_plaintext(settings)
    if until_stdin_closes:
        threading.Thread(target=stop_with_stdin, name="stdin", daemon=True).start()
    run(options)


def refuse_plaintext(settings: BrokerSettings) -> None:
    """Refuse listeners through which everyone in the network could read and write everything."""
    from headwater.config.addresses import is_loopback

    for listener in settings.listening:
        if listener.protocol == "PLAINTEXT" and not is_loopback(listener.host):
            raise ConfigError(
                f"{listener} would let everyone on the network in, without encryption or "
                "authentication: create certificates and settings with `headwater security init`, "
                "or allow it with --unsafe-plaintext on a network you trust"
            )


def _refuse_with_brokers(log_dir: str | None) -> None:
    if log_dir is not None:
        raise click.UsageError(
            "--log-dir is for one broker: with --brokers, each writes broker.stderr in its folder"
        )


def _refuse_cluster_folder(folder: Path) -> None:
    if (folder / "brokers").is_dir() and not (folder / "meta.properties").exists():
        raise click.ClickException(
            f"{folder} holds the data of a cluster: start it with --brokers, "
            "or choose another folder with --data-dir"
        )


def _refuse_client_config() -> None:
    """Refuse `headwater --config FILE up`: the broker does not read that file."""
    root = click.get_current_context().find_root()
    if root.get_parameter_source(CONFIG_FILE) is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            "--config before the command holds client settings: write headwater up --config FILE"
        )


def stop_with_stdin() -> None:
    """Wait for the end of standard input, then send SIGTERM to this process."""
    with contextlib.suppress(OSError):  # it may be closed from the start
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def settings_from(
    port: int | None,
    data_dir: str | None,
    file: str | None,
    assignments: tuple[str, ...],
    profile: str | None = None,
) -> BrokerSettings:
    """Return the settings of the options; ConfigError if one is invalid."""
    assigned = _assigned(assignments)
    overrides = {} if file else dict(WITHOUT_FILE)
    overrides |= _of_profile(profile)
    if data_dir is not None:
        overrides["log.dirs"] = data_dir
    overrides |= assigned
    if port is not None and "listeners" not in assigned:
        overrides |= _at_port(BrokerSettings.load(file, overrides), port)
    return BrokerSettings.load(file, {**overrides, **assigned})


def _at_port(settings: BrokerSettings, port: int) -> dict[str, str]:
    """Return what moves the listener to another port: its protocol and its host stay.

    The advertised port moves too, unless it is another one already, as behind NAT.
    """
    if len(settings.listening) > 1:
        shown = ",".join(map(str, settings.listening))
        raise click.UsageError(
            f"--port {port} is for one listener, and the settings have {len(settings.listening)} "
            f"({shown}): change their ports in the file, or with -o listeners={shown}"
        )
    (listener,), (advertised,) = settings.listening, settings.advertised
    moved = {"listeners": str(listener._replace(port=port))}
    if settings.advertised_listeners and advertised.port == listener.port:
        moved["advertised.listeners"] = str(advertised._replace(port=port))
    return moved


def _assigned(assignments: tuple[str, ...]) -> dict[str, str]:
    """What -o sets."""
    found = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"-o {text}: write KEY=VALUE")
        found[name.strip()] = value
    return found


def _of_profile(name: str | None) -> dict[str, str]:
    """Return the broker settings of a profile, and its topic settings that have broker defaults."""
    if name is None:
        return {}
    profile, found = PROFILES[name], {}
    for key, (value, why) in {**profile.topic, **profile.broker}.items():
        if key in BrokerSettings.KEYS:
            found[key] = str(value).lower() if isinstance(value, bool) else str(value)
            click.echo(f"profile {name}: {key}={found[key]}  {why}", err=True)
    return found
