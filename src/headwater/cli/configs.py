"""`headwater configs`: describe, set, unset; of a topic, a broker or the whole cluster."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from headwater.cli.name_completion import TOPIC
from headwater.cli.options import with_admin
from headwater.cli.output import show, show_json
from headwater.client.admin import (
    Admin,
    AlterConfigOp,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
)
from headwater.client.errors import no_such_topic
from headwater.config.broker import BrokerSettings
from headwater.config.foreign import idle_key
from headwater.config.keys import Mode, nearest
from headwater.errors import E, KafkaError

SOURCES = {
    1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 6: "logger",
    7: "client-metrics", 8: "group",
}  # fmt: skip


def name_of(resource: ConfigResource) -> str:
    """Return the name of a resource for messages."""
    if resource.type is ConfigResourceType.TOPIC:
        return f"topic {resource.name}"
    return f"broker {resource.name}" if resource.name else "the cluster"


def of_resource(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a resource."""
    for option in (
        click.option("--topic", metavar="NAME", shell_complete=TOPIC, help="A topic."),
        click.option("--broker", metavar="ID", type=click.IntRange(0), help="One broker."),
        click.option(
            "--cluster-default", is_flag=True, help="All brokers without a setting of their own."
        ),
    ):
        work = option(work)
    return work


def resource_from(topic: str | None, broker: int | None, cluster_default: bool) -> ConfigResource:
    """Return the resource that the options name; a usage error unless it is exactly one."""
    if [topic is not None, broker is not None, cluster_default].count(True) != 1:
        raise click.UsageError("name one of --topic, --broker and --cluster-default")
    if topic is not None:
        return ConfigResource.topic(topic)
    return ConfigResource.broker(broker)


@click.group("configs")
def command() -> None:
    """Describe, set and unset configs."""


