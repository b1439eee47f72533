"""How an admin asks: the right broker, again where that may help, never past its time."""

import asyncio
import re
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from headwater.client.cluster import Cluster
from headwater.client.errors import ClosedError, TimedOutError, failure
from headwater.client.unclosed import end_when_dropped
from headwater.config.client import AdminSettings
from headwater.errors import E, KafkaError, error_of
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.network import Network, TcpNetwork
from headwater.seams.randomness import Randomness, SystemRandomness
from headwater.seams.tasks import LoopTasks
from headwater.wire.schema import Struct

T = TypeVar("T")
Answer = TypeVar("Answer", bound=Struct)
Refusal = tuple[str, int, str | None]
"""What it is about, the code, and the broker's words."""

_MOVED = frozenset(
    {E.NOT_CONTROLLER, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.NETWORK_EXCEPTION}
)


def named(about: str, said: str) -> str:
    """`said` with what it is about in front, unless its sentence has that name as a word."""
    bare = said.removeprefix(f"{about}: ")
    return (
        bare if re.search(rf"(?<![\w.-]){re.escape(about)}(?![\w-])", bare) else f"{about}: {bare}"
    )


class Asking:
    """The part that all nouns share."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        randomness: Randomness | None = None,
        **settings: Any,
    ) -> None:
        self.settings = AdminSettings.of(settings)
        self._clock = clock or SystemClock()
        self._network = network or TcpNetwork()
        self._randomness = randomness or SystemRandomness()
        self._made: Cluster | None = None
        self._closed = False
        self._finalizer: weakref.finalize[..., Any] | None = None

    @property
    def _cluster(self) -> Cluster:
        if self._closed:
            raise ClosedError("the admin is closed: make another")
        if self._made is None:
            self._made = Cluster(
                self.settings,
                self._network,
                self._clock,
                self._randomness,
                LoopTasks(),
                auto_create=False,
            )
            self._finalizer = end_when_dropped(
                self, "Admin", asyncio.get_running_loop(), self._made.close
            )
        return self._made

    @property
    def _timeout_ms(self) -> int:
        return self.settings.default_api_timeout_ms

    async def _until_done(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` while its error may pass, within default.api.timeout.ms."""
        last: Exception | None = None
        cluster = self._cluster
        backoff, retries = cluster.backoff(), self.settings.retries
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                with cluster.waiting(what, lambda: last):
                    while True:
                        try:
                            return await attempt()
                        except (KafkaError, OSError) as problem:
                            last = problem
                            retries -= 1
                            if not _may_pass(problem) or retries < 0:
                                raise
                        await asyncio.sleep(backoff.next_ms() / 1000)
                        if _unreachable(last):
                            await cluster.refresh()  # another broker may do its work by now
        except TimeoutError:
            raise TimedOutError(
                f"timed out after default.api.timeout.ms={self._timeout_ms} waiting for {what}: "
                + (f"{last}; {cluster.trouble}" if last else cluster.trouble)
            ) from last

    async def _ask_controller(
        self, request: Struct, answer: type[Answer], newest: int | None = None
    ) -> Answer:
        connection = await self._cluster.connection(await self._cluster.controller())
        return await connection.call(request, answer, newest=newest)

    async def _ask_coordinator(
        self, group: str, request: Struct, answer: type[Answer], newest: int | None = None
    ) -> Answer:
        node = await self._cluster.coordinator(group)
        try:
            connection = await self._cluster.connection(node)
            return await connection.call(request, answer, newest=newest)
        except (KafkaError, OSError):
            self._cluster.forget_coordinator(group)
            raise

    async def _refuse(self, refusals: Iterable[Refusal], group: str | None = None) -> None:
        """Raise for those that are errors, all in one; forget a broker that sent us away."""
        found = [row for row in refusals if row[1]]
        if not found:
            return
        code = error_of(found[0][1])
        if code in _MOVED:
            if group is not None:
                self._cluster.forget_coordinator(group)
            else:
                await self._cluster.refresh()
        said = [named(about, message or error_of(number).text) for about, number, message in found]
        raise failure(code, "; ".join(said))

    async def close(self) -> None:
        """Close every connection."""
        self._closed, made = True, self._made
        if made is not None:
            await made.close()
        self.forget()

    def forget(self) -> None:
        """Do nothing when this admin is dropped: it is closed, or belongs to a parent process."""
        if self._finalizer is not None:
            self._finalizer.detach()


def _unreachable(problem: Exception) -> bool:
    return not isinstance(problem, KafkaError) or problem.code in (
        E.NETWORK_EXCEPTION,
        E.REQUEST_TIMED_OUT,
    )


def _may_pass(problem: Exception) -> bool:
    """A topic that is not there is worth no waiting for: an admin is the one who makes it."""
    if isinstance(problem, KafkaError):
        return problem.code.retriable and problem.code is not E.UNKNOWN_TOPIC_OR_PARTITION
    return True
