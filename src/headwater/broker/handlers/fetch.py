"""Fetch: sends ranges of logs to clients, at once or when enough bytes are available.

A fetch that finds too little watches its partitions and checks again when one of them grows, or
answers with what it has at its deadline. Bytes go from the page cache to the socket unchanged; a file
thread reads what is not in the cache.
"""

from typing import Any

from headwater.broker.context import Context
from headwater.broker.fetch_session import FetchContext, FetchPartition, Key
from headwater.broker.follower_watch import FollowerWatch
from headwater.broker.handlers.fetch_parts import (
    Answers,
    Loaded,
    Part,
    aborted_transactions,
    add_wanted,
    divergence,
    hint_leader,
    load,
    topic_answer,
)
from headwater.broker.handlers.fetch_readers import (
    FIRST_WITH_TOPIC_ID,
    FetchReader,
    begin_fetch,
)
from headwater.broker.handlers.fetch_throttles import most_bytes, throttle_of, withhold
from headwater.broker.handlers.leader_hints import leader_endpoints
from headwater.broker.request import Request
from headwater.broker.turns import Steps, drained
from headwater.errors import E, KafkaError
from headwater.model import NO_EPOCH
from headwater.replication.isolation import FetchIsolation
from headwater.replication.replica import Replica
from headwater.security.rights import READ_TOPIC
from headwater.wire.apis import FETCH
from headwater.wire.messages.fetch import FetchRequest, FetchResponse

MAX_COPIED = 1024 * 1024
"""The most record bytes of one response in memory; the rest stays in the page cache or is read while
it is sent."""
LONG = 500
"""A fetch of more partitions than this is handled in turns."""

_PartitionAnswer = FetchResponse.PartitionData


def handle_fetch(
    context: Context, request: Request, body: FetchRequest
) -> FetchResponse | Steps[FetchResponse | None] | None:
    """Reply with bytes, or wait for them."""
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    wanted: dict[Key, FetchPartition] = {}
    count = 0
    for topic in body.topics:
        count += len(topic.partitions)
        if count > LONG:
            return _fetch_many(context, request, body)
        add_wanted(wanted, topic.topic_id if by_id else topic.topic, topic.partitions)
    reader = FetchReader.of(body, request.version)
    try:
        fetch_context = begin_fetch(context, request, body, reader, [*wanted.values()])
    except KafkaError as refused:
        return FetchResponse(error_code=refused.code)
    fetch = _Fetch(context, request, body, reader, fetch_context)
    if len(fetch_context.partitions) > LONG:
        return fetch.start_in_turns()
    fetch.start()
    return None


def _fetch_many(
    context: Context, request: Request, body: FetchRequest
) -> Steps[FetchResponse | None]:
    """Handle a fetch of many partitions in turns."""
    by_id = request.version >= FIRST_WITH_TOPIC_ID
    wanted: dict[Key, FetchPartition] = {}
    for topic in body.topics:
        for partition in drained(topic.partitions):
            add_wanted(wanted, topic.topic_id if by_id else topic.topic, (partition,))
            yield
    reader = FetchReader.of(body, request.version)
    try:
        fetch_context = begin_fetch(context, request, body, reader, [*wanted.values()])
    except KafkaError as refused:
        return FetchResponse(error_code=refused.code)
    return (yield from _Fetch(context, request, body, reader, fetch_context).start_in_turns())


