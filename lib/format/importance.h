/* Importance of a model's inputs: for each matrix that products read, the mean square of every input over a text.
 * bmc-gen --score writes such a file, bmc-convert weighs errors by it. bmc-convert(1) says what it is for.
 *
 *   0            head, 128 bytes
 *   128          matrices, 80 bytes each
 *   then         their numbers, f32, one matrix behind the other
 *   file_bytes   end
 *
 * All is little-endian. */
#ifndef BMC_IMPORTANCE_H
#define BMC_IMPORTANCE_H

#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"

#define IMPORTANCE_MAGIC "BMCINPSQ"

enum { IMPORTANCE_VERSION = 1, IMPORTANCE_NAME = 64 };

struct importance_head {
    char magic[8];
    uint32_t version, n_matrices;
    uint64_t file_bytes, n_numbers;
    struct hash hash;     /* of the whole file, with this field zero */
    struct hash model_id; /* of the model that read the text */
    uint64_t tokens;      /* of the text: for information */
    uint64_t spare[3];
};

struct importance_matrix {
    char name[IMPORTANCE_NAME]; /* as bmc-convert --info prints it; the rest is 0 */
    uint64_t n, first;          /* numbers, and which of all is the first */
};

struct importance {
    struct file_map map;
    const struct importance_head *head;
    const struct importance_matrix *matrix; /* [head->n_matrices] */
    const float *number;                    /* [head->n_numbers], finite, not negative */
};

/* Checks everything. `data` stays the caller's and is aligned as memory from mem_alloc() is; `name` is for errors. */
int importance_parse(struct importance *importance, const void *data, size_t size, const char *name,
                     struct err *err) MUST_USE;
int importance_open(struct importance *importance, const char *path, struct err *err) MUST_USE;
void importance_close(struct importance *importance);

/* The `n` numbers of a matrix, or NULL: it has none, or as many as *n then says. */
const float *importance_find(const struct importance *importance, const char *name, size_t *n);

/* One matrix to write. */
struct importance_entry {
    const char *name;
    const float *number;
    size_t n;
};

int importance_write(const char *path, const struct hash *model_id, size_t tokens,
                     const struct importance_entry *entry, size_t n, struct err *err) MUST_USE;

#endif
