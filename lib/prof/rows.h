/* What the makers of rows share. */
#ifndef BMC_ROWS_H
#define BMC_ROWS_H

#include "prof/report.h"

enum { MAX_REPEAT = 64, MAX_CONTENDERS = 16 };

/* Adds shape, types, threads, processor and so on; the cache's parts where `spec` is given. */
int rows_add_setup(const struct report *report, const struct kv_spec *spec, json_t *row,
                   struct err *err) MUST_USE;

/* Adds how the cache was attended to, allocated and grown; `valid`: attention multiplied only the KV entries that hold
 * tokens. */
int rows_add_cache(const struct kv_spec *spec, bool valid, json_t *row, struct err *err) MUST_USE;

/* Adds all members of `more`, which is taken over. Both may be NULL, when memory was short: then the error says so. */
int rows_merge(json_t *row, json_t *more, struct err *err) MUST_USE;

/* False, with a sentence, when sequences of so many tokens are too long for it. */
bool contender_fits(const struct contender *contender, size_t rows, struct err *err);

/* Adds the row of what could not be measured, with its error, and notes it in report->failures. `what` says what was to be
 * measured and is taken over; `spec` may be NULL. */
int rows_add_failure(const struct report *report, const char *policy, const struct kv_spec *spec,
                     size_t N, json_t *what, const struct err *why, json_t *rows,
                     struct err *err) MUST_USE;

/* An integer, or null for what could not be counted (-1). */
json_t *rows_count(int64_t value);

/* A number, or null where there is none. */
json_t *rows_real_if(bool there, double value);

/* Adds a figure's rounds to the row's member "samples", which is made with the first one. Compared are these: see
 * samples.h. The n values are doubles, `stride_bytes` apart. */
int rows_add_samples(json_t *row, const char *figure, const void *first, size_t n, size_t stride_bytes,
                     struct err *err) MUST_USE;

#endif
