# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The record codec of the clients, compiled: the contract of `codec.py` over typed memory.

The wire is hostile: every length is compared with the bytes that are left before it is used, each
byte is read once, no allocation trusts a count. Python code that could run in between (a sequence
of the caller, a destructor) never finds a pointer that it can make dangle: buffers are held while
they are read, and a writer's memory is looked up only after the last such call.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from headwater.errors import E, KafkaError
from headwater.records.checksum import crc32c
from headwater.records.columns import Column, Columns, Headers
from headwater.records.compression import compress, decompress
from headwater.records.pure_reader import unreadable_format
from headwater.records.record import encode_headers
from headwater.records.rules import MAX_UNCOMPRESSED_BYTES
from headwater.records.seal import seal

cdef enum:
    HEADER_SIZE = 61
    OVERHEAD = 12
    CRC_START = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    FIRST_CAPACITY = 1024
    SMALLEST_RECORD = 7
    ABSENT = -1  # as a length: null

cdef bytes NO_HEADERS = b"\x00"


# ---------------------------------------------------------------- numbers

cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t varint_size(uint64_t bits) noexcept nogil:
    cdef Py_ssize_t size = 1
    while bits > 0x7F:
        bits >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* at, uint64_t bits) noexcept nogil:
    while bits > 0x7F:
        at[0] = <uint8_t>(bits & 0x7F | 0x80)
        bits >>= 7
        at += 1
    at[0] = <uint8_t>bits
    return at + 1


