/* Kernels for quantised weights, of every set that the CPU supports: quantised activations, int8
 * products, dequantisation. Results must be bit for bit those of kernel.h's formulas, written here
 * as plain loops over quant_ref.h, for any number of rows and blocks and any split of inputs. */
#include "tests/unit/quant_ref.h"
#include "kernel/gemm.h"

/* The avxvnni set on emulated vectors, on all machines; where usable, the real set is tested too. */
#define AVXVNNI_HEADER  "tests/unit/avxvnni_in_c.h"
#define kernels_avxvnni kernels_avxvnni_in_c
#include "kernel/x86/kernels_avxvnni.c"

enum { MOST_ROWS = 48, PAD_BYTES = 36 }; /* kernels may write up to a multiple of 16 rows */

/* The sets to test: those with kernels of their own for quantised weights. Each matrix is generated
 * once for all sets. */
static struct kernels set[16];
static size_t sets;

#define EACH_SET(k) for (const struct kernels *k = set; k < set + sets; k++)

static struct quant_matrix matrix;
static unsigned char packed[QUANT_MOST_OUT * (QUANT_MOST_IN + 32) * 2 + 4096]
    __attribute__((aligned(64)));

/* ---- rows of int8 ---- */

/* Quantises one group by kernel.h's rule; returns its scale. */
static float ref_quantise(int8_t *code, const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        most = fmaxf(most, fabsf(x[i]));
    }
    const float inverse = 127 / most;
    for (size_t i = 0; i < n; i++)
        code[i] = isfinite(inverse) ? (int8_t)nearbyintf(x[i] * inverse) : 0;
    return most / 127;
}

/* Checks codes, scales and sums of x[n] with one scale per `group` inputs, which may exceed n. */
static void check_int8(const struct kernels *k, const char *what, const float *x, size_t n,
                       size_t group)
{
    static int8_t code[QUANT_MOST_IN + 64], want[QUANT_MOST_IN + 64];
    static float scale[QUANT_MOST_IN / 32 + 2], want_scale[QUANT_MOST_IN / 32 + 2];
    static int32_t sum[QUANT_MOST_IN / 16 + 2], want_sum[QUANT_MOST_IN / 16 + 2];
    bool scales = true;
    /* Bytes after the results must not change. */
    memset(code, 0x55, sizeof code), memset(want, 0x55, sizeof want);
    memset(scale, 0x55, sizeof scale), memset(want_scale, 0x55, sizeof scale);
    memset(sum, 0x55, sizeof sum), memset(want_sum, 0x55, sizeof sum);
    for (size_t from = 0; from < n; from += group) {
        const size_t many = size_min(group, n - from);
        memset(want + from, 0, many);
        const float all = ref_quantise(want + from, x + from, many);
        for (size_t i = from; i < from + many; i += 32)
            want_scale[i / 32] = all;
    }
    for (size_t from = 0; from < n; from += 16) {
        want_sum[from / 16] = 0;
        for (size_t i = from; i < size_min(from + 16, n); i++)
            want_sum[from / 16] += want[i];
    }
    k->to_int8(code, scale, sum, x, n, group);
    for (size_t i = 0; i < ARRAY_LEN(scale); i++)
        scales &= isnan(want_scale[i]) ? isnan(scale[i]) : memcmp(&scale[i], &want_scale[i], 4) == 0;
    check(memcmp(code, want, sizeof code) == 0, "%s: %s, %zu in groups of %zu: other codes", k->isa,
          what, n, group);
    check(scales, "%s: %s, %zu in groups of %zu: other scales", k->isa, what, n, group);
    check(memcmp(sum, want_sum, sizeof sum) == 0, "%s: %s, %zu in groups of %zu: other sums", k->isa,
          what, n, group);
}

