"""Sends the requests of an admin to the right broker, with retries within a time limit."""

import asyncio
import re
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from headwater.client.admin.arguments import checked_text
from headwater.client.cluster import Cluster
from headwater.client.errors import ClosedError, TimedOutError, failure
from headwater.client.unclosed import end_when_dropped
from headwater.config.client import AdminSettings
from headwater.errors import E, KafkaError, error_of
from headwater.seams.clock import Clock
from headwater.seams.network import Network
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import LoopTasks
from headwater.wire.schema import Struct

T = TypeVar("T")
Answer = TypeVar("Answer", bound=Struct)
# The name of what was refused, the error code, and the broker's message.
Refusal = tuple[str, int, str | None]

_MOVED = frozenset(
    {E.NOT_CONTROLLER, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.NETWORK_EXCEPTION}
)


def prefixed(name: str, message: str) -> str:
    """Return `message` prefixed with `name`, unless it already contains that name as a word."""
    if not name:
        return message
    bare = message.removeprefix(f"{name}: ")
    return bare if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", bare) else f"{name}: {bare}"


class AdminCalls:
    """Connects on first use, finds the right broker, and retries within default.api.timeout.ms."""

    def __init__(
        self, settings: AdminSettings, clock: Clock, network: Network, randomness: Randomness
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._network = network
        self._randomness = randomness
        self._connected: Cluster | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Any] | None = None

    @property
    def cluster(self) -> Cluster:
        """The view of the cluster; ClosedError after `close`."""
        if self._closed:
            raise ClosedError("the admin is closed: create a new one")
        if self._connected is None:
            self._connected = Cluster(
                self.settings,
                self._network,
                self.clock,
                self._randomness,
                LoopTasks(),
                auto_create=False,
            )
            self._finalizer = end_when_dropped(
                self, "Admin", asyncio.get_running_loop(), self._connected.close
            )
        return self._connected

    def random_bytes(self, count: int) -> bytes:
        """Return random bytes."""
        return self._randomness.below(1 << 8 * count).to_bytes(count)

    @property
    def timeout_ms(self) -> int:
        """How long one call may take in all."""
        return self.settings.default_api_timeout_ms

    async def retry(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while its error is retriable, within default.api.timeout.ms."""
        last: list[Exception] = []
        cluster = self.cluster
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                with cluster.waiting(what, lambda: last[-1] if last else None):
                    return await self._attempts(cluster, attempt, last)
        except TimeoutError:
            reason = f"{last[-1]}; {cluster.trouble}" if last else cluster.trouble
            raise TimedOutError(
                f"timed out after default.api.timeout.ms={self.timeout_ms} waiting for {what}: "
                f"{reason}"
            ) from (last[-1] if last else None)

    async def _attempts(
        self, cluster: Cluster, attempt: Callable[[], Awaitable[T]], last: list[Exception]
    ) -> T:
        backoff, retries = cluster.backoff(), self.settings.retries
        while True:
            try:
                return await attempt()
            except (KafkaError, OSError) as problem:
                last[:] = [problem]
                retries -= 1
                if not _may_pass(problem) or retries < 0:
                    raise
            await asyncio.sleep(backoff.next_ms() / 1000)
            if _unreachable(last[-1]):
                await cluster.refresh()  # another broker may have taken over

    async def ask_controller(
        self, request: Struct, answer: type[Answer], newest: int | None = None
    ) -> Answer:
        """Send a request to the controller, in a version of at most `newest`."""
        connection = await self.cluster.connection(await self.cluster.controller())
        return await connection.call(request, answer, newest=newest)

    async def ask_coordinator(
        self, group: str, request: Struct, answer: type[Answer], newest: int | None = None
    ) -> Answer:
        """Send a request to the coordinator of a group, in a version of at most `newest`."""
        node = await self.cluster.coordinator(checked_text("the group id", group))
        try:
            connection = await self.cluster.connection(node)
            return await connection.call(request, answer, newest=newest)
        except (KafkaError, OSError):
            self.cluster.forget_coordinator(group)
            raise

    async def raise_refusals(self, rows: Iterable[Refusal], group: str | None = None) -> None:
        """Raise one error for all rows with an error code; look up a broker that moved again."""
        refused = [row for row in rows if row[1]]
        if not refused:
            return
        code = error_of(refused[0][1])
        if code in _MOVED:
            if group is not None:
                self.cluster.forget_coordinator(group)
            else:
                await self.cluster.refresh()
        messages = [prefixed(name, text or error_of(number).text) for name, number, text in refused]
        raise failure(code, "; ".join(messages))

    async def close(self) -> None:
        """Close every connection."""
        self._closed, connected = True, self._connected
        if connected is not None:
            await connected.close()
        self.detach()

    def detach(self) -> None:
        """Disable the finalizer: this is closed, or belongs to a parent process."""
        if self._finalizer is not None:
            self._finalizer.detach()


def _unreachable(problem: Exception) -> bool:
    return not isinstance(problem, KafkaError) or problem.code in (
        E.NETWORK_EXCEPTION,
        E.REQUEST_TIMED_OUT,
    )


def _may_pass(problem: Exception) -> bool:
    """Whether to retry; a missing topic is reported at once, because admins create topics."""
    if isinstance(problem, KafkaError):
        return problem.code.retriable and problem.code is not E.UNKNOWN_TOPIC_OR_PARTITION
    return True
