"""Finds transactions that are open in a partition although no coordinator will end them."""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.client.admin import Admin, ProducerState, TransactionDescription
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition

_MAX_I64 = (1 << 63) - 1
_AT_A_TIME = 500
"""Partitions and producers per request."""

_NO_NAME = "headwater-find-hanging"
"""A name that does not exist; only users who may describe every name get that as the answer."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    place: TopicPartition
    producer: ProducerState


async def open_transactions(
    admin: Admin,
    places: Sequence[TopicPartition],
    broker_id: int | None,
    idle_since_ms: int = _MAX_I64,
) -> list[OpenTransaction]:
    """Return the open transactions whose producers wrote nothing since a time."""
    found = []
    for begin in range(0, len(places), _AT_A_TIME):
        asked = places[begin : begin + _AT_A_TIME]
        producers = await admin.describe_producers(asked, broker_id=broker_id)
        found += [
            OpenTransaction(place, one)
            for place, rows in producers.items()
            for one in rows
            if one.transaction_start is not None and one.last_timestamp <= idle_since_ms
        ]
    return found


async def owners(
    admin: Admin, candidates: Sequence[OpenTransaction]
) -> dict[int, TransactionDescription]:
    """Return what the coordinators know of the producers' transactions, by producer id."""
    producer_ids = sorted({one.producer.producer_id for one in candidates})
    found = {}
    for begin in range(0, len(producer_ids), _AT_A_TIME):
        for row in await admin.list_transactions((), producer_ids[begin : begin + _AT_A_TIME]):
            try:
                described = await admin.describe_transactions([row.transactional_id])
            except KafkaError as refused:
                if refused.code is not E.TRANSACTIONAL_ID_NOT_FOUND:  # it expired meanwhile
                    raise
            else:
                found[row.producer_id] = described[row.transactional_id]
    if set(producer_ids) - found.keys():
        await _require_all_ids(admin)
    return found


async def require_all_topics(admin: Admin) -> None:
    """Raise KafkaError if topics may be hidden from this user, where nothing may be missed."""
    try:
        await admin.describe_topics([_NO_NAME])
    except KafkaError as answer:
        if answer.code is E.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaError(
                answer.code,
                "this user may not see all topics, and transactions may hang in the others: name "
                "the topics to search, or grant it with: headwater acls allow USER describe,read "
                "topic '*'",
            ) from None
        if answer.code is not E.UNKNOWN_TOPIC_OR_PARTITION:
            raise


async def _require_all_ids(admin: Admin) -> None:
    """Raise KafkaError if a coordinator may know more transactions than it shows to this user."""
    try:
        await admin.describe_transactions([_NO_NAME])
    except KafkaError as answer:
        if answer.code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise KafkaError(
                answer.code,
                "this user may not see all transactional ids, so a transaction that its "
                "coordinator will end could seem to hang: grant the right with: headwater acls allow "
                "USER describe transactional-id '*'",
            ) from None
        if answer.code is not E.TRANSACTIONAL_ID_NOT_FOUND:
            raise


def is_hanging(one: OpenTransaction, owner: TransactionDescription | None) -> bool:
    """Return whether the coordinator has no marker to write where the transaction is open."""
    return owner is None or one.place not in owner.partitions


async def hanging(
    admin: Admin, candidates: Sequence[OpenTransaction], broker_id: int | None
) -> list[OpenTransaction]:
    """Return the transactions that no coordinator is going to end."""
    known = await owners(admin, candidates)
    found = [one for one in candidates if is_hanging(one, known.get(one.producer.producer_id))]
    # A transaction may have ended after it was seen open and before its coordinator was asked.
    places = sorted({one.place for one in found})
    still_open = {
        (one.place, one.producer.producer_id, one.producer.transaction_start)
        for one in await open_transactions(admin, places, broker_id)
    }
    return [
        one
        for one in found
        if (one.place, one.producer.producer_id, one.producer.transaction_start) in still_open
    ]