class _Fetch:
    """A pending fetch.

    A waiting fetch checks only the partitions that woke it again: the others have not changed. A
    fetch of more than LONG partitions is handled in turns.
    """

    __slots__ = (
        "_absences", "_committed", "_generation", "_left", "_of", "_part_of", "_sends_marks", "_throttle",
        "_watcher", "_woken", "context", "fetch_context", "found", "isolation", "max_bytes",
        "max_wait_ms", "min_bytes", "parts", "reader", "request", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        request: Request,
        body: FetchRequest,
        reader: FetchReader,
        fetch_context: FetchContext,
    ) -> None:
        self.context = context
        self.request = request
        self.fetch_context = fetch_context
        self.reader = reader
        self.isolation = reader.isolation
        self._committed = reader.isolation is FetchIsolation.LAST_STABLE
        self._throttle = throttle_of(context, request, reader)
        settings = context.settings
        self._sends_marks = reader.is_follower and settings.replica_selector_class is not None
        self.max_bytes = most_bytes(self._throttle, body.max_bytes, settings.fetch_max_bytes)
        self.min_bytes = min(body.min_bytes, self.max_bytes)
        self.max_wait_ms = request.connection.longest_poll(body.max_wait_ms)
        self.parts: list[Part] = []
        self.waiting = False
        self.found = 0
        """The bytes found so far."""
        self._left = MAX_COPIED
        self._generation = context.generation
        self._of: dict[Replica, list[Part]] = {}
        session = fetch_context.session
        watch = session.watch if session is not None and reader.is_follower else None
        self._watcher = watch if isinstance(watch, FollowerWatch) else None
        self._part_of: dict[Key, Part] = {}
        """The parts of a follower's fetch, which its session watches."""
        self._woken: dict[Part, None] = {}
        self._absences: dict[E, KafkaError] = {}
        """One shared error of each kind for absent partitions: they may be thousands."""

    # -- the life of a fetch

    @property
    def answered(self) -> bool:
        """Return whether the response is sent, or will be once cold bytes are read."""
        return not self.waiting

    def start(self) -> None:
        """Reply now if there is enough, or nothing to wait for."""
        for want in self.fetch_context.partitions:
            part = self._part(want)
            self.parts.append(part)
            self._find(part)
        if self._watcher is not None:
            self._leave_to(self._watcher)
        if self._hurries():
            self._answer()
        else:
            for part in self.parts:
                self._watch(part)
            self._wait()

    def _leave_to(self, watcher: FollowerWatch) -> None:
        """Let the session's watcher report changes; it knows the quiet partitions."""
        for part in self.parts:
            watcher.look_at(part)
            self._part_of[part.want.key] = part

    def start_in_turns(self) -> Steps[FetchResponse | None]:
        """Do the same for many partitions; each is watched before it is checked."""
        try:
            for want in self.fetch_context.partitions:
                part = self._part(want)
                self.parts.append(part)
                self._watch(part)
                self._find(part)
                yield
        except BaseException:
            self._unwatch()
            raise
        self._recheck_woken()
        if self._watcher is not None:
            self._leave_to(self._watcher)
        if self._hurries() or self._watcher is not None:
            self._unwatch()
            return (yield from self._answer_in_turns())
        self._wait()
        return None

    def _hurries(self) -> bool:
        return (
            self.found >= self.min_bytes
            or self.max_wait_ms <= 0
            or (not self.parts and self._watcher is None)
            or any(map(self._is_urgent, self.parts))
        )

    def _is_urgent(self, part: Part) -> bool:
        """Whether a part has something that the reader must not wait for."""
        if part.is_urgent:
            return True
        # Consumers that read from followers wait for the high watermark there (KIP-392).
        replica = part.replica
        return (
            self._sends_marks
            and replica is not None
            and replica.high_watermark > part.want.sent_high_watermark
        )

    def _wait(self) -> None:
        self.waiting = True
        self._remember_waiting(self)
        if self._watcher is not None:
            self._watcher.fetch = self
        self.request.on_gone = self._stop_waiting
        self.request.connection.poll_began()
        self.context.park(self.context.clock.monotonic_ms() + self.max_wait_ms, self)

    def _watch(self, part: Part) -> None:
        replica = part.replica
        if replica is not None and self._watcher is None:
            replica.watchers_of(self.isolation)[self] = None
            self._of.setdefault(replica, []).append(part)

    def _unwatch(self) -> None:
        for replica in self._of:
            replica.watchers_of(self.isolation).pop(self, None)
        self._of = {}
        if self._watcher is not None:
            self._watcher.fetch = None

    def stir(self, want: FetchPartition, replica: Replica) -> None:
        """Check a partition of the follower's session at the end of the tick."""
        part = self._part_of.get(want.key)
        if part is None:
            part = self._part_of[want.key] = Part(want, replica, None)
            self.parts.append(part)
        self._woken[part] = None
        self.context.tick.recheck_soon(self)

    def wake(self, replica: Replica) -> None:
        """Check at the end of the tick: a partition grew or stopped."""
        for part in self._of.get(replica, ()):
            self._woken[part] = None
        if self.waiting:
            self.context.tick.recheck_soon(self)

    def recheck(self) -> None:
        """Reply if there is enough now."""
        if self.waiting and (self._recheck_woken() or self.found >= self.min_bytes):
            self._stop_waiting()
            self._answer()

    def _recheck_woken(self) -> bool:
        """Check the partitions that changed; return whether one requires an immediate reply."""
        woken, self._woken = self._woken, {}
        for part in woken:
            self._check(part)
            self._find(part)
        return any(map(self._is_urgent, woken))

    def expired(self) -> None:
        """Reply with what there is: the deadline has passed."""
        if self.waiting:
            self._stop_waiting()
            self._recheck_woken()
            self._answer()

    def _remember_waiting(self, fetch: "_Fetch | None") -> None:
        """Register this fetch with its session: the session's next fetch interrupts it."""
        session = self.fetch_context.session
        if session is not None:
            session.waiting = fetch

    def _stop_waiting(self) -> None:
        self.waiting = False
        self._remember_waiting(None)
        self.request.on_gone = None
        self.request.connection.poll_ended()
        self._unwatch()

    # -- finding bytes

    def _part(self, want: FetchPartition) -> Part:
        topic, index = want.key
        if isinstance(topic, bytes):
            name = self.context.metadata.name_of.get(topic)
            if name is None:
                return Part(want, None, KafkaError(E.UNKNOWN_TOPIC_ID))
        else:
            name = topic
        context = self.context
        reader = self.reader
        if not reader.is_follower and not context.permits(self.request, READ_TOPIC, name):
            return Part(want, None, KafkaError(READ_TOPIC.refusal))
        replica = context.replicas.get(name, index)
        if replica is None:
            absence = context.replicas.absence(name, index)
            return Part(want, None, self._absences.setdefault(absence.code, absence))
        part = Part(want, replica, None)
        self._check(part)
        if part.failure is None and part.divergence is None:
            if reader.is_follower:
                self._count(part, replica)
            elif reader.rack:
                part.preferred = reader.nearest(context, replica, want.fetch_offset)
        return part

    def _count(self, part: Part, replica: Replica) -> None:
        """Count a follower's fetch, once per request: it has everything below the requested offset."""
        try:
            self.reader.count_follower(replica, part.want)
        except KafkaError as refused:
            part.failure = refused

    def _check(self, part: Part) -> None:
        """Raise KafkaError if the offset cannot be served here."""
        if part.replica is None:
            return
        want, replica = part.want, part.replica
        try:
            self.reader.check(replica, want)
            if want.last_fetched_epoch != NO_EPOCH:
                part.divergence = divergence(replica, want)
            if part.divergence is None:
                replica.check_in_range(want.fetch_offset)
        except KafkaError as refused:
            part.failure = refused

    def _find(self, part: Part) -> None:
        """Find the range to send, within the rest of the byte limit."""
        if part.found is not None:
            self.found -= part.found.size
            part.found = None
        replica, want = part.replica, part.want
        if replica is None or part.is_urgent:
            return
        if self._throttle is not None and self._throttle.holds_back(replica):
            return
        before = self.found
        left = self.max_bytes - before
        if left <= 0 and before:
            return
        size = max(0, min(want.max_bytes, left))
        try:
            part.found = found = replica.read(want.fetch_offset, self.isolation, size, not before)
        except (OSError, KafkaError) as failure:
            part.fail(failure)
        else:
            if found is not None:
                self.found = before + found.size

    # -- answering

    def _answer(self) -> None:
        withhold(self._throttle, self.parts)
        if len(self.parts) > LONG:
            self.request.reply_in_turns(self._answer_in_turns())
            return
        cold = [part for part in self.parts if part.found is not None and not self._load(part)]
        if cold:
            self._warm(cold)
        else:
            self._reply()

    def _answer_in_turns(self) -> Steps[FetchResponse | None]:
        withhold(self._throttle, self.parts)
        cold = []
        for part in self.parts:
            if part.found is not None and not self._load(part):
                cold.append(part)
            yield
        if cold:
            self._warm(cold)
            return None
        return (yield from self._response_in_turns())

    def _load(self, part: Part) -> bool:
        """Read a part from the page cache; return False if it needs the disk."""
        assert part.found is not None
        try:
            part.records = part.found.bytes_for(self.request.connection.plain_socket, self._left)
        except OSError as failure:
            part.fail(failure)
            return True
        if type(part.records) is not list and part.records is not None:
            self._left -= part.found.size
        return part.records is not None

    def _warm(self, cold: list[Part]) -> None:
        """Read on a thread what the page cache lacks, then reply.

        Bytes beyond the memory limit of a response are read while it is sent: a slow client must
        not make the broker keep them.
        """
        slices = [part.found for part in cold if part.found is not None]

        def read() -> list[Loaded | Exception]:
            loaded: list[Loaded | Exception] = []
            left = self._left
            for piece in slices:
                outcome = load(piece, left)
                loaded.append(outcome)
                if isinstance(outcome, bytes):
                    left -= len(outcome)
            return loaded

        def done(result: object, failure: Exception | None) -> None:
            for rank, part in enumerate(cold):
                outcome = result[rank] if isinstance(result, list) else failure
                if isinstance(outcome, Exception):
                    part.fail(outcome)
                else:
                    part.records = outcome
                    slices[rank].note_cold()
            withhold(self._throttle, self.parts)
            if len(self.parts) > LONG:
                self.request.reply_in_turns(self._response_in_turns())
            else:
                self._reply()

        self.context.off_loop(read, done)

    def _reply(self) -> None:
        answers = Answers()
        for part in self.parts:
            self._add_answer(part, answers)
        self.request.reply(self._response(answers))

    def _response_in_turns(self) -> Steps[FetchResponse]:
        answers = Answers()
        self.fetch_context.partitions = []
        for part in drained(self.parts):
            self._add_answer(part, answers)
            yield
        return self._response(answers)

    def _add_answer(self, part: Part, answers: Answers) -> None:
        if self._generation != self.context.generation:
            self.reader.check_right_again(self.context, self.request, part)
        answer, want = self._partition_answer(part), part.want
        mark, start = answer.high_watermark, answer.log_start_offset
        if self.fetch_context.session is not None:
            if part.records:
                answers.served.append(want)
            if not self.fetch_context.mentions(want, mark, start, part.news):
                return
        topic = answers.topics.get(want.key[0])
        if topic is None:
            topic = answers.topics[want.key[0]] = topic_answer(want.key[0])
        topic.partitions.append(answer)
        if part.failure is not None:
            hint_leader(self.context, part, answer, self.request.version, answers.hinted)

    def _response(self, answers: Answers) -> FetchResponse:
        if answers.served:
            self.fetch_context.served(answers.served)
        if self._throttle is not None:
            self._throttle.answered(self.request)
        response = FetchResponse(session_id=self.fetch_context.session_id)
        response.responses = list(answers.topics.values())
        if answers.hinted:
            response.node_endpoints = leader_endpoints(
                self.context, self.request.connection, answers.hinted, FetchResponse.NodeEndpoint
            )
        # This fetch may stay in the purgatory until its deadline: it must not keep records.
        self.parts, self.fetch_context.partitions = [], []
        self._of, self._woken, self._part_of = {}, {}, {}
        return response

    def _partition_answer(self, part: Part) -> _PartitionAnswer:
        replica, aborted = part.replica, None
        if self._committed and replica is not None and part.failure is None:
            aborted = aborted_transactions(part, replica)
        records: Any = b"" if part.records is None else part.records
        answer = _PartitionAnswer(
            partition_index=part.want.key[1], high_watermark=-1, records=records
        )
        if part.failure is not None or replica is None:
            answer.error_code = part.failure.code if part.failure else E.UNKNOWN_SERVER_ERROR
            self.context.metrics.error(FETCH, answer.error_code)
            if replica is not None:
                answer.aborted_transactions = None
                if self.reader.is_follower:  # an offset out of range: where it may begin again
                    answer.log_start_offset = replica.log_start_offset
            return answer
        if part.records and part.found is not None:
            counters = self.context.metrics.topic(replica.topic_partition.topic)
            counters.count_read(part.found.size, follower=self.reader.is_follower)
            if self._throttle is not None:
                self._throttle.sent(replica, part.found.size)
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = replica.last_stable_offset
        answer.log_start_offset = replica.log_start_offset
        answer.preferred_read_replica = part.preferred
        if part.divergence is not None:
            answer.diverging_epoch = part.divergence
        answer.aborted_transactions = aborted
        return answer
