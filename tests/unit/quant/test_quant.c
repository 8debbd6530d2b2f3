/* Quantised types: rows are dequantised, quantised, packed, unpacked and fetched. Results are
 * compared with quant_ref.h, and with values written by a Python script.
 *
 *   test_quant QUANT_BITS.TXT */
#include <stdlib.h>

#include "quant/quantize.h"
#include "tests/unit/quant_ref.h"

enum { MOST_BYTES = 1 << 18 };

static struct quant_matrix matrix;
static unsigned char rows[MOST_BYTES], packed[MOST_BYTES];
static float values[QUANT_MOST_OUT * QUANT_MOST_IN];

static bool same_values(const float *got, size_t o)
{
    bool same = true;
    for (size_t k = 0; k < matrix.in; k++) {
        const float want = value_of(&matrix, o, k);
        same &= memcmp(&got[k], &want, sizeof want) == 0;
    }
    return same;
}

/* ---- both forms ---- */

static size_t put_rows(void)
{
    unsigned char *at = rows;
    for (size_t o = 0; o < matrix.out; o++)
        at = put_row(at, &matrix, o);
    return (size_t)(at - rows);
}

static void test_rows(enum dtype type, const char *name)
{
    const size_t in = matrix.in, row_bytes = put_rows() / matrix.out;
    check(row_bytes == dtype_row_bytes(type, in), "%s, %zu: a row has %zu bytes, not %zu", name, in,
          dtype_row_bytes(type, in), row_bytes);
    for (size_t o = 0; o < matrix.out; o++) {
        dequantize(values, type, rows + o * row_bytes, in);
        check(same_values(values, o), "%s, %zu: row %zu has other values", name, in, o);
        check(quant_finite(type, rows + o * row_bytes, in), "%s, %zu: values are finite", name, in);
    }
}

static void test_packed(enum dtype type, const char *name)
{
    const size_t in = matrix.in, padded = layout_in(LAYOUT_PACKED, in),
                 row_bytes = put_rows() / matrix.out;
    const size_t bytes = (size_t)(put_packed(packed, &matrix) - packed);
    unsigned char *got = mem_alloc(1, MOST_BYTES);
    memset(got, 0x55, bytes);
    check(layout_bytes(LAYOUT_PACKED, type, matrix.out, in) == bytes, "%s, %zu: %zu bytes, not %zu",
          name, in, layout_bytes(LAYOUT_PACKED, type, matrix.out, in), bytes);
    pack_rows(got, padded, rows, in, matrix.out, in, type);
    check(memcmp(got, packed, bytes) == 0, "%s, %zu x %zu: packed otherwise", name, matrix.out, in);
    for (size_t o = 0; o < matrix.out; o += 16) {
        const size_t many = size_min(16, matrix.out - o);
        memset(got, 0x55, bytes);
        unpack_block(got, packed + o / 16 * pack_block_bytes(type, padded), padded, many, in, type);
        check(memcmp(got, rows + o * row_bytes, many * row_bytes) == 0,
              "%s, %zu x %zu: unpacked otherwise", name, matrix.out, in);
    }
    const struct mat w = {type, LAYOUT_PACKED, matrix.out, in, padded, packed};
    for (size_t o = 0; o < matrix.out; o += 7) {
        mat_fetch_row(values, &w, o);
        check(same_values(values, o), "%s, %zu: output %zu is fetched otherwise", name, in, o);
        mat_fetch(values + in / 3, &w, o, in / 3, in - in / 3);
        check(same_values(values, o), "%s, %zu: part of output %zu is fetched otherwise", name, in, o);
    }
    free(got);
}

/* A scale that is NaN or infinite is found, even that of the last group. */
static void test_finite(const struct quant_ref *r)
{
    const int plane = r->d.bytes ? 2 : 0;
    quant_draw(&matrix, r, 1, 300, DRAW_HIGHEST);
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; r->d.bytes && i < ref_numbers(r, p, 300); i++)
            matrix.number[p][0][i] = 1;
    matrix.number[plane][0][ref_numbers(r, plane, 300) - 1] = r->power                      ? 255
                                                              : r->type == DTYPE_Q8_CHANNEL ? 0x7f800000
                                                                                            : 0x7c00;
    put_rows();
    check(!quant_finite(r->type, rows, 300), "%s: infinity is finite", dtype_name(r->type));
}

/* ---- made ---- */

/* Values that are codes times a scale are restored exactly if the largest code occurs; other values
 * to within half a step. */
