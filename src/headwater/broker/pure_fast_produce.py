"""The fast path of produce requests in plain Python: nothing is decoded, answers are templates.

A request that equals the last one of its connection, except for the records, is recognized by its
bytes. `_fast_produce.pyx` is the same path, compiled.
"""

from struct import Struct as Packer

from headwater.broker.context import Context
from headwater.broker.pending_response import PendingResponse
from headwater.broker.produce_routes import Route, RoutedPartition, fill_failure
from headwater.broker.server_connection import ServerConnection
from headwater.errors import E, KafkaError
from headwater.model import NO_TIMESTAMP
from headwater.replication.replica_host import TransactionalWrite
from headwater.transport.frame_protocol import starts_with
from headwater.wire.apis import PRODUCE
from headwater.wire.messages.produce import ProduceResponse

UNTIMED = 127
"""Of requests on the fast path, one in 128 is timed."""
NOT_TIMED = -1

_PartitionAnswer = ProduceResponse.PartitionProduceResponse
_read_length = Packer(">i").unpack_from
_read_head = Packer(">ii").unpack_from
"""API key and version in one number, and the correlation id."""


class FastRoute:
    """A route in use by one connection."""

    __slots__ = (
        "acks",
        "append",
        "connection",
        "context",
        "flexible",
        "gaps",
        "generation",
        "head",
        "length_at",
        "log_start_told",
        "pack",
        "prefix",
        "replica",
        "route",
        "size",
        "start",
        "tail",
        "targets",
        "wall_ms",
        "zstd_known",
    )

    def __init__(self, context: Context, connection: ServerConnection, route: Route) -> None:
        self.context = context
        self.connection = connection
        self.route = route
        self.targets = route.targets
        self.head = route.head
        self.generation = route.generation
        self.gaps = route.gaps
        self.prefix = route.gaps[0]
        # Where the length of the first records is, counted from the frame's start.
        self.length_at = 8 + len(self.prefix)
        self.replica = route.targets[0].replica
        self.append = self.replica.append
        self.wall_ms = context.clock.wall_ms
        self.acks = route.acks
        self.flexible = route.flexible
        self.zstd_known = route.zstd_known
        self.log_start_told = route.numbers == 3
        gaps = route.answer_gaps
        self.size = sum(map(len, gaps)) + 8 * route.numbers * len(route.targets) - 4
        self.start, self.tail = gaps[0][8:], gaps[-1]
        layout = f"{'q' * route.numbers}".join(f"{len(gap)}s" for gap in [self.start, *gaps[1:]])
        self.pack = Packer(">ii" + layout).pack

    def try_fast_path(self, start: int, end: int) -> bool:
        """Append if the frame matches the route; return False if it must be decoded."""
        connection = self.connection
        buffer = connection.buffer
        head, correlation_id = _read_head(buffer, start)
        if (
            head != self.head
            or self.context.generation != self.generation
            or not starts_with(buffer, self.prefix, start + 8)
        ):
            return False
        if len(self.targets) > 1:
            return self._try_several(start, end, correlation_id)
        at = start + self.length_at
        if at + 5 > end:  # no length field, compact or not, extends past the frame
            return False
        if self.flexible:
            length = buffer[at]
            at += 1
            shift = 7
            if length >= 0x80:
                length &= 0x7F
                while True:
                    byte = buffer[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 28:
                        return False
            records_end = at + length - 1
            if records_end != end - 3 or buffer[records_end:end] != b"\0\0\0":
                return False
        else:
            records_end = at + 4 + _read_length(buffer, at)[0]
            at += 4
            if records_end != end:
                return False
        self._append_one(at, records_end, correlation_id)
        return True

    def _append_one(self, at: int, end: int, correlation_id: int) -> None:
        connection, counters = self.connection, self.targets[0].counters
        count = counters.fast_requests = counters.fast_requests + 1
        counters.bytes_in += end - at
        if count & UNTIMED:
            append = FastAppend(connection, self, correlation_id)
        else:
            append = TimedAppend(connection, self, correlation_id)
        try:
            self.append(connection.view[at:end], append, self.acks, self.wall_ms(), self.zstd_known)
        except KafkaError as refused:
            append.fail(refused)

    # -- requests of several partitions

    def _try_several(self, start: int, end: int, correlation_id: int) -> bool:
        places = self._find_records(start, end)
        if places is None:
            return False
        connection, view = self.connection, self.connection.view
        counters = self.targets[0].counters
        counters.fast_requests += 1
        call = FastCall(connection, self, correlation_id)
        call.started_us = (
            NOT_TIMED if counters.fast_requests & UNTIMED else self.context.clock.monotonic_us()
        )
        now_ms = self.wall_ms()
        for target, part, (at, records_end) in zip(self.targets, call.parts, places, strict=True):
            target.counters.bytes_in += records_end - at
            try:
                target.replica.append(
                    view[at:records_end], part, self.acks, now_ms, self.zstd_known
                )
            except KafkaError as refused:
                part.fail(refused)
        return True

    def _find_records(self, start: int, end: int) -> list[tuple[int, int]] | None:
        """The bounds of each batch; None if the bytes around them do not match the route."""
        buffer = self.connection.buffer
        places = []
        at = start + self.length_at
        for gap in self.gaps[1:]:
            if at + 4 > end:
                return None
            if self.flexible:
                length = shift = 0
                while True:
                    byte = buffer[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 28 or at >= end:
                        return None
                length -= 1
            else:
                (length,) = _read_length(buffer, at)
                at += 4
            stop = at + length
            if length < 0 or stop + len(gap) > end or not starts_with(buffer, gap, stop):
                return None
            places.append((at, stop))
            at = stop + len(gap)
        return places if at == end else None


class FastAppend(PendingResponse):
    """A request of one batch on the fast path: both the answer's slot and the replica's pending batch."""

    __slots__ = ("append_time", "base_offset", "correlation_id", "last_offset", "parked", "route")
    # The replica sets both when it stages the batch.
    base_offset: int
    last_offset: int

    def __init__(self, connection: ServerConnection, route: FastRoute, correlation_id: int) -> None:
        self.connection = connection
        self.buffers = None
        connection.pending.append(self)
        self.route = route
        self.correlation_id = correlation_id
        self.append_time = NO_TIMESTAMP
        self.parked = False

    @property
    def transaction(self) -> TransactionalWrite | None:
        return self.route.route.transaction

    def holding(self, size: int) -> None:
        self.connection.hold_bytes(size)

    def complete(self) -> None:
        if self.buffers is not None:
            return
        route = self.route
        if route.log_start_told:
            answer = route.pack(
                route.size,
                self.correlation_id,
                route.start,
                self.base_offset,
                self.append_time,
                route.replica.log_start_offset,
                route.tail,
            )
        else:
            answer = route.pack(
                route.size,
                self.correlation_id,
                route.start,
                self.base_offset,
                self.append_time,
                route.tail,
            )
        self.buffers = [answer]
        self.connection.response_ready(self)

    def fail(self, failure: KafkaError) -> None:
        if self.buffers is not None:
            return
        route, connection = self.route.route, self.connection
        connection.context.metrics.error(PRODUCE, failure.code)
        connection.route = None
        answer = _PartitionAnswer(index=route.targets[0].index)
        fill_failure(answer, failure, route.targets[0].replica)
        self.fill(route.failure_frame(connection, self.correlation_id, [answer]))

    def park(self) -> None:
        self.parked = True
        context = self.connection.context
        timeout_ms = max(0, self.route.route.timeout_ms)
        context.park(context.clock.monotonic_ms() + timeout_ms, self)

    def expired(self) -> None:
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))


