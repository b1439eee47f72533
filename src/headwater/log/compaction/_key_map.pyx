# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The key map of compaction, compiled: 24 bytes a key, the contract of `pure_key_map.py`.

A slot has 16 bytes of SipHash-2-4 of the key, under a secret, and the offset plus one; 0 means free.
Slots are probed one after the other. The files may be damaged: every length is compared with the
bytes that are left before it is used.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from headwater.errors import E, KafkaError
from headwater.log.compaction.pure_key_map import KeptRecords

BYTES_PER_KEY = 24

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t after

cdef struct Fields:
    const uint8_t* key
    Py_ssize_t key_size
    int64_t value_size
    int64_t delta
    int64_t place


cdef inline uint64_t rotate(uint64_t word, int bits) noexcept nogil:
    return word << bits | word >> (64 - bits)


cdef inline uint64_t little_endian(const uint8_t* at) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, at, 8)
    return word


cdef inline void sip_rounds(uint64_t* v, int count) noexcept nogil:
    cdef int index
    for index in range(count):
        v[0] += v[1]
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] += v[3]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)


cdef void digest_of(
    const uint8_t* key, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t* out
) noexcept nogil:
    """SipHash-2-4 with a result of 128 bits."""
    cdef uint64_t v[4]
    cdef uint64_t word = <uint64_t>size << 56
    cdef Py_ssize_t left = size
    cdef int index
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573
    while left >= 8:
        v[3] ^= little_endian(key)
        sip_rounds(v, 2)
        v[0] ^= little_endian(key)
        key += 8
        left -= 8
    for index in range(<int>left):
        word |= <uint64_t>key[index] << 8 * index
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline const uint8_t* read_number(
    const uint8_t* at, const uint8_t* end, int longest, int64_t* number
) noexcept nogil:
    """Read a zigzag varint; NULL if it is longer than `longest` bytes or than what is left."""
    cdef uint64_t bits = 0
    cdef int index = 0
    while index < longest and at < end:
        bits |= <uint64_t>(at[0] & 0x7F) << 7 * index
        at += 1
        if at[-1] < 0x80:
            number[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            return at
        index += 1
    return NULL


cdef inline const uint8_t* read_fields(
    const uint8_t* at, const uint8_t* end, Fields* fields
) noexcept nogil:
    """Read a record up to the length of its value; return where it ends, NULL if it is malformed."""
    cdef int64_t size
    cdef int64_t key_size
    cdef const uint8_t* stop
    at = read_number(at, end, 5, &size)
    if at == NULL or size < 1 or size > end - at:
        return NULL
    stop = at + size
    at = read_number(at + 1, stop, 10, &fields.delta)
    if at == NULL:
        return NULL
    at = read_number(at, stop, 5, &fields.place)
    if at == NULL:
        return NULL
    at = read_number(at, stop, 5, &key_size)
    if at == NULL or key_size > stop - at:
        return NULL
    fields.key = at
    fields.key_size = <Py_ssize_t>key_size
    if key_size > 0:
        at += key_size
    if read_number(at, stop, 5, &fields.value_size) == NULL:
        return NULL
    return stop


cdef class KeyMap:
    """The last offset of each key, for one pass over a log."""

    cdef Slot* slots
    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t size
    cdef Py_ssize_t count
    cdef uint64_t k0
    cdef uint64_t k1

    def __cinit__(self, Py_ssize_t slots, double load_factor, bytes secret not None):
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        self.k0 = little_endian(<const uint8_t*>PyBytes_AS_STRING(secret))
        self.k1 = little_endian(<const uint8_t*>PyBytes_AS_STRING(secret) + 8)
        self.capacity = max(1, int(slots * load_factor))
        # One slot more than keys: a search ends at a free slot.
        self.size = max(slots, self.capacity + 1)
        self.count = 0
        self.slots = <Slot*>calloc(self.size, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.count

    cdef inline Slot* find(self, const uint8_t* key, Py_ssize_t size, uint64_t* digest) noexcept nogil:
        """Return the slot of a key, or the free one where it belongs."""
        cdef Py_ssize_t index
        cdef Slot* slot
        digest_of(key, size, self.k0, self.k1, digest)
        index = <Py_ssize_t>(digest[0] % <uint64_t>self.size)
        while True:
            slot = &self.slots[index]
            if slot.after == 0 or (slot.low == digest[0] and slot.high == digest[1]):
                return slot
            index += 1
            if index == self.size:
                index = 0

    def add_records(self, area, Py_ssize_t count, int64_t base_offset, int64_t start):
        """Note the keys of the records at and above `start`.

        Return -1, or the offset of the first record for which the map has no room.
        """
        cdef Py_buffer view
        cdef int64_t full
        PyObject_GetBuffer(area, &view, PyBUF_SIMPLE)
        try:
            full = self.add(<const uint8_t*>view.buf, view.len, count, base_offset, start)
        finally:
            PyBuffer_Release(&view)
        if full < -1:
            raise malformed()
        return full

    cdef int64_t add(
        self,
        const uint8_t* at,
        Py_ssize_t size,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t start,
    ) noexcept nogil:
        cdef const uint8_t* end = at + size
        cdef Fields fields
        cdef uint64_t digest[2]
        cdef Slot* slot
        cdef Py_ssize_t index
        for index in range(count):
            at = read_fields(at, end, &fields)
            if at == NULL:
                return -2
            if fields.key_size < 0 or base_offset + fields.place < start:
                continue
            slot = self.find(fields.key, fields.key_size, digest)
            if slot.after == 0:
                if self.count >= self.capacity:
                    return base_offset + fields.place
                self.count += 1
                slot.low = digest[0]
                slot.high = digest[1]
            slot.after = base_offset + fields.place + 1
        return -1

    def keep_records(
        self,
        area,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        int64_t last_mapped,
        bint keep_tombstones,
    ):
        """Return the records that remain: the last one of each key, and all above `last_mapped`."""
        cdef Py_buffer view
        PyObject_GetBuffer(area, &view, PyBUF_SIMPLE)
        try:
            return self.keep(
                &view, count, base_offset, base_timestamp, last_mapped, keep_tombstones
            )
        finally:
            PyBuffer_Release(&view)

    cdef object keep(
        self,
        Py_buffer* view,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        int64_t last_mapped,
        bint keep_tombstones,
    ):
        cdef const uint8_t* begin = <const uint8_t*>view.buf
        cdef const uint8_t* end = begin + view.len
        cdef const uint8_t* at = begin
        cdef const uint8_t* run = begin  # where the records begin that are kept and not copied
        cdef const uint8_t* stop
        cdef uint8_t* out = NULL
        cdef bytes copied = None
        cdef Py_ssize_t written = 0
        cdef Py_ssize_t kept = 0
        cdef Py_ssize_t tombstones = 0
        cdef int64_t newest = INT64_MIN
        cdef int64_t timestamp
        cdef Fields fields
        cdef Py_ssize_t index
        for index in range(count):
            stop = read_fields(at, end, &fields)
            if stop == NULL:
                raise malformed()
            if self.keeps(&fields, base_offset, last_mapped, keep_tombstones):
                kept += 1
                tombstones += fields.value_size < 0
                timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>fields.delta)
                if timestamp > newest:
                    newest = timestamp
            else:
                if copied is None:
                    copied = PyBytes_FromStringAndSize(NULL, view.len)
                    out = <uint8_t*>PyBytes_AS_STRING(copied)
                memcpy(out + written, run, at - run)
                written += at - run
                run = stop
            at = stop
        if copied is None:
            return KeptRecords(None, kept, tombstones, newest)
        memcpy(out + written, run, at - run)
        written += at - run
        return KeptRecords(copied[:written], kept, tombstones, newest)

    cdef inline bint keeps(
        self, Fields* fields, int64_t base_offset, int64_t last_mapped, bint keep_tombstones
    ) noexcept nogil:
        cdef uint64_t digest[2]
        cdef int64_t offset = base_offset + fields.place
        if offset > last_mapped:
            return True
        if fields.key_size < 0 or (fields.value_size < 0 and not keep_tombstones):
            return False
        return offset + 1 >= self.find(fields.key, fields.key_size, digest).after


cdef object malformed():
    return KafkaError(E.INVALID_RECORD, "a record does not end where its length says")
