/* Products of rows in int8 with weights of few bits. Included by a set's file after set_piece.h; the set defines
 *
 *   vi_dot4(bits, sum, weights, x)   sum + the products of 4 neighbouring bytes in every lane: weights without a sign,
 *                                    of so many bits, and codes of x from -127 to 127
 *   INT8_ZERO(bits)                  what that takes from every weight itself
 *   INT8_BITS_MATTER                 if vi_dot4() does not do the same for all of them
 *   INT8_PAIRS(bits)                 in place of vi_dot4(), where an instruction makes 16-bit sums of two products: of how
 *                                    many lines such sums may be added before they are joined; vs_pairs(bits, weights, x)
 *                                    are those of a line, vi_join(pairs) the sums of both of every lane
 *   INT8_LINE_ROWS                   rows whose sums its registers hold beside the lines of a cell
 *   INT8_STEP, INT8_COLUMNS          3 * INT8_STEP rows and INT8_COLUMNS blocks are those whose sums its registers hold
 *
 * INT8_LINE_ROWS rows or fewer take codes apart in registers, as they come: they wait for memory. For more, a piece of the panel is brought into one form
 * first: bytes, f32 steps, f32 bases; all rows then pass over it. What they come to is what set_few.h says, to the bit. */

enum { INT8_ROWS = 3 * INT8_STEP };

/* What sums begin at, for every 1 in the sum of x. */
INLINE int32_t zero_of(enum dtype type) { return few_bits[type].zero - INT8_ZERO(few_bits[type].bits); }

/* ---- rows ---- */

/* What a tile is given. */
struct rows_tile {
    float *y;
    struct int8_rows x;
    size_t rows; /* that are there: others are the last one again */
    const struct piece *piece;
    const struct panel *w;
    bool onward;
    /* Of the tile's first blocks among all that fetch what comes next; 0 turns: none does. */
    size_t turn, turns;
};

/* What sums of rows begin at, scales, and what bases are multiplied by; for whole numbers one start for all cells. */
struct starts {
    int32_t start[INT8_ROWS][PIECE_GROUPS];
    float own[INT8_ROWS][PIECE_GROUPS];
    float scale[INT8_ROWS][PIECE_CELLS];
    const int8_t *code[INT8_ROWS];
    float *y[INT8_ROWS];
};

typedef int32_t v8i __attribute__((vector_size(4 * PIECE_CELLS)));
typedef float v8f __attribute__((vector_size(4 * PIECE_CELLS)));
typedef v8i v8i_any __attribute__((aligned(4), may_alias));
typedef v8f v8f_any __attribute__((aligned(4), may_alias));

/* From the sums of halves: all of a piece. */
INLINE void begin_row(enum dtype type, int32_t *start, float *own, const int32_t *sum, int32_t zero)
{
    const v8i low = *(const v8i_any *)sum, high = *(const v8i_any *)(sum + PIECE_CELLS);
    const v8i cells = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14) +
                      __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
    const v8i groups[2] = {groups_of(type) == 2 ? low : cells, high};
    for (int n = 0; n < groups_of(type); n++) {
        *(v8i_any *)(start + n * PIECE_CELLS) = groups[n] * -zero;
        if (has_base(type))
            *(v8f_any *)(own + n * PIECE_CELLS) = __builtin_convertvector(groups[n], v8f);
    }
    for (int n = 1; n < PIECE_CELLS && type == DTYPE_Q8C; n++)
        start[0] += start[n];
}

INLINE void begin_rows(const int R, enum dtype type, struct starts *starts,
                       const struct rows_tile *tile)
{
    const size_t cells = tile->piece->cells;
    const int32_t zero = zero_of(tile->w->type);
    for (int i = 0; i < R; i++) {
        const size_t from = size_min(i, tile->rows - 1);
        const struct int8_rows x = row_at(&tile->x, from, 0);
        if (cells == PIECE_CELLS) {
            memcpy(starts->scale[i], x.scale, sizeof starts->scale[i]);
            begin_row(type, starts->start[i], starts->own[i], x.sum, zero);
        } else {
            int32_t sum[2 * PIECE_CELLS] = {0};
            memcpy(starts->scale[i], x.scale, cells * sizeof *x.scale);
            memcpy(sum, x.sum, 2 * cells * sizeof *sum);
            begin_row(type, starts->start[i], starts->own[i], sum, zero);
        }
        starts->code[i] = x.code;
        starts->y[i] = tile->y + from * PANEL_WIDTH;
    }
}

