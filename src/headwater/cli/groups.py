"""`headwater groups`: list, describe with lag, delete, reset offsets."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import click

from headwater.cli.item_results import ItemResults
from headwater.cli.name_completion import GROUP, TOPIC
from headwater.cli.options import with_admin
from headwater.cli.output import show, show_json
from headwater.cli.reach_broker import require_topics
from headwater.client.admin import Admin, GroupDescription, MemberDescription, ResetTo
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

_STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
)
"""Kafka's names; the last two are of its newer group protocol."""


class Position(NamedTuple):
    """The position of a group in one partition."""

    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """Return the number of records not read yet; None if an offset is unknown."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


class GroupView(NamedTuple):
    """A group with its members and positions."""

    group: str
    state: str
    strategy: str
    members: list[dict[str, object]]
    partitions: list[dict[str, object]]


@click.group("groups")
def command() -> None:
    """List, describe, delete and reset consumer groups."""


@command.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state; may be repeated.",
)
@with_admin
async def list_(admin: Admin, states: tuple[str, ...], as_json: bool) -> None:
    """List groups and their states."""
    wanted = {state.lower() for state in states}
    rows = [
        {
            "group": group.group_id,
            "state": group.state,
            "type": group.type or "classic",
            "protocol": group.protocol_type,
        }
        for group in await admin.list_groups()
        if not wanted or group.state.lower() in wanted
    ]
    rows.sort(key=lambda row: row["group"])
    show(rows, as_json=as_json, nothing="no groups")


@command.command()
@click.argument("names", nargs=-1, shell_complete=GROUP)
@click.option("--all", "everything", is_flag=True, help="Describe every group.")
@click.option("--members", is_flag=True, help="Show members instead of partitions.")
@with_admin
async def describe(
    admin: Admin, names: tuple[str, ...], everything: bool, members: bool, as_json: bool
) -> None:
    """Describe groups: state, members, offsets and lag."""
    if bool(names) == everything:
        raise click.UsageError("name groups, or give --all")
    listed = [group.group_id for group in await admin.list_groups()] if everything else []
    found = [await _describe(admin, name) for name in names or sorted(listed)]
    if as_json:
        show_json([group._asdict() for group in found])
        return
    for number, group in enumerate(found):
        if number:
            click.echo()
        click.echo(f"{group.group}  state {group.state}  members {len(group.members)}")
        rows = group.members if members else group.partitions
        show(rows, as_json=False, nothing="no members" if members else "no offsets")


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=GROUP)
@with_admin
async def delete(admin: Admin, names: tuple[str, ...], as_json: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    report = ItemResults("group", "deleted")
    for name in names:
        await report.attempt(name, admin.delete_groups([name]))
    report.show(as_json)


@command.command("reset-offsets")
@click.argument("name", shell_complete=GROUP)
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end: read only new records.")
@click.option("--to-current", is_flag=True, help="To the group's current offsets.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To an offset.")
@click.option("--shift-by", type=int, metavar="N", help="Shift by N records; negative moves back.")
@click.option("--to-datetime", metavar="TIME", help="To a time: 2026-01-31T12:00:00, UTC.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To a duration ago: PT1H, P7D.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=TOPIC,
    help="Only this topic, or these partitions of it; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has committed.")
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@with_admin
async def reset_offsets(
    admin: Admin,
    /,
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    as_json: bool,
    **targets: object,
) -> None:
    """Move a group without members to other offsets; show them before and after."""
    if bool(topics) == all_topics:
        raise click.UsageError("give --topic or --all-topics")
    to = _reset_to(targets)
    places = [place for topic in topics for place in _places(topic)] if topics else None
    await _require_partitions(admin, places or [])
    changes = await admin.reset_group_offsets(name, to, places, dry_run=dry_run)
    if all_topics and not changes:
        raise KafkaError(
            E.GROUP_ID_NOT_FOUND,
            f"group '{name}' has no committed offsets: name the topics it should read with --topic",
        )
    rows = [
        {
            "topic": change.partition.topic,
            "partition": change.partition.partition,
            "before": change.before,
            "after": change.after,
        }
        for change in changes
    ]
    title = f"{name}: this would change" if dry_run else f"{name}: reset"
    show(rows, as_json=as_json, title=title, nothing=f"{name}: nothing to reset")


def _reset_to(targets: dict[str, object]) -> ResetTo:
    """Return the strategy; a usage error unless exactly one is given."""
    chosen = {
        name: value for name, value in targets.items() if value is not None and value is not False
    }
    if len(chosen) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in targets)
        raise click.UsageError(f"give one of {names}")
    ((name, value),) = chosen.items()
    made: dict[str, Callable[[Any], ResetTo]] = {
        "to_earliest": lambda _: ResetTo.earliest(),
        "to_latest": lambda _: ResetTo.latest(),
        "to_current": lambda _: ResetTo.current(),
        "to_offset": ResetTo.offset,
        "shift_by": ResetTo.shift_by,
        "to_datetime": ResetTo.datetime,
        "by_duration": ResetTo.duration,
    }
    try:
        return made[name](value)
    except ValueError:
        option = f"--{name.replace('_', '-')}"
        raise click.UsageError(f"{option} {value}: write {_EXAMPLES[name]}") from None


_EXAMPLES = {
    "to_datetime": "a time such as 2026-01-31T12:00:00",
    "by_duration": "a duration such as PT1H30M or P7D",
}


def _places(text: str) -> list[str | tuple[str, int]]:
    """Parse `orders` (a whole topic) or `orders:0,2` (two partitions)."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return [topic]
    try:
        return [(topic, int(number)) for number in numbers.split(",")]
    except ValueError:
        raise click.UsageError(f"{text}: write TOPIC or TOPIC:0,1") from None


async def _require_partitions(admin: Admin, places: Iterable[str | tuple[str, int]]) -> None:
    """Raise KafkaError for a topic or a partition that does not exist."""
    wanted = {place if isinstance(place, str) else place[0]: place for place in places}
    await require_topics(admin, list(wanted))
    views = await admin.describe_topics(list(wanted))
    for place in places:
        if not isinstance(place, str) and place[1] >= len(views[place[0]].partitions):
            last = len(views[place[0]].partitions) - 1
            raise KafkaError(
                E.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic '{place[0]}' has no partition {place[1]}; it has 0 to {last}",
            )


async def _describe(admin: Admin, name: str) -> GroupView:
    committed = {place: row.offset for place, row in (await admin.group_offsets(name)).items()}
    try:
        group = await admin.describe_group(name)
    except KafkaError as refused:
        if refused.code is not E.GROUP_ID_NOT_FOUND or not committed:
            raise
        group = GroupDescription(name, "Dead", "", "", ())  # only its offsets are left
    owners = {place: member for member in group.members for place in member.assignment}
    places = sorted(committed.keys() | owners.keys())
    there = set(await admin.list_topics(internal=True))
    ends = await admin.end_offsets([place for place in places if place.topic in there])
    partitions = [
        _partition_row(place, Position(committed.get(place), ends.get(place)), owners.get(place))
        for place in places
    ]
    members = [_member_row(member) for member in group.members]
    return GroupView(name, group.state, group.strategy, members, partitions)


def _member_row(member: MemberDescription) -> dict[str, object]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "assigned": [str(place) for place in sorted(member.assignment)],
    }


def _partition_row(
    place: TopicPartition, position: Position, owner: MemberDescription | None
) -> dict[str, object]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "committed": position.committed,
        "end": position.end,
        "lag": position.lag,
        "member": owner.member_id if owner else None,
        "host": owner.host if owner else None,
    }
