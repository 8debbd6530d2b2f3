/* Types with a grid: products and f32 weights of the plain C set, against the formulas of kernel.h over
 * rows, whose values test_transcode compares with gguf's. test_quant_sets compares the other sets
 * with plain C. */
#include <string.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "tests/unit/check.h"
#include "kernel/kernel.h"

enum { IN = 544, BLOCKS = 2, OUT = BLOCKS * NR };

static uint64_t state;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static int8_t codes[IN];
static float scales[IN / QK_GROUP];
static int32_t sums[IN / QK_HALF];

static void draw_activations(void)
{
    memset(sums, 0, sizeof sums);
    for (size_t k = 0; k < IN; k++) {
        codes[k] = (int8_t)((int)(draw() % 255) - 127);
        sums[k / QK_HALF] += codes[k];
    }
    for (size_t g = 0; g < IN / QK_GROUP; g++)
        scales[g] = ldexpf(1 + (float)(draw() % 1000) / 1000, -6);
}

/* Random bytes, and scales d between 2^-7 and 2^-3. */
static void random_row(enum dtype type, unsigned char *row)
{
    const size_t d = quant_row_scales_at(type, IN, SCALE_D);
    for (size_t i = 0; i < dtype_row_bytes(type, IN); i++)
        row[i] = (unsigned char)draw();
    for (size_t i = 0; i < scale_count(quant_types[type].scales[SCALE_D], IN); i++) {
        const f16 value = (f16)(0x2000 + draw() % 0x1000);
        memcpy(row + d + 2 * i, &value, sizeof value);
    }
}

static float want_sum(enum dtype type, const unsigned char *row)
{
    const size_t group = quant_group(type, IN);
    float y = 0;
    for (size_t k = 0; k < IN; k += group) {
        int32_t dot = 0;
        for (size_t j = k; j < k + group; j++)
            dot += ((int)quant_row_q(type, row, j) - quant_types[type].zero_point) * codes[j];
        y = fmaf(quant_row_scale(type, row, IN, k).scale * (float)dot, scales[k / QK_GROUP], y);
    }
    return y;
}

static struct panel panel_of(enum dtype type, const unsigned char *packed)
{
    struct panel w = {.w = (const char *)packed,
                      .type = type,
                      .block_bytes = pack_block_bytes(type, IN),
                      .blocks = BLOCKS,
                      .kc = IN,
                      .last_k = true};
    for (size_t p = 0; p < SCALE_KINDS; p++)
        w.scales[p] = packed + pack_scales_at(type, IN, p);
    return w;
}

static void test_type(const struct kernels *plain, enum dtype type)
{
    const size_t bytes = dtype_row_bytes(type, IN);
    unsigned char *rows = mem_alloc(OUT, bytes),
                  *packed = mem_alloc(1, layout_bytes(LAYOUT_PACKED, type, OUT, IN));
    static float y[PANEL_WIDTH], got[IN * NR], want[IN];
    size_t wrong = 0;
    for (size_t o = 0; o < OUT; o++)
        random_row(type, rows + o * bytes);
    draw_activations();
    pack_rows(packed, IN, rows, IN, OUT, IN, type);
    const struct panel w = panel_of(type, packed);
    const struct int8_rows x = {.q = codes, .scale = scales, .sum = sums, .row_bytes = sizeof codes};
    plain->panel_int8(y, &x, 1, &w);
    for (size_t o = 0; o < OUT; o++) {
        const float sum = want_sum(type, rows + o * bytes);
        wrong += memcmp(&sum, &y[o], sizeof sum) != 0;
    }
    check(wrong == 0, "%s: %zu of %d sums differ", dtype_name(type), wrong, OUT);
    wrong = 0;
    for (size_t block = 0; block < BLOCKS; block++) {
        plain->dequantize_block(got, &w, block, 0, IN);
        for (size_t o = 0; o < NR; o++) {
            dequantize(want, type, rows + (block * NR + o) * bytes, IN);
            for (size_t k = 0; k < IN; k++)
                wrong += want[k] != got[k * NR + o];
        }
    }
    check(wrong == 0, "%s: %zu weights differ in f32", dtype_name(type), wrong);
    free(rows), free(packed);
}

int main(void)
{
    size_t types = 0;
    state = check_state(check_seed(1));
    kernels_setup();
    for (enum dtype type = DTYPE_Q8_0; type < DTYPE_COUNT; type++)
        if (quant_has_grid(type)) {
            test_type(kernel_sets[0], type); /* plain C */
            types++;
        }
    check(types >= 7, "only %zu types", types);
    return check_result();
}