static void test_to_int8(const struct kernels *k)
{
    static const size_t ns[] = {1, 7, 15, 16, 17, 31, 32, 33, 47, 48, 64, 100, 256, 300, 1100};
    static const float special[] = {NAN,           -NAN,      INFINITY,  -INFINITY,
                                    3.4028235e38f, 0x1p-149f, -0x1p-130f};
    static float x[QUANT_MOST_IN + 64];
    for (size_t i = 0; i < ARRAY_LEN(ns); i++)
        for (int whole = 0; whole < 2; whole++) {
            const size_t n = ns[i], group = whole ? n + n % 3 : 32;
            for (size_t j = 0; j < n; j++)
                x[j] = quant_uniform() * (j / 32 % 3 == 1 ? 1e-4f : 5);
            for (size_t j = n; j < ARRAY_LEN(x); j++)
                x[j] = NAN;
            check_int8(k, "any numbers", x, n, group);
            for (size_t s = 0; s < ARRAY_LEN(special); s++) {
                const size_t at = quant_random() % n;
                const float before = x[at];
                x[at] = special[s];
                check_int8(k, "a special number", x, n, group);
                x[at] = before;
            }
            /* With a maximum of 127 the scale is 1: values that end in .5 are midway between two
             * codes. */
            for (size_t j = 0; j < n; j++)
                x[j] = j % 32 == 5
                           ? -127
                           : (float)(quant_random() % 253) - 126 + 0.5f * (quant_random() % 4 != 0);
            check_int8(k, "ties", x, n, group);
            for (size_t j = 0; j < n; j++)
                x[j] = j % 2 ? 0.f : -0.f;
            check_int8(k, "zeros", x, n, group);
            for (size_t j = 0; j < n; j++)
                x[j] = (float)(quant_random() % 100) * 0x1p-140f;
            check_int8(k, "denormals", x, n, group);
        }
}

/* ---- products ---- */

/* Activations in the layout that callers of panel_int8 use, with other bytes after each row. */
struct int8_matrix {
    size_t in_padded, row_bytes;
    char bytes[MOST_ROWS * (QUANT_MOST_IN * 2 + PAD_BYTES)] __attribute__((aligned(4)));
};

static struct int8_matrix rows;

static int8_t *codes_of(size_t i) { return (int8_t *)rows.bytes + i * rows.row_bytes; }
static float *scales_of(size_t i) { return (void *)(codes_of(i) + rows.in_padded); }
static int32_t *sums_of(size_t i) { return (void *)(scales_of(i) + rows.in_padded / 32); }

/* Draws the activations as weights are drawn; the extreme codes are 127 and -127. */
static void draw_rows(size_t in, bool one_scale, enum quant_draw draw)
{
    rows.in_padded = (in + 31) / 32 * 32;
    rows.row_bytes = rows.in_padded + rows.in_padded / 32 * 4 + rows.in_padded / 16 * 4 + PAD_BYTES;
    memset(rows.bytes, 0x77, sizeof rows.bytes);
    for (size_t i = 0; i < MOST_ROWS; i++) {
        memset(codes_of(i), 0, rows.in_padded);
        memset(sums_of(i), 0, rows.in_padded / 16 * 4);
        for (size_t k = 0; k < in; k++) {
            const int any = (int)(quant_random() % 255) - 127;
            codes_of(i)[k] =
                (int8_t)(draw == DRAW_ANY                                            ? any
                         : draw == DRAW_HIGHEST || (draw == DRAW_TURNS && k / 3 % 2) ? 127
                                                                                     : -127);
            sums_of(i)[k / 16] += codes_of(i)[k];
        }
        for (size_t g = 0; g < rows.in_padded / 32; g++)
            scales_of(i)[g] =
                one_scale && g ? scales_of(i)[0] : ldexpf(1 + quant_uniform() / 4, -5 - (int)(g % 4));
    }
}

/* Integer dot product of row i and output o over `many` inputs from `from`. */
static int32_t ref_dot(size_t i, size_t o, size_t from, size_t many)
{
    int32_t dot = 0;
    for (size_t k = from; k < size_min(from + many, matrix.in) && o < matrix.out; k++)
        dot += whole_of(&matrix, o, k) * codes_of(i)[k];
    return dot;
}

static float ref_sum(size_t i, size_t o)
{
    const size_t every = matrix.ref->scale.every,
                 group = every == SIZE_MAX ? every : size_min(every, 32);
    float y = 0;
    if (matrix.ref->type == DTYPE_Q8_CHANNEL)
        return (float)ref_dot(i, o, 0, matrix.in) * (step_of(&matrix, o, 0) * scales_of(i)[0]);
    for (size_t k = 0; k < matrix.in; k += group) {
        int32_t own = 0;
        for (size_t j = k; j < k + group; j += 16)
            own += sums_of(i)[j / 16];
        y = fmaf(step_of(&matrix, o, k) * (float)ref_dot(i, o, k, group), scales_of(i)[k / 32], y);
        if (matrix.ref->low.bytes || matrix.ref->half_scales)
            y = fmaf(base_of(&matrix, o, k), scales_of(i)[k / 32] * (float)own, y);
    }
    return y;
}

