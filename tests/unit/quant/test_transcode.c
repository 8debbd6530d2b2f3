/* Lossless transcoding and packing of GGUF blocks. test_transcode FILE: blocks of every type, against
 * the values that gguf's Python functions give (make_gguf.py), bit for bit except for the sign of
 * 0. test_transcode MODEL.bmc OTHER.bmc: all values of two models. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "tests/unit/check.h"
#include "format/gguf/block_types.h"
#include "model/forward.h"
#include "model/weight_kinds.h"

struct head {
    char name[8];
    uint32_t blocks, bytes, elements;
};

enum { ROWS = 19, BLOCKS_A_ROW = 3, MOST = BLOCKS_A_ROW * BLOCK_MAX_ELEMENTS };

struct sample {
    enum dtype type;
    struct head head;
    const unsigned char *blocks;
    const unsigned char *want; /* f32 values of the blocks' elements */
};

static enum dtype find(const char name[8])
{
    int i = 0;
    while (i < SOURCE_OTHER && !(block_types[i].name && strncmp(block_types[i].name, name, 8) == 0))
        i++;
    return (enum dtype)i;
}

static void wanted(const struct sample *s, size_t block, float *to)
{
    memcpy(to, s->want + 4 * block * s->head.elements, 4 * (size_t)s->head.elements);
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static size_t differing(const float *a, const float *b, size_t n)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        wrong += !(a[i] == b[i]); /* 0 equals -0, NaN equals nothing */
    return wrong;
}

/* Transcodes each block as a row of its own: checks its values, and whether it is called finite. */
static size_t test_single(const struct sample *s, bool *finite)
{
    unsigned char row[2 * BLOCK_MAX_ELEMENTS];
    float want[BLOCK_MAX_ELEMENTS], got[BLOCK_MAX_ELEMENTS];
    const size_t n = s->head.elements;
    size_t wrong = 0, misjudged = 0, refused = 0;
    for (size_t b = 0; b < s->head.blocks; b++) {
        wanted(s, b, want);
        /* scales of MXFP4 above 2^103 count as infinite, as products with them may overflow */
        finite[b] =
            all_finite(want, n) && (s->type != DTYPE_MXFP4 || s->blocks[b * s->head.bytes] <= 231);
        memset(row, 0xee, sizeof row);
        block_types[s->type].transcode(row, s->blocks + b * s->head.bytes, n);
        dequantize(got, s->type, row, n);
        wrong += finite[b] ? differing(got, want, n) : 0;
        misjudged += quant_finite(s->type, row, n) != finite[b];
        refused += !finite[b];
        const size_t end = dtype_row_bytes(s->type, n);
        misjudged += end + 1 < sizeof row && row[end] != 0xee;
    }
    check(wrong == 0, "%s as %s: %zu elements differ", s->head.name, dtype_name(s->type), wrong);
    check(misjudged == 0, "%s as %s: %zu blocks are called finite wrongly, or written beyond",
          s->head.name, dtype_name(s->type), misjudged);
    return refused;
}

