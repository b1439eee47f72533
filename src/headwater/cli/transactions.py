"""`headwater transactions`: list, describe; find and abort those that hang."""

import datetime as dt

import click

from headwater.cli.hanging_transactions import (
    OpenTransaction,
    hanging,
    is_hanging,
    open_transactions,
    owners,
    require_all_topics,
)
from headwater.cli.options import with_admin
from headwater.cli.output import show
from headwater.cli.partition_names import named_partition
from headwater.cli.producers import producer_row
from headwater.cli.reach_broker import require_topics
from headwater.client.admin import Admin
from headwater.client.errors import no_such_partition
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"),
)
_LONGEST_MINUTES = 15


@click.group("transactions")
def command() -> None:
    """List and describe transactions; find and abort those that hang."""


@command.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES, case_sensitive=False),
    multiple=True,
    help="Only ids in this state; may be repeated.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only the id of this producer; may be repeated.",
)
@click.option(
    "--longer-than",
    type=click.IntRange(0),
    metavar="MS",
    help="Only transactions that have been open for longer.",
)
@click.option(
    "--id-pattern", metavar="REGEX", help="Only ids that match this expression as a whole."
)
@with_admin
async def list_(
    admin: Admin,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: int | None,
    id_pattern: str | None,
    as_json: bool,
) -> None:
    """List transactional ids, their states, and whether a transaction is open."""
    found = await admin.list_transactions(
        states, producer_ids, longer_than_ms=longer_than, id_pattern=id_pattern
    )
    show([row._asdict() for row in found], as_json=as_json, nothing="no transactions")


@command.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@with_admin
async def describe(admin: Admin, transactional_ids: tuple[str, ...], as_json: bool) -> None:
    """Describe transactions: state, producer, timeout, and where they are open."""
    found = await admin.describe_transactions(transactional_ids)
    now = _now_ms()
    rows = []
    for one in found.values():
        row = one._asdict()
        row["open_for_ms"] = None if one.started_ms is None else max(now - one.started_ms, 0)
        row["partitions"] = [str(place) for place in one.partitions]
        rows.append(row)
    show(rows, as_json=as_json)


@command.command("find-hanging")
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION]]...")
@click.option(
    "--broker",
    "broker_id",
    type=click.IntRange(0),
    metavar="ID",
    help="Only the replicas of this broker, as it knows them.",
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=click.IntRange(0),
    default=_LONGEST_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="Skip transactions whose producer wrote this recently; transaction.max.timeout.ms of the "
    "brokers or more.",
)
@with_admin
async def find_hanging(
    admin: Admin, names: tuple[str, ...], broker_id: int | None, minutes: int, as_json: bool
) -> None:
    """Find transactions that no coordinator will end, in some or all partitions.

    They stop read_committed consumers. `headwater transactions abort` ends one.
    """
    places = await _places(admin, names, broker_id)
    idle_since = _now_ms() - minutes * 60_000
    candidates = await open_transactions(admin, places, broker_id, idle_since)
    found = await hanging(admin, candidates, broker_id)
    rows = [producer_row(one.place, one.producer) for one in found]
    show(rows, as_json=as_json, nothing="no hanging transactions")


async def _places(
    admin: Admin, names: tuple[str, ...], broker_id: int | None
) -> list[TopicPartition]:
    if broker_id is not None:
        await _require_broker(admin, broker_id)
    chosen = [(name, named_partition(name)) for name in names]
    topics = [one.topic if one else name for name, one in chosen]
    await require_topics(admin, topics)
    if not names:
        await require_all_topics(admin)
    views = await admin.describe_topics(topics or await admin.list_topics(internal=True))
    single = {one for _, one in chosen if one}
    for one in single:
        if one.partition >= len(views[one.topic].partitions):
            raise no_such_partition(one, len(views[one.topic].partitions))
    whole = {name for name, one in chosen if not one} if names else views.keys()
    return [
        place
        for view in views.values()
        for row in view.partitions
        if (place := TopicPartition(view.name, row.partition)) in single or view.name in whole
        if broker_id is None or broker_id in row.replicas
    ]


async def _require_broker(admin: Admin, broker_id: int) -> None:
    live = [node.id for node in (await admin.describe_cluster()).brokers]
    if broker_id not in live:
        text = f"there is no live broker {broker_id}; the brokers are {', '.join(map(str, live))}"
        raise KafkaError(E.BROKER_ID_NOT_REGISTERED, text)


@command.command()
@click.argument("name", metavar="TOPIC:PARTITION")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    required=True,
    metavar="OFFSET",
    help="Where the transaction begins, as find-hanging and `headwater producers` show it.",
)
@click.option("--force", is_flag=True, help="Abort it even if its coordinator is going to end it.")
@with_admin
async def abort(admin: Admin, name: str, start_offset: int, force: bool, as_json: bool) -> None:
    """Abort a hanging transaction in one partition."""
    place = named_partition(name)
    if place is None:
        raise click.UsageError(f"{name}: write TOPIC:PARTITION")
    await require_topics(admin, [place.topic])
    found = await _transaction_at(admin, place, start_offset)
    owner = (await owners(admin, [found])).get(found.producer.producer_id)
    if owner is not None and not is_hanging(found, owner) and not force:
        raise KafkaError(
            E.INVALID_TXN_STATE,
            f"the transaction at offset {start_offset} of {place} does not hang: transactional id "
            f"{owner.transactional_id} is in state {owner.state}, and its coordinator ends it after "
            f"{owner.timeout_ms} ms at the latest; wait, or give --force",
        )
    await admin.abort_transaction(place, found.producer)
    row = producer_row(place, found.producer)
    show([row], as_json=as_json, title=f"{place}: aborted the transaction at {start_offset}")


async def _transaction_at(
    admin: Admin, place: TopicPartition, start_offset: int
) -> OpenTransaction:
    producers = (await admin.describe_producers([place]))[place]
    starts = {one.transaction_start: one for one in producers if one.transaction_start is not None}
    if start_offset not in starts:
        others = (
            f"those open begin at {', '.join(map(str, sorted(starts)))}" if starts else "none is"
        )
        raise KafkaError(
            E.INVALID_TXN_STATE,
            f"no transaction that begins at offset {start_offset} is open in {place}; {others}",
        )
    return OpenTransaction(place, starts[start_offset])


def _now_ms() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)  # noqa: TID251 - a person's clock
