"""`headwater topics`: create, list, describe, alter, trim, delete."""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import click

from headwater.cli.configs import alter, topic_overrides
from headwater.cli.item_results import ItemResults
from headwater.cli.name_completion import TOPIC
from headwater.cli.options import parse_assignments, with_admin
from headwater.cli.output import cell, if_allowed, show, show_json
from headwater.cli.reach_broker import require_topics
from headwater.client.admin import Admin, ConfigResource, NewTopic
from headwater.client.cluster import TopicView
from headwater.config.keys import nearest
from headwater.config.profiles import PROFILES
from headwater.config.topic import TopicSettings
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition, uuid_text

Overrides: TypeAlias = dict[str, str | None]
_FACTOR = "replication.factor"
_SHOWN = 3
"""How many partitions an error names."""

config_option = click.option(
    "-c", "--config", "configs", multiple=True, metavar="KEY=VALUE",
    help="A config of the topic; may be repeated.",
)  # fmt: skip


class Sizes(NamedTuple):
    """The offsets and bytes of partitions."""

    start: dict[TopicPartition, int]
    end: dict[TopicPartition, int]
    size: dict[TopicPartition, int] | None
    """None if this user may not know them."""

    def bytes_of(self, places: Iterable[TopicPartition]) -> int | None:
        """Return the bytes of partitions."""
        sizes = self.size
        return None if sizes is None else sum(sizes.get(place, 0) for place in places)


