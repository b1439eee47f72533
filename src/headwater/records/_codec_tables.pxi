# Encodes columns in Arrow's layout as records of a batch; the caller's buffers are not trusted.

cdef class Rows:
    """A column of bytes to read; IndexError if a row is not completely within its buffers."""

    cdef View offsets
    cdef View data
    cdef View validity
    cdef Py_ssize_t first
    cdef Py_ssize_t count  # rows that the offsets and validity buffers can hold

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
        """Size (ABSENT for null) and start of a row."""
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
    """Append rows of a table to a batch, from the `start`-th on; return how many fit.

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


cdef inline uint64_t mixed(uint64_t bits) noexcept nogil:
    bits = (bits ^ bits >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    bits = (bits ^ bits >> 27) * <uint64_t>0x94D049BB133111EB
    return bits ^ bits >> 31


def sum_rows(keys, values, Py_ssize_t count):
    """A 64-bit sum over the rows of a table that does not depend on their order."""
    cdef Rows key_rows = None if keys is None else Rows(keys)
    cdef Rows value_rows = Rows(values)
    cdef const uint8_t* at = NULL
    cdef Py_ssize_t size
    cdef Py_ssize_t row
    cdef uint64_t bits
    cdef uint64_t total = 0
    for row in range(count):
        bits = 1
        if key_rows is not None:
            size = key_rows.get(row, &at)
            if size != ABSENT:
                bits = mixed(2 + <uint64_t>hash_bytes(at, size))
        size = value_rows.get(row, &at)
        total += mixed(bits + (0 if size == ABSENT else 1 + <uint64_t>hash_bytes(at, size)))
    return total
