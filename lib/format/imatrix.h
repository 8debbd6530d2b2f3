/* Importance matrix (imatrix): for each weight matrix, the mean square of each of its inputs
 * over a calibration text. bmc-gen --score writes the file, bmc-convert weighs quantisation
 * errors by it; bmc-convert(1) describes its use.
 *
 *    0            head, 128 bytes
 *    128          matrices: name and number of inputs, 80 bytes each
 *    then         mean squares of all matrices, f32, contiguous
 *    file_bytes   end
 *
 * Little-endian. */
#pragma once

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
    char name[IMATRIX_NAME_SIZE]; /* of the weight, as in bmc-convert --info; zero-padded */
    uint64_t n, first;            /* its mean squares: count, and index of the first */
};

struct imatrix {
    struct file_map map;
    const struct imatrix_head *head;
    const struct imatrix_record *matrix; /* [head->n_matrices] */
    const float *number;                 /* [head->n_numbers]: mean squares, finite, >= 0 */
};

/* Validates a whole imatrix file in memory. `data` is borrowed and must have the alignment of
 * mem_alloc(); `name` is used in errors. */
int imatrix_parse(struct imatrix *imatrix, const void *data, size_t size, const char *name,
                  struct err *err) MUST_USE;
int imatrix_open(struct imatrix *imatrix, const char *path, struct err *err) MUST_USE;
void imatrix_close(struct imatrix *imatrix);

/* Finds the mean squares of matrix `name`, which must have *n inputs. Returns NULL if there is no
 * such matrix (*n = 0), or it has another number of inputs, which *n receives. */
const float *imatrix_find(const struct imatrix *imatrix, const char *name, size_t *n);

struct imatrix_entry {
    const char *name;
    const float *number;
    size_t n;
};

int imatrix_write(const char *path, const struct hash *model_id, size_t tokens,
                  const struct imatrix_entry *entry, size_t n, struct err *err) MUST_USE;