/* ---- a tile: R rows and INT8_COLUMNS blocks ---- */

struct int8_tile {
    vf sum[INT8_ROWS][INT8_COLUMNS][GROUP];
    vi dot[INT8_ROWS][INT8_COLUMNS][GROUP];
    const unsigned char *code[INT8_COLUMNS];
    size_t block[INT8_COLUMNS];
    const int8_t *row[INT8_ROWS];
    float *y[INT8_ROWS];
};

#define EACH_SUM(DO)                                                                                   \
    for (int i = 0; i < R; i++)                                                                        \
        for (int c = 0; c < INT8_COLUMNS; c++)                                                         \
            for (int g = 0; g < GROUP; g++)                                                            \
    DO

/* Line `at` of each block, and row i's four codes for it. */
INLINE void load_weights_of(const struct int8_tile *t, vu w[INT8_COLUMNS][GROUP], size_t at)
{
    for (int c = 0; c < INT8_COLUMNS; c++)
        for (int g = 0; g < GROUP; g++)
            w[c][g] = vu_load(t->code[c] + at + g * VW * 4);
}

INLINE vi load_four(const int8_t *code)
{
    int32_t four;
    memcpy(&four, code, sizeof four);
    return vi_set1(four);
}

#ifdef INT8_PAIRS
/* The products of INT8_PAIRS lines are added in 16 bits first. */
INLINE void dot_pairs(const int R, const int lines, unsigned bits, struct int8_tile *t, size_t at,
                      size_t k)
{
    vs pairs[INT8_ROWS][INT8_COLUMNS][GROUP] = {{{{0}}}};
#pragma GCC unroll 8
    for (int j = 0; j < lines; j++) {
        vu w[INT8_COLUMNS][GROUP];
        load_weights_of(t, w, at + j * PACK_LINE);
        for (int i = 0; i < R; i++) {
            const vi x = load_four(t->row[i] + k + 4 * j);
            for (int c = 0; c < INT8_COLUMNS; c++)
                for (int g = 0; g < GROUP; g++)
                    pairs[i][c][g] += vs_pairs(bits, w[c][g], x);
        }
    }
    EACH_SUM(t->dot[i][c][g] += vi_join(pairs[i][c][g]));
}

INLINE void dot_lines(const int R, const int lines, unsigned bits, struct int8_tile *t, size_t at,
                      size_t k)
{
    const int run = INT8_PAIRS(bits) < lines ? INT8_PAIRS(bits) : lines;
#pragma GCC unroll 8
    for (int j = 0; j < lines; j += run)
        dot_pairs(R, run, bits, t, at + j * PACK_LINE, k + 4 * j);
}
#else
/* Adds the products of `lines` lines, the first at `at` of each block, and of inputs from k on. */
INLINE void dot_lines(const int R, const int lines, unsigned bits, struct int8_tile *t, size_t at,
                      size_t k)
{
#pragma GCC unroll 8
    for (int j = 0; j < lines; j++) {
        vu w[INT8_COLUMNS][GROUP];
        load_weights_of(t, w, at + j * PACK_LINE);
        for (int i = 0; i < R; i++) {
            const vi x = load_four(t->row[i] + k + 4 * j);
            for (int c = 0; c < INT8_COLUMNS; c++)
                for (int g = 0; g < GROUP; g++)
                    t->dot[i][c][g] = vi_dot4(bits, t->dot[i][c][g], w[c][g], x);
        }
    }
}
#endif

/* The sums of a group of inputs, with their steps and bases. */
INLINE void add_dots(const int R, enum dtype type, struct int8_tile *t, const struct piece *piece,
                     size_t group, const struct starts *starts, size_t cell)
{
    for (int c = 0; c < INT8_COLUMNS; c++)
        for (int g = 0; g < GROUP; g++) {
            const vf step = vf_load(&piece->step[t->block[c]][group][g * VW]);
            const vf base = vf_load(&piece->base[t->block[c]][group][g * VW]);
            for (int i = 0; i < R; i++) {
                const vf scale = vf_set1(starts->scale[i][cell]);
                vf *sum = &t->sum[i][c][g];
                *sum = vf_fma(step * scale, __builtin_convertvector(t->dot[i][c][g], vf), *sum);
                if (has_base(type))
                    *sum = vf_fma(base * scale, vf_set1(starts->own[i][group]), *sum);
            }
        }
}

