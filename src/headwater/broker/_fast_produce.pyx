# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fast path of produce requests, compiled: `pure_fast_produce.py` explains its names.

A batch that is surely good goes from its frame to its log without Python code in between: the
checks of `records/validation.py:check_batch` and `check_records`, the window of its producer
(`log/producers.py:ProducerStates.admit`) and its place in the log (`log/staging.py:Staging.stage`)
are made here. A batch of which one check says anything else goes to `Replica.append` before anything was
changed: who refuses, restamps, recompresses or finds the original of a duplicate is always the pure
path.

Replicas, logs and connections are Python objects with slots; they are read where the slots lie.
Only objects of exactly the known classes are read so.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Contains, PyDict_GetItemWithError, PyDict_SetItem
from cpython.list cimport PyList_Append, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.sequence cimport PySequence_GetItem
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from headwater.broker.context import Context
from headwater.broker.metrics import TopicCounters
from headwater.broker.produce_routes import fill_failure
from headwater.broker.server_connection import SENT, ServerConnection
from headwater.errors import E, KafkaError
from headwater.log.partition_log import PartitionLog
from headwater.log.producers import ProducerStates
from headwater.log.staging import Staging
from headwater.records.checksum import crc32c
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES, BatchRules
from headwater.replication.partition import Partition, Role
from headwater.replication.replica import Replica
from headwater.replication.topic_policy import TopicPolicy
from headwater.seams.clock import SystemClock
from headwater.wire.apis import PRODUCE
from headwater.wire.messages.produce import ProduceResponse

include "headwater/_slots.pxi"

