# Decodes batches for a consumer: bounds first, then values; tuples where objects are wanted.

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    bint broken  # a number was too long or a length out of bounds: discard what was read


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
    int64_t next_offset
    int64_t count
    int64_t size
    int attributes
    int epoch


cdef inline bint get_record(Cursor* cursor, Batch* batch, Record* record) noexcept nogil:
    """Read a record up to its headers, which `record.headers` spans; false if it is malformed."""
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


@cython.final
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


@cython.final
cdef class Area:
    """The records area of the current batch, and the position of the reader in it."""

    cdef Batch batch
    cdef Cursor cursor
    cdef View whole
    cdef object memory
    cdef bytes unpacked
    cdef Py_ssize_t checked  # `check_ahead` has verified checksums up to here

    def __cinit__(self, buf):
        self.whole = View(buf)
        self.memory = memoryview(buf)

    cdef bint follows(self, Py_ssize_t pos) noexcept nogil:
        """Whether a complete batch outside any transaction, of the epoch of the one before, is at `pos`."""
        cdef Py_ssize_t left = self.whole.size - pos
        cdef const uint8_t* at = self.whole.at + pos
        return (
            left >= HEADER_SIZE
            and at[16] == MAGIC
            and HEADER_SIZE <= get_big_endian(at + 8, 4) + OVERHEAD <= left
            and not at[22] & (CONTROL | TRANSACTIONAL)
            and <int>get_big_endian(at + 12, 4) == self.batch.epoch
        )

    cdef void check_ahead(self, Py_ssize_t pos, int64_t rows) noexcept:
        """Check the checksums of batches from `pos` on that have about `rows` records.

        Other threads may run meanwhile. It stops at a batch that does not match, which `open` refuses.
        """
        cdef const uint8_t* at
        cdef int64_t size
        cdef Py_ssize_t left = self.whole.size - pos
        cdef Py_ssize_t most = pos + MOST_AHEAD
        if not IN_HARDWARE or left < WORTH_CHECKING_AHEAD:
            return
        at = self.whole.at + pos
        with nogil:
            while left >= HEADER_SIZE and rows > 0 and pos < most:
                size = get_big_endian(at + 8, 4) + OVERHEAD
                if size < HEADER_SIZE or size > left or at[16] != MAGIC or not matches(at, size):
                    break
                rows -= max(get_big_endian(at + 57, 4), 0)
                at += size
                pos += size
                left -= size
        self.checked = pos

    cdef int open(self, Py_ssize_t pos, bint check_crc) except -1:
        """Check header and checksum of the batch at `pos`."""
        cdef const uint8_t* at
        cdef Py_ssize_t left = self.whole.size - pos
        cdef Batch* batch = &self.batch
        if pos < 0 or left < HEADER_SIZE:
            raise corrupt(f"{left} bytes hold no record batch")
        at = self.whole.at + pos
        batch.size = get_big_endian(at + 8, 4) + OVERHEAD
        if at[16] != MAGIC:
            raise unreadable_format(get_big_endian(at + 16, 1))
        if batch.size < HEADER_SIZE or batch.size > left:
            raise corrupt(f"a batch of {batch.size} bytes does not fit into {left}")
        read_header(at, batch)
        if check_crc and pos + batch.size > self.checked and not self.undamaged(pos):
            raise corrupt(f"the batch at offset {batch.base_offset} does not match its checksum")
        return 0

    cdef bint undamaged(self, Py_ssize_t pos) except -1:
        """Whether the checksum of the batch at `pos`, whose header was read, matches."""
        cdef const uint8_t* at = self.whole.at + pos
        if IN_HARDWARE:
            return matches(at, self.batch.size)
        return crc32c(self.memory[pos + CRC_START : pos + self.batch.size]) == stored_checksum(at)

    cdef int unpack(self, Py_ssize_t pos, object limit) except -1:
        """Move to the first record."""
        cdef int codec = self.batch.attributes & CODEC_MASK
        cdef Py_ssize_t size = self.batch.size - HEADER_SIZE
        self.cursor.at = self.whole.at + pos + HEADER_SIZE
        if codec:
            packed = self.memory[pos + HEADER_SIZE : pos + self.batch.size]
            self.unpacked = decompress(codec, packed, limit, limit)
            size = PyBytes_GET_SIZE(self.unpacked)
            self.cursor.at = <const uint8_t*>PyBytes_AS_STRING(self.unpacked)
        self.cursor.end = self.cursor.at + size
        self.cursor.broken = False
        return 0


