/* Quantised caches: under every policy a row is quantised once and then copied as bytes; attention
 * equals a double loop over dequantised rows; sizes follow the formula. */
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "quant/cache_types.h"
#include "quant/hadamard.h"
#include "quant/kv_entries.h"
#include "quant/quant_types.h"
#include "base/threads.h"
#include "tests/unit/cache.h"
#include "kv/kv_policy.h"
#include "kv/kv_rows.h"

enum { LAYERS = 2, GROUP = 3, KV_HEADS = 2, HEADS = GROUP * KV_HEADS, MOST_D = 128, N = 150 };

static const enum dtype types[] = {DTYPE_Q8_CHANNEL, DTYPE_KV8,  DTYPE_KV6,         DTYPE_KV5,
                                   DTYPE_KV4,        DTYPE_Q4_1, DTYPE_Q4_1_ROTATED};
static const char *const specs[] = {"iterative", "upfront",     "bmc:r=16", "bmc:T=3",     "paged",
                                    "paged:32",  "reserve:r=5", "segment",  "segment:r=37"};

static size_t d = 40;

/* A different value for every element. */
static float value(size_t matrix, size_t head, size_t position, size_t j)
{
    static float known[2 * LAYERS * KV_HEADS * 1000 * 100]; /* 0: not computed yet */
    matrix -= v_in_k ? matrix % 2 : 0;
    const size_t at = ((matrix * KV_HEADS + head) * 1000 + position) * 100 + j;
    if (known[at] == 0)
        known[at] = sinf((float)at);
    return known[at];
}

static struct kv *open_cache(const char *text, size_t rows, size_t seqs, enum dtype type)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, d, rows, type);
    return cache_of(text, &shape, seqs);
}

/* Appends `rows` pending KV entries, with the values of positions from `first` on, or `repeated` with those of `first`. */
static bool append(struct kv *kv, size_t seq, size_t first, size_t rows, bool repeated)
{
    static float k[N * KV_HEADS * MOST_D], v[N * KV_HEADS * MOST_D];
    struct err err;
    const size_t width = KV_HEADS * d;
    const bool ok = kv_ensure(kv, seq, rows, &err) == 0;
    for (size_t l = 0; ok && l < LAYERS; l++) {
        for (size_t i = 0; i < rows * width; i++) {
            k[i] = value(2 * l, i % width / d, first + i / width, i % d);
            v[i] = value(2 * l + 1, i % width / d, first + i / width, i % d);
        }
        cache_append(kv, seq, l, k, v, repeated ? 0 : width);
    }
    return ok;
}

static bool step_as(struct kv *kv, size_t seq, size_t first, size_t rows)
{
    return append(kv, seq, first, rows, false);
}

static bool step(struct kv *kv, size_t seq, size_t rows)
{
    return step_as(kv, seq, kv->seq[seq].n, rows);
}

static void grow_to(struct kv *kv, size_t seq, size_t n, size_t by)
{
    while (kv->seq[seq].n < n) {
        const size_t rows = size_min(by, n - kv->seq[seq].n);
        check(step(kv, seq, rows), "no room");
        kv_commit(kv, seq, rows);
    }
}

/* The quantised row of a position. */
static void make_row(unsigned char *row, enum dtype type, size_t matrix, size_t head, size_t position)
{
    static struct {
        enum dtype type;
        size_t d;
        bool v_in_k;
        unsigned char row[4 * MOST_D + 32];
    } known[2 * LAYERS][KV_HEADS][1000]; /* d 0: not computed yet */
    typeof(&known[0][0][0]) at = &known[matrix][head][position];
    if (at->type != type || at->d != d || at->v_in_k != v_in_k) {
        float x[MOST_D];
        for (size_t j = 0; j < d; j++)
            x[j] = value(matrix, head, position, j);
        at->type = type, at->d = d, at->v_in_k = v_in_k;
        dtype_from_f32(at->row, type, x, d);
    }
    memcpy(row, at->row, dtype_row_bytes(type, d));
}

