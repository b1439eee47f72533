"""`headwater collect`: events from browsers, services and files into a topic."""

import asyncio
import os
import re
from typing import Any

import click
import uvloop

from headwater.cli.name_completion import TOPIC
from headwater.cli.options import (
    bootstrap_option,
    client_settings,
    setting_option,
    timeout_option,
)
from headwater.cli.reach_broker import require_reachable
from headwater.collect.events import EventRules
from headwater.collect.file_positions import FilePositions, PositionsError
from headwater.collect.file_tracker import FileTracker
from headwater.collect.line_formats import JsonLineFormat, LineFormat, PlainLineFormat
from headwater.collect.log_files import OsLogFiles
from headwater.collect.tail_loop import TailCollector, TailOptions
from headwater.config.client import ProducerSettings
from headwater.errors import E, KafkaError
from headwater.observe import logs
from headwater.seams.clock import SystemClock
from headwater.seams.files import OsFiles
from headwater.seams.signals import on_stop_signal

_RATE = click.FloatRange(0, min_open=True)
_SIZE = click.IntRange(1)
_SECONDS = click.FloatRange(0, min_open=True)

topic_option = click.option("--topic", "named", hidden=True, help="TOPIC, as an option.")


def _topic(argument: str | None, named: str | None) -> str:
    """Return the topic, given as an argument or by the older option --topic."""
    if (argument is None) == (named is None):
        raise click.UsageError("name one TOPIC to write to")
    return argument or named or ""


def _require_topics(
    bootstrap: str, timeout: float, topics: list[str], settings: dict[str, Any]
) -> None:
    """Refuse a topic that does not exist; only report an unavailable broker, since it may start later."""
    try:
        require_reachable(bootstrap, timeout, topics, to_write=True, settings=settings)
    except KafkaError as problem:
        if problem.code is not E.BROKER_NOT_AVAILABLE:
            raise
        click.echo(f"waiting for a broker: {problem.message}", err=True)


@click.group("collect")
def command() -> None:
    """Write events to a topic, from HTTP or from files; the key is the user's id."""


