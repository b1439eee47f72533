# The hash of keys, Java's murmur2: for the codec and the fast path of `send`.

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
