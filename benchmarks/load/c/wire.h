/* The few pieces of the Kafka wire format that the reference server and the generator both touch:
 * big-endian numbers, strings and counts in both encodings, and the header of a record batch.
 *
 * A cursor never reads past its end: it turns `bad`, answers zeros, and the caller looks once.
 */
#ifndef HEADWATER_BENCH_WIRE_H
#define HEADWATER_BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { API_PRODUCE = 0, API_FETCH = 1 };
enum { PRODUCE_FLEXIBLE = 9, PRODUCE_BY_ID = 13, FETCH_FLEXIBLE = 12, FETCH_BY_ID = 13 };

/* Positions inside a record batch of magic 2. */
enum {
    BATCH_LENGTH = 8,
    BATCH_CRC = 17,
    BATCH_CRC_START = 21,
    BATCH_LAST_DELTA = 23,
    BATCH_SEQUENCE = 53,
    BATCH_HEADER = 61,
    BATCH_OVERHEAD = 12
};

static inline uint64_t load_be(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | p[i];
    return value;
}

static inline void store_be(uint8_t *p, uint64_t value, int bytes)
{
    while (bytes--) {
        p[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

struct cursor {
    uint8_t *p, *end;
    bool bad;
};

static inline uint8_t *take(struct cursor *c, size_t n)
{
    static uint8_t nothing[16];
    if (c->bad || n > (size_t)(c->end - c->p)) {
        c->bad = true;
        return nothing;
    }
    uint8_t *start = c->p;
    c->p += n;
    return start;
}

static inline void skip(struct cursor *c, size_t n)
{
    if (c->bad || n > (size_t)(c->end - c->p))
        c->bad = true;
    else
        c->p += n;
}

static inline int16_t get16(struct cursor *c) { return (int16_t)load_be(take(c, 2), 2); }
static inline int32_t get32(struct cursor *c) { return (int32_t)load_be(take(c, 4), 4); }
static inline int64_t get64(struct cursor *c) { return (int64_t)load_be(take(c, 8), 8); }

static inline uint32_t get_uvarint(struct cursor *c)
{
    uint32_t value = 0;
    for (int bits = 0; bits < 35; bits += 7) {
        uint8_t byte = *take(c, 1);
        value |= (uint32_t)(byte & 127) << bits;
        if (byte < 128)
            return value;
    }
    c->bad = true;
    return 0;
}

/* A count or length; -1 stands for null in both encodings. */
static inline int32_t get_count(struct cursor *c, bool flexible)
{
    return flexible ? (int32_t)get_uvarint(c) - 1 : get32(c);
}

static inline void skip_string(struct cursor *c, bool flexible)
{
    int32_t n = flexible ? (int32_t)get_uvarint(c) - 1 : get16(c);
    if (n > 0)
        skip(c, (size_t)n);
}

static inline void skip_tags(struct cursor *c, bool flexible)
{
    if (!flexible)
        return;
    for (uint32_t left = get_uvarint(c); left && !c->bad; left--) {
        get_uvarint(c);
        skip(c, get_uvarint(c));
    }
}

/* A topic appears in requests and responses by name, or by id from version 13 on. */
static inline void skip_topic(struct cursor *c, bool flexible, bool by_id)
{
    if (by_id)
        skip(c, 16);
    else
        skip_string(c, flexible);
}

#endif
