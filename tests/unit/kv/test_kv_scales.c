/* Shared scales: entries under every policy against values by hand, also of layers of three sizes, in any order, and of latent attention;
 * files, and what is refused. */
#include <string.h>

#include "kv/kv_scales.h"
#include "quant/quant_rows.h"
#include "tests/unit/cache.h"

enum { LAYERS = 2, KV_HEADS = 2, D = 40, WIDEST = 192, N = 60 };

static const struct hash model_id = {{7, 8, 9}};

/* A different power of two for each range, the distance of neighbouring values. */
static float step_of(size_t layer, bool v, size_t head)
{
    return ldexpf(1, (int)(layer * 5 + v * 3 + head) % 7 - 3);
}

/* Some of these saturate. */
static float value(size_t layer, bool v, size_t head, size_t position, size_t j)
{
    const size_t at = (((layer * 2 + v) * 4 + head) * N + position) * WIDEST + j;
    return step_of(layer, v, head) * (float)((int)(at * 7919 % 1201) - 600) / 4;
}

/* By hand: a multiple of the step. 8 bits: from -127 to 127 of them. 4 bits: from -4 to 11. */
static float rounded(enum dtype type, float x, float step)
{
    const float low = type == DTYPE_Q4_1 ? -4 : -127, high = type == DTYPE_Q4_1 ? 11 : 127;
    return step * fminf(high, fmaxf(low, rintf(x / step)));
}

static struct kv_shape shape_of(enum dtype type, bool sizes)
{
    const struct kv_sizes other[] = {{3, 64, 0, {type, type}},
                                     {KV_HEADS, D, 0, {type, type}},
                                     {1, 96, 0, {type, type}},
                                     {3, 64, 0, {type, type}}};
    struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, N, type);
    for (size_t i = 0; i < ARRAY_LEN(other) && sizes; i++)
        check(kv_shape_add(&shape, other[i]), "layer %zu", i);
    check(shape.n_sizes == (sizes ? 3 : 1), "%zu sizes", shape.n_sizes);
    return shape;
}

/* The text of a file from which the steps above follow. */
static void write_text(struct buf *text, const struct kv_shape *shape, bool scaled_keys)
{
    struct err err;
    struct kv_scales scales = {.n = kv_scales_count(shape)};
    scales.range = calloc(scales.n, sizeof *scales.range);
    for (size_t l = 0; l < shape->layers; l++)
        for (size_t h = 0; h < kv_sizes_of(shape, l)->kv_heads; h++)
            for (size_t v = 0; v < kv_matrices(kv_sizes_of(shape, l)); v++) {
                const float step = step_of(l, v, h);
                scales.range[kv_scales_index(shape, l, v, h)] =
                    shape->sizes[0].type[KV_K] == DTYPE_Q4_1
                        ? (struct kv_extent){-4 * step, 11 * step}
                        : (struct kv_extent){-127 * step, 3 * step};
            }
    check(kv_scales_format(&scales, shape, &model_id, scaled_keys, text, &err) == 0, "%s", err.text);
    kv_scales_release(&scales);
}

static void append(struct kv *kv, size_t rows)
{
    static float k[N * WIDEST], v[N * WIDEST];
    struct err err;
    const struct kv_shape *shape = &kv_setup(kv)->shape;
    const size_t first = kv_seq_info(kv, 0).n;
    check(kv_ensure(kv, 0, rows, &err) == 0, "no room");
    for (size_t l = 0; l < shape->layers; l++) {
        const size_t d = kv_sizes_of(shape, l)->head_dim, width = d * kv_sizes_of(shape, l)->kv_heads;
        for (size_t i = 0; i < rows * width; i++) {
            k[i] = value(l, false, i % width / d, first + i / width, i % d);
            v[i] = value(l, true, i % width / d, first + i / width, i % d);
        }
        cache_append(kv, 0, l, k, v, width);
    }
    kv_commit(kv, 0, rows);
}

