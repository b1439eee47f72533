"""Fixtures of the compatibility suite, and its table."""

import pytest

from tests.compat import cast, table
from tests.compat.broker_under_test import broker_under_test
from tests.compat.cells import Cells
from tests.compat.client import Unavailable
from tests.compat.stage import Stage


@pytest.fixture(scope="session")
def broker():
    with broker_under_test() as running:
        yield running


@pytest.fixture(scope="session")
def kafka_address(broker):
    return broker.bootstrap


@pytest.fixture(scope="session")
def stage(broker):
    return Stage(broker.bootstrap, broker.log_dir, broker.is_apache)


@pytest.fixture(scope="session")
def company(kafka_address):
    """The clients, each made when first asked for."""
    with cast.Company(kafka_address) as made:
        yield made


@pytest.fixture(scope="session")
def cells(request, company, stage):
    """Starts every cell that this run has collected."""
    running = Cells(lambda cell: cast.perform(cell, company, stage))
    running.start(item.callspec.params["cell"] for item in request.session.items if _is_cell(item))
    yield running
    running.close()


def _is_cell(item):
    return "cell" in getattr(getattr(item, "callspec", None), "params", {})


@pytest.fixture
def finish(cell, cells, record_property):
    """Waits for the cell of this test and raises what it raised."""
    record_property("cell", tuple(cell))

    def wait():
        try:
            verdict = cells.result(cell)
        except Unavailable as missing:
            pytest.skip(str(missing))
        if verdict.reason:
            record_property("reason", verdict.reason)

    return wait


def pytest_terminal_summary(terminalreporter):
    reports = [r for rows in terminalreporter.stats.values() for r in rows if hasattr(r, "when")]
    filled, reasons = table.read_reports(reports)
    if not filled:
        return
    write = terminalreporter.write_line
    for title, columns, rows in cast.TABLES:
        if any(cell.client in columns for cell in filled):
            write(f"\n{title}")
            for line in table.lines(filled, columns, rows):
                write(line)
    for reason in sorted(reasons):
        write(f"n/a: {reason}")
