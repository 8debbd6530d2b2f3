/* AMX-INT8: tdpbsud adds the products of a tile of activations (signed bytes) and a tile of codes (unsigned bytes) to a
 * 16 x 16 tile of int32 sums. A part of the set amx that is compiled by itself.
 *
 * Tiles pay where sums stay in them over the whole depth: q8c, one step per output. Types with a step per group need
 * their sums in vector registers after every 16 or 32 inputs; storing tiles and loading them again took longer than the
 * products saved, so those types, and few rows, use the kernels of the set below. The bits are the same either way: sums of
 * integers are exact. */
#ifdef AMX_HEADER /* a stand-in for machines without tiles */
#include AMX_HEADER
#define VW              4
#define vf_fma(a, b, c) four_fma(a, b, c)
#define vf_max(a, b)    vf_select((a) > (b), a, b)
#define vf_min(a, b)    vf_select((a) < (b), a, b)
#else
#include "kernel/set_512.h"
#endif
#include "kernel/set_vec.h"

#include "kernel/set_lines.h"
#include "kernel/set_whole.h"
#include "kernel/set_tiles.h"

extern const struct kernels kernels_vnni, kernels_int8_amx;

enum { AMX_ROWS = 16, LEAST_ROWS = 16, DEEP = 64 };

struct int8_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 codes: `depth` inputs of 16 rows, and of 16 outputs. */
#define CONFIG(depth)                                                                                  \
    {                                                                                                  \
        .palette = 1, .row_bytes = {64, 64, 64, 64, (depth), (depth), 64, 64}, .rows = {               \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            (depth) / 4,                                                                               \
            (depth) / 4                                                                                \
        }                                                                                              \
    }
static const struct int8_config deep_tiles = CONFIG(DEEP), cell_tiles = CONFIG(FEW_GROUP);

/* 32 rows and two blocks; the second tile of rows, and the second block, may be the first again. */
struct square {
    int32_t *y[2];
    const int8_t *x[2];
    size_t row_bytes;
    const unsigned char *code[2];
    size_t apart; /* columns between the two blocks' sums */
};

enum { Y_BYTES = PANEL_WIDTH * sizeof(int32_t) };

/* gcc does not know that loads of tiles read memory: what was stored before must be there. */
static void end_stores(void) { __asm__ volatile("" ::: "memory"); }

static void load_square(const struct square *s, bool onward)
{
    if (!onward) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, s->y[0], Y_BYTES);
    _tile_loadd(1, s->y[0] + s->apart, Y_BYTES);
    _tile_loadd(2, s->y[1], Y_BYTES);
    _tile_loadd(3, s->y[1] + s->apart, Y_BYTES);
}

/* A tile that repeats another has the same sums. */
static void store_square(const struct square *s)
{
    _tile_stored(0, s->y[0], Y_BYTES);
    _tile_stored(1, s->y[0] + s->apart, Y_BYTES);
    _tile_stored(2, s->y[1], Y_BYTES);
    _tile_stored(3, s->y[1] + s->apart, Y_BYTES);
}

/* Adds the products of inputs from k on, as many as the tiles are deep. */
static void multiply_square(const struct square *s, size_t k)
{
    _tile_loadd(4, s->x[0] + k, s->row_bytes);
    _tile_loadd(6, s->code[0] + k * LANES, PACK_LINE);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, s->code[1] + k * LANES, PACK_LINE);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, s->x[1] + k, s->row_bytes);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
}

/* DEEP inputs at a time; a last cell has tiles of its own. */
static void run_square(const struct square *s, const struct panel *w, struct ahead ahead)
{
    const size_t deep = w->depth / DEEP * DEEP;
    end_stores();
    load_square(s, w->onward);
    for (size_t k = 0; k < deep; k += DEEP) {
        fetch(&ahead, k * LANES, DEEP * LANES);
        multiply_square(s, k);
    }
    if (deep < w->depth) {
        store_square(s);
        end_stores();
        tiles_set(&cell_tiles);
        fetch(&ahead, deep * LANES, FEW_GROUP * LANES);
        load_square(s, true);
        multiply_square(s, deep);
    }
    store_square(s);
    if (deep < w->depth)
        tiles_set(&deep_tiles);
}

/* Codes count from their zero: the sum of a row's own codes, that often, is taken off its sums. */
static void take_off_zeros(int32_t *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t all = (w->from + w->depth) / FEW_HALF;
    for (size_t i = 0; i < rows; i++, y += PANEL_WIDTH) {
        const int32_t *sum = row_at(x, i, 0).sum - w->from / FEW_HALF;
        uint32_t total = 0;
        for (size_t n = 0; n < all; n++)
            total += (uint32_t)sum[n];
        const vi off = vi_set1((int32_t)(total * few_bits[DTYPE_Q8C].zero));
        for (size_t o = 0; o < w->blocks * LANES; o += VW)
            vf_store((float *)(void *)(y + o), (vf)((vi)vu_load(y + o) - off));
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t turns = div_up(rows, 2 * AMX_ROWS) * div_up(w->blocks, 2);
    int32_t *sums = (void *)y;
    size_t turn = 0;
    if (w->type != DTYPE_Q8C || rows < LEAST_ROWS) {
        kernels_vnni.panel_int8(y, x, rows, w);
        return;
    }
    tiles_set(&deep_tiles);
    for (size_t i = 0; i < rows; i += 2 * AMX_ROWS)
        for (size_t c = 0; c < w->blocks; c += 2) {
            const size_t low = rows - i > AMX_ROWS ? i + AMX_ROWS : i, right = c + 1 < w->blocks;
            const struct square s = {
                .y = {sums + i * PANEL_WIDTH + c * LANES, sums + low * PANEL_WIDTH + c * LANES},
                .x = {row_at(x, i, 0).code, row_at(x, low, 0).code},
                .row_bytes = x->row_bytes,
                .code = {cell_at(DTYPE_Q8C, w, c, 0), cell_at(DTYPE_Q8C, w, c + right, 0)},
                .apart = right * LANES,
            };
            run_square(&s, w, ahead_of(w, turn++, turns));
        }
    end_stores();
    if (w->last) {
        take_off_zeros(sums, x, rows, w);
        end_whole(y, x, rows, w);
    }
}

static size_t int8_tall(enum dtype type, size_t rows)
{
    return type == DTYPE_Q8C && rows >= LEAST_ROWS ? 0 : kernels_vnni.int8_tall(type, rows);
}

const struct kernels kernels_int8_amx = {
    .base = &kernels_vnni, .panel_int8 = panel_int8, .int8_tall = int8_tall};