/* The products of a cell, group after group. */
INLINE void add_cell(const int R, enum dtype type, struct int8_tile *t, const struct rows_tile *tile,
                     const struct starts *starts, size_t cell)
{
    const int groups = groups_of(type), lines = CELL_LINES / groups;
    if (type == DTYPE_Q8C) {
        dot_lines(R, CELL_LINES, few_bits[type].bits, t, cell * CELL_BYTES, cell * FEW_GROUP);
        return;
    }
    for (int n = 0; n < groups; n++) {
        const size_t group = cell * groups + n;
        EACH_SUM(t->dot[i][c][g] = vi_set1(starts->start[i][group]));
        dot_lines(R, lines, few_bits[type].bits, t, cell * CELL_BYTES + n * lines * PACK_LINE,
                  cell * FEW_GROUP + n * lines * 4);
        add_dots(R, type, t, tile->piece, group, starts, cell);
    }
}

/* Blocks `first` and those after it. Where there are fewer, the last one again. */
INLINE void int8_tile(const int R, enum dtype type, const struct rows_tile *tile, size_t first,
                      const struct starts *starts)
{
    const struct piece *piece = tile->piece;
    const struct ahead ahead = ahead_of(tile->w, tile->turn + first / INT8_COLUMNS, tile->turns);
    const size_t cell_bytes = pack_codes(tile->w->type, FEW_GROUP);
    struct int8_tile t = {.sum = {{{{0}}}}};
    for (size_t c = 0; c < INT8_COLUMNS; c++) {
        t.block[c] = size_min(first + c, tile->w->blocks - 1);
        t.code[c] = piece->code[t.block[c]];
    }
    for (int i = 0; i < R; i++) {
        t.row[i] = starts->code[i];
        t.y[i] = starts->y[i];
    }
    if (tile->onward)
        EACH_SUM(t.sum[i][c][g] = vf_load(t.y[i] + t.block[c] * LANES + g * VW));
    if (type == DTYPE_Q8C)
        EACH_SUM(t.dot[i][c][g] = (vi)t.sum[i][c][g] + starts->start[i][0]);
    for (size_t cell = 0; cell < piece->cells; cell++) {
        fetch(&ahead, cell * cell_bytes, cell_bytes);
        add_cell(R, type, &t, tile, starts, cell);
    }
    EACH_SUM(vf_store(t.y[i] + t.block[c] * LANES + g * VW,
                      type == DTYPE_Q8C ? (vf)t.dot[i][c][g] : t.sum[i][c][g]));
}

