# CRC-32C by the processor's own instruction, without the GIL: a run of batches is checked in one go.
# Other processors use the `crc32c` package, batch by batch.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    #define CRC_LONG 1024
    #define CRC_SHORT 128

    /* The register after that number of zero bytes, for each value of each of its four bytes. */
    static uint32_t crc_after_long[4][256], crc_after_short[4][256];

    #define CRC_TARGET __attribute__((target("sse4.2")))

    CRC_TARGET static inline uint64_t crc_word(uint64_t state, const uint8_t *at)
    {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        return __builtin_ia32_crc32di(state, word);
    }

    static inline uint64_t crc_shifted(uint32_t table[4][256], uint64_t state)
    {
        return table[0][state & 0xff] ^ table[1][state >> 8 & 0xff]
            ^ table[2][state >> 16 & 0xff] ^ table[3][state >> 24 & 0xff];
    }

    CRC_TARGET static void crc_fill(uint32_t table[4][256], int zeros)
    {
        const uint8_t nothing[8] = {0};
        for (int byte = 0; byte < 4; byte++) {
            for (int bit = 0; bit < 8; bit++) {
                uint64_t state = (uint64_t)1 << (8 * byte + bit);
                for (int done = 0; done < zeros; done += 8)
                    state = crc_word(state, nothing);
                table[byte][1 << bit] = (uint32_t)state;
            }
            for (int value = 1; value < 256; value++)
                table[byte][value] = table[byte][value & -value] ^ table[byte][value & (value - 1)];
        }
    }

    /* Three streams at once keep the unit busy: an instruction takes three cycles, and one may
       begin in each cycle. */
    CRC_TARGET static inline uint64_t crc_three(
        uint64_t first, const uint8_t *at, int each, uint32_t table[4][256])
    {
        uint64_t second = 0, third = 0;
        for (int done = 0; done < each; done += 8) {
            first = crc_word(first, at + done);
            second = crc_word(second, at + each + done);
            third = crc_word(third, at + 2 * each + done);
        }
        return crc_shifted(table, crc_shifted(table, first) ^ second) ^ third;
    }

    CRC_TARGET static uint32_t crc_of(const uint8_t *at, Py_ssize_t left)
    {
        uint64_t state = 0xffffffff;
        for (; left >= 3 * CRC_LONG; at += 3 * CRC_LONG, left -= 3 * CRC_LONG)
            state = crc_three(state, at, CRC_LONG, crc_after_long);
        for (; left >= 3 * CRC_SHORT; at += 3 * CRC_SHORT, left -= 3 * CRC_SHORT)
            state = crc_three(state, at, CRC_SHORT, crc_after_short);
        for (; left >= 8; at += 8, left -= 8)
            state = crc_word(state, at);
        for (; left > 0; at++, left--)
            state = __builtin_ia32_crc32qi((uint32_t)state, *at);
        return (uint32_t)state ^ 0xffffffff;
    }

    static int crc_begin(void)
    {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("sse4.2"))
            return 0;
        crc_fill(crc_after_long, CRC_LONG);
        crc_fill(crc_after_short, CRC_SHORT);
        return 1;
    }

    #else
    static int crc_begin(void) { return 0; }
    static uint32_t crc_of(const uint8_t *at, Py_ssize_t left) { return 0; }
    #endif
    """
    bint crc_begin() noexcept
    uint32_t crc_of(const uint8_t* at, Py_ssize_t size) noexcept nogil

cdef bint IN_HARDWARE = crc_begin()