/* True if all KV entries are bitwise those of positions as[0..n). */
static bool rows_are(struct kv *kv, size_t seq, const size_t *as, size_t n)
{
    static unsigned char rows[N * (4 * MOST_D + 32)];
    unsigned char want[4 * MOST_D + 32];
    struct err err;
    const size_t bytes = kv_row_bytes(kv, 0, KV_K);
    bool same = kv->seq[seq].n == n;
    for (size_t m = 0; same && m < 2 * LAYERS; m++)
        for (size_t h = 0; same && h < KV_HEADS; h++) {
            same = kv_read(kv, seq, m / 2, m % 2, h, rows, &err) == 0;
            for (size_t i = 0; same && i < n; i++) {
                make_row(want, kv->setup.shape.sizes[0].type[KV_K], m, h, as[i]);
                same = memcmp(rows + i * bytes, want, bytes) == 0;
            }
        }
    return same;
}

/* Growing, accepting, forking, beams: only appended rows are quantised, and their bytes stay. */
static void test_once(const char *spec, enum dtype type)
{
    enum { BEAMS = 3, KEPT = 4, FIRST = 40, STEP = 9 };
    static const size_t kept[KEPT] = {0, 2, 5, 8}, parent[BEAMS] = {1, 0, 1};
    struct kv *kv = open_cache(spec, N, BEAMS, type);
    size_t order[N], seq[BEAMS] = {0, 1, 2};
    struct err err;
    for (size_t i = 0; i < N; i++)
        order[i] = i < FIRST ? i : i < FIRST + KEPT ? FIRST + kept[i - FIRST] : i;
    grow_to(kv, 0, FIRST, 7);
    check(rows_are(kv, 0, order, FIRST), "%s: rows after growing", spec);
    check(step(kv, 0, STEP), "%s: no room", spec);
    kv_accept(kv, 0, kept, KEPT);
    check(rows_are(kv, 0, order, FIRST + KEPT), "%s: rows after compacting", spec);
    check(kv_fork(kv, 1, 0, FIRST + KEPT, &err) == 0 && rows_are(kv, 1, order, FIRST + KEPT),
          "%s: rows of a fork", spec);
    grow_to(kv, 0, N, 11);
    check(rows_are(kv, 0, order, N), "%s: rows of a full sequence", spec);
    check(kv_reorder(kv, seq, parent, BEAMS, &err) == 0 && rows_are(kv, seq[0], order, FIRST + KEPT) &&
              rows_are(kv, seq[1], order, N) && rows_are(kv, seq[2], order, FIRST + KEPT),
          "%s: rows of beams", spec);
    const size_t appended = FIRST + STEP + N - FIRST - KEPT;
    check(kv->converted_rows == appended * cache_matrices() * LAYERS * KV_HEADS,
          "%s: %zu rows were rounded, %zu appended", spec, (size_t)kv->converted_rows,
          appended * cache_matrices() * LAYERS * KV_HEADS);
    kv_close(kv);
}

/* Rows with a stride of 0 are one row. */
static void test_repeated(const char *spec, enum dtype type)
{
    enum { ROWS = 37 };
    static const size_t one[ROWS] = {0};
    struct kv *kv = open_cache(spec, N, 1, type);
    check(append(kv, 0, 0, ROWS, true), "%s: no room", spec);
    kv_commit(kv, 0, ROWS);
    check(rows_are(kv, 0, one, ROWS), "%s: rows that are one row", spec);
    kv_close(kv);
}

/* Beams of one prompt, reordered after every token: the bytes of each row stay. */
static void test_beams(const char *spec, enum dtype type)
{
    enum { BEAMS = 3, PROMPT = 21, STEPS = 24 };
    struct kv *kv = open_cache(spec, N, BEAMS, type);
    size_t order[BEAMS][N], before[BEAMS][N], seq[BEAMS] = {0, 1, 2}, wrong = 0;
    struct err err;
    grow_to(kv, 0, PROMPT, PROMPT);
    for (size_t b = 0; b < BEAMS; b++) {
        for (size_t i = 0; i < PROMPT; i++)
            order[b][i] = i;
        check(b == 0 || kv_fork(kv, b, 0, PROMPT, &err) == 0, "%s: no fork", spec);
    }
    for (size_t t = 0; t < STEPS; t++) {
        const size_t parent[BEAMS] = {t % BEAMS, 1, t % 4 ? 2 : 0};
        for (size_t b = 0; b < BEAMS; b++) {
            order[b][PROMPT + t] = 500 + t * BEAMS + b;
            check(step_as(kv, seq[b], order[b][PROMPT + t], 1), "%s: no room", spec);
            kv_commit(kv, seq[b], 1);
        }
        memcpy(before, order, sizeof order);
        for (size_t b = 0; b < BEAMS; b++)
            memcpy(order[b], before[parent[b]], sizeof *order);
        check(kv_reorder(kv, seq, parent, BEAMS, &err) == 0, "%s: not reordered", spec);
        for (size_t b = 0; b < BEAMS; b++)
            wrong += !rows_are(kv, seq[b], order[b], PROMPT + t + 1);
    }
    check(wrong == 0, "%s, %s: rows of beams were wrong %zu times", spec, cache_type_name(type), wrong);
    kv_close(kv);
}

