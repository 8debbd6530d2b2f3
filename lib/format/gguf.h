/* One GGUF file, version 2 or 3, little-endian: its values by key and its tensors, checked. Knows nothing of models.
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * Nothing is copied but names: values point into the file. Arrays, which vocabularies make long, are read one element after
 * the other. */
#ifndef BMC_GGUF_H
#define BMC_GGUF_H

#include "base/file.h"
#include "format/source.h"

/* As in the file. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
};

struct gguf_value {
    const char *key; /* not ended by 0 */
    size_t key_len;
    bool is_array;
    enum gguf_type type;       /* of the elements */
    size_t count;              /* of them; 1 where it is no array */
    const unsigned char *data; /* of the first */
    size_t bytes;              /* of all */
};

struct gguf {
    struct file_map map;
    struct gguf_value *value; /* sorted by key */
    size_t n_values;
    struct source_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    char *names; /* of the tensors */
};

/* Checks `size` bytes of a file called `name`, which must stay; tensors only where they are asked for. */
int gguf_parse(struct gguf *gguf, const void *data, size_t size, const char *name, bool with_tensors,
               struct err *err) MUST_USE;
int gguf_open(struct gguf *gguf, const char *path, bool with_tensors, struct err *err) MUST_USE;
void gguf_release(struct gguf *gguf);

const struct source_tensor *gguf_find(const struct gguf *gguf, const char *name);

/* The value of a key, or NULL. */
const struct gguf_value *gguf_value(const struct gguf *gguf, const char *key);

/* The elements of a value, one after the other: gguf_next() is false behind the last. A number is there as both, as far
 * as it fits; a boolean as 0 or 1. */
struct gguf_element {
    const struct gguf_value *of;
    size_t index;              /* of the next */
    const unsigned char *next; /* where it is */
    const char *text;          /* strings: not ended by 0 */
    size_t len;
    int64_t integer;
    double real;
};

struct gguf_element gguf_elements(const struct gguf_value *value);
bool gguf_next(struct gguf_element *element);

static inline bool gguf_is_text(const struct gguf_value *v)
{
    return v && !v->is_array && v->type == GGUF_STRING;
}

static inline bool gguf_is_number(const struct gguf_value *v)
{
    return v && v->type != GGUF_STRING && v->type != GGUF_ARRAY;
}

/* A whole number of a key, or `fallback` where there is none. */
int64_t gguf_integer(const struct gguf *gguf, const char *key, int64_t fallback);

#endif
