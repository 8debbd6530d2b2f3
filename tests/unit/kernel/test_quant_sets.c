/* Quantised weights: every usable kernel set must equal the plain C set, bit for bit. test_int8.c
 * checks the plain C set. */
#include <string.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "tests/unit/check.h"
#include "kernel/cpu_traits.h"
#include "kernel/kernel.h"

/* The AMX set on emulated tiles, on all machines; those with AMX test the real set, too. */
#define AMX_HEADER       "tests/unit/amx_in_c.h"
#define kernels_int8_amx kernels_amx_in_c
#include "kernel/x86/kernels_int8_amx.c"

enum { MOST_ROWS = 70, ROOM_ROWS = 96, MOST_IN = 544, DEEP_IN = 2336, POISON = 0x5a };

static const struct kernels *plain;
static uint64_t state, sample; /* sample: the seed, which selects cases */

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 11;
}

static float random_float(void) { return (float)((double)random_bits() * 0x1p-52 - 1); }

/* ---- a panel and rows ---- */

struct test_weights {
    unsigned char *packed;
    size_t in, block_bytes;
    enum dtype type;
};

static void fill_plane(unsigned char *to, enum dtype type, struct scale_array plane, size_t numbers)
{
    for (size_t i = 0; i < numbers; i++) {
        const float value = random_float();
        const f16 half = f16_from_f32(value * 0.1f);
        const unsigned char byte =
            (unsigned char)(random_bits() % (quant_types[type].power ? QUANT_POWER_MOST + 1 : 256));
        memcpy(to + i * plane.bytes,
               plane.bytes == 4   ? (const void *)&value
               : plane.bytes == 2 ? (const void *)&half
                                  : (const void *)&byte,
               plane.bytes);
    }
}

/* Weights of PANEL_BLOCKS blocks with random codes or, if `extreme`, only the lowest and the
 * highest. */
static struct test_weights random_weights(enum dtype type, size_t in, bool extreme)
{
    struct test_weights w = {.in = in, .block_bytes = pack_block_bytes(type, in), .type = type};
    w.packed = mem_zalloc(PANEL_BLOCKS, w.block_bytes);
    for (size_t b = 0; b < PANEL_BLOCKS; b++) {
        unsigned char *block = w.packed + b * w.block_bytes;
        for (size_t i = 0; i < pack_q_bytes(type, in); i++)
            block[i] = (unsigned char)(extreme ? random_bits() % 2 * 255 : random_bits());
        for (size_t p = 0; p < SCALE_KINDS; p++)
            fill_plane(block + pack_scales_at(type, in, p), type, quant_types[type].scales[p],
                       scale_count(quant_types[type].scales[p], in) * NR);
    }
    return w;
}

static struct panel panel_of(const struct test_weights *w, size_t blocks, size_t from, size_t depth)
{
    struct panel panel = {
        .w = (const char *)w->packed + pack_q_bytes(w->type, from),
        .type = w->type,
        .block_bytes = w->block_bytes,
        .blocks = blocks,
        .k_begin = from,
        .kc = depth,
        .accumulate = from > 0,
        .last_k = from + depth == w->in,
        .next = (const char *)w->packed,
    };
    for (size_t p = 0; p < SCALE_KINDS; p++)
        panel.scales[p] = w->packed + pack_scales_at(w->type, w->in, p);
    return panel;
}

struct rows {
    char *bytes;
    size_t scale, sum, stride;
};

static struct rows random_rows(size_t in, bool whole, bool extreme)
{
    static float x[DEEP_IN];
    struct rows rows = {.scale = in, .sum = in + in / QK_GROUP * sizeof(float)};
    rows.stride = rows.sum + in / QK_HALF * sizeof(int32_t) + 64;
    rows.bytes = mem_zalloc(round_up(MOST_ROWS, 16), rows.stride);
    for (size_t i = 0; i < MOST_ROWS; i++) {
        char *row = rows.bytes + i * rows.stride;
        for (size_t k = 0; k < in; k++)
            x[k] = extreme ? (random_bits() % 2 ? 1.f : -1.f) : random_float();
        plain->to_int8((int8_t *)row, (void *)(row + rows.scale), (void *)(row + rows.sum), x, in,
                       whole ? in : QK_GROUP);
    }
    return rows;
}

static void multiply(const struct kernels *k, float *y, const struct rows *x, size_t rows,
                     const struct panel *panel)
{
    static char interleaved[ROOM_ROWS * DEEP_IN / QK_GROUP * INT8_INTERLEAVED_BYTES];
    struct int8_rows of = {
        .q = (const int8_t *)x->bytes + panel->k_begin,
        .scale = (const float *)(const void *)(x->bytes + x->scale) + panel->k_begin / QK_GROUP,
        .sum = (const int32_t *)(const void *)(x->bytes + x->sum) + panel->k_begin / QK_HALF,
        .row_bytes = x->stride,
    };
    char *to = interleaved;
    const size_t n = k->int8_mr ? k->int8_mr(panel->type, rows) : 0;
    for (size_t from = 0; n && from < rows; from += n) {
        struct int8_rows tile = of;
        tile.q += from * x->stride;
        tile.scale = (const void *)((const char *)tile.scale + from * x->stride);
        tile.sum = (const void *)((const char *)tile.sum + from * x->stride);
        k->interleave_int8(to, &tile, size_min(n, rows - from), n, panel->kc, panel->type);
        to += n * panel->kc / QK_GROUP * INT8_INTERLEAVED_BYTES;
    }
    of.mr = n;
    if (to != interleaved)
        of.interleaved = interleaved;
    k->panel_int8(y, &of, rows, panel);
}