/* Packs rows of several finite blocks, then fetches rows and unpacks them again. */
static void test_packed(const struct sample *s, const bool *finite)
{
    const size_t n = BLOCKS_A_ROW * s->head.elements, row_bytes = dtype_row_bytes(s->type, n);
    unsigned char *blocks = mem_zalloc(ROWS, n * 4), *rows = mem_zalloc(ROWS, row_bytes),
                  *again = mem_zalloc(ROWS, row_bytes);
    float *want = mem_zalloc(ROWS * n, sizeof *want), got[MOST];
    const struct mat mat = {.dtype = s->type,
                            .layout = LAYOUT_PACKED,
                            .out = ROWS,
                            .in = n,
                            .in_padded = n,
                            .data = mem_zalloc(1, layout_bytes(LAYOUT_PACKED, s->type, ROWS, n))};
    for (size_t i = 0, b = 0; i < ROWS * BLOCKS_A_ROW; i++, b++) {
        while (!finite[b % s->head.blocks])
            b++;
        memcpy(blocks + i * s->head.bytes, s->blocks + b % s->head.blocks * s->head.bytes,
               s->head.bytes);
        wanted(s, b % s->head.blocks, want + i * s->head.elements);
    }
    size_t wrong = 0;
    for (size_t r = 0; r < ROWS; r++) {
        block_types[s->type].transcode(rows + r * row_bytes, blocks + r * BLOCKS_A_ROW * s->head.bytes,
                                       n);
        dequantize(got, s->type, rows + r * row_bytes, n);
        wrong += differing(got, want + r * n, n);
    }
    pack_rows((void *)(uintptr_t)mat.data, n, rows, n, ROWS, n, s->type);
    for (size_t r = 0; r < ROWS; r++) {
        mat_fetch_row(got, &mat, r);
        wrong += differing(got, want + r * n, n);
    }
    check(wrong == 0, "%s: %zu elements of rows of %d blocks differ", s->head.name, wrong,
          BLOCKS_A_ROW);
    for (size_t r = 0; r < ROWS; r += PACK_OUT)
        unpack_block(again + r * row_bytes,
                     (const char *)mat.data + r / PACK_OUT * pack_block_bytes(s->type, n), n,
                     size_min(PACK_OUT, ROWS - r), n, s->type);
    check(memcmp(again, rows, ROWS * row_bytes) == 0, "%s: unpacked rows differ", s->head.name);
    free(blocks), free(rows), free(again), free(want), free((void *)(uintptr_t)mat.data);
}

static void test_file(const struct file_map *map)
{
    bool seen[SOURCE_OTHER] = {false}, finite[256];
    size_t refused = 0;
    for (const unsigned char *at = map->data; at < map->data + map->size;) {
        struct sample s;
        memcpy(&s.head, at, sizeof s.head);
        s.type = find(s.head.name);
        if (!check(s.type < SOURCE_OTHER && s.head.blocks <= 256, "%.8s: not known", s.head.name))
            return;
        s.blocks = at + sizeof s.head;
        s.want = s.blocks + (size_t)s.head.blocks * s.head.bytes;
        seen[s.type] = true;
        if (dtype_is_quantized(s.type)) {
            refused += test_single(&s, finite);
            test_packed(&s, finite);
        }
        at = s.want + 4 * (size_t)s.head.blocks * s.head.elements;
    }
    check(refused > 20, "only %zu blocks are not finite", refused);
    for (int i = 0; i < SOURCE_OTHER; i++)
        check(seen[i] == (block_types[i].name != NULL) &&
                  (block_types[i].elements == 1) != dtype_is_quantized((enum dtype)i),
              "%s: no blocks of it, or stored as %s", block_types[i].name,
              dtype_name(block_types[i].stored));
}

/* ---- packing: all types, also those that GGUF types are not transcoded to, and odd sizes ---- */

static uint64_t state;

static uint32_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* The values of a row by the formula of quant_types.h. */
static void defined(float *to, enum dtype type, const unsigned char *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct quant_scale v = quant_row_scale(type, row, n, i);
        const unsigned integer = quant_integer(type, quant_row_q(type, row, i));
        to[i] = fmaf(v.scale, (float)((int)integer - quant_types[type].zero_point), v.min);
    }
}

/* Random bytes are units of grids; those of ternary types are digits. */
static void random_q(enum dtype type, unsigned char *row, size_t n)
{
    const unsigned most = (1u << quant_types[type].bits) - 1;
    for (size_t i = 0; i < (quant_has_grid(type) ? quant_row_q_bytes(type, n) : n); i++)
        if (quant_has_grid(type))
            row[i] = (unsigned char)draw();
        else
            quant_row_set_q(type, row, i, quant_types[type].ternary ? draw() % 3 : draw() & most);
}

/* A random row whose scales are finite. */
static void random_row(enum dtype type, unsigned char *row, size_t n)
{
    memset(row, 0, dtype_row_bytes(type, n));
    random_q(type, row, n);
    for (size_t p = 0; p < SCALE_KINDS; p++)
        for (size_t i = 0; i < scale_count(quant_types[type].scales[p], n); i++) {
            const size_t bytes = quant_types[type].scales[p].bytes;
            const uint32_t number = draw() & 0x3f7f3bffu; /* never infinite or NaN */
            memcpy(row + quant_row_scales_at(type, n, p) + i * bytes, &number, bytes);
        }
}

