"""`headwater topics`: create, list, describe, alter, delete."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import click

from headwater.cli.cluster import Cluster, refusal, refuse
from headwater.cli.configs import TOPIC, Resource, alter, topic_overrides
from headwater.cli.options import assignments, on_cluster
from headwater.cli.output import cell, show, show_json
from headwater.errors import E, KafkaError
from headwater.model import INTERNAL_TOPICS, uuid_text
from headwater.wire.messages.metadata import MetadataResponse
from headwater.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

Overrides: TypeAlias = dict[str, str | None]

BROKERS_CHOICE = -1
TIMEOUT_MS = 30_000
_NAMES_UP_TO = 5

config_option = click.option(
    "-c", "--config", "configs", multiple=True, metavar="KEY=VALUE",
    help="A config of the topic; may be repeated.",
)  # fmt: skip


class TopicView(NamedTuple):
    """A topic as it is shown."""

    topic: str
    id: str
    internal: bool
    configs: Overrides
    partitions: list[dict[str, object]]


@click.group("topics")
def command() -> None:
    """Create, list, describe, alter and delete topics."""


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="How many partitions; else the broker chooses.",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1),
    help="How many replicas; else the broker chooses.",
)
@config_option
@click.option(
    "--if-not-exists", is_flag=True, help="Be content with a topic that is there already."
)
@on_cluster
async def create(
    cluster: Cluster,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create topics."""
    settings = [
        CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
        for name, value in assignments(configs).items()
    ]
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions or BROKERS_CHOICE,
            replication_factor=replication_factor or BROKERS_CHOICE,
            configs=settings,
        )
        for name in names
    ]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS)
    answer = await cluster.ask_broker(await cluster.controller(), request, CreateTopicsResponse)
    results = [(topic.name, topic.error_code, topic.error_message) for topic in answer.topics]
    _report("created", results, E.TOPIC_ALREADY_EXISTS if if_not_exists else E.NONE, as_json)


@command.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@on_cluster
async def list_(cluster: Cluster, internal: bool, as_json: bool) -> None:
    """List the names of topics."""
    topics = (await cluster.metadata()).topics
    names = sorted(topic.name or "" for topic in topics if internal or not _internal(topic))
    if as_json:
        show_json(names)
        return
    for name in names:
        click.echo(name)


@command.command()
@click.argument("names", nargs=-1)
@on_cluster
async def describe(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Describe topics: partitions, leaders, replicas and configs. All of them without a name."""
    topics = (await cluster.metadata(names or None)).topics
    for topic in topics:
        refuse(topic.error_code, about=topic.name or "")
    shown = sorted(topics, key=lambda topic: topic.name or "")
    configs = await topic_overrides(cluster, [topic.name or "" for topic in shown])
    views = [_view(topic, configs.get(topic.name or "", {})) for topic in shown]
    if as_json:
        show_json([view._asdict() for view in views])
        return
    for number, view in enumerate(views):
        if number:
            click.echo()
        _show_topic(view)


@command.command("alter")
@click.argument("name")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="The new number of partitions; it can only grow.",
)
@config_option
@click.option(
    "-u", "--unset", "unset", multiple=True, metavar="KEY", help="Return a config to its default."
)
@on_cluster
async def alter_(
    cluster: Cluster,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change configs of a topic, or add partitions to it."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("say what to change: --partitions, --config or --unset")
    if configs or unset:
        await alter(cluster, Resource(TOPIC, name), configs, unset)
    if partitions is not None:
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=partitions, assignments=None
        )
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        answer = await cluster.ask_broker(
            await cluster.controller(), request, CreatePartitionsResponse
        )
        for topic in answer.results:
            refuse(topic.error_code, topic.error_message, topic.name)
    _report("altered", [(name, E.NONE, None)], E.NONE, as_json)


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Be content with a topic that is not there.")
@on_cluster
async def delete(cluster: Cluster, names: tuple[str, ...], if_exists: bool, as_json: bool) -> None:
    """Delete topics with all their records."""
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    answer = await cluster.ask_broker(
        await cluster.controller(), request, DeleteTopicsResponse, newest=_NAMES_UP_TO
    )
    results = [
        (topic.name or "", topic.error_code, topic.error_message) for topic in answer.responses
    ]
    _report("deleted", results, E.UNKNOWN_TOPIC_OR_PARTITION if if_exists else E.NONE, as_json)


def _internal(topic: MetadataResponse.MetadataResponseTopic) -> bool:
    return topic.is_internal or topic.name in INTERNAL_TOPICS


def _view(topic: MetadataResponse.MetadataResponseTopic, configs: Overrides) -> TopicView:
    partitions: list[dict[str, object]] = [
        {
            "partition": partition.partition_index,
            "leader": partition.leader_id if partition.leader_id >= 0 else None,
            "epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "offline": partition.offline_replicas,
        }
        for partition in sorted(topic.partitions, key=lambda row: row.partition_index)
    ]
    return TopicView(
        topic.name or "", uuid_text(topic.topic_id), topic.is_internal, configs, partitions
    )


def _show_topic(topic: TopicView) -> None:
    click.echo(f"{topic.topic}  id {topic.id}  partitions {len(topic.partitions)}")
    for name, value in topic.configs.items():
        click.echo(f"  {name}={cell(value)}")
    show(topic.partitions, as_json=False)


def _report(
    done: str, results: Sequence[tuple[str, int, str | None]], content_with: E, as_json: bool
) -> None:
    """Say what was done; then, if some topics were refused, why, all in one error."""
    rows, refused = [], []
    for name, code, message in results:
        if code in (E.NONE, content_with):
            rows.append({"topic": name, done: code == E.NONE})
        else:
            refused.append(refusal(code, message, name))
    if as_json:
        show_json(rows)
    else:
        for row in rows:
            click.echo(f"{row['topic']}: {done if row[done] else 'nothing to do'}")
    if refused:
        raise KafkaError(refused[0].code, "; ".join(problem.message for problem in refused))
