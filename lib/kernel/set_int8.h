/* Products of rows in int8 with weights of few bits. Included by a set's file after set_piece.h; the set defines
 *
 *   vi_dot4(bits, sum, weights, x)   sum + the products of 4 neighbouring bytes in every lane: weights without a sign,
 *                                    of so many bits, and codes of x from -127 to 127
 *   INT8_ZERO(bits)                  what that takes from every weight itself
 *   INT8_BITS_MATTER                 if vi_dot4() does not do the same for all of them
 *   INT8_PAIRS(bits)                 in place of vi_dot4(), where an instruction makes 16-bit sums of two products: of how
 *                                    many lines such sums may be added before they are joined; vs_pairs(bits, weights, x)
 *                                    are those of a line, vi_join(pairs) the sums of both of every lane
 *   INT8_ROWS, INT8_COLUMNS          rows (3) and blocks whose sums its registers hold, in f32 and in whole numbers
 *   WHOLE_ROWS, WHOLE_COLUMNS        the same (3 or 4 rows) for sums in whole numbers alone: q8c
 *   LINE_ROWS, LINE_COLUMNS          few rows and blocks: their products in whole numbers, and all or some of their sums, lie in registers
 *   INT8_FEW_ROWS                    up to so many rows are few
 *
 * Few rows take codes apart in registers, as they come, block after block: they wait for memory. For more, a piece of the panel is
 * brought into one form first: bytes, f32 steps, f32 bases; all rows then pass over it. What they come to is what set_few.h says,
 * to the bit. */

/* What sums begin at, for every 1 in the sum of x. */
INLINE int32_t zero_of(enum dtype type) { return few_bits[type].zero - INT8_ZERO(few_bits[type].bits); }

/* ---- what comes next ---- */

/* Codes of the next piece, which are fetched a few lines at a time, so that memory is always asked for something and never
 * for much at once: with every tile of many rows, with every cell of few. */
struct coming {
    const char *at, *end; /* what is left of a block */
    size_t blocks;        /* behind it */
    size_t bytes, skip;   /* of a block's codes, and from their end to the next block's */
    size_t each;          /* bytes at a time: a part of those */
    size_t cells;         /* of a tile from time to time */
};

