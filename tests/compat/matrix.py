"""The matrix: the clients by name, the checks by name, and the tables they make."""

import threading
from collections.abc import Callable
from typing import Self

from tests.compat.broker_under_test import BrokerUnderTest
from tests.compat.cells import Cell
from tests.compat.checks import CHECKS, admin, groups, reading, records, tools
from tests.compat.client import Client
from tests.compat.clients.aiokafka_client import Aiokafka
from tests.compat.clients.confluent import Confluent
from tests.compat.clients.franz import Franz
from tests.compat.clients.java_tools import JavaTools
from tests.compat.clients.kafka_python import KafkaPython
from tests.compat.clients.kcat import Kcat
from tests.compat.tool_server import ToolServer

ROWS_FROM = (admin, groups, reading, records)
"""The modules that fill CHECKS, in the order of the table's rows."""
_PLAIN: dict[str, Callable[[str], Client]] = {
    made.name: made for made in (Confluent, KafkaPython, Aiokafka, Kcat, Franz)
}
CLIENTS = [*_PLAIN, JavaTools.name]
TOOLS = "works"
TABLES = [
    ("Clients by what they did", CLIENTS, list(CHECKS)),
    ("Kafka's command-line tools", [TOOLS], list(tools.TOOL_CHECKS)),
]
CLIENT_CELLS = [Cell(client, check) for check in CHECKS for client in CLIENTS]
TOOL_CELLS = [Cell(TOOLS, script) for script in tools.TOOL_CHECKS]


class Clients:
    """The clients of one broker, made on first use."""

    def __init__(self, bootstrap: str):
        self._bootstrap = bootstrap
        self._server: ToolServer | None = None
        self._made: dict[str, Client] = {}
        self._making = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def client(self, name: str) -> Client:
        """The client of that name; `Unavailable` where this machine lacks it."""
        return self.java_tools() if name == JavaTools.name else self._plain(name)

    def java_tools(self) -> JavaTools:
        """Kafka's tools in their JVM."""
        with self._making:
            self._server = self._server or ToolServer()
        return JavaTools(self._bootstrap, self._server)

    def _plain(self, name: str) -> Client:
        with self._making:
            if name not in self._made:
                self._made[name] = _PLAIN[name](self._bootstrap)
            return self._made[name]


def run_cell(cell: Cell, clients: Clients, broker: BrokerUnderTest) -> None:
    """Runs one cell to its end; an assertion or a refusal is a failure."""
    if cell.client == TOOLS:
        tools.TOOL_CHECKS[cell.check](clients.java_tools(), broker)
    else:
        CHECKS[cell.check](clients.client(cell.client), broker)