static struct panel panel_of(size_t block, size_t blocks)
{
    const enum dtype type = matrix.ref->type;
    struct panel w = {
        .type = type, .block_bytes = pack_block_bytes(type, rows.in_padded), .blocks = blocks};
    w.w = (const char *)packed + block * w.block_bytes;
    for (size_t p = 0; p < SCALE_KINDS; p++)
        w.scales[p] = (const unsigned char *)w.w + pack_scales_at(type, rows.in_padded, p);
    w.next = (const char *)packed;
    return w;
}

/* Multiplies a panel over all of its inputs, `cut` of them per call. */
static void run_panel(const struct kernels *k, float *y, size_t n, size_t block, size_t blocks,
                      size_t cut)
{
    struct panel w = panel_of(block, blocks);
    const char *begin = w.w;
    for (w.k_begin = 0; w.k_begin < rows.in_padded; w.k_begin += cut) {
        w.kc = size_min(cut, rows.in_padded - w.k_begin);
        w.accumulate = w.k_begin > 0;
        w.last_k = w.k_begin + w.kc == rows.in_padded;
        w.w = begin + pack_q_bytes(w.type, w.k_begin);
        k->panel_int8(y,
                      &(struct int8_rows){codes_of(0) + w.k_begin, scales_of(0) + w.k_begin / 32,
                                          sums_of(0) + w.k_begin / 16, rows.row_bytes, NULL, 0},
                      n, &w);
    }
}

static float want[MOST_ROWS][QUANT_MOST_OUT];

static void check_set(const struct kernels *k, size_t n, size_t block, size_t blocks, size_t cut)
{
    static float y[MOST_ROWS * PANEL_WIDTH];
    bool same = true;
    for (size_t i = 0; i < ARRAY_LEN(y); i++)
        y[i] = NAN;
    run_panel(k, y, n, block, blocks, cut);
    for (size_t i = 0; i < n; i++)
        for (size_t o = 0; o < blocks * 16; o++)
            same &= block * 16 + o >= matrix.out ||
                    memcmp(&y[i * PANEL_WIDTH + o], &want[i][block * 16 + o], 4) == 0;
    check(same, "%s: %s, %zu inputs, %zu at a time, %zu rows, %zu blocks from %zu: other sums", k->isa,
          dtype_name(matrix.ref->type), matrix.in, cut, n, blocks, block);
}

static void check_panel(size_t n, size_t block, size_t blocks, size_t cut)
{
    EACH_SET(k)
    check_set(k, n, block, blocks, cut);
}

/* Draws a matrix and activations, and computes the expected results. */
static void draw_product(const struct quant_ref *r, size_t out, size_t in, enum quant_draw w,
                         enum quant_draw x)
{
    quant_draw(&matrix, r, out, in, w);
    put_packed(packed, &matrix);
    draw_rows(in, r->type == DTYPE_Q8_CHANNEL, x);
    for (size_t i = 0; i < MOST_ROWS; i++)
        for (size_t o = 0; o < out; o++)
            want[i][o] = ref_sum(i, o);
}

static void test_panels(const struct quant_ref *r)
{
    static const size_t ins[] = {32, 33, 48, 100, 256, 300};
    /* All numbers of rows and of blocks, beginning at various blocks. */
    draw_product(r, 64, 96, DRAW_ANY, DRAW_ANY);
    for (size_t n = 1; n <= 20; n++)
        for (size_t blocks = 1; blocks <= 4; blocks++)
            check_panel(n, n % (5 - blocks), blocks, n % 2 ? 96 : 64);
    for (size_t n = 30; n <= MOST_ROWS; n += 6)
        check_panel(n, 0, 4, 96);
    /* Various numbers of inputs, split in various ways. */
    for (size_t i = 0; i < ARRAY_LEN(ins); i++) {
        draw_product(r, 50, ins[i], DRAW_ANY, DRAW_ANY);
        for (size_t cut = 32; cut / 2 < rows.in_padded; cut *= 2) {
            check_panel(1, 0, 4, cut);
            check_panel(7, 1, 3, cut);
        }
        check_panel(18, 0, 4, 96);
    }
    /* All combinations of extreme codes. */
    for (int d = 0; d < DRAWS * DRAWS; d++) {
        draw_product(r, 16, 256, (enum quant_draw)(d / DRAWS), (enum quant_draw)(d % DRAWS));
        check_panel(1, 0, 1, 256);
        check_panel(5, 0, 1, 64);
    }
}