cdef inline uint32_t stored_checksum(const uint8_t* header) noexcept nogil:
    return <uint32_t>get_big_endian(header + 17, 4)


cdef inline bint matches(const uint8_t* batch, int64_t size) noexcept nogil:
    """Whether a complete batch matches its checksum."""
    return crc_of(batch + CRC_START, size - CRC_START) == stored_checksum(batch)


cdef inline void read_header(const uint8_t* at, Batch* batch) noexcept nogil:
    batch.size = get_big_endian(at + 8, 4) + OVERHEAD
    batch.base_offset = get_big_endian(at, 8)
    batch.epoch = <int>get_big_endian(at + 12, 4)
    batch.attributes = <int>get_big_endian(at + 21, 2)
    batch.next_offset = after_last(at)
    batch.first_timestamp = get_big_endian(at + 27, 8)
    batch.max_timestamp = get_big_endian(at + 35, 8)
    batch.count = get_big_endian(at + 57, 4)


cdef inline int64_t after_last(const uint8_t* header) noexcept nogil:
    """The offset after a batch, clamped to 64 bits."""
    cdef int64_t base = get_big_endian(header, 8)
    cdef int64_t delta = get_big_endian(header + 23, 4)
    return INT64_MAX if base > INT64_MAX - 1 - max(delta, 0) else base + delta + 1


def read_end(buf, int64_t offset, int epoch):
    """Offset and epoch after the last complete batch in `buf`; unchanged if there is none."""
    cdef View view = View(buf)
    cdef const uint8_t* at = view.at
    cdef Py_ssize_t left = view.size
    cdef int64_t size
    while left >= HEADER_SIZE:
        size = max(get_big_endian(at + 8, 4) + OVERHEAD, HEADER_SIZE)
        if size > left or at[16] != MAGIC or after_last(at) == INT64_MAX:
            break
        offset, epoch = max(offset, after_last(at)), <int>get_big_endian(at + 12, 4)
        at += size
        left -= size
    return offset, epoch


def sound_run(
    buf,
    Py_ssize_t pos,
    Py_ssize_t stop,
    int64_t offset,
    int64_t reach,
    int epoch,
    dict sequences not None,
    bint gaps,
):
    """Position, offset, batches, records and greatest timestamp of a walk over sound batches.

    It begins at `pos` and ends at position `stop`, before a batch with the offset `reach` or a later
    one, and before everything that needs a closer look: a batch that is damaged, of another leader
    epoch, or that does not follow (with `gaps` offsets may be missing); a producer that is not in
    `sequences` or not in order. `sequences` has the epoch and the last sequence of each producer, as
    `epoch << 32 | sequence`.
    """
    cdef Area area = Area(buf)
    cdef const uint8_t* at
    cdef Py_ssize_t size = area.whole.size
    cdef int64_t base, delta, producer, sequence
    cdef int64_t batches = 0, records = 0, newest = -1, known
    while pos < stop and size - pos >= HEADER_SIZE:
        at = area.whole.at + pos
        area.batch.size = get_big_endian(at + 8, 4) + OVERHEAD
        base, delta = get_big_endian(at, 8), get_big_endian(at + 23, 4)
        if (
            at[16] != MAGIC
            or not HEADER_SIZE <= area.batch.size <= size - pos
            or not (base == offset or (gaps and base > offset))
            or delta < 0
            or base >= reach - delta
            or get_big_endian(at + 12, 4) != epoch
            or not area.undamaged(pos)
        ):
            break
        producer = get_big_endian(at + 43, 8)
        if producer >= 0:
            row = sequences.get(producer)
            sequence = get_big_endian(at + 53, 4)
            if row is None or sequence < 0:
                break
            known = row
            if known >> 32 != get_big_endian(at + 51, 2):
                break
            if not gaps and known & 0xFFFFFFFF != sequence - 1 & 0x7FFFFFFF:
                break
            sequences[producer] = known >> 32 << 32 | sequence + delta & 0x7FFFFFFF
        offset = base + delta + 1
        batches += 1
        records += get_big_endian(at + 57, 4)
        newest = max(newest, get_big_endian(at + 35, 8))
        pos += area.batch.size
    return pos, offset, batches, records, newest


