"""`headwater collect`: events from browsers, services and files into a topic."""

from typing import Any

import click
import uvloop

from headwater.cli.options import bootstrap_option, client_settings, setting_option
from headwater.collect.events import EventRules
from headwater.observe import logs

_RATE = click.FloatRange(0, min_open=True)
_SIZE = click.IntRange(1)
_SECONDS = click.FloatRange(0, min_open=True)

topic_option = click.option("--topic", required=True, help="The topic to write to.")


@click.group("collect")
def command() -> None:
    """Write events to a topic, from HTTP or from files; the key is the user's id."""
    logs.set_up("INFO")


@command.command("http")
@topic_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
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
    help="What becomes of an event without that field.",
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
    help="All bodies that wait for the broker.",
)
@click.option("--rate", type=_RATE, metavar="EVENTS/S", help="The most that one client may send.")
@click.option("--total-rate", type=_RATE, metavar="EVENTS/S", help="The most of all clients.")
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Pages of this origin may send, as https://shop.example or *; may be repeated.",
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
    "--max-connections", type=_SIZE, default=1000, show_default=True, help="Clients at a time."
)
@bootstrap_option
@setting_option
def http(topic: str, bootstrap: str, settings: tuple[str, ...], **chosen: Any) -> None:
    """Serve POST /events, GET /headwater.js and GET /health until SIGTERM or Ctrl-C.

    A body is a JSON object, an array of them, or one on each line. The answer comes when the broker
    has the events.
    """
    try:
        from headwater.collect.http_loop import HttpOptions
        from headwater.collect.serving_loop import Listening, serve
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"{missing.name} is not installed: pip install 'headwater[collect]'"
        ) from None
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
    listening = Listening(
        chosen["host"], chosen["port"], chosen["read_timeout"], chosen["max_connections"]
    )
    uvloop.run(
        serve(
            topic,
            options,
            listening,
            client_settings(bootstrap, settings),
            lambda url: click.echo(f"headwater collects at {url}/events for {topic}"),
        )
    )
