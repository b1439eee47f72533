"""Requests the id of an idempotent producer from any broker, with retries."""

import asyncio
import logging
from collections.abc import Callable

from headwater.client.cluster import Cluster
from headwater.client.errors import LoopDiedError, failure
from headwater.client.producer.sequences import Sequences
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError
from headwater.seams.tasks import LoopTasks
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)


class ProducerIdLoop:
    """Requests a producer id, one request at a time.

    `done` is called at the end, with or without an id; `hopeless` if no id can be obtained.
    """

    def __init__(
        self,
        settings: ProducerSettings,
        cluster: Cluster,
        sequences: Sequences,
        tasks: LoopTasks,
        *,
        done: Callable[[], None],
        hopeless: Callable[[KafkaError], None],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._sequences = sequences
        self._tasks = tasks
        self._done = done
        self._hopeless = hopeless
        self._asking = False
        self._closed = False

    def ask(self) -> None:
        """Start a request, unless one is in progress."""
        if not self._asking:
            self._asking = True
            self._tasks.spawn(self._ask(), "ask for a producer id")

    def close(self) -> None:
        """Cancel the request."""
        self._closed = True

    async def _ask(self) -> None:
        last: list[Exception] = []
        try:
            with self._cluster.waiting("a producer id", lambda: last[-1] if last else None):
                await self._ask_until_told(last)
        except Exception as fault:
            log.exception("internal error while asking for a producer id")
            error = LoopDiedError(f"internal error while asking for a producer id: {fault!r}")
            error.__cause__ = fault
            self._hopeless(error)
        finally:
            self._asking = False
            self._done()

    async def _ask_until_told(self, last: list[Exception]) -> None:
        """Retry after retriable errors; `last` gets the newest of them."""
        backoff = self._cluster.backoff()
        while not self._closed:
            try:
                await self._ask_once()
            except (KafkaError, OSError) as problem:
                last[:] = [problem]
                if isinstance(problem, KafkaError) and not problem.code.retriable:
                    self._hopeless(_no_id(problem))
                    return
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                return

    async def _ask_once(self) -> None:
        node = await self._cluster.any_node()
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=self._settings.request_timeout_ms
        )
        told = await self._cluster.ask(node, request, InitProducerIdResponse)
        if told.error_code:
            raise failure(told.error_code)
        self._sequences.identified(told.producer_id, told.producer_epoch)
        self._sequences.end_resets()


def _no_id(problem: KafkaError) -> KafkaError:
    return failure(
        problem.code,
        f"no producer id: {problem}; set enable_idempotence=False to work without one",
    )