def decode_batch(
    buf, Py_ssize_t pos=0, bint check_crc=True, *, bint control=False, limit=MAX_UNCOMPRESSED_BYTES
):
    """Size and records of the batch at `pos`.

    A control batch has no records to show, unless `control` asks for them. `limit` is what the
    records of a compressed batch may take. CORRUPT_MESSAGE: no whole and undamaged batch is here.
    INVALID_RECORD: its records are malformed. MESSAGE_TOO_LARGE: they are more than `limit`.
    """
    cdef Area area = Area(buf)
    cdef list rows = []
    area.open(pos, check_crc)
    if control or not area.batch.attributes & CONTROL:
        area.unpack(pos, limit)
        decode_rows(area, rows, tuple, (), INT64_MIN)
    return area.batch.size, rows


def decode_run(
    buf,
    Py_ssize_t pos,
    bint check_crc,
    type kind not None,
    tuple head not None,
    *,
    int64_t from_offset=INT64_MIN,
    Py_ssize_t wanted=1,
    limit=MAX_UNCOMPRESSED_BYTES,
):
    """Records of the batch at `pos` and of those after it, until there are `wanted` of them.

    Each is a `kind`, a class of tuples: the fields of `head`, then those that `decode_batch` gives;
    none is below `from_offset`. A run ends before a control or transactional batch, before another
    leader epoch, and before a batch that cannot be read: the first one alone raises. Returns the
    position, the offset and the epoch after the run, and the records.
    """
    cdef Area area = Area(buf)
    cdef list rows = []
    cdef Py_ssize_t before
    cdef Py_ssize_t start = pos
    cdef int64_t next_offset = from_offset
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind.__name__} is not a class of tuples")
    while pos == start or (len(rows) < wanted and area.follows(pos)):
        before = len(rows)
        if check_crc and pos >= area.checked:
            area.check_ahead(pos, wanted - before)
        try:
            area.open(pos, check_crc)
            if not area.batch.attributes & CONTROL:
                area.unpack(pos, limit)
                decode_rows(area, rows, kind, head, from_offset)
        except KafkaError:
            if pos == start:
                raise
            del rows[before:]
            break
        pos += area.batch.size
        next_offset = max(next_offset, area.batch.next_offset)
    return pos, next_offset, area.batch.epoch, rows


cdef int decode_rows(Area area, list rows, type kind, tuple head, int64_t from_offset) except -1:
    cdef Record record
    cdef int64_t index
    cdef int64_t last_timestamp = 0
    cdef object timestamp = 0
    cdef object stamped_by = 1 if area.batch.attributes & LOG_APPEND_TIME else 0
    cdef object headers
    cdef tuple row
    cdef Py_ssize_t at
    cdef Py_ssize_t first = PyTuple_GET_SIZE(head)
    for index in range(area.batch.count):
        if not get_record(&area.cursor, &area.batch, &record):
            raise malformed(index)
        headers = decode_headers(&record, index) if record.header_count else ()
        if record.offset < from_offset:
            continue
        if record.timestamp != last_timestamp:
            last_timestamp = record.timestamp
            timestamp = last_timestamp
        row = <tuple>PyType_GenericAlloc(kind, first + ROW_FIELDS)
        for at in range(first):
            give(row, at, <object>PyTuple_GET_ITEM(head, at))
        give(row, first, record.offset)
        give(row, first + 1, timestamp)
        give(row, first + 2, stamped_by)
        give(row, first + 3, field_object(record.key, record.key_size))
        give(row, first + 4, field_object(record.value, record.value_size))
        give(row, first + 5, headers)
        PyObject_GC_UnTrack(row)  # no cycle can pass through numbers, text and bytes
        rows.append(row)
    return check_end(&area.cursor)


cdef inline void give(tuple row, Py_ssize_t at, object field):
    Py_INCREF(field)
    PyTuple_SET_ITEM(row, at, field)


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
