/* Conversion of KV entries of 4, 5 and 6 bits: loops that compilers vectorise. */
#include "quant/kv_entries.h"

#include <float.h>

#include "quant/quant_rows.h"

/* The largest integer of a type with these bits. */
static float largest_integer(unsigned bits)
{
    return (float)kv_entry_integer(bits, (1u << bits) - 1, 15);
}

/* The number of the level of 4 bits that is next to z, given in units of KV4_PART(). */
static inline int nearest_level(float z)
{
    static const float between[] = {210.5f, 433, 675.5f, 934.5f, 1211, 1514.5f, 1853};
    const float size = fabsf(z);
    int above = 0;
    for (size_t i = 0; i < ARRAY_LEN(between); i++)
        above += size > between[i];
    return z < 0 ? 7 - above : 8 + above;
}

/* The sum of x[KV_GROUP], which it overwrites, in one order. */
static inline float sum_lanes(float *x)
{
    for (size_t half = KV_GROUP / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

/* The level that is next to z, in units of the scale, with the multiplier m. */
static inline __attribute__((always_inline)) int level_of(unsigned bits, float z, unsigned m)
{
    const float unit = (bits == 4 ? 256.f : (float)(1 << KV_SHIFT(bits)) / 2) / (float)(m + 1);
    const float middle = (float)(1u << bits) / 2, last = (float)((1u << bits) - 1);
    const float x = z * unit, at = x + middle;
    return bits == 4 ? nearest_level(x) : (int)(at < 0 ? 0 : at > last ? last : at);
}

/* Quantises z[KV_GROUP] / scale with the multiplier m; returns the sum of squared errors, in one order. */
static inline __attribute__((always_inline)) float try_multiplier(unsigned bits, const float *z,
                                                                  unsigned m, int *q)
{
    float error[KV_GROUP];
    for (size_t i = 0; i < KV_GROUP; i++)
        q[i] = level_of(bits, z[i], m);
    for (size_t i = 0; i < KV_GROUP; i++) {
        const float e = z[i] - (float)kv_entry_integer(bits, (unsigned)q[i], m);
        error[i] = e * e;
    }
    return sum_lanes(error);
}

/* Quantises z[KV_GROUP], in units of the scale, to q; returns m. */
static inline __attribute__((always_inline)) unsigned quantize_group(unsigned bits, const float *z,
                                                                     int *q)
{
    enum { TRIES = 4 };
    float most = 0, least = FLT_MAX;
    for (size_t i = 0; i < KV_GROUP; i++)
        most = fabsf(z[i]) > most ? fabsf(z[i]) : most;
    const float wanted = ceilf(most * (16 / largest_integer(bits))) - 1;
    const int first = wanted < 0 ? 0 : wanted > 15 ? 15 : (int)wanted;
    unsigned best = 0;
    for (int m = first; m >= 0 && m > first - TRIES; m--) {
        int own[KV_GROUP];
        const float error = try_multiplier(bits, z, (unsigned)m, own);
        if (error < least) {
            least = error;
            best = (unsigned)m;
            memcpy(q, own, sizeof own);
        }
    }
    return best;
}

/* Stores the bits of block number `block`. */
static inline __attribute__((always_inline)) void
store_block(unsigned bits, unsigned char *entry, struct kv_entry_layout at, size_t block, const int *q)
{
    const size_t each = (bits - 4) * (KV_BLOCK / 8), step = each ? KV_BLOCK / (8 / (bits - 4)) : 0;
    for (size_t i = 0; i < KV_BLOCK / 2; i++)
        entry[block * (KV_BLOCK / 2) + i] =
            (unsigned char)((q[i] & 15) | (q[KV_BLOCK / 2 + i] & 15) << 4);
    for (size_t i = 0; i < each; i++) {
        int byte = 0;
        for (size_t s = 0; s < KV_BLOCK / step; s++)
            byte |= q[s * step + i] >> 4 << s * (bits - 4);
        entry[at.high + block * each + i] = (unsigned char)byte;
    }
}

static inline __attribute__((always_inline)) void quantize_entry(unsigned bits, unsigned char *entry,
                                                                 const float *x, size_t n)
{
    const struct kv_entry_layout at = kv_entry_layout(bits, n);
    float most = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        finite &= fabsf(x[i]) <= FLT_MAX;
    }
    bf16 scale = bf16_from_f32(most / largest_integer(bits));
    if (bf16_to_f32(scale) * largest_integer(bits) < most && scale < 0x7f7f)
        scale++;
    if (!finite)
        scale = 0x7fc0;
    memcpy(entry + at.scale, &scale, sizeof scale);
    const float unit = bf16_to_f32(scale), inverse = finite && isfinite(1 / unit) ? 1 / unit : 0;
    for (size_t i = 0; i < n; i += KV_BLOCK) {
        float z[KV_BLOCK] = {0};
        int q[KV_BLOCK] = {0};
        for (size_t j = 0; finite && j < size_min(KV_BLOCK, n - i); j++)
            z[j] = x[i + j] * inverse;
        const unsigned low = quantize_group(bits, z, q),
                       high = quantize_group(bits, z + KV_GROUP, q + KV_GROUP);
        entry[at.multiplier + i / KV_BLOCK] = (unsigned char)(low | high << 4);
        store_block(bits, entry, at, i / KV_BLOCK, q);
    }
}

void kv_entry_quantize(void *entry, enum dtype type, const float *x, size_t n)
{
    switch (kv_entry_bits(type)) {
    case 4: quantize_entry(4, entry, x, n); break;
    case 5: quantize_entry(5, entry, x, n); break;
    default: quantize_entry(6, entry, x, n); break;
    }
}

/* Adds the squared errors of x[n], n <= KV_GROUP, times `inverse`, rounded to integers. */
static inline __attribute__((always_inline)) void add_errors(float *error, const float *x, size_t n,
                                                             float inverse)
{
    static const float round_magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to integers */
    for (size_t i = 0; i < n; i++) {
        const float z = x[i] * inverse, e = z - ((z + round_magic) - round_magic);
        error[i] += e * e;
    }
}

/* Their sum over x[n], in one order. */
static float rounding_error(const float *x, size_t n, float inverse)
{
    float error[KV_GROUP] = {0};
    const size_t whole = n / KV_GROUP * KV_GROUP;
    for (size_t i = 0; i < whole; i += KV_GROUP)
        add_errors(error, x + i, KV_GROUP, inverse);
    add_errors(error, x + whole, n - whole, inverse);
    return sum_lanes(error);
}

void kv_entry_quantize8(void *entry, const float *x, size_t n)
{
    enum { TRIES = 8 };
    float most = 0, best = 127, least = FLT_MAX;
    for (size_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    for (size_t i = 0; i < TRIES && isfinite(127 / most); i++) {
        /* what the largest magnitude becomes, before it is rounded to 127 at most */
        const float top = 127.375f - 0.375f * (float)i;
        const float error = rounding_error(x, n, top / most) / (top * top);
        if (error < least) {
            least = error;
            best = top;
        }
    }
    const float range = most * (127 / best);
    quant_rows_quantize_range(entry, DTYPE_Q8_CHANNEL, x, n, -range, range);
}

static inline float scale_of(const unsigned char *entry, struct kv_entry_layout at)
{
    bf16 scale;
    memcpy(&scale, entry + at.scale, sizeof scale);
    return bf16_to_f32(scale);
}

/* The level of value i, and the multiplier of its group. */
static inline unsigned stored_level(unsigned bits, const unsigned char *entry,
                                    struct kv_entry_layout at, size_t i)
{
    const size_t block = i / KV_BLOCK, in = i % KV_BLOCK, each = (bits - 4) * (KV_BLOCK / 8);
    const unsigned low = entry[block * (KV_BLOCK / 2) + in % 16] >> in / 16 * 4 & 15;
    const unsigned high = each ? entry[at.high + block * each + in % each] >> in / each * (bits - 4) &
                                     ((1u << (bits - 4)) - 1)
                               : 0;
    return low | high << 4;
}

static inline unsigned stored_multiplier(const unsigned char *entry, struct kv_entry_layout at,
                                         size_t i)
{
    return entry[at.multiplier + i / KV_BLOCK] >> i % KV_BLOCK / KV_GROUP * 4 & 15;
}

void kv_entry_dequantize(float *to, enum dtype type, const void *entry, size_t n)
{
    const unsigned bits = kv_entry_bits(type);
    const struct kv_entry_layout at = kv_entry_layout(bits, n);
    const float scale = scale_of(entry, at);
    for (size_t i = 0; i < n; i++)
        to[i] = scale * (float)kv_entry_integer(bits, stored_level(bits, entry, at, i),
                                                stored_multiplier(entry, at, i));
}

/* ---- fit to queries ---- */

static inline float dot_queries(const float a[KV_FIT_QUERIES], const float b[KV_FIT_QUERIES])
{
    return (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3]);
}

static inline void add_queries(float sum[KV_FIT_QUERIES], const float query[KV_FIT_QUERIES],
                               float factor)
{
    for (size_t j = 0; j < KV_FIT_QUERIES; j++)
        sum[j] += query[j] * factor;
}

static inline __attribute__((always_inline)) void
fit_entry(unsigned bits, unsigned char *entry, const float *x, size_t n, float (*query)[KV_FIT_QUERIES])
{
    enum { SWEEPS = 2 };
    const struct kv_entry_layout at = kv_entry_layout(bits, n);
    const float unit = scale_of(entry, at), inverse = 1 / unit;
    int q[KV_FITTED];
    unsigned char m[KV_FITTED];
    float error[KV_FITTED], factor[KV_FITTED], product[KV_FIT_QUERIES] = {0}, squares = 0;
    for (size_t i = 0; i < round_up(n, KV_BLOCK); i++)
        q[i] = (int)stored_level(bits, entry, at, i);
    for (size_t i = 0; i < n; i++) {
        m[i] = (unsigned char)stored_multiplier(entry, at, i);
        error[i] = (float)kv_entry_integer(bits, (unsigned)q[i], m[i]) - x[i] * inverse;
        add_queries(product, query[i], error[i]);
        squares += dot_queries(query[i], query[i]);
    }
    if (!isfinite(inverse) || !isfinite(unit) ||
        !(squares > FLT_MIN / FLT_EPSILON && squares < FLT_MAX * FLT_EPSILON))
        return;
    const float spread = KV_FIT_SPREAD / (float)n * squares;
    for (size_t i = 0; i < n; i++)
        factor[i] = 1 / (spread + dot_queries(query[i], query[i]));
    for (size_t i = 0; i < SWEEPS * n; i++) {
        const size_t k = i < n ? i : i - n;
        const float now = (float)kv_entry_integer(bits, (unsigned)q[k], m[k]);
        q[k] = level_of(bits, now - (spread * error[k] + dot_queries(query[k], product)) * factor[k],
                        m[k]);
        const float change = (float)kv_entry_integer(bits, (unsigned)q[k], m[k]) - now;
        error[k] += change;
        add_queries(product, query[k], change);
    }
    for (size_t block = 0; block < div_up(n, KV_BLOCK); block++)
        store_block(bits, entry, at, block, q + block * KV_BLOCK);
}

void kv_entry_fit(void *entry, enum dtype type, const float *x, size_t n,
                  float (*query)[KV_FIT_QUERIES])
{
    switch (kv_entry_bits(type)) {
    case 4: fit_entry(4, entry, x, n, query); break;
    case 5: fit_entry(5, entry, x, n, query); break;
    default: fit_entry(6, entry, x, n, query); break;
    }
}

bool kv_entry_finite(enum dtype type, const void *entry, size_t n)
{
    return isfinite(scale_of(entry, kv_entry_layout(kv_entry_bits(type), n)));
}