class TimedAppend(FastAppend):
    """A call whose latency is measured."""

    __slots__ = ("started_us",)

    def __init__(self, connection: ServerConnection, route: FastRoute, correlation_id: int) -> None:
        super().__init__(connection, route, correlation_id)
        self.started_us = connection.context.clock.monotonic_us()

    def complete(self) -> None:
        if self.buffers is None:
            context = self.connection.context
            took_us = context.clock.monotonic_us() - self.started_us
            context.metrics.apis[PRODUCE].time_ms.observe(took_us / 1000)
        super().complete()


class FastCall(PendingResponse):
    """A request of several batches on the fast path."""

    __slots__ = ("correlation_id", "left", "parts", "route", "started_us")
    started_us: int

    def __init__(self, connection: ServerConnection, route: FastRoute, correlation_id: int) -> None:
        super().__init__(connection)
        self.route = route
        self.correlation_id = correlation_id
        self.parts = [FastPart(self, target) for target in route.targets]
        self.left = len(self.parts)

    def part_done(self) -> None:
        """Answer when every batch is written or refused."""
        self.left -= 1
        if self.left:
            return
        context, route = self.connection.context, self.route
        if self.started_us != NOT_TIMED:
            took_us = context.clock.monotonic_us() - self.started_us
            context.metrics.apis[PRODUCE].time_ms.observe(took_us / 1000)
        if any(part.failure is not None for part in self.parts):
            self.connection.route = None
            answers = [part.answer() for part in self.parts]
            self.fill(route.route.failure_frame(self.connection, self.correlation_id, answers))
            return
        values: list[int | bytes] = [route.size, self.correlation_id, route.start]
        for part, gap in zip(self.parts, route.route.answer_gaps[1:], strict=True):
            values += (part.base_offset, part.append_time)
            if route.log_start_told:
                values.append(part.target.replica.log_start_offset)
            values.append(gap)
        self.fill([route.pack(*values)])


class FastPart:
    """One batch of a `FastCall`."""

    __slots__ = (
        "answered",
        "append_time",
        "base_offset",
        "call",
        "failure",
        "last_offset",
        "parked",
        "target",
    )

    def __init__(self, call: FastCall, target: RoutedPartition) -> None:
        self.call = call
        self.target = target
        self.base_offset = self.last_offset = -1
        self.append_time = NO_TIMESTAMP
        self.answered = False
        self.failure: KafkaError | None = None
        self.parked = False

    @property
    def transaction(self) -> TransactionalWrite | None:
        return self.call.route.route.transaction

    def holding(self, size: int) -> None:
        self.call.connection.hold_bytes(size)

    def complete(self) -> None:
        if not self.answered:
            self.answered = True
            self.call.part_done()

    def fail(self, failure: KafkaError) -> None:
        if not self.answered:
            self.answered = True
            self.failure = failure
            self.call.connection.context.metrics.error(PRODUCE, failure.code)
            self.call.part_done()

    def answer(self) -> _PartitionAnswer:
        """Return the partition's part of an answer with errors."""
        answer = _PartitionAnswer(index=self.target.index)
        if self.failure is not None:
            fill_failure(answer, self.failure, self.target.replica)
            return answer
        answer.base_offset = self.base_offset
        answer.log_append_time_ms = self.append_time
        answer.log_start_offset = self.target.replica.log_start_offset
        return answer

    def park(self) -> None:
        self.parked = True
        context = self.call.connection.context
        timeout_ms = max(0, self.call.route.route.timeout_ms)
        context.park(context.clock.monotonic_ms() + timeout_ms, self)

    def expired(self) -> None:
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))
