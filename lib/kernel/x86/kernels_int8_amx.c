/* AMX-INT8: tdpbsud adds the product of a tile of activations (signed bytes) and a tile of weights
 * (unsigned bytes) to a 16 x 16 tile of int32 sums.
 *
 * Tiles are faster only if sums stay in them over all inputs: DTYPE_Q8_CHANNEL, one scale per
 * output. With a scale per group, sums are needed in vector registers after every 16 or 32
 * inputs; storing and reloading tiles takes longer than the products save. So other types, and
 * products of few rows, use the kernel set vnni. Results are bitwise the same either way, as
 * integer sums are exact. */
#ifdef AMX_HEADER
#include "kernel/x86/amx_tiles.h"
#define VW              4
#define vf_fma(a, b, c) four_fma(a, b, c)
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)
#else
#include "kernel/x86/avx512_begin.h"
#include "kernel/x86/amx_tiles.h"
#endif
#include "kernel/template/row_scale.h"

extern const struct kernels kernels_vnni, kernels_int8_amx;

/* MIN_ROWS: with fewer activation rows the set vnni is faster; TILE_K: inputs of a full tile */
enum { MIN_ROWS = 16, TILE_K = 64 };

/* Tile configuration for k inputs: tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights. */
#define CONFIG(k)                                                                                      \
    {                                                                                                  \
        .palette = 1, .row_bytes = {64, 64, 64, 64, (k), (k), 64, 64}, .rows = {                       \
            [0 ... 5] = AMX_ROWS,                                                                      \
            [6 ... 7] = (k) / 4                                                                        \
        }                                                                                              \
    }
static const struct tile_config full_tiles = CONFIG(TILE_K), qtile_tiles = CONFIG(QK_GROUP);

/* Operands of a product of 2 x 2 tiles: 32 activation rows and two weight blocks. Where there are
 * only 16 rows or one block, the second 16 rows or block repeat the first. */
struct square {
    int32_t *y[2];
    const int8_t *x[2];
    size_t row_bytes;
    const unsigned char *w[2];
    size_t block_columns; /* distance between the two blocks' sums in y */
};

enum { Y_BYTES = PANEL_WIDTH * sizeof(int32_t) };

/* A compiler barrier: gcc does not know that tile loads read memory. */
static void end_stores(void) { __asm__ volatile("" ::: "memory"); }

static void load_square(const struct square *s, bool accumulate)
{
    if (!accumulate) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, s->y[0], Y_BYTES);
    _tile_loadd(1, s->y[0] + s->block_columns, Y_BYTES);
    _tile_loadd(2, s->y[1], Y_BYTES);
    _tile_loadd(3, s->y[1] + s->block_columns, Y_BYTES);
}

static void store_square(const struct square *s)
{
    _tile_stored(0, s->y[0], Y_BYTES);
    _tile_stored(1, s->y[0] + s->block_columns, Y_BYTES);
    _tile_stored(2, s->y[1], Y_BYTES);
    _tile_stored(3, s->y[1] + s->block_columns, Y_BYTES);
}

/* Adds to the 2 x 2 tiles of sums the products of one tile of inputs, from input k on. */
static void multiply_square(const struct square *s, size_t k)
{
    _tile_loadd(4, s->x[0] + k, s->row_bytes);
    _tile_loadd(6, s->w[0] + k * NR, PACK_LINE);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, s->w[1] + k * NR, PACK_LINE);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, s->x[1] + k, s->row_bytes);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
}

/* Multiplies 32 activation rows by two weight blocks over all inputs of the panel, TILE_K at a
 * time; 32 inputs that are left over use a narrower tile configuration. */
static void run_square(const struct square *s, const struct panel *w, struct panel_prefetch prefetch)
{
    const size_t full = w->kc / TILE_K * TILE_K;
    end_stores();
    load_square(s, w->accumulate);
    for (size_t k = 0; k < full; k += TILE_K) {
        prefetch_next(&prefetch, k * NR, TILE_K * NR);
        multiply_square(s, k);
    }
    if (full < w->kc) {
        store_square(s);
        end_stores();
        tiles_set(&qtile_tiles);
        prefetch_next(&prefetch, full * NR, QK_GROUP * NR);
        load_square(s, true);
        multiply_square(s, full);
    }
    store_square(s);
    if (full < w->kc)
        tiles_set(&full_tiles);
}

/* Corrects int32 products for the weights' zero point: subtracts zero_point * (sum of the row's
 * int8 activations) from every product of an activation row. */
static void subtract_zero_points(int32_t *y, const struct int8_rows *x, size_t rows,
                                 const struct panel *w)
{
    const size_t all = (w->k_begin + w->kc) / QK_HALF;
    for (size_t i = 0; i < rows; i++, y += PANEL_WIDTH) {
        const int32_t *sum = row_at(x, i, 0).sum - w->k_begin / QK_HALF;
        uint32_t total = 0;
        for (size_t n = 0; n < all; n++)
            total += (uint32_t)sum[n];
        const vi correction = vi_set1((int32_t)(total * quant_types[DTYPE_Q8_CHANNEL].zero_point));
        for (size_t o = 0; o < w->blocks * NR; o += VW)
            vf_store((float *)(void *)(y + o), (vf)((vi)vu_load(y + o) - correction));
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t tiles = div_up(rows, 2 * AMX_ROWS) * div_up(w->blocks, 2);
    int32_t *sums = (void *)y;
    size_t tile = 0;
    if (w->type != DTYPE_Q8_CHANNEL || rows < MIN_ROWS) {
        kernels_vnni.panel_int8(y, x, rows, w);
        return;
    }
    tiles_set(&full_tiles);
    for (size_t i = 0; i < rows; i += 2 * AMX_ROWS)
        for (size_t c = 0; c < w->blocks; c += 2) {
            const size_t low = rows - i > AMX_ROWS ? i + AMX_ROWS : i, right = c + 1 < w->blocks;
            const struct square s = {
                .y = {sums + i * PANEL_WIDTH + c * NR, sums + low * PANEL_WIDTH + c * NR},
                .x = {row_at(x, i, 0).q, row_at(x, low, 0).q},
                .row_bytes = x->row_bytes,
                .w = {qtile_at(DTYPE_Q8_CHANNEL, w, c, 0), qtile_at(DTYPE_Q8_CHANNEL, w, c + right, 0)},
                .block_columns = right * NR,
            };
            run_square(&s, w, panel_prefetch_of(w, tile++, tiles));
        }
    end_stores();
    if (w->last_k) {
        subtract_zero_points(sums, x, rows, w);
        channel_epilogue(y, x, rows, w);
    }
}

static size_t int8_mr(enum dtype type, size_t rows)
{
    return type == DTYPE_Q8_CHANNEL && rows >= MIN_ROWS ? 0 : kernels_vnni.int8_mr(type, rows);
}

const struct kernels kernels_int8_amx = {
    .base = &kernels_vnni, .panel_int8 = panel_int8, .int8_mr = int8_mr};
