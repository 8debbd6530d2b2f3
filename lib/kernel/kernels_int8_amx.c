/* AMX-INT8: tdpbsud adds the products of a tile of activations, bytes with a sign, and a tile of codes, bytes without
 * one, to a 16 x 16 tile of sums. A part of the set amx that is compiled by itself.
 *
 * Whole numbers stay in tiles over a piece. Where groups of inputs have steps of their own, tiles are as deep as a group,
 * and vectors add what they come to. Few rows are those of the set below: sums of whole numbers are the same. */
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
#include "kernel/set_piece.h"

extern const struct kernels kernels_vnni, kernels_int8_amx;

enum { AMX_ROWS = 16, FEW_ROWS = 8, WIDE_LINES = 16 };

struct int8_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 codes of 4 inputs a line. */
#define CONFIG(lines)                                                                                  \
    {                                                                                                  \
        .palette = 1, .row_bytes = {64, 64, 64, 64, 4 * (lines), 4 * (lines), 64, 64}, .rows = {       \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            AMX_ROWS,                                                                                  \
            (lines),                                                                                   \
            (lines)                                                                                    \
        }                                                                                              \
    }
static const struct int8_config deep_tiles = CONFIG(WIDE_LINES), cell_tiles = CONFIG(CELL_LINES),
                                half_tiles = CONFIG(HALF_LINES);

/* Two times AMX_ROWS rows, and two blocks: the second of each may be the first again. */
struct square {
    const int8_t *x[2];
    size_t row_bytes;
    const unsigned char *code[2];
    int32_t sum[2][2][AMX_ROWS][LANES] __attribute__((aligned(64)));
};

/* gcc does not know that loads of tiles read memory: what was stored before must be there. */
static void end_stores(void) { __asm__ volatile("" ::: "memory"); }

static void load_square(const struct square *s)
{
    end_stores();
    _tile_loadd(0, s->sum[0][0], PACK_LINE);
    _tile_loadd(1, s->sum[0][1], PACK_LINE);
    _tile_loadd(2, s->sum[1][0], PACK_LINE);
    _tile_loadd(3, s->sum[1][1], PACK_LINE);
}

static void store_square(struct square *s)
{
    _tile_stored(0, s->sum[0][0], PACK_LINE);
    _tile_stored(1, s->sum[0][1], PACK_LINE);
    _tile_stored(2, s->sum[1][0], PACK_LINE);
    _tile_stored(3, s->sum[1][1], PACK_LINE);
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

/* What a square is of: at most 2 * AMX_ROWS rows from `row` on, and at most two blocks from `block` on. */
struct corner {
    float *y;
    const struct int8_rows *x;
    size_t row, rows, block, blocks;
    const struct piece *piece;
    const struct panel *w;
    bool onward;
};

static float *sums_at(const struct corner *at, size_t i, size_t c)
{
    return at->y + (at->row + i) * PANEL_WIDTH + (at->block + c) * LANES;
}

/* The sums of a group, with their steps and bases. */
static void add_group(const struct corner *at, const struct square *s, size_t i, size_t c, size_t cell,
                      size_t group)
{
    const enum dtype type = at->w->type;
    const struct int8_rows x = row_at(at->x, at->row + i, cell * FEW_GROUP);
    const int32_t own = groups_of(type) == 2 ? x.sum[group % 2] : x.sum[0] + x.sum[1];
    float *y = sums_at(at, i, c);
    for (int g = 0; g < LANES; g += VW) {
        const vi dot = (vi)vu_load(&s->sum[i / AMX_ROWS][c][i % AMX_ROWS][g]) +
                       vi_set1(WHOLE_BITS - few_bits[type].zero * own);
        const size_t block = at->block + c;
        const vf times = times_step(dot, vf_load(at->piece->step[group][block] + g),
                                    vf_load(at->piece->away[group][block] + g));
        vf sum = vf_fma(times, vf_set1(*x.scale), vf_load(y + g));
        if (has_base(type))
            sum =
                vf_fma(vf_load(at->piece->base[group][block] + g), vf_set1(*x.scale * (float)own), sum);
        vf_store(y + g, sum);
    }
}

static void run_groups(const struct corner *at, struct square *s)
{
    const size_t groups = (size_t)groups_of(at->w->type), depth = FEW_GROUP / groups;
    for (size_t i = 0; i < at->rows && !at->onward; i++)
        memset(sums_at(at, i, 0), 0, at->blocks * LANES * sizeof(float));
    for (size_t group = 0; group < at->piece->cells * groups; group++) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        multiply_square(s, group * depth);
        store_square(s);
        for (size_t i = 0; i < at->rows; i++)
            for (size_t c = 0; c < at->blocks; c++)
                add_group(at, s, i, c, group / groups, group);
    }
}

