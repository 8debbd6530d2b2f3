/* Names of element types, and conversions. */
#include "base/few_bits.h"
#include "base/few_rows.h"

const char *const dtype_names[DTYPE_COUNT + 1] = {
    [DTYPE_F32] = "f32", [DTYPE_BF16] = "bf16", [DTYPE_F16] = "f16", [DTYPE_Q8] = "q8",
    [DTYPE_Q8C] = "q8c", [DTYPE_Q4] = "q4",     [DTYPE_Q4S] = "q4s", [DTYPE_Q4K] = "q4k",
    [DTYPE_Q6K] = "q6k", [DTYPE_Q8K] = "q8k",
};

size_t dtype_row_bytes(enum dtype type, size_t n)
{
    return dtype_few_bits(type) ? few_plane_at(type, n, FEW_PLANES) : n * dtype_size(type);
}

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
    case DTYPE_FEW_BITS:
        if (!few_rows_widen(to, type, from, n))
            few_widen(to, type, from, n);
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
    case DTYPE_FEW_BITS:
        if (!few_rows_narrow(to, type, from, n))
            few_narrow(to, type, from, n);
        break;
    case DTYPE_COUNT: break;
    }
}

/* Elements of `exponent` that are all ones in any of the bytes; `lowest` is their last bit, which then carries into the
 * sign. Eight bytes at a time, however many elements they are. */
static bool any_full(const unsigned char *from, size_t bytes, uint64_t exponent, uint64_t lowest)
{
    const uint64_t sign = exponent + lowest;
    uint64_t full = 0, word;
    size_t at = 0;
    for (; bytes - at >= sizeof word; at += sizeof word) {
        memcpy(&word, from + at, sizeof word);
        full |= (word & exponent) + lowest;
    }
    word = 0;
    memcpy(&word, from + at, bytes - at);
    full |= (word & exponent) + lowest;
    return full & sign;
}

bool dtype_finite(enum dtype type, const void *from, size_t n)
{
    switch (type) {
    case DTYPE_F32: return !any_full(from, 4 * n, 0x7f8000007f800000, 0x0080000000800000);
    case DTYPE_BF16: return !any_full(from, 2 * n, 0x7f807f807f807f80, 0x0080008000800080);
    case DTYPE_F16: return !any_full(from, 2 * n, 0x7c007c007c007c00, 0x0400040004000400);
    case DTYPE_FEW_BITS: return few_finite(type, from, n);
    case DTYPE_COUNT: break;
    }
    return false;
}
