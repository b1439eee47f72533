"""Every client does every check: one test per cell of the tables."""

import pytest

from tests.compat import matrix


@pytest.mark.parametrize(
    "cell", matrix.CLIENT_CELLS, ids=lambda cell: f"{cell.client}-{cell.check}"
)
def test_client_does_check(finish):
    finish()


@pytest.mark.parametrize("cell", matrix.TOOL_CELLS, ids=lambda cell: cell.check)
def test_tool_works(finish):
    finish()


@pytest.mark.parametrize(
    "cell", matrix.CLUSTER_CELLS, ids=lambda cell: f"{cell.client}-{cell.check}"
)
def test_client_does_check_on_three_brokers(finish):
    finish()


@pytest.mark.parametrize("cell", matrix.CLUSTER_TOOL_CELLS, ids=lambda cell: cell.check)
def test_tool_works_on_three_brokers(finish):
    finish()


@pytest.mark.parametrize(
    "cell", matrix.TRANSACTION_CELLS, ids=lambda cell: f"{cell.client}-{cell.check}"
)
def test_transactions(finish):
    finish()


@pytest.mark.parametrize(
    "cell", matrix.CLUSTER_TRANSACTION_CELLS, ids=lambda cell: f"{cell.client}-{cell.check}"
)
def test_transactions_on_three_brokers(finish):
    finish()


@pytest.mark.parametrize("cell", matrix.FRAMEWORK_CELLS, ids=lambda cell: cell.check)
def test_framework_counts_exactly_once(finish):
    finish()


@pytest.mark.parametrize("cell", matrix.LOGIN_CELLS, ids=lambda cell: f"{cell.client}-{cell.check}")
def test_client_logs_in(finish):
    finish()


@pytest.mark.parametrize(
    "cell", matrix.FRAMEWORK_LOGIN_CELLS, ids=lambda cell: f"{cell.client}-{cell.check}"
)
def test_framework_logs_in(finish):
    finish()