static void test_size(enum dtype type, size_t n_rows, size_t n)
{
    const size_t bytes = dtype_row_bytes(type, n), padded = round_up(n, PACK_IN);
    const size_t packed = layout_bytes(LAYOUT_PACKED, type, n_rows, n);
    unsigned char *rows = mem_alloc(n_rows, bytes), *again = mem_alloc(PACK_OUT, bytes),
                  *block = mem_alloc(1, packed);
    float *want = mem_alloc(n, sizeof *want), *got = mem_alloc(n, sizeof *got);
    const struct mat mat = {type, LAYOUT_PACKED, n_rows, n, padded, block};
    size_t wrong = 0;
    for (size_t r = 0; r < n_rows; r++)
        random_row(type, rows + r * bytes, n);
    memset(block, 0xee, packed);
    pack_rows(block, padded, rows, n, n_rows, n, type);
    for (size_t r = 0; r < n_rows; r++) {
        const size_t from = draw() % n, part = draw() % (n - from) + 1;
        defined(want, type, rows + r * bytes, n);
        dequantize(got, type, rows + r * bytes, n);
        wrong += differing(got, want, n);
        mat_fetch_row(got, &mat, r);
        wrong += differing(got, want, n);
        mat_fetch(got, &mat, r, from, part);
        wrong += differing(got, want + from, part);
        if (r % PACK_OUT == 0) {
            const size_t some = size_min(PACK_OUT, n_rows - r);
            unpack_block(again, block + r / PACK_OUT * pack_block_bytes(type, padded), padded, some, n,
                         type);
            wrong += memcmp(again, rows + r * bytes, some * bytes) != 0;
        }
    }
    check(wrong == 0, "%s, %zu rows of %zu: %zu elements or blocks differ", dtype_name(type), n_rows, n,
          wrong);
    free(rows), free(again), free(block), free(want), free(got);
}

/* Packing writes zeros to padding, whatever was in memory. */
static void test_padding(enum dtype type)
{
    enum { PADDED = 64 };
    const size_t in = quant_has_grid(type) ? 32 : 40; /* units of grids are whole */
    static unsigned char zeros[PACK_OUT * PADDED * 4], block[PACK_OUT * PADDED * 4];
    unsigned char row[PADDED * 4];
    const size_t bytes = pack_block_bytes(type, PADDED);
    size_t codes = 0, lanes = 0;
    unsigned char again[PACK_OUT][PADDED * 4] = {{0}};
    random_row(type, row, in);
    memset(block, 0xee, sizeof block);
    pack_rows(block, PADDED, row, in, 1, in, type);
    unpack_block(again, block, PADDED, PACK_OUT, PADDED, type);
    const unsigned char *rest = again[0] + dtype_row_bytes(type, PADDED);
    for (size_t i = 0; i < (PACK_OUT - 1) * dtype_row_bytes(type, PADDED); i++)
        lanes += rest[i] != 0;
    memset(row, 0, sizeof row);
    pack_rows(zeros, PADDED, row, in, 1, in, type);
    for (size_t i = 0; i < bytes; i++)
        codes += zeros[i] != 0;
    check(lanes == 0 && codes == 0, "%s: %zu bytes of padding are not zero", dtype_name(type),
          lanes + codes);
}

/* ---- models ---- */

static struct mat mat_of(const struct bmc_file *file, const struct bmc_tensor *tensor)
{
    return (struct mat){tensor->dtype,
                        tensor->layout,
                        (size_t)tensor->shape[0],
                        (size_t)tensor->shape[1],
                        (size_t)tensor->padded[1],
                        file->map.data + tensor->offset};
}

