/* Products of f32 rows with a panel of packed weights. Included by a set's file after set_vec.h; the set
 * defines PANEL_ROWS, the rows multiplied at a time, and PANEL_SUMS, the groups of LANES sums that its
 * registers hold.
 *
 * Every sum runs over the inputs in order, k = 0, 1, 2 ..., in one chain. */

/* Blocks that R rows take at a time. */
#define PANEL_COLUMNS(R) (4 * (R) <= PANEL_SUMS ? 4 : 2 * (R) <= PANEL_SUMS ? 2 : 1)

/* sum[i] += x[i][k] * weights, for a group of outputs. */
INLINE void add_products(const int R, vf (*sum)[PANEL_BLOCKS][GROUP], const int c, const vf *weights,
                         const float *x, size_t x_stride)
{
    for (int i = 0; i < R; i++) {
        const vf x_i = vf_set1(x[i * x_stride]);
        for (int g = 0; g < GROUP; g++)
            sum[i][c][g] = vf_fma(x_i, weights[g], sum[i][c][g]);
    }
}

/* The weights of a group of outputs for two neighbouring inputs, whose rows of LANES words lie at `at`. */
INLINE void load_weights(enum dtype type, vf *even, vf *odd, const char *at)
{
    const size_t row = LANES * dtype_size(type);
    for (int g = 0; g < GROUP; g++) {
        const vu bits = type == DTYPE_F16 ? (vu){0} : vu_load(at + g * VW * 4);
        switch (type) {
        case DTYPE_F32:
            even[g] = (vf)bits;
            odd[g] = (vf)vu_load(at + row + g * VW * 4);
            break;
        case DTYPE_BF16:
            even[g] = (vf)(bits << 16);
            odd[g] = (vf)(bits & 0xffff0000u);
            break;
        case DTYPE_F16:
            even[g] = vf_load_f16((const f16 *)(const void *)at + g * VW);
            odd[g] = vf_load_f16((const f16 *)(const void *)(at + row) + g * VW);
            break;
        case DTYPE_FEW_BITS:
        case DTYPE_COUNT: break;
        }
    }
}

/* y[R][C * LANES] of C blocks. */
INLINE void panel_tile(const int R, const int C, enum dtype type, float *y, const float *x,
                       size_t x_stride, const struct panel *panel, size_t block, struct ahead ahead)
{
    const size_t row = LANES * dtype_size(type);
    const char *w = panel->w + block * panel->block_bytes;
    vf sum[PANEL_ROWS][PANEL_BLOCKS][GROUP] = {{{{0}}}};
    if (panel->onward)
        for (int i = 0; i < R; i++)
            for (int c = 0; c < C; c++)
                for (int g = 0; g < GROUP; g++)
                    sum[i][c][g] = vf_load(y + i * PANEL_WIDTH + c * LANES + g * VW);
    for (size_t k = 0; k < panel->depth; k += 2) {
        fetch(&ahead, k * row, 2 * row);
        for (int c = 0; c < C; c++) {
            vf even[GROUP], odd[GROUP];
            load_weights(type, even, odd, w + c * panel->block_bytes + k * row);
            add_products(R, sum, c, even, x + k, x_stride);
            add_products(R, sum, c, odd, x + k + 1, x_stride);
        }
    }
    for (int i = 0; i < R; i++)
        for (int c = 0; c < C; c++)
            for (int g = 0; g < GROUP; g++)
                vf_store(y + i * PANEL_WIDTH + c * LANES + g * VW, sum[i][c][g]);
}

/* R rows over all blocks. */
INLINE void panel_row(const int R, enum dtype type, float *y, const float *x, size_t x_stride,
                      const struct panel *w, struct ahead ahead)
{
    size_t c = 0;
    for (; c + PANEL_COLUMNS(R) <= w->blocks; c += PANEL_COLUMNS(R))
        panel_tile(R, PANEL_COLUMNS(R), type, y + c * LANES, x, x_stride, w, c,
                   c ? (struct ahead){{0}} : ahead);
    for (; PANEL_COLUMNS(R) > 1 && c < w->blocks; c++)
        panel_tile(R, 1, type, y + c * LANES, x, x_stride, w, c, (struct ahead){{0}});
}

/* Few bits: a piece of the range at a time becomes f32, which the same sums then run over. */
static void panel_few(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w);

static void panel_f32(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    const size_t tiles = div_up(rows, PANEL_ROWS);
    size_t tile = 0;
    if (dtype_few_bits(w->type)) {
        panel_few(y, x, x_stride, rows, w);
        return;
    }
#define TILE                                                                                           \
    const struct ahead ahead = ahead_of(w, tile++, tiles);                                             \
    switch (w->type) {                                                                                 \
    case DTYPE_F32:                                                                                    \
        panel_row(R, DTYPE_F32, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, ahead);            \
        break;                                                                                         \
    case DTYPE_BF16:                                                                                   \
        panel_row(R, DTYPE_BF16, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, ahead);           \
        break;                                                                                         \
    case DTYPE_F16:                                                                                    \
        panel_row(R, DTYPE_F16, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, ahead);            \
        break;                                                                                         \
    case DTYPE_FEW_BITS:                                                                               \
    case DTYPE_COUNT: break;                                                                           \
    }
    FOR_TILES(rows, PANEL_ROWS, TILE);
#undef TILE
}

static void panel_few(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    enum { PIECE = 128 };
    static _Thread_local float wide[PANEL_BLOCKS * PIECE * LANES];
    struct panel piece = *w;
    piece.type = DTYPE_F32;
    piece.w = (const char *)wide;
    piece.next = NULL;
    for (size_t k = 0; k < w->depth; k += PIECE) {
        piece.depth = size_min(PIECE, w->depth - k);
        piece.block_bytes = piece.depth * LANES * sizeof *wide;
        for (size_t b = 0; b < w->blocks; b++)
            widen_few(wide + b * piece.depth * LANES, w, b, k, piece.depth);
        panel_f32(y, x + k, x_stride, rows, &piece);
        piece.onward = true;
    }
}
