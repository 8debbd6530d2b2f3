/* Lists of retrieval heads: counts match the flags, and indices are in range. */
#include <stdlib.h>

#include "tests/fuzz/support/input.h"
#include "kv/offload/kv_streaming.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_streaming sparse;
    struct err err;
    unsigned char *copy = input_copy(data, size);
    if (copy && kv_streaming_parse(&sparse, (const char *)copy, size, "fuzz", 4, 5, &err) == 0) {
        size_t n = 0;
        for (size_t i = 0; i < 4 * 5; i++)
            n += kv_is_streaming(&sparse, i / 5, i % 5);
        if (n != sparse.n || !sparse.recent || sparse.sink + sparse.recent > (size_t)2 << 30 ||
            kv_retrieval_widest(&sparse, 5) > 5)
            abort();
        kv_streaming_release(&sparse);
    }
    if (copy)
        input_free(copy, size);
    return 0;
}
