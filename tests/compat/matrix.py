"""The matrix: the clients by name, the checks by name, and the tables they make."""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from tests.compat.broker_under_test import BrokerUnderTest
from tests.compat.cells import Cell
from tests.compat.checks import (
    CHECKS,
    CLUSTER_CHECKS,
    admin,
    cluster,
    groups,
    reading,
    records,
    tools,
)
from tests.compat.checks.cluster_tools import CLUSTER_TOOL_CHECKS
from tests.compat.checks.frameworks import FRAMEWORK_CHECKS
from tests.compat.checks.kills import FILTERS, KILL_CHECKS, Kills, show_what_lacks_replicas
from tests.compat.checks.transaction_kills import commit_through_kills
from tests.compat.checks.transactions import TRANSACTION_CHECKS
from tests.compat.client import Client, Unavailable
from tests.compat.clients.aiokafka_client import Aiokafka
from tests.compat.clients.confluent import Confluent
from tests.compat.clients.franz import Franz
from tests.compat.clients.java_tools import JavaTools
from tests.compat.clients.kafka_python import KafkaPython
from tests.compat.clients.kcat import Kcat
from tests.compat.logins.columns import LoginClients
from tests.compat.logins.frameworks import FRAMEWORK_LOGINS, FrameworkProgram
from tests.compat.logins.secured_broker import SecuredBroker
from tests.compat.logins.session import LoginClient
from tests.compat.logins.ways import LONG_WAYS, WALKS, WAYS, take
from tests.compat.three_brokers import ThreeBrokers
from tests.compat.tool_server import ToolServer
from tests.compat.transactions.programs import TransactionalClient, transactional_clients

ROWS_FROM = (admin, groups, reading, records, cluster)
"""The modules that fill CHECKS and CLUSTER_CHECKS, in the order of the tables' rows."""
_PLAIN: dict[str, Callable[[str], Client]] = {
    made.name: made for made in (Confluent, KafkaPython, Aiokafka, Kcat, Franz)
}
CLIENTS = [*_PLAIN, JavaTools.name]
CLUSTER_CLIENTS = [name for name in CLIENTS if name != Kcat.name]
TOOLS, CLUSTER_TOOLS = "works", "works on three"
FRAMEWORKS = "exactly once"
TRANSACTIONAL_CLIENTS = list(transactional_clients())
LOGIN_CLIENTS = list(LoginClients().by_name)
ONE, THREE = "transactions: {}", "transactions on three: {}"
TRANSACTION_KILLS = THREE.format("through kills")
TABLES = [
    ("Clients by what they did", CLIENTS, list(CHECKS)),
    ("Clients on three brokers", CLUSTER_CLIENTS, [*CLUSTER_CHECKS, *KILL_CHECKS]),
    ("Kafka's command-line tools", [TOOLS], list(tools.TOOL_CHECKS)),
    (
        "Kafka's command-line tools on three brokers",
        [CLUSTER_TOOLS],
        [*CLUSTER_TOOL_CHECKS, FILTERS],
    ),
    ("Kafka Streams and Connect, killed midway", [FRAMEWORKS], list(FRAMEWORK_CHECKS)),
    ("Transactions", TRANSACTIONAL_CLIENTS, [*map(ONE.format, TRANSACTION_CHECKS)]),
    (
        "Transactions on three brokers",
        TRANSACTIONAL_CLIENTS,
        [*map(THREE.format, TRANSACTION_CHECKS), TRANSACTION_KILLS],
    ),
    ("Clients by how they log in", LOGIN_CLIENTS, list(WAYS)),
    ("Kafka Streams and Connect by how they log in", list(FRAMEWORK_LOGINS), list(WALKS)),
]
(
    CLIENT_CELLS,
    CLUSTER_CELLS,
    TOOL_CELLS,
    CLUSTER_TOOL_CELLS,
    FRAMEWORK_CELLS,
    TRANSACTION_CELLS,
    CLUSTER_TRANSACTION_CELLS,
    LOGIN_CELLS,
    FRAMEWORK_LOGIN_CELLS,
) = ([Cell(client, check) for check in rows for client in columns] for _, columns, rows in TABLES)
_SLOW = ("group", "commits", "offset resets", "kafka-", *FRAMEWORK_CHECKS, *LONG_WAYS)


def needs_three_brokers(cell: Cell) -> bool:
    """Whether a cell is one of the tables of three brokers."""
    if cell.client == CLUSTER_TOOLS or cell in CLUSTER_TRANSACTION_CELLS:
        return True
    return cell.check in {*CLUSTER_CHECKS, *KILL_CHECKS}


