/* Reads bytes of untrusted files: every length is compared with the bytes that are left. */
#pragma once

#include "base/err.h"

struct reader {
    const char *name; /* of the file, for errors */
    const unsigned char *begin, *at, *end;
};

static inline struct reader reader_of(const void *data, size_t size, const char *name)
{
    const unsigned char *begin = data;
    return (struct reader){name, begin, begin, begin + size};
}

static inline size_t reader_left(const struct reader *r) { return (size_t)(r->end - r->at); }
static inline size_t reader_offset(const struct reader *r) { return (size_t)(r->at - r->begin); }

/* A little-endian number of at most 8 bytes, which are there. */
static inline uint64_t load_number(const unsigned char *at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t)at[i] << 8 * i;
    return number;
}

/* Fails since the file ends within `part`. */
static inline int reader_cut_off(const struct reader *r, const char *part, struct err *err)
{
    return err_set(err, "%s: ends within %s at byte %zu: truncated or damaged", r->name, part,
                   (size_t)(r->end - r->begin));
}

/* Read `count` bytes; a number of `bytes` bytes; both fail if the file ends within `part`. */
static inline int reader_bytes(struct reader *r, uint64_t count, const unsigned char **at,
                               const char *part, struct err *err)
{
    if (count > reader_left(r))
        return reader_cut_off(r, part, err);
    *at = r->at;
    r->at += count;
    return 0;
}

static inline int reader_number(struct reader *r, size_t bytes, uint64_t *number, const char *part,
                                struct err *err)
{
    const unsigned char *at;
    if (reader_bytes(r, bytes, &at, part, err) < 0)
        return -1;
    *number = load_number(at, bytes);
    return 0;
}
