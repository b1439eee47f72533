"""One broker for the tests of a module: each test makes its own topics."""

import pytest

from tests.unit.broker.live import Live


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with Live(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def client(live):
    with live.client() as connection:
        yield connection


@pytest.fixture
def topic(live, request):
    """A fresh topic with one partition, named after its test."""
    name = f"t-{abs(hash(request.node.name))}"
    live.create(name)
    return name