def needs_kills(cell: Cell) -> bool:
    """Whether a cell is about brokers that are killed."""
    return cell.check in {*KILL_CHECKS, FILTERS, TRANSACTION_KILLS}


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in the order to run them in: those first that others wait for, or that wait long.

    Brokers are killed when the other cells of three brokers are done, and that takes a while.
    """

    def turn(cell: Cell) -> int:
        if needs_three_brokers(cell):
            return 3 if needs_kills(cell) else 0
        return 1 if cell.check.startswith(_SLOW) else 2

    return sorted(cells, key=turn)


class Clients:
    """The clients of one broker, made on first use."""

    def __init__(
        self, bootstrap: str, server: ToolServer, transactional: Mapping[str, TransactionalClient]
    ):
        self.transactional = transactional
        self._bootstrap = bootstrap
        self._server = server
        self._made: dict[str, Client] = {}
        self._making = threading.Lock()

    def client(self, name: str) -> Client:
        """The client of that name; `Unavailable` where this machine lacks it."""
        return self.java_tools() if name == JavaTools.name else self._plain(name)

    def java_tools(self) -> JavaTools:
        """Kafka's tools in their JVM."""
        self._server.start()
        return JavaTools(self._bootstrap, self._server)

    def _plain(self, name: str) -> Client:
        with self._making:
            if name not in self._made:
                self._made[name] = _PLAIN[name](self._bootstrap)
            return self._made[name]


def run_cell(cell: Cell, clients: Clients, broker: BrokerUnderTest) -> None:
    """Runs one cell to its end; an assertion or a refusal is a failure."""
    if cell in TRANSACTION_CELLS:
        _run_transactions(cell, clients, broker)
    elif cell.client == FRAMEWORKS:
        FRAMEWORK_CHECKS[cell.check](broker)
    elif cell.client == TOOLS:
        tools.TOOL_CHECKS[cell.check](clients.java_tools(), broker)
    else:
        CHECKS[cell.check](clients.client(cell.client), broker)


def _run_transactions(cell: Cell, clients: Clients, broker: BrokerUnderTest) -> None:
    check = TRANSACTION_CHECKS[cell.check.partition(": ")[2]]
    check(clients.transactional[cell.client], broker)


def run_cluster_cell(cell: Cell, clients: Clients, brokers: ThreeBrokers, kills: Kills) -> None:
    """Runs one cell of three brokers to its end."""
    if cell.check == TRANSACTION_KILLS:
        commit_through_kills(kills.transactions(cell.client))
        return
    if cell in CLUSTER_TRANSACTION_CELLS:
        _run_transactions(cell, clients, brokers)
        return
    if cell.client == CLUSTER_TOOLS:
        java = clients.java_tools()
        if cell.check == FILTERS:
            show_what_lacks_replicas(kills.work(java), kills.shown)
        else:
            CLUSTER_TOOL_CHECKS[cell.check](java, brokers)
        return
    client = clients.client(cell.client)
    if cell.check in KILL_CHECKS:
        KILL_CHECKS[cell.check](kills.work(client))
    else:
        CLUSTER_CHECKS[cell.check](client, brokers)


def needs_secured_broker(cell: Cell) -> bool:
    """Whether a cell is about a login."""
    return cell in LOGIN_CELLS or cell in FRAMEWORK_LOGIN_CELLS


def runs_in_turn(cell: Cell) -> bool:
    """Whether only one such cell runs at a time: their JVM has not the memory for all."""
    return cell in FRAMEWORK_LOGIN_CELLS


def run_login_cell(
    cell: Cell,
    clients: Mapping[str, LoginClient],
    program: FrameworkProgram,
    broker: SecuredBroker,
) -> None:
    """Lets one client, or one framework, take one way in."""
    if cell in FRAMEWORK_LOGIN_CELLS:
        FRAMEWORK_LOGINS[cell.client](cell.check, program, broker)
    else:
        take(cell.check, clients[cell.client], broker)


def killed_under(cells: Iterable[Cell], clients: Clients) -> list[Client]:
    """The clients that work while brokers are killed: those of the cells, where they are there."""
    names = dict.fromkeys(
        JavaTools.name if cell.client == CLUSTER_TOOLS else cell.client
        for cell in cells
        if needs_kills(cell) and cell.check != TRANSACTION_KILLS
    )
    return _available(names, clients.client)


def transactions_killed_under(cells: Iterable[Cell], clients: Clients) -> list[TransactionalClient]:
    """The clients that run transactions while brokers are killed."""

    def started(name: str) -> TransactionalClient:
        clients.transactional[name].program()
        return clients.transactional[name]

    return _available((c.client for c in cells if c.check == TRANSACTION_KILLS), started)


T = TypeVar("T")


def _available(names: Iterable[str], make: Callable[[str], T]) -> list[T]:
    found = []
    for name in names:
        with suppress(Unavailable):
            found.append(make(name))
    return found
