# Encodes batches of a producer, record by record, into memory that grows.

@cython.final
cdef class BatchWriter:
    """One batch that is being filled; not safe for concurrent use.

    `size` is exact: what the batch takes uncompressed, with its header. After `finish` nothing fits
    any more; `finish` itself may be called again, for the same records under another identity. The
    first uncompressed batch it returns is the writer's own memory, so a later call copies it.
    """

    def __cinit__(self, size_limit):
        self.limit = min(size_limit, INT32_MAX)
        self.size = HEADER_SIZE
        self.capacity = FIRST_CAPACITY
        self.memory = PyByteArray_FromStringAndSize(NULL, FIRST_CAPACITY)

    def append(self, timestamp, key, value, headers=()):
        """The index of the record in the batch, or -1 if it does not fit; the first always fits."""
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
        """Append values without keys from `values[start]` on; return how many fit.

        An item that is not a value ends it like a full batch; as the first item it is refused with
        TypeError.
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

    cdef bint put(
        self,
        int64_t timestamp,
        const uint8_t* key,
        Py_ssize_t key_size,
        const uint8_t* value,
        Py_ssize_t value_size,
        bytes headers,
    ) except -1:
        """Encode one record at the end; false if the batch has no room for it."""
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
            return complete_batch(
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
        if IN_HARDWARE:
            put_big_endian(at + CRC_START - 4, crc_of(at + CRC_START, self.size - CRC_START), 4)
        else:
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
