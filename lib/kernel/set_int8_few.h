/* Few rows in int8: codes are taken apart in registers, as they come. Included by set_int8.h, which says what a set defines. */

/* A tile of R rows and C blocks, over a piece of the range. */
struct line_tile {
    float *y;
    const char *x;                            /* woven, at the piece */
    struct panel w[LINE_COLUMNS];             /* each begins with a block of the tile */
    size_t from, to;                          /* the piece's inputs */
    const unsigned char *ahead[LINE_COLUMNS]; /* what is fetched meanwhile */
};

/* What group n of a cell adds to register g of the sums. */
INLINE void add_line_group(const int R, const int V, enum dtype type,
                           vf sum[GROUP][SUM_ROWS][LINE_COLUMNS], const struct line_tile *t, size_t k,
                           int g, int n)
{
    const int groups = groups_of(type), lines = CELL_LINES / groups;
    const unsigned char *code[SUM_WIDE];
    vi dot[SUM_ROWS][SUM_WIDE];
    for (int v = 0; v < V; v++)
        code[v] = cell_at(type, &t->w[v], 0, k) + g * VW * 4;
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vi start = load_word(t->x + WOVEN_START(R, n, i));
        UNROLL(for (int v = 0; v < V; v++))
        dot[i][v] = type == DTYPE_Q8C ? (vi)sum[g][i][v] + start : start;
    }
    add_dots(R, V, type, few_bits[type].bits, dot, code, t->x, n * lines, lines);
    if (type == DTYPE_Q8C) {
        EACH_OF_TILE(sum[g][i][v] = (vf)dot[i][v]);
        return;
    }
    UNROLL(for (int v = 0; v < V; v++))
    {
        const struct few_vectors values = load_values(type, &t->w[v], 0, k + n * FEW_HALF, g);
        const vf away = steps_away(values.step);
        UNROLL(for (int i = 0; i < R; i++))
        sum[g][i][v] = add_times(R, type, sum[g][i][v], dot[i][v], &values, away, t->x, n, i);
    }
}

#define LINE_SUM(y) ((y) + i * PANEL_WIDTH + v * LANES + g * VW)

/* One row waits for memory, which gives more (2 to 3 %) when it is asked less quickly; for more rows each instruction counts. */
INLINE void fetch_codes(bool slowly, const unsigned char *at, size_t bytes)
{
    if (slowly)
        ROLLED(for (size_t line = 0; line < bytes; line += PACK_LINE))
    __builtin_prefetch(at + line, 0, 3);
    else UNROLL(for (size_t line = 0; line < bytes; line += PACK_LINE))
        __builtin_prefetch(at + line, 0, 3);
}

/* A cell's worth of codes is fetched with every `part` cells. */
INLINE void line_tile(const int R, const int V, enum dtype type, const size_t part,
                      const struct line_tile *given)
{
    struct line_tile t = *given;
    vf sum[GROUP][SUM_ROWS][LINE_COLUMNS];
    UNROLL(for (int g = 0; g < GROUP; g++))
    EACH_OF_TILE(sum[g][i][v] = t.w->onward || t.from ? vf_load(LINE_SUM(t.y)) : (vf){0});
    for (size_t k = t.from; k < t.to; k += FEW_GROUP) {
        UNROLL(for (int v = 0; v < V; v++))
        {
            fetch_codes(R == 1, t.ahead[v], pack_codes(type, FEW_GROUP) / part);
            t.ahead[v] += pack_codes(type, FEW_GROUP) / part;
        }
        UNROLL(for (int g = 0; g < GROUP; g++))
        UNROLL(for (int n = 0; n < groups_of(type); n++))
        add_line_group(R, V, type, sum, &t, k, g, n);
        t.x += R * INT8_WOVEN_BYTES;
    }
    UNROLL(for (int g = 0; g < GROUP; g++))
    EACH_OF_TILE(vf_store(LINE_SUM(t.y), sum[g][i][v]));
}

