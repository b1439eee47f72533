# Batches of a consumer as columns in Arrow's layout; no object is made per record.

@cython.final
cdef class Memory:
    """A buffer that grows at its end and is handed over as a bytearray.

    What was given away lately and is held by nobody any more is used again: fresh pages cost more
    than what is written into them.
    """

    cdef bytearray memory
    cdef uint8_t* at
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef list lent

    def __cinit__(self):
        self.memory = bytearray()
        self.lent = []

    cdef inline bint fits(self, Py_ssize_t more) noexcept nogil:
        return self.size + more <= self.capacity

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        """Make room for `more` bytes at the end."""
        if not self.fits(more):
            self.grow(more)
        return 0

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity
        if not self.capacity:
            self.memory = self.unused()
        capacity = max(self.size + more, 2 * self.capacity, <Py_ssize_t>len(self.memory))
        PyByteArray_Resize(self.memory, capacity)
        self.capacity = capacity
        self.at = <uint8_t*>PyByteArray_AS_STRING(self.memory)
        return 0

    cdef bytearray unused(self):
        """Memory that was returned for reuse, if any."""
        cdef Py_ssize_t index
        for index in range(len(self.lent)):
            if Py_REFCNT(PyList_GET_ITEM(self.lent, index)) == 1:
                return self.lent.pop(index)
        return bytearray()

    cdef inline void put(self, const uint8_t* data, Py_ssize_t size) noexcept nogil:
        """Append into the reserved room."""
        if size:  # no room may have been reserved for an empty value
            memcpy(self.at + self.size, data, size)
            self.size += size

    cdef inline void put_int(self, int32_t number) noexcept nogil:
        (<int32_t*>(self.at + self.size))[0] = number
        self.size += sizeof(int32_t)

    cdef inline void put_long(self, int64_t number) noexcept nogil:
        (<int64_t*>(self.at + self.size))[0] = number
        self.size += sizeof(int64_t)

    cdef bytearray take(self):
        """Hand over all bytes and start empty."""
        cdef bytearray taken = self.memory
        PyByteArray_Resize(taken, self.size)
        if self.size >= WORTH_KEEPING:
            self.lent.append(taken)
            if len(self.lent) > MOST_LENT:
                del self.lent[0]
        self.memory = bytearray()
        self.at = NULL
        self.size = self.capacity = 0
        return taken