/* Computes y from all inputs, `slice` of them per call. Results that are not requested are
 * poisoned. */
static void run_panel(const struct kernels *k, float *y, const struct test_weights *w,
                      const struct rows *x, size_t rows, size_t blocks, size_t slice)
{
    memset(y, POISON, ROOM_ROWS * PANEL_WIDTH * sizeof *y);
    for (size_t from = 0; from < w->in; from += slice) {
        const struct panel panel = panel_of(w, blocks, from, size_min(slice, w->in - from));
        multiply(k, y, x, rows, &panel);
    }
}

/* Compares results. A kernel may write to columns of missing blocks and to 15 rows after the last,
 * but not beyond. */
static bool same_sums(const float *got, const float *want, size_t rows, size_t blocks)
{
    const size_t end = rows + 15;
    bool same = memcmp(got + end * PANEL_WIDTH, want + end * PANEL_WIDTH,
                       (ROOM_ROWS - end) * PANEL_WIDTH * sizeof *got) == 0;
    for (size_t i = 0; i < rows * PANEL_WIDTH; i += PANEL_WIDTH)
        same &= memcmp(got + i, want + i, blocks * NR * sizeof *got) == 0;
    return same;
}

/* The kernel sets whose products are compared, each with this machine's prefetch setting and VBMI and with the
 * opposite: products do not depend on them. */
struct variant {
    const struct kernels *k;
    bool opposite;
};

static struct variant variants[32];
static size_t n_variants;

static void add_variants(const struct kernels *k, bool opposites)
{
    for (int opposite = 0; opposite <= opposites; opposite++) {
        check(n_variants < ARRAY_LEN(variants), "too many kernel sets");
        variants[n_variants++] = (struct variant){k, opposite};
    }
}

/* Chooses a variant's settings, or those of variant NULL, the machine's own. */
static void use_settings(const struct variant *variant)
{
    static bool known, own_l2;
    if (!known)
        own_l2 = prefetch_l2;
    const bool opposite = variant && variant->opposite;
    prefetch_l2 = own_l2 != opposite;
#ifdef __x86_64__
    static bool own_vbmi;
    if (!known)
        own_vbmi = vbmi_unpacks;
    vbmi_unpacks = own_vbmi && !opposite;
#endif
    known = true;
}

static void test_panels(enum dtype type, size_t in, bool extreme)
{
    static float want[ROOM_ROWS * PANEL_WIDTH], got[ROOM_ROWS * PANEL_WIDTH];
    /* One row is tested with every number of blocks. */
    static const size_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8, 9, 11, 13, 15,
                                    20, 23, 27, 31, 33, 46, 70, 1, 1, 1,  1};
    struct test_weights w = random_weights(type, in, extreme);
    struct rows x = random_rows(in, quant_group(type, SIZE_MAX) == SIZE_MAX, extreme);
    for (size_t n = 0; n < ARRAY_LEN(counts); n++) {
        const size_t blocks = n % PANEL_BLOCKS + 1;
        if ((n + type + in / QK_GROUP + sample) % check_every(2))
            continue;
        run_panel(plain, want, &w, &x, counts[n], blocks, in);
        for (const struct variant *v = variants; v < variants + n_variants; v++) {
            use_settings(v);
            /* Plain C takes the most time: a length of slices per number of rows, another one for each type. */
            const size_t every = v->k->dequantize_block == plain->dequantize_block ? check_every(3) : 1;
            for (size_t slice = 32, turn = n + type; slice < 2 * in; slice *= 4) {
                if (turn++ % every)
                    continue;
                run_panel(v->k, got, &w, &x, counts[n], blocks, slice);
                check(same_sums(got, want, counts[n], blocks),
                      "%s, %s: %zu rows of %zu inputs, %zu blocks, %zu inputs at a time", v->k->isa,
                      dtype_name(type), counts[n], in, blocks, slice);
            }
        }
        use_settings(NULL);
    }
    free(w.packed);
    free(x.bytes);
}

/* Long inputs: kernels multiply a slab of inputs with several tiles, then the next slab. Slabs are
 * longer with prefetch to L2. */
