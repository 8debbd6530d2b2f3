/* Lists of heads that see all rows, hostile: what is counted is what is marked, and rows stay within bounds. */
#include <stdlib.h>

#include "input.h"
#include "kv/kv_sparse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_sparse sparse;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (copy && kv_sparse_parse(&sparse, (const char *)copy, size, "fuzz", 4, 5, &err) == 0) {
        size_t n = 0;
        for (size_t i = 0; i < 4 * 5; i++)
            n += kv_sparse_has(&sparse, i / 5, i % 5);
        if (n != sparse.n || !sparse.recent || sparse.sink + sparse.recent > (size_t)2 << 30 ||
            kv_sparse_widest(&sparse, 5) > 5)
            abort();
        kv_sparse_release(&sparse);
    }
    if (copy)
        input_free(copy, size);
    return 0;
}