/* Rows of a snapshot, used in place or copied, are not quantised again. */
static void test_attached(const char *spec, enum dtype type)
{
    enum { ROWS = 21, STORED = 32 };
    struct kv *kv = open_cache(spec, N, 1, type);
    const size_t bytes = kv_row_bytes(kv, 0, KV_K), head = STORED * bytes;
    unsigned char *memory = calloc(2 * LAYERS * KV_HEADS, head);
    struct kv_layer_rows layer[LAYERS];
    size_t order[N];
    struct err err;
    for (size_t m = 0; m < 2 * LAYERS; m++)
        for (size_t h = 0; h < KV_HEADS; h++)
            for (size_t i = 0; i < ROWS; i++)
                make_row(memory + (m * KV_HEADS + h) * head + i * bytes, type, m, h, i);
    for (size_t l = 0; l < LAYERS; l++)
        layer[l] = (struct kv_layer_rows){cpu_addr(memory + 2 * l * KV_HEADS * head),
                                          cpu_addr(memory + (2 * l + 1) * KV_HEADS * head),
                                          {type, type}};
    for (size_t i = 0; i < N; i++)
        order[i] = i;
    check(kv_attach(kv, 0, layer, 0, ROWS, STORED, &err) == 0 && rows_are(kv, 0, order, ROWS) &&
              kv->converted_rows == 0,
          "%s: attached rows", spec);
    grow_to(kv, 0, 70, 4);
    check(rows_are(kv, 0, order, 70) &&
              kv->converted_rows == (70 - ROWS) * cache_matrices() * LAYERS * KV_HEADS,
          "%s: rows behind attached ones", spec);
    kv_close(kv);
    free(memory);
}

/* ---- attention ---- */

/* x[d] times H / sqrt(n), H the Hadamard matrix of order n with elements (-1)^(bits of i and j). */
static void rotate(double *x)
{
    const size_t n = d & (0 - d);
    double from[MOST_D];
    memcpy(from, x, d * sizeof *x);
    for (size_t i = 0; i < d; i++) {
        x[i] = 0;
        for (size_t j = i / n * n; j < (i / n + 1) * n; j++)
            x[i] += (__builtin_popcountll(i % n & j % n) % 2 ? -from[j] : from[j]) / sqrt((double)n);
    }
}

/* Value i of an entry of 4, 5 or 6 bits, as quant/kv_entries.h describes it. */
static double packed_value(const unsigned char *row, unsigned bits, size_t i)
{
    static const int level[] = {104, 317, 549, 802, 1067, 1355, 1674, 2032};
    const size_t blocks = (d + 31) / 32, block = i / 32, in = i % 32, extra = bits - 4;
    const unsigned char *high = row + 16 * blocks, *part = high + 4 * extra * blocks;
    int q = row[16 * block + in % 16] >> (in < 16 ? 0 : 4) & 15, m = part[block];
    for (size_t b = 0; b < extra; b++)
        q |= (high[4 * extra * block + in % (4 * extra)] >> (in / (4 * extra) * extra + b) & 1)
             << (4 + b);
    m = 1 + (in < 16 ? m & 15 : m >> 4);
    const double integer = bits == 4
                               ? (q < 8 ? -1 : 1) * floor(level[q < 8 ? 7 - q : q - 8] * m / 256. + 0.5)
                           : bits == 5 ? floor((2 * q - 31) * m / 4. + 0.5)
                                       : floor((2 * q - 63) * m / 8. + 0.5);
    bf16 scale;
    memcpy(&scale, part + blocks, sizeof scale);
    return integer * (double)bf16_to_f32(scale);
}