@click.group("topics")
def command() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="Number of partitions; by default the broker chooses.",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1),
    help="Number of replicas; by default the broker chooses.",
)
@click.option(
    "--assign",
    metavar="ID:ID,ID:ID,...",
    help="The brokers of each partition, the preferred leader first; decides both numbers.",
)
@config_option
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="Apply the topic settings of a profile and print them; other options win.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic already exists.")
@with_admin
async def create(
    admin: Admin,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    assign: str | None,
    configs: tuple[str, ...],
    profile: str | None,
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create topics."""
    replicas = _assigned(assign, partitions, replication_factor)
    chosen = _of_profile(profile) | parse_assignments(configs)
    factor = replication_factor or int(chosen.pop(_FACTOR, "0")) or None
    report = ItemResults("topic", "created", E.TOPIC_ALREADY_EXISTS if if_not_exists else E.NONE)
    for name in names:
        topic = NewTopic(name, partitions, None if replicas else factor, chosen, replicas)
        await report.attempt(name, admin.create_topics([topic]), lambda no: _hint(no, chosen))
    report.show(as_json)


def _assigned(
    text: str | None, partitions: int | None, factor: int | None
) -> dict[int, list[int]] | None:
    """Parse the brokers of each partition, in the form of kafka-topics --replica-assignment."""
    if text is None:
        return None
    if partitions is not None or factor is not None:
        raise click.UsageError("--assign decides the numbers of partitions and replicas")
    rows = [row.split(":") for row in text.split(",")]
    if wrong := [word for row in rows for word in row if not word.isdecimal()]:
        raise click.UsageError(f"--assign {text}: {wrong[0]!r} is not the id of a broker")
    return {index: [int(word) for word in row] for index, row in enumerate(rows)}


def _of_profile(name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    for key, (value, why) in PROFILES[name].topic.items():
        click.echo(f"profile {name}: {key}={_text(value)}  {why}", err=True)
    return {key: _text(value) for key, (value, _) in PROFILES[name].topic.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _hint(refused: KafkaError, configs: Iterable[str]) -> str:
    """Return a hint for a topic that could not be created."""
    if refused.code is E.TOPIC_ALREADY_EXISTS:
        return "; --if-not-exists accepts that"
    if refused.code is E.INVALID_CONFIG and "did you mean" not in refused.message:
        unknown = [name for name in configs if name not in TopicSettings.KEYS]
        return "".join(nearest(name, TopicSettings.KEYS) for name in unknown[:1])
    return ""


@command.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@click.option("--names", is_flag=True, help="Print only names, one per line.")
@with_admin
async def list_(admin: Admin, internal: bool, names: bool, as_json: bool) -> None:
    """List topics with their partitions, replicas, records and bytes."""
    found = await admin.list_topics(internal=internal)
    if names and as_json:
        show_json(found)
        return
    if names:
        click.echo("".join(f"{name}\n" for name in found), nl=False)
        return
    views = await admin.describe_topics(found)
    sizes = await _sizes(admin, views.values())
    rows = [_summary(view, sizes) for view in views.values()]
    show(rows, as_json=as_json, nothing="no topics")


@command.command()
@click.argument("names", nargs=-1, shell_complete=TOPIC)
@click.option("--internal", is_flag=True, help="Without a name: show internal topics too.")
@with_admin
async def describe(admin: Admin, names: tuple[str, ...], internal: bool, as_json: bool) -> None:
    """Describe topics, all by default: partitions, replicas, offsets, bytes and configs."""
    await require_topics(admin, names)
    views = await admin.describe_topics(names or await admin.list_topics(internal=internal))
    configs = await if_allowed("configs", topic_overrides(admin, views)) or {}
    sizes = await _sizes(admin, views.values())
    shown = [_described(view, configs.get(view.name, {}), sizes) for view in views.values()]
    if as_json:
        show_json(shown)
        return
    for number, (view, topic) in enumerate(zip(views.values(), shown, strict=True)):
        if number:
            click.echo()
        _show_topic(topic, _summary(view, sizes))


@command.command("alter")
@click.argument("name", shell_complete=TOPIC)
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
@with_admin
async def alter_(
    admin: Admin,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change configs of a topic, or add partitions to it."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("give --partitions, --config or --unset")
    await require_topics(admin, [name])
    if configs or unset:
        await alter(admin, ConfigResource.topic(name), configs, unset)
    report = ItemResults("topic", "altered")
    grown = {name: partitions} if partitions is not None else {}
    await report.attempt(name, admin.create_partitions(grown) if grown else _nothing())
    report.show(as_json)


async def _nothing() -> None:
    pass


@command.command()
@click.argument("name", shell_complete=TOPIC)
@click.option(
    "--before",
    required=True,
    metavar="OFFSET|end",
    help="The first offset to keep; end deletes every record.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only this partition; may be repeated.",
)
@with_admin
async def trim(
    admin: Admin, name: str, before: str, partitions: tuple[int, ...], as_json: bool
) -> None:
    """Delete the records of a topic below an offset; show the new start of each partition."""
    if before != "end" and not before.isdecimal():
        raise click.UsageError(f"--before {before}: write an offset, or end")
    await require_topics(admin, [name])
    view = (await admin.describe_topics([name]))[name]
    there = [row.partition for row in view.partitions]
    if wrong := [number for number in partitions if number not in there]:
        raise KafkaError(
            E.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic '{name}' has no partition {wrong[0]}; it has {there[0]} to {there[-1]}",
        )
    places = [TopicPartition(name, number) for number in partitions or there]
    ends = await admin.end_offsets(places)
    limit = ends if before == "end" else dict.fromkeys(ends, int(before))
    if short := [f"{at} at {end}" for at, end in sorted(ends.items()) if limit[at] > end]:
        raise KafkaError(
            E.OFFSET_OUT_OF_RANGE,
            f"--before {before} is beyond the end of {len(short)} of {len(ends)} partitions "
            f"(that of {', '.join(short[:_SHOWN])}); nothing is deleted: write a lower offset, "
            "choose partitions with --partition, or delete every record with --before end",
        )
    starts = await admin.delete_records(limit)
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": starts[place],
            "end": ends[place],
        }
        for place in sorted(starts)
    ]
    show(rows, as_json=as_json)


command.add_command(
    click.Command("delete-records", params=trim.params, callback=trim.callback, hidden=True)
)


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=TOPIC)
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@with_admin
async def delete(admin: Admin, names: tuple[str, ...], if_exists: bool, as_json: bool) -> None:
    """Delete topics with all their records."""
    report = ItemResults("topic", "deleted", E.UNKNOWN_TOPIC_OR_PARTITION if if_exists else E.NONE)
    for name in names:
        await report.attempt(name, admin.delete_topics([name]))
    report.show(as_json)


async def _sizes(admin: Admin, views: Iterable[TopicView]) -> Sizes:
    """Return the offsets and bytes of all partitions that have a leader."""
    places = [
        TopicPartition(view.name, row.partition)
        for view in views
        for row in view.partitions
        if row.leader >= 0
    ]
    dirs = await if_allowed("BYTES", admin.describe_log_dirs())
    sizes = None
    if dirs is not None:
        sizes = {place: size for one in dirs for place, size in one.sizes.items()}
    return Sizes(await admin.beginning_offsets(places), await admin.end_offsets(places), sizes)


def _summary(view: TopicView, sizes: Sizes) -> dict[str, object]:
    places = [TopicPartition(view.name, row.partition) for row in view.partitions]
    led = [place for place in places if place in sizes.end]
    return {
        "topic": view.name,
        "partitions": len(places),
        "replicas": len(view.partitions[0].replicas) if view.partitions else 0,
        "records": sum(sizes.end[place] - sizes.start[place] for place in led),
        "bytes": sizes.bytes_of(places),
    }


def _described(view: TopicView, configs: Overrides, sizes: Sizes) -> dict[str, object]:
    partitions = [
        {
            "partition": row.partition,
            "leader": row.leader if row.leader >= 0 else None,
            "epoch": row.leader_epoch,
            "replicas": list(row.replicas),
            "isr": list(row.isr),
            "offline": list(row.offline),
            "start": sizes.start.get(TopicPartition(view.name, row.partition)),
            "end": sizes.end.get(TopicPartition(view.name, row.partition)),
            "bytes": sizes.bytes_of([TopicPartition(view.name, row.partition)]),
        }
        for row in view.partitions
    ]
    return {
        "topic": view.name,
        "id": uuid_text(view.topic_id),
        "internal": view.internal,
        "configs": configs,
        "partitions": partitions,
    }


def _show_topic(topic: dict[str, object], summary: dict[str, object]) -> None:
    words = [f"{name} {cell(value)}" for name, value in summary.items() if name != "topic"]
    click.echo("  ".join([f"{topic['topic']}  id {topic['id']}", *words]))
    configs, partitions = topic["configs"], topic["partitions"]
    assert isinstance(configs, dict)
    assert isinstance(partitions, list)
    for name, value in configs.items():
        click.echo(f"  {name}={cell(value)}")
    show(partitions, as_json=False)