cdef extern from "Python.h":
    PyObject* Py_None
    PyObject* Py_True
    Py_buffer* PyMemoryView_GET_BUFFER(object view)

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static uint32_t hardware_crc32c(const uint8_t *at, Py_ssize_t size) {
        uint64_t crc = 0xFFFFFFFF;
        while (size >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            crc = __builtin_ia32_crc32di(crc, word);
            at += 8;
            size -= 8;
        }
        while (size-- > 0) {
            crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
        }
        return ~(uint32_t)crc;
    }
    static int has_crc32c(void) { return __builtin_cpu_supports("sse4.2") != 0; }
    #else
    static uint32_t hardware_crc32c(const uint8_t *at, Py_ssize_t size) { return 0; }
    static int has_crc32c(void) { return 0; }
    #endif
    """
    uint32_t hardware_crc32c(const uint8_t* at, Py_ssize_t size) noexcept nogil
    int has_crc32c() noexcept nogil

cdef enum:
    HEADER_SIZE = 61
    OVERHEAD = 12
    CRC_START = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    GZIP = 1
    ZSTD = 4
    WALKED_COUNT = 4
    LEAST_RECORD_BYTES = 7
    WINDOW = 5
    ACKS_ALL = -1
    UNTIMED = 127
    NOT_TIMED = -1
    NO_TIMESTAMP = -1
    NO_OFFSET = -1
    TRANSACTIONAL = 0x10
    ZSTD_BLOCK = 131072
    ZSTD_KIND = 0x06
    ZSTD_RLE = 0x02
    SHORT = 4096  # above this size the `crc32c` package is faster

cdef uint32_t ZSTD_MAGIC = 0x28B52FFD
cdef int64_t FAR = 1 << 62
cdef int64_t LAST_SEQUENCE = 0x7FFFFFFF
cdef int64_t _readable = MAX_UNCOMPRESSED_BYTES
cdef int64_t[5] _ratios
_ratios[:] = [0, 1032, 22, 255, 32768]
cdef bint _in_hardware = has_crc32c()
cdef PyObject* _leader = <PyObject*>Role.LEADER
cdef list _sent = SENT
cdef object _PartitionAnswer = ProduceResponse.PartitionProduceResponse

cdef Py_ssize_t _generation = slot_place(Context, b"generation")
cdef Py_ssize_t _fast_requests = slot_place(TopicCounters, b"fast_requests")
cdef Py_ssize_t _bytes_in = slot_place(TopicCounters, b"bytes_in")
cdef Py_ssize_t _view = slot_place(ServerConnection, b"view")
cdef Py_ssize_t _pending = slot_place(ServerConnection, b"pending")
cdef Py_ssize_t _answers = slot_place(ServerConnection, b"_answers")
cdef Py_ssize_t _too_many = slot_place(ServerConnection, b"_too_many")
cdef Py_ssize_t _in_turn = slot_place(ServerConnection, b"in_turn")
cdef Py_ssize_t _policy = slot_place(Replica, b"policy")
cdef Py_ssize_t _refusal = slot_place(Replica, b"refusal")
cdef Py_ssize_t _dirty = slot_place(Replica, b"dirty")
cdef Py_ssize_t _held = slot_place(Replica, b"_held")
cdef Py_ssize_t _writing = slot_place(Replica, b"_writing")
cdef Py_ssize_t _committing = slot_place(Replica, b"_committing")
cdef Py_ssize_t _role = slot_place(Partition, b"role")
cdef Py_ssize_t _leader_epoch = slot_place(Partition, b"leader_epoch")
cdef Py_ssize_t _enough_in_sync = slot_place(Partition, b"enough_in_sync")
cdef Py_ssize_t _log_start_offset = slot_place(PartitionLog, b"log_start_offset")
cdef Py_ssize_t _buffers = slot_place(Staging, b"buffers")
cdef Py_ssize_t _batches = slot_place(Staging, b"batches")
cdef Py_ssize_t _size = slot_place(Staging, b"size")
cdef Py_ssize_t _max_timestamp = slot_place(Staging, b"max_timestamp")
cdef Py_ssize_t _epoch = slot_place(Staging, b"epoch")
cdef Py_ssize_t _end_offset = slot_place(Staging, b"end_offset")
cdef Py_ssize_t _now_ms = slot_place(Staging, b"now_ms")
cdef Py_ssize_t _states = slot_place(ProducerStates, b"_states")
cdef Py_ssize_t _undo = slot_place(ProducerStates, b"_undo")

if min(
    _generation, _fast_requests, _bytes_in, _view, _pending, _answers, _too_many, _in_turn,
    _policy, _refusal, _dirty, _held, _writing, _committing, _role, _leader_epoch, _enough_in_sync,
    _log_start_offset, _buffers, _batches, _size, _max_timestamp, _epoch, _end_offset, _now_ms,
    _states, _undo,
) < 0:
    raise ImportError("this Python keeps slots in another way: produce requests take the pure path")


# -- numbers


cdef inline uint64_t get_64(const uint8_t* at) noexcept:
    cdef uint64_t bits
    memcpy(&bits, at, 8)
    return __builtin_bswap64(bits)


cdef inline uint32_t get_32(const uint8_t* at) noexcept:
    cdef uint32_t bits
    memcpy(&bits, at, 4)
    return __builtin_bswap32(bits)


cdef inline int16_t get_16(const uint8_t* at) noexcept:
    return <int16_t>(at[0] << 8 | at[1])


cdef inline void put_64(uint8_t* at, uint64_t bits) noexcept:
    bits = __builtin_bswap64(bits)
    memcpy(at, &bits, 8)


cdef inline void put_32(uint8_t* at, uint32_t bits) noexcept:
    bits = __builtin_bswap32(bits)
    memcpy(at, &bits, 4)


cdef extern from *:
    uint64_t __builtin_bswap64(uint64_t bits) noexcept
    uint32_t __builtin_bswap32(uint32_t bits) noexcept


cdef inline int64_t number(PyObject* owner, Py_ssize_t place):
    """The integer in a slot."""
    return PyLong_AsLongLong(<object>slot_of(owner, place))


cdef inline int64_t now() noexcept:
    cdef timespec time
    clock_gettime(CLOCK_REALTIME, &time)
    return <int64_t>time.tv_sec * 1000 + time.tv_nsec // 1000000


# -- the records of small batches


cdef inline bint read_varint(
    const uint8_t** at, const uint8_t* end, int longest, int64_t* value
) noexcept:
    """Read a zigzag number of at most `longest` bytes; False if it is longer or truncated."""
    cdef uint64_t bits = 0
    cdef const uint8_t* place = at[0]
    cdef uint8_t byte
    cdef int index
    for index in range(longest):
        if place >= end:
            return False
        byte = place[0]
        place += 1
        bits |= <uint64_t>(byte & 0x7F) << 7 * index
        if byte < 0x80:
            if (longest == 5 and bits >> 32) or (index == 9 and byte > 1):
                return False
            value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            at[0] = place
            return True
    return False


cdef inline bint skip(const uint8_t** at, const uint8_t* end, int64_t least, bint* null) noexcept:
    """Skip a key or value; False if it is truncated or its length is below `least`."""
    cdef int64_t size
    if not read_varint(at, end, 5, &size) or size < least:
        return False
    null[0] = size < 0
    if size > 0:
        if size > end - at[0]:
            return False
        at[0] += size
    return True


cdef bint scan_records(
    const uint8_t* at, const uint8_t* end, int32_t count, int64_t* earliest, int64_t* latest,
    bint* keyless,
) noexcept:
    """As `records/record_scan.py`; False unless every record is well-formed and in its place."""
    cdef int32_t index
    cdef int64_t size, delta, place, headers
    cdef const uint8_t* stop
    cdef bint null = False
    earliest[0] = FAR
    latest[0] = -FAR
    keyless[0] = False
    for index in range(count):
        if not read_varint(&at, end, 5, &size) or size < 1 or size > end - at:
            return False
        stop = at + size
        at += 1
        if not read_varint(&at, stop, 10, &delta) or not -FAR < delta < FAR:
            return False
        if not read_varint(&at, stop, 5, &place) or place != index:
            return False
        latest[0] = max(latest[0], delta)
        earliest[0] = min(earliest[0], delta)
        if not skip(&at, stop, -1, &null):
            return False
        keyless[0] |= null
        if not skip(&at, stop, -1, &null):
            return False
        if not read_varint(&at, stop, 5, &headers) or headers < 0:
            return False
        while headers > 0:
            if not skip(&at, stop, 0, &null) or not skip(&at, stop, -1, &null):
                return False
            headers -= 1
        if at != stop:
            return False
    return at == end


# -- the size of compressed batches


cdef bint surely_fits(const uint8_t* at, Py_ssize_t size, int codec) noexcept:
    """As `records/decompressed_size.py`, for usual batches; False for what needs a closer look."""
    cdef const uint8_t* end = at + size
    cdef int64_t total = 0
    cdef uint32_t block
    cdef int flags
    if size * _ratios[codec] <= _readable:
        return True
    if codec == GZIP:  # what it states is modulo 2³²
        memcpy(&block, end - 4, 4)
        return block <= _readable and size * _ratios[GZIP] < <int64_t>1 << 32
    if codec != ZSTD or get_32(at) != ZSTD_MAGIC:
        return False
    flags = at[4]
    at += 5 + (0 if flags & 0x20 else 1) + (4 if flags & 3 == 3 else flags & 3)
    if flags >> 6:
        at += 1 << (flags >> 6)
    elif flags & 0x20:
        at += 1
    while end - at >= 3:
        block = at[0] | at[1] << 8 | at[2] << 16
        size = 1 if block & ZSTD_KIND == ZSTD_RLE else block >> 3
        total += ZSTD_BLOCK
        if total > _readable or size > end - at - 3:
            return False
        at += 3 + size
        if block & 1:
            return end - at == (4 if flags & 0x04 else 0)
    return False


# -- one partition


@cython.freelist(1024)
cdef class StagedBatch:
    """What a replica keeps about a batch that is not written yet."""

    cdef public int64_t base_offset
    cdef public int64_t last_offset
    cdef public int64_t append_time
    cdef public bint parked


@cython.final
cdef class FastTarget:
    """A partition that a route leads to."""

    cdef object target
    cdef object replica
    cdef object partition
    cdef object log
    cdef object staging
    cdef object producers
    cdef object counters
    cdef object append
    cdef object wait_for_write
    cdef object wait_for_commit
    cdef object write_soon
    cdef bint known
    # Whether the request names a transaction that its client is allowed to write to.
    cdef bint transactional
    # The rules of the last policy seen.
    cdef object policy
    cdef bint verbatim
    cdef bint keys_required
    cdef int64_t largest
    cdef int64_t max_uncompressed_bytes
    cdef int64_t walk_up_to
    cdef int64_t before_ms
    cdef int64_t after_ms

    def __init__(self, target, bint transactional):
        replica = target.replica
        self.transactional = transactional
        self.target = target
        self.replica = replica
        self.counters = target.counters
        self.append = replica.append
        self.known = (
            type(replica) is Replica
            and type(replica.log) is PartitionLog
            and type(replica.log.staging) is Staging
            and type(replica.log.producers) is ProducerStates
            and type(replica.partition) is Partition
            and type(target.counters) is TopicCounters
        )
        if self.known:
            self.partition = replica.partition
            self.log = replica.log
            self.staging = replica.log.staging
            self.producers = replica.log.producers
            self.wait_for_write = replica._writing.append
            self.wait_for_commit = replica._committing.append
            self.write_soon = replica.host.write_soon
            self.read_policy()

    cdef int read_policy(self) except -1:
        """Copy the rules; a limit beyond 64 bits is left to the pure path."""
        policy = self.replica.policy
        rules = policy.rules
        if type(policy) is not TopicPolicy or type(rules) is not BatchRules:
            self.known = False
            return 0
        self.policy = policy
        self.verbatim = rules.verbatim
        self.keys_required = rules.keys_required
        self.largest = rules.largest
        self.max_uncompressed_bytes = rules.max_uncompressed_bytes
        self.walk_up_to = rules.walk_up_to
        self.before_ms = min(rules.before_ms, FAR)
        self.after_ms = min(rules.after_ms, FAR)
        return 0

    cdef int count_bytes(self, Py_ssize_t size) except -1:
        cdef PyObject* counters = <PyObject*>self.counters
        if self.known:
            set_slot(counters, _bytes_in, number(counters, _bytes_in) + size)
        else:
            self.counters.bytes_in += size
        return 0

    cdef int stage(
        self, object view, uint8_t* memory, Py_ssize_t start, Py_ssize_t end, StagedBatch pending,
        FastRoute route, int64_t now_ms,
    ) except -1:
        """Stage the batch in `memory[start:end]`, or leave it to `Replica.append`."""
        if not self.known or not self.stage_good(
            view, memory, start, end, pending, route.acks, now_ms, route.zstd_known
        ):
            self.append(view[start:end], pending, route.acks, now_ms, route.zstd_known)
        return 0

    cdef bint stage_good(
        self, object view, uint8_t* memory, Py_ssize_t start, Py_ssize_t end, StagedBatch pending,
        int acks, int64_t now_ms, bint zstd_known,
    ) except -1:
        """Stage a batch that passes every check; otherwise return False and change nothing."""
        cdef PyObject* replica = <PyObject*>self.replica
        cdef PyObject* partition = <PyObject*>self.partition
        cdef PyObject* staging = <PyObject*>self.staging
        cdef uint8_t* at = memory + start
        cdef Py_ssize_t size = end - start
        cdef int64_t base, max_ms, producer_id, leader_epoch
        cdef object batch
        if (
            slot_of(partition, _role) != _leader
            or slot_of(replica, _refusal) != Py_None
            or (acks == ACKS_ALL and slot_of(partition, _enough_in_sync) != Py_True)
            or len(<object>slot_of(replica, _held))
        ):
            return False
        leader_epoch = number(partition, _leader_epoch)
        if leader_epoch != number(staging, _epoch):
            return False
        if slot_of(replica, _policy) != <PyObject*>self.policy:
            self.read_policy()
            if not self.known:
                return False
        if not self.verbatim or not self.is_good(at, size, now_ms, zstd_known):
            return False
        if not is_sound(view, at, start, end):
            return False
        batch = view[start:end]
        base = number(staging, _end_offset)
        producer_id = <int64_t>get_64(at + 43)
        if producer_id >= 0 and not admit(
            <PyObject*>self.producers, at, producer_id, base, now_ms
        ):
            return False
        max_ms = <int64_t>get_64(at + 35)
        pending.base_offset = base
        pending.last_offset = base + <int32_t>get_32(at + 23)
        put_64(at, base)
        put_32(at + 12, <uint32_t>leader_epoch)
        PyList_Append(<list>slot_of(staging, _buffers), batch)
        PyList_Append(<list>slot_of(staging, _batches), (pending.last_offset, size, max_ms))
        set_slot(staging, _size, number(staging, _size) + size)
        if max_ms > number(staging, _max_timestamp):
            set_slot(staging, _max_timestamp, max_ms)
        set_slot(staging, _now_ms, now_ms)
        set_slot(staging, _end_offset, pending.last_offset + 1)
        if acks == ACKS_ALL:
            self.wait_for_commit(pending)
        else:
            self.wait_for_write(pending)
        if slot_of(replica, _dirty) != Py_True:
            set_slot(replica, _dirty, True)
            self.write_soon(self.replica)
        return True

    cdef bint is_good(
        self, const uint8_t* at, Py_ssize_t size, int64_t now_ms, bint zstd_known
    ) noexcept:
        """`check_batch` without the checksum, and `check_records` for small batches."""
        cdef int64_t first_ms, max_ms, producer_id, earliest, latest
        cdef int32_t count
        cdef int16_t attributes
        cdef bint keyless
        if (
            size < HEADER_SIZE
            or at[16] != MAGIC
            or <int64_t><int32_t>get_32(at + 8) + OVERHEAD != size
            or get_64(at)
            or size > self.largest
        ):
            return False
        attributes = get_16(at + 21)
        if attributes & TRANSACTIONAL and self.transactional:
            if <int64_t>get_64(at + 43) < 0:
                return False
            attributes ^= TRANSACTIONAL
        count = <int32_t>get_32(at + 57)
        if count < 1 or count - 1 != <int32_t>get_32(at + 23) or not 0 <= attributes <= ZSTD:
            return False
        if attributes == ZSTD and not zstd_known:
            return False
        if <int64_t>count * LEAST_RECORD_BYTES > (
            self.max_uncompressed_bytes if attributes else size - HEADER_SIZE
        ):
            return False
        producer_id = <int64_t>get_64(at + 43)
        if producer_id != -1 and (
            producer_id | get_16(at + 51) | <int32_t>get_32(at + 53)
        ) < 0:
            return False
        first_ms = <int64_t>get_64(at + 27)
        max_ms = <int64_t>get_64(at + 35)
        if not -FAR < first_ms <= max_ms or max_ms >= FAR:
            return False
        if max_ms > now_ms + self.after_ms or first_ms < now_ms - self.before_ms:
            return False
        if count > self.walk_up_to:
            return not attributes or surely_fits(at + HEADER_SIZE, size - HEADER_SIZE, attributes)
        if attributes & CODEC_MASK or count > WALKED_COUNT:
            return False
        if not scan_records(at + HEADER_SIZE, at + size, count, &earliest, &latest, &keyless):
            return False
        if keyless and self.keys_required:
            return False
        if first_ms + earliest < now_ms - self.before_ms:
            return False
        return first_ms + latest == max_ms


cdef bint is_sound(object view, const uint8_t* at, Py_ssize_t start, Py_ssize_t end) except -1:
    """Whether the batch matches its checksum."""
    cdef uint32_t crc
    if _in_hardware and end - start <= SHORT:
        crc = hardware_crc32c(at + CRC_START, end - start - CRC_START)
    else:
        crc = crc32c(view[start + CRC_START : end])
    return crc == get_32(at + 17)


cdef bint admit(
    PyObject* producers, const uint8_t* at, int64_t producer_id, int64_t base, int64_t now_ms
) except -1:
    """`ProducerStates.admit` for the batch that follows its producer's last; False for others."""
    cdef PyObject* found
    cdef dict states, undo
    cdef tuple state, window
    cdef object key
    cdef int64_t epoch, first, last, delta
    states = <dict>slot_of(producers, _states)
    key = producer_id
    found = PyDict_GetItemWithError(states, key)
    if found == NULL:
        return False
    state = <tuple>found
    epoch = get_16(at + 51)
    first = <int32_t>get_32(at + 53)
    if (
        PyLong_AsLongLong(<object>PyTuple_GET_ITEM(state, 0)) != epoch
        or (PyLong_AsLongLong(<object>PyTuple_GET_ITEM(state, 5)) != NO_OFFSET)
        != ((get_16(at + 21) & TRANSACTIONAL) != 0)
        or (PyLong_AsLongLong(<object>PyTuple_GET_ITEM(state, 1)) + 1) & LAST_SEQUENCE != first
    ):
        return False
    delta = <int32_t>get_32(at + 23)
    last = (first + delta) & LAST_SEQUENCE
    window = <tuple>PyTuple_GET_ITEM(state, 2)
    state = (
        <object>PyTuple_GET_ITEM(state, 0),
        last,
        slide(window, (first, last, base, base + delta)),
        now_ms,
        <object>PyTuple_GET_ITEM(state, 4),
        <object>PyTuple_GET_ITEM(state, 5),
    )
    undo = <dict>slot_of(producers, _undo)
    if not PyDict_Contains(undo, key):
        PyDict_SetItem(undo, key, <object>found)
    PyDict_SetItem(states, key, state)
    return True