/* The dequantised row of a position of the last layer. */
static const double *widen_row(enum dtype type, size_t matrix, size_t head, size_t position)
{
    static struct {
        enum dtype type;
        size_t d;
        bool v_in_k;
        double x[MOST_D];
    } known[2][KV_HEADS][N]; /* d 0: not computed yet */
    unsigned char row[4 * MOST_D + 32];
    const enum dtype stored = kv_type_multiplied(type);
    typeof(&known[0][0][0]) at = &known[matrix % 2][head][position];
    double *x = at->x;
    if (at->type == type && at->d == d && at->v_in_k == v_in_k)
        return x;
    at->type = type, at->d = d, at->v_in_k = v_in_k;
    make_row(row, type, matrix, head, position);
    for (size_t j = 0; j < d; j++) {
        if (kv_entry_bits(type)) {
            x[j] = packed_value(row, kv_entry_bits(type), j);
            continue;
        }
        const struct quant_scale v = quant_row_scale(stored, row, d, j);
        x[j] = (double)fmaf(
            v.scale, (float)((int)quant_row_q(stored, row, j) - quant_types[stored].zero_point), v.min);
    }
    if (kv_type_rotated(type))
        rotate(x);
    return x;
}

/* q as attention quantises it, with 127 levels per head. */
static void round_query(double *q, const float *from, enum dtype type, bool rounds)
{
    const bool rotated = rounds && kv_type_rotated(type);
    double most = 0;
    for (size_t j = 0; j < d; j++)
        q[j] = (double)from[j];
    if (rotated)
        rotate(q);
    for (size_t j = 0; j < d; j++)
        most = fmax(most, fabs(q[j]));
    for (size_t j = 0; j < d; j++)
        q[j] = rounds ? rint(q[j] / most * 127) * most / 127 : q[j];
    if (rotated)
        rotate(q);
}

/* The rotation is its own inverse, keeps lengths, and spreads a single element; quantising rotated
 * values is rotating, then quantising. */
static void test_rotation(void)
{
    float x[MOST_D], once[MOST_D];
    double want[MOST_D], worst = 0;
    unsigned char direct[4 * MOST_D], plain[4 * MOST_D];
    for (size_t j = 0; j < d; j++)
        want[j] = (double)(once[j] = x[j] = value(0, 0, 0, j));
    rotate(want);
    hadamard(once, d, hadamard_block(d));
    dtype_from_f32(direct, DTYPE_Q4_1_ROTATED, x, d);
    dtype_from_f32(plain, DTYPE_Q4_1, once, d);
    check(memcmp(direct, plain, dtype_row_bytes(DTYPE_Q4_1, d)) == 0 &&
              dtype_row_bytes(DTYPE_Q4_1_ROTATED, d) == dtype_row_bytes(DTYPE_Q4_1, d),
          "d %zu: a rotated row in 4 bits", d);
    for (size_t j = 0; j < d; j++)
        worst = fmax(worst, fabs(want[j] - (double)once[j]));
    hadamard(once, d, hadamard_block(d));
    for (size_t j = 0; j < d; j++)
        worst = fmax(worst, fabs((double)x[j] - (double)once[j]));
    check(worst < 1e-6, "d %zu: rotation is off by %g", d, worst);
    float back[2][MOST_D];
    double error[2] = {0, 0};
    x[d / 2] = 30;
    dtype_from_f32(direct, DTYPE_Q4_1_ROTATED, x, d);
    dtype_from_f32(plain, DTYPE_Q4_1, x, d);
    dtype_to_f32(back[0], DTYPE_Q4_1_ROTATED, direct, d);
    dtype_to_f32(back[1], DTYPE_Q4_1, plain, d);
    for (size_t j = 0; j < d; j++)
        for (size_t i = 0; i < 2; i++)
            error[i] += pow((double)back[i][j] - (double)x[j], 2);
    check(d % 32 || error[0] < error[1] / 2, "d %zu: squared error %g rotated, %g not", d, error[0],
          error[1]);
}

