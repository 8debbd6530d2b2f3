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

/* The weights of two neighbouring inputs for VW outputs; a row of a block takes `row` bytes. */
INLINE void load_pair(enum dtype type, const char *at, size_t row, vf *even, vf *odd)
{
    const vu bits = vu_load(at);
    *even = *odd = (vf){0};
    switch (type) {
    case DTYPE_F32:
        *even = (vf)bits;
        *odd = (vf)vu_load(at + row);
        break;
    case DTYPE_BF16:
        *even = (vf)(bits << 16);
        *odd = (vf)(bits & 0xffff0000u);
        break;
    case DTYPE_COUNT: break;
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
            const char *at = w + c * panel->block_bytes + k * row;
            vf even[GROUP], odd[GROUP];
            for (int g = 0; g < GROUP; g++)
                load_pair(type, at + g * VW * 4, row, &even[g], &odd[g]);
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
    for (; c < w->blocks; c++)
        panel_tile(R, 1, type, y + c * LANES, x, x_stride, w, c, (struct ahead){{0}});
}

static void panel_f32(float *y, const float *x, size_t x_stride, size_t rows, const struct panel *w)
{
    const size_t tiles = div_up(rows, PANEL_ROWS);
    size_t tile = 0;
#define TILE                                                                                           \
    const struct ahead ahead = ahead_of(w, tile++, tiles);                                             \
    switch (w->type) {                                                                                 \
    case DTYPE_F32:                                                                                    \
        panel_row(R, DTYPE_F32, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, ahead);            \
        break;                                                                                         \
    case DTYPE_BF16:                                                                                   \
        panel_row(R, DTYPE_BF16, y + i * PANEL_WIDTH, x + i * x_stride, x_stride, w, ahead);           \
        break;                                                                                         \
    case DTYPE_COUNT: break;                                                                           \
    }
    FOR_TILES(rows, PANEL_ROWS, TILE);
#undef TILE
}