static int32_t sum_of_row(const struct corner *at, size_t i)
{
    const int32_t *sum = row_at(at->x, at->row + i, 0).sum;
    int32_t all = 0;
    for (size_t n = 0; n < 2 * at->piece->cells; n++)
        all += sum[n];
    return all;
}

/* Sums of whole numbers begin at what is there, and at what their zeros come to. */
static void begin_whole(const struct corner *at, struct square *s)
{
    for (size_t i = 0; i < at->rows; i++) {
        const int32_t start = -few_bits[DTYPE_Q8C].zero * sum_of_row(at, i);
        for (size_t c = 0; c < at->blocks; c++) {
            int32_t *sum = s->sum[i / AMX_ROWS][c][i % AMX_ROWS];
            memset(sum, 0, LANES * sizeof *sum);
            if (at->onward)
                memcpy(sum, sums_at(at, i, c), LANES * sizeof *sum);
            for (size_t o = 0; o < LANES; o++)
                sum[o] += start;
        }
    }
}

/* 64 inputs at a time; a last cell has tiles of its own. */
static void run_whole(const struct corner *at, struct square *s)
{
    const size_t depth = at->piece->cells * FEW_GROUP,
                 deep = depth / (4 * WIDE_LINES) * (4 * WIDE_LINES);
    begin_whole(at, s);
    _tile_loadconfig(&deep_tiles);
    load_square(s);
    for (size_t k = 0; k < deep; k += 4 * WIDE_LINES)
        multiply_square(s, k);
    store_square(s);
    if (deep < depth) {
        _tile_loadconfig(&cell_tiles);
        load_square(s);
        multiply_square(s, deep);
        store_square(s);
    }
    for (size_t i = 0; i < at->rows; i++)
        for (size_t c = 0; c < at->blocks; c++)
            memcpy(sums_at(at, i, c), s->sum[i / AMX_ROWS][c][i % AMX_ROWS], LANES * sizeof(float));
}

static void run_corner(const struct corner *at, struct ahead ahead)
{
    const struct int8_rows x = row_at(at->x, at->row, 0);
    struct square s = {
        .x = {x.code, x.code + (at->rows > AMX_ROWS ? AMX_ROWS * x.row_bytes : 0)},
        .row_bytes = x.row_bytes,
        .code = {at->piece->code[at->block], at->piece->code[at->block + at->blocks - 1]},
    };
    fetch(&ahead, 0, pack_codes(at->w->type, at->piece->cells * FEW_GROUP));
    end_stores();
    if (at->w->type == DTYPE_Q8C) {
        run_whole(at, &s);
    } else {
        _tile_loadconfig(groups_of(at->w->type) == 2 ? &half_tiles : &cell_tiles);
        run_groups(at, &s);
    }
}

/* All rows over a piece. */
static void run_piece(const struct corner *whole, size_t rows, bool last)
{
    const size_t tiles = div_up(rows, 2 * AMX_ROWS), turns = tiles * div_up(whole->w->blocks, 2);
    struct corner at = *whole;
    size_t turn = 0;
    for (at.row = 0; at.row < rows; at.row += 2 * AMX_ROWS)
        for (at.block = 0; at.block < whole->w->blocks; at.block += 2) {
            at.rows = size_min(2 * AMX_ROWS, rows - at.row);
            at.blocks = size_min(2, whole->w->blocks - at.block);
            run_corner(&at, ahead_of(whole->w, turn++, last ? turns : 0));
        }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    static _Thread_local struct piece piece __attribute__((aligned(PACK_LINE)));
    if (rows < FEW_ROWS) {
        kernels_vnni.panel_int8(y, x, rows, w);
        return;
    }
    for (size_t k = 0; k < w->depth; k += PIECE) {
        const struct int8_rows from = row_at(x, 0, k);
        const struct corner whole = {
            .y = y, .x = &from, .piece = &piece, .w = w, .onward = w->onward || k > 0};
        piece.cells = size_min(PIECE, w->depth - k) / FEW_GROUP;
        prepare(&piece, w, k);
        run_piece(&whole, rows, k + PIECE >= w->depth);
    }
    _tile_release();
    if (w->type == DTYPE_Q8C && w->last)
        end_whole(y, x, rows, w);
}

static size_t int8_tall(enum dtype type, size_t rows)
{
    return rows < FEW_ROWS ? kernels_vnni.int8_tall(type, rows) : 0;
}

const struct kernels kernels_int8_amx = {
    .base = &kernels_vnni, .panel_int8 = panel_int8, .int8_tall = int8_tall};
