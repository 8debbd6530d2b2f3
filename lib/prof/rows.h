/* What the makers of rows share. */
#ifndef BMC_ROWS_H
#define BMC_ROWS_H

#include "prof/report.h"

enum { MAX_REPEAT = 64, MAX_CONTENDERS = 16 };

/* Adds shape, types, threads, processor and so on; the cache's parts where `spec` is given. */
int rows_add_setup(const struct report *report, const struct kv_spec *spec, json_t *row,
                   struct err *err) MUST_USE;

/* An integer, or null for what could not be counted (-1). */
json_t *rows_count(int64_t value);

#endif