/* ---- weights in f32 ---- */

static void test_widen(const struct kernels *k)
{
    static float got[QUANT_MOST_IN * NR + 1];
    struct panel w = panel_of(1, 3);
    const char *begin = w.w;
    for (w.k_begin = 0; w.k_begin < 320; w.k_begin += 96) {
        w.kc = size_min(96, 320 - w.k_begin);
        w.w = begin + pack_q_bytes(w.type, w.k_begin);
        for (size_t block = 0; block < 3; block++)
            for (size_t at = 0; at < w.kc; at += 32) {
                const size_t depth = w.kc - at;
                bool same = true;
                got[depth * NR] = 0x1p99f;
                k->dequantize_block(got, &w, block, at, depth);
                for (size_t j = 0; j < depth * NR; j++) {
                    const size_t o = (1 + block) * 16 + j % NR, in = w.k_begin + at + j / NR;
                    const float value =
                        o < matrix.out && in < matrix.in ? value_of(&matrix, o, in) : got[j];
                    same &= memcmp(&got[j], &value, sizeof value) == 0;
                }
                check(same && got[depth * NR] == 0x1p99f, "%s: %s: inputs %zu to %zu widened otherwise",
                      k->isa, dtype_name(matrix.ref->type), w.k_begin + at, w.k_begin + w.kc);
            }
    }
}

/* ---- whole products ---- */

/* Quantises x as row 0 of `rows` and sets want[at] to its product. */
static void quantize_row(const float *x, size_t at)
{
    const size_t group = matrix.ref->type == DTYPE_Q8_CHANNEL ? matrix.in : 32;
    memset(codes_of(0), 0, rows.in_padded);
    memset(sums_of(0), 0, rows.in_padded / 4);
    for (size_t from = 0; from < matrix.in; from += group) {
        const size_t many = size_min(group, matrix.in - from);
        const float scale = ref_quantise(codes_of(0) + from, x + from, many);
        for (size_t j = from; j < from + many; j++) {
            scales_of(0)[j / 32] = scale;
            sums_of(0)[j / 16] += codes_of(0)[j];
        }
    }
    for (size_t o = 0; o < matrix.out; o++)
        want[at][o] = ref_sum(0, o);
}

static bool run_gemm(const struct kernels *k, enum precision precision, const struct mat *w, float *y,
                     const float *x, size_t n)
{
    const struct product p = {.w = w, .y = y, .y_stride = w->out};
    struct gemm *gemm;
    struct err err;
    if (!check(gemm_open(&gemm, k, precision, n, w->in, &err) == 0, "%s", err.text))
        return false;
    gemm_run(gemm, &p, 1, x, w->in, n);
    gemm_close(gemm);
    return true;
}

/* gemm_run() of random activations at int8 must give ref_sum() of the codes of ref_quantise(). Few
 * rows are interleaved, many are cut into chunks. */
static void test_gemm(const struct quant_ref *r, size_t n, size_t in)
{
    enum { OUT = 19, MANY = INT8_MAX_ROWS + 4 };
    /* Of many rows only some are checked: at all places in tiles, and the last, which may be a
     * chunk of its own. */
    const size_t every = n > 16 ? 5 : 1, first = (n - 1) % every;
    static float x[MANY * QUANT_MOST_IN], y[MANY * OUT];
    draw_product(r, OUT, in, DRAW_ANY, DRAW_ANY);
    for (size_t i = 0; i < n * in; i++)
        x[i] = quant_uniform();
    for (size_t i = first; i < n; i += every)
        quantize_row(x + i * in, i / every);
    const struct mat w = {r->type, LAYOUT_PACKED, OUT, in, rows.in_padded, packed};
    EACH_SET(k)
    {
        bool same = run_gemm(k, PRECISION_INT8, &w, y, x, n);
        for (size_t i = first; i < n; i += every)
            for (size_t o = 0; o < OUT; o++)
                same &= y[i * OUT + o] == want[i / every][o];
        check(same, "%s: %s, product %zux%zux%d at int8: other sums", k->isa, dtype_name(r->type), n,
              in, OUT);
    }
}

