/* Products of rows in int8 with weights of few bits. Included by a set's file after set_piece.h; the set defines
 *
 *   vi_dot4(bits, sum, weights, x)   sum + the products of 4 neighbouring bytes in every lane: weights without a sign,
 *                                    of so many bits, and codes of x from -127 to 127
 *   INT8_ZERO(bits)                  what that takes from every weight itself
 *   INT8_BITS_MATTER                 if vi_dot4() does not do the same for all of them
 *   INT8_PAIRS(bits)                 in place of vi_dot4(), where an instruction makes 16-bit sums of two products: of how
 *                                    many lines such sums may be added before they are joined; vs_pairs(bits, weights, x)
 *                                    are those of a line, vi_join(pairs) the sums of both of every lane
 *   INT8_ROWS, INT8_COLUMNS          rows and blocks whose sums its registers hold, in f32 and in whole numbers
 *   WHOLE_ROWS, WHOLE_COLUMNS        the same for sums in whole numbers alone: q8c
 *   LINE_ROWS, LINE_COLUMNS          few rows and blocks: their products in whole numbers, and all or some of their sums, lie in registers
 *
 *   INT8_FEW_ROWS                    up to so many rows are few
 *
 * Few rows take codes apart as they come: set_int8_few.h. For more, a piece of the panel is brought into one form first: bytes, f32 steps, f32
 * bases; all rows then pass over it. What they come to is what set_few.h says, to the bit. */

/* What sums begin at, for every 1 in the sum of x. */
INLINE int32_t zero_of(enum dtype type) { return few_bits[type].zero - INT8_ZERO(few_bits[type].bits); }

#include "kernel/set_to_int8.h"
#include "kernel/set_woven.h"
#include "kernel/set_int8_few.h"

/* ---- what comes next ---- */

/* Codes of the next piece, which are fetched a few lines with every tile, so that memory is always asked for something and never for
 * much at once. */
struct coming {
    const char *at, *end; /* what is left of a block */
    size_t blocks;        /* behind it */
    size_t bytes, skip;   /* of a block's codes, and from their end to the next block's */
    size_t each;          /* bytes at a time: a part of those */
};

/* Codes from `next` on, in so many times. */
static struct coming find_coming(const struct panel *w, const char *next, size_t times)
{
    const size_t bytes = pack_codes(w->type, PIECE);
    size_t each = PACK_LINE;
    while (each * times < w->blocks * bytes && bytes % (each * 2) == 0)
        each *= 2;
    if (!next)
        return (struct coming){0};
    return (struct coming){
        .at = next,
        .end = next + bytes,
        .blocks = w->blocks - 1,
        .bytes = bytes,
        .skip = w->block_bytes - bytes,
        .each = each,
    };
}

INLINE void fetch_lines(struct coming *next)
{
    if (next->each == 0)
        return;
    const char *end = next->at + next->each;
    for (const char *at = next->at; at < end; at += PACK_LINE)
        __builtin_prefetch(at, 0, 2);
    next->at = end;
    if (end == next->end) {
        next->at += next->skip;
        next->end = next->at + next->bytes;
        if (next->blocks-- == 0)
            next->each = 0;
    }
}

/* ---- a tile: R rows and C blocks of a piece ---- */

/* What it is given: its first row and block. */
struct rows_tile {
    float *y;
    const char *x; /* woven */
    const struct piece *piece;
    size_t block;
    bool onward;
};

/* What whole numbers of row i begin at. */
INLINE int32_t whole_start(const int R, const struct rows_tile *tile, int i)
{
    int32_t all = 0;
    for (size_t cell = 0; cell < tile->piece->cells; cell++) {
        int32_t start;
        memcpy(&start, tile->x + cell * R * INT8_WOVEN_BYTES + WOVEN_START(R, 0, i), sizeof start);
        all += start;
    }
    return all;
}

/* The products of a cell, group after group; codes are bytes now. */
INLINE void add_cell(const int R, const int C, enum dtype type, vf sum[SUM_ROWS][SUM_WIDE],
                     const struct rows_tile *tile, const char *x, size_t cell)
{
    const int V = C * GROUP, groups = groups_of(type), lines = CELL_LINES / groups;
    const unsigned char *code[SUM_WIDE];
    vi dot[SUM_ROWS][SUM_WIDE];
    for (int v = 0; v < V; v++)
        code[v] = tile->piece->code[tile->block + v / GROUP] + cell * CELL_BYTES + v % GROUP * VW * 4;
    for (int n = 0; n < groups; n++) {
        const size_t group = cell * groups + n;
        EACH_OF_TILE(dot[i][v] =
                         type == DTYPE_Q8C ? (vi)sum[i][v] : vi_load_own(x + WOVEN_START(R, n, i)));
        add_dots(R, V, DTYPE_Q8, few_bits[type].bits, dot, code, x, n * lines, lines);
        UNROLL(for (int v = 0; v < V; v++))
        {
            const size_t b = tile->block + v / GROUP, at = v % GROUP * VW;
            const struct few_vectors values = {vf_load(&tile->piece->step[group][b][at]),
                                               vf_load(&tile->piece->base[group][b][at])};
            const vf away = vf_load(&tile->piece->away[group][b][at]);
            UNROLL(for (int i = 0; i < R; i++))
            sum[i][v] = type == DTYPE_Q8C
                            ? (vf)dot[i][v]
                            : add_times(R, type, sum[i][v], dot[i][v], &values, away, x, n, i);
        }
    }
}

/* What sums begin at that do not go on: as from memory, so that compilers see one case. */
static const float nothing[SUM_ROWS * PANEL_WIDTH];

