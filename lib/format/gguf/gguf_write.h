/* Writes a GGUF file, version 3: key-value pairs, the list of tensors, their data. */
#pragma once

#include "base/mem.h"
#include "format/gguf/block_types.h"
#include "format/gguf/gguf.h"

/* Key-value pairs in the form of the file; empty if zero-initialised except `err`. Functions that add to them do
 * nothing after the first error, which is in *err. */
struct gguf_values {
    struct err *err;
    bool failed;
    struct buf bytes;
    size_t n;
};

void gguf_put_text(struct gguf_values *values, const char *key, const char *text, size_t len);
void gguf_put_integer(struct gguf_values *values, const char *key, enum gguf_type type, int64_t number);
void gguf_put_real(struct gguf_values *values, const char *key, double number); /* as F32 */

/* A key with an array, whose `n` elements follow. */
void gguf_put_array(struct gguf_values *values, const char *key, enum gguf_type type, size_t n);
void gguf_add_text(struct gguf_values *values, const char *text, size_t len);
void gguf_add_integer(struct gguf_values *values, enum gguf_type type, int64_t number);
void gguf_add_real(struct gguf_values *values, double number); /* F32 */

/* A copy of a pair of another file. */
void gguf_put_value(struct gguf_values *values, const struct gguf_value *value);

enum { GGUF_NAME_SIZE = 64, GGUF_DIMS = 4, GGUF_ALIGNMENT = 32 };

struct gguf_tensor {
    char name[GGUF_NAME_SIZE];
    size_t n_dims, dim[GGUF_DIMS]; /* slowest dimension first */
    const struct block_type *type;
    size_t bytes; /* set by gguf_tensor_size() */
};

/* Sets tensor->bytes; fails if rows are no whole blocks, or if the size overflows. `path` is used in errors. */
int gguf_tensor_size(struct gguf_tensor *tensor, const char *path, struct err *err) MUST_USE;

struct gguf_sink;

struct gguf_plan {
    const struct gguf_values *values;
    const struct gguf_tensor *tensor; /* [n] */
    size_t n;
    /* Passes all bytes of tensor `index` to gguf_sink_add(), in order. */
    int (*produce)(void *arg, size_t index, struct gguf_sink *sink, struct err *err);
    void (*progress)(void *arg, size_t done, size_t total); /* bytes of tensors; may be NULL */
    void *arg;
};

int gguf_sink_add(struct gguf_sink *sink, const void *bytes, size_t len, struct err *err) MUST_USE;

/* Appends everything that precedes the data of tensors; *size receives the size of the file. */
int gguf_head(const struct gguf_plan *plan, struct buf *head, size_t *size, struct err *err) MUST_USE;

/* Writes the file atomically: on error none is left behind. */
int gguf_write(const struct gguf_plan *plan, const char *path, struct err *err) MUST_USE;
