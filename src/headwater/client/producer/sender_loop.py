"""The sender: takes batches from the accumulator and sends them to the leaders.

It runs on the event loop in short turns and has no task per request: a turn runs when a batch is
due, when a response or new metadata has arrived, or when a timer fires. Each broker gets up to
max.in.flight requests, each with one batch per partition for as many partitions as fit.

`batch_completion.py` decides what a response means for each batch. An internal error of the sender
fails all batches and every later send.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headwater.client.cluster import Cluster, Node
from headwater.client.errors import (
    ClientError,
    LoopDiedError,
    failure,
)
from headwater.client.metrics import ProducerMetrics
from headwater.client.producer.accumulator import Accumulator, PartitionQueue, ProducerBatch
from headwater.client.producer.batch_completion import BatchCompletion
from headwater.client.producer.delivery_waits import DeliveryWaits, counted
from headwater.client.producer.in_flight import BY_NAME, BrokerRequests, InFlightRequest
from headwater.client.producer.locking import Lock
from headwater.client.producer.producer_id_loop import ProducerIdLoop
from headwater.client.producer.sequences import Sequences
from headwater.client.waits import OneShotEvent
from headwater.config.client import ProducerSettings
from headwater.errors import E, KafkaError
from headwater.model import NO_OFFSET, ZERO_UUID, Uuid
from headwater.records.compression import Codec
from headwater.seams.clock import Clock
from headwater.seams.randomness import Randomness
from headwater.seams.tasks import LoopTasks
from headwater.transport.client_connection import ClientConnection
from headwater.transport.response_reader import Frame
from headwater.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:  # loaded by the first transactional producer
    from headwater.client.producer.transaction_manager import TransactionManager

log = logging.getLogger(__name__)

CHECK_MS = 100
"""How often batches in flight are checked for their timeouts."""
MAX_BACKLOG = 1 << 20
"""With acks=0, only the bytes that the socket has not accepted limit the sender."""
_NEVER = 1 << 62


_Answer = tuple[BrokerRequests, InFlightRequest, "asyncio.Future[Frame]"]


class Sender:
    """Sends the batches of one producer. All methods but `wake` belong to the loop's thread."""

    def __init__(
        self,
        settings: ProducerSettings,
        cluster: Cluster,
        accumulator: Accumulator,
        lock: Lock,
        *,
        clock: Clock,
        randomness: Randomness,
        tasks: LoopTasks,
        room_freed: Callable[[], None],
        transactions: "TransactionManager | None" = None,
    ) -> None:
        self.fatal: KafkaError | None = None
        """Why nothing can be sent anymore."""
        self.metrics = ProducerMetrics()
        self.turned: deque[OneShotEvent] = deque()
        """Set before each request is written and at the end of a turn, for callers in other threads
        that wait for it."""
        self._settings = settings
        self._cluster = cluster
        self._accumulator = accumulator
        self._lock = lock
        self._clock = clock
        self._tasks = tasks
        self._transactions = transactions
        self.after_turn: Callable[[], None] | None = None
        """Called at the end of each turn, on the loop's thread."""
        self._sequences = _sequences_for(settings, transactions)
        self._waits = DeliveryWaits(settings, cluster, accumulator, lock)
        self._completion = BatchCompletion(
            settings,
            cluster,
            accumulator,
            self._sequences,
            lock,
            metrics=self.metrics,
            clock=clock,
            randomness=randomness,
            room_freed=room_freed,
            batch_failed=None if transactions is None else transactions.batch_failed,
        )
        self._codec = Codec[settings.compression_type.upper()]
        self._level = settings.compression_level
        self._acks = settings.required_acks
        self._brokers: dict[int, BrokerRequests] = {}
        self._answers: deque[_Answer] = deque()
        """Responses that arrived since the last turn."""
        self._producer_id_loop: ProducerIdLoop | None = None
        if self._sequences is not None and transactions is None:
            self._producer_id_loop = ProducerIdLoop(
                settings, cluster, self._sequences, tasks, done=self.wake_here, hopeless=self.die
            )
        self._loop = asyncio.get_running_loop()
        self.thread = accumulator.loop_thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = self._next_check_ms = 0
        self._signalled = False
        self._closed = False
        cluster.listeners.append(self.wake_here)

    # -- turns

    def wake(self) -> None:
        """Run a turn soon. Safe from any thread, under the producer's lock."""
        if not self._signalled:
            self._signalled = True
            try:
                here = threading.get_ident() == self.thread  # no system call to wake what is awake
                (self._loop.call_soon if here else self._loop.call_soon_threadsafe)(self._turn)
            except BaseException:  # Ctrl-C: one extra turn is harmless, a missing one is not
                self._signalled = False
                raise

    def wake_by(self, due_ms: int) -> None:
        """Run a turn at `due_ms` at the latest. Safe from any thread, under the producer's lock."""
        if due_ms < self._timer_ms:
            self.wake()

    def wake_here(self) -> None:
        """Run a turn soon. On the loop's thread only."""
        if not self._signalled:
            self._signalled = True
            self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Run no more turns."""
        self._closed = True
        if self._producer_id_loop is not None:
            self._producer_id_loop.close()
        if self._timer is not None:
            self._timer.cancel()

    def die(self, error: KafkaError) -> None:
        """Fail all unsent records, and every later send, with `error`."""
        self.fatal = error
        if self._producer_id_loop is not None:
            self._producer_id_loop.close()
        with self._lock:
            gone = self._accumulator.clear()
        if gone:
            records = sum(batch.count for batch in gone)
            log.warning(
                "producer %s: %s failed without an acknowledgement (%s%s)",
                self._settings.client_id,
                counted(records),
                error,
                self._waits.why(gone[0]),
            )
        self.fail_batches(gone, error)
        self._completion.losses.report()
        if self.after_turn is not None:
            self.after_turn()

    def fail_batches(self, batches: list[ProducerBatch], error: KafkaError) -> None:
        """Fail batches that were removed from the accumulator."""
        for batch in batches:
            self._completion.fail(batch, error)

    def fail(self, where: str, fault: Exception) -> None:
        """Fail everything after an internal error, so that no caller waits forever."""
        log.error("internal error of the producer in %s", where, exc_info=fault)
        error = LoopDiedError(f"internal error of the producer in {where}: {fault!r}")
        error.__cause__ = fault
        self.die(error)

    def _turn(self) -> None:
        self._signalled = False
        if self._closed or self.fatal:
            return
        try:
            now = self._clock.monotonic_ms()
            if self._answers:
                self._read_answers(now)
            next_ms = self._work(now)
            if self.after_turn is not None:
                self.after_turn()
        except Exception as fault:  # noqa: BLE001 - logged, and told to every future
            self.fail("a turn of the sender", fault)
            return
        self._let_callers_go_on()
        if next_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        if next_ms < _NEVER:
            self._timer = self._loop.call_later(max(next_ms - now, 1) / 1000, self.wake_here)

    def _let_callers_go_on(self) -> None:
        while self.turned:
            self.turned.popleft().set()

    def _work(self, now: int) -> int:
        """Send what can be sent; return when to run the next turn."""
        if now >= self._next_check_ms:
            self._next_check_ms = now + CHECK_MS
            self._expire(now)
            self._waits.report(now)
        if (
            self._producer_id_loop is not None
            and self._sequences is not None
            and not self._sequences.ready
        ):
            self._producer_id_loop.ask()
            return self._check_ms()
        ready, next_ms = self._ready(now)
        for node, queues in ready.values():
            self._serve(node, queues, now)
        return min(next_ms, self._check_ms())

    def _check_ms(self) -> int:
        busy = self._accumulator.incomplete
        return self._next_check_ms if busy else _NEVER

    def _ready(self, now: int) -> tuple[dict[int, tuple[Node, list[PartitionQueue]]], int]:
        """Return queues with something to send, by leader, and when the next one is due."""
        ready: dict[int, tuple[Node, list[PartitionQueue]]] = {}
        next_ms = _NEVER
        leaderless = False
        with self._lock:
            for queue in self._accumulator.waiting:
                if queue.open is not None:
                    queue.open.stop = 0  # later records read the clock again
                batch = self._choose(queue)
                if batch is None:
                    continue
                due = self._accumulator.due_ms(queue, batch)
                if due > now:
                    if not self._leader_changed(batch):
                        next_ms = min(next_ms, due)
                        continue
                    self._accumulator.end_rests(queue)
                node = self._cluster.leader(queue.key)
                if node is None:
                    leaderless = True
                    continue
                ready.setdefault(node.id, (node, []))[1].append(queue)
        if leaderless:
            self._cluster.suspect()
        return ready, next_ms

    def _leader_changed(self, batch: ProducerBatch) -> bool:
        """Whether a batch rests because of a leader that another one has followed since."""
        return bool(batch.retry_at_ms) and (
            self._cluster.leader_epoch(batch.queue.key) > batch.leader_epoch
        )

    def _choose(self, queue: PartitionQueue) -> ProducerBatch | None:
        if self._transactions is not None and not self._transactions.admits(queue.key):
            return None
        if self._sequences is None:
            return queue.head()
        return self._sequences.choose(queue, self._cluster.topic_id(queue.topic))

    # -- out

    def _serve(self, node: Node, queues: list[PartitionQueue], now: int) -> None:
        broker = self._brokers.get(node.id)
        if broker is None:
            broker = self._brokers[node.id] = BrokerRequests()
        if broker.muted_until_ms > now:
            return
        connection = self._cluster.connected(node)
        if connection is None:
            self._connect(node, broker)
            return
        limit = self._settings.max_in_flight_requests_per_connection
        while queues and len(broker.in_flight) < limit:
            if self._acks == 0 and connection.backlog > MAX_BACKLOG:
                return
            batches = self._collect(queues, now)
            if batches:
                self._send(broker, connection, batches, now)

    def _collect(self, queues: list[PartitionQueue], now: int) -> list[ProducerBatch]:
        """Return one batch of each queue, as many as fit into a request; drop empty queues."""
        taken: list[ProducerBatch] = []
        room = self._settings.max_request_size
        accumulator = self._accumulator
        with self._lock:
            for queue in list(queues):
                batch = self._choose(queue)
                if batch is None or accumulator.due_ms(queue, batch) > now:
                    queues.remove(queue)
                    continue
                size = batch.size
                if size > room and taken:
                    break
                room -= size
                cluster = self._cluster
                accumulator.mark_in_flight(
                    batch, cluster.leader_epoch(queue.key), cluster.topic_id(queue.topic)
                )
                if self._sequences is not None:
                    self._sequences.number(batch)
                taken.append(batch)
        return taken

    def _send(
        self,
        broker: BrokerRequests,
        connection: ClientConnection,
        batches: list[ProducerBatch],
        now: int,
    ) -> None:
        batches = [batch for batch in batches if self._encoded(batch)]
        if not batches:
            return
        request = self._request(batches)
        self._let_callers_go_on()  # they fill other batches while these are written, without the GIL
        try:
            version = connection.version_for(request, self._newest_version(request))
            if self._acks == 0:
                connection.send_one_way(request, version)
                for batch in batches:
                    self._completion.succeed(batch, NO_OFFSET, -1)
            else:
                in_flight = InFlightRequest(connection, version, batches, now)
                reply = connection.start(request, version)
                broker.in_flight.append(in_flight)
                reply.add_done_callback(partial(self._answered, broker, in_flight))
        except KafkaError as problem:
            for batch in batches:
                self._completion.retry(batch, problem, now)
            return
        if self._transactions is not None:
            self._transactions.batch_sent()
        self._count_request(batches, now)

    def _newest_version(self, request: ProduceRequest) -> int | None:
        if self._transactions is not None:
            return self._transactions.newest_produce
        unidentified = any(topic.topic_id == ZERO_UUID for topic in request.topic_data)
        return BY_NAME if unidentified else None

    def _encoded(self, batch: ProducerBatch) -> bool:
        try:
            batch.encoded(self._codec, self._level, self._transactions is not None)
        except Exception as fault:
            log.exception("a batch of %s could not be encoded", batch.queue.key)
            self._completion.fail(batch, ClientError(f"the batch could not be encoded: {fault!r}"))
            return False
        return True

    def _request(self, batches: list[ProducerBatch]) -> ProduceRequest:
        topics: dict[tuple[str, Uuid], list[ProduceRequest.PartitionProduceData]] = {}
        for batch in batches:
            row = ProduceRequest.PartitionProduceData(
                index=batch.queue.partition, records=batch.records
            )
            topics.setdefault((batch.queue.topic, batch.topic_id), []).append(row)
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=rows)
                for (name, topic_id), rows in topics.items()
            ],
        )

    def _count_request(self, batches: list[ProducerBatch], now: int) -> None:
        metrics = self.metrics
        metrics.per_request.add(now, sum(batch.count for batch in batches))
        for batch in batches:
            size = batch.size
            metrics.batch_sizes.add(now, size)
            metrics.bytes.add(now, size)
            metrics.queue_times.add(now, max(now - batch.limit_ms + self._settings.linger_ms, 0))

    def _connect(self, node: Node, broker: BrokerRequests) -> None:
        if not broker.connecting:
            broker.connecting = True
            self._tasks.spawn(self._open(node, broker), f"connect to {node.host}:{node.port}")

    async def _open(self, node: Node, broker: BrokerRequests) -> None:
        try:
            await self._cluster.connection(node)
            self._waits.unreachable.pop(node.id, None)
        except (KafkaError, OSError) as problem:
            self._waits.unreachable[node.id] = problem
            log.info("%s", problem)
            self._cluster.suspect()
        except Exception as fault:  # noqa: BLE001 - logged, and told to every future
            self.fail(f"connecting to {node.host}:{node.port}", fault)
        finally:
            broker.connecting = False
            self.wake_here()

    # -- back

    def _answered(
        self, broker: BrokerRequests, in_flight: InFlightRequest, done: "asyncio.Future[Frame]"
    ) -> None:
        """Keep a response for the next turn, so that callers that wait for records run first."""
        if not done.cancelled():
            done.exception()  # mark it as retrieved even if no turn follows: asyncio would log it
        self._answers.append((broker, in_flight, done))
        self.wake_here()

    def _read_answers(self, now: int) -> None:
        while self._answers:  # an interrupted turn leaves the rest to the next one
            broker, in_flight, done = self._answers.popleft()
            broker.in_flight.remove(in_flight)
            self.metrics.latencies.add(now, now - in_flight.sent_ms)
            self._read_answer(broker, in_flight, done, now)

    def _read_answer(
        self,
        broker: BrokerRequests,
        in_flight: InFlightRequest,
        done: "asyncio.Future[Frame]",
        now: int,
    ) -> None:
        try:
            answer = in_flight.connection.decode(done.result(), ProduceResponse, in_flight.version)
        except KafkaError as problem:
            self._cluster.suspect()
            for batch in in_flight.batches:
                batch.uncertain = True
                self._completion.retry(batch, problem, now)
            return
        except asyncio.CancelledError:
            return
        if answer.throttle_time_ms > 0:
            broker.muted_until_ms = now + answer.throttle_time_ms
            self.metrics.throttles.add(now, answer.throttle_time_ms)
        for batch, row in in_flight.rows_of(answer):
            self._completion.handle_response(batch, row, now, answer.node_endpoints)

    # -- time

    def _expire(self, now: int) -> None:
        """Fail batches past delivery.timeout.ms; drop connections that do not answer."""
        with self._lock:
            gone = self._accumulator.expired(now)
        for broker in self._brokers.values():
            if broker.in_flight:
                oldest = broker.in_flight[0]
                waited = now - oldest.sent_ms
                if waited >= self._settings.request_timeout_ms:
                    oldest.connection.abort(_no_answer(oldest.connection, waited))
        for batch in gone:
            self._completion.fail(batch, self._waits.too_late(batch))


def _sequences_for(
    settings: ProducerSettings, transactions: "TransactionManager | None"
) -> Sequences | None:
    if transactions is not None:
        return transactions.sequences
    return Sequences() if settings.enable_idempotence else None


def _no_answer(connection: ClientConnection, waited_ms: int) -> KafkaError:
    return failure(
        E.NETWORK_EXCEPTION,
        f"{connection.address} did not answer within request.timeout.ms ({waited_ms} ms)",
    )
