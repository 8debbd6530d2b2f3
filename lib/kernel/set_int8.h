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
 *   LINE_ROWS, LINE_COLUMNS          few rows (an even number) and blocks whose sums its registers hold
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
    for (size_t i = 0; i < rows; i++) {
        const struct int8_rows row = row_at(x, i, 0);
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

/* ---- few rows ---- */

/* R woven rows: for each cell what its products read, one after the other. */
#define WOVEN_CODE(R, line, i)   (((line) * (R) + (i)) * 4)
#define WOVEN_SCALE(R, i)        (CELL_LINES * 4 * (R) + 4 * (i))
#define WOVEN_START(R, group, i) (WOVEN_SCALE(R, R) + ((group) * (R) + (i)) * 4)
#define WOVEN_OWN(R, group, i)   (WOVEN_START(R, 2, 0) + ((group) * (R) + (i)) * 4)
_Static_assert(WOVEN_OWN(1, 2, 0) == INT8_WOVEN_BYTES, "kernel.h says how large a row's cell is");

/* Row i of a cell: codes, scale, and what sums of its groups begin at, and bases are multiplied by. */
INLINE void weave_cell(enum dtype type, char *to, size_t rows, size_t i, const struct int8_rows *row)
{
    const int groups = groups_of(type);
    for (size_t j = 0; j < CELL_LINES; j++)
        memcpy(to + WOVEN_CODE(rows, j, i), row->code + 4 * j, 4);
    memcpy(to + WOVEN_SCALE(rows, i), row->scale, sizeof *row->scale);
    for (int n = 0; n < groups; n++) {
        const int32_t sum = groups == 2 ? row->sum[n] : row->sum[0] + row->sum[1];
        const int32_t start = (type == DTYPE_Q8C ? 0 : WHOLE_BITS) - zero_of(type) * sum;
        const float own = *row->scale * (float)sum;
        memcpy(to + WOVEN_START(rows, n, i), &start, sizeof start);
        memcpy(to + WOVEN_OWN(rows, n, i), &own, sizeof own);
    }
}

INLINE void weave_rows(enum dtype type, char *to, const struct int8_rows *x, size_t rows, size_t depth)
{
    for (size_t k = 0; k < depth; k += FEW_GROUP, to += rows * INT8_WOVEN_BYTES)
        for (size_t i = 0; i < rows; i++) {
            const struct int8_rows row = row_at(x, i, k);
            weave_cell(type, to, rows, i, &row);
        }
}

static void weave_int8(char *to, const struct int8_rows *x, size_t rows, size_t depth, enum dtype type)
{
    switch (type) {
#define WEAVE(type) weave_rows(type, to, x, rows, depth)
        FEW_CASES(WEAVE)
#undef WEAVE
    }
}

/* A tile of R rows and C blocks, over all of the range as it lies. */
struct line_tile {
    float *y;
    const char *x;                /* woven */
    struct panel w[LINE_COLUMNS]; /* each begins with a block of the tile */
    const unsigned char *ahead;   /* what is fetched meanwhile, so many bytes with each cell */
    size_t ahead_bytes;
};

INLINE vi load_word(const char *at) { return load_four((const int8_t *)at); }

#define EACH_OF_TILE(DO)                                                                               \
    UNROLL(for (int i = 0; i < R; i++))                                                                \
    UNROLL(for (int c = 0; c < C; c++))                                                                \
    DO

/* Adds the products of `lines` lines of a cell, from line `from` on, with the rows' codes. */
INLINE void add_line_dots(const int R, const int C, enum dtype type, vi dot[LINE_ROWS][LINE_COLUMNS],
                          const unsigned char *const *cell, int g, const char *x, const int from,
                          const int lines)
{
    const unsigned bits = few_bits[type].bits;
#ifdef INT8_PAIRS
    const int run = INT8_PAIRS(bits) < lines ? INT8_PAIRS(bits) : lines;
#else
    const int run = 1;
#endif
    UNROLL(for (int j = from; j < from + lines; j += run))
    {
#ifdef INT8_PAIRS
        vs pairs[LINE_ROWS][LINE_COLUMNS] = {{{0}}};
#endif
        UNROLL(for (int m = j; m < j + run; m++))
        {
            vu w[LINE_COLUMNS];
            UNROLL(for (int c = 0; c < C; c++))
            w[c] = vu_keep(load_line(type, cell[c], m, g));
            UNROLL(for (int i = 0; i < R; i++))
            {
                const vi four = load_word(x + WOVEN_CODE(R, m, i));
                UNROLL(for (int c = 0; c < C; c++))
#ifdef INT8_PAIRS
                pairs[i][c] += vs_pairs(bits, w[c], four);
#else
                dot[i][c] = vi_dot4(bits, dot[i][c], w[c], four);
#endif
            }
        }
#ifdef INT8_PAIRS
        EACH_OF_TILE(dot[i][c] += vi_join(pairs[i][c]));
#endif
    }
}

/* What group n of a cell adds to register g of the sums. */
INLINE void add_line_group(const int R, const int C, enum dtype type,
                           vf sum[LINE_ROWS][LINE_COLUMNS][GROUP], const struct line_tile *t, size_t k,
                           int g, int n)
{
    const int groups = groups_of(type), lines = CELL_LINES / groups;
    const unsigned char *cell[LINE_COLUMNS];
    vi dot[LINE_ROWS][LINE_COLUMNS];
    for (int c = 0; c < C; c++)
        cell[c] = cell_at(type, &t->w[c], 0, k);
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vi start = load_word(t->x + WOVEN_START(R, n, i));
        UNROLL(for (int c = 0; c < C; c++))
        dot[i][c] = type == DTYPE_Q8C ? (vi)sum[i][c][g] + start : start;
    }
    add_line_dots(R, C, type, dot, cell, g, t->x, n * lines, lines);
    if (type == DTYPE_Q8C) {
        EACH_OF_TILE(sum[i][c][g] = (vf)dot[i][c]);
        return;
    }
    UNROLL(for (int c = 0; c < C; c++))
    {
        const struct few_vectors v = load_values(type, &t->w[c], 0, k + n * FEW_HALF, g);
        const vf away = steps_away(v.step);
        UNROLL(for (int i = 0; i < R; i++))
        {
            const vf scale = (vf)load_word(t->x + WOVEN_SCALE(R, i));
            sum[i][c][g] = vf_fma(times_step(dot[i][c], v.step, away), scale, sum[i][c][g]);
            if (has_base(type))
                sum[i][c][g] = vf_fma(v.base, (vf)load_word(t->x + WOVEN_OWN(R, n, i)), sum[i][c][g]);
        }
    }
}

