"""Fixtures of the compatibility suite, and its table."""

from pathlib import Path

import pytest

from tests.compat import matrix, table
from tests.compat.cells import Cells
from tests.compat.client import Unavailable
from tests.compat.start_broker import start_broker

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """The first test of the table waits for many cells, and each cell for other people's programs."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def broker():
    with start_broker() as running:
        yield running


@pytest.fixture(scope="session")
def kafka_address(broker):
    return broker.bootstrap


@pytest.fixture
def ours(broker):
    """For what is asserted of Headwater and not of Apache Kafka."""
    if broker.is_apache:
        pytest.skip("asserted of Headwater only")


@pytest.fixture(scope="session")
def clients(kafka_address):
    """The clients, each made when first asked for."""
    with matrix.Clients(kafka_address) as made:
        yield made


@pytest.fixture(scope="session")
def cells(request, clients, broker):
    """Starts every cell that this run has collected."""
    running = Cells(lambda cell: matrix.run_cell(cell, clients, broker))
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
            reason = cells.result(cell)
        except Unavailable as missing:
            pytest.skip(str(missing))
        if reason:
            record_property("reason", reason)

    return wait


def _read_reports(config):
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    rows = terminal.stats.values() if terminal else ()
    return table.read_reports(report for row in rows for report in row if hasattr(report, "when"))


def pytest_sessionfinish(session):
    """A cell that was collected and has no word fails the run, whatever else passed."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    expected = [item.callspec.params["cell"] for item in session.items if _is_cell(item)]
    if table.empty_cells(_read_reports(session.config)[0], expected):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    filled, reasons = _read_reports(terminalreporter.config)
    for title, columns, rows in matrix.TABLES:
        if any(cell.client in columns for cell in filled):
            terminalreporter.section(title)
            for line in table.lines(filled, columns, rows):
                terminalreporter.write_line(line)
    for reason in sorted(reasons):
        terminalreporter.write_line(f"n/a: {reason}")
