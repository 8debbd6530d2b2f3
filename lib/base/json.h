/* Helpers for jansson: parsing with error messages, typed look-ups, and writing that reports
 * allocation failures. */
#pragma once

#include <jansson.h>

#include "base/mem.h"

/* Parses `size` bytes of JSON; `source` names the source in errors. The caller releases *root. If any
 * integer exceeds 64 bits, all numbers become reals. */
int json_parse(const char *text, size_t size, const char *source, json_t **root,
               struct err *err) MUST_USE;

/* Like json_parse(), but infinite numbers, as Python writes them, become null. */
int json_parse_python(const char *text, size_t size, const char *source, json_t **root,
                      struct err *err) MUST_USE;

/* Like json_parse(), but rejects objects in which two members have the same name. */
int json_parse_unique(const char *text, size_t size, const char *source, json_t **root,
                      struct err *err) MUST_USE;

/* A further flag of json_load(): refuses texts of more than JSON_MOST_VALUES values, besides ids: small whole
 * numbers, which long lists share. For texts that programs read from others. */
enum { JSON_FEW_VALUES = 1 << 16, JSON_MOST_VALUES = 1 << 21 };

/* Parses JSON as json_loadb() does, with its flags and error codes, but reports every failure of an
 * allocation. */
json_t *json_load(const char *text, size_t size, size_t flags, json_error_t *why) MUST_USE;

/* The value at a dotted path of keys and indices of lists ("rope_scaling.factor", "limit.0"), borrowed; or
 * NULL. */
const json_t *json_at(const json_t *root, const char *path);

/* A JSON string from any bytes: invalid UTF-8 becomes U+FFFD. NULL: out of memory. */
json_t *json_text(const char *bytes, size_t len) MUST_USE;

/* A whole number; a string of its digits if it exceeds jansson's integers, which are signed. */
json_t *json_whole(uint64_t number) MUST_USE;

/* A list of the shortest decimal numbers that read back as the same floats. NULL: out of memory. */
json_t *json_floats(const float *value, size_t n) MUST_USE;

/* Set a member of an object, or append to a list; both take over the caller's reference to `value`.
 * A NULL `value`, from a constructor that ran out of memory, is reported as an error. */
int json_put(json_t *object, const char *key, json_t *value, struct err *err) MUST_USE;
int json_push(json_t *list, json_t *value, struct err *err) MUST_USE;

/* Finishes a JSON value that was built with the result `rc`: returns the value if `rc` is 0, else
 * releases it and returns NULL. A NULL `value` is reported as an error. */
json_t *json_or_null(json_t *value, int rc, struct err *err);

/* Appends a value to `out` as JSON text, with jansson's `flags`. Fails when out of memory, where
 * json_dumps() silently omits members. */
int json_append(const json_t *value, size_t flags, struct buf *out, struct err *err) MUST_USE;

/* For AUTO(): releases a local reference, or nothing if it is NULL. */
static inline void json_auto(json_t **value) { json_decref(*value); }

/* The type of a value for error messages: "null", "an object", "a string" ... */
const char *json_type_name(const json_t *value);
