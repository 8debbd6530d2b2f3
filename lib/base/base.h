/* Common to all modules: attributes, overflow-safe sizes, and the letters used for dimensions.
 *
 * Letters, the same in code, comments and papers:
 *   B  sequences in a batch          n  KV entries (tokens) of a sequence
 *   L  layers                        N  maximum context: upper limit of n
 *   H  query heads                   cap  entries allocated for a sequence
 *   G  query heads per KV head       r  entries added by one allocation, ceil(N / T)
 *   d  size of a head                T  allocations that fill a context of N entries
 *   D  H * d
 * A pointer's name carries the indices applied to it: k_lh points to layer l, head h. */
#pragma once

#define MUST_USE               __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_LEN(a)           (sizeof(a) / sizeof((a)[0]))

/* The value of a macro as a string literal: help texts and sentences name defaults and limits by it. */
#define TEXT_OF(macro)    TEXT_OF_(macro)
#define TEXT_OF_(literal) #literal

/* The number of KV entries allocated for a sequence is a multiple of this, so that kernels process
 * whole tiles. */
enum { TILE_ROWS = 16 };

/* Checked sum and product: store the result in the last argument; return false on overflow. */
static inline bool size_add(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool size_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Saturating sum and product, for sizes that are only compared: SIZE_MAX on overflow. */
static inline size_t size_plus(size_t a, size_t b)
{
    size_t sum;
    return size_add(a, b, &sum) ? sum : SIZE_MAX;
}

static inline size_t size_times(size_t a, size_t b)
{
    size_t product;
    return size_mul(a, b, &product) ? product : SIZE_MAX;
}

static inline size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t size_max(size_t a, size_t b) { return a > b ? a : b; }

/* a / b rounded up; b > 0. */
static inline size_t div_up(size_t a, size_t b) { return a / b + (a % b != 0); }

/* a rounded up to a multiple of b; the result must not overflow. */
static inline size_t round_up(size_t a, size_t b) { return div_up(a, b) * b; }
