/* Types of few bits: rows widened, made, packed, unpacked and fetched, against what few_ref.h makes of the same codes and
 * numbers, and against what a Python script wrote.
 *
 *   test_few FEW_BITS.TXT */
#include <stdlib.h>

#include "few_ref.h"

enum { MOST_BYTES = 1 << 18 };

static struct few_matrix matrix;
static unsigned char rows[MOST_BYTES], packed[MOST_BYTES];
static float values[FEW_MOST_OUT * FEW_MOST_IN];

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
        few_widen(values, type, rows + o * row_bytes, in);
        check(same_values(values, o), "%s, %zu: row %zu has other values", name, in, o);
        check(few_finite(type, rows + o * row_bytes, in), "%s, %zu: values are finite", name, in);
    }
}

static void test_packed(enum dtype type, const char *name)
{
    const size_t in = matrix.in, padded = layout_in(LAYOUT_PACKED, in),
                 row_bytes = put_rows() / matrix.out;
    const size_t bytes = (size_t)(put_packed(packed, &matrix) - packed);
    unsigned char *got = mem_alloc(1, bytes);
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

/* A number that is NaN or infinite is seen in the last group, too. */
static void test_finite(const struct few_ref *r)
{
    const int plane = r->d.bytes ? 2 : 0;
    few_draw(&matrix, r, 1, 300, DRAW_HIGHEST);
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; r->d.bytes && i < ref_numbers(r, p, 300); i++)
            matrix.number[p][0][i] = 1;
    matrix.number[plane][0][ref_numbers(r, plane, 300) - 1] =
        r->type == DTYPE_Q8C ? 0x7f800000 : 0x7c00;
    put_rows();
    check(!few_finite(r->type, rows, 300), "%s: infinity is finite", dtype_name(r->type));
}

/* ---- made ---- */

/* Rows whose largest code is used come back as they were; other values as near as half a step. */
static void test_narrow(const struct few_ref *r, size_t in)
{
    const size_t group = 32;
    const char *name = dtype_name(r->type);
    static float x[FEW_MOST_IN], back[FEW_MOST_IN];
    static unsigned char row[8 * FEW_MOST_IN + 16];
    few_draw(&matrix, r, 1, in, DRAW_ANY);
    for (size_t k = 0; k < in; k++)
        if (!r->low.bytes && matrix.code[0][k] == 0)
            matrix.code[0][k] = 1;
    for (size_t k = 0; k < in; k += group) {
        matrix.code[0][k] = (uint8_t)((1 << r->bits) - 1);
        if (r->low.bytes && k + 1 < in)
            matrix.code[0][k + 1] = 0;
        /* Scales of few digits: the largest value over the largest code is exactly the scale. */
        const float scale = (float)(1 + few_random() % 31) * 0x1p-8f;
        matrix.number[0][0][r->type == DTYPE_Q8C ? 0 : k / group] = f16_from_f32(scale);
        if (r->type == DTYPE_Q8C)
            memcpy(&matrix.number[0][0][0], &scale, sizeof scale);
        if (r->low.bytes)
            matrix.number[1][0][k / group] = f16_from_f32((float)(few_random() % 64) * -0x1p-7f);
    }
    const size_t bytes = put_rows();
    for (size_t k = 0; k < in; k++)
        x[k] = value_of(&matrix, 0, k);
    few_narrow(row, r->type, x, in);
    /* (One value with an offset is an offset of its own.) */
    check((r->low.bytes && in % group == 1) || memcmp(row, rows, bytes) == 0,
          "%s, %zu: a row of codes does not come back", name, in);
    for (size_t k = 0; k < in; k++)
        x[k] = few_uniform() * (k / 32 % 3 == 1 ? 1e-3f : 3);
    few_narrow(row, r->type, x, in);
    few_widen(back, r->type, row, in);
    double worst = 0;
    for (size_t k = 0; k < in; k++) {
        /* Half a step, and what f16 rounds off scale and offset: 2^-11 of up to 128 steps, and of the value. */
        const double step = fabsf(few_row_values(r->type, row, in, k).step);
        const double most = step * (0.5 + 128 * 0x1p-11) + 3 * 0x1p-11;
        worst = fmax(worst, fabs((double)back[k] - x[k]) / most);
    }
    check(worst < 1, "%s, %zu: %g times as far off as half a step", name, in, worst);
    memset(x, 0, sizeof x);
    few_narrow(row, r->type, x, in);
    few_widen(back, r->type, row, in);
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

/* A matrix of the file: its rows, their values, the packed form. */
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
        few_widen(values, type, rows + o * row_bytes, in);
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
        enum dtype type = DTYPE_F32;
        while (type < DTYPE_COUNT && strcmp(dtype_name(type), name) != 0)
            type++;
        if (!check(dtype_few_bits(type) && type < DTYPE_COUNT &&
                       test_script_matrix(file, type, out, in),
                   "%s: matrix %zu (%s)", path, found, name))
            break;
        found++;
    }
    check(found == ARRAY_LEN(few_refs) && feof(file), "%s has %zu matrices", path, found);
    fclose(file);
}

int main(int argc, char **argv)
{
    static const size_t ins[] = {1, 32, 33, 48, 100, 256, 300};
    if (argc != 2)
        return fprintf(stderr, "usage: test_few FEW_BITS.TXT\n"), 2;
    few_state = check_state(check_seed(1));
    check(ARRAY_LEN(few_refs) == DTYPE_COUNT - DTYPE_Q8, "a type without a test");
    for (size_t t = 0; t < ARRAY_LEN(few_refs); t++) {
        const struct few_ref *r = &few_refs[t];
        for (size_t i = 0; i < ARRAY_LEN(ins); i++) {
            few_draw(&matrix, r, (size_t[]){1, 3, 16, 17, 33}[(t + i) % 5], ins[i], DRAW_ANY);
            test_rows(r->type, dtype_name(r->type));
            test_packed(r->type, dtype_name(r->type));
            if (!r->d.bytes)
                test_narrow(r, ins[i]);
        }
        test_finite(r);
    }
    test_script(argv[1]);
    return check_result();
}