cdef inline Py_ssize_t most_rows(Batch* batch) noexcept nogil:
    """The most records that an uncompressed batch can have."""
    return max(min(batch.count, batch.size // SMALLEST_RECORD), 0)


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


@cython.final
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

    cdef inline bint fits(self, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
        return (
            self.offsets.fits(rows * <Py_ssize_t>sizeof(int32_t))
            and self.validity.fits((self.count + rows + 7) // 8 - self.validity.size)
            and self.data.fits(size)
        )

    cdef inline int reserve(self, Py_ssize_t rows, Py_ssize_t size) except -1:
        self.offsets.reserve(rows * <Py_ssize_t>sizeof(int32_t))
        self.validity.reserve((self.count + rows + 7) // 8 - self.validity.size)
        self.data.reserve(size)
        return 0

    cdef inline void put(self, const uint8_t* at, Py_ssize_t size) noexcept nogil:
        """Append a row into the reserved room."""
        cdef Py_ssize_t byte = self.count >> 3
        cdef uint8_t bit = <uint8_t>(1 << (self.count & 7))
        if byte == self.validity.size:
            self.validity.at[byte] = 0
            self.validity.size += 1
        if size == ABSENT:
            self.nulls += 1
        else:
            self.validity.at[byte] = self.validity.at[byte] | bit
            self.data.put(at, size)
        self.offsets.put_int(<int32_t>self.data.size)
        self.count += 1

    cdef inline FieldsMark mark(self) noexcept nogil:
        return FieldsMark(self.count, self.nulls, self.data.size)

    cdef void cut(self, FieldsMark mark) noexcept nogil:
        """Return to the state at the mark."""
        cdef uint8_t* bits
        self.count = mark.count
        self.nulls = mark.nulls
        self.data.size = mark.size
        self.offsets.size = (mark.count + 1) * <Py_ssize_t>sizeof(int32_t)
        self.validity.size = (mark.count + 7) // 8
        if mark.count & 7:
            bits = self.validity.at + (mark.count >> 3)
            bits[0] = bits[0] & <uint8_t>((1 << (mark.count & 7)) - 1)

    cdef object take(self):
        validity = self.validity.take()
        column = Column(self.offsets.take(), self.data.take(), validity if self.nulls else None)
        self.begin()
        return column


@cython.final
cdef class ColumnReader:
    """Columns that grow batch by batch, from one partition or several."""

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
        return self.weight()

    cdef Py_ssize_t weight(self) noexcept nogil:
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
        """Append the records of the batch at `pos` from `from_offset` on; return its size.

        Errors as `decode_batch` has them; the columns then are as they were.
        """
        cdef Area area = Area(buf)
        area.open(pos, check_crc)
        if control or not area.batch.attributes & CONTROL:
            area.unpack(pos, limit)
            self.read(area, from_offset, INT64_MAX)
        return area.batch.size

    def add_run(
        self,
        buf,
        Py_ssize_t pos,
        bint check_crc,
        *,
        int64_t from_offset=0,
        int64_t last=INT64_MAX,
        Py_ssize_t rows=1,
        Py_ssize_t size=INT32_MAX,
        limit=MAX_UNCOMPRESSED_BYTES,
    ):
        """Append the batch at `pos` and those after it, up to `rows` or `size` in these columns.

        Records below `from_offset` and above `last` are left out. The run ends as the one of
        `decode_run` does, and returns the position, the offset and the epoch after it.
        """
        cdef Area area = Area(buf)
        cdef Py_ssize_t start = pos
        cdef Py_ssize_t plain
        cdef int64_t next_offset = from_offset
        while pos == start or (
            self.count < rows
            and self.weight() < size
            and next_offset <= last
            and area.follows(pos)
        ):
            if check_crc and pos >= area.checked:
                area.check_ahead(pos, rows - self.count)
                plain = self.read_checked(
                    area, pos, from_offset, last, rows, size, &next_offset
                )
                if plain > pos:
                    pos = plain
                    continue
            try:
                area.open(pos, check_crc)
                if not area.batch.attributes & CONTROL:
                    area.unpack(pos, limit)
                    self.read(area, from_offset, last)
            except KafkaError:
                if pos == start:
                    raise
                break
            pos += area.batch.size
            next_offset = max(next_offset, area.batch.next_offset)
        return pos, next_offset, area.batch.epoch

    cdef Py_ssize_t read_checked(
        self,
        Area area,
        Py_ssize_t pos,
        int64_t from_offset,
        int64_t last,
        Py_ssize_t rows,
        Py_ssize_t size,
        int64_t* next_offset,
    ) except -1:
        """Add batches whose checksums `check_ahead` has verified; return where they end.

        Other threads may run meanwhile. It ends before a batch that is compressed, has headers or is
        malformed: those are for `read`.
        """
        cdef bint more = pos < area.checked
        if more:
            area.batch.epoch = <int>get_big_endian(area.whole.at + pos + 12, 4)
        self.begin_use()
        try:
            while more and area.follows(pos) and self.weight() + area.checked - pos < INT32_MAX:
                read_header(area.whole.at + pos, &area.batch)
                self.reserve(most_rows(&area.batch), area.batch.size)
                with nogil:
                    more = self.read_while_it_fits(
                        area, &pos, from_offset, last, rows, size, next_offset
                    )
        finally:
            self.busy = False
        return pos

    cdef bint read_while_it_fits(
        self,
        Area area,
        Py_ssize_t* pos,
        int64_t from_offset,
        int64_t last,
        Py_ssize_t rows,
        Py_ssize_t size,
        int64_t* next_offset,
    ) noexcept nogil:
        """Add batches into the reserved room; true if only room was missing."""
        cdef Batch* batch = &area.batch
        cdef Mark mark
        while (
            pos[0] < area.checked
            and self.count < rows
            and self.weight() < size
            and next_offset[0] <= last
            and area.follows(pos[0])
        ):
            read_header(area.whole.at + pos[0], batch)
            if batch.attributes & CODEC_MASK:
                return False
            if not self.fits(most_rows(batch), batch.size):
                return True
            self.mark(&mark)
            if not self.read_plain_batch(area, pos[0], from_offset, last):
                self.cut(&mark)
                return False
            pos[0] += batch.size
            next_offset[0] = max(next_offset[0], batch.next_offset)
        return False

    cdef bint read_plain_batch(
        self, Area area, Py_ssize_t pos, int64_t from_offset, int64_t last
    ) noexcept nogil:
        """Add a whole batch without headers; false if that is not possible."""
        cdef Record record
        cdef int kind = 1 if area.batch.attributes & LOG_APPEND_TIME else 0
        cdef int64_t count = max(area.batch.count, 0)
        area.cursor.at = area.whole.at + pos + HEADER_SIZE
        area.cursor.end = area.whole.at + pos + area.batch.size
        area.cursor.broken = False
        return (
            self.read_plain(&area.cursor, &area.batch, &record, 0, kind, from_offset, last) == count
            and area.cursor.at == area.cursor.end
        )

    cdef int begin_use(self) except -1:
        """Refuse a second caller while `add` runs: the reserved room is its own."""
        if self.busy:
            raise RuntimeError("a ColumnReader is not for several threads at once")
        self.busy = True
        return 0

    cdef int read(self, Area area, int64_t from_offset, int64_t last) except -1:
        """Add all records of the area, or none."""
        cdef Mark mark
        cdef Py_ssize_t room = area.cursor.end - area.cursor.at
        if self.weight() + room > INT32_MAX:
            raise KafkaError(E.MESSAGE_TOO_LARGE, "columns cannot hold more than 2 GiB")
        self.begin_use()
        self.mark(&mark)
        try:
            self.reserve(max(min(area.batch.count, room // SMALLEST_RECORD), 0), room)
            self.read_rows(area, from_offset, last)
        except BaseException:
            self.cut(&mark)
            raise
        finally:
            self.busy = False
        return 0

    cdef int read_rows(self, Area area, int64_t from_offset, int64_t last) except -1:
        cdef Record record
        cdef int64_t index = 0
        cdef bint kept
        cdef int kind = 1 if area.batch.attributes & LOG_APPEND_TIME else 0
        while True:
            with nogil:  # other threads may run while bytes are copied
                index = self.read_plain(
                    &area.cursor, &area.batch, &record, index, kind, from_offset, last
                )
            if index < 0:
                raise malformed(~index)
            if index >= area.batch.count:
                return check_end(&area.cursor)
            kept = from_offset <= record.offset <= last
            self.read_headers(&record, index, kept)
            if kept:
                self.put(&record, kind)
            index += 1

    cdef int64_t read_plain(
        self,
        Cursor* cursor,
        Batch* batch,
        Record* record,
        int64_t index,
        int kind,
        int64_t from_offset,
        int64_t last,
    ) noexcept nogil:
        """Add records from the `index`-th on, up to one with headers; return its index.

        Not less than the number of records: there was none. Negative: the inverse of the number of
        a record that is malformed.
        """
        while index < batch.count:
            if not get_record(cursor, batch, record):
                return ~index
            if record.header_count:
                return index
            if from_offset <= record.offset <= last:
                self.put(record, kind)
            index += 1
        return index

    cdef inline void put(self, Record* record, int kind) noexcept nogil:
        """Append a record, whose headers are already added, into the reserved room."""
        cdef uint8_t stamped_by = <uint8_t>kind
        self.offsets.put_long(record.offset)
        self.timestamps.put_long(record.timestamp)
        self.kinds.put(&stamped_by, 1)
        self.keys.put(record.key, record.key_size)
        self.values.put(record.value, record.value_size)
        self.header_offsets.put_int(<int32_t>self.header_keys.count)
        self.count += 1

    cdef bint fits(self, Py_ssize_t rows, Py_ssize_t room) noexcept nogil:
        """Whether there is room for `rows` records of `room` bytes together."""
        return (
            self.offsets.fits(rows * <Py_ssize_t>sizeof(int64_t))
            and self.timestamps.fits(rows * <Py_ssize_t>sizeof(int64_t))
            and self.kinds.fits(rows)
            and self.header_offsets.fits(rows * <Py_ssize_t>sizeof(int32_t))
            and self.keys.fits(rows, room)
            and self.values.fits(rows, room)
        )

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t room) except -1:
        """Reserve room for `rows` records that take at most `room` bytes together."""
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

    cdef void mark(self, Mark* mark) noexcept nogil:
        mark.count = self.count
        mark.keys = self.keys.mark()
        mark.values = self.values.mark()
        mark.header_keys = self.header_keys.mark()
        mark.header_values = self.header_values.mark()

    cdef void cut(self, Mark* mark) noexcept nogil:
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
    """A header's key as text; undecodable bytes become replacement characters."""
    return PyUnicode_DecodeUTF8(<const char*>at, size, "replace").encode()


def decode_columns(buf, bint check_crc=True, *, int64_t from_offset=0, limit=MAX_UNCOMPRESSED_BYTES):
    """The records of all complete batches in `buf`, without control batches."""
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
