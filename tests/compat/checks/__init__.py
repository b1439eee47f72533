"""The rows of the tables. A check is a function of a client and a broker, named as its row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.compat.broker_under_test import BrokerUnderTest
from tests.compat.client import Client, Refused
from tests.compat.three_brokers import ThreeBrokers

Check = Callable[[Client, BrokerUnderTest], None]
ClusterCheck = Callable[[Client, ThreeBrokers], None]
CHECKS: dict[str, Check] = {}
CLUSTER_CHECKS: dict[str, ClusterCheck] = {}
"""Those for three brokers that are all up."""


def check(name: str) -> Callable[[Check], Check]:
    """Enters a function into the table under `name`."""

    def enter(function: Check) -> Check:
        assert name not in CHECKS, f"two checks named {name}"
        CHECKS[name] = function
        return function

    return enter


def cluster_check(name: str) -> Callable[[ClusterCheck], ClusterCheck]:
    """Enters a function into the table of three brokers under `name`."""

    def enter(function: ClusterCheck) -> ClusterCheck:
        CLUSTER_CHECKS[name] = function
        return function

    return enter


@contextmanager
def refused(client: Client, name: str) -> Iterator[None]:
    """The broker must refuse what is inside, with this error where the client tells errors."""
    try:
        yield
    except Refused as said:
        told = said.name
    else:
        raise AssertionError(f"{client.name} was not refused with {name}")
    if client.names_errors:
        assert told == name, f"refused with {told}, not {name}"