static void test_narrow(const struct quant_ref *r, size_t in)
{
    const size_t group = 32;
    const char *name = dtype_name(r->type);
    static float x[QUANT_MOST_IN], back[QUANT_MOST_IN];
    static unsigned char row[8 * QUANT_MOST_IN + 16];
    quant_draw(&matrix, r, 1, in, DRAW_ANY);
    for (size_t k = 0; k < in; k++)
        if (!r->low.bytes && matrix.code[0][k] == 0)
            matrix.code[0][k] = 1;
    for (size_t k = 0; k < in; k += group) {
        matrix.code[0][k] = (uint8_t)((1 << r->bits) - 1);
        if (r->low.bytes && k + 1 < in)
            matrix.code[0][k + 1] = 0;
        /* Scales of few bits: the largest value over the largest code is exactly the scale. */
        const float scale = (float)(1 + quant_random() % 31) * 0x1p-8f;
        matrix.number[0][0][r->type == DTYPE_Q8_CHANNEL ? 0 : k / group] = f16_from_f32(scale);
        if (r->type == DTYPE_Q8_CHANNEL)
            memcpy(&matrix.number[0][0][0], &scale, sizeof scale);
        if (r->low.bytes)
            matrix.number[1][0][k / group] = f16_from_f32((float)(1 + quant_random() % 64) * -0x1p-7f);
    }
    const size_t bytes = put_rows();
    for (size_t k = 0; k < in; k++)
        x[k] = value_of(&matrix, 0, k);
    quantize_nearest(row, r->type, x, in);
    /* A group of a single value is stored as its minimum, with any code. */
    check((r->low.bytes && in % group == 1) || memcmp(row, rows, bytes) == 0,
          "%s, %zu: a row of codes does not come back", name, in);
    for (size_t k = 0; k < in; k++)
        x[k] = quant_uniform() * (k / 32 % 3 == 1 ? 1e-3f : 3);
    quantize_nearest(row, r->type, x, in);
    dequantize(back, r->type, row, in);
    double worst = 0;
    for (size_t k = 0; k < in; k++) {
        /* Half a step, and the rounding of scale and minimum to f16: 2^-11 of up to 128 steps, and
         * of the value. */
        const double step = fabsf(quant_row_scale(r->type, row, in, k).scale);
        const double most = step * (0.5 + 128 * 0x1p-11) + 3 * 0x1p-11;
        worst = fmax(worst, fabs((double)back[k] - x[k]) / most);
    }
    check(worst < 1, "%s, %zu: %g times as far off as half a step", name, in, worst);
    memset(x, 0, sizeof x);
    quantize_nearest(row, r->type, x, in);
    dequantize(back, r->type, row, in);
    check(memcmp(x, back, in * sizeof *x) == 0, "%s, %zu: zeros do not stay", name, in);
}

/* ---- the script's ---- */

/* Reads n bytes in hexadecimal after `name`. */
static bool read_hex(FILE *file, const char *name, unsigned char *bytes, size_t n)
{
    char word[16];
    unsigned byte;
    if (fscanf(file, " %15s", word) != 1 || strcmp(word, name) != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (fscanf(file, i ? "%2x" : " %2x", &byte) != 1)
            return false;
        bytes[i] = (unsigned char)byte;
    }
    return true;
}

/* Checks a matrix of the file: the values of its rows, and its packed layout. */
static bool test_script_matrix(FILE *file, enum dtype type, size_t out, size_t in)
{
    static unsigned char wants[MOST_BYTES], got[MOST_BYTES];
    const size_t row_bytes = dtype_row_bytes(type, in), padded = layout_in(LAYOUT_PACKED, in),
                 bytes = layout_bytes(LAYOUT_PACKED, type, out, in);
    const char *name = dtype_name(type);
    for (size_t o = 0; o < out; o++) {
        if (!read_hex(file, "row", rows + o * row_bytes, row_bytes) ||
            !read_hex(file, "values", wants, in * sizeof(float)))
            return false;
        dequantize(values, type, rows + o * row_bytes, in);
        check(memcmp(values, wants, in * sizeof(float)) == 0, "%s of the script: row %zu", name, o);
    }
    if (!read_hex(file, "packed", packed, bytes))
        return false;
    pack_rows(got, padded, rows, in, out, in, type);
    return check(memcmp(got, packed, bytes) == 0, "%s of the script: packed otherwise", name);
}

