/* "key value" text: families, shapes, the configuration inside a model file, tuned profiles.
 *
 * One entry a line; the key ends at the first blank, the value runs to the end of the line without the
 * blanks around it. Empty lines and lines that begin with # are skipped. A key may occur again: readers
 * that want a list walk the entries. */
#ifndef BMC_CONF_H
#define BMC_CONF_H

#include "base/err.h"

struct conf_entry {
    char *key;
    char *value;
    int line;
};

struct conf {
    char *text; /* the entries point into it */
    char *name; /* what the text is called in error sentences */
    struct conf_entry *entry;
    size_t n_entries;
    size_t cap;
};

/* Parses `size` bytes. `name` is copied. On error nothing is left to release. */
int conf_parse(struct conf *conf, const char *text, size_t size, const char *name,
               struct err *err) MUST_USE;

/* Reads and parses a file. */
int conf_open(struct conf *conf, const char *path, struct err *err) MUST_USE;
void conf_release(struct conf *conf);

/* The last value of a key, or NULL. */
const char *conf_get(const struct conf *conf, const char *key);

/* -1 where a line before `entry` has its key: of what is said once the second line may contradict the first. */
int conf_once(const struct conf *conf, const struct conf_entry *entry, struct err *err) MUST_USE;

/* The value of a key that must be there, once; NULL with `err` filled. */
const char *conf_get_once(const struct conf *conf, const char *key, struct err *err);

/* Typed look-ups: the key must be there, once, and hold a number in [min, max]. */
int conf_get_size(const struct conf *conf, const char *key, size_t min, size_t max, size_t *value,
                  struct err *err) MUST_USE;
int conf_get_double(const struct conf *conf, const char *key, double min, double max, double *value,
                    struct err *err) MUST_USE;

/* The key's value must be one of `names` (ended by NULL); *index says which. */
int conf_get_choice(const struct conf *conf, const char *key, const char *const *names, int *index,
                    struct err *err) MUST_USE;

#endif
