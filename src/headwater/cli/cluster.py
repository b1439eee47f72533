"""A cluster as a tool sees it: ask any broker, one broker, or the coordinator of a group."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from headwater.errors import E, KafkaError, error_of
from headwater.seams.network import Network, TcpNetwork
from headwater.transport.connection import Connection
from headwater.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.messages.metadata import MetadataRequest, MetadataResponse
from headwater.wire.schema import Struct

Answer = TypeVar("Answer", bound=Struct)
T = TypeVar("T")

_GROUP = 0
_BATCHED = 4
_BACKOFF_S = 0.1


class Cluster:
    """Connections to brokers, opened when needed. Used with `async with`."""

    def __init__(
        self, bootstrap: str, *, timeout_s: float = 30.0, network: Network | None = None
    ) -> None:
        self._bootstrap = bootstrap
        self._addresses = parse_bootstrap(bootstrap)
        self._network = network or TcpNetwork()
        self._timeout_s = timeout_s
        self._by_address: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._by_address.values():
            connection.close()

    async def ask(
        self, request: Struct, answer: type[Answer], *, newest: int | None = None
    ) -> Answer:
        """Ask whichever broker lets us in."""
        return await (await self._any()).call(request, answer, newest=newest)

    async def ask_broker(
        self, node_id: int, request: Struct, answer: type[Answer], *, newest: int | None = None
    ) -> Answer:
        """Ask the broker with this id."""
        connection = await self._broker(node_id)
        return await connection.call(request, answer, newest=newest)

    async def ask_coordinator(
        self, group: str, request: Struct, answer: type[Answer], *, newest: int | None = None
    ) -> Answer:
        """Ask the broker that coordinates `group`."""
        node_id = await self.until_ready(lambda: self._coordinator(group))
        return await self.ask_broker(node_id, request, answer, newest=newest)

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Brokers and topics (all without names); creates none."""
        wanted = None
        if topics is not None:
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = await self.ask(request, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    async def brokers(self) -> list[int]:
        """The ids of the live brokers."""
        await self.metadata([])
        return sorted(self._brokers)

    async def controller(self) -> int:
        """The id of the controller, whom changes of topics must go to."""
        node_id = (await self.metadata([])).controller_id
        return node_id if node_id >= 0 else min(self._brokers)

    async def until_ready(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat `work` while the broker says that it will be ready soon, up to the timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            try:
                return await work()
            except KafkaError as refused:
                if not refused.code.retriable or loop.time() > deadline:
                    raise
            await asyncio.sleep(_BACKOFF_S)

    async def _coordinator(self, group: str) -> int:
        request = FindCoordinatorRequest(key_type=_GROUP)
        if (await self._any()).version_for(request) >= _BATCHED:
            request.coordinator_keys = [group]
            found = (await self.ask(request, FindCoordinatorResponse)).coordinators[0]
            refuse(found.error_code, found.error_message)
            node_id, address = found.node_id, (found.host, found.port)
        else:
            request.key = group
            only = await self.ask(request, FindCoordinatorResponse)
            refuse(only.error_code, only.error_message)
            node_id, address = only.node_id, (only.host, only.port)
        self._brokers[node_id] = address
        return node_id

    async def _any(self) -> Connection:
        """The first broker of the bootstrap list that can be reached."""
        reason = ""
        for host, port in self._addresses:
            try:
                return await self._connect(host, port)
            except OSError as problem:
                reason = _reason(problem)
        raise KafkaError(
            E.BROKER_NOT_AVAILABLE,
            f"cannot connect to {self._bootstrap} ({reason}); start a broker with "
            f"`headwater up` or name one with --bootstrap-server",
        )

    async def _broker(self, node_id: int) -> Connection:
        if node_id not in self._brokers:
            await self.metadata([])
        address = self._brokers.get(node_id)
        if address is None:
            raise KafkaError(
                E.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster or not up"
            )
        try:
            return await self._connect(*address)
        except OSError as problem:
            host, port = address
            raise KafkaError(
                E.BROKER_NOT_AVAILABLE,
                f"broker {node_id} advertises {host}:{port}, which cannot be reached "
                f"({_reason(problem)}); check its advertised.listeners",
            ) from None

    async def _connect(self, host: str, port: int) -> Connection:
        known = self._by_address.get((host, port))
        if known is None or not known.is_open:
            known = await Connection.open(
                self._network, host, port, client_id="headwater-cli", timeout_s=self._timeout_s
            )
            self._by_address[host, port] = known
        return known


def _reason(problem: OSError) -> str:
    """The system's own words: asyncio puts an address in their place."""
    code = problem.errno or 0  # below 0 for a name that cannot be looked up
    return os.strerror(code) if code > 0 else str(problem.strerror or problem)


def refuse(code: int, message: str | None = None, about: str = "") -> None:
    """KafkaError for every code but 0."""
    if code:
        raise refusal(code, message, about)


def refusal(code: int, message: str | None, about: str) -> KafkaError:
    """A broker's refusal: whom it is about, its words (or ours) and the name of its code."""
    error = error_of(code)
    text = f"{message or error.text} ({error.name})"
    return KafkaError(error, f"{about}: {text}" if about else text)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """HOST:PORT, several separated by commas, IPv6 in brackets."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit()):
            raise KafkaError(E.INVALID_REQUEST, f"{text!r} is no address: write HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found
