"""Fixtures of the compatibility suite, and its table."""

from functools import partial
from pathlib import Path

import pytest

from tests.compat import matrix, table
from tests.compat.cells import Cells
from tests.compat.checks.kills import Kills
from tests.compat.client import Unavailable
from tests.compat.logins import frameworks, ways
from tests.compat.logins.columns import LoginClients
from tests.compat.logins.secured_broker import start_secured_broker
from tests.compat.start_broker import start_broker
from tests.compat.three_brokers import start_three_brokers
from tests.compat.tool_server import ToolServer
from tests.compat.transactions.programs import transactional_clients

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
def tool_server():
    """The JVM of Kafka's tools, started when first asked for."""
    server = ToolServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def transactional():
    """The clients with transactions, each in a program that starts when first asked for."""
    made = transactional_clients()
    yield made
    for client in made.values():
        client.close()


@pytest.fixture(scope="session")
def clients(kafka_address, tool_server, transactional):
    """The clients, each made when first asked for."""
    return matrix.Clients(kafka_address, tool_server, transactional)


@pytest.fixture(scope="session")
def three_brokers():
    with start_three_brokers() as running:
        yield running


@pytest.fixture(scope="session")
def login_clients():
    """The clients that log in; those that are programs start when first asked for."""
    made = LoginClients()
    yield made.by_name
    made.close()


@pytest.fixture(scope="session")
def framework_program():
    """The JVM of Kafka Streams and Connect, started when first asked for."""
    program = frameworks.FrameworkProgram()
    yield program
    program.close()


@pytest.fixture(scope="session")
def secured_broker(login_clients):
    topics = [ways.topic(way, name) for way in ways.WAYS for name in login_clients]
    topics += [name for way in ways.WALKS for name in frameworks.topics(way)]
    with start_secured_broker(ways.users(), topics) as running:
        yield running


@pytest.fixture(scope="session")
def cells(request, tool_server, transactional):
    """Starts every cell that this run has collected, and the brokers that they need."""
    collected = [item.callspec.params["cell"] for item in request.session.items if _is_cell(item)]
    on_three = [cell for cell in collected if matrix.needs_three_brokers(cell)]
    logins = [cell for cell in collected if matrix.needs_secured_broker(cell)]
    run_alone = run_on_three = run_login = None
    if len(on_three) + len(logins) < len(collected):
        clients, broker = map(request.getfixturevalue, ("clients", "broker"))
        run_alone = partial(matrix.run_cell, clients=clients, broker=broker)
    if logins:
        names = ("login_clients", "framework_program", "secured_broker")
        known, program, secured = map(request.getfixturevalue, names)
        run_login = partial(matrix.run_login_cell, clients=known, program=program, broker=secured)
    if on_three:
        brokers = request.getfixturevalue("three_brokers")
        clients = matrix.Clients(brokers.bootstrap, tool_server, transactional)
        kills = Kills(
            brokers,
            matrix.killed_under(on_three, clients),
            matrix.transactions_killed_under(on_three, clients),
        )
        run_on_three = partial(
            matrix.run_cluster_cell, clients=clients, brokers=brokers, kills=kills
        )

    def run(cell):
        if matrix.needs_three_brokers(cell):
            run_on_three(cell)
        elif matrix.needs_secured_broker(cell):
            run_login(cell)
        else:
            run_alone(cell)

    running = Cells(run, in_turn=matrix.runs_in_turn)
    running.start(matrix.in_order(collected))
    if any(map(matrix.needs_kills, on_three)):
        kills.start(after=running.ends(c for c in on_three if not matrix.needs_kills(c)))
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
        if any(cell.client in columns and cell.check in rows for cell in filled):
            terminalreporter.section(title)
            for line in table.lines(filled, columns, rows):
                terminalreporter.write_line(line)
    for reason in sorted(reasons):
        terminalreporter.write_line(f"n/a: {reason}")