cdef inline uint8_t* put_big_endian(uint8_t* at, int64_t value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        at[index] = <uint8_t>(value >> 8 * (size - 1 - index))
    return at + size


cdef inline int64_t get_big_endian(const uint8_t* at, int size) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int index
    for index in range(size):
        bits = bits << 8 | at[index]
    return <int64_t>(bits << 64 - 8 * size) >> 64 - 8 * size


# ---------------------------------------------------------------- writing

@cython.final
cdef class BatchWriter:
    """One batch that is being filled; not for several threads at once.

    `size` is exact: what the batch takes uncompressed, with its header. After `finish` nothing fits
    any more; `finish` itself may be called again, for the same records under another identity. The
    first uncompressed batch it returns is the writer's own memory, so a later call copies it.
    """

    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t limit
    cdef Py_ssize_t capacity
    cdef int64_t first_timestamp
    cdef int64_t max_timestamp
    cdef bytearray memory
    cdef bint given

    def __cinit__(self, size_limit):
        self.limit = min(size_limit, INT32_MAX)
        self.size = HEADER_SIZE
        self.capacity = FIRST_CAPACITY
        self.memory = PyByteArray_FromStringAndSize(NULL, FIRST_CAPACITY)

    def append(self, timestamp, key, value, headers=()):
        """The number of the record in the batch, or -1 where it does not fit; a first one does."""
        cdef const uint8_t* key_at = NULL
        cdef const uint8_t* value_at = NULL
        cdef Py_ssize_t key_size = ABSENT
        cdef Py_ssize_t value_size = ABSENT
        cdef bytes encoded = NO_HEADERS
        if headers:
            encoded = encode_headers(headers)
        if key is not None:
            key_size = bytes_of(key, &key_at)
        if value is not None:
            value_size = bytes_of(value, &value_at)
        if not self.put(milliseconds(timestamp), key_at, key_size, value_at, value_size, encoded):
            return -1
        return self.count - 1

    def extend(self, timestamp, values, Py_ssize_t start):
        """Append values without keys from `values[start]` on; how many of them fitted.

        Something that is no value stops it like a batch that is full; where it stands first, it is
        refused with TypeError.
        """
        cdef const uint8_t* value_at = NULL
        cdef Py_ssize_t value_size
        cdef Py_ssize_t taken = 0
        cdef Py_ssize_t index = start
        cdef int64_t stamp = milliseconds(timestamp)
        if start < 0:
            raise ValueError("start is negative")
        while index < len(values):
            value = (<list>values)[index] if type(values) is list else values[index]
            value_size = ABSENT
            if value is not None:
                if not isinstance(value, bytes) and taken:
                    break
                value_size = bytes_of(value, &value_at)
            if not self.put(stamp, NULL, ABSENT, value_at, value_size, NO_HEADERS):
                break
            index += 1
            taken += 1
        return taken

    cdef inline bint put(
        self,
        int64_t timestamp,
        const uint8_t* key,
        Py_ssize_t key_size,
        const uint8_t* value,
        Py_ssize_t value_size,
        bytes headers,
    ) except -1:
        """Encode one record at the end; false where the batch has no room for it."""
        cdef Py_ssize_t header_size = PyBytes_GET_SIZE(headers)
        cdef int64_t first = self.first_timestamp if self.count else timestamp
        cdef uint64_t stamp = zigzag(<int64_t>(<uint64_t>timestamp - <uint64_t>first))
        cdef uint64_t place = zigzag(self.count)
        cdef Py_ssize_t body = 1 + varint_size(stamp) + varint_size(place) + header_size
        cdef Py_ssize_t size
        cdef uint8_t* at
        body += varint_size(zigzag(key_size)) + max(key_size, 0)
        body += varint_size(zigzag(value_size)) + max(value_size, 0)
        size = self.size + body + varint_size(zigzag(body))
        if size > self.limit:
            if self.count:
                return False
            if size > INT32_MAX:
                raise KafkaError(
                    E.MESSAGE_TOO_LARGE, f"no batch can hold a record of {size} bytes"
                )
        if size > self.capacity:
            self.grow(size)
        at = <uint8_t*>PyByteArray_AS_STRING(self.memory) + self.size
        at = put_varint(at, zigzag(body))
        at[0] = 0
        at = put_varint(at + 1, stamp)
        at = put_varint(at, place)
        at = put_bytes(at, key, key_size)
        at = put_bytes(at, value, value_size)
        memcpy(at, PyBytes_AS_STRING(headers), header_size)
        if not self.count:
            self.first_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.size = size
        self.count += 1
        return True

    cdef int grow(self, Py_ssize_t size) except -1:
        cdef Py_ssize_t capacity = max(size, min(4 * self.capacity, self.limit))
        PyByteArray_Resize(self.memory, capacity)
        self.capacity = capacity
        return 0

    def finish(
        self,
        int codec,
        level,
        int64_t producer_id,
        int16_t producer_epoch,
        int32_t base_sequence,
        bint transactional=False,
    ):
        """The whole batch with its checksum."""
        cdef bytearray batch
        cdef uint8_t* at
        cdef int attributes = codec | (TRANSACTIONAL if transactional else 0)
        if not self.count:
            raise ValueError("a batch holds at least one record")
        self.limit = 0
        if codec:
            area = compress(codec, memoryview(self.memory)[HEADER_SIZE : self.size], level)
            return seal(
                (
                    0,
                    0,
                    -1,
                    MAGIC,
                    0,
                    attributes,
                    self.count - 1,
                    self.first_timestamp,
                    self.max_timestamp,
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    self.count,
                ),
                area,
            )
        if self.given:
            batch = bytearray(self.memory)
            if len(batch) != self.size:
                raise ValueError("the batch that was returned before has been cut or lengthened")
        else:
            batch = self.memory
            PyByteArray_Resize(batch, self.size)
            self.given = True
        at = <uint8_t*>PyByteArray_AS_STRING(batch)
        at = put_big_endian(at, 0, 8)
        at = put_big_endian(at, self.size - OVERHEAD, 4)
        at = put_big_endian(at, -1, 4)
        at = put_big_endian(at, MAGIC, 1) + 4
        at = put_big_endian(at, attributes, 2)
        at = put_big_endian(at, self.count - 1, 4)
        at = put_big_endian(at, self.first_timestamp, 8)
        at = put_big_endian(at, self.max_timestamp, 8)
        at = put_big_endian(at, producer_id, 8)
        at = put_big_endian(at, producer_epoch, 2)
        at = put_big_endian(at, base_sequence, 4)
        put_big_endian(at, self.count, 4)
        at = <uint8_t*>PyByteArray_AS_STRING(batch)
        put_big_endian(at + CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]), 4)
        return batch


cdef inline uint8_t* put_bytes(uint8_t* at, const uint8_t* field, Py_ssize_t size) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size <= 0:
        return at
    memcpy(at, field, size)
    return at + size