#define LINE_TILE(type, name, R, C, part)                                                              \
    static __attribute__((noinline)) void line_##type##_##name(const struct line_tile *tile)           \
    {                                                                                                  \
        line_tile(R, C, DTYPE_##type, part, tile);                                                     \
    }
#define LINE_TILES(type)                                                                               \
    LINE_TILE(type, one, 1, 1, 1)                                                                      \
    LINE_TILE(type, all, LINE_ROWS, LINE_COLUMNS, 1)                                                   \
    LINE_TILE(type, half, LINE_ROWS, LINE_COLUMNS, 2)                                                  \
    LINE_TILE(type, quarter, LINE_ROWS, LINE_COLUMNS, 4)
LINE_TILES(Q8)
LINE_TILES(Q8C)
LINE_TILES(Q4)
LINE_TILES(Q4S)
LINE_TILES(Q4K)
LINE_TILES(Q6K)
LINE_TILES(Q8K)

/* Of one row, and of several, where there is one tile, two, or more. */
#define LINE_SIZES(type)                                                                               \
    [DTYPE_##type] = {line_##type##_one, line_##type##_all, line_##type##_half, line_##type##_quarter}
static void (*const line_tiles[DTYPE_COUNT][4])(const struct line_tile *) = {
    LINE_SIZES(Q8),  LINE_SIZES(Q8C), LINE_SIZES(Q4),  LINE_SIZES(Q4S),
    LINE_SIZES(Q4K), LINE_SIZES(Q6K), LINE_SIZES(Q8K),
};

/* A panel that begins `blocks` later, whose number stays. */
static struct panel later_blocks(struct panel w, size_t blocks)
{
    w.w += blocks * w.block_bytes;
    for (size_t p = 0; p < FEW_PLANES; p++)
        w.plane[p] += blocks * w.block_bytes;
    return w;
}

/* Bytes that are fetched ahead: processors look ahead within a page of 4 KiB, and later than this. */
enum { LINE_AHEAD = 2048 };

/* What is fetched while a tile's blocks are multiplied, `tiles` times: of a single tile its own codes, a little ahead; of several each
 * fetches a part of what comes next: the same piece of the next blocks, the next piece of the first, or the next panel. */
static void look_ahead(struct line_tile *t, const struct panel *w, size_t b, size_t tiles)
{
    const size_t next = b + LINE_COLUMNS;
    const unsigned char *at = NULL;
    if (tiles == 1)
        at = cell_at(w->type, w, b, t->from) + LINE_AHEAD;
    else if (next < w->blocks)
        at = cell_at(w->type, w, next, t->from);
    else if (t->to < w->depth)
        at = cell_at(w->type, w, 0, t->to);
    else
        at = (const void *)w->next;
    for (size_t c = 0; c < LINE_COLUMNS; c++)
        t->ahead[c] = (at ? at : cell_at(w->type, w, b, 0)) + c * w->block_bytes;
}

/* All rows over a piece of the blocks from b on. The last tile may have more rows than are asked for: what comes of those is
 * nobody's. */
static void int8_lines_of(float *y, const struct int8_rows *x, size_t rows, const struct panel *w,
                          size_t b, size_t from, size_t to)
{
    const size_t tall = x->tall, tiles = div_up(rows, tall);
    const size_t tile_bytes = tall * INT8_WOVEN_BYTES;
    const size_t part = tall == 1 ? 0 : size_min(tiles, 3), ahead[] = {1, 1, 2, 4};
    struct line_tile tile = {
        .y = y + b * LANES, .x = x->woven + from / FEW_GROUP * tile_bytes, .from = from, .to = to};
    for (size_t c = 0; c < LINE_COLUMNS; c++)
        tile.w[c] = later_blocks(*w, size_min(b + c, w->blocks - 1));
    look_ahead(&tile, w, b, tiles);
    for (size_t i = 0; i < tiles; i++) {
        line_tiles[w->type][part](&tile);
        tile.y += tall * PANEL_WIDTH;
        tile.x += w->depth / FEW_GROUP * tile_bytes;
        for (size_t c = 0; c < LINE_COLUMNS; c++)
            tile.ahead[c] += pack_codes(w->type, to - from) / ahead[part];
    }
}

/* Of several tiles all pass over a piece, which stays in the first-level cache; a single one reads blocks from end to end. */
static void int8_lines(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t columns = x->tall == 1 ? 1 : LINE_COLUMNS;
    const size_t piece = rows <= LINE_ROWS ? w->depth : PIECE;
    for (size_t k = 0; k < w->depth; k += piece)
        for (size_t b = 0; b < w->blocks; b += columns)
            int8_lines_of(y, x, rows, w, b, k, size_min(k + piece, w->depth));
}