@command.command()
@click.argument("keys", nargs=-1)
@of_resource
@click.option("--all", "everything", is_flag=True, help="Show defaults too.")
@click.option("--explain", is_flag=True, help="Show what each key means and where else it is set.")
@with_admin
async def describe(
    admin: Admin,
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    cluster_default: bool,
    everything: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Show configs with their values and sources."""
    resource = resource_from(topic, broker, cluster_default)
    known = await described(admin, resource, explain=explain or as_json)
    require_known(known, keys, resource)
    chosen = [known[name] for name in keys] if keys else list(known.values())
    chosen = [config for config in chosen if everything or keys or not config.is_default]
    chosen.sort(key=lambda config: config.name)
    if as_json:
        show_json([_full(config, resource) for config in chosen])
    elif explain:
        _explain(chosen, resource)
    else:
        nothing = f"nothing is set for {name_of(resource)}; --all shows the defaults"
        rows = [_short(config, resource) for config in chosen]
        show(rows, as_json=False, nothing=nothing)


@command.command("set")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@of_resource
@with_admin
async def set_(
    admin: Admin,
    changes: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    cluster_default: bool,
    as_json: bool,
) -> None:
    """Set configs; KEY+=VALUE and KEY-=VALUE add to and remove from a list."""
    resource = resource_from(topic, broker, cluster_default)
    await alter(admin, resource, changes, ())
    _done(resource, "set", [change.name for change in map(parse_change, changes)], as_json)


@command.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@of_resource
@with_admin
async def unset(
    admin: Admin,
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    cluster_default: bool,
    as_json: bool,
) -> None:
    """Remove settings, so that the value from the next level applies."""
    resource = resource_from(topic, broker, cluster_default)
    require_known(await described(admin, resource), keys, resource)
    await alter(admin, resource, (), keys)
    _done(resource, "unset", list(keys), as_json)


async def described(
    admin: Admin, resource: ConfigResource, *, explain: bool = False
) -> dict[str, ConfigEntry]:
    """Return the configs of a resource by name."""
    if resource.type is ConfigResourceType.BROKER and resource.name:
        await _require_broker(admin, int(resource.name))
    with _missing_topic(resource):
        return (await admin.describe_configs([resource], documentation=explain))[resource]


def require_known(
    known: dict[str, ConfigEntry], keys: Iterable[str], resource: ConfigResource
) -> None:
    """Raise KafkaError for an unknown key, with the nearest known one."""
    for name in keys:
        if known and name not in known and resource.name:
            raise KafkaError(
                E.INVALID_CONFIG, f"{name_of(resource)} has no config {name}{nearest(name, known)}"
            )


async def topic_overrides(admin: Admin, names: Iterable[str]) -> dict[str, dict[str, str | None]]:
    """Return the configs set on each topic."""
    found = await admin.describe_configs([ConfigResource.topic(name) for name in names])
    return {
        resource.name: {
            entry.name: entry.value
            for entry in configs.values()
            if SOURCES.get(entry.source) == "topic"
        }
        for resource, configs in found.items()
    }


async def alter(
    admin: Admin, resource: ConfigResource, changes: Iterable[str], unset: Iterable[str]
) -> None:
    """Make all changes or none."""
    edits = [parse_change(text) for text in changes]
    edits += [ConfigChange(name, None, AlterConfigOp.DELETE) for name in unset]
    if resource.type is ConfigResourceType.BROKER and resource.name:
        await _require_broker(admin, int(resource.name))
    with _missing_topic(resource):
        await admin.alter_configs({resource: edits})


@contextmanager
def _missing_topic(resource: ConfigResource) -> Iterator[None]:
    """Let the error of a topic that does not exist say how to create it."""
    try:
        yield
    except KafkaError as problem:
        if problem.code is E.UNKNOWN_TOPIC_OR_PARTITION:
            raise no_such_topic(resource.name) from None
        raise


async def _require_broker(admin: Admin, node_id: int) -> None:
    brokers = [node.id for node in (await admin.describe_cluster()).brokers]
    if node_id not in brokers:
        there = ", ".join(map(str, brokers))
        raise KafkaError(
            E.BROKER_NOT_AVAILABLE,
            f"broker {node_id} is not in the cluster or not running; running: {there}",
        )


def parse_change(text: str) -> ConfigChange:
    """Parse KEY=VALUE, KEY+=VALUE or KEY-=VALUE; a usage error for anything else."""
    name, equals, value = text.partition("=")
    operation = {"+": AlterConfigOp.APPEND, "-": AlterConfigOp.SUBTRACT}.get(
        name[-1:], AlterConfigOp.SET
    )
    name = name.rstrip("+-").strip()
    if not (name and equals):
        raise click.UsageError(f"{text}: write KEY=VALUE, KEY+=VALUE or KEY-=VALUE")
    return ConfigChange(name, value, operation)


def _short(config: ConfigEntry, resource: ConfigResource) -> dict[str, object]:
    return {
        "key": config.name,
        "value": "[hidden]" if config.sensitive else config.value,
        "source": SOURCES.get(config.source, config.source),
        "update": _update_mode(config, resource),
    }


def _update_mode(config: ConfigEntry, resource: ConfigResource) -> str:
    """Return Kafka's update mode of a key, or where it may be set."""
    if config.read_only:
        return Mode.READ_ONLY.value
    if resource.type is ConfigResourceType.TOPIC:
        return "per-topic"
    row = BrokerSettings.KEYS.get(config.name) or idle_key(config.name)
    return Mode.CLUSTER_WIDE.value if row is None else row.mode.value


def _full(config: ConfigEntry, resource: ConfigResource) -> dict[str, object]:
    return {
        "key": config.name,
        "value": config.value,
        "source": SOURCES.get(config.source, config.source),
        "read_only": config.read_only,
        "update": _update_mode(config, resource),
        "sensitive": config.sensitive,
        "synonyms": [
            {"key": name, "value": value, "source": SOURCES.get(source, source)}
            for name, value, source in config.synonyms
        ],
        "doc": config.documentation,
    }


def _explain(configs: list[ConfigEntry], resource: ConfigResource) -> None:
    for config in configs:
        row = _short(config, resource)
        click.echo(f"{row['key']} = {row['value']}  (from {row['source']}, {row['update']})")
        if config.documentation:
            click.echo(f"    {config.documentation}")
        for name, value, source in config.synonyms:
            click.echo(f"    {SOURCES.get(source)}: {name} = {value}")


def _done(resource: ConfigResource, what: str, keys: list[str], as_json: bool) -> None:
    if as_json:
        show_json({"resource": name_of(resource), what: keys})
    else:
        click.echo(f"{name_of(resource)}: {what} {', '.join(keys)}")