cdef inline int64_t milliseconds(object timestamp) except? -1:
    if not isinstance(timestamp, int):
        raise TypeError(f"a timestamp is an int of milliseconds, not {timestamp!r}")
    return timestamp


cdef inline Py_ssize_t bytes_of(object field, const uint8_t** at) except -2:
    if not isinstance(field, bytes):
        raise TypeError(f"keys and values are bytes or None, not {type(field).__name__}")
    at[0] = <const uint8_t*>PyBytes_AS_STRING(field)
    return PyBytes_GET_SIZE(field)


# ---------------------------------------------------------------- reading

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint broken  # a number was too long, or a length out of all bounds: what was read is worthless


cdef inline int64_t get_varint(Cursor* cursor, int longest, uint64_t largest) noexcept nogil:
    cdef uint64_t bits = 0
    cdef uint64_t byte
    cdef int index
    for index in range(longest):
        if cursor.at >= cursor.end:
            break
        byte = cursor.at[0]
        cursor.at += 1
        # The tenth byte of a long number has room for one bit.
        if index == 9 and byte > 1:
            break
        bits |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if bits > largest:
                break
            return <int64_t>(bits >> 1 ^ -(bits & 1))
    cursor.broken = True
    return 0


cdef inline int64_t get_int(Cursor* cursor) noexcept nogil:
    cdef uint8_t byte
    if cursor.at < cursor.end and cursor.at[0] < 0x80:
        byte = cursor.at[0]
        cursor.at += 1
        return <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1)
    return get_varint(cursor, 5, 0xFFFFFFFF)


cdef inline int64_t get_long(Cursor* cursor) noexcept nogil:
    return get_varint(cursor, 10, 0xFFFFFFFFFFFFFFFF)


cdef inline const uint8_t* get_bytes(Cursor* cursor, Py_ssize_t* size) noexcept nogil:
    """Where a key or a value begins; `size` is ABSENT for null."""
    cdef const uint8_t* start
    cdef Py_ssize_t length = get_int(cursor)
    start = cursor.at
    if length < ABSENT or length > cursor.end - start:
        cursor.broken = True
        length = ABSENT
    size[0] = length
    if length > 0:
        cursor.at += length
    return start


cdef struct Record:
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    Py_ssize_t key_size
    const uint8_t* value
    Py_ssize_t value_size
    int64_t header_count
    Cursor headers


cdef struct Header:
    const uint8_t* key
    Py_ssize_t key_size
    const uint8_t* value
    Py_ssize_t value_size


cdef struct Batch:
    int64_t base_offset
    int64_t first_timestamp
    int64_t max_timestamp
    int64_t count
    int64_t size
    int attributes


cdef inline bint get_record(Cursor* cursor, Batch* batch, Record* record) noexcept nogil:
    """Read a record up to its headers, which `record.headers` spans; false where it is malformed."""
    cdef Cursor inner
    cdef int64_t size = get_int(cursor)
    cdef int64_t place
    if cursor.broken or size < SMALLEST_RECORD - 1 or size > cursor.end - cursor.at:
        return False
    inner.at = cursor.at + 1
    inner.end = cursor.at = cursor.at + size
    inner.broken = False
    record.timestamp = <int64_t>(<uint64_t>batch.first_timestamp + <uint64_t>get_long(&inner))
    if batch.attributes & LOG_APPEND_TIME:
        record.timestamp = batch.max_timestamp
    place = get_int(&inner)
    record.offset = <int64_t>(<uint64_t>batch.base_offset + <uint64_t>place)
    record.key = get_bytes(&inner, &record.key_size)
    record.value = get_bytes(&inner, &record.value_size)
    record.header_count = get_int(&inner)
    record.headers = inner
    return not (
        inner.broken
        or record.header_count < 0
        or (record.header_count == 0 and inner.at != inner.end)
        or (record.offset < batch.base_offset) != (place < 0)
    )


cdef inline bint get_header(Cursor* cursor, Header* header) noexcept nogil:
    header.key = get_bytes(cursor, &header.key_size)
    header.value = get_bytes(cursor, &header.value_size)
    return not cursor.broken and header.key_size != ABSENT


