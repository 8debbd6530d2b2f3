/* AMX-INT8: products of 16 activation rows, a tile of signed bytes, with 16 outputs.
 *
 * DTYPE_Q8_CHANNEL, with one scale per output, is summed in tiles over all inputs. With a scale per 32 inputs, the
 * tile of sums of every quant group is stored and added to f32 sums in registers, while tiles of the next groups are
 * multiplied. That takes about as long as four products of tiles: storing a tile is microcode, and FMAs have one port
 * instead of two while tiles are multiplied. With a scale per 16 inputs, or fewer rows, the kernel set vnni is
 * as fast. Results are bitwise the same either way, as integer sums are exact. */
#ifdef AMX_HEADER
#include "kernel/ref/ref_begin.h"
#else
#include "kernel/x86/vnni_begin.h"
#endif
#include "kernel/x86/amx_tiles.h"

/* of interleave.h, for other sets */
static size_t int8_mr(enum dtype type, size_t rows) __attribute__((unused));
static void interleave_int8(char *to, const struct int8_rows *x, size_t rows, size_t mr, size_t kc,
                            enum dtype type) __attribute__((unused));
#include "kernel/template/kslab.h"

extern const struct kernels kernels_vnni, kernels_int8_amx;

/* CHANNEL_ROWS: of q8_channel, with fewer activation rows the set vnni is faster; TILE_K: inputs of a full tile */
enum { CHANNEL_ROWS = 16, TILE_K = 64 };

/* Tile configuration for k inputs: tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights. */
#define CONFIG(k)                                                                                      \
    {                                                                                                  \
        .palette = 1, .row_bytes = {64, 64, 64, 64, (k), (k), 64, 64}, .rows = {                       \
            [0 ... 5] = AMX_ROWS,                                                                      \
            [6 ... 7] = (k) / 4                                                                        \
        }                                                                                              \
    }
static const struct tile_config full_tiles = CONFIG(TILE_K), qtile_tiles = CONFIG(QK_GROUP);

/* A compiler barrier: gcc does not know that tile loads read memory. */
static void end_stores(void) { __asm__ volatile("" ::: "memory"); }

/* ---- types with a scale per 32 inputs ---- */

#define MULTIPLY_GROUP(sum, a, b)                                                                      \
    _tile_loadd(a, x, QK_GROUP);                                                                       \
    _tile_loadd(b, w, PACK_LINE);                                                                      \
    _tile_zero(sum);                                                                                   \
    _tile_dpbssd(sum, a, b)

/* Multiplies a q tile by 16 rows in tile `sum` of 4. */
INLINE void multiply_group(const size_t sum, const char *x, const unsigned char *w)
{
    switch (sum) {
    case 0: MULTIPLY_GROUP(0, 4, 6); break;
    case 1: MULTIPLY_GROUP(1, 5, 7); break;
    case 2: MULTIPLY_GROUP(2, 4, 6); break;
    case 3: MULTIPLY_GROUP(3, 5, 7); break;
    }
}

INLINE void store_sums(const size_t sum, int32_t *to)
{
    switch (sum) {
    case 0: _tile_stored(0, to, NR * sizeof *to); break;
    case 1: _tile_stored(1, to, NR * sizeof *to); break;
    case 2: _tile_stored(2, to, NR * sizeof *to); break;
    case 3: _tile_stored(3, to, NR * sizeof *to); break;
    }
}

/* interleaved bytes of 32 inputs of a tile of rows */
enum { GROUP_BYTES = AMX_ROWS * INT8_INTERLEAVED_BYTES };

/* Adds the integer sums `dot` of quant group n of a K slab to f32 sums. */
INLINE void add_group(const bool min, vf sum[AMX_ROWS][NR_VECS], const int32_t *dot,
                      const struct int8_tile *tile, size_t n)
{
    const char *x = tile->x + n * GROUP_BYTES;
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    {
        const vf w_scale = vf_load(&tile->kslab->scale[n][tile->block][g * VW]);
        const vf w_magic = vf_load(&tile->kslab->magic[n][tile->block][g * VW]);
        const vf w_min = vf_load(&tile->kslab->min[n][tile->block][g * VW]);
        UNROLL(for (int i = 0; i < AMX_ROWS; i++))
        {
            const vi bits = (vi)vu_load(dot + i * NR + g * VW) + MAGIC_BITS;
            sum[i][g] = vf_fma(scale_magic_int(bits, w_scale, w_magic),
                               (vf)load_word(x + INTERLEAVED_SCALE(AMX_ROWS, i)), sum[i][g]);
            if (min)
                sum[i][g] =
                    vf_fma(w_min, (vf)load_word(x + INTERLEAVED_SUM(AMX_ROWS, 0, i)), sum[i][g]);
        }
    }
}

