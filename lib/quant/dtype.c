/* Names of element types, and conversions. */
#include <strings.h>

#include "quant/hadamard.h"
#include "quant/kv_entries.h"
#include "quant/quant_types.h"
#include "quant/quant_rows.h"
#include "quant/quantize.h"

#define DTYPE_NAME(name, number, text, unused) [DTYPE_##name] = text,

const char *const dtype_names[DTYPE_COUNT + 1] = {
    [DTYPE_F32] = "f32", [DTYPE_BF16] = "bf16", [DTYPE_F16] = "f16", QUANT_TYPES(DTYPE_NAME, )};

/* Names that earlier versions used for these types. */
static const struct {
    const char *name;
    enum dtype type;
} aliases[] = {
    {"q8", DTYPE_Q8_0},  {"q8c", DTYPE_Q8_CHANNEL}, {"q4", DTYPE_Q4_1},   {"q4s", DTYPE_Q4_0},
    {"q4k", DTYPE_Q4_K}, {"q6k", DTYPE_Q6_K},       {"q8k", DTYPE_Q8_2L},
};

bool dtype_parse(const char *name, enum dtype *type)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        if (strcasecmp(name, dtype_names[i]) == 0) {
            *type = (enum dtype)i;
            return true;
        }
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (strcasecmp(name, aliases[i].name) == 0) {
            *type = aliases[i].type;
            return true;
        }
    return false;
}

size_t dtype_row_bytes(enum dtype type, size_t n)
{
    const unsigned bits = kv_entry_bits(type);
    if (bits)
        return kv_entry_layout(bits, n).bytes;
    return dtype_is_quantized(type) ? quant_row_scales_at(kv_type_multiplied(type), n, SCALE_KINDS)
                                    : n * dtype_size(type);
}

void dtype_to_f32(float *to, enum dtype type, const void *from, size_t n)
{
    if (kv_type_rotated(type)) {
        if (kv_entry_bits(type))
            kv_entry_dequantize(to, type, from, n);
        else
            quant_rows_dequantize(to, kv_type_multiplied(type), from, n);
        hadamard(to, n, hadamard_block(n));
        return;
    }
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
    case DTYPE_QUANTIZED:
        if (!quant_rows_dequantize(to, type, from, n))
            dequantize(to, type, from, n);
        break;
    case DTYPE_COUNT: break;
    }
}

/* Rotates queries[n_queries][n], the fifth one added to the first, and so on, and fits an entry of rotated[n] to them. */
static void fit_rotated(void *to, enum dtype type, const float *rotated, size_t n, const float *queries,
                        size_t n_queries)
{
    float own[KV_FITTED], query[KV_FITTED][KV_FIT_QUERIES] = {0};
    for (size_t j = 0; j < size_min(n_queries, KV_FIT_QUERIES); j++) {
        memcpy(own, queries + j * n, n * sizeof *own);
        for (size_t i = j + KV_FIT_QUERIES; i < n_queries; i += KV_FIT_QUERIES)
            for (size_t k = 0; k < n; k++)
                own[k] += queries[i * n + k];
        hadamard(own, n, hadamard_block(n));
        for (size_t k = 0; k < n; k++)
            query[k][j] = own[k];
    }
    kv_entry_fit(to, type, rotated, n, query);
}

/* Rotates x[n], then quantises it. */
static void from_rotated(void *to, enum dtype type, const float *x, size_t n, const float *queries,
                         size_t n_queries)
{
    float rotated[ROTATED_MOST];
    memcpy(rotated, x, n * sizeof *x);
    hadamard(rotated, n, hadamard_block(n));
    if (kv_entry_bits(type)) {
        kv_entry_quantize(to, type, rotated, n);
        if (n_queries && n <= KV_FITTED)
            fit_rotated(to, type, rotated, n, queries, n_queries);
    } else if (type == DTYPE_KV8) {
        kv_entry_quantize8(to, rotated, n);
    } else {
        quant_rows_quantize(to, kv_type_multiplied(type), rotated, n);
    }
}

void dtype_from_key(void *to, enum dtype type, const float *key, size_t n, const float *queries,
                    size_t n_queries)
{
    if (kv_type_rotated(type))
        from_rotated(to, type, key, n, queries, n_queries);
    else
        dtype_from_f32(to, type, key, n);
}

/* Compiled for several sets of instructions, as storing K and V converts every entry; integer arithmetic has the same bits
 * in all of them. */
#if defined __x86_64__ && defined __GLIBC__
#define FOR_EACH_ISA __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define FOR_EACH_ISA
#endif

FOR_EACH_ISA static void to_bf16(bf16 *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_from_f32(from[i]);
}

FOR_EACH_ISA static void to_f16(f16 *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f16_from_f32(from[i]);
}

void dtype_from_f32(void *to, enum dtype type, const float *from, size_t n)
{
    if (kv_type_rotated(type)) {
        from_rotated(to, type, from, n, NULL, 0);
        return;
    }
    switch (type) {
    case DTYPE_F32: memcpy(to, from, n * sizeof *from); break;
    case DTYPE_BF16: to_bf16(to, from, n); break;
    case DTYPE_F16: to_f16(to, from, n); break;
    case DTYPE_QUANTIZED:
        if (!quant_rows_quantize(to, type, from, n))
            quantize_nearest(to, type, from, n);
        break;
    case DTYPE_COUNT: break;
    }
}

/* True if any element is infinite or NaN, that is, if its exponent bits are all ones. In every 8
 * bytes, `exponent` masks the exponent bits of each element, and `lowest` the lowest of these:
 * adding `lowest` to an exponent of all ones carries into the sign bit. */
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
    if (kv_entry_bits(type))
        return kv_entry_finite(type, from, n);
    switch (kv_type_multiplied(type)) {
    case DTYPE_F32: return !any_full(from, 4 * n, 0x7f8000007f800000, 0x0080000000800000);
    case DTYPE_BF16: return !any_full(from, 2 * n, 0x7f807f807f807f80, 0x0080008000800080);
    case DTYPE_F16: return !any_full(from, 2 * n, 0x7c007c007c007c00, 0x0400040004000400);
    case DTYPE_QUANTIZED: return quant_finite(kv_type_multiplied(type), from, n);
    case DTYPE_COUNT: break;
    }
    return false;
}
