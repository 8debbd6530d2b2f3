/* Few rows in int8 over blocks of few bits that are read from end to end: they wait for memory. Included by set_int8.h, which
 * says what a set defines. */

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

/* Rows that a tile lacks are zeros. */
INLINE void weave_rows(enum dtype type, char *to, const struct int8_rows *x, size_t rows, size_t tall,
                       size_t depth)
{
    for (size_t k = 0; k < depth; k += FEW_GROUP, to += tall * INT8_WOVEN_BYTES) {
        if (rows < tall)
            memset(to, 0, tall * INT8_WOVEN_BYTES);
        for (size_t i = 0; i < rows; i++) {
            const struct int8_rows row = row_at(x, i, k);
            weave_cell(type, to, tall, i, &row);
        }
    }
}

static void weave_int8(char *to, const struct int8_rows *x, size_t rows, size_t tall, size_t depth,
                       enum dtype type)
{
    switch (type) {
#define WEAVE(type) weave_rows(type, to, x, rows, tall, depth)
        FEW_CASES(WEAVE)
#undef WEAVE
    }
}

/* A tile of R rows and C blocks, over a piece of the range as it lies. */
struct line_tile {
    float *y;
    const char *x;                /* woven, at the piece */
    struct panel w[LINE_COLUMNS]; /* each begins with a block of the tile */
    size_t from, to;              /* the piece's inputs */
    const unsigned char
        *ahead[LINE_COLUMNS]; /* what is fetched meanwhile, so many bytes of each with each cell */
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
                     t.w->onward || t.from ? vf_load(LINE_SUM(t.y)) : (vf){0});
    for (size_t k = t.from; k < t.to; k += FEW_GROUP) {
        UNROLL(for (int c = 0; c < C; c++))
        for (size_t at = 0; at < t.ahead_bytes; at += PACK_LINE)
            __builtin_prefetch(t.ahead[c] + at, 0, 3);
        UNROLL(for (int c = 0; c < C; c++))
        t.ahead[c] += t.ahead_bytes;
        UNROLL(for (int g = 0; g < GROUP; g++))
        UNROLL(for (int n = 0; n < groups_of(type); n++))
        add_line_group(R, C, type, sum, &t, k, g, n);
        t.x += R * INT8_WOVEN_BYTES;
    }
    EACH_OF_TILE(UNROLL(for (int g = 0; g < GROUP; g++)) vf_store(LINE_SUM(t.y), sum[i][c][g]));
}

#define LINE_TILE(type, name, R, C)                                                                    \
    static __attribute__((noinline)) void line_##type##_##name(const struct line_tile *tile)           \
    {                                                                                                  \
        line_tile(R, C, DTYPE_##type, tile);                                                           \
    }
#define LINE_TILES(type) LINE_TILE(type, one, 1, 1) LINE_TILE(type, all, LINE_ROWS, LINE_COLUMNS)
LINE_TILES(Q8)
LINE_TILES(Q8C)
LINE_TILES(Q4)
LINE_TILES(Q4S)
LINE_TILES(Q4K)
LINE_TILES(Q6K)
LINE_TILES(Q8K)

/* Of one row, and of more. */
#define LINE_SIZES(type) [DTYPE_##type] = {line_##type##_one, line_##type##_all}
static void (*const line_tiles[DTYPE_COUNT][2])(const struct line_tile *) = {
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

/* What is fetched while a tile's blocks are multiplied, `tiles` times: of a single tile its own codes, a little ahead; of several each
 * fetches a part of what comes next: the same piece of the next blocks, the next piece of the first, or the next panel. */
static void look_ahead(struct line_tile *t, const struct panel *w, size_t b, size_t tiles)
{
    const size_t codes = pack_codes(w->type, FEW_GROUP), next = b + LINE_COLUMNS;
    const unsigned char *at = NULL;
    if (tiles == 1)
        at = cell_at(w->type, w, b, t->from) + LINE_AHEAD;
    else if (next < w->blocks)
        at = cell_at(w->type, w, next, t->from);
    else if (t->to < w->depth)
        at = cell_at(w->type, w, 0, t->to);
    else
        at = (const void *)w->next;
    t->ahead_bytes = at ? round_up(codes / tiles, PACK_LINE) : 0;
    for (size_t c = 0; c < LINE_COLUMNS; c++)
        t->ahead[c] = at ? at + c * w->block_bytes : cell_at(w->type, w, b, 0);
}

/* All rows over a piece of the blocks from b on. The last tile may have more rows than are asked for: what comes of those is
 * nobody's. */
static void int8_lines_of(float *y, const struct int8_rows *x, size_t rows, const struct panel *w,
                          size_t b, size_t from, size_t to)
{
    const size_t tall = rows == 1 ? 1 : LINE_ROWS, tiles = div_up(rows, tall);
    const size_t tile_bytes = tall * INT8_WOVEN_BYTES;
    struct line_tile tile = {
        .y = y + b * LANES, .x = x->woven + from / FEW_GROUP * tile_bytes, .from = from, .to = to};
    for (size_t c = 0; c < LINE_COLUMNS; c++)
        tile.w[c] = later_blocks(*w, size_min(b + c, w->blocks - 1));
    look_ahead(&tile, w, b, tiles);
    for (size_t i = 0; i < tiles; i++) {
        line_tiles[w->type][rows > 1](&tile);
        tile.y += tall * PANEL_WIDTH;
        tile.x += w->depth / FEW_GROUP * tile_bytes;
        for (size_t c = 0; c < LINE_COLUMNS; c++)
            tile.ahead[c] += (to - from) / FEW_GROUP * tile.ahead_bytes;
    }
}

/* Of several tiles all pass over a piece, which stays in the first-level cache; a single one reads blocks from end to end. */
static void int8_lines(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t columns = rows == 1 ? 1 : LINE_COLUMNS;
    const size_t piece = rows <= LINE_ROWS ? w->depth : PIECE;
    for (size_t k = 0; k < w->depth; k += piece)
        for (size_t b = 0; b < w->blocks; b += columns)
            int8_lines_of(y, x, rows, w, b, k, size_min(k + piece, w->depth));
}