#define LINE_SUM(y) ((y) + i * PANEL_WIDTH + c * LANES + g * VW)

INLINE void line_tile(const int R, const int C, enum dtype type, const struct line_tile *given)
{
    struct line_tile t = *given;
    vf sum[LINE_ROWS][LINE_COLUMNS][GROUP];
    EACH_OF_TILE(UNROLL(for (int g = 0; g < GROUP; g++)) sum[i][c][g] =
                     t.w->onward ? vf_load(LINE_SUM(t.y)) : (vf){0});
    for (size_t k = 0; k < t.w->depth; k += FEW_GROUP) {
        for (size_t at = 0; at < t.ahead_bytes; at += PACK_LINE)
            __builtin_prefetch(t.ahead + at, 0, 3);
        UNROLL(for (int g = 0; g < GROUP; g++))
        UNROLL(for (int n = 0; n < groups_of(type); n++))
        add_line_group(R, C, type, sum, &t, k, g, n);
        t.ahead += t.ahead_bytes;
        t.x += R * INT8_WOVEN_BYTES;
    }
    EACH_OF_TILE(UNROLL(for (int g = 0; g < GROUP; g++)) vf_store(LINE_SUM(t.y), sum[i][c][g]));
}

#define LINE_TILE(type, name, R, C)                                                                    \
    static __attribute__((noinline)) void line_##type##_##name(const struct line_tile *tile)           \
    {                                                                                                  \
        line_tile(R, C, DTYPE_##type, tile);                                                           \
    }
#define LINE_TILES(type)                                                                               \
    LINE_TILE(type, one, 1, 1)                                                                         \
    LINE_TILE(type, half, LINE_ROWS / 2, LINE_COLUMNS) LINE_TILE(type, all, LINE_ROWS, LINE_COLUMNS)
LINE_TILES(Q8)
LINE_TILES(Q8C)
LINE_TILES(Q4)
LINE_TILES(Q4S)
LINE_TILES(Q4K)
LINE_TILES(Q6K)
LINE_TILES(Q8K)

#define LINE_SIZES(type)                                                                               \
    [DTYPE_##type] = {[1] = line_##type##_one,                                                         \
                      [LINE_ROWS / 2] = line_##type##_half,                                            \
                      [LINE_ROWS] = line_##type##_all}
static void (*const line_tiles[DTYPE_COUNT][LINE_ROWS + 1])(const struct line_tile *) = {
    LINE_SIZES(Q8),  LINE_SIZES(Q8C), LINE_SIZES(Q4),  LINE_SIZES(Q4S),
    LINE_SIZES(Q4K), LINE_SIZES(Q6K), LINE_SIZES(Q8K),
};

/* Bytes that are fetched ahead: processors look ahead within a page of 4 KiB, and later than this. */
enum { LINE_AHEAD = 2048 };

/* A panel that begins `blocks` later, whose number stays. */
static struct panel later_blocks(struct panel w, size_t blocks)
{
    w.w += blocks * w.block_bytes;
    for (size_t p = 0; p < FEW_PLANES; p++)
        w.plane[p] += blocks * w.block_bytes;
    return w;
}

/* The first rows over blocks from b on. A single tile fetches what it needs itself, a little ahead; of several each fetches a part
 * of the next blocks, so that memory is never asked for much at once. */
static struct line_tile first_tile(float *y, const struct int8_rows *x, const struct panel *w, size_t b,
                                   size_t columns, size_t tiles)
{
    const unsigned char *block = cell_at(w->type, w, b, 0);
    struct line_tile tile = {.y = y + b * LANES, .x = x->woven};
    for (size_t c = 0; c < LINE_COLUMNS; c++)
        tile.w[c] = later_blocks(*w, size_min(b + c, w->blocks - 1));
    if (tiles == 1) {
        tile.ahead = block + LINE_AHEAD;
        tile.ahead_bytes = pack_codes(w->type, FEW_GROUP);
        return tile;
    }
    tile.ahead = b + columns < w->blocks ? block + columns * w->block_bytes : (const void *)w->next;
    if (tile.ahead)
        tile.ahead_bytes =
            round_up(columns * w->block_bytes / (w->depth / FEW_GROUP) / tiles, PACK_LINE);
    return tile;
}

/* The last tile may have more rows than are asked for: what comes of those is nobody's. */
static void int8_lines(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t cells = w->depth / FEW_GROUP, columns = rows == 1 ? 1 : LINE_COLUMNS;
    for (size_t b = 0; b < w->blocks; b += columns) {
        struct line_tile tile = first_tile(y, x, w, b, columns, div_up(rows, LINE_ROWS));
        for (size_t left = rows, n; left > 0; left -= size_min(n, left)) {
            n = int8_tile_rows(LINE_ROWS, rows, left);
            line_tiles[w->type][n](&tile);
            tile.y += n * PANEL_WIDTH;
            tile.x += n * cells * INT8_WOVEN_BYTES;
            tile.ahead += cells * tile.ahead_bytes;
        }
    }
}

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

/* ---- rows become int8 ---- */

/* Joins the lanes of x, in halves. */
#if VW > 8
#define FOLD_16(x, JOIN) JOIN(x, FLIPPED(x, 8));
#else
#define FOLD_16(x, JOIN)
#endif
#if VW > 4
#define FOLD_8(x, JOIN) JOIN(x, FLIPPED(x, 4));
#else
#define FOLD_8(x, JOIN)
#endif
#define FOLD_LANES(x, JOIN)                                                                            \
    FOLD_16(x, JOIN) FOLD_8(x, JOIN) JOIN(x, FLIPPED(x, 2));                                           \
    JOIN(x, FLIPPED(x, 1))
#define ADD_TO(x, other)  ((x) += (other))
#define MOST_OF(x, other) ((x) = larger(x, other))

INLINE vi larger(vi a, vi b)
{
    const vi above = a > b;
    return (a & above) | (b & ~above);
}

INLINE vi abs_bits(const float *x) { return (vi)vu_load(x) & 0x7fffffff; }

/* The bits of the largest |x| of n: as whole numbers they have the same order, and what is not finite is above all. */
static int32_t most_bits(const float *x, size_t n)
{
    const size_t whole = n / VW * VW;
    int32_t most = 0, bits;
    vi all = {0};
    for (size_t i = 0; i < whole; i += VW)
        all = larger(all, abs_bits(x + i));
    FOLD_LANES(all, MOST_OF);
    most = all[0];
    for (size_t i = whole; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* FEW_HALF codes, and their sum. */
INLINE int32_t codes_of_half(int8_t *code, const float *x, float inverse)
{
    const vf magic = vf_set1(12582912.f); /* 1.5 * 2^23: rounds to an integer */
    vi sum = {0};
    for (int i = 0; i < FEW_HALF; i += VW) {
        vf scaled = vf_load(x + i) * vf_set1(inverse);
        scaled = vf_min(vf_max(scaled, vf_set1(-127)), vf_set1(127));
        const vi whole = __builtin_convertvector(scaled + magic - magic, vi);
        vi_store_i8(code + i, whole);
        sum += whole;
    }
    FOLD_LANES(sum, ADD_TO);
    return sum[0];
}

/* Less than FEW_HALF of them. */
static int32_t codes_of_rest(int8_t *code, const float *x, size_t n, float inverse)
{
    float padded[FEW_HALF] = {0};
    int8_t codes[FEW_HALF];
    memcpy(padded, x, n * sizeof *x);
    codes_of_half(codes, padded, inverse);
    memcpy(code, codes, n);
    int32_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += code[i];
    return all;
}

static void to_int8(int8_t *code, float *scale, int32_t *sum, const float *x, size_t n, size_t group)
{
    for (size_t from = 0, many; from < n; from += many) {
        many = size_min(group, n - from);
        const int32_t bits = most_bits(x + from, many);
        const bool finite = bits < 0x7f800000;
        float most;
        memcpy(&most, &bits, sizeof most);
        /* Nothing is left of numbers so small that it has no end. */
        const float inverse = 127 / most < INFINITY ? 127 / most : 0;
        for (size_t g = from; g < from + many; g += FEW_GROUP)
            scale[g / FEW_GROUP] = finite ? most / 127 : NAN;
        if (!finite) {
            memset(code + from, 0, many);
            memset(sum + from / FEW_HALF, 0, div_up(many, FEW_HALF) * sizeof *sum);
            continue;
        }
        size_t i = from;
        for (; i + FEW_HALF <= from + many; i += FEW_HALF)
            sum[i / FEW_HALF] = codes_of_half(code + i, x + i, inverse);
        if (i < from + many)
            sum[i / FEW_HALF] = codes_of_rest(code + i, x + i, from + many - i, inverse);
    }
}

#define INT8_SLOTS                                                                                     \
    .panel_int8 = panel_int8, .to_int8 = to_int8, .weave_int8 = weave_int8, .int8_tile = LINE_ROWS,    \
    .int8_few_rows = INT8_FEW_ROWS