/* The double loop over rows 0 .. own of the last layer, in double precision. */
static void attend_plainly(enum dtype type, const float *q, size_t head, size_t own, bool rounds,
                           double *out)
{
    double rounded[MOST_D], weight[N], sum = 0;
    const size_t m = 2 * (LAYERS - 1), h = head / GROUP;
    round_query(rounded, q, type, rounds);
    for (size_t p = 0; p <= own; p++) {
        weight[p] = 0;
        const double *row = widen_row(type, m, h, p);
        for (size_t j = 0; j < d; j++)
            weight[p] += rounded[j] * row[j];
        sum += weight[p] = exp(weight[p] / sqrt((double)d));
    }
    memset(out, 0, d * sizeof *out);
    for (size_t p = 0; p <= own; p++) {
        const double *row = widen_row(type, m + 1, h, p);
        for (size_t j = 0; j < cache_v_width(d); j++)
            out[j] += weight[p] / sum * row[j];
    }
}

static size_t group = GROUP; /* query heads of a KV head */

static float query_value(size_t i) { return 2 * cosf((float)i * 0.7f); }

static bool run_attention(struct kv *kv, const struct attn_backend *backend,
                          const struct kernels *kernels, bool widen, size_t rows, const float *q,
                          float *out)
{
    struct err err;
    struct attn *attn;
    const struct attn_query query = {.seq = 0, .rows = rows};
    const struct attn_step step = {kv, kernels, &query, 1, NULL};
    const struct attn_shape shape = {.heads = KV_HEADS * group,
                                     .kv_heads = KV_HEADS,
                                     .head_dim = d,
                                     .v_dim = cache_v_dim(d),
                                     .dequantize = widen};
    const struct attn_limits limits = {.positions = N, .step_rows = rows, .queries = 1};
    const struct attn_layer layer = {.index = LAYERS - 1};
    if (!check(attn_open(&attn, backend, &shape, 1, &limits, &err) == 0, "%s", err.text))
        return false;
    const bool ok =
        attn_begin(attn, &step, &err) == 0 && attn_run(attn, &step, &layer, q, out, &err) == 0;
    attn_close(attn);
    return ok;
}

/* `rows` query rows behind n committed ones, in int8 and dequantised, by both backends. */
static void test_attention(const char *spec, enum dtype type, const struct kernels *kernels, size_t n,
                           size_t rows)
{
    static float q[N * HEADS * MOST_D], out[N * HEADS * MOST_D];
    struct kv *kv = open_cache(spec, N, 1, type);
    double want[MOST_D];
    grow_to(kv, 0, n, 50);
    check(step(kv, 0, rows), "no room");
    for (size_t i = 0; i < rows * HEADS * d; i++)
        q[i] = query_value(i);
    for (size_t b = 0; attn_backends[b]; b++)
        for (int widen = 0; widen < 2; widen++) {
            const bool rounds = b == 0 && !widen;
            double worst = 0;
            if (!check(run_attention(kv, attn_backends[b], kernels, widen, rows, q, out), "attention"))
                continue;
            for (size_t i = 0; i < rows; i += size_max(1, rows - 1))
                for (size_t head = 0; head < HEADS; head++) {
                    const size_t at = i * HEADS + head, d_v = cache_v_width(d);
                    attend_plainly(type, q + at * d, head, n + i, rounds, want);
                    for (size_t j = 0; j < d_v; j++) {
                        const double error = fabs(want[j] - (double)out[at * d_v + j]);
                        worst = error <= worst ? worst : error;
                    }
                }
            check(worst < (kv_type_rotated(type) ? 5e-5 : 3e-5),
                  "%s %s, %s, %s, d %zu, %zu + %zu rows%s: off by %g", kernels->isa,
                  attn_backends[b]->name, spec, cache_type_name(type), d, n, rows,
                  widen ? ", widened" : "", worst);
        }
    kv_close(kv);
}

