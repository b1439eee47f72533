/* CRC-32C as Kafka's batches use it: the SSE4.2 instruction where the CPU has it, a table elsewhere.
 *
 * The register after n more zero bytes is a linear function of the register before them, so it can be
 * tabulated once per n (struct shift). Two things need that table:
 *   - the instruction has a latency of three cycles and a throughput of one, so three lanes run side
 *     by side and their registers are joined by shifting; the reference server must not lose to the
 *     crc32c package of the Python broker, which does the same;
 *   - a generator that moves the sequence number of a batch of 1 MiB wants the new CRC without
 *     reading that MiB again: the CRC changes by the shifted difference of the four bytes.
 */
#ifndef HEADWATER_BENCH_CRC32C_H
#define HEADWATER_BENCH_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define CRC_LANE 1024
#define CRC_POLYNOMIAL 0x82f63b78u

struct shift {
    uint32_t by_byte[4][256];
};

static uint32_t crc_table[256];
static struct shift crc_lane_shift;

static inline uint32_t shifted(const struct shift *s, uint32_t reg)
{
    return s->by_byte[0][reg & 255] ^ s->by_byte[1][reg >> 8 & 255] ^
           s->by_byte[2][reg >> 16 & 255] ^ s->by_byte[3][reg >> 24];
}

static uint32_t crc_absorb_table(uint32_t reg, const uint8_t *p, size_t n)
{
    while (n--)
        reg = crc_table[(reg ^ *p++) & 255] ^ reg >> 8;
    return reg;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_absorb_hardware(uint32_t reg, const uint8_t *p,
                                                                      size_t n)
{
    uint64_t word[3], lane[3] = {reg, 0, 0};
    for (; n >= 3 * CRC_LANE; p += 3 * CRC_LANE, n -= 3 * CRC_LANE) {
        lane[1] = lane[2] = 0;
        for (size_t i = 0; i < CRC_LANE; i += 8) {
            memcpy(&word[0], p + i, 8);
            memcpy(&word[1], p + i + CRC_LANE, 8);
            memcpy(&word[2], p + i + 2 * CRC_LANE, 8);
            lane[0] = _mm_crc32_u64(lane[0], word[0]);
            lane[1] = _mm_crc32_u64(lane[1], word[1]);
            lane[2] = _mm_crc32_u64(lane[2], word[2]);
        }
        uint32_t joined = shifted(&crc_lane_shift, (uint32_t)lane[0]) ^ (uint32_t)lane[1];
        lane[0] = shifted(&crc_lane_shift, joined) ^ (uint32_t)lane[2];
    }
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word[0], p, 8);
        lane[0] = _mm_crc32_u64(lane[0], word[0]);
    }
    reg = (uint32_t)lane[0];
    while (n--)
        reg = _mm_crc32_u8(reg, *p++);
    return reg;
}
#endif

static uint32_t (*crc_absorb)(uint32_t reg, const uint8_t *p, size_t n) = crc_absorb_table;

static void shift_make(struct shift *s, size_t zero_bytes)
{
    static const uint8_t zeros[CRC_LANE];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t reg = 1u << bit;
        for (size_t left = zero_bytes; left;) {
            size_t n = left < sizeof zeros ? left : sizeof zeros;
            reg = crc_absorb(reg, zeros, n);
            left -= n;
        }
        s->by_byte[bit / 8][1 << bit % 8] = reg;
    }
    for (int byte = 0; byte < 4; byte++) {
        s->by_byte[byte][0] = 0;
        for (int value = 1; value < 256; value++) {
            int lowest = value & -value;
            if (value != lowest)
                s->by_byte[byte][value] =
                    s->by_byte[byte][value ^ lowest] ^ s->by_byte[byte][lowest];
        }
    }
}

/* Call once before anything else here. */
static void crc_start(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t reg = i;
        for (int bit = 0; bit < 8; bit++)
            reg = reg & 1 ? reg >> 1 ^ CRC_POLYNOMIAL : reg >> 1;
        crc_table[i] = reg;
    }
    shift_make(&crc_lane_shift, CRC_LANE);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        crc_absorb = crc_absorb_hardware;
#endif
}

static inline uint32_t crc32c(const uint8_t *p, size_t n)
{
    return ~crc_absorb(~0u, p, n);
}

#endif
