"""Which open transactions hang, by what partitions and coordinators say of them."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.cli.app import command
from headwater.cli.hanging_transactions import OpenTransaction, hanging
from headwater.client.admin import ProducerState, TransactionDescription, TransactionListing
from headwater.config.broker_keys.authorization import STANDARD_AUTHORIZER
from headwater.errors import E, KafkaError
from headwater.model import TopicPartition
from tests.unit.broker.live import Live

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)


def producer(producer_id: int, start: int | None = 5) -> ProducerState:
    return ProducerState(producer_id, 0, 0, 1000, -1, start)


class FakeAdmin:
    """Partitions with producers, and a coordinator that knows some transactional ids."""

    def __init__(self, *open_now: ProducerState, ids: dict[str, int] | None = None) -> None:
        self.open_now = open_now
        self.ids = ids or {}
        self.known: dict[str, tuple[TopicPartition, ...]] = {}
        self.hides_ids = False

    async def describe_producers(
        self, places: Iterable[TopicPartition], *, broker_id: int | None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        return dict.fromkeys(places, self.open_now)

    async def list_transactions(
        self, states: Iterable[str], producer_ids: Iterable[int]
    ) -> list[TransactionListing]:
        asked = list(producer_ids)
        return [
            TransactionListing(name, 1, number, "Ongoing")
            for name, number in self.ids.items()
            if number in asked
        ]

    async def describe_transactions(
        self, names: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        (name,) = names
        if self.hides_ids and name not in self.ids:
            raise KafkaError(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if name not in self.known:
            raise KafkaError(E.TRANSACTIONAL_ID_NOT_FOUND)
        return {
            name: TransactionDescription(
                name, 1, "Ongoing", self.ids[name], 0, 60_000, 1000, self.known[name]
            )
        }


def found(admin: Any, *producers: ProducerState) -> list[int]:
    candidates = [OpenTransaction(HERE, one) for one in producers]
    return [one.producer.producer_id for one in asyncio.run(hanging(admin, candidates, None))]


def test_a_transaction_hangs_where_its_coordinator_has_no_marker_to_write() -> None:
    all_open = [producer(number) for number in (1, 2, 3, 4)]
    admin = FakeAdmin(*all_open, ids={"kept": 1, "elsewhere": 2, "expired": 3})
    admin.known = {"kept": (HERE, THERE), "elsewhere": (THERE,)}
    assert found(admin, *all_open) == [2, 3, 4]


def test_a_transaction_that_ends_meanwhile_does_not_hang() -> None:
    admin = FakeAdmin(producer(2, None), producer(3, 9))
    assert found(admin, producer(1), producer(2), producer(3)) == []


def test_a_transaction_whose_id_is_hidden_is_not_said_to_hang() -> None:
    admin = FakeAdmin(producer(1), producer(2), ids={"kept": 1})
    admin.known, admin.hides_ids = {"kept": (HERE,)}, True
    assert found(admin, producer(1)) == [], "all owners are known"
    with pytest.raises(KafkaError, match="describe transactional-id"):
        found(admin, producer(1), producer(2))


def test_without_rights_the_missing_one_is_named(tmp_path: Path) -> None:
    rights = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
    with Live(tmp_path, rights) as live:
        done = CliRunner().invoke(
            command, ["transactions", "find-hanging", "--bootstrap-server", live.bootstrap]
        )
    assert done.exit_code == 1
    assert "headwater acls allow USER describe,read topic '*'" in done.output
