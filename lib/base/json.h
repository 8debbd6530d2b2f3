/* Thin helpers over jansson: a parse whose errors are sentences, and typed look-ups that say what
 * was expected and what was found. */
#ifndef BMC_JSON_H
#define BMC_JSON_H

#include <jansson.h>

#include "base/mem.h"

/* Parses `size` bytes of JSON. `what` names the source in the error. The caller json_decref()s. Where
 * an integer is beyond 64 bits, all numbers come as reals. */
int json_parse(const char *text, size_t size, const char *what, json_t **root,
               struct err *err) MUST_USE;

/* The same, and an object with two members of one name is an error: which of them is meant, nobody knows. */
int json_parse_unique(const char *text, size_t size, const char *what, json_t **root,
                      struct err *err) MUST_USE;

/* json_loadb(), and NULL, too, with json_error_out_of_memory, where it lost a part of a string because memory was short. */
json_t *json_load_whole(const char *text, size_t size, size_t flags, json_error_t *why) MUST_USE;

/* The value at a path of keys divided by dots ("rope_scaling.factor"), or NULL. Borrowed. */
const json_t *json_at(const json_t *root, const char *path);

/* A string value of any bytes: those that are no UTF-8 become U+FFFD. NULL when memory is short. */
json_t *json_text(const char *bytes, size_t len) MUST_USE;

/* Puts a value, which is taken over, under a key, or at the end of a list. `value` may be NULL, when memory was short
 * for it: then, too, the error says so, and nothing is lost silently. */
int json_put(json_t *object, const char *key, json_t *value, struct err *err) MUST_USE;
int json_push(json_t *list, json_t *value, struct err *err) MUST_USE;

/* Appends a value as JSON text, any value with any of jansson's flags. json_dumps() leaves out what a growth of its
 * buffer had no memory for, and says nothing. */
int json_append(const json_t *value, size_t flags, struct buf *out, struct err *err) MUST_USE;

/* Name of a value's type, for error sentences: "null", "object", "string" ... */
const char *json_type_name(const json_t *value);

#endif
