/* Files of costs of cache types: types that are chosen within a budget cost no more, by the file that is written again, too. */
#include <stdlib.h>

#include "kv/kv_sensitivity.h"
#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct hash model_id = {{0xab}};
    const struct kv_shape shape =
        kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 2, .head_dim = 32}, 16, DTYPE_F32);
    struct kv_sensitivity s, again;
    struct kv_types types[2];
    struct buf text = {0};
    struct err err;
    double cost;
    unsigned char *copy = input_copy(data, size);
    if (copy &&
        kv_sensitivity_parse(&s, (const char *)copy, size, "fuzz", &shape, &model_id, &err) == 0) {
        if (kv_sensitivity_choose(&s, &shape, 0.01, types, &cost, &err) < 0 || !(cost <= 0.01 + 1e-9))
            abort();
        if (kv_sensitivity_format(&s, &model_id, &text, &err) == 0) {
            if (kv_sensitivity_parse(&again, text.data, text.len, "again", &shape, &model_id, &err) < 0)
                abort();
            kv_sensitivity_release(&again);
        }
        buf_release(&text);
        kv_sensitivity_release(&s);
    }
    if (copy)
        input_free(copy, size);
    return 0;
}
