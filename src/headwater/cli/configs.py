"""`headwater configs`: describe, set, unset; of a topic, a broker or the whole cluster."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import click

from headwater.cli.cluster import Cluster, refuse
from headwater.cli.options import on_cluster
from headwater.cli.output import show, show_json
from headwater.config.broker import BrokerSettings
from headwater.config.foreign import idle_key
from headwater.config.keys import Mode
from headwater.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC = 2
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)
SOURCES = {
    1: "topic", 2: "broker", 3: "cluster", 4: "file", 5: "default", 6: "logger",
    7: "client-metrics", 8: "group",
}  # fmt: skip

Config = DescribeConfigsResponse.DescribeConfigsResourceResult
Change = IncrementalAlterConfigsRequest.AlterableConfig


class Resource(NamedTuple):
    """What has configs. A broker without a name is the default of the whole cluster."""

    kind: int
    name: str

    def __str__(self) -> str:
        if self.kind == TOPIC:
            return f"topic {self.name}"
        return f"broker {self.name}" if self.name else "the cluster"


def of_resource(work: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name a resource; exactly one of them must be given."""
    for option in (
        click.option("--topic", metavar="NAME", help="A topic."),
        click.option("--broker", metavar="ID", type=click.IntRange(0), help="One broker."),
        click.option(
            "--cluster-default", is_flag=True, help="All brokers that set nothing themselves."
        ),
    ):
        work = option(work)
    return work


def resource_from(topic: str | None, broker: int | None, cluster_default: bool) -> Resource:
    """The resource that the options name; a usage error unless it is exactly one."""
    if [topic is not None, broker is not None, cluster_default].count(True) != 1:
        raise click.UsageError("name one of --topic, --broker and --cluster-default")
    if topic is not None:
        return Resource(TOPIC, topic)
    return Resource(BROKER, "" if broker is None else str(broker))


@click.group("configs")
def command() -> None:
    """Describe, set and unset configs."""