/* A query gives the same bits in any batch, with any number of threads, under any policy. */
static void test_exact(enum dtype type, const struct kernels *kernels, bool widen)
{
    enum { ROWS = 30, BEFORE = 100 };
    static const size_t together[] = {ROWS, 5,
                                      2}; /* some of which begin before a block, and end in it */
    static float q[ROWS * HEADS * MOST_D], want[ROWS * HEADS * MOST_D], out[ROWS * HEADS * MOST_D];
    const size_t width = HEADS * d, v_width = HEADS * cache_v_width(d);
    for (size_t i = 0; i < ROWS * width; i++)
        q[i] = query_value(i);
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        struct kv *kv = open_cache(specs[s], N, 1, type);
        threads_set(1 + (int)(s % 2));
        grow_to(kv, 0, BEFORE, 1 + s * 13);
        for (size_t i = 0; s == 0 && i < ROWS; i++) {
            check(step(kv, 0, 1), "no room");
            run_attention(kv, attn_backends[0], kernels, widen, 1, q + i * width, want + i * v_width);
            kv_commit(kv, 0, 1);
        }
        for (size_t t = 0; t < ARRAY_LEN(together); t++) {
            kv_truncate(kv, 0, BEFORE);
            for (size_t i = 0, n = together[t]; i < ROWS; i += n) {
                check(step(kv, 0, n), "no room");
                run_attention(kv, attn_backends[0], kernels, widen, n, q + i * width,
                              out + i * v_width);
                kv_commit(kv, 0, n);
            }
            check(memcmp(want, out, ROWS * v_width * sizeof *out) == 0,
                  "%s, %s, d %zu: %zu rows of %s%s are not what rows alone are", kernels->isa, specs[s],
                  d, together[t], cache_type_name(type), widen ? ", widened" : "");
        }
        kv_close(kv);
    }
    threads_set(2);
}

/* All kernel sets give the same bits. */
static void test_sets(enum dtype type)
{
    enum { BEFORE = 75, ROWS = 9 };
    static const size_t rows[] = {1, 1, 1, ROWS}; /* of 1, 2, 3 and 3 heads per KV head */
    static float q[ROWS * HEADS * MOST_D], out[2 * ROWS * HEADS * MOST_D], want[ARRAY_LEN(out)];
    const struct kernels *first = NULL;
    struct kv *kv = open_cache("upfront", N, 1, type);
    grow_to(kv, 0, BEFORE, BEFORE);
    for (size_t i = 0; i < ROWS * HEADS * d; i++)
        q[i] = query_value(i);
    for (size_t i = 0; kernel_sets[i]; i++) {
        const struct kernels *set = kernel_sets[i];
        if (!set->usable())
            continue;
        for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
            kv_truncate(kv, 0, BEFORE);
            check(step(kv, 0, rows[r]), "no room");
            group = size_min(1 + r, GROUP);
            run_attention(kv, attn_backends[0], set, false, rows[r], q, out + r * HEADS * MOST_D);
        }
        if (!first)
            memcpy(want, out, sizeof want);
        first = first ? first : set;
        check(memcmp(want, out, sizeof want) == 0, "d %zu, %s: %s and %s differ", d,
              cache_type_name(type), set->isa, first->isa);
    }
    kv_close(kv);
}

/* NaN is propagated. */
static void test_nan(enum dtype type, const struct kernels *kernels)
{
    static const char *const names[] = {"a query", "a row of K", "a row of V"};
    static float x[3][HEADS * MOST_D], out[HEADS * MOST_D];
    struct kv *kv = open_cache("upfront", N, 1, type);
    struct err err;
    for (size_t bad = 0; bad < ARRAY_LEN(names) - v_in_k; bad++) {
        check(kv_ensure(kv, 0, 1, &err) == 0, "%s", err.text);
        for (size_t m = 0; m < ARRAY_LEN(x); m++)
            for (size_t i = 0; i < HEADS * d; i++)
                x[m][i] = query_value(i);
        x[bad][3] = NAN;
        for (size_t l = 0; l < LAYERS; l++)
            cache_append(kv, 0, l, x[1], x[2], KV_HEADS * d);
        run_attention(kv, attn_backends[0], kernels, false, 1, x[0], out);
        check(isnan(out[3]), "%s, %s: NaN in %s is hidden", kernels->isa, cache_type_name(type),
              names[bad]);
    }
    kv_close(kv);
}

/* Any two types have a text that names both. */
static void test_names(void)
{
    for (size_t i = 0; cache_types[i].name; i++)
        for (size_t j = 0; cache_types[j].name; j++) {
            char text[64];
            const char *scales;
            struct cache_types both;
            struct err err;
            snprintf(text, sizeof text, "k=%s,v=%s", cache_types[i].name, cache_types[j].name);
            const char *want = i == j ? cache_types[i].name : text;
            if (!check(cache_types_parse(&both, text, &scales, &err) == 0, "%s", err.text))
                continue;
            const struct cache_types_text found = cache_types_format(&both);
            check(strcmp(found.text, want) == 0, "%s is %s", text, found.text);
        }
}