/* At f32 a quantised matrix gives what an f32 matrix of its dequantised values gives. */
static void test_f32(const struct quant_ref *r, size_t n, size_t in)
{
    enum { OUT = 50, MANY = 9 };
    static float x[MANY * QUANT_MOST_IN], y[MANY * OUT], y_wide[MANY * OUT];
    static float value[OUT * QUANT_MOST_IN], wide[QUANT_MOST_OUT * QUANT_MOST_IN];
    draw_product(r, OUT, in, DRAW_ANY, DRAW_ANY);
    for (size_t i = 0; i < n * in; i++)
        x[i] = quant_uniform();
    for (size_t i = 0; i < OUT * in; i++)
        value[i] = value_of(&matrix, i / in, i % in);
    pack_rows(wide, rows.in_padded, value, in, OUT, in, DTYPE_F32);
    const struct mat quant = {r->type, LAYOUT_PACKED, OUT, in, rows.in_padded, packed};
    const struct mat f32 = {DTYPE_F32, LAYOUT_PACKED, OUT, in, rows.in_padded, wide};
    EACH_SET(k)
    if (run_gemm(k, PRECISION_F32, &quant, y, x, n) && run_gemm(k, PRECISION_F32, &f32, y_wide, x, n))
        check(memcmp(y, y_wide, n * OUT * sizeof *y) == 0,
              "%s: %s, product %zux%zux%d at f32: other sums", k->isa, dtype_name(r->type), n, in, OUT);
}

static void write_zeros(float *y, const struct int8_rows *x, size_t n, const struct panel *w)
{
    (void)x, (void)w;
    memset(y, 0, n * PANEL_WIDTH * sizeof *y);
}

/* The comparison must notice a wrong kernel. */
static void test_the_test(void)
{
    static float y[PANEL_WIDTH];
    const struct kernels broken = {.isa = "broken", .panel_int8 = write_zeros};
    draw_product(&quant_refs[0], 16, 64, DRAW_ANY, DRAW_ANY);
    run_panel(&broken, y, 1, 0, 1, 64);
    check(memcmp(y, want[0], 16 * sizeof *y) != 0, "zeros are taken for sums");
}

/* False if a set takes all kernels for quantised weights from an earlier set, which is tested. */
static bool is_new(const struct kernels *k)
{
    EACH_SET(before)
    if (before->panel_int8 == k->panel_int8 && before->to_int8 == k->to_int8 &&
        before->dequantize_block == k->dequantize_block)
        return false;
    return true;
}

/* Lists the sets to test; OpenBLAS has no kernels for quantised weights. */
static void list_sets(void)
{
    for (size_t i = 0; kernel_sets[i]; i++)
        if (kernel_sets[i]->usable() && !kernel_sets[i]->load && is_new(kernel_sets[i]))
            set[sets++] = *kernel_sets[i];
    set[sets] = set[0];
    set[sets].isa = "avxvnni in C";
    set[sets].panel_int8 = kernels_avxvnni_in_c.panel_int8;
    set[sets].interleave_int8 = kernels_avxvnni_in_c.interleave_int8;
    set[sets].int8_mr = kernels_avxvnni_in_c.int8_mr;
    set[sets++].to_int8 = kernels_avxvnni_in_c.to_int8;
    EACH_SET(k)
    printf("# %s\n", k->isa);
}

int main(void)
{
    quant_state = check_state(check_seed(1));
    kernels_setup();
    list_sets();
    test_the_test();
    EACH_SET(k)
    test_to_int8(k);
    for (size_t t = 0; t < ARRAY_LEN(quant_refs); t++) {
        test_panels(&quant_refs[t]);
        draw_product(&quant_refs[t], 50, 300, DRAW_ANY, DRAW_ANY);
        EACH_SET(k)
        test_widen(k);
        test_gemm(&quant_refs[t], 1, 300);
        static const size_t counts[] = {2, 7, 16, 48, 49, 97, INT8_MAX_ROWS + 1};
        for (size_t n = 0; n < ARRAY_LEN(counts); n++)
            test_gemm(&quant_refs[t], counts[n], 96);
        test_gemm(&quant_refs[t], 70, 1100);
        test_f32(&quant_refs[t], 1, 300);
        test_f32(&quant_refs[t], 9, 300);
    }
    return check_result();
}
