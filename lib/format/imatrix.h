/* Importance matrix (imatrix): for each matrix that a GEMM reads, the mean square of every input
 * column over a calibration text. bmc-gen --score writes the file, bmc-convert weighs quantisation
 * errors by it; bmc-convert(1) describes its use.
 *
 *    0            head, 128 bytes
 *    128          matrices, 80 bytes each
 *    then         their numbers, f32, contiguous
 *    file_bytes   end
 *
 * Little-endian. */
#ifndef BMC_IMATRIX_H
#define BMC_IMATRIX_H

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

#define IMATRIX_MAGIC "BMCINPSQ"

enum { IMATRIX_VERSION = 1, IMATRIX_NAME_SIZE = 64 };

struct imatrix_head {
    char magic[8];
    uint32_t version, n_matrices;
    uint64_t file_bytes, n_numbers;
    struct hash hash;     /* of the whole file with this field zeroed */
    struct hash model_id; /* the model it was collected with */
    uint64_t tokens;      /* calibration tokens, informative */
    uint64_t spare[3];
};

struct imatrix_record {
    char name[IMATRIX_NAME_SIZE]; /* as in bmc-convert --info, zero-padded */
    uint64_t n, first;            /* count, and index of the first */
};

struct imatrix {
    struct file_map map;
    const struct imatrix_head *head;
    const struct imatrix_record *matrix; /* [head->n_matrices] */
    const float *number;                 /* [head->n_numbers], finite and not negative */
};

/* Validates the whole file. `data` is borrowed and must have the alignment of mem_alloc();
 * `name` is used in errors. */
int imatrix_parse(struct imatrix *imatrix, const void *data, size_t size, const char *name,
                  struct err *err) MUST_USE;
int imatrix_open(struct imatrix *imatrix, const char *path, struct err *err) MUST_USE;
void imatrix_close(struct imatrix *imatrix);

/* The *n numbers of a matrix. NULL if there are none, or another number of them, which *n then
 * receives (0: no such matrix). */
const float *imatrix_find(const struct imatrix *imatrix, const char *name, size_t *n);

struct imatrix_entry {
    const char *name;
    const float *number;
    size_t n;
};

int imatrix_write(const char *path, const struct hash *model_id, size_t tokens,
                  const struct imatrix_entry *entry, size_t n, struct err *err) MUST_USE;

#endif