@command.command()
@click.argument("keys", nargs=-1)
@of_resource
@click.option("--all", "everything", is_flag=True, help="Show defaults too, not only what was set.")
@click.option("--explain", is_flag=True, help="Show what each key means and where else it is set.")
@on_cluster
async def describe(
    cluster: Cluster,
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    cluster_default: bool,
    everything: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Show configs with their values and where these come from."""
    resource = resource_from(topic, broker, cluster_default)
    found = await described(cluster, resource, keys, explain=explain or as_json)
    chosen = [c for c in found if everything or keys or SOURCES.get(c.config_source) != "default"]
    chosen.sort(key=lambda config: config.name)
    if as_json:
        show_json([_full(config, resource) for config in chosen])
    elif explain:
        _explain(chosen, resource)
    else:
        nothing = f"nothing is set for {resource}; --all shows the defaults"
        rows = [_short(config, resource) for config in chosen]
        show(rows, as_json=False, nothing=nothing)


@command.command("set")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
@of_resource
@on_cluster
async def set_(
    cluster: Cluster,
    changes: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    cluster_default: bool,
    as_json: bool,
) -> None:
    """Set configs; KEY+=VALUE and KEY-=VALUE add to and take from a list."""
    resource = resource_from(topic, broker, cluster_default)
    await alter(cluster, resource, changes, ())
    _done(resource, "set", [change.name for change in map(parse_change, changes)], as_json)


@command.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@of_resource
@on_cluster
async def unset(
    cluster: Cluster,
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    cluster_default: bool,
    as_json: bool,
) -> None:
    """Return configs to what they are without a setting here."""
    resource = resource_from(topic, broker, cluster_default)
    await alter(cluster, resource, (), keys)
    _done(resource, "unset", list(keys), as_json)


async def described(
    cluster: Cluster, resource: Resource, keys: Iterable[str] = (), *, explain: bool = False
) -> list[Config]:
    """The configs of a resource, all of them without `keys`."""
    request = DescribeConfigsRequest(
        resources=[_wanted(resource, keys)],
        include_synonyms=explain,
        include_documentation=explain,
    )
    if resource.kind == BROKER and resource.name:
        answer = await cluster.ask_broker(int(resource.name), request, DescribeConfigsResponse)
    else:
        answer = await cluster.ask(request, DescribeConfigsResponse)
    result = answer.results[0]
    refuse(result.error_code, result.error_message, str(resource))
    return result.configs


async def topic_overrides(
    cluster: Cluster, names: Iterable[str]
) -> dict[str, dict[str, str | None]]:
    """What was set for each topic itself; those whose configs may not be read are left out."""
    wanted = [_wanted(Resource(TOPIC, name)) for name in names]
    answer = await cluster.ask(DescribeConfigsRequest(resources=wanted), DescribeConfigsResponse)
    return {
        result.resource_name: {
            config.name: config.value
            for config in result.configs
            if SOURCES.get(config.config_source) == "topic"
        }
        for result in answer.results
        if not result.error_code
    }


def _wanted(
    resource: Resource, keys: Iterable[str] = ()
) -> DescribeConfigsRequest.DescribeConfigsResource:
    return DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=list(keys) or None,
    )


async def alter(
    cluster: Cluster, resource: Resource, changes: Iterable[str], unset: Iterable[str]
) -> None:
    """Make the changes, all of them or none."""
    edits = [parse_change(text) for text in changes]
    edits += [Change(name=name, config_operation=DELETE, value=None) for name in unset]
    altered = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configs=edits
    )
    request = IncrementalAlterConfigsRequest(resources=[altered])
    node = int(resource.name) if resource.kind == BROKER and resource.name else None
    node = await cluster.controller() if node is None else node
    answer = await cluster.ask_broker(node, request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        refuse(result.error_code, result.error_message, str(resource))


def parse_change(text: str) -> Change:
    """KEY=VALUE, KEY+=VALUE or KEY-=VALUE as a change; a usage error for anything else."""
    name, equals, value = text.partition("=")
    operation = {"+": APPEND, "-": SUBTRACT}.get(name[-1:], SET)
    name = name.rstrip("+-").strip()
    if not (name and equals):
        raise click.UsageError(f"{text}: write KEY=VALUE, KEY+=VALUE or KEY-=VALUE")
    return Change(name=name, config_operation=operation, value=value)


def _short(config: Config, resource: Resource) -> dict[str, object]:
    return {
        "key": config.name,
        "value": "[hidden]" if config.is_sensitive else config.value,
        "source": SOURCES.get(config.config_source, config.config_source),
        "update": _update_mode(config, resource),
    }


def _update_mode(config: Config, resource: Resource) -> str:
    """Kafka's update mode of a key, or where it may be set."""
    if config.read_only:
        return Mode.READ_ONLY.value
    if resource.kind == TOPIC:
        return "per-topic"
    row = BrokerSettings.KEYS.get(config.name) or idle_key(config.name)
    return Mode.CLUSTER_WIDE.value if row is None else row.mode.value


def _full(config: Config, resource: Resource) -> dict[str, object]:
    return {
        "key": config.name,
        "value": config.value,
        "source": SOURCES.get(config.config_source, config.config_source),
        "read_only": config.read_only,
        "update": _update_mode(config, resource),
        "sensitive": config.is_sensitive,
        "synonyms": [
            {"key": row.name, "value": row.value, "source": SOURCES.get(row.source, row.source)}
            for row in config.synonyms
        ],
        "doc": config.documentation,
    }


def _explain(configs: list[Config], resource: Resource) -> None:
    for config in configs:
        row = _short(config, resource)
        click.echo(f"{row['key']} = {row['value']}  (from {row['source']}, {row['update']})")
        if config.documentation:
            click.echo(f"    {config.documentation}")
        for other in config.synonyms:
            click.echo(f"    {SOURCES.get(other.source)}: {other.name} = {other.value}")


def _done(resource: Resource, what: str, keys: list[str], as_json: bool) -> None:
    if as_json:
        show_json({"resource": str(resource), what: keys})
    else:
        click.echo(f"{resource}: {what} {', '.join(keys)}")