/* INT8_STEP * S rows over all blocks of a piece. A function each, for compilers take long over large ones. */
#define ROWS_TILE(type, S)                                                                             \
    static __attribute__((noinline)) void rows_##type##_##S(const struct rows_tile *tile)              \
    {                                                                                                  \
        struct starts starts;                                                                          \
        begin_rows(S *INT8_STEP, DTYPE_##type, &starts, tile);                                         \
        for (size_t c = 0; c < tile->w->blocks; c += INT8_COLUMNS)                                     \
            int8_tile(S *INT8_STEP, DTYPE_##type, tile, c, &starts);                                   \
    }
#define ROWS_TILES(type) ROWS_TILE(type, 1) ROWS_TILE(type, 2) ROWS_TILE(type, 3)
ROWS_TILES(Q8)
ROWS_TILES(Q8C)
ROWS_TILES(Q4)
ROWS_TILES(Q6K)
ROWS_TILES(Q8K)
#ifdef INT8_BITS_MATTER
ROWS_TILES(Q4S)
#else
#define rows_Q4S_1 rows_Q8_1
#define rows_Q4S_2 rows_Q8_2
#define rows_Q4S_3 rows_Q8_3
#endif

/* Types that differ in nothing else, as their codes are bytes now, are one. */
#define ROWS_ROW(type, as) [DTYPE_##type] = {rows_##as##_1, rows_##as##_2, rows_##as##_3}
static void (*const rows_tiles[DTYPE_COUNT][3])(const struct rows_tile *) = {
    ROWS_ROW(Q8, Q8),  ROWS_ROW(Q8C, Q8C), ROWS_ROW(Q4, Q4),   ROWS_ROW(Q4S, Q4S),
    ROWS_ROW(Q4K, Q4), ROWS_ROW(Q6K, Q6K), ROWS_ROW(Q8K, Q8K),
};

/* All rows over a piece, in as few tiles as there can be, of nearly equal size. */
static void int8_piece(float *y, const struct int8_rows *x, size_t rows, const struct piece *piece,
                       const struct panel *w, bool onward, bool last)
{
    const size_t tiles = div_up(rows, INT8_ROWS), passes = div_up(w->blocks, INT8_COLUMNS);
    for (size_t i = 0, tile = 0, n; i < rows; i += n, tile++) {
        n = div_up(rows - i, tiles - tile);
        rows_tiles[w->type][div_up(n, INT8_STEP) - 1](&(struct rows_tile){
            .y = y + i * PANEL_WIDTH,
            .x = row_at(x, i, 0),
            .rows = n,
            .piece = piece,
            .w = w,
            .onward = onward,
            .turn = tile * passes,
            .turns = last ? tiles * passes : 0,
        });
    }
}

/* ---- few rows ---- */

/* dot + the products of some lines, all codes of one row. */
INLINE vi dots_of(unsigned bits, vi dot, const vu *line, const int lines, const int8_t *x)
{
#ifdef INT8_PAIRS
    const int run = INT8_PAIRS(bits) < lines ? INT8_PAIRS(bits) : lines;
    for (int j = 0; j < lines; j += run) {
        vs pairs = {0};
        for (int m = j; m < j + run; m++)
            pairs += vs_pairs(bits, line[m], load_four(x + 4 * m));
        dot += vi_join(pairs);
    }
#else
    for (int j = 0; j < lines; j++)
        dot = vi_dot4(bits, dot, line[j], load_four(x + 4 * j));
#endif
    return dot;
}

/* Bytes that are fetched ahead: processors look ahead within a page of 4 KiB, and later than this. */
enum { LINE_AHEAD = 2048 };

/* Rows that are multiplied with the lines of one block, and their sums. */
struct line_rows {
    struct int8_rows row[INT8_LINE_ROWS];
    float *y[INT8_LINE_ROWS];
    vf sum[INT8_LINE_ROWS][GROUP];
};

/* A register of a row's sum, and what group n of the cell at input k adds to it; `line` has the group's lines. */
INLINE vf add_line_group(enum dtype type, vf sum, const vu *line, const struct int8_rows *x,
                         const struct few_vectors *v, size_t k, int n)
{
    const int groups = groups_of(type), lines = CELL_LINES / groups;
    const int32_t *halves = x->sum + k / FEW_HALF;
    const int32_t own = groups == 2 ? halves[n] : halves[0] + halves[1];
    vi dot = vi_set1(-zero_of(type) * own);
    dot = dots_of(few_bits[type].bits, dot, line, lines, x->code + k + 4 * n * lines);
    if (type == DTYPE_Q8C)
        return (vf)((vi)sum + dot);
    const vf scale = vf_set1(x->scale[k / FEW_GROUP]);
    sum = vf_fma(v->step * scale, __builtin_convertvector(dot, vf), sum);
    if (has_base(type))
        sum = vf_fma(v->base * scale, vf_set1((float)own), sum);
    return sum;
}

/* R rows and one block over a cell. */
INLINE void add_line_cell(const int R, enum dtype type, struct line_rows *rows, const struct panel *w,
                          size_t block, size_t k)
{
    const int groups = groups_of(type);
    const unsigned char *cell = cell_at(type, w, block, k);
    for (size_t at = 0; at < pack_codes(type, FEW_GROUP); at += PACK_LINE)
        __builtin_prefetch(cell + LINE_AHEAD + at, 0, 3);
    for (int g = 0; g < GROUP; g++) {
        vu line[CELL_LINES];
        load_lines(type, line, cell, g);
        for (int n = 0; n < groups; n++) {
            struct few_vectors v = {0};
            if (type != DTYPE_Q8C)
                v = load_values(type, w, block, k + n * FEW_HALF, g);
#pragma GCC unroll 8
            for (int i = 0; i < R; i++)
                rows->sum[i][g] = add_line_group(type, rows->sum[i][g], line + n * CELL_LINES / groups,
                                                 &rows->row[i], &v, k, n);
        }
    }
}

/* R rows and one block over the whole range. Where there are fewer rows, the last one again. */
INLINE void int8_line(const int R, enum dtype type, float *y, const struct int8_rows *x, size_t n,
                      const struct panel *w, size_t block)
{
    struct line_rows rows = {.sum = {{{0}}}};
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) {
        rows.row[i] = row_at(x, size_min(i, n - 1), 0);
        rows.y[i] = y + size_min(i, n - 1) * PANEL_WIDTH;
        for (int g = 0; g < GROUP && w->onward; g++)
            rows.sum[i][g] = vf_load(rows.y[i] + g * VW);
    }
    for (size_t k = 0; k < w->depth; k += FEW_GROUP)
        add_line_cell(R, type, &rows, w, block, k);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++)
        for (int g = 0; g < GROUP; g++)
            vf_store(rows.y[i] + g * VW, rows.sum[i][g]);
}