static struct coming find_coming(const struct panel *w, size_t rows)
{
    enum { FEW_ROWS_MOST = 16 };
    const size_t bytes = pack_codes(w->type, PIECE), cells = rows <= FEW_ROWS_MOST ? 1 : PIECE_CELLS,
                 times = div_up(rows, INT8_ROWS) * (PIECE_CELLS / cells);
    size_t each = PACK_LINE;
    while (each * times < w->blocks * bytes && bytes % (each * 2) == 0)
        each *= 2;
    if (!w->next)
        return (struct coming){.cells = PIECE_CELLS};
    return (struct coming){
        .at = w->next,
        .end = w->next + bytes,
        .blocks = w->blocks - 1,
        .bytes = bytes,
        .skip = w->block_bytes - bytes,
        .each = each,
        .cells = cells,
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

/* ---- rows ---- */

enum { SUM_ROWS = 4 };

/* What sums of rows begin at, and what bases are multiplied by, scales in it; for whole numbers one start for all cells. */
struct starts {
    int32_t start[INT8_MOST_ROWS][PIECE_GROUPS];
    float own[INT8_MOST_ROWS][PIECE_GROUPS];
};

typedef int32_t v8i __attribute__((vector_size(4 * PIECE_CELLS)));
typedef float v8f __attribute__((vector_size(4 * PIECE_CELLS)));
typedef v8i v8i_any __attribute__((aligned(4), may_alias));
typedef v8f v8f_any __attribute__((aligned(4), may_alias));

/* From the sums of halves: all of a piece. */
INLINE void begin_row(enum dtype type, int32_t *start, float *own, const int32_t *sum,
                      const float *scale)
{
    const v8i low = *(const v8i_any *)sum, high = *(const v8i_any *)(sum + PIECE_CELLS);
    v8i cells = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14) +
                __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
    if (type == DTYPE_Q8C) {
        cells += __builtin_shufflevector(cells, cells, 4, 5, 6, 7, 0, 1, 2, 3);
        cells += __builtin_shufflevector(cells, cells, 2, 3, 0, 1, 6, 7, 4, 5);
        start[0] = (cells[0] + cells[1]) * -zero_of(type);
        return;
    }
    const v8i groups[2] = {groups_of(type) == 2 ? low : cells, high};
    const v8f all = *(const v8f_any *)scale;
    const v8f scales[2] = {
        groups_of(type) == 2 ? __builtin_shufflevector(all, all, 0, 0, 1, 1, 2, 2, 3, 3) : all,
        __builtin_shufflevector(all, all, 4, 4, 5, 5, 6, 6, 7, 7)};
    for (int n = 0; n < groups_of(type); n++) {
        *(v8i_any *)(start + n * PIECE_CELLS) = WHOLE_BITS + groups[n] * -zero_of(type);
        if (has_base(type))
            *(v8f_any *)(own + n * PIECE_CELLS) = __builtin_convertvector(groups[n], v8f) * scales[n];
    }
}

INLINE void begin_rows(enum dtype type, struct starts *starts, const struct int8_rows *x, size_t rows,
                       size_t cells)
{
    enum { AHEAD = 4 };
    for (size_t i = 0; i < rows; i++) {
        const struct int8_rows row = row_at(x, i, 0);
        if (i + AHEAD < rows) {
            const struct int8_rows later = row_at(x, i + AHEAD, 0);
            __builtin_prefetch(later.sum, 0, 3);
            __builtin_prefetch(later.scale, 0, 3);
        }
        int32_t sum[2 * PIECE_CELLS] = {0};
        float scale[PIECE_CELLS] = {0};
        if (cells == PIECE_CELLS) {
            begin_row(type, starts->start[i], starts->own[i], row.sum, row.scale);
            continue;
        }
        memcpy(sum, row.sum, 2 * cells * sizeof *sum);
        memcpy(scale, row.scale, cells * sizeof *scale);
        begin_row(type, starts->start[i], starts->own[i], sum, scale);
    }
}

/* ---- a tile: R rows and C blocks ---- */

/* What it is given: its first row and block. */
struct rows_tile {
    float *y;
    const int8_t *x;
    const float *scale;
    size_t row_bytes; /* of x and scales */
    const int32_t *start;
    const float *own;
    const struct piece *piece;
    size_t block, cells;
    bool onward;
    struct coming *next;
};

struct int8_tile {
    vf sum[SUM_ROWS][PANEL_BLOCKS][GROUP];
    vi dot[SUM_ROWS][PANEL_BLOCKS][GROUP];
    const unsigned char *code[PANEL_BLOCKS];
    const int8_t *x;
    size_t row_bytes;
};

/* Compilers keep arrays in registers whose loops they unroll early enough. */
#define UNROLL(loop) _Pragma("GCC unroll 8") loop
#define EACH_SUM(DO)                                                                                   \
    UNROLL(for (int i = 0; i < R; i++))                                                                \
    UNROLL(for (int c = 0; c < C; c++))                                                                \
    UNROLL(for (int g = 0; g < GROUP; g++))                                                            \
    DO

/* Line `at` of each block, and row i's four codes for it. */
INLINE void load_weights_of(const int C, const struct int8_tile *t, vu w[PANEL_BLOCKS][GROUP],
                            size_t at)
{
    for (int c = 0; c < C; c++)
        for (int g = 0; g < GROUP; g++)
            w[c][g] = vu_keep(vu_load(t->code[c] + at + g * VW * 4));
}

INLINE vi load_four(const int8_t *code)
{
    int32_t four;
    memcpy(&four, code, sizeof four);
    return vi_set1(four);
}

#ifdef INT8_PAIRS
/* The products of INT8_PAIRS lines are added in 16 bits first. */
INLINE void dot_pairs(const int R, const int C, const int lines, unsigned bits, struct int8_tile *t,
                      size_t at, size_t k)
{
    vs pairs[SUM_ROWS][PANEL_BLOCKS][GROUP] = {{{{0}}}};
#pragma GCC unroll 8
    for (int j = 0; j < lines; j++) {
        vu w[PANEL_BLOCKS][GROUP];
        load_weights_of(C, t, w, at + j * PACK_LINE);
        for (int i = 0; i < R; i++) {
            const vi x = load_four(t->x + i * t->row_bytes + k + 4 * j);
            for (int c = 0; c < C; c++)
                for (int g = 0; g < GROUP; g++)
                    pairs[i][c][g] += vs_pairs(bits, w[c][g], x);
        }
    }
    EACH_SUM(t->dot[i][c][g] += vi_join(pairs[i][c][g]));
}

INLINE void dot_lines(const int R, const int C, const int lines, unsigned bits, struct int8_tile *t,
                      size_t at, size_t k)
{
    const int run = INT8_PAIRS(bits) < lines ? INT8_PAIRS(bits) : lines;
#pragma GCC unroll 8
    for (int j = 0; j < lines; j += run)
        dot_pairs(R, C, run, bits, t, at + j * PACK_LINE, k + 4 * j);
}
#else
/* Adds the products of `lines` lines, the first at `at` of each block, and of inputs from k on. */
INLINE void dot_lines(const int R, const int C, const int lines, unsigned bits, struct int8_tile *t,
                      size_t at, size_t k)
{
#pragma GCC unroll 8
    for (int j = 0; j < lines; j++) {
        vu w[PANEL_BLOCKS][GROUP];
        load_weights_of(C, t, w, at + j * PACK_LINE);
        for (int i = 0; i < R; i++) {
            const vi x = load_four(t->x + i * t->row_bytes + k + 4 * j);
            for (int c = 0; c < C; c++)
                for (int g = 0; g < GROUP; g++)
                    t->dot[i][c][g] = vi_dot4(bits, t->dot[i][c][g], w[c][g], x);
        }
    }
}
#endif

/* The sums of a group of inputs, with their steps and bases. */
INLINE void add_dots(const int R, const int C, enum dtype type, struct int8_tile *t,
                     const struct rows_tile *tile, size_t group, size_t cell)
{
    const char *scales = (const char *)(tile->scale + cell);
    for (int c = 0; c < C; c++)
        for (int g = 0; g < GROUP; g++) {
            const vf step = vf_load(&tile->piece->step[group][tile->block + c][g * VW]);
            const vf away = vf_load(&tile->piece->away[group][tile->block + c][g * VW]);
            const vf base = vf_load(&tile->piece->base[group][tile->block + c][g * VW]);
            for (int i = 0; i < R; i++) {
                const vf scale = vf_set1(*(const float *)(const void *)(scales + i * t->row_bytes));
                vf *sum = &t->sum[i][c][g];
                *sum = vf_fma(times_step(t->dot[i][c][g], step, away), scale, *sum);
                if (has_base(type))
                    *sum = vf_fma(base, vf_set1(tile->own[i * PIECE_GROUPS + group]), *sum);
            }
        }
}

/* The products of a cell, group after group. */
INLINE void add_cell(const int R, const int C, enum dtype type, struct int8_tile *t,
                     const struct rows_tile *tile, size_t cell)
{
    const int groups = groups_of(type), lines = CELL_LINES / groups;
    if (type == DTYPE_Q8C) {
        dot_lines(R, C, CELL_LINES, few_bits[type].bits, t, cell * CELL_BYTES, cell * FEW_GROUP);
        return;
    }
    for (int n = 0; n < groups; n++) {
        const size_t group = cell * groups + n;
        EACH_SUM(t->dot[i][c][g] = vi_set1(tile->start[i * PIECE_GROUPS + group]));
        dot_lines(R, C, lines, few_bits[type].bits, t, cell * CELL_BYTES + n * lines * PACK_LINE,
                  cell * FEW_GROUP + n * lines * 4);
        add_dots(R, C, type, t, tile, group, cell);
    }
}

/* What sums begin at that do not go on: as from memory, so that compilers see one case. */
static const float nothing[SUM_ROWS * PANEL_WIDTH];

#define SUM_AT(y) ((y) + i * PANEL_WIDTH + (tile.block + c) * LANES + g * VW)

INLINE void int8_tile(const int R, const int C, enum dtype type, const struct rows_tile *given)
{
    const struct rows_tile tile = *given;
    struct int8_tile t;
    t.x = tile.x;
    t.row_bytes = tile.row_bytes;
    for (int c = 0; c < C; c++)
        t.code[c] = tile.piece->code[tile.block + c];
    const float *from = tile.onward ? tile.y : nothing;
    EACH_SUM(t.sum[i][c][g] = vf_load(SUM_AT(from)));
    if (type == DTYPE_Q8C)
        EACH_SUM(t.dot[i][c][g] = (vi)t.sum[i][c][g] + tile.start[i * PIECE_GROUPS]);
    for (size_t cell = 0, end; cell < tile.cells; cell = end) {
        end = size_min(cell + tile.next->cells, tile.cells);
        fetch_lines(tile.next);
        for (size_t at = cell; at < end; at++)
            add_cell(R, C, type, &t, &tile, at);
    }
    EACH_SUM(vf_store(SUM_AT(tile.y), type == DTYPE_Q8C ? (vf)t.dot[i][c][g] : t.sum[i][c][g]));
}

/* A function each, for compilers take long over large ones. */
#define ROWS_TILE(type, R, C)                                                                          \
    static __attribute__((noinline)) void rows_##type##_##R(const struct rows_tile *tile)              \
    {                                                                                                  \
        int8_tile(R, C, DTYPE_##type, tile);                                                           \
    }
#define INT8_TILES(type) ROWS_TILE(type, 2, INT8_COLUMNS) ROWS_TILE(type, 3, INT8_COLUMNS)
INT8_TILES(Q8)
INT8_TILES(Q4)
INT8_TILES(Q6K)
INT8_TILES(Q8K)
ROWS_TILE(Q8C, 2, WHOLE_COLUMNS)
ROWS_TILE(Q8C, 3, WHOLE_COLUMNS)
ROWS_TILE(Q8C, 4, WHOLE_COLUMNS)
#ifdef INT8_BITS_MATTER
INT8_TILES(Q4S)
#else
#define rows_Q4S_2 rows_Q8_2
#define rows_Q4S_3 rows_Q8_3
#endif

/* Types that differ in nothing else, as their codes are bytes now, are one. */
#define ROWS_ROW(type, as) [DTYPE_##type] = {[2] = rows_##as##_2, [3] = rows_##as##_3}
static void (*const rows_tiles[DTYPE_COUNT][5])(const struct rows_tile *) = {
    ROWS_ROW(Q8, Q8),
    ROWS_ROW(Q4, Q4),
    ROWS_ROW(Q4S, Q4S),
    ROWS_ROW(Q4K, Q4),
    ROWS_ROW(Q6K, Q6K),
    ROWS_ROW(Q8K, Q8K),
    [DTYPE_Q8C] = {[2] = rows_Q8C_2, [3] = rows_Q8C_3, [4] = rows_Q8C_4},
};

_Static_assert(INT8_ROWS == 3 && WHOLE_ROWS >= 3 && WHOLE_ROWS <= (int)SUM_ROWS,
               "tiles of these rows exist");

/* Rows over a piece, in as few tiles as there can be, of nearly equal size; one row alone has another's place beside it. */
static void int8_piece(float *y, const struct int8_rows *x, size_t rows, const struct piece *piece,
                       const struct panel *w, const struct starts *starts, bool onward,
                       struct coming *next)
{
    const bool whole = w->type == DTYPE_Q8C;
    const size_t most = whole ? WHOLE_ROWS : INT8_ROWS;
    struct rows_tile tile = {
        .y = y,
        .x = x->code,
        .scale = x->scale,
        .row_bytes = x->row_bytes,
        .start = starts->start[0],
        .own = starts->own[0],
        .piece = piece,
        .cells = piece->cells,
        .onward = onward,
        .next = next,
    };
    for (size_t left = rows, n; left > 0; left -= size_min(n, left)) {
        n = left <= most ? size_max(left, 2) : left < 2 * most ? div_up(left, 2) : most;
        for (tile.block = 0; tile.block < w->blocks; tile.block += whole ? WHOLE_COLUMNS : INT8_COLUMNS)
            rows_tiles[w->type][n](&tile);
        tile.y += n * PANEL_WIDTH;
        tile.x += n * x->row_bytes;
        tile.scale = (const void *)((const char *)tile.scale + n * x->row_bytes);
        tile.start += n * PIECE_GROUPS;
        tile.own += n * PIECE_GROUPS;
    }
}

#include "kernel/set_to_int8.h"
#include "kernel/set_woven.h"

static void begin_piece(struct starts *starts, const struct panel *w, const struct int8_rows *x,
                        size_t rows, size_t cells)
{
    switch (w->type) {
#define BEGIN(type) begin_rows(type, starts, x, rows, cells)
        FEW_CASES(BEGIN)
#undef BEGIN
    }
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    static _Thread_local struct piece piece __attribute__((aligned(PACK_LINE)));
    static _Thread_local struct starts starts __attribute__((aligned(PACK_LINE)));
    if (x->woven)
        int8_lines(y, x, rows, w);
    for (size_t k = 0; !x->woven && k < w->depth; k += PIECE) {
        const struct int8_rows from = row_at(x, 0, k);
        piece.cells = size_min(PIECE, w->depth - k) / FEW_GROUP;
        prepare(&piece, w, k);
        struct coming next = {.cells = PIECE_CELLS};
        if (k + PIECE >= w->depth)
            next = find_coming(w, rows);
        begin_piece(&starts, w, &from, rows, piece.cells);
        int8_piece(y, &from, rows, &piece, w, &starts, w->onward || k > 0, &next);
    }
    if (w->type == DTYPE_Q8C && w->last)
        end_whole(y, x, rows, w);
}

#define INT8_SLOTS                                                                                     \
    .panel_int8 = panel_int8, .to_int8 = to_int8, .weave_int8 = weave_int8, .int8_tile = LINE_ROWS,    \
    .int8_few_rows = INT8_FEW_ROWS