#define SUM_AT(y) ((y) + i * PANEL_WIDTH + tile.block * LANES + v * VW)

INLINE void int8_tile(const int R, const int C, enum dtype type, const struct rows_tile *given)
{
    const int V = C * GROUP;
    const struct rows_tile tile = *given;
    vf sum[SUM_ROWS][SUM_WIDE];
    const float *from = tile.onward ? tile.y : nothing;
    EACH_OF_TILE(sum[i][v] = vf_load(SUM_AT(from)));
    UNROLL(for (int i = 0; type == DTYPE_Q8C && i < R; i++))
    {
        const vi start = vi_set1(whole_start(R, &tile, i));
        UNROLL(for (int v = 0; v < V; v++))
        sum[i][v] = (vf)((vi)sum[i][v] + start);
    }
    const char *x = tile.x;
    for (size_t cell = 0; cell < tile.piece->cells; cell++, x += R * INT8_WOVEN_BYTES)
        add_cell(R, C, type, sum, &tile, x, cell);
    EACH_OF_TILE(vf_store(SUM_AT(tile.y), sum[i][v]));
}

/* A function each, for compilers take long over large ones. */
#define ROWS_TILE(type, R, C)                                                                          \
    static __attribute__((noinline)) void rows_##type(const struct rows_tile *tile)                    \
    {                                                                                                  \
        int8_tile(R, C, DTYPE_##type, tile);                                                           \
    }
ROWS_TILE(Q8, INT8_ROWS, INT8_COLUMNS)
ROWS_TILE(Q4, INT8_ROWS, INT8_COLUMNS)
ROWS_TILE(Q6K, INT8_ROWS, INT8_COLUMNS)
ROWS_TILE(Q8K, INT8_ROWS, INT8_COLUMNS)
ROWS_TILE(Q8C, WHOLE_ROWS, WHOLE_COLUMNS)
#ifdef INT8_BITS_MATTER
ROWS_TILE(Q4S, INT8_ROWS, INT8_COLUMNS)
#else
#define rows_Q4S rows_Q8
#endif

/* Types that differ in nothing else, as their codes are bytes now, are one. */
static void (*const rows_tiles[DTYPE_COUNT])(const struct rows_tile *) = {
    [DTYPE_Q8] = rows_Q8,   [DTYPE_Q4] = rows_Q4,   [DTYPE_Q4S] = rows_Q4S, [DTYPE_Q4K] = rows_Q4,
    [DTYPE_Q6K] = rows_Q6K, [DTYPE_Q8K] = rows_Q8K, [DTYPE_Q8C] = rows_Q8C,
};

/* Rows of `depth` inputs, woven, over a piece; x lies at its first. The last tile may have more rows than are asked for: what comes
 * of those is nobody's. */
static void int8_piece(float *y, const char *x, size_t rows, size_t depth, const struct piece *piece,
                       const struct panel *w, bool onward, const char *next)
{
    const size_t tall = tall_of_many(w->type);
    const size_t wide = w->type == DTYPE_Q8C ? WHOLE_COLUMNS : INT8_COLUMNS;
    struct coming coming = find_coming(w, next, div_up(rows, tall) * div_up(w->blocks, wide));
    struct rows_tile tile = {.y = y, .x = x, .piece = piece, .onward = onward};
    for (size_t from = 0; from < rows; from += tall) {
        for (tile.block = 0; tile.block < w->blocks; tile.block += wide) {
            fetch_lines(&coming);
            rows_tiles[w->type](&tile);
        }
        tile.y += tall * PANEL_WIDTH;
        tile.x += depth / FEW_GROUP * tall * INT8_WOVEN_BYTES;
    }
}

/* Rows of a piece that nobody has woven: those of a gate of another type. */
static const char *weave_piece(const struct int8_rows *x, size_t rows, const struct panel *w, size_t k,
                               size_t depth)
{
    static _Thread_local char woven[(INT8_MOST_ROWS + SUM_ROWS) * PIECE_CELLS * INT8_WOVEN_BYTES];
    const size_t tall = tall_of_many(w->type);
    for (size_t i = 0; i < rows; i += tall) {
        const struct int8_rows from = row_at(x, i, k);
        weave_int8(woven + i * (depth / FEW_GROUP) * INT8_WOVEN_BYTES, &from, size_min(tall, rows - i),
                   tall, depth, w->type);
    }
    return woven;
}

static void int8_pieces(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    static _Thread_local struct piece piece __attribute__((aligned(PACK_LINE)));
    const size_t tall = tall_of_many(w->type);
    for (size_t k = 0, depth; k < w->depth; k += depth) {
        depth = size_min(PIECE, w->depth - k);
        piece.cells = depth / FEW_GROUP;
        prepare(&piece, w, k);
        const bool last = k + depth == w->depth;
        const char *next = last ? w->next : (const char *)cell_at(w->type, w, 0, k + depth);
        const char *woven = x->woven ? x->woven + k / FEW_GROUP * tall * INT8_WOVEN_BYTES
                                     : weave_piece(x, rows, w, k, depth);
        int8_piece(y, woven, rows, x->woven ? w->depth : depth, &piece, w, w->onward || k > 0, next);
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    if (x->woven && x->tall != tall_of_many(w->type))
        int8_lines(y, x, rows, w);
    else
        int8_pieces(y, x, rows, w);
    if (w->type == DTYPE_Q8C && w->last)
        end_whole(y, x, rows, w);
}

#define INT8_SLOTS                                                                                     \
    .panel_int8 = panel_int8, .to_int8 = to_int8, .weave_int8 = weave_int8, .int8_tall = int8_tall
