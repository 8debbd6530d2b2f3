/* One GGUF file (version 2 or 3, little-endian): key-value pairs and tensors, validated.
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * Values point into the file; only tensor names are copied. Arrays are read element by element,
 * since those of vocabularies are large. */
#pragma once

#include <sys/stat.h>

#include "base/file.h"
#include "format/source.h"
#include "base/json.h"

/* GGUF's type numbers. */
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
    const char *key; /* not zero-terminated */
    size_t key_len;
    bool is_array;
    enum gguf_type type;       /* of the value, or of the elements if it is an array */
    size_t count;              /* elements; 1 if not an array */
    const unsigned char *data; /* first element */
    size_t bytes;              /* bytes of all elements */
};

struct gguf {
    struct file_map map;
    struct stat attributes;   /* of the file */
    size_t header_bytes;      /* up to the tensor data; 0: the list of tensors was not read */
    struct gguf_value *value; /* sorted by key */
    size_t n_values;
    struct source_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    char *names; /* storage of tensor[].name */
};

/* Validates `size` bytes of a GGUF file called `name`; `data` is borrowed. The list of tensors is
 * read only if `with_tensors`. */
int gguf_parse(struct gguf *gguf, const void *data, size_t size, const char *name, bool with_tensors,
               struct err *err) MUST_USE;
void gguf_release(struct gguf *gguf);

const struct source_tensor *gguf_find(const struct gguf *gguf, const char *name);

const struct gguf_value *gguf_value(const struct gguf *gguf, const char *key);

/* Iterator over the elements of a value (NULL: no elements); gguf_next() returns false at the end.
 * Numbers are available as both `integer` (saturated) and `real`, booleans as 0 or 1. */
struct gguf_element {
    const struct gguf_value *of;
    size_t index;              /* index of the next element */
    const unsigned char *next; /* bytes of the next element */
    const char *text;          /* a string element, not zero-terminated */
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

/* The number of a key as an integer; `fallback` if it is missing or no number. */
int64_t gguf_integer(const struct gguf *gguf, const char *key, int64_t fallback);

/* All files of a GGUF model, found by any of them: NAME.gguf, or NAME-00001-of-00003.gguf etc.
 * Metadata comes from the first file. */

struct gguf_set {
    struct gguf *file;
    size_t n_files;
};

int gguf_set_open(struct gguf_set *set, const char *path, bool with_tensors, struct err *err) MUST_USE;
void gguf_set_release(struct gguf_set *set);

/* The tensor of that name in any of the files, or NULL. */
const struct source_tensor *gguf_set_find(const struct gguf_set *set, const char *name);

/* ---- values of GGUF metadata as JSON ---- */

/* The shortest decimal that rounds to this f32: 1e-05 instead of 9.99999974e-06. */
double gguf_shortest(double number);

/* The value of an element, which the caller releases; null if it is no finite number. NULL: out of
 * memory. */
json_t *gguf_json(const struct gguf_element *element);