/* Multiplies 16 rows by a weight block over a K slab. In step n q tile n is multiplied, the sums of
 * q tile n - 1 are stored, and those of q tile n - 2 added. */
INLINE void groups_tile(const bool min, const struct int8_tile *given)
{
    const struct int8_tile tile = *given;
    const size_t end = tile.kslab->qtiles;
    int32_t dot[2][AMX_ROWS * NR] __attribute__((aligned(PACK_LINE)));
    vf sum[AMX_ROWS][NR_VECS];
    float *y = tile.y + tile.block * NR;
    UNROLL(for (int i = 0; i < AMX_ROWS; i++))
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    sum[i][g] = tile.accumulate ? vf_load(y + i * PANEL_WIDTH + g * VW) : (vf){0};
    for (size_t first = 0; first < end + 2; first += 4)
        UNROLL(for (size_t at = 0; at < 4; at++))
        {
            const size_t n = first + at;
            if (n < end)
                multiply_group(at, tile.x + n * GROUP_BYTES,
                               tile.kslab->byte[tile.block] + n * QTILE_BYTES);
            if (n >= 1 && n < end + 1)
                store_sums((at + 3) % 4, dot[(at + 1) % 2]);
            end_stores();
            if (n >= 2 && n < end + 2)
                add_group(min, sum, dot[at % 2], &tile, n - 2);
            end_stores();
        }
    UNROLL(for (int i = 0; i < AMX_ROWS; i++))
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    vf_store(y + i * PANEL_WIDTH + g * VW, sum[i][g]);
}

static void tile_scaled(const struct int8_tile *tile) { groups_tile(false, tile); }
static void tile_scaled_min(const struct int8_tile *tile) { groups_tile(true, tile); }

/* Subtracts the zero point from the bytes of a K slab, for a product of signed bytes. */
static void kslab_sign(struct kslab *kslab, enum dtype type, size_t blocks)
{
    typedef unsigned char bytes __attribute__((vector_size(4 * VW)));
    const bytes zero = quant_types[type].zero_point - (bytes){0};
    for (size_t b = 0; b < blocks; b++)
        for (size_t at = 0; at < kslab->qtiles * QTILE_BYTES; at += sizeof zero)
            vu_store(kslab->byte[b] + at, (vu)((bytes)vu_load(kslab->q[b] + at) - zero));
}

/* Multiplies interleaved rows by a K slab. Prefetches the weights at `next` (NULL: none), some with every tile. */
static void groups_kslab(struct int8_tile tile, size_t rows, const struct panel *w, const char *next)
{
    const size_t tiles = div_up(rows, AMX_ROWS);
    const size_t lines = next ? div_up(pack_q_bytes(w->type, KSLAB), PACK_LINE) : 0;
    for (size_t i = 0; i < tiles; i++) {
        for (tile.block = 0; tile.block < w->blocks; tile.block++) {
            for (size_t line = i * lines / tiles; line < (i + 1) * lines / tiles; line++)
                __builtin_prefetch(next + tile.block * w->block_bytes + line * PACK_LINE, 0, 2);
            (quant_has_min(w->type) ? tile_scaled_min : tile_scaled)(&tile);
        }
        tile.y += AMX_ROWS * PANEL_WIDTH;
        tile.x += w->kc / QK_GROUP * GROUP_BYTES;
    }
}

static void panel_groups(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    struct kslab kslab __attribute__((aligned(PACK_LINE)));
    tiles_set(&qtile_tiles);
    for (size_t k = 0, kc; k < w->kc; k += kc) {
        kc = size_min(KSLAB, w->kc - k);
        kslab.qtiles = kc / QK_GROUP;
        kslab_fill(&kslab, w, k);
        kslab_sign(&kslab, w->type, w->blocks);
        end_stores();
        const struct int8_tile tile = {.y = y,
                                       .x = x->interleaved + k / QK_GROUP * GROUP_BYTES,
                                       .kslab = &kslab,
                                       .accumulate = w->accumulate || k > 0};
        groups_kslab(tile, rows, w,
                     k + kc < w->kc ? (const char *)qtile_at(w->type, w, 0, k + kc) : w->next);
    }
}