cdef class View:
    """A buffer held for as long as this object lives."""

    cdef Py_buffer buffer
    cdef const uint8_t* at
    cdef Py_ssize_t size
    cdef bint held

    def __cinit__(self, owner):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.at = <const uint8_t*>self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef class Area:
    """The records area of one batch, decompressed where need be, and where its reading stands."""

    cdef Batch batch
    cdef Cursor cursor
    cdef View whole
    cdef bytes unpacked

    cdef int open(self, object buf, Py_ssize_t pos, bint check_crc) except -1:
        """Check header and checksum of the batch at `pos`."""
        cdef const uint8_t* at
        cdef Py_ssize_t left
        cdef Batch* batch = &self.batch
        self.whole = View(buf)
        left = self.whole.size - pos
        if pos < 0 or left < HEADER_SIZE:
            raise corrupt(f"{left} bytes hold no record batch")
        at = self.whole.at + pos
        batch.size = get_big_endian(at + 8, 4) + OVERHEAD
        if at[16] != MAGIC:
            raise unreadable_format(get_big_endian(at + 16, 1))
        if batch.size < HEADER_SIZE or batch.size > left:
            raise corrupt(f"a batch of {batch.size} bytes does not fit into {left}")
        batch.base_offset = get_big_endian(at, 8)
        batch.attributes = <int>get_big_endian(at + 21, 2)
        batch.first_timestamp = get_big_endian(at + 27, 8)
        batch.max_timestamp = get_big_endian(at + 35, 8)
        batch.count = get_big_endian(at + 57, 4)
        if check_crc and crc32c(memoryview(buf)[pos + CRC_START : pos + batch.size]) != <uint32_t>(
            get_big_endian(at + 17, 4)
        ):
            raise corrupt(f"the batch at offset {batch.base_offset} does not match its checksum")
        return 0

    cdef int unpack(self, object buf, Py_ssize_t pos, object limit) except -1:
        """Stand at the first record."""
        cdef int codec = self.batch.attributes & CODEC_MASK
        cdef Py_ssize_t size = self.batch.size - HEADER_SIZE
        self.cursor.at = self.whole.at + pos + HEADER_SIZE
        if codec or size > limit:
            packed = memoryview(buf)[pos + HEADER_SIZE : pos + self.batch.size]
            self.unpacked = decompress(codec, packed, limit, limit)
            size = PyBytes_GET_SIZE(self.unpacked)
            self.cursor.at = <const uint8_t*>PyBytes_AS_STRING(self.unpacked)
        self.cursor.end = self.cursor.at + size
        self.cursor.broken = False
        return 0


def decode_batch(
    buf, Py_ssize_t pos=0, bint check_crc=True, *, bint control=False, limit=MAX_UNCOMPRESSED_BYTES
):
    """Size and records of the batch at `pos`.

    A control batch has no records to show, unless `control` asks for them. `limit` is what the
    records may take uncompressed. CORRUPT_MESSAGE: no whole and undamaged batch is here.
    INVALID_RECORD: its records are malformed. MESSAGE_TOO_LARGE: they are more than `limit`.
    """
    cdef Area area = Area()
    cdef list rows = []
    area.open(buf, pos, check_crc)
    if control or not area.batch.attributes & CONTROL:
        area.unpack(buf, pos, limit)
        decode_rows(area, rows)
    return area.batch.size, rows


cdef int decode_rows(Area area, list rows) except -1:
    cdef Record record
    cdef int64_t index
    cdef int64_t last_timestamp = 0
    cdef object timestamp = 0
    cdef object kind = 1 if area.batch.attributes & LOG_APPEND_TIME else 0
    cdef object headers
    for index in range(area.batch.count):
        if not get_record(&area.cursor, &area.batch, &record):
            raise malformed(index)
        if record.timestamp != last_timestamp:
            last_timestamp = record.timestamp
            timestamp = last_timestamp
        headers = decode_headers(&record, index) if record.header_count else ()
        rows.append(
            (
                record.offset,
                timestamp,
                kind,
                field_object(record.key, record.key_size),
                field_object(record.value, record.value_size),
                headers,
            )
        )
    return check_end(&area.cursor)


