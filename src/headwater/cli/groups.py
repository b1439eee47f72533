"""`headwater groups`: list, describe with lag, delete, reset offsets."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import click

from headwater.cli.cluster import Cluster, refuse
from headwater.cli.options import bootstrap_option, json_option, on_cluster
from headwater.cli.output import show, show_json
from headwater.client.admin import BlockingAdmin as Admin
from headwater.client.admin import ResetTo
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from headwater.wire import codec
from headwater.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from headwater.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from headwater.wire.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

LATEST = -1
NO_OFFSET = -1
DEAD = "Dead"
_CONSUMER = "consumer"
_ONE_GROUP_UP_TO = 7

Described = DescribeGroupsResponse.DescribedGroup
Member = DescribeGroupsResponse.DescribedGroupMember


class Position(NamedTuple):
    """Where a group stands in one partition."""

    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """Records not read yet; None where one of the two ends is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


class GroupView(NamedTuple):
    """A group as it is shown."""

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
    "--state", "states", multiple=True, help="Only groups in this state; may be repeated."
)
@on_cluster
async def list_(cluster: Cluster, states: tuple[str, ...], as_json: bool) -> None:
    """List groups and their states."""
    wanted = {state.lower() for state in states}
    rows = [
        {
            "group": group.group_id,
            "state": group.group_state,
            "type": group.group_type or "classic",
            "protocol": group.protocol_type,
        }
        for group in await _all_groups(cluster)
        if not wanted or group.group_state.lower() in wanted
    ]
    rows.sort(key=lambda row: row["group"])
    show(rows, as_json=as_json, nothing="no groups")


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--members", is_flag=True, help="Show members instead of partitions.")
@on_cluster
async def describe(cluster: Cluster, names: tuple[str, ...], members: bool, as_json: bool) -> None:
    """Describe groups: state, members, offsets and lag."""
    found = [await cluster.until_ready(partial(_describe, cluster, name)) for name in names]
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
@click.argument("names", nargs=-1, required=True)
@on_cluster
async def delete(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    for name in names:
        await cluster.until_ready(partial(_delete, cluster, name))
    if as_json:
        show_json([{"group": name, "deleted": True} for name in names])
        return
    for name in names:
        click.echo(f"{name}: deleted")


@command.command("reset-offsets")
@click.argument("name")
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="To what comes from now on.")
@click.option("--to-current", is_flag=True, help="To where the group is.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To an offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many records on, or back: -5.")
@click.option("--to-datetime", metavar="TIME", help="To a time: 2026-01-31T12:00:00, UTC.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To so long ago: PT1H, P7D.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Only this; may be repeated."
)
@click.option("--all-topics", is_flag=True, help="Everything that the group has committed.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@bootstrap_option
@json_option
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    bootstrap: str,
    as_json: bool,
    **targets: object,
) -> None:
    """Move a group without members to other offsets; shows them before and after."""
    if bool(topics) == all_topics:
        raise click.UsageError("say what to reset: --topic or --all-topics")
    to = _reset_to(targets)
    places = [place for topic in topics for place in _places(topic)] if topics else None
    with Admin(bootstrap_servers=bootstrap) as admin:
        changes = admin.reset_group_offsets(name, to, places, dry_run=dry_run)
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
    show(rows, as_json=as_json, title=title, nothing=f"{name}: nothing is committed")


def _reset_to(targets: dict[str, object]) -> ResetTo:
    """The one strategy that was given."""
    chosen = {name: value for name, value in targets.items() if value not in (None, False)}
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
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from None


