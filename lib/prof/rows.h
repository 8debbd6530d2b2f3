/* Helpers that build JSON result rows. */
#ifndef BMC_ROWS_H
#define BMC_ROWS_H

#include "prof/report.h"

enum { MAX_REPEAT = 64, MAX_CONTENDERS = 16 };

static inline void report_progress(const struct report *report, size_t done, size_t total)
{
    if (report->progress)
        report->progress(report->arg, done, total);
}

/* Adds the settings common to all rows (shape, types, threads, CPU and so on); if `spec` is not
 * NULL, also the cache settings. */
int rows_add_setup(const struct report *report, const struct kv_spec *spec, json_t *row,
                   struct err *err) MUST_USE;

/* Adds the cache settings to a row: whether attention skipped padding (`valid`), the allocator, and
 * whether all sequences grow together. */
int rows_add_cache(const struct kv_spec *spec, bool valid, json_t *row, struct err *err) MUST_USE;

/* Adds the fields of `more` to the row and takes ownership of `more`. Both may be NULL after a
 * failed allocation, which is then reported. */
int rows_merge(json_t *row, json_t *more, struct err *err) MUST_USE;

/* Appends the finished row to `rows` if `rc` is 0; takes ownership of the row in any case. */
int rows_end(int rc, json_t *row, json_t *rows, struct err *err) MUST_USE;

/* False, with the error, if sequences of `rows` tokens exceed the policy's limit. */
bool contender_fits(const struct contender *contender, size_t rows, struct err *err);

/* Adds a row with the error of a failed measurement, and records it in report->failures. Takes
 * ownership of `what`, the fields that describe the measurement; `spec` may be NULL. */
int rows_add_failure(const struct report *report, const char *policy, const struct kv_spec *spec,
                     size_t N, json_t *what, const struct err *why, json_t *rows,
                     struct err *err) MUST_USE;

/* The value as a JSON integer; JSON null if negative (not counted). */
json_t *rows_count(int64_t value);

/* The value as a JSON number; JSON null unless `there`. */
json_t *rows_real_if(bool there, double value);

/* Adds a figure's values in n rounds to the row's field "samples", from which `compare` reads them
 * (samples.h). `first` points to the first double, the others follow `stride_bytes` apart. */
int rows_add_samples(json_t *row, const char *figure, const void *first, size_t n, size_t stride_bytes,
                     struct err *err) MUST_USE;

#endif