cdef tuple decode_headers(Record* record, int64_t index):
    cdef Header header
    cdef list headers = []
    cdef int64_t number
    for number in range(record.header_count):
        if not get_header(&record.headers, &header):
            raise malformed(index)
        key = PyUnicode_DecodeUTF8(<const char*>header.key, header.key_size, "replace")
        headers.append((key, field_object(header.value, header.value_size)))
    if record.headers.at != record.headers.end:
        raise malformed(index)
    return tuple(headers)


cdef inline object field_object(const uint8_t* at, Py_ssize_t size):
    if size == ABSENT:
        return None
    return PyBytes_FromStringAndSize(<const char*>at, size)


cdef int check_end(Cursor* cursor) except -1:
    if cursor.at != cursor.end:
        raise KafkaError(
            E.INVALID_RECORD, f"{cursor.end - cursor.at} bytes follow the last record"
        )
    return 0


cdef object malformed(int64_t index):
    return KafkaError(E.INVALID_RECORD, f"record {index} of the batch is malformed or cut")


cdef object corrupt(str why):
    return KafkaError(E.CORRUPT_MESSAGE, why)


# ---------------------------------------------------------------- columns

cdef class Memory:
    """Bytes that grow at their end and are given away as a bytearray."""

    cdef bytearray memory
    cdef uint8_t* at
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self.memory = bytearray()

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        """Make room for `more` bytes at the end."""
        cdef Py_ssize_t capacity
        if self.size + more > self.capacity:
            capacity = max(self.size + more, 2 * self.capacity)
            PyByteArray_Resize(self.memory, capacity)
            self.capacity = capacity
            self.at = <uint8_t*>PyByteArray_AS_STRING(self.memory)
        return 0

    cdef inline void put(self, const uint8_t* data, Py_ssize_t size) noexcept:
        """Append into the room reserved."""
        if size:  # nothing may have been reserved for nothing
            memcpy(self.at + self.size, data, size)
            self.size += size

    cdef inline void put_int(self, int32_t number) noexcept:
        (<int32_t*>(self.at + self.size))[0] = number
        self.size += sizeof(int32_t)

    cdef inline void put_long(self, int64_t number) noexcept:
        (<int64_t*>(self.at + self.size))[0] = number
        self.size += sizeof(int64_t)

    cdef bytearray take(self):
        """All of it; nothing remains."""
        cdef bytearray taken = self.memory
        PyByteArray_Resize(taken, self.size)
        self.memory = bytearray()
        self.at = NULL
        self.size = self.capacity = 0
        return taken


cdef struct FieldsMark:
    Py_ssize_t count
    Py_ssize_t nulls
    Py_ssize_t size


cdef struct Mark:
    Py_ssize_t count
    FieldsMark keys
    FieldsMark values
    FieldsMark header_keys
    FieldsMark header_values