static void test_script(const char *path)
{
    FILE *file = fopen(path, "r");
    char name[16];
    size_t out, in, found = 0;
    if (!check(file != NULL, "%s cannot be read", path))
        return;
    while (fscanf(file, " matrix %15s %zu %zu", name, &out, &in) == 3) {
        enum dtype type;
        if (!check(dtype_parse(name, &type) && dtype_is_quantized(type) &&
                       test_script_matrix(file, type, out, in),
                   "%s: matrix %zu (%s)", path, found, name))
            break;
        found++;
    }
    check(found == ARRAY_LEN(quant_refs) && feof(file), "%s has %zu matrices", path, found);
    fclose(file);
}

/* Random values, quantised for synthetic weights: a row has its own bytes alone, and finite values near the
 * given ones. Types with a grid get any points. */
static void test_drawn(enum dtype type, size_t in)
{
    enum { GUARD = 64 };
    const char *name = dtype_name(type);
    const size_t bytes = dtype_row_bytes(type, in);
    unsigned char *row = mem_alloc(1, bytes + GUARD);
    float *x = mem_alloc(in, sizeof *x), most = 0, worst = 0;
    for (size_t k = 0; k < in; k++) {
        x[k] = quant_uniform() / 32;
        most = fmaxf(most, fabsf(x[k]));
    }
    memset(row, 0x55, bytes + GUARD);
    dtype_from_f32(row, type, x, in);
    for (size_t i = 0; i < GUARD; i++)
        check(row[bytes + i] == 0x55, "%s, %zu: byte %zu behind the row was written", name, in, i);
    check(quant_finite(type, row, in), "%s, %zu: drawn values are not finite", name, in);
    dequantize(values, type, row, in);
    for (size_t k = 0; k < in; k++)
        worst = fmaxf(worst, fabsf(values[k] - x[k]));
    check(quant_has_grid(type) || worst <= .501f * most, "%s, %zu: an error of %g, values to %g", name,
          in, worst, most);
    free(row);
    free(x);
}

static void test_names(void)
{
    static const struct {
        const char *name;
        enum dtype type;
    } old[] = {{"q8", DTYPE_Q8_0},   {"q8c", DTYPE_Q8_CHANNEL}, {"q4", DTYPE_Q4_1},
               {"q4s", DTYPE_Q4_0},  {"q4k", DTYPE_Q4_K},       {"q6k", DTYPE_Q6_K},
               {"q8k", DTYPE_Q8_2L}, {"Q8_0", DTYPE_Q8_0},      {"Q4_K", DTYPE_Q4_K},
               {"BF16", DTYPE_BF16}};
    enum dtype type;
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        check(dtype_parse(dtype_names[i], &type) && type == (enum dtype)i, "name %s", dtype_names[i]);
    for (size_t i = 0; i < ARRAY_LEN(old); i++)
        check(dtype_parse(old[i].name, &type) && type == old[i].type, "alias %s", old[i].name);
    check(!dtype_parse("q8_k", &type) && !dtype_parse("", &type), "no type of that name");
}

int main(int argc, char **argv)
{
    static const size_t ins[] = {1, 32, 33, 48, 100, 256, 300};
    if (argc != 2)
        return fprintf(stderr, "usage: test_quant FEW_BITS.TXT\n"), 2;
    quant_state = check_state(check_seed(1));
    test_names();
    size_t grids = 0; /* of which test_grid_types has tests */
    for (enum dtype type = DTYPE_Q8_0; type < DTYPE_COUNT; type++)
        grids += quant_has_grid(type);
    for (enum dtype type = DTYPE_Q8_0; type < DTYPE_COUNT; type++)
        for (size_t i = 0; i < ARRAY_LEN(ins); i++)
            test_drawn(type, ins[i]);
    check(ARRAY_LEN(quant_refs) + grids == DTYPE_COUNT - DTYPE_Q8_0, "a type without a test");
    for (size_t t = 0; t < ARRAY_LEN(quant_refs); t++) {
        const struct quant_ref *r = &quant_refs[t];
        for (size_t i = 0; i < ARRAY_LEN(ins); i++) {
            quant_draw(&matrix, r, (size_t[]){1, 3, 16, 17, 33}[(t + i) % 5], ins[i], DRAW_ANY);
            test_rows(r->type, dtype_name(r->type));
            test_packed(r->type, dtype_name(r->type));
            if (!r->d.bytes && !r->codebook && !r->power && !r->e4m3 && !r->zeros && r->bits > 2)
                test_narrow(r, ins[i]);
        }
        if (!r->e4m3) /* all are finite */
            test_finite(r);
    }
    test_script(argv[1]);
    return check_result();
}
