/* Importance matrix files: accepted ones have usable numbers inside the file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct imatrix *im)
{
    for (size_t i = 0; i < im->head->n_matrices; i++) {
        size_t n = im->matrix[i].n;
        const float *number = imatrix_find(im, im->matrix[i].name, &n);
        for (size_t k = 0; number && k < n; k++)
            if (!(number[k] >= 0) || isinf(number[k]))
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct imatrix im;
    struct err err;
    void *copy = mem_alloc(size + 1, 1); /* aligned, as a mapped file is */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (imatrix_parse(&im, copy, size, "fuzz", &err) == 0)
        walk(&im);
    free(copy);
    return 0;
}