/* Interleaves up to 16 rows for panel_groups(): like interleave_int8(), but 32 inputs of a row are contiguous, a row
 * of a tile, and there are no initial sums. */
static void interleave_groups(char *to, const struct int8_rows *x, size_t rows, size_t kc)
{
    if (rows < AMX_ROWS)
        memset(to, 0, kc / QK_GROUP * GROUP_BYTES);
    for (size_t k = 0; k < kc; k += QK_GROUP, to += GROUP_BYTES)
        for (size_t i = 0; i < rows; i++) {
            const struct int8_rows row = row_at(x, i, k);
            const float scaled_sum = *row.scale * (float)(row.sum[0] + row.sum[1]);
            memcpy(to + i * QK_GROUP, row.q, QK_GROUP);
            memcpy(to + INTERLEAVED_SCALE(AMX_ROWS, i), row.scale, sizeof *row.scale);
            memcpy(to + INTERLEAVED_SUM(AMX_ROWS, 0, i), &scaled_sum, sizeof scaled_sum);
        }
}

/* Height of the tiles of interleaved rows, two tiles of AMX: higher than those of vnni. */
enum { GROUPS_MR = 2 * AMX_ROWS };
_Static_assert((int)GROUPS_MR > (int)SMALLM_MR && INT8_MAX_ROWS % (int)GROUPS_MR == 0,
               "mr selects the kernel");

/* True if products of so many rows are faster in tiles: for up to 64 rows, if hardly any of the last tile is padding
 * and weights are not slow to unpack. */
static bool faster_in_groups(enum dtype type, size_t rows)
{
    const bool full = rows > AMX_ROWS && 16 * rows >= 15 * round_up(rows, AMX_ROWS);
    if (type == DTYPE_Q8_CHANNEL || qtile_groups(type) == 2)
        return false;
    return rows > 4 * AMX_ROWS || (full && !quant_has_grid(type) && !quant_types[type].ternary);
}

/* ---- DTYPE_Q8_CHANNEL ---- */

/* Operands of a product of 2 x 2 tiles: 32 activation rows and two weight blocks. Where there are
 * only 16 rows or one block, the second 16 rows or block repeat the first. */
struct square {
    int32_t *y[2];
    const int8_t *x[2];
    size_t row_bytes;
    const unsigned char *w[2];
    size_t block_columns; /* distance between the two blocks' sums in y */
};

enum { Y_BYTES = PANEL_WIDTH * sizeof(int32_t) };

static void load_square(const struct square *s, bool accumulate)
{
    if (!accumulate) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, s->y[0], Y_BYTES);
    _tile_loadd(1, s->y[0] + s->block_columns, Y_BYTES);
    _tile_loadd(2, s->y[1], Y_BYTES);
    _tile_loadd(3, s->y[1] + s->block_columns, Y_BYTES);
}

static void store_square(const struct square *s)
{
    _tile_stored(0, s->y[0], Y_BYTES);
    _tile_stored(1, s->y[0] + s->block_columns, Y_BYTES);
    _tile_stored(2, s->y[1], Y_BYTES);
    _tile_stored(3, s->y[1] + s->block_columns, Y_BYTES);
}

/* Adds to the 2 x 2 tiles of sums the products of one tile of inputs, from input k on. */
static void multiply_square(const struct square *s, size_t k)
{
    _tile_loadd(4, s->x[0] + k, s->row_bytes);
    _tile_loadd(6, s->w[0] + k * NR, PACK_LINE);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, s->w[1] + k * NR, PACK_LINE);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, s->x[1] + k, s->row_bytes);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
}

/* Multiplies 32 activation rows by two weight blocks over all inputs of the panel, TILE_K at a
 * time; 32 inputs that are left over use a narrower tile configuration. */