@command.command("http")
@click.argument("topic", required=False, shell_complete=TOPIC)
@topic_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--key",
    default="user_id",
    show_default=True,
    metavar="FIELD",
    help="The field that is the record's key; user.id is id in the object user.",
)
@click.option(
    "--missing-key",
    type=click.Choice(["refuse", "null"]),
    default="refuse",
    show_default=True,
    help="What to do with an event without that field.",
)
@click.option(
    "--max-event-bytes", type=_SIZE, default=65_536, show_default=True, help="The largest event."
)
@click.option(
    "--max-body-bytes", type=_SIZE, default=1_048_576, show_default=True, help="The largest body."
)
@click.option(
    "--max-held-bytes",
    type=_SIZE,
    default=67_108_864,
    show_default=True,
    help="The total size of bodies that wait for the broker.",
)
@click.option("--rate", type=_RATE, metavar="EVENTS/S", help="The limit of one client.")
@click.option(
    "--total-rate", type=_RATE, metavar="EVENTS/S", help="The limit of all clients together."
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Pages of this origin may send, such as https://shop.example or *; may be repeated.",
)
@click.option(
    "--trust-proxy", is_flag=True, help="The client is the last address in X-Forwarded-For."
)
@click.option("--add-received", is_flag=True, help="Add the header received-ms to each record.")
@click.option("--add-client", is_flag=True, help="Add the header client, the client's address.")
@click.option(
    "--ack-timeout",
    type=_SECONDS,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a request waits for the broker.",
)
@click.option(
    "--read-timeout",
    type=_SECONDS,
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a client may take to send a request.",
)
@click.option(
    "--max-connections",
    type=_SIZE,
    default=1000,
    show_default=True,
    help="The most clients at a time.",
)
@bootstrap_option
@timeout_option
@setting_option
def http(
    topic: str | None,
    named: str | None,
    bootstrap: str,
    timeout: float,
    settings: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Serve POST /events, GET /headwater.js and GET /health until SIGTERM or Ctrl-C.

    Events go to TOPIC. A body is a JSON object, an array of them, or one on each line. The answer
    comes when the broker has the events.
    """
    into = _topic(topic, named)
    from headwater.collect.http_loop import HttpOptions
    from headwater.collect.http_server_loop import HttpServerOptions, serve

    options = HttpOptions(
        rules=EventRules(
            chosen["key"], chosen["missing_key"] == "refuse", chosen["max_event_bytes"]
        ),
        max_body_bytes=chosen["max_body_bytes"],
        max_held_bytes=chosen["max_held_bytes"],
        rate=chosen["rate"],
        total_rate=chosen["total_rate"],
        origins=frozenset(chosen["origins"]),
        trust_proxy=chosen["trust_proxy"],
        add_received=chosen["add_received"],
        add_client=chosen["add_client"],
        ack_timeout_s=chosen["ack_timeout"],
    )
    listening = HttpServerOptions(
        chosen["host"], chosen["port"], chosen["read_timeout"], chosen["max_connections"]
    )
    producer = client_settings(ProducerSettings, bootstrap, settings)
    _require_topics(bootstrap, timeout, [into], producer)
    logs.set_up("INFO")
    uvloop.run(
        serve(
            into,
            options,
            listening,
            producer,
            lambda url: click.echo(f"headwater collects at {url}/events for {into}"),
        )
    )


@command.command("tail")
@click.argument("words", nargs=-1, required=True, metavar="TOPIC FILE...", shell_complete=TOPIC)
@topic_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "lines"]),
    default="json",
    show_default=True,
    help="A line is a JSON object, or any text.",
)
@click.option(
    "--key",
    metavar="FIELD",
    help="The field that is the record's key.  [default: user_id, with json]",
)
@click.option("--key-regex", metavar="PATTERN", help="The key is its first group, with lines.")
@click.option(
    "--missing-key",
    type=click.Choice(["refuse", "null"]),
    default="null",
    show_default=True,
    help="What to do with a line without a key.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["start", "end"]),
    default="start",
    show_default=True,
    help="Where to begin in a file seen for the first time.",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Keep positions in this folder.  [default: headwater-tail/TOPIC]",
)
@click.option("--dead-letter", metavar="TOPIC", help="Send refused lines to this topic.")
@click.option(
    "--max-event-bytes",
    type=_SIZE,
    default=1_000_000,
    show_default=True,
    help="The longest line; longer ones are refused.",
)
@click.option("--rate", type=_RATE, metavar="EVENTS/S", help="Send at most this many.")
@click.option(
    "--rotate-wait",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a renamed file must be quiet before the next one is read.",
)
@click.option("--once", is_flag=True, help="Stop at the end of the files.")
@bootstrap_option
@timeout_option
@setting_option
def tail(
    words: tuple[str, ...],
    named: str | None,
    bootstrap: str,
    timeout: float,
    settings: tuple[str, ...],
    **chosen: Any,
) -> None:
    """Follow FILEs and send each line to TOPIC, through rotations and restarts, until stopped.

    Delivery is at least once: positions are saved when the broker has the lines.
    """
    topic, files = (named, words) if named is not None else (words[0], words[1:])
    if not files:
        raise click.UsageError("name a TOPIC and the FILEs to follow")
    shape = _line_format(chosen)
    options = TailOptions(topic, chosen["dead_letter"], chosen["rate"], once=chosen["once"])
    paths = list(dict.fromkeys(map(os.path.abspath, files)))
    _refuse_other_kinds(paths)
    folder = os.path.abspath(chosen["state"] or f"headwater-tail/{topic}")
    try:
        positions = FilePositions(OsFiles(), folder)
    except PositionsError as problem:
        raise click.ClickException(str(problem)) from None
    try:
        if chosen["once"]:
            _require_files(paths, positions)
        dead = [chosen["dead_letter"]] if chosen["dead_letter"] else []
        producer = client_settings(ProducerSettings, bootstrap, settings)
        _require_topics(bootstrap, timeout, [topic, *dead], producer)
        logs.set_up("INFO")
        followers = [_follower(path, positions, chosen) for path in paths]
        uvloop.run(_tail(options, followers, positions, shape, producer))
    finally:
        positions.close()


def _refuse_other_kinds(paths: list[str]) -> None:
    """Refuse folders, pipes and devices, which never become a log file."""
    for path in paths:
        if os.path.exists(path) and not os.path.isfile(path):
            kind = "a folder" if os.path.isdir(path) else "not a regular file"
            raise click.ClickException(f"{path} is {kind}; name log files, such as logs/*.log")


def _require_files(paths: list[str], positions: FilePositions) -> None:
    """Refuse files that are not there; one that was read before may have been renamed since."""
    missing = [path for path in paths if positions.of(path) is None and not os.path.exists(path)]
    if missing:
        raise click.ClickException(
            f"{', '.join(missing)}: no such file; name an existing one, or leave out --once to wait "
            "for it"
        )
    closed = [path for path in paths if os.path.exists(path) and not os.access(path, os.R_OK)]
    if closed:
        raise click.ClickException(
            f"{', '.join(closed)}: no permission to read it; change its mode, or leave out --once to "
            "wait for that"
        )


def _follower(path: str, positions: FilePositions, chosen: dict[str, Any]) -> FileTracker:
    return FileTracker(
        path,
        OsLogFiles(),
        max_line=chosen["max_event_bytes"],
        position=positions.of(path),
        from_end=chosen["start"] == "end",
        linger_ms=int(chosen["rotate_wait"] * 1000),
    )


async def _tail(
    options: TailOptions,
    followers: list[FileTracker],
    positions: FilePositions,
    shape: LineFormat,
    settings: dict[str, object],
) -> None:
    stop = asyncio.Event()
    on_stop_signal(asyncio.get_running_loop(), stop.set)
    tailing = TailCollector(options, followers, positions, shape, SystemClock(), settings)
    names = ", ".join(one.path for one in followers)
    click.echo(f"headwater follows {names} for {options.topic}")
    try:
        await tailing.run(stop)
    finally:
        counts = tailing.counts
        click.echo(f"{options.topic}: sent {counts.sent}, refused {counts.refused}", err=True)


def _line_format(chosen: dict[str, Any]) -> LineFormat:
    """Return the format of the lines; refuse options of the other format."""
    required = chosen["missing_key"] == "refuse"
    if chosen["form"] == "json":
        if chosen["key_regex"] is not None:
            raise click.UsageError("--key-regex goes with --format lines; JSON has --key")
        key = chosen["key"] or "user_id"
        return JsonLineFormat(EventRules(key, required, chosen["max_event_bytes"]))
    if chosen["key"] is not None:
        raise click.UsageError("--key goes with --format json; lines have --key-regex")
    try:
        return PlainLineFormat(chosen["key_regex"], key_required=required)
    except re.error as wrong:
        raise click.UsageError(f"--key-regex: {wrong}") from None