static void test_pieces(enum dtype type)
{
    static float want[ROOM_ROWS * PANEL_WIDTH], got[ROOM_ROWS * PANEL_WIDTH];
    static const size_t counts[] = {13, 33};
    struct test_weights w = random_weights(type, DEEP_IN, false);
    struct rows x = random_rows(DEEP_IN, quant_group(type, SIZE_MAX) == SIZE_MAX, false);
    for (size_t n = 0; n < ARRAY_LEN(counts); n++) {
        const size_t blocks = PANEL_BLOCKS - n;
        run_panel(plain, want, &w, &x, counts[n], blocks, DEEP_IN);
        for (const struct variant *v = variants; v < variants + n_variants; v++) {
            if (v->k->panel_int8 == plain->panel_int8)
                continue; /* the same function */
            use_settings(v);
            run_panel(v->k, got, &w, &x, counts[n], blocks, DEEP_IN);
            check(same_sums(got, want, counts[n], blocks), "%s, %s: %zu rows of %d inputs", v->k->isa,
                  dtype_name(type), counts[n], DEEP_IN);
        }
        use_settings(NULL);
    }
    free(w.packed);
    free(x.bytes);
}

static void test_widen(const struct kernels *k, enum dtype type)
{
    enum { IN = 288 };
    static float want[IN * NR], got[IN * NR];
    struct test_weights w = random_weights(type, IN, false);
    const struct panel panel = panel_of(&w, PANEL_BLOCKS, 32, IN - 32);
    for (size_t b = 0; b < PANEL_BLOCKS; b++) {
        plain->dequantize_block(want, &panel, b, 32, IN - 64);
        k->dequantize_block(got, &panel, b, 32, IN - 64);
        check(memcmp(got, want, sizeof got) == 0, "%s, %s: weights in f32", k->isa, dtype_name(type));
    }
    free(w.packed);
}

/* ---- rows become int8 ---- */

static float odd_float(size_t i)
{
    static const float odd[] = {0, -0.f, 1e-42f, -3e-39f, 1e30f, 127, -127, 63.5f, 0.5f, 1.5f};
    return i % 3 ? random_float() : odd[random_bits() % ARRAY_LEN(odd)];
}

struct int8_row {
    int8_t code[MOST_IN];
    float scale[MOST_IN / QK_GROUP + 1];
    int32_t sum[MOST_IN / QK_HALF + 1];
};

static void test_to_int8(const struct kernels *k, size_t n, size_t group)
{
    static struct int8_row want, got;
    const float bad[] = {INFINITY, NAN, -INFINITY, 1};
    float x[MOST_IN];
    for (size_t round = 0; round < 8; round++) {
        for (size_t i = 0; i < n; i++)
            x[i] = round % 2 ? random_float() : odd_float(i);
        if (round >= 4)
            x[random_bits() % n] = bad[round - 4];
        memset(&want, POISON, sizeof want);
        memset(&got, POISON, sizeof got);
        plain->to_int8(want.code, want.scale, want.sum, x, n, group);
        k->to_int8(got.code, got.scale, got.sum, x, n, group);
        bool scales = true;
        for (size_t i = 0; i < ARRAY_LEN(want.scale); i++)
            scales &= memcmp(&want.scale[i], &got.scale[i], sizeof(float)) == 0 ||
                      (isnan(want.scale[i]) && isnan(got.scale[i]));
        check(scales && memcmp(want.code, got.code, sizeof got.code) == 0 &&
                  memcmp(want.sum, got.sum, sizeof got.sum) == 0,
              "%s: %zu numbers in int8, %zu with a scale, round %zu", k->isa, n, group, round);
    }
}

/* A NaN or infinity gives the scale NaN, whatever follows it. */
static void test_not_finite(const struct kernels *k)
{
    struct int8_row row;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3 * QK_GROUP; i++) {
        float x[QK_GROUP] = {1, 2, 3};
        x[i % QK_GROUP] = bad[i / QK_GROUP];
        x[(i + 1) % QK_GROUP] = 5;
        k->to_int8(row.code, row.scale, row.sum, x, QK_GROUP, QK_GROUP);
        check(isnan(row.scale[0]), "%s: %g is finite", k->isa, (double)bad[i / QK_GROUP]);
    }
}

static void test_products(void)
{
    for (enum dtype type = DTYPE_Q8_0; type < DTYPE_COUNT; type++) {
        test_panels(type, 352, false);
        test_panels(type, 544, true);
        test_panels(type, 32, false);
        test_pieces(type);
    }
}

static void test_set(const struct kernels *k)
{
    for (enum dtype type = DTYPE_Q8_0; type < DTYPE_COUNT; type++)
        test_widen(k, type);
    for (size_t n = 1; n <= MOST_IN; n += n < 70 ? 1 : 97) {
        test_to_int8(k, n, QK_GROUP);
        test_to_int8(k, n, round_up(n, QK_GROUP));
    }
    test_not_finite(k);
}

int main(void)
{
    kernels_setup();
    sample = check_seed(1);
    state = check_state(sample);
    for (size_t i = 0; kernel_sets[i]; i++)
        if (strcmp(kernel_sets[i]->isa, "ref") == 0)
            plain = kernel_sets[i];
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable()) {
            test_set(kernel_sets[i]);
            add_variants(kernel_sets[i], kernel_sets[i] != plain); /* plain C has no settings */
        }
    struct kernels in_c = *plain;
    in_c.isa = "amx in C";
    in_c.panel_int8 = kernels_amx_in_c.panel_int8;
    add_variants(&in_c, false);
    test_products();
    return check_result();
}
