/* model.bmc: one mapped file with a model's configuration, tokenizer and weights. bmc-model(5)
 * describes it byte by byte. This file knows sections, tensors and hashes; what a tensor means is the
 * model room's business. */
#ifndef BMC_BMCFILE_H
#define BMC_BMCFILE_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

enum {
    BMC_VERSION = 5,
    BMC_ALIGN = 4096, /* tensor data */
    BMC_MAX_DIMS = 4
};

/* One tensor as the table stores it, 192 bytes, little-endian. */
struct bmc_tensor {
    uint32_t dtype, layout;
    uint32_t n_dims;
    uint32_t
        source; /* number in GGUF files of the few-bit type that was taken over; 0: there was none */
    uint64_t shape[BMC_MAX_DIMS];  /* logical, slowest first; unused ones are 1 */
    uint64_t padded[BMC_MAX_DIMS]; /* as stored */
    uint64_t offset, bytes;        /* of the data; offset is a multiple of BMC_ALIGN */
    uint64_t scale_offset, scale_bytes;
    uint64_t spare[2];
    struct hash stored;    /* of the data as stored, see base/hash_pieces.h */
    struct hash canonical; /* BLAKE2b-256 of the same elements in row-major order without padding */
};

/* A name of a tensor. Tied weights are one tensor with two names. */
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
    const char *chat; /* the chat format, "key value" text; no bytes: there is none */
    size_t chat_bytes;
    const struct bmc_tensor *tensor;
    size_t n_tensors;
    const struct bmc_name *name; /* sorted by text */
    size_t n_names;
    const char *text;
    size_t header_bytes;
    struct hash file_id;  /* of the header */
    struct hash model_id; /* of configuration, tokenizer and canonical tensors */
};

/* Checks the header of `size` bytes of a file called `name`: version, hash, sections, tensors inside
 * the file, aligned, disjoint, of the size that their shape needs. Tensor bytes are not read. */
int bmc_file_parse(struct bmc_file *file, const void *data, size_t size, const char *name,
                   struct err *err) MUST_USE;
int bmc_file_open(struct bmc_file *file, const char *path, struct err *err) MUST_USE;
void bmc_file_release(struct bmc_file *file);

/* Called with the bytes hashed so far and in all; may be NULL. */
typedef void bmc_progress(void *arg, size_t done, size_t total);

/* Hashes every tensor's bytes, as stored and as meant, on all threads, and names the first damaged one; then the padding
 * and model_id. */
int bmc_file_verify(const struct bmc_file *file, const char *path, bmc_progress *progress, void *arg,
                    struct err *err) MUST_USE;

/* The tensor of that name, or NULL. */
const struct bmc_tensor *bmc_file_find(const struct bmc_file *file, const char *name);

/* ---- writing ---- */

/* What is to be written. `produce` fills `bytes` with rows [first_row, first_row + rows) of tensor `index`, one after
 * the other whatever the layout, in order; it is called once per block, or twice when the output cannot seek. */
struct bmc_plan_tensor {
    const char *name;
    int tied_to; /* index of an earlier tensor that this is another name of, or -1 */
    enum dtype dtype;
    enum layout layout; /* LAYOUT_PACKED: of 2 dimensions */
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
    bmc_progress *progress; /* may be NULL; bytes written */
    void *arg;
};

/* Writes the file. Nothing stays behind on error. `model_id` receives the new file's. */
int bmc_file_write(const struct bmc_plan *plan, const char *path, struct hash *model_id,
                   struct err *err) MUST_USE;

#endif
