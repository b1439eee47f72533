"""Transfers between accounts, which are spread over partitions of two topics."""

import random
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from headwater.model import TopicPartition

PARTITIONS = {"checking": 3, "savings": 2}
ACCOUNTS = 30
OPENING_BALANCE = 1000
PLACES = [
    TopicPartition(topic, number)
    for topic, partitions in PARTITIONS.items()
    for number in range(partitions)
]


class Leg(NamedTuple):
    """One record: what a transfer does to one account."""

    transfer: str
    number: int
    legs: int
    account: int
    amount: int

    def as_value(self) -> bytes:
        return ":".join(map(str, self)).encode()

    @classmethod
    def from_value(cls, value: bytes | None) -> "Leg":
        transfer, *numbers = (value or b"").decode().split(":")
        return cls(transfer, *map(int, numbers))

    @property
    def place(self) -> TopicPartition:
        """The partition of the account."""
        return PLACES[self.account % len(PLACES)]


Transfer = list[Leg]


def transfers(name: str, chance: random.Random) -> Iterator[Transfer]:
    """Yield transfers of one client: their amounts add up to nothing."""
    for number in count():
        payer, *payees = chance.sample(range(ACCOUNTS), chance.choice((2, 2, 3)))
        amounts = [chance.randrange(1, 100) for _ in payees]
        accounts = [(payer, -sum(amounts)), *zip(payees, amounts, strict=True)]
        yield [
            Leg(f"{name}-{number}", place, len(accounts), *account)
            for place, account in enumerate(accounts)
        ]
