/* "key value" text, the format of model families, shapes, configurations in model files and tuned
 * profiles.
 *
 * One entry per line: the key ends at the first blank, the value is the rest of the line, trimmed.
 * Empty lines and lines that begin with # are skipped. Keys may be repeated; callers that expect
 * repeated keys iterate over the entries. */
#pragma once

#include "base/err.h"

struct conf_entry {
    char *key, *value;
    int line;
};

struct conf {
    char *text; /* owns the bytes that entries point to */
    char *name; /* file name or other source, for error messages */
    struct conf_entry *entry;
    size_t n_entries, cap;
};

/* Parses `size` bytes of text. `name` is the source to name in error messages; it is copied. On
 * error there is nothing to release. */
int conf_parse(struct conf *conf, const char *text, size_t size, const char *name,
               struct err *err) MUST_USE;

/* Reads and parses the file at `path`. */
int conf_open(struct conf *conf, const char *path, struct err *err) MUST_USE;
void conf_release(struct conf *conf);

/* The value on the last line that has the key, or NULL. */
const char *conf_get(const struct conf *conf, const char *key);

/* Fails if a line before `entry` has the same key, since the two might contradict each other. */
int conf_once(const struct conf *conf, const struct conf_entry *entry, struct err *err) MUST_USE;

/* The value of a key that must occur exactly once; NULL, with `err` filled, if it does not. */
const char *conf_get_once(const struct conf *conf, const char *key, struct err *err);

/* Typed look-up: the key must occur exactly once and its value be a number in [min, max]. */
int conf_get_size(const struct conf *conf, const char *key, size_t min, size_t max, size_t *value,
                  struct err *err) MUST_USE;
int conf_get_double(const struct conf *conf, const char *key, double min, double max, double *value,
                    struct err *err) MUST_USE;

/* Typed look-up: the key must occur exactly once; sets *index to its value's position in `names`,
 * which ends in NULL. */
int conf_get_choice(const struct conf *conf, const char *key, const char *const *names, int *index,
                    struct err *err) MUST_USE;
