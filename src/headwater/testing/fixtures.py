"""Fixtures that pytest finds by itself once headwater is installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.testing.broker import Broker


@pytest.fixture
def headwater_broker() -> "Iterator[Broker]":
    """A fresh broker for one test; `headwater_broker.bootstrap` is its address."""
    from headwater.testing.broker import Broker

    with Broker() as broker:
        yield broker