static size_t wrong_values(struct kv *kv, size_t layer, bool v, size_t head)
{
    static unsigned char rows[N * (4 * WIDEST + 32)];
    struct err err;
    float x[WIDEST];
    const enum dtype type = kv_setup(kv)->shape.sizes[0].type[KV_K];
    const size_t d = kv_sizes_of(&kv_setup(kv)->shape, layer)->head_dim;
    size_t wrong = 0;
    check(kv_read(kv, 0, layer, v, head, rows, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < N; i++) {
        dtype_to_f32(x, type, rows + i * dtype_row_bytes(type, d), d);
        for (size_t j = 0; j < d; j++)
            wrong += x[j] != rounded(type, value(layer, v, head, i, j), step_of(layer, v, head));
    }
    return wrong;
}

static void test_policy(const char *text, enum dtype type, bool others)
{
    struct err err;
    struct buf file = {0};
    struct kv_spec spec;
    struct kv_scales scales;
    struct kv *kv;
    const struct kv_shape shape = shape_of(type, others);
    size_t wrong = 0;
    write_text(&file, &shape, others);
    if (!check(cache_spec_parse(&spec, text, &err) == 0 &&
                   kv_scales_parse(&scales, file.data, file.len, "file", &shape, &model_id, others,
                                   &err) == 0,
               "%s: %s", text, err.text))
        exit(1);
    spec.scales = &scales;
    if (!check(kv_open(&kv, &spec, &shape, 1, &err) == 0, "%s: %s", text, err.text))
        exit(1);
    check(hash_equal(&kv_setup(kv)->scales, &scales.id), "%s: no id", text);
    kv_scales_release(&scales);
    for (size_t n = 0, rows = 1; n < N; n += rows, rows = size_min(rows * 2, N - n))
        append(kv, rows);
    for (size_t l = 0; l < shape.layers; l++)
        for (size_t h = 0; h < kv_sizes_of(&shape, l)->kv_heads; h++)
            for (size_t v = 0; v < kv_matrices(kv_sizes_of(&shape, l)); v++)
                wrong += wrong_values(kv, l, v, h);
    check(wrong == 0, "%s, type %d, others %d: %zu wrong values", text, (int)type, others, wrong);
    kv_close(kv);
    buf_release(&file);
}

/* Ties go to even; magnitudes outside saturate; NaN stays visible; an empty range is one value. */
static void test_rows(void)
{
    const float x[6] = {2.5f, 3.5f, -127.4f, 200, -300, -0.5f}, q8[6] = {2, 4, -127, 127, -127, 0};
    const float y[6] = {0.5f, 1.5f, -9, 50, 11, -4}, q4[6] = {0, 2, -4, 11, 11, -4};
    float got[6], bad[6] = {0, 0, NAN};
    unsigned char row[64];
    quant_rows_quantize_range(row, DTYPE_Q8_CHANNEL, x, 6, -127, 63);
    dtype_to_f32(got, DTYPE_Q8_CHANNEL, row, 6);
    check(memcmp(got, q8, sizeof q8) == 0, "8 bits");
    quant_rows_quantize_range(row, DTYPE_Q4_1, y, 6, -4, 11);
    dtype_to_f32(got, DTYPE_Q4_1, row, 6);
    check(memcmp(got, q4, sizeof q4) == 0, "4 bits");
    quant_rows_quantize_range(row, DTYPE_Q8_CHANNEL, bad, 6, -1, 1);
    check(!dtype_finite(DTYPE_Q8_CHANNEL, row, 6), "NaN in 8 bits");
    quant_rows_quantize_range(row, DTYPE_Q4_1, bad, 6, -1, 1);
    check(!dtype_finite(DTYPE_Q4_1, row, 6), "NaN in 4 bits");
    quant_rows_quantize_range(row, DTYPE_Q8_CHANNEL, x, 6, 0, 0);
    dtype_to_f32(got, DTYPE_Q8_CHANNEL, row, 6);
    check(got[0] == 0 && got[3] == 0, "zeros in 8 bits");
    quant_rows_quantize_range(row, DTYPE_Q4_1, x, 6, 2, 2);
    dtype_to_f32(got, DTYPE_Q4_1, row, 6);
    check(got[0] == 2 && got[4] == 2, "one value in 4 bits");
}

static void test_refused(const char *lines, const char *want)
{
    struct err err = {0};
    struct kv_scales scales;
    char id[2 * HASH_BYTES + 1], text[512];
    const struct kv_shape shape =
        kv_shape_uniform(1, (struct kv_sizes){.kv_heads = 2, .head_dim = 32}, 9, DTYPE_Q8_CHANNEL);
    hash_hex(&model_id, HASH_BYTES, id);
    snprintf(text, sizeof text, "model_id %s\n%s", id, lines);
    if (strncmp(lines, "model_id", 8) == 0)
        snprintf(text, sizeof text, "%s", lines);
    check(kv_scales_parse(&scales, text, strlen(text), "file", &shape, &model_id,
                          strcmp(want, "other scales") == 0, &err) < 0 &&
              strstr(err.text, want),
          "%s: %s", lines, err.text);
}

/* Ranges of keys without the model's scales are refused. */
static void test_scaled_keys(void)
{
    const struct kv_shape shape = shape_of(DTYPE_Q8_CHANNEL, true);
    for (int written = 0; written < 2; written++)
        for (int needed = 0; needed < 2; needed++) {
            struct err err = {0};
            struct buf file = {0};
            struct kv_scales scales = {0};
            write_text(&file, &shape, written);
            const int rc =
                kv_scales_parse(&scales, file.data, file.len, "file", &shape, &model_id, needed, &err);
            check(rc == (needed && !written ? -1 : 0), "keys scaled: %d, needed: %d: %s", written,
                  needed, err.text);
            check(rc == 0 ||
                      strstr(err.text, "file: was written by an older program, whose keys of this "
                                       "model had other scales: measure them again"),
                  "%s", err.text);
            kv_scales_release(&scales);
            buf_release(&file);
        }
    test_refused("keys plain\n0 0 -1 1 -1 1\n0 1 -1 1 -1 1\n", "had other scales");
}

static void test_caches(void)
{
    struct err err;
    struct kv_spec spec;
    struct kv *kv;
    struct kv_extent range[8] = {{-1, 1}};
    const struct kv_scales scales = {.n = 8, .range = range};
    struct kv_shape shape =
        kv_shape_uniform(2, (struct kv_sizes){.kv_heads = 2, .head_dim = 32}, 9, DTYPE_Q4_1_ROTATED);
    check(cache_spec_parse(&spec, "bmc", &err) == 0, "bmc");
    spec.scales = &scales;
    check(kv_open(&kv, &spec, &shape, 1, &err) < 0 && strstr(err.text, "q8 and q4, not for q4h"), "%s",
          err.text);
    shape.sizes[0].type[KV_K] = shape.sizes[0].type[KV_V] = DTYPE_Q8_CHANNEL;
    shape.sizes[0].kv_heads = 1;
    check(kv_open(&kv, &spec, &shape, 1, &err) < 0 &&
              strstr(err.text, "8 heads of K and V, this cache has 4"),
          "%s", err.text);
}

int main(void)
{
    static const char *const specs[] = {"iterative", "upfront",     "bmc:r=16", "bmc:T=3",
                                        "paged:16",  "reserve:r=5", "segment",  "headwise"};
    static const enum dtype types[] = {DTYPE_Q8_CHANNEL, DTYPE_Q4_1};
    for (size_t i = 0; i < 3 * ARRAY_LEN(specs) * ARRAY_LEN(types); i++) {
        const char *spec = specs[i % ARRAY_LEN(specs)];
        const bool others = i / ARRAY_LEN(specs) / ARRAY_LEN(types) == 1;
        v_in_k = i / ARRAY_LEN(specs) / ARRAY_LEN(types) == 2;
        test_policy(spec, types[i / ARRAY_LEN(specs) % ARRAY_LEN(types)], others);
    }
    v_in_k = false;
    test_rows();
    test_caches();
    test_refused("0 0 -1 1 -1 1\n", "layer 0, head 1 is missing");
    test_refused("0 0 -1 1 -1 1\n0 0 -1 1 -1 1\n", "file:3: layer 0, head 0 is there a second time");
    test_refused("0 2 -1 1 -1 1\n", "no layer 0 with a KV head 2");
    test_refused("1 0 -1 1 -1 1\n", "no layer 1 with a KV head 0");
    test_refused("18446744073709551615 0 -1 1 -1 1\n", "no layer 18446744073709551615");
    test_refused("0 0 -1 1\n", "smallest and largest value of K and of V");
    test_refused("0 0 -1 1 -1 1 2\n", "are expected");
    test_refused("0 0 1 -1 -1 1\n", "are expected");
    test_refused("0 0 -1 nan -1 1\n", "are expected");
    test_refused("0 0 -1 1e9 -1 1\n", "of at most 65504");
    test_refused("0\n", "are expected");
    test_refused("model_id 00\n0 0 -1 1 -1 1\n", "scales of another model");
    test_refused("model_id\n", "scales of another model");
    test_refused("", "layer 0, head 0 is missing");
    test_scaled_keys();
    return check_result();
}