cdef inline tuple slide(tuple window, tuple batch):
    """The window with one more batch, and without its oldest if it is full."""
    if PyTuple_GET_SIZE(window) == WINDOW:
        return (window[1], window[2], window[3], window[4], batch)
    return (*window, batch)


# -- one connection


@cython.final
cdef class FastRoute:
    """A route of one connection."""

    cdef object context
    cdef object connection
    cdef object route
    cdef object wall_ms
    cdef object send_soon
    cdef object pending_append
    cdef object pending_popleft
    cdef list gaps
    cdef list targets
    cdef bytes template
    cdef int64_t generation
    cdef uint32_t head
    cdef int acks
    cdef int numbers
    cdef bint flexible
    cdef bint zstd_known
    cdef bint known
    cdef Py_ssize_t count
    cdef Py_ssize_t* places  # where each batch begins and ends
    cdef Py_ssize_t* holes  # where the numbers of each partition go in a response

    def __cinit__(self, context, connection, route):
        self.count = len(route.targets)
        self.places = <Py_ssize_t*>PyMem_Malloc(2 * self.count * sizeof(Py_ssize_t))
        self.holes = <Py_ssize_t*>PyMem_Malloc(self.count * sizeof(Py_ssize_t))
        if self.places == NULL or self.holes == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.places)
        PyMem_Free(self.holes)

    def __init__(self, context, connection, route):
        cdef Py_ssize_t rank
        cdef bytearray template = bytearray()
        self.context = context
        self.connection = connection
        self.route = route
        self.known = type(context) is Context and isinstance(connection, ServerConnection)
        self.wall_ms = None if type(context.clock) is SystemClock else context.clock.wall_ms
        self.send_soon = context.tick.send_soon
        self.pending_append = connection.pending.append
        self.pending_popleft = connection.pending.popleft
        self.generation = route.generation
        self.head = route.head
        self.acks = route.acks
        self.numbers = route.numbers
        self.flexible = route.flexible
        self.zstd_known = route.zstd_known
        self.gaps = list(route.gaps)
        transactional = route.transaction is not None
        self.targets = [FastTarget(target, transactional) for target in route.targets]
        for rank, gap in enumerate(route.answer_gaps):
            template += gap
            if rank < self.count:
                self.holes[rank] = len(template)
                template += bytes(8 * self.numbers)
        self.template = bytes(template)
        put_32(<uint8_t*>PyBytes_AS_STRING(self.template), <uint32_t>(len(self.template) - 4))

    def try_fast_path(self, Py_ssize_t start, Py_ssize_t end):
        """Append if the frame repeats the route's request; False if it must be decoded."""
        cdef PyObject* connection = <PyObject*>self.connection
        cdef uint8_t* memory
        cdef object view
        cdef int64_t now_ms
        if not self.known:
            return False
        view = <object>slot_of(connection, _view)
        memory = <uint8_t*>PyMemoryView_GET_BUFFER(view).buf
        if (
            get_32(memory + start) != self.head
            or number(<PyObject*>self.context, _generation) != self.generation
            or not self.find_records(memory, start + 8, end)
        ):
            return False
        now_ms = now() if self.wall_ms is None else self.wall_ms()
        if self.count == 1:
            self.append_one(view, memory, get_32(memory + start + 4), now_ms)
        else:
            self.append_several(view, memory, get_32(memory + start + 4), now_ms)
        return True

    cdef bint find_records(self, const uint8_t* memory, Py_ssize_t at, Py_ssize_t end) noexcept:
        """Find where each batch begins and ends; False if the bytes around them are not the route's."""
        cdef Py_ssize_t rank, length, gap_size
        cdef PyObject* gap
        cdef int shift
        for rank in range(self.count + 1):
            gap = PyList_GET_ITEM(self.gaps, rank)
            gap_size = PyBytes_GET_SIZE(<object>gap)
            if gap_size > end - at or memcmp(memory + at, PyBytes_AS_STRING(<object>gap), gap_size):
                return False
            at += gap_size
            if rank == self.count:
                break
            if self.flexible:
                length = shift = 0
                while True:
                    if at >= end or shift > 28:
                        return False
                    length |= <Py_ssize_t>(memory[at] & 0x7F) << shift
                    at += 1
                    if memory[at - 1] < 0x80:
                        break
                    shift += 7
                length -= 1
            else:
                if end - at < 4:
                    return False
                length = <int32_t>get_32(memory + at)
                at += 4
            if length < 0 or length > end - at:
                return False
            self.places[2 * rank] = at
            at += length
            self.places[2 * rank + 1] = at
        return at == end

    cdef int append_one(
        self, object view, uint8_t* memory, uint32_t correlation_id, int64_t now_ms
    ) except -1:
        cdef FastTarget target = <FastTarget>PyList_GET_ITEM(self.targets, 0)
        cdef FastAppend append = FastAppend.__new__(FastAppend)
        append.route = self
        append.connection = self.connection
        append.append_time = NO_TIMESTAMP
        append.correlation_id = correlation_id
        append.started_us = self.start_clock(target)
        target.count_bytes(self.places[1] - self.places[0])
        self.pending_append(append)
        try:
            target.stage(view, memory, self.places[0], self.places[1], append, self, now_ms)
        except KafkaError as refused:
            append.fail(refused)
        return 0

    cdef int append_several(
        self, object view, uint8_t* memory, uint32_t correlation_id, int64_t now_ms
    ) except -1:
        cdef FastCall call = FastCall.__new__(FastCall)
        cdef FastTarget target
        cdef FastPart part
        cdef Py_ssize_t rank
        call.route = self
        call.connection = self.connection
        call.correlation_id = correlation_id
        call.left = self.count
        call.parts = []
        call.started_us = self.start_clock(<FastTarget>PyList_GET_ITEM(self.targets, 0))
        for rank in range(self.count):
            part = FastPart.__new__(FastPart)
            part.call = call
            part.target = <FastTarget>PyList_GET_ITEM(self.targets, rank)
            part.base_offset = part.last_offset = -1
            part.append_time = NO_TIMESTAMP
            PyList_Append(call.parts, part)
        self.pending_append(call)
        for rank in range(self.count):
            part = <FastPart>PyList_GET_ITEM(call.parts, rank)
            target = part.target
            target.count_bytes(self.places[2 * rank + 1] - self.places[2 * rank])
            try:
                target.stage(
                    view, memory, self.places[2 * rank], self.places[2 * rank + 1], part, self,
                    now_ms,
                )
            except KafkaError as refused:
                part.fail(refused)
        return 0

    cdef int64_t start_clock(self, FastTarget target) except? -2:
        """Count the request; return the time if it is one of the few that are timed."""
        cdef int64_t requests = target.counters.fast_requests + 1
        target.counters.fast_requests = requests
        return NOT_TIMED if requests & UNTIMED else self.context.clock.monotonic_us()

    cdef int stop_clock(self, int64_t started_us) except -1:
        cdef int64_t took_us = self.context.clock.monotonic_us() - started_us
        self.context.metrics.apis[PRODUCE].time_ms.observe(took_us / 1000)
        return 0

    cdef int response_ready(self, object slot, object buffers) except -1:
        """As `ServerConnection.response_ready`, for a connection that has no other response waiting."""
        cdef PyObject* connection = <PyObject*>self.connection
        cdef PyObject* answers = slot_of(connection, _answers)
        cdef object pending = <object>slot_of(connection, _pending)
        if (
            slot_of(connection, _too_many) == Py_True
            or len(pending) != 1
            or PyList_GET_SIZE(<list>answers)
        ):
            self.connection.response_ready(slot)
            return 0
        if <PyObject*>pending[0] != <PyObject*>slot:
            return 0
        set_slot(connection, _answers, buffers)
        slot.buffers = _sent
        self.pending_popleft()
        if slot_of(connection, _in_turn) != Py_True:
            self.send_soon(self.connection)
        return 0

    cdef bytes answer(self, uint32_t correlation_id):
        """A response whose numbers are filled in later."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(self.template))
        cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(made)
        memcpy(at, PyBytes_AS_STRING(self.template), PyBytes_GET_SIZE(self.template))
        put_32(at + 4, correlation_id)
        return made

    cdef int put_numbers(self, uint8_t* at, FastTarget target, StagedBatch batch) except -1:
        put_64(at, batch.base_offset)
        put_64(at + 8, batch.append_time)
        if self.numbers == 3:
            if target.known:
                put_64(at + 16, number(<PyObject*>target.log, _log_start_offset))
            else:
                put_64(at + 16, target.replica.log_start_offset)
        return 0

    cdef int park(self, object waiter) except -1:
        timeout_ms = max(0, self.route.timeout_ms)
        self.context.park(self.context.clock.monotonic_ms() + timeout_ms, waiter)
        return 0


@cython.final
cdef class FastAppend(StagedBatch):
    """One batch on the fast path: both the response's slot and the replica's pending append."""

    cdef public object connection
    cdef public object buffers
    cdef FastRoute route
    cdef uint32_t correlation_id
    cdef int64_t started_us

    @property
    def answered(self):
        return self.buffers is not None

    @property
    def transaction(self):
        return self.route.route.transaction

    def holding(self, size):
        self.connection.hold_bytes(size)

    def complete(self):
        cdef FastRoute route = self.route
        cdef bytes answer
        if self.buffers is not None:
            return
        if self.started_us != NOT_TIMED:
            route.stop_clock(self.started_us)
        answer = route.answer(self.correlation_id)
        route.put_numbers(
            <uint8_t*>PyBytes_AS_STRING(answer) + route.holes[0],
            <FastTarget>PyList_GET_ITEM(route.targets, 0),
            self,
        )
        self.fill([answer])

    def fail(self, failure):
        if self.buffers is not None:
            return
        self.connection.context.metrics.error(PRODUCE, failure.code)
        self.connection.route = None
        answer = failed_answer(<FastTarget>PyList_GET_ITEM(self.route.targets, 0), failure)
        self.fill(
            self.route.route.failure_frame(
                self.connection, <int32_t>self.correlation_id, [answer]
            )
        )

    cpdef fill(self, list buffers):
        if self.buffers is None:
            self.buffers = buffers
            self.route.response_ready(self, buffers)

    def park(self):
        self.parked = True
        self.route.park(self)

    def expired(self):
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))

    def peer_gone(self):
        pass


@cython.final
@cython.freelist(64)
cdef class FastCall:
    """A request of several batches on the fast path."""

    cdef public object connection
    cdef public object buffers
    cdef FastRoute route
    cdef list parts
    cdef uint32_t correlation_id
    cdef int64_t started_us
    cdef Py_ssize_t left

    @property
    def answered(self):
        return self.buffers is not None

    cdef int part_done(self) except -1:
        """Answer when every batch is written or refused."""
        cdef FastRoute route = self.route
        cdef FastPart part
        cdef bytes answer
        cdef Py_ssize_t rank
        self.left -= 1
        if self.left:
            return 0
        if self.started_us != NOT_TIMED:
            route.stop_clock(self.started_us)
        answer = route.answer(self.correlation_id)
        for rank in range(route.count):
            part = <FastPart>PyList_GET_ITEM(self.parts, rank)
            if part.failure is not None:
                self.connection.route = None
                answers = [(<FastPart>each).answer() for each in self.parts]
                self.fill(
                    route.route.failure_frame(
                        self.connection, <int32_t>self.correlation_id, answers
                    )
                )
                return 0
            route.put_numbers(
                <uint8_t*>PyBytes_AS_STRING(answer) + route.holes[rank], part.target, part
            )
        self.fill([answer])
        return 0

    cpdef fill(self, list buffers):
        if self.buffers is None:
            self.buffers = buffers
            self.route.response_ready(self, buffers)

    def peer_gone(self):
        pass


@cython.final
cdef class FastPart(StagedBatch):
    """One batch of a `FastCall`."""

    cdef readonly bint answered
    cdef FastCall call
    cdef FastTarget target
    cdef object failure

    @property
    def transaction(self):
        return self.call.route.route.transaction

    def holding(self, size):
        self.call.connection.hold_bytes(size)

    def complete(self):
        if not self.answered:
            self.answered = True
            self.call.part_done()

    def fail(self, failure):
        if not self.answered:
            self.answered = True
            self.failure = failure
            self.call.connection.context.metrics.error(PRODUCE, failure.code)
            self.call.part_done()

    cdef object answer(self):
        """The part's place in a response that has errors."""
        if self.failure is not None:
            return failed_answer(self.target, self.failure)
        return _PartitionAnswer(
            index=self.target.target.index,
            base_offset=self.base_offset,
            log_append_time_ms=self.append_time,
            log_start_offset=self.target.replica.log_start_offset,
        )

    def park(self):
        self.parked = True
        self.call.route.park(self)

    def expired(self):
        self.fail(KafkaError(E.REQUEST_TIMED_OUT))


cdef object failed_answer(FastTarget target, object failure):
    answer = _PartitionAnswer(index=target.target.index)
    fill_failure(answer, failure, target.replica)
    return answer
