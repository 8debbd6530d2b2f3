/* The table of element types, and conversions by it. */
#include "base/dtype.h"

const struct dtype_facts dtype_facts[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 32, 0, DTYPE_F32},
    [DTYPE_BF16] = {"bf16", 16, 0, DTYPE_F32},
    [DTYPE_F16] = {"f16", 16, 0, DTYPE_F32},
};

void dtype_widen(float *to, enum dtype type, const void *from, size_t n)
{
    switch (type) {
    case DTYPE_F32: memcpy(to, from, n * sizeof *to); break;
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(((const bf16 *)from)[i]);
        break;
    case DTYPE_F16:
        for (size_t i = 0; i < n; i++)
            to[i] = f16_to_f32(((const f16 *)from)[i]);
        break;
    case DTYPE_COUNT: break;
    }
}

void dtype_narrow(void *to, enum dtype type, const float *from, size_t n)
{
    switch (type) {
    case DTYPE_F32: memcpy(to, from, n * sizeof *from); break;
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++)
            ((bf16 *)to)[i] = bf16_from_f32(from[i]);
        break;
    case DTYPE_F16:
        for (size_t i = 0; i < n; i++)
            ((f16 *)to)[i] = f16_from_f32(from[i]);
        break;
    case DTYPE_COUNT: break;
    }
}
