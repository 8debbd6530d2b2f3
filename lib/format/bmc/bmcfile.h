/* model.bmc: a mapped file with a model's configuration, tokenizer and weights, specified by
 * bmc-model(5). This module handles sections, tensors and hashes; lib/model interprets them. */
#pragma once

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
    uint64_t offset, bytes;        /* of the data in the file; offset is a multiple of BMC_ALIGN */
    uint64_t scale_offset, scale_bytes;
    uint64_t spare[2];
    struct hash stored;    /* tree hash (base/hash.h) of the data as stored */
    struct hash canonical; /* BLAKE2b-256 of the elements in row-major order without padding */
};

/* The matrices of a tensor: one, or with 3 dimensions a stack of them, one after the other and each
 * padded by itself. In a vector `in` is 1. */
struct bmc_matrices {
    size_t n, out, in;
};

static inline struct bmc_matrices bmc_matrices_of(const struct bmc_tensor *tensor)
{
    const uint64_t *shape = tensor->shape;
    return tensor->n_dims == 3
               ? (struct bmc_matrices){(size_t)shape[0], (size_t)shape[1], (size_t)shape[2]}
               : (struct bmc_matrices){1, (size_t)shape[0], (size_t)shape[1]};
}

/* A tensor name. Tied weights are one tensor with two names. */
struct bmc_name {
    uint32_t tensor; /* index into the tensor table */
    uint32_t text;   /* offset of the name in bmc_file.text */
    uint32_t len;
    uint32_t reserved;
};

struct bmc_file {
    struct file_map map;       /* the mapped file; empty if the image is in memory of others */
    const unsigned char *data; /* the image: the mapped file, or the draft head in one */
    size_t size;
    const char *config; /* configuration as lines of "key value" */
    size_t config_bytes;
    const unsigned char *tokenizer;
    size_t tokenizer_bytes;
    const char *chat; /* chat template as lines of "key value"; empty: none */
    size_t chat_bytes;
    const struct bmc_tensor *tensor;
    size_t n_tensors;
    const struct bmc_name *name; /* sorted by the bytes of the names */
    size_t n_names;
    const char *text;
    size_t header_bytes;
    size_t draft_offset; /* of the draft head's image, which ends where this one does; 0: none */
    struct hash file_id; /* hash of the header */
    /* hash of configuration, tokenizer and canonical tensor contents, the draft head's not included */
    struct hash model_id;
};

/* Validates the header of a file of `size` bytes called `name`: version, hash, sections, and that
 * tensors are aligned, disjoint, inside the file and as large as their shapes imply; of a draft head in
 * it, the same. Does not read tensor data. `data` is borrowed: *file points into it. */
int bmc_file_parse(struct bmc_file *file, const void *data, size_t size, const char *name,
                   struct err *err) MUST_USE;
int bmc_file_open(struct bmc_file *file, const char *path, struct err *err) MUST_USE;

/* Opens the draft head that a file has (draft_offset), as a file of its own that points into the first,
 * which must outlive it. `name` is used in errors. */
int bmc_file_open_draft(struct bmc_file *draft, const struct bmc_file *file, const char *name,
                        struct err *err) MUST_USE;
void bmc_file_release(struct bmc_file *file);

/* Progress callback: bytes hashed or written so far, and the total. May be NULL. */
typedef void bmc_progress(void *arg, size_t done, size_t total);

/* Verifies the stored and canonical hash of every tensor, the padding, and model_id, and those of a
 * draft head in the file, multi-threaded; the error names the first damaged tensor. */
int bmc_file_verify(const struct bmc_file *file, const char *path, bmc_progress *progress, void *arg,
                    struct err *err) MUST_USE;

const struct bmc_tensor *bmc_file_find(const struct bmc_file *file, const char *name);

/* ---- writing ---- */

/* A tensor to write; bmc_plan.produce() supplies its data. */
struct bmc_plan_tensor {
    const char *name;
    int tied_to; /* index of the tensor that this one aliases, or -1 */
    enum dtype dtype;
    enum layout layout; /* LAYOUT_PACKED needs 2 dimensions, or 3 for a stack of matrices */
    size_t n_dims;
    size_t shape[BMC_MAX_DIMS];
    uint32_t source; /* ggml type number, as in struct bmc_tensor */
};

struct bmc_plan {
    const char *config;
    size_t config_bytes;
    const void *tokenizer;
    size_t tokenizer_bytes;
    const char *chat; /* chat template; may be NULL */
    size_t chat_bytes;
    const struct bmc_plan_tensor *tensor;
    size_t n_tensors;
    bool private; /* a new file is readable by the user only */
    /* Fills `bytes` with rows [first_row, first_row + rows) of tensor `index`, row-major whatever
     * its layout. The rows of a stack of matrices are numbered through, and those of a call belong to
     * one of them. Called once for each range of rows, in ascending order; twice if the output is
     * not seekable. */
    int (*produce)(void *arg, size_t index, size_t first_row, size_t rows, void *bytes,
                   struct err *err);
    bmc_progress *progress; /* called with the bytes written so far; may be NULL */
    void *arg;
    const struct bmc_plan *draft; /* draft head to store in the file; NULL: none. Its own is ignored. */
};

/* Writes a model.bmc atomically: on error no file is left behind. *model_id receives the model_id
 * in its header. */
int bmc_file_write(const struct bmc_plan *plan, const char *path, struct hash *model_id,
                   struct err *err) MUST_USE;

/* Computes the size of the file that bmc_file_write() would write; `path` is used in errors. */
int bmc_file_planned_size(const struct bmc_plan *plan, const char *path, size_t *bytes,
                          struct err *err) MUST_USE;
