"""Fixtures that pytest finds automatically if headwater is installed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.testing.broker import Broker


@pytest.fixture
def headwater_broker() -> "Iterator[Broker]":
    """A new broker for one test; `headwater_broker.bootstrap` is its address."""
    from headwater.testing.broker import Broker

    with Broker() as broker:
        yield broker