static void run_square(const struct square *s, const struct panel *w, struct panel_prefetch prefetch)
{
    const size_t full = w->kc / TILE_K * TILE_K;
    end_stores();
    load_square(s, w->accumulate);
    for (size_t k = 0; k < full; k += TILE_K) {
        prefetch_next(&prefetch, k * NR, TILE_K * NR);
        multiply_square(s, k);
    }
    if (full < w->kc) {
        store_square(s);
        end_stores();
        tiles_set(&qtile_tiles);
        prefetch_next(&prefetch, full * NR, QK_GROUP * NR);
        load_square(s, true);
        multiply_square(s, full);
    }
    store_square(s);
    if (full < w->kc)
        tiles_set(&full_tiles);
}

/* Corrects int32 products for the weights' zero point: subtracts zero_point * (sum of the row's
 * int8 activations) from every product of an activation row. */
static void subtract_zero_points(int32_t *y, const struct int8_rows *x, size_t rows,
                                 const struct panel *w)
{
    const size_t all = (w->k_begin + w->kc) / QK_HALF;
    for (size_t i = 0; i < rows; i++, y += PANEL_WIDTH) {
        const int32_t *sum = row_at(x, i, 0).sum - w->k_begin / QK_HALF;
        uint32_t total = 0;
        for (size_t n = 0; n < all; n++)
            total += (uint32_t)sum[n];
        const vi correction = vi_set1((int32_t)(total * quant_types[DTYPE_Q8_CHANNEL].zero_point));
        for (size_t o = 0; o < w->blocks * NR; o += VW)
            vf_store((float *)(void *)(y + o), (vf)((vi)vu_load(y + o) - correction));
    }
}

static void panel_channel(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    const size_t tiles = div_up(rows, 2 * AMX_ROWS) * div_up(w->blocks, 2);
    int32_t *sums = (void *)y;
    size_t tile = 0;
    tiles_set(&full_tiles);
    for (size_t i = 0; i < rows; i += 2 * AMX_ROWS)
        for (size_t c = 0; c < w->blocks; c += 2) {
            const size_t low = rows - i > AMX_ROWS ? i + AMX_ROWS : i, right = c + 1 < w->blocks;
            const struct square s = {
                .y = {sums + i * PANEL_WIDTH + c * NR, sums + low * PANEL_WIDTH + c * NR},
                .x = {row_at(x, i, 0).q, row_at(x, low, 0).q},
                .row_bytes = x->row_bytes,
                .w = {qtile_at(DTYPE_Q8_CHANNEL, w, c, 0), qtile_at(DTYPE_Q8_CHANNEL, w, c + right, 0)},
                .block_columns = right * NR,
            };
            run_square(&s, w, panel_prefetch_of(w, tile++, tiles));
        }
    end_stores();
    if (w->last_k) {
        subtract_zero_points(sums, x, rows, w);
        channel_epilogue(y, x, rows, w);
    }
}

/* True if rows are interleaved for panel_groups(). */
static bool in_groups(enum dtype type, size_t mr)
{
    return type != DTYPE_Q8_CHANNEL && mr == GROUPS_MR;
}

static void panel_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    if (x->interleaved && in_groups(w->type, x->mr))
        panel_groups(y, x, rows, w);
    else if (w->type == DTYPE_Q8_CHANNEL && rows >= CHANNEL_ROWS)
        panel_channel(y, x, rows, w);
    else
        kernels_vnni.panel_int8(y, x, rows, w);
}

static size_t int8_mr_amx(enum dtype type, size_t rows)
{
    if (type == DTYPE_Q8_CHANNEL && rows >= CHANNEL_ROWS)
        return 0;
    if (faster_in_groups(type, rows))
        return GROUPS_MR;
    return kernels_vnni.int8_mr(type, rows);
}

static void interleave_int8_amx(char *to, const struct int8_rows *x, size_t rows, size_t mr, size_t kc,
                                enum dtype type)
{
    if (!in_groups(type, mr)) {
        kernels_vnni.interleave_int8(to, x, rows, mr, kc, type);
        return;
    }
    for (size_t i = 0; i < rows; i += AMX_ROWS, to += kc / QK_GROUP * GROUP_BYTES) {
        const struct int8_rows from = row_at(x, i, 0);
        interleave_groups(to, &from, size_min(AMX_ROWS, rows - i), kc);
    }
}

const struct kernels kernels_int8_amx = {.base = &kernels_vnni,
                                         .panel_int8 = panel_int8,
                                         .interleave_int8 = interleave_int8_amx,
                                         .int8_mr = int8_mr_amx};