static void compare_tensors(const char *name, const struct mat *a, const struct mat *b)
{
    float *x = mem_alloc(a->in, sizeof *x), *y = mem_alloc(a->in, sizeof *y);
    size_t wrong = 0;
    for (size_t row = 0; row < a->out; row++) {
        mat_fetch_row(x, a, row);
        mat_fetch_row(y, b, row);
        wrong += differing(x, y, a->in);
    }
    check(wrong == 0, "%s: %zu values differ", name, wrong);
    free(x), free(y);
}

/* The weight bytes of a forward pass are those of all tensors except the embedding table, each by
 * its own type. */
static void test_step_bytes(const char *path)
{
    struct model *model;
    struct err err;
    struct op_counts counts;
    size_t want = 0, most = 0, macs = 0, by_type[DTYPE_COUNT] = {0};
    if (!check(model_open(&model, path, &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0; i < model->file.n_names; i++) {
        const struct bmc_name *name = &model->file.name[i];
        const struct mat mat = mat_of(&model->file, &model->file.tensor[name->tensor]);
        if (strncmp(model->file.text + name->text, "embed.weight", name->len) == 0)
            continue;
        const size_t bytes =
            mat.in == 1 ? 4 * mat.out
                        : mat.out * (dtype_is_quantized(mat.dtype)
                                         ? pack_q_bytes(mat.dtype, mat.in) / PACK_OUT +
                                               quant_row_scales_at(mat.dtype, mat.in, SCALE_KINDS) -
                                               quant_row_q_bytes(mat.dtype, mat.in)
                                         : mat.in * dtype_size(mat.dtype));
        want += bytes;
        by_type[mat.dtype] += mat.in == 1 ? 0 : bytes;
    }
    for (size_t type = 0; type < DTYPE_COUNT; type++)
        most = size_max(most, by_type[type]);
    check(model_counts(&counts, model, &(struct cache_types){.all = {DTYPE_F32, DTYPE_F32}}, &err) ==
                  0 &&
              counts.weight_bytes == want,
          "%s: %zu bytes a step, not %zu", path, counts.weight_bytes, want);
    for (size_t class = 0; class < WEIGHTS_CLASSES; class ++)
        macs += counts.row_macs[class];
    check(config_layer_macs(&model->config) == macs, "%s: %zu multiply-adds in layers, not %zu", path,
          config_layer_macs(&model->config), macs);
    check(by_type[model_weight_type(model)] == most, "%s: most weights are not %s", path,
          dtype_name(model_weight_type(model)));
    model_close(model);
}

static int compare_models(const char *path, const char *other)
{
    struct bmc_file a = {0}, b = {0};
    struct err err;
    if (!check(bmc_file_open(&a, path, &err) == 0 && bmc_file_open(&b, other, &err) == 0, "%s",
               err.text))
        return check_result();
    for (size_t i = 0; i < a.n_names; i++) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)a.name[i].len, a.text + a.name[i].text);
        const struct bmc_tensor *tensor = bmc_file_find(&b, name);
        const struct mat mat = mat_of(&a, &a.tensor[a.name[i].tensor]);
        if (!check(tensor && tensor->shape[0] == mat.out && tensor->shape[1] == mat.in,
                   "%s: not in both", name))
            continue;
        const struct mat same = mat_of(&b, tensor);
        compare_tensors(name, &mat, &same);
    }
    bmc_file_release(&a);
    bmc_file_release(&b);
    test_step_bytes(path);
    test_step_bytes(other);
    return check_result();
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1, 15, 16, 31, 32, 33, 64, 70, 255, 256, 261, 544};
    struct file_map map;
    struct err err;
    if (argc == 3)
        return compare_models(argv[1], argv[2]);
    if (argc != 2 || file_map(&map, argv[1], &err) < 0)
        return 1;
    state = check_state(check_seed(1));
    test_file(&map);
    for (int type = DTYPE_Q8_0; type < DTYPE_COUNT; type++) {
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
            test_size((enum dtype)type, i % 2 ? 17 : 5,
                      quant_has_grid((enum dtype)type) ? round_up(sizes[i], QK_GROUP) : sizes[i]);
        test_padding((enum dtype)type);
    }
    file_unmap(&map);
    return check_result();
}
