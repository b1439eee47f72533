# The number encodings of records and batch headers, and the hash of keys.

include "_codec_hash.pxi"

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


def murmur2(bytes key not None):
    """Java's `Utils.murmur2`: 32 bits with a sign."""
    return <int32_t>hash_bytes(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
