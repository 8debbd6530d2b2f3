/* model.bmc: a mapped file with a model's configuration, tokenizer and weights, specified by
 * bmc-model(5). This module handles sections, tensors and hashes; lib/model interprets them. */
#ifndef BMC_BMCFILE_H
#define BMC_BMCFILE_H

#include "quant/dtype.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

enum {
    BMC_VERSION = 5,
    BMC_ALIGN = 4096, /* alignment of tensor data */
    BMC_MAX_DIMS = 4
};

/* Tensor table entry, 192 bytes, little-endian. */
struct bmc_tensor {
    uint32_t dtype, layout;
    uint32_t n_dims;
    /* ggml type number if transcoded from a quantised GGUF type; else 0 */
    uint32_t source;
    /* logical shape, slowest dimension first; unused dimensions are 1 */
    uint64_t shape[BMC_MAX_DIMS];
    uint64_t padded[BMC_MAX_DIMS]; /* stored shape, with padding */
    uint64_t offset, bytes;        /* data; offset is a multiple of BMC_ALIGN */
    uint64_t scale_offset, scale_bytes;
    uint64_t spare[2];
    struct hash stored;    /* of the stored data (base/hash_blocks.h) */
    struct hash canonical; /* BLAKE2b-256 of the elements in row-major order without padding */
};

/* A tensor name. Tied weights are one tensor with two names. */
struct bmc_name {
    uint32_t tensor; /* index into the table */
    uint32_t text;   /* offset into the string bytes */
    uint32_t len;
    uint32_t reserved;
};

struct bmc_file {
    struct file_map map;
    const char *config; /* "key value" text */
    size_t config_bytes;
    const unsigned char *tokenizer;
    size_t tokenizer_bytes;
    const char *chat; /* chat template as "key value" text; empty: none */
    size_t chat_bytes;
    const struct bmc_tensor *tensor;
    size_t n_tensors;
    const struct bmc_name *name; /* sorted by text */
    size_t n_names;
    const char *text;
    size_t header_bytes;
    struct hash file_id;  /* hash of the header */
    struct hash model_id; /* hash of configuration, tokenizer and canonical tensor contents */
};

/* Validates the header of a file of `size` bytes called `name`: version, hash, sections, and that
 * tensors are aligned, disjoint, inside the file and as large as their shapes imply. Does not read
 * tensor data. Borrows `data`. */
int bmc_file_parse(struct bmc_file *file, const void *data, size_t size, const char *name,
                   struct err *err) MUST_USE;
int bmc_file_open(struct bmc_file *file, const char *path, struct err *err) MUST_USE;
void bmc_file_release(struct bmc_file *file);

/* Called with the bytes hashed so far and the total; may be NULL. */
typedef void bmc_progress(void *arg, size_t done, size_t total);

/* Verifies the stored and canonical hash of every tensor, the padding, and model_id,
 * multi-threaded; the error names the first damaged tensor. */
int bmc_file_verify(const struct bmc_file *file, const char *path, bmc_progress *progress, void *arg,
                    struct err *err) MUST_USE;

const struct bmc_tensor *bmc_file_find(const struct bmc_file *file, const char *name);

/* ---- writing ---- */

/* A tensor to write. `produce` fills `bytes` with rows [first_row, first_row + rows) of tensor
 * `index`, in row-major order whatever the layout; called in ascending order once per block of
 * rows, twice if the output is not seekable. */
struct bmc_plan_tensor {
    const char *name;
    int tied_to; /* index of the tensor that this one aliases, or -1 */
    enum dtype dtype;
    enum layout layout; /* LAYOUT_PACKED needs 2 dimensions */
    size_t n_dims;
    size_t shape[BMC_MAX_DIMS];
    uint32_t source; /* as in struct bmc_tensor */
};

struct bmc_plan {
    const char *config;
    size_t config_bytes;
    const void *tokenizer;
    size_t tokenizer_bytes;
    const char *chat; /* may be NULL */
    size_t chat_bytes;
    const struct bmc_plan_tensor *tensor;
    size_t n_tensors;
    int (*produce)(void *arg, size_t index, size_t first_row, size_t rows, void *bytes,
                   struct err *err);
    bmc_progress *progress; /* bytes written; may be NULL */
    void *arg;
};

/* Writes the file atomically: on error nothing is left behind. *model_id receives its model_id. */
int bmc_file_write(const struct bmc_plan *plan, const char *path, struct hash *model_id,
                   struct err *err) MUST_USE;

#endif