cdef class Fields:
    """A column of bytes that is being filled."""

    cdef Memory offsets
    cdef Memory data
    cdef Memory validity
    cdef Py_ssize_t count
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.offsets = Memory()
        self.data = Memory()
        self.validity = Memory()
        self.begin()

    cdef int begin(self) except -1:
        self.count = self.nulls = 0
        self.offsets.reserve(sizeof(int32_t))
        self.offsets.put_int(0)
        return 0

    cdef inline int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        self.offsets.reserve(rows * <Py_ssize_t>sizeof(int32_t))
        self.validity.reserve((self.count + rows + 7) // 8 - self.validity.size)
        self.data.reserve(size)
        return 0

    cdef inline void put(self, const uint8_t* at, Py_ssize_t size) noexcept:
        """Append a row into the room reserved."""
        cdef Py_ssize_t byte = self.count >> 3
        cdef uint8_t bit = <uint8_t>(1 << (self.count & 7))
        if byte == self.validity.size:
            self.validity.at[byte] = 0
            self.validity.size += 1
        if size == ABSENT:
            self.nulls += 1
        else:
            self.validity.at[byte] |= bit
            self.data.put(at, size)
        self.offsets.put_int(<int32_t>self.data.size)
        self.count += 1

    cdef inline FieldsMark mark(self) noexcept:
        return FieldsMark(self.count, self.nulls, self.data.size)

    cdef void cut(self, FieldsMark mark) noexcept:
        """Back to what it was at the mark."""
        self.count = mark.count
        self.nulls = mark.nulls
        self.data.size = mark.size
        self.offsets.size = (mark.count + 1) * <Py_ssize_t>sizeof(int32_t)
        self.validity.size = (mark.count + 7) // 8
        if mark.count & 7:
            self.validity.at[mark.count >> 3] &= <uint8_t>((1 << (mark.count & 7)) - 1)

    cdef object take(self):
        validity = self.validity.take()
        column = Column(self.offsets.take(), self.data.take(), validity if self.nulls else None)
        self.begin()
        return column


@cython.final
cdef class ColumnReader:
    """Columns that grow by one batch after the other, of one partition or of several."""

    cdef readonly Py_ssize_t count
    cdef bint busy
    cdef Memory offsets
    cdef Memory timestamps
    cdef Memory kinds
    cdef Memory header_offsets
    cdef Fields keys
    cdef Fields values
    cdef Fields header_keys
    cdef Fields header_values

    def __cinit__(self):
        self.offsets = Memory()
        self.timestamps = Memory()
        self.kinds = Memory()
        self.header_offsets = Memory()
        self.keys = Fields()
        self.values = Fields()
        self.header_keys = Fields()
        self.header_values = Fields()
        self.begin()

    cdef int begin(self) except -1:
        self.count = 0
        self.header_offsets.reserve(sizeof(int32_t))
        self.header_offsets.put_int(0)
        return 0

    @property
    def size(self):
        """Bytes of keys, values and headers so far."""
        return (
            self.keys.data.size
            + self.values.data.size
            + self.header_keys.data.size
            + self.header_values.data.size
        )

    def add(
        self,
        buf,
        Py_ssize_t pos=0,
        bint check_crc=True,
        *,
        int64_t from_offset=0,
        bint control=False,
        limit=MAX_UNCOMPRESSED_BYTES,
    ):
        """Append the records of the batch at `pos`, but those below `from_offset`; its size.

        Errors as `decode_batch` has them; the columns then are as they were.
        """
        cdef Area area = Area()
        cdef Mark mark
        area.open(buf, pos, check_crc)
        if area.batch.attributes & CONTROL and not control:
            return area.batch.size
        area.unpack(buf, pos, limit)
        self.begin_use()
        self.mark(&mark)
        try:
            self.read(area, from_offset)
        except BaseException:
            self.cut(&mark)
            raise
        finally:
            self.busy = False
        return area.batch.size

    cdef int begin_use(self) except -1:
        """Nobody else may touch the room that a running `add` has reserved."""
        if self.busy:
            raise RuntimeError("a ColumnReader is not for several threads at once")
        self.busy = True
        return 0

    cdef int read(self, Area area, int64_t from_offset) except -1:
        cdef Record record
        cdef int64_t index
        cdef int8_t kind = 1 if area.batch.attributes & LOG_APPEND_TIME else 0
        cdef Py_ssize_t room = area.cursor.end - area.cursor.at
        cdef Py_ssize_t rows = min(area.batch.count, room // SMALLEST_RECORD)
        if self.size + room > INT32_MAX:
            raise KafkaError(E.MESSAGE_TOO_LARGE, "columns cannot hold more than 2 GiB")
        self.reserve(max(rows, 0), room)
        for index in range(area.batch.count):
            if not get_record(&area.cursor, &area.batch, &record):
                raise malformed(index)
            if record.header_count:
                self.read_headers(&record, index, record.offset >= from_offset)
            if record.offset >= from_offset:
                self.offsets.put_long(record.offset)
                self.timestamps.put_long(record.timestamp)
                self.kinds.put(<const uint8_t*>&kind, 1)
                self.keys.put(record.key, record.key_size)
                self.values.put(record.value, record.value_size)
                self.header_offsets.put_int(<int32_t>self.header_keys.count)
                self.count += 1
        return check_end(&area.cursor)

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t room) except -1:
        """Room for so many records that take no more than `room` bytes together."""
        self.offsets.reserve(rows * <Py_ssize_t>sizeof(int64_t))
        self.timestamps.reserve(rows * <Py_ssize_t>sizeof(int64_t))
        self.kinds.reserve(rows)
        self.header_offsets.reserve(rows * <Py_ssize_t>sizeof(int32_t))
        self.keys.reserve(rows, room)
        self.values.reserve(rows, room)
        return 0

    cdef int read_headers(self, Record* record, int64_t index, bint kept) except -1:
        cdef Header header
        cdef int64_t number
        cdef bytes key
        for number in range(record.header_count):
            if not get_header(&record.headers, &header):
                raise malformed(index)
            if kept:
                key = valid_utf_8(header.key, header.key_size)
                self.header_keys.reserve(1, PyBytes_GET_SIZE(key))
                self.header_keys.put(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
                self.header_values.reserve(1, max(header.value_size, 0))
                self.header_values.put(header.value, header.value_size)
        if record.headers.at != record.headers.end:
            raise malformed(index)
        if self.header_keys.data.size > INT32_MAX // 4:
            raise KafkaError(E.MESSAGE_TOO_LARGE, "the header keys take more than 512 MiB")
        return 0

    cdef void mark(self, Mark* mark) noexcept:
        mark.count = self.count
        mark.keys = self.keys.mark()
        mark.values = self.values.mark()
        mark.header_keys = self.header_keys.mark()
        mark.header_values = self.header_values.mark()

    cdef void cut(self, Mark* mark) noexcept:
        self.count = mark.count
        self.offsets.size = self.timestamps.size = mark.count * <Py_ssize_t>sizeof(int64_t)
        self.kinds.size = mark.count
        self.header_offsets.size = (mark.count + 1) * <Py_ssize_t>sizeof(int32_t)
        self.keys.cut(mark.keys)
        self.values.cut(mark.values)
        self.header_keys.cut(mark.header_keys)
        self.header_values.cut(mark.header_values)

    def finish(self):
        """Everything added since the last time."""
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t header_count = self.header_keys.count
        self.begin_use()
        header_offsets = self.header_offsets.take()
        header_keys = self.header_keys.take()
        header_values = self.header_values.take()
        headers = None
        if header_count:
            headers = Headers(header_offsets, header_keys, header_values, header_count)
        columns = Columns(
            count,
            self.offsets.take(),
            self.timestamps.take(),
            self.kinds.take(),
            self.keys.take(),
            self.values.take(),
            headers,
        )
        self.begin()
        self.busy = False
        return columns


cdef bytes valid_utf_8(const uint8_t* at, Py_ssize_t size):
    """A header's key as text may have it: undecodable bytes become replacement characters."""
    return PyUnicode_DecodeUTF8(<const char*>at, size, "replace").encode()


def decode_columns(buf, bint check_crc=True, *, int64_t from_offset=0, limit=MAX_UNCOMPRESSED_BYTES):
    """The records of all whole batches in `buf` that are no control batches."""
    cdef ColumnReader reader = ColumnReader()
    cdef View view = View(buf)
    cdef Py_ssize_t pos = 0
    cdef int64_t size
    while view.size - pos >= HEADER_SIZE:
        size = get_big_endian(view.at + pos + 8, 4) + OVERHEAD
        if size < HEADER_SIZE or size > view.size - pos:
            break
        reader.add(buf, pos, check_crc, from_offset=from_offset, limit=limit)
        pos += size
    return reader.finish()


cdef class Rows:
    """A column of bytes that is being read; IndexError where a row is not wholly in its buffers."""

    cdef View offsets
    cdef View data
    cdef View validity
    cdef Py_ssize_t first
    cdef Py_ssize_t count  # rows that offsets and validity have room for

    def __cinit__(self, column):
        offsets, data, validity, self.first = column
        self.offsets = View(offsets)
        self.data = View(b"" if data is None else data)
        self.count = self.offsets.size // <Py_ssize_t>sizeof(int32_t) - 1
        if validity is not None:
            self.validity = View(validity)
            self.count = min(self.count, 8 * self.validity.size)
        if self.first < 0:
            raise IndexError("the first row is negative")

    cdef inline Py_ssize_t get(self, Py_ssize_t row, const uint8_t** at) except -2:
        """Size of a row, ABSENT for null, and where it begins."""
        cdef int32_t bounds[2]
        if row < 0 or row >= self.count - self.first:
            raise IndexError(f"there is no row {row}")
        row += self.first
        if self.validity is not None and not self.validity.at[row >> 3] >> (row & 7) & 1:
            return ABSENT
        memcpy(bounds, self.offsets.at + row * <Py_ssize_t>sizeof(int32_t), sizeof(bounds))
        if bounds[0] < 0 or bounds[1] < bounds[0] or bounds[1] > self.data.size:
            raise IndexError(f"row {row} is not inside its column's data")
        at[0] = self.data.at + bounds[0]
        return bounds[1] - bounds[0]


def encode_columns(BatchWriter writer not None, timestamps, keys, values, rows, Py_ssize_t start=0):
    """Append rows of a table to a batch, from the `start`-th on; how many of them fitted.

    `rows` is the number of rows of the table, or which of them to take: their int32 indices.
    `timestamps` is one for all, or an int64 for each row of the table.
    """
    cdef Rows key_rows = None if keys is None else Rows(keys)
    cdef Rows value_rows = Rows(values)
    cdef View indices = None if isinstance(rows, int) else View(rows)
    cdef View times = None if isinstance(timestamps, int) else View(timestamps)
    cdef int64_t timestamp = timestamps if times is None else 0
    cdef Py_ssize_t count = rows if indices is None else indices.size // <Py_ssize_t>sizeof(int32_t)
    cdef Py_ssize_t index = start
    cdef Py_ssize_t row
    cdef int32_t listed
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef Py_ssize_t key_size = ABSENT
    cdef Py_ssize_t value_size
    if start < 0:
        raise ValueError("start is negative")
    while index < count:
        row = index
        if indices is not None:
            memcpy(&listed, indices.at + index * <Py_ssize_t>sizeof(listed), sizeof(listed))
            row = listed
        value_size = value_rows.get(row, &value)
        if key_rows is not None:
            key_size = key_rows.get(row, &key)
        if times is not None:
            if row >= times.size // <Py_ssize_t>sizeof(timestamp):
                raise IndexError(f"row {row} has no timestamp")
            memcpy(&timestamp, times.at + row * <Py_ssize_t>sizeof(timestamp), sizeof(timestamp))
        if not writer.put(timestamp, key, key_size, value, value_size, NO_HEADERS):
            break
        index += 1
    return max(index - start, 0)


def split_rows(keys, Py_ssize_t count, Py_ssize_t partitions):
    """For each partition the int32 indices of its rows by murmur2; last, those without a key."""
    cdef Rows rows = Rows(keys)
    cdef list split
    cdef Memory chosen
    cdef const uint8_t* key = NULL
    cdef Py_ssize_t size
    cdef int32_t row
    if partitions < 1 or count > INT32_MAX:
        raise ValueError(f"{count} rows cannot be split to {partitions} partitions")
    split = [Memory() for _ in range(partitions + 1)]
    for row in range(count):
        size = rows.get(row, &key)
        if size == ABSENT:
            chosen = <Memory>split[partitions]
        else:
            chosen = <Memory>split[(hash_bytes(key, size) & 0x7FFFFFFF) % partitions]
        chosen.reserve(sizeof(row))
        chosen.put_int(row)
    return [(<Memory>chosen).take() for chosen in split]


# ---------------------------------------------------------------- hashing

cdef inline uint32_t hash_bytes(const uint8_t* key, Py_ssize_t size) noexcept nogil:
    cdef uint32_t mix = 0x5BD1E995
    cdef uint32_t state = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t word
    while size >= 4:
        word = key[0] | <uint32_t>key[1] << 8 | <uint32_t>key[2] << 16 | <uint32_t>key[3] << 24
        word *= mix
        state = state * mix ^ (word ^ word >> 24) * mix
        key += 4
        size -= 4
    if size:
        if size == 3:
            state ^= <uint32_t>key[2] << 16
        if size >= 2:
            state ^= <uint32_t>key[1] << 8
        state = (state ^ key[0]) * mix
    state = (state ^ state >> 13) * mix
    return state ^ state >> 15


def murmur2(bytes key not None):
    """Java's `Utils.murmur2`: 32 bits with a sign."""
    return <int32_t>hash_bytes(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