def _places(text: str) -> list[str | tuple[str, int]]:
    """`orders` is all of a topic, `orders:0,2` two partitions of it."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return [topic]
    try:
        return [(topic, int(number)) for number in numbers.split(",")]
    except ValueError:
        raise click.UsageError(f"{text}: write TOPIC or TOPIC:0,1") from None


async def _all_groups(cluster: Cluster) -> list[ListGroupsResponse.ListedGroup]:
    found = []
    for node_id in await cluster.brokers():
        answer = await cluster.ask_broker(node_id, ListGroupsRequest(), ListGroupsResponse)
        refuse(answer.error_code, about=f"broker {node_id}")
        found += answer.groups
    return found


async def _delete(cluster: Cluster, name: str) -> None:
    request = DeleteGroupsRequest(groups_names=[name])
    answer = await cluster.ask_coordinator(name, request, DeleteGroupsResponse)
    for result in answer.results:
        refuse(result.error_code, result.error_message, result.group_id)


async def _describe(cluster: Cluster, name: str) -> GroupView:
    group = await _group(cluster, name)
    committed = await _committed(cluster, name)
    if group.group_state == DEAD and not committed:
        raise KafkaError(E.GROUP_ID_NOT_FOUND, f"{name}: there is no such group")
    owners = {tp: member for member in group.members for tp in _assigned(group, member)}
    ends = await _ends(cluster, committed.keys() | owners.keys())
    partitions = [
        _partition_row(tp, Position(committed.get(tp), ends.get(tp)), owners.get(tp))
        for tp in sorted(committed.keys() | owners.keys())
    ]
    members = [_member_row(group, member) for member in group.members]
    return GroupView(name, group.group_state, group.protocol_data, members, partitions)


async def _group(cluster: Cluster, name: str) -> Described:
    request = DescribeGroupsRequest(groups=[name])
    group = (await cluster.ask_coordinator(name, request, DescribeGroupsResponse)).groups[0]
    refuse(group.error_code, group.error_message, name)
    return group


async def _committed(cluster: Cluster, name: str) -> dict[TopicPartition, int]:
    """The group's offsets in every topic."""
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = await cluster.ask_coordinator(
        name, request, OffsetFetchResponse, newest=_ONE_GROUP_UP_TO
    )
    refuse(answer.error_code, about=name)
    found: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition_index)
            refuse(partition.error_code, about=str(place))
            if partition.committed_offset != NO_OFFSET:
                found[place] = partition.committed_offset
    return found


async def _ends(cluster: Cluster, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The high watermarks of partitions, asked of their leaders; unknown ones are left out."""
    by_leader: dict[int, list[TopicPartition]] = {}
    names = sorted({tp.topic for tp in wanted})
    for topic in (await cluster.metadata(names)).topics if names else []:
        for partition in topic.partitions:
            place = TopicPartition(topic.name or "", partition.partition_index)
            if place in set(wanted) and partition.leader_id >= 0:
                by_leader.setdefault(partition.leader_id, []).append(place)
    found: dict[TopicPartition, int] = {}
    for leader, places in by_leader.items():
        answer = await cluster.ask_broker(leader, _latest(places), ListOffsetsResponse)
        for answered in answer.topics:
            for end in answered.partitions:
                if not end.error_code:
                    found[TopicPartition(answered.name, end.partition_index)] = end.offset
    return found


def _latest(places: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for place in places:
        topic = topics.setdefault(
            place.topic, ListOffsetsRequest.ListOffsetsTopic(name=place.topic)
        )
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsPartition(
                partition_index=place.partition, timestamp=LATEST
            )
        )
    return ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))


def _assigned(group: Described, member: Member) -> list[TopicPartition]:
    """What the group's leader gave to the member; empty where that cannot be read."""
    blob = member.member_assignment
    if group.protocol_type != _CONSUMER or len(blob) < 2:
        return []
    version = min(int.from_bytes(blob[:2]), 3)
    try:
        assignment, _ = codec.decode(ConsumerProtocolAssignment, version, blob, 2)
    except codec.WireError:
        return []
    return [
        TopicPartition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    ]


def _member_row(group: Described, member: Member) -> dict[str, object]:
    return {
        "member": member.member_id,
        "instance": member.group_instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "assigned": [str(place) for place in sorted(_assigned(group, member))],
    }


def _partition_row(
    place: TopicPartition, position: Position, owner: Member | None
) -> dict[str, object]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "committed": position.committed,
        "end": position.end,
        "lag": position.lag,
        "member": owner.member_id if owner else None,
        "host": owner.client_host if owner else None,
    }