/* Values whose scale has no finite inverse become zeros. */
static void test_tiny(enum dtype type)
{
    unsigned char row[4 * MOST_D];
    float x[MOST_D] = {0}, back[MOST_D];
    x[d / 2] = 1e-39f;
    dtype_from_f32(row, type, x, d);
    dtype_to_f32(back, type, row, d);
    for (size_t j = 0; j < d; j++)
        check(fabsf(back[j] - x[j]) <= 1e-39f, "%s: element %zu of %g is %g", cache_type_name(type), j,
              (double)x[j], (double)back[j]);
}

/* Bytes of a cache: a hundredth of the rows of a 7B model with 32 layers of 32 heads of 128. */
static void test_bytes(enum dtype type)
{
    enum { ROWS = 96, D = 128 };
    const size_t before = d, bits = kv_entry_bits(type);
    const size_t row = bits                                           ? D * bits / 8 + D / 32 + 2
                       : kv_type_multiplied(type) == DTYPE_Q8_CHANNEL ? D + 4
                                                                      : D / 2 + 4 * (D / 32);
    d = D;
    struct kv *kv = open_cache("upfront", ROWS, 1, type);
    struct err err;
    check(kv_ensure(kv, 0, 1, &err) == 0 &&
              kv->stats.peak_bytes == cache_matrices() * LAYERS * KV_HEADS * ROWS * row,
          "%s: %zu bytes of cache", cache_type_name(type), kv->stats.peak_bytes);
    kv_close(kv);
    d = before;
}

/* Values that are a part of keys cannot be rotated by themselves, unless they are whole blocks. */
static bool refused(enum dtype type)
{
    const struct kv_shape shape = cache_shape(1, 1, d, 1, type);
    struct kv_spec spec;
    struct kv *kv = NULL;
    struct err err;
    const bool expected = kv_type_rotated(type) && cache_v_dim(d) % hadamard_block(d) != 0;
    const bool none =
        cache_spec_parse(&spec, "upfront", &err) < 0 || kv_open(&kv, &spec, &shape, 1, &err) < 0;
    check(none == expected, "a cache of %s, d %zu: %s", cache_type_name(type), d,
          none ? err.text : "open");
    kv_close(kv);
    return none;
}

static void test_all(void)
{
    static const size_t sizes[][2] = {{0, 1}, {16, 3}, {63, 65}, {140, 1}};
    static const size_t heads[] = {40, 32, 64, 7, 80};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (d = v_in_k ? 40 : 64; d <= MOST_D; d *= 2)
            if (!refused(types[t]))
                test_sets(types[t]);
        d = 40;
        if (!refused(types[t]))
            test_bytes(types[t]);
        d = refused(types[t]) ? 7 : 40;
        if (kv_entry_bits(types[t]))
            test_tiny(types[t]);
        for (size_t s = t % check_every(4); s < ARRAY_LEN(specs); s += check_every(4)) {
            test_once(specs[s], types[t]);
            test_repeated(specs[s], types[t]);
            test_attached(specs[s], types[t]);
            test_beams(specs[s], types[t]);
        }
        for (size_t i = 0; kernel_sets[i]; i++) {
            if (!kernel_sets[i]->usable())
                continue;
            for (size_t h = (i + t) % check_every(4); h < ARRAY_LEN(heads); h += check_every(4)) {
                d = heads[h];
                if (refused(types[t]))
                    continue;
                test_rotation();
                const size_t *size = sizes[(i + h) % ARRAY_LEN(sizes)];
                test_attention(specs[(i + h) % ARRAY_LEN(specs)], types[t], kernel_sets[i], size[0],
                               size[1]);
            }
            for (size_t h = (i + t) % check_every(4); h < 4; h += check_every(4)) {
                d = heads[h];
                for (size_t widen = 0; !refused(types[t]) && widen <= i % 2; widen++)
                    test_exact(types[t], kernel_sets[i], widen);
            }
            d = 40;
            d = refused(types[t]) ? 7 : 40;
            test_nan(types[t], kernel_sets[i]);
        }
    }
}

int main(void)
{
    kernels_setup();
    threads_set(2);
    test_names();
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    return check_result();
}
