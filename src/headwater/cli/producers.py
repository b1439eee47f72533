"""`headwater producers`: the producers that partitions remember."""

import click

from headwater.cli.name_completion import TOPIC
from headwater.cli.options import with_admin
from headwater.cli.output import show
from headwater.cli.partition_names import partitions_of
from headwater.cli.reach_broker import require_topics
from headwater.client.admin import Admin, ProducerState
from headwater.model import TopicPartition


@click.command("producers")
@click.argument("name", metavar="TOPIC[:PARTITION]", shell_complete=TOPIC)
@click.option(
    "--broker",
    "broker_id",
    type=click.IntRange(0),
    metavar="ID",
    help="Ask this replica's broker instead of the leaders.",
)
@with_admin
async def command(admin: Admin, name: str, broker_id: int | None, as_json: bool) -> None:
    """List the idempotent and transactional producers that the partitions of a topic remember."""
    await require_topics(admin, [name.partition(":")[0]])
    places = await partitions_of(admin, name)
    found = await admin.describe_producers(places, broker_id=broker_id)
    rows = [producer_row(place, one) for place in places for one in found[place]]
    show(rows, as_json=as_json, nothing=f"{name}: no producers")


def producer_row(place: TopicPartition, producer: ProducerState) -> dict[str, object]:
    """Return a row of a table: a partition and one of its producers."""
    return {"topic": place.topic, "partition": place.partition, **producer._asdict()}
