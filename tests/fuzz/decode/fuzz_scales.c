/* Files of shared scales: every range is finite and in order, and a file that is written again has the same ranges. The first
 * byte picks the shape: of one size, with layers of another size, or of latent attention. */
#include <math.h>
#include <stdlib.h>

#include "kv/kv_scales.h"
#include "tests/fuzz/support/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct hash model_id = {{0xab}};

static void check_ranges(const struct kv_scales *scales, const struct kv_shape *shape)
{
    struct kv_scales again;
    struct buf text = {0};
    struct err err;
    for (size_t i = 0; i < scales->n; i++)
        if (!(scales->range[i].low <= scales->range[i].high) ||
            !(fabsf(scales->range[i].low) <= 65504) || !(fabsf(scales->range[i].high) <= 65504))
            abort();
    if (kv_scales_format(scales, shape, &model_id, shape->layers > 1, &text, &err) < 0)
        return;
    if (kv_scales_parse(&again, text.data, text.len, "again", shape, &model_id, shape->layers > 1,
                        &err) == 0) {
        if (!hash_equal(&again.id, &scales->id))
            abort();
        kv_scales_release(&again);
    } else {
        abort();
    }
    buf_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kv_shape shapes[3];
    struct kv_scales scales;
    struct err err;
    if (!size)
        return 0;
    if (!shapes[0].layers) {
        shapes[0] = kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 2, .head_dim = 32}, 0, DTYPE_F32);
        shapes[1] = kv_shape_uniform(1, (struct kv_sizes){.kv_heads = 1, .head_dim = 32}, 0, DTYPE_F32);
        shapes[2] = kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 1, .head_dim = 32, .v_dim = 24},
                                     0, DTYPE_F32);
        for (size_t i = 0; i < 2; i++)
            if (!kv_shape_add(&shapes[1], (struct kv_sizes){.kv_heads = 3, .head_dim = 64}))
                abort();
    }
    const struct kv_shape *shape = &shapes[*data++ % ARRAY_LEN(shapes)];
    unsigned char *copy = input_copy(data, --size);
    if (copy && kv_scales_parse(&scales, (const char *)copy, size, "fuzz", shape, &model_id, false,
                                &err) == 0) {
        check_ranges(&scales, shape);
        kv_scales_release(&scales);
    }
    if (copy)
        input_free(copy, size);
    return 0;
}
