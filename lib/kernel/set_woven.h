/* Woven rows, for each cell what its products read, one after the other; and those products. Included by set_int8.h, which
 * says what a set defines. */

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

/* Rows that a tile lacks are zeros. A single row's words lie side by side: known to be one, they are copied together. */
INLINE void weave_rows(enum dtype type, char *to, const struct int8_rows *x, size_t rows, size_t tall,
                       size_t depth)
{
    if (rows < tall)
        memset(to, 0, depth / FEW_GROUP * tall * INT8_WOVEN_BYTES);
    for (size_t k = 0; k < depth; k += FEW_GROUP, to += tall * INT8_WOVEN_BYTES)
        for (size_t i = 0; i < rows; i++) {
            const struct int8_rows row = row_at(x, i, k);
            weave_cell(type, to, tall, i, &row);
        }
}

static void weave_int8(char *to, const struct int8_rows *x, size_t rows, size_t tall, size_t depth,
                       enum dtype type)
{
    switch (type) {
#define WEAVE(type)                                                                                    \
    tall == 1 ? weave_rows(type, to, x, 1, 1, depth) : weave_rows(type, to, x, rows, tall, depth)
        FEW_CASES(WEAVE)
#undef WEAVE
    }
}

/* Tiles of many rows, and of any number. */
INLINE size_t tall_of_many(enum dtype type) { return type == DTYPE_Q8C ? WHOLE_ROWS : INT8_ROWS; }

static size_t int8_tall(enum dtype type, size_t rows)
{
    if (rows <= INT8_FEW_ROWS)
        return rows > 1 ? LINE_ROWS : 1;
    return tall_of_many(type);
}
_Static_assert(LINE_ROWS != INT8_ROWS && LINE_ROWS != (int)WHOLE_ROWS, "tall tells few from many");
_Static_assert(INT8_MOST_ROWS % INT8_ROWS == 0 && INT8_MOST_ROWS % WHOLE_ROWS == 0 &&
                   INT8_MOST_ROWS % LINE_ROWS == 0,
               "chunks of rows end where tiles do");

/* ---- products of a cell ---- */

/* A tile's sums: of rows, and of registers of outputs. */
enum {
    SUM_ROWS = LINE_ROWS > WHOLE_ROWS ? LINE_ROWS : WHOLE_ROWS,
    SUM_WIDE = PANEL_BLOCKS * GROUP,
};
_Static_assert((int)INT8_ROWS <= (int)SUM_ROWS, "sums have room for all tiles");

INLINE vi load_word(const char *at)
{
    int32_t word;
    memcpy(&word, at, sizeof word);
    return vi_set1(word);
}

/* The same, in a register of its own where the set can say so: copies would take turns with products. */
#ifndef vi_load_own
#define vi_load_own(at) load_word(at)
#endif

#define EACH_OF_TILE(DO)                                                                               \
    UNROLL(for (int i = 0; i < R; i++))                                                                \
    UNROLL(for (int v = 0; v < V; v++))                                                                \
    DO

/* Adds the products of `lines` lines, from line `from` on, of R rows at x and V registers of outputs, whose lines lie from code[]
 * on as those of type `as` do. They are codes of so many bits. */
INLINE void add_dots(const int R, const int V, enum dtype as, unsigned bits, vi dot[SUM_ROWS][SUM_WIDE],
                     const unsigned char *const *code, const char *x, const int from, const int lines)
{
#ifdef INT8_PAIRS
    const int run = INT8_PAIRS(bits) < lines ? INT8_PAIRS(bits) : lines;
#else
    const int run = 1;
#endif
    UNROLL(for (int j = from; j < from + lines; j += run))
    {
#ifdef INT8_PAIRS
        vs pairs[SUM_ROWS][SUM_WIDE] = {{{0}}};
#endif
        UNROLL(for (int m = j; m < j + run; m++))
        {
            vu w[SUM_WIDE];
            UNROLL(for (int v = 0; v < V; v++))
            w[v] = vu_keep(load_line(as, code[v], m, 0));
            UNROLL(for (int i = 0; i < R; i++))
            {
                const vi four = load_word(x + WOVEN_CODE(R, m, i));
                UNROLL(for (int v = 0; v < V; v++))
#ifdef INT8_PAIRS
                pairs[i][v] += vs_pairs(bits, w[v], four);
#else
                dot[i][v] = vi_dot4(bits, dot[i][v], w[v], four);
#endif
            }
        }
#ifdef INT8_PAIRS
        EACH_OF_TILE(dot[i][v] += vi_join(pairs[i][v]));
#endif
    }
}

/* What the products of group n of a row come to, with the step and base of a register. */
INLINE vf add_times(const int R, enum dtype type, vf sum, vi dot, const struct few_vectors *values,
                    vf away, const char *x, int n, int i)
{
    sum = vf_fma(times_step(dot, values->step, away), (vf)load_word(x + WOVEN_SCALE(R, i)), sum);
    if (has_base(type))
        sum = vf_fma(values->base, (vf)load_word(x + WOVEN_OWN(R, n, i)), sum);
    return sum;
}
