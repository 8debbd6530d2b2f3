/* Few rows in int8: codes are taken apart in registers, as they come. Included by set_int8.h, which says what a set defines. */

#include "kernel/ask_far.h"

/* A tile of R rows and C blocks, over a piece of the range. */
struct line_tile {
    float *y;
    const char *x;                            /* woven, at the piece */
    struct panel w[PANEL_BLOCKS];             /* each begins with a block of the tile */
    size_t from, to;                          /* the piece's inputs */
    const unsigned char *ahead[PANEL_BLOCKS]; /* what is fetched meanwhile */
};

/* What group n of a cell adds to register g of the sums. */
INLINE void add_line_group(const int R, const int V, enum dtype type,
                           vf sum[GROUP][SUM_ROWS][PANEL_BLOCKS], const struct line_tile *t, size_t k,
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

/* Into the first-level cache, a line after the other or all at once, or into the second. */
enum fetching { FETCH_SLOWLY, FETCH_NEAR, FETCH_FAR };

#define FETCH_LINES(LOOP, near)                                                                        \
    LOOP(for (size_t line = 0; line < bytes; line += PACK_LINE))                                       \
    __builtin_prefetch(at + line, 0, near)

INLINE void fetch_codes(enum fetching how, const unsigned char *at, size_t bytes)
{
    switch (how) {
    case FETCH_SLOWLY: FETCH_LINES(ROLLED, 3); break;
    case FETCH_NEAR: FETCH_LINES(UNROLL, 3); break;
    case FETCH_FAR: FETCH_LINES(UNROLL, 1); break;
    }
}

/* A cell's worth of codes is fetched with every `part` cells. */
INLINE void line_tile(const int R, const int V, enum dtype type, const size_t part, enum fetching how,
                      const struct line_tile *given)
{
    struct line_tile t = *given;
    vf sum[GROUP][SUM_ROWS][PANEL_BLOCKS];
    UNROLL(for (int g = 0; g < GROUP; g++))
    EACH_OF_TILE(sum[g][i][v] = t.w->onward || t.from ? vf_load(LINE_SUM(t.y)) : (vf){0});
    for (size_t k = t.from; k < t.to; k += FEW_GROUP) {
        UNROLL(for (int v = 0; v < V; v++))
        {
            fetch_codes(how, t.ahead[v], pack_codes(type, FEW_GROUP) / part);
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

/* Tiles: rows, blocks, what part of a cell's codes they fetch with each cell, how, and how many bytes ahead of their own: single ones wait
 * for memory, and processors look ahead within a page of 4 KiB, and later than this. 0: what comes next. */
#define LINE_KINDS(DO, type)                                                                           \
    DO(type, ONE, 1, 1, 1, FETCH_SLOWLY, 2048)                                                         \
    DO(type, ONE_FAR, 1, PANEL_BLOCKS, 1, FETCH_FAR, 1536)                                             \
    DO(type, ALL, LINE_ROWS, LINE_COLUMNS, 1, FETCH_NEAR, 2048)                                        \
    DO(type, ALL_FAR, LINE_ROWS, LINE_COLUMNS, 1, FETCH_FAR, 3072)                                     \
    DO(type, HALF, LINE_ROWS, LINE_COLUMNS, 2, FETCH_NEAR, 0)                                          \
    DO(type, QUARTER, LINE_ROWS, LINE_COLUMNS, 4, FETCH_NEAR, 0)

#define LINE_TILE(type, name, R, C, part, how, ahead)                                                  \
    static __attribute__((noinline)) void line_##type##_##name(const struct line_tile *tile)           \
    {                                                                                                  \
        line_tile(R, C, DTYPE_##type, part, how, tile);                                                \
    }
LINE_KINDS(LINE_TILE, Q8)
LINE_KINDS(LINE_TILE, Q8C)
LINE_KINDS(LINE_TILE, Q4)
LINE_KINDS(LINE_TILE, Q4S)
LINE_KINDS(LINE_TILE, Q4K)
LINE_KINDS(LINE_TILE, Q6K)
LINE_KINDS(LINE_TILE, Q8K)

#define LINE_KIND(type, name, R, C, part, how, ahead) LINE_##name,
enum line_kind { LINE_KINDS(LINE_KIND, ) LINE_KIND_COUNT };

#define LINE_RUN(type, name, R, C, part, how, ahead) line_##type##_##name,
#define LINE_RUNS(type)                              [DTYPE_##type] = {LINE_KINDS(LINE_RUN, type)}
static void (*const line_tiles[DTYPE_COUNT][LINE_KIND_COUNT])(const struct line_tile *) = {
    LINE_RUNS(Q8),  LINE_RUNS(Q8C), LINE_RUNS(Q4),  LINE_RUNS(Q4S),
    LINE_RUNS(Q4K), LINE_RUNS(Q6K), LINE_RUNS(Q8K),
};

/* How rows pass over blocks. */
struct line_way {
    enum line_kind kind;
    size_t columns, part, ahead;
};

#define LINE_WAY(type, name, R, C, part, how, ahead) {LINE_##name, C, part, ahead},
static const struct line_way line_ways[] = {LINE_KINDS(LINE_WAY, )};

/* Of one row, one tile, two, or more. Memory gives most processors more (2 to 3 %) when one row asks it for one stream, slowly;
 * those that ask_far is about a quarter more when one row asks for four, and all are fetched into the second-level cache. */
static const struct line_way *line_way_of(size_t tall, size_t rows)
{
    static const enum line_kind kinds[2][4] = {{LINE_ONE, LINE_ALL, LINE_HALF, LINE_QUARTER},
                                               {LINE_ONE_FAR, LINE_ALL_FAR, LINE_HALF, LINE_QUARTER}};
    return &line_ways[kinds[ask_far][tall == 1 ? 0 : size_min(div_up(rows, tall), 3)]];
}

/* A panel that begins `blocks` later, whose number stays. */
static struct panel later_blocks(struct panel w, size_t blocks)
{
    w.w += blocks * w.block_bytes;
    for (size_t p = 0; p < FEW_PLANES; p++)
        w.plane[p] += blocks * w.block_bytes;
    return w;
}

/* What is multiplied after inputs [from, to) of the blocks from b on: the same of the next blocks, what follows of the first, or the
 * next panel. */
static const unsigned char *coming_after(const struct panel *w, size_t b, size_t from, size_t to,
                                         const struct line_way *way)
{
    if (b + way->columns < w->blocks)
        return cell_at(w->type, w, b + way->columns, from);
    if (to < w->depth)
        return cell_at(w->type, w, 0, to);
    return w->next ? (const unsigned char *)w->next : cell_at(w->type, w, b, from);
}

/* All rows over inputs [from, to) of the blocks from b on, while what lies at `ahead` is fetched. The last tile may have more rows
 * than are asked for: what comes of those is nobody's. */
static void int8_lines_of(float *y, const struct int8_rows *x, size_t rows, const struct panel *w,
                          size_t b, size_t from, size_t to, const unsigned char *ahead,
                          const struct line_way *way)
{
    const size_t tile_bytes = x->tall * INT8_WOVEN_BYTES;
    struct line_tile tile = {
        .y = y + b * LANES, .x = x->woven + from / FEW_GROUP * tile_bytes, .from = from, .to = to};
    for (size_t c = 0; c < way->columns; c++) {
        tile.w[c] = later_blocks(*w, size_min(b + c, w->blocks - 1));
        tile.ahead[c] = ahead + c * w->block_bytes;
    }
    for (size_t i = 0; i < rows; i += x->tall) {
        line_tiles[w->type][way->kind](&tile);
        tile.y += x->tall * PANEL_WIDTH;
        tile.x += w->depth / FEW_GROUP * tile_bytes;
        for (size_t c = 0; c < way->columns; c++)
            tile.ahead[c] += pack_codes(w->type, to - from) / way->part;
    }
}

/* A single tile reads blocks from end to end, and fetches its own codes, a little ahead; near the end those that come then. */
static void int8_lines_through(float *y, const struct int8_rows *x, size_t rows, const struct panel *w,
                               const struct line_way *way)
{
    const size_t end = w->depth, last = way->ahead / pack_codes(w->type, FEW_GROUP) * FEW_GROUP;
    const size_t turn = end - size_min(last, end);
    for (size_t b = 0; b < w->blocks; b += way->columns) {
        const unsigned char *own = cell_at(w->type, w, b, 0) + way->ahead;
        int8_lines_of(y, x, rows, w, b, 0, turn, own, way);
        int8_lines_of(y, x, rows, w, b, turn, end, coming_after(w, b, 0, end, way), way);
    }
}

/* Of several all pass over a piece, which stays in the first-level cache, or in the second: fewer and longer ways are 7 % faster
 * on processors that ask_far. */
static void int8_lines(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    enum { FAR_PIECE = 2048 };
    const size_t piece = ask_far ? FAR_PIECE : PIECE;
    const struct line_way *way = line_way_of(x->tall, rows);
    if (way->ahead) {
        int8_lines_through(y, x, rows, w, way);
        return;
    }
    for (size_t k = 0, to; k < w->depth; k = to) {
        to = size_min(k + piece, w->depth);
        for (size_t b = 0; b < w->blocks; b += way->columns)
            int8_lines_of(y, x, rows, w, b, k, to, coming_after(w, b, k, to, way), way);
    }
}