/* 1 row, half of INT8_LINE_ROWS, and all: a function each, for compilers take long over large ones. */
#define LINE_OF(type, name, R)                                                                         \
    static __attribute__((noinline)) void name##_##type(float *y, const struct int8_rows *x, size_t n, \
                                                        const struct panel *w, size_t block)           \
    {                                                                                                  \
        int8_line(R, DTYPE_##type, y, x, n, w, block);                                                 \
    }
#define LINES_OF(name, R)                                                                              \
    LINE_OF(Q8, name, R)                                                                               \
    LINE_OF(Q8C, name, R)                                                                              \
    LINE_OF(Q4, name, R)                                                                               \
    LINE_OF(Q4S, name, R)                                                                              \
    LINE_OF(Q4K, name, R)                                                                              \
    LINE_OF(Q6K, name, R)                                                                              \
    LINE_OF(Q8K, name, R)
LINES_OF(line, 1)
#if INT8_LINE_ROWS > 1
LINES_OF(half, INT8_LINE_ROWS / 2)
LINES_OF(full, INT8_LINE_ROWS)
#else
#define LINES_ARE(type) [DTYPE_##type] = {line_##type, line_##type, line_##type}
#endif
#ifndef LINES_ARE
#define LINES_ARE(type) [DTYPE_##type] = {line_##type, half_##type, full_##type}
#endif

/* At most INT8_LINE_ROWS rows. */
static void int8_few(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    static void (*const line[DTYPE_COUNT][3])(float *, const struct int8_rows *, size_t,
                                              const struct panel *, size_t) = {
        LINES_ARE(Q8),  LINES_ARE(Q8C), LINES_ARE(Q4),  LINES_ARE(Q4S),
        LINES_ARE(Q4K), LINES_ARE(Q6K), LINES_ARE(Q8K),
    };
    const int size = rows == 1 ? 0 : rows <= INT8_LINE_ROWS / 2 ? 1 : 2;
    for (size_t b = 0; b < w->blocks; b++)
        line[w->type][size](y + b * LANES, x, rows, w, b);
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    static _Thread_local struct piece piece __attribute__((aligned(PACK_LINE)));
    if (rows <= INT8_LINE_ROWS)
        int8_few(y, x, rows, w);
    for (size_t k = 0; rows > INT8_LINE_ROWS && k < w->depth; k += PIECE) {
        const struct int8_rows from = row_at(x, 0, k);
        piece.cells = size_min(PIECE, w->depth - k) / FEW_GROUP;
        prepare(&piece, w, k);
        int8_piece(y, &from, rows, &piece, w, w->onward || k > 0, k + PIECE >= w->depth);
    }
    if (w->type == DTYPE_Q8C && w->last)
        end_whole(y, x, rows, w);
}

/* ---- rows become int8 ---- */

INLINE vi abs_bits(const float *x) { return (vi)vu_load(x) & 0x7fffffff; }

/* The bits of the largest |x| of n: as whole numbers they have the same order, and what is not finite is above all. */
static int32_t most_bits(const float *x, size_t n)
{
    const size_t whole = n / VW * VW;
    int32_t most = 0, bits;
    vi all = {0};
    for (size_t i = 0; i < whole; i += VW) {
        const vi own = abs_bits(x + i), above = own > all;
        all = (own & above) | (all & ~above);
    }
    for (int lane = 0; lane < VW; lane++)
        most = all[lane] > most ? all[lane] : most;
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
    int32_t all = 0;
    for (int lane = 0; lane < VW; lane++)
        all += sum[lane];
    return all;
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

#define INT8_SLOTS .panel_int8 = panel_int8, .to_int8 = to_int8
