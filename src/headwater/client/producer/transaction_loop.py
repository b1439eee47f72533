"""Runs the transactions of one producer: calls wait here for what the coordinators answer.

`transaction_manager.py` decides; this sends its requests, one at a time, and wakes the calls. A call
that does not finish within max.block.ms raises RetriableTransactionError and continues in the
background; so does one that is cancelled. The same call waits for it again, or returns at once if it
has finished meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.connections import TRANSACTION
from headwater.client.consumer.record import Offsets, checked_offsets
from headwater.client.errors import RetriableTransactionError, TransactionAbortedError
from headwater.client.group_metadata import ConsumerGroupMetadata, checked_group
from headwater.client.producer.accumulator import Accumulator, ProducerBatch
from headwater.client.producer.known_topics import KnownTopics
from headwater.client.producer.locking import Lock
from headwater.client.producer.sender_loop import Sender
from headwater.client.producer.transaction_answers import TransactionAnswer, Verdict
from headwater.client.producer.transaction_manager import ManagerState, TransactionManager
from headwater.config.client import ProducerSettings
from headwater.errors import KafkaError
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import LoopTasks
from headwater.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from headwater.wire.schema import Struct

log = logging.getLogger(__name__)

_GROUP = 0
_FIRST_SOON_MS = 2
_LONGEST_SOON_MS = 20
"""The rests while the coordinator completes the transaction before."""
_ANSWERS: dict[type[Struct], type[TransactionAnswer]] = {
    InitProducerIdRequest: InitProducerIdResponse,
    AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
    AddOffsetsToTxnRequest: AddOffsetsToTxnResponse,
    TxnOffsetCommitRequest: TxnOffsetCommitResponse,
    EndTxnRequest: EndTxnResponse,
}


class TransactionLoop:
    """The transactions of one producer. All methods but `begin` belong to the loop's thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        cluster: Cluster,
        accumulator: Accumulator,
        topics: KnownTopics,
        lock: Lock,
    ) -> None:
        assert settings.transactional_id is not None
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._topics = topics
        self._lock = lock
        self.manager = TransactionManager(
            settings.transactional_id, settings.transaction_timeout_ms
        )
        self._waiters: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._running = False
        self._late_call = ""
        """The call that did not finish in its time or was cancelled, until it is repeated."""
        self._last: Exception | None = None
        """Why the last request failed."""
        self._sender: Sender
        self._tasks: LoopTasks
        self._randomness: Randomness

    def attach(self, sender: Sender, tasks: LoopTasks, randomness: Randomness) -> None:
        """Follow the turns of the sender that uses `manager`."""
        self._sender, self._tasks, self._randomness = sender, tasks, randomness
        sender.after_turn = self.turned

    @property
    def initialized(self) -> bool:
        """Whether the producer has an id."""
        return self.manager.sequences.ready

    # -- calls

    async def init(self) -> None:
        """Get a producer id; fence earlier producers of this transactional id."""
        call = "init_transactions()"
        if self._has_finished(call):
            return
        self.manager.begin_init()
        await self._finished(ManagerState.INITIALIZING, call)

    def begin(self) -> None:
        """Begin a transaction. Safe from any thread."""
        with self._lock:
            self._late_call = ""
            self.manager.begin()
            self._topics.open_fast_path()

    async def commit(self) -> None:
        """Send what is left, and commit."""
        call = "commit_transaction()"
        if self._has_finished(call):
            return
        with self._lock:
            self.manager.begin_commit()
            self._topics.close_fast_path()
            self._accumulator.flushing.add(self)
        self._sender.wake_here()
        await self._finished(ManagerState.COMMITTING, call)

    async def abort(self) -> None:
        """Give up what was not sent, and abort."""
        call = "abort_transaction()"
        if self._has_finished(call):
            return
        with self._lock:
            self.manager.begin_abort()
            self._topics.close_fast_path()
            gone = self._accumulator.unsent()
            self._accumulator.flushing.add(self)
        self._fail(gone)
        self._sender.wake_here()
        await self._finished(ManagerState.ABORTING, call)

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        """Add the offsets of a group to the transaction."""
        pending = self.manager.add_offsets(checked_group(group), checked_offsets(offsets))
        await self._until(lambda: not self.manager.holds(pending), "send_offsets_to_transaction()")
        if pending.left:
            raise TransactionAbortedError("the transaction was aborted before it got the offsets")

    async def end_open(self, timeout_s: float | None) -> None:
        """Abort an open transaction, before the producer is closed."""
        state = self.manager.state
        try:
            async with asyncio.timeout(timeout_s):
                if state in (ManagerState.IN_TRANSACTION, ManagerState.ABORTABLE_ERROR):
                    await self.abort()
                elif state in (ManagerState.COMMITTING, ManagerState.ABORTING):
                    await self._finished(state, "close()")
        except (KafkaError, TimeoutError) as problem:
            log.warning(
                "the open transaction of %s was not ended by close(): %s; its coordinator aborts it "
                "after transaction.timeout.ms (%d ms)",
                self.manager.transactional_id,
                problem,
                self._settings.transaction_timeout_ms,
            )

    # -- waits

    def _has_finished(self, call: str) -> bool:
        """Return whether a repeated call has done what it was to do since it was late."""
        late, self._late_call = self._late_call, ""
        return call == late and self.manager.state is ManagerState.READY

    async def _finished(self, state: ManagerState, call: str) -> None:
        """Wait until `state` is left; raise the error that it was left with."""
        await self._until(lambda: self.manager.state is not state, call)

    async def _until(self, done: Callable[[], bool], call: str) -> None:
        self.wake()
        if not done() and self._sender.fatal is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = done
            limit_ms = self._settings.max_block_ms
            try:
                async with asyncio.timeout(limit_ms / 1000):
                    await waiter
            except TimeoutError:
                self._late_call = call
                raise self._late(call, limit_ms) from self._last
            except asyncio.CancelledError:
                self._late_call = call  # it continues all the same
                raise
            finally:
                del self._waiters[waiter]
        if self.manager.error is not None:
            raise self.manager.error
        if self._sender.fatal is not None:
            raise self._sender.fatal

    def _late(self, call: str, limit_ms: int) -> RetriableTransactionError:
        why = "" if self._last is None else f" ({self._last})"
        return RetriableTransactionError(
            f"{call} did not finish within max.block.ms ({limit_ms} ms){why}; it continues: call it "
            f"again to wait for it"
        )

    def turned(self) -> None:
        """Follow the state of the manager at the end of a turn of the sender."""
        self._follow_state()
        self.wake()

    def _follow_state(self) -> None:
        """Apply errors to the records, and wake the calls that are done."""
        state = self.manager.state
        if state in (ManagerState.ABORTABLE_ERROR, ManagerState.FATAL_ERROR):
            with self._lock:
                self._topics.close_fast_path()
                gone = self._accumulator.unsent()
            self._fail(gone)
            if state is ManagerState.FATAL_ERROR and self._sender.fatal is None:
                assert self.manager.error is not None
                self._sender.die(self.manager.error)
        elif state is ManagerState.READY:
            self._accumulator.flushing.discard(self)
        for waiter, done in self._waiters.items():
            if not waiter.done() and (done() or self._sender.fatal is not None):
                waiter.set_result(None)

    def _fail(self, batches: list[ProducerBatch]) -> None:
        if batches:
            cause = self.manager.error
            text = "its transaction was aborted" if cause is None else str(cause)
            error = TransactionAbortedError(f"the record was not sent: {text}")
            error.__cause__ = cause
            self._sender.fail_batches(batches, error)

    # -- requests

    def wake(self) -> None:
        """Send the next request, if there is one and none is in progress."""
        if not self._running and self._sender.fatal is None and self._next() is not None:
            self._running = True
            self._tasks.spawn(self._run(), "a transaction")

    def _next(self) -> Struct | None:
        self._read_feature()
        request = self.manager.next_request(drained=not self._accumulator.incomplete)
        if request is None:
            self._follow_state()
        return request

    def _read_feature(self) -> None:
        self.manager.newest_version = self._cluster.feature_level("transaction.version")

    async def _run(self) -> None:
        try:
            with self._cluster.waiting(
                f"the coordinators of {self.manager.transactional_id}", lambda: self._last
            ):
                await self._ask_all()
        except Exception as fault:  # noqa: BLE001 - logged, and told to every call
            self._sender.fail("a transaction", fault)
        finally:
            self._running = False
        self._sender.wake_here()

    async def _ask_all(self) -> None:
        backoff, soon = self._cluster.backoff(), self._backoff_soon()
        while self._sender.fatal is None and (request := self._next()) is not None:
            verdict = await self._ask(request)
            self._follow_state()
            if verdict is Verdict.DONE:
                backoff, soon = self._cluster.backoff(), self._backoff_soon()
                self._last = None
                self._sender.wake_here()
            else:
                rest = soon if verdict is Verdict.RETRY_SOON else backoff
                await asyncio.sleep(rest.next_ms() / 1000)

    def _backoff_soon(self) -> Backoff:
        return Backoff(_FIRST_SOON_MS, _LONGEST_SOON_MS, self._randomness)

    async def _ask(self, request: Struct) -> Verdict:
        key, key_type = self.manager.transactional_id, TRANSACTION
        if isinstance(request, TxnOffsetCommitRequest):
            key, key_type = request.group_id, _GROUP
        try:
            node = await self._cluster.coordinator(key, key_type)
            connection = await self._cluster.connection(node)
            answer = await connection.call(
                request, _ANSWERS[type(request)], newest=self.manager.newest_version_of(request)
            )
        except (KafkaError, OSError) as problem:
            self._last = problem
            if isinstance(problem, KafkaError) and not problem.code.retriable:
                self.manager.refused(problem)
                return Verdict.DONE
            verdict = Verdict.FIND_COORDINATOR
        else:
            self._read_feature()
            verdict = self.manager.answered(answer)
            self._last = self.manager.retry_reason
        if verdict is Verdict.FIND_COORDINATOR:
            self._cluster.forget_coordinator(key, key_type)
        return verdict
