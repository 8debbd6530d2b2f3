/* quant_rows.c, which quantises KV entries, must equal quant_types.c bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/cache_types.h"
#include "quant/kv_entries.h"
#include "quant/quant_types.h"
#include "quant/quantize.h"
#include "quant/quant_rows.h"
#include "tests/unit/check.h"

enum { MOST = 300 };

static unsigned seed = 1;

static float draw(void) { return (float)rand_r(&seed) / (float)RAND_MAX * 2 - 1; }

/* Draws a row of values: of similar or very different size, denormals, zeros, or rounding ties. */
static void draw_row(float *x, size_t n, int kind)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = kind == 0   ? draw()
               : kind == 1 ? (float)(rand_r(&seed) % 255) - 127
               : kind == 2 ? draw() * expf(10 * draw())
               : kind == 3 ? 0
               : kind == 4 ? draw() * 1e-43f
                           : 3 + draw() / 100;
        x[i] = rand_r(&seed) % 9 ? x[i] : 0;
    }
}

static void test_row(enum dtype type, size_t n, int kind)
{
    float x[MOST], wide[MOST], want_wide[MOST];
    unsigned char row[2 * MOST + 64], want[2 * MOST + 64];
    const size_t bytes = dtype_row_bytes(type, n);
    memset(row, 0x55, sizeof row);
    memset(want, 0x55, sizeof want);
    draw_row(x, n, kind);
    quantize_nearest(want, type, x, n);
    check(quant_rows_quantize(row, type, x, n) && memcmp(row, want, sizeof row) == 0,
          "%s: %zu values of kind %d", cache_type_name(type), n, kind);
    dequantize(want_wide, type, want, n);
    check(quant_rows_dequantize(wide, type, want, n) && memcmp(wide, want_wide, n * sizeof *wide) == 0,
          "%s: %zu values of kind %d, widened", cache_type_name(type), n, kind);
    check(dtype_finite(type, row, n), "%s: %zu values of kind %d are not finite", cache_type_name(type),
          n, kind);
    check(bytes <= sizeof row && row[bytes] == 0x55, "%s: more than %zu bytes", cache_type_name(type),
          bytes);
}

/* A NaN or infinity in a row stays visible after quantisation. */
static void test_not_finite(enum dtype type, float bad)
{
    float x[40], wide[40];
    unsigned char row[64];
    for (size_t at = 0; at < ARRAY_LEN(x); at++) {
        draw_row(x, ARRAY_LEN(x), 0);
        x[at] = bad;
        dtype_from_f32(row, type, x, ARRAY_LEN(x));
        dtype_to_f32(wide, type, row, ARRAY_LEN(x));
        check(!dtype_finite(type, row, ARRAY_LEN(x)) && !isfinite(wide[at]), "%s: %g at %zu is %g",
              cache_type_name(type), (double)bad, at, (double)wide[at]);
    }
}

static void test_names(void)
{
    enum dtype type = DTYPE_COUNT;
    check(cache_type_find("q8", &type) && type == DTYPE_KV8 && cache_type_find("q4", &type) &&
              type == DTYPE_KV4 && !cache_type_find("q8_0", &type) && !cache_type_name(DTYPE_Q8_0),
          "names of cache types");
    check(cache_type_find("q8_channel", &type) && type == DTYPE_Q8_CHANNEL &&
              cache_type_find("Q4_1", &type) && type == DTYPE_Q4_1 && !cache_type_find("q4_0", &type),
          "aliases of cache types");
}

int main(void)
{
    static const enum dtype types[] = {DTYPE_Q8_CHANNEL, DTYPE_Q4_1};
    test_names();
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (size_t n = 1; n <= MOST; n += n < 70 ? 1 : 23)
            for (int kind = 0; kind < 6; kind++)
                test_row(types[t], n, kind);
        test_not_finite(types[t], NAN);
        test_not_finite(types[t], INFINITY);
        test_not_finite(types[t], -INFINITY);
    }
    return check_result();
}
