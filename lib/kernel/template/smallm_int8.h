/* Template: products of few int8 activation rows with quantised weights, unpacked in registers.
 *
 * There are seven kernels:
 *   ROW        1 row and 1 weight block: one stream from memory, prefetched into L1
 *   ROW_L2     1 row and PANEL_BLOCKS blocks, that is four streams, prefetched into L2: where prefetch_l2 is set
 *   TWO        2 rows and PANEL_BLOCKS blocks, in sets with SMALLM_HAS_TWO
 *   FEW        up to SMALLM_FEW_MR rows, SMALLM_FEW_BLOCKS blocks: fewer rows of zeros than in TILE
 *   TILE       up to SMALLM_WIDE_MR rows, SMALLM_BLOCKS blocks, or up to SMALLM_MR rows, one block
 *   HALF       for two such tiles: each prefetches half of the next weights
 *   QUARTER    for more tiles: each prefetches a quarter
 * The last three exist for several numbers of rows, so that tiles have few rows of padding: 9 rows are
 * a tile of 10, not one of 16 or two of 8. They differ only in how much they prefetch, which is a constant because
 * the loops are slower with a variable.
 * TWO, FEW and TILE prefetch into L2 and, where prefetch_l2 is set, also into L1, shortly before use. The first five
 * also prefetch the scales of the next blocks, streams too short for hardware prefetchers. ROW_L2 spreads its
 * prefetches over the products of a q tile. tests/bench/kernels.md has what each of these gains, by processor. */
#pragma once

#include "kernel/template/int8_dot.h"
#include "kernel/cpu_traits.h"

struct smallm_tile {
    float *y;
    const char *x;  /* interleaved activation rows, at input k_begin */
    struct panel w; /* begins with the tile's first block */
    /* Byte offsets of the tile's blocks. Addresses are sums of a base that all blocks share and one of these:
     * a pointer per block and array would not fit in registers. */
    size_t block_at[PANEL_BLOCKS];
    size_t k_begin, k_end;
    const unsigned char *prefetch; /* next weights to prefetch, of the first block */
    /* of kernels for a single tile of rows: second prefetch stream, used from input `switch_at` on */
    const unsigned char *prefetch_second;
    size_t switch_at;
    bool prefetch_l1; /* of TWO, FEW and TILE: into L1, too, SMALLM_NEAR bytes ahead */
    /* of kernels for a single tile of rows: scales of the next blocks, of which a line is prefetched
     * with every q tile */
    const unsigned char *prefetch_scales;
};

/* Returns the panel that begins `bytes` behind panel w. */
INLINE struct panel panel_behind(struct panel w, size_t bytes)
{
    w.w += bytes;
    for (size_t p = 0; p < SCALE_KINDS; p++)
        w.scales[p] += bytes;
    return w;
}

/* Inputs for which d and dmin, or a wide scale and its min, stay in registers, instead of being converted for every quant
 * group: faster for up to two rows. 0: none. */
INLINE size_t smallm_super_inputs(const int R, enum dtype type)
{
    const struct scale_array *scales = quant_types[type].scales;
    return R > 2                   ? 0
           : scales[SCALE_D].bytes ? QK_SUPER
           : wide_groups(type)     ? scales[SCALE_MAIN].every
                                   : 0;
}

enum smallm_kernel {
    SMALLM_ROW,
    SMALLM_ROW_L2,
    SMALLM_TWO,
    SMALLM_FEW,
    SMALLM_TILE,
    SMALLM_HALF,
    SMALLM_QUARTER,
    SMALLM_KERNELS
};

/* Of ROW_L2: prefetches the share of lines [from, to) of what is due with a q tile of C weight blocks. */
INLINE void smallm_prefetch_share(const int C, enum dtype type, const struct smallm_tile *t,
                                  const int from, const int to)
{
    const int lines = (int)div_up(pack_q_bytes(type, QK_GROUP), PACK_LINE), each = lines + 1;
    __asm__ volatile(""); /* else gcc moves all prefetches to the first line */
    UNROLL(for (int i = from * each * C / QTILE_LINES; i < to * each * C / QTILE_LINES; i++))
    {
        const unsigned char *at =
            i % each < lines ? t->prefetch + i % each * PACK_LINE : t->prefetch_scales;
        __builtin_prefetch(at + t->block_at[i / each], 0, 1);
    }
}

/* True if there are two integer sums, to which the lines of a quant group are added in turns: where unpacking is so fast that
 * each product would wait for the one before. */
INLINE bool smallm_halves(int sums, enum dtype type)
{
    return sums == 1 && quant_types[type].bits <= 2 && qtile_groups(type) == 1;
}

/* Adds the products of R activation rows and quant group n (inputs that share a scale) of the q
 * tile at input k to `sum`, for the outputs of register g of each of C weight blocks. `super`: used
 * if smallm_super_inputs(). */
INLINE void smallm_add_group(const int R, const int C, enum dtype type, enum smallm_kernel kernel,
                             vf sum[NR_VECS][ACC_MR][PANEL_BLOCKS], const struct smallm_tile *t,
                             struct qsuper_vec super[NR_VECS][PANEL_BLOCKS], size_t k, int g, int n)
{
    const int V = C;
    struct qtile_operands from = {.g = g, .stored = type, .x = t->x};
    vi dot[ACC_MR][ACC_VECS], odd[ACC_MR][ACC_VECS] = {{{0}}};
    const bool halved = smallm_halves(R * V, type);
    for (int v = 0; v < V; v++)
        from.w[v] = qtile_at(type, &t->w, 0, k) + t->block_at[v];
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vi start = load_word(t->x + INTERLEAVED_START(R, n, i));
        UNROLL(for (int v = 0; v < V; v++))
        dot[i][v] = type == DTYPE_Q8_CHANNEL ? (vi)sum[g][i][v] + start : start;
    }
    const int lines = QTILE_LINES / qtile_groups(type), step = lines_at_a_time(type, lines);
    UNROLL(for (int line = n * lines; line < (n + 1) * lines; line += step))
    {
        dot_lines(R, V, type, halved && line / step % 2 ? odd : dot, &from, line, step);
        if (kernel == SMALLM_ROW_L2 && g == 0)
            smallm_prefetch_share(V, type, t, line, line + step);
    }
    if (halved)
        FOR_ACC(dot[i][v] += odd[i][v]);
    if (type == DTYPE_Q8_CHANNEL) {
        FOR_ACC(sum[g][i][v] = (vf)dot[i][v]);
        return;
    }
    UNROLL(for (int v = 0; v < V; v++))
    {
        const size_t at = k + n * QK_HALF;
        const struct panel w = panel_behind(t->w, t->block_at[v]);
        const struct qscale_vec scale = smallm_super_inputs(R, type)
                                            ? load_qgroup(type, &w, 0, at, g, super[g][v])
                                            : load_qscale(type, &w, 0, at, g);
        const vf magic = magic_term(scale.scale);
        UNROLL(for (int i = 0; i < R; i++))
        sum[g][i][v] = add_scaled(R, type, sum[g][i][v], dot[i][v], &scale, magic, t->x, n, i);
    }
}

#ifdef vi_dot4_word
/* True if smallm_add_rows() is used: for one block per tile, and for types with a scale per 16 inputs,
 * whose scales would not fit in registers otherwise. */
INLINE bool smallm_by_rows(const int R, enum dtype type)
{
    return R > SMALLM_WIDE_MR || (R >= SMALLM_LOW_MR && qtile_groups(type) == 2);
}

/* The same without a register for every integer sum: a quant group is unpacked once and stays in registers,
 * and two rows at a time are multiplied by it, their words being memory operands: 16 sums need 28 registers,
 * where smallm_add_group() spills. Integer sums (q8_channel) are added to in place, for 8 rows at a time. */
INLINE void smallm_add_rows(const int R, const int C, enum dtype type,
                            vf sum[NR_VECS][ACC_MR][PANEL_BLOCKS], const struct smallm_tile *t,
                            size_t k, int g, int n)
{
    const int dots = type == DTYPE_Q8_CHANNEL ? ACC_MR / 2 : 2;
    const int lines = QTILE_LINES / qtile_groups(type);
    UNROLL(for (int v = 0; v < C; v++))
    {
        const struct panel panel = panel_behind(t->w, t->block_at[v]);
        const unsigned char *at = qtile_at(type, &panel, 0, k);
        vu w[QTILE_LINES];
        UNROLL(for (int j = 0; j < lines; j++))
        w[j] = vu_keep(load_line(type, at, n * lines + j, g));
        struct qscale_vec scale = {{0}, {0}};
        if (type != DTYPE_Q8_CHANNEL)
            scale = load_qscale(type, &panel, 0, k + n * QK_HALF, g);
        const vf magic = magic_term(scale.scale);
        UNROLL(for (int i = 0; i < R; i += dots))
        {
            const int some = R - i < dots ? R - i : dots;
            vi dot[ACC_MR / 2];
            UNROLL(for (int d = 0; d < some; d++))
            {
                const vi start = vi_load_own(t->x + INTERLEAVED_START(R, n, i + d));
                dot[d] = type == DTYPE_Q8_CHANNEL ? (vi)sum[g][i + d][v] + start : start;
            }
            UNROLL(for (int j = 0; j < lines; j++))
            UNROLL(for (int d = 0; d < some; d++))
            vi_dot4_word(dot[d], w[j], t->x + INTERLEAVED_Q(R, n * lines + j, i + d));
            UNROLL(for (int d = 0; d < some; d++))
            sum[g][i + d][v] = type == DTYPE_Q8_CHANNEL
                                   ? (vf)dot[d]
                                   : (vf)vu_keep((vu)add_scaled(R, type, sum[g][i + d][v], dot[d],
                                                                &scale, magic, t->x, n, i + d));
        }
    }
}
#endif

#define PREFETCH_LINES(LOOP, bytes, locality)                                                          \
    LOOP(for (size_t line = 0; line < (bytes); line += PACK_LINE))                                     \
    __builtin_prefetch(at + line, 0, locality)

/* Bytes that a micro-kernel prefetches per weight block while it multiplies a q tile. */
INLINE size_t smallm_prefetch_bytes(enum smallm_kernel kernel, enum dtype type)
{
    return pack_q_bytes(type, QK_GROUP) / (kernel == SMALLM_HALF      ? 2
                                           : kernel == SMALLM_QUARTER ? 4
                                                                      : 1);
}

/* Prefetches the bytes at `at` that are due with one q tile. Rolled loops are faster for one stream
 * of weights, unrolled ones for several. */
INLINE void smallm_prefetch(enum smallm_kernel kernel, enum dtype type, const unsigned char *at)
{
    const size_t bytes = smallm_prefetch_bytes(kernel, type);
    if (kernel == SMALLM_ROW)
        PREFETCH_LINES(ROLLED, bytes, 3);
    else if (kernel < SMALLM_HALF)
        PREFETCH_LINES(UNROLL, bytes, 1);
    else
        PREFETCH_LINES(UNROLL, bytes, 3);
}

#define SMALLM_SUM(y) ((y) + i * PANEL_WIDTH + v * NR + g * VW)

enum { SMALLM_NEAR = 1024 };

/* Prefetches what is due with the q tile at input k of V weight blocks. */
INLINE void smallm_prefetch_tile(const int V, enum dtype type, enum smallm_kernel kernel,
                                 const struct smallm_tile *t, size_t k)
{
    UNROLL(for (int v = 0; v < V; v++))
    {
        smallm_prefetch(kernel, type, t->prefetch + t->block_at[v]);
        if (kernel >= SMALLM_TWO && kernel < SMALLM_HALF && t->prefetch_l1) {
            const unsigned char *at = qtile_at(type, &t->w, 0, k) + t->block_at[v] + SMALLM_NEAR;
            PREFETCH_LINES(UNROLL, pack_q_bytes(type, QK_GROUP), 3);
        }
        if (kernel < SMALLM_HALF)
            __builtin_prefetch(t->prefetch_scales + t->block_at[v], 0, 3);
    }
}

#ifdef vi_dot4_word
#define SMALLM_ADD(R, C, type, kernel, sum, t, super, k, g, n)                                         \
    (smallm_by_rows(R, type) ? smallm_add_rows(R, C, type, sum, t, k, g, n)                            \
                             : smallm_add_group(R, C, type, kernel, sum, t, super, k, g, n))
#else
#define SMALLM_ADD smallm_add_group
#endif

INLINE void smallm_tile(const int R, const int C, enum dtype type, enum smallm_kernel kernel,
                        const struct smallm_tile *given)
{
    const int V = C;
    struct smallm_tile t = *given;
    vf sum[NR_VECS][ACC_MR][PANEL_BLOCKS];
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    FOR_ACC(sum[g][i][v] = t.w.accumulate || t.k_begin ? vf_load(SMALLM_SUM(t.y)) : (vf){0});
    for (size_t k = t.k_begin, end; k < t.k_end;) {
        struct qsuper_vec super[NR_VECS][PANEL_BLOCKS];
        end = t.k_end;
        if (kernel < SMALLM_HALF && k < t.switch_at)
            end = t.switch_at;
        else if (kernel < SMALLM_HALF && k == t.switch_at)
            t.prefetch = t.prefetch_second;
        const size_t kept = smallm_super_inputs(R, type);
        if (kept) {
            end = size_min(end, k + kept - (t.w.k_begin + k) % kept);
            UNROLL(for (int g = 0; g < NR_VECS; g++))
            UNROLL(for (int v = 0; v < V; v++))
            {
                const struct panel w = panel_behind(t.w, t.block_at[v]);
                super[g][v] = load_qsuper(type, &w, 0, k, g);
            }
        }
        for (; k < end; k += QK_GROUP) {
            if (kernel != SMALLM_ROW_L2)
                smallm_prefetch_tile(V, type, kernel, &t, k);
            UNROLL(for (int g = 0; g < NR_VECS; g++))
            UNROLL(for (int n = 0; n < qtile_groups(type); n++))
            SMALLM_ADD(R, C, type, kernel, sum, &t, super, k, g, n);
            t.x += R * INT8_INTERLEAVED_BYTES;
            t.prefetch += smallm_prefetch_bytes(kernel, type);
            t.prefetch_scales += PACK_LINE;
        }
    }
    UNROLL(for (int g = 0; g < NR_VECS; g++))
    FOR_ACC(vf_store(SMALLM_SUM(t.y), sum[g][i][v]));
}

/* Weight blocks per tile of R rows, for TILE, HALF and QUARTER. */
INLINE int smallm_width(size_t R) { return R > SMALLM_WIDE_MR ? 1 : SMALLM_BLOCKS; }

#define SMALLM_FUNCTION(type, kernel, R, C)                                                            \
    static __attribute__((noinline)) void smallm_##type##_##kernel(const struct smallm_tile *tile)     \
    {                                                                                                  \
        smallm_tile(R, C, DTYPE_##type, SMALLM_##kernel, tile);                                        \
    }
#define SMALLM_TALL_FUNCTION(type, kernel, R)                                                          \
    static                                                                                             \
        __attribute__((noinline)) void smallm_##type##_##kernel##_##R(const struct smallm_tile *tile)  \
    {                                                                                                  \
        smallm_tile(R, smallm_width(R), DTYPE_##type, SMALLM_##kernel, tile);                          \
    }
#define SMALLM_SINGLE(type, R) SMALLM_TALL_FUNCTION(type, TILE, R)
#define SMALLM_LOW(type, R)    SMALLM_SINGLE(type, R) SMALLM_TALL_FUNCTION(type, HALF, R)
#define SMALLM_HIGH(type, R)   SMALLM_LOW(type, R) SMALLM_TALL_FUNCTION(type, QUARTER, R)
#define SMALLM_TWO_ROWS(type)  SMALLM_FUNCTION(type, TWO, 2, PANEL_BLOCKS)
#define SMALLM_FUNCTIONS(type, number, text, unused)                                                   \
    SMALLM_FUNCTION(type, ROW, 1, 1)                                                                   \
    SMALLM_FUNCTION(type, ROW_L2, 1, PANEL_BLOCKS)                                                     \
    SMALLM_FUNCTION(type, FEW, SMALLM_FEW_MR, SMALLM_FEW_BLOCKS)                                       \
    SMALLM_HEIGHTS(SMALLM_TWO_ROWS, SMALLM_SINGLE, SMALLM_LOW, SMALLM_HIGH, type)
QUANT_TYPES(SMALLM_FUNCTIONS, )

/* By type and kernel; [0] of those of one height, [mr - SMALLM_LOW_MR] of TILE, HALF and QUARTER. */
#define SMALLM_SINGLE_ENTRY(type, R) [SMALLM_TILE][R - SMALLM_LOW_MR] = smallm_##type##_TILE_##R,
#define SMALLM_LOW_ENTRY(type, R)                                                                      \
    SMALLM_SINGLE_ENTRY(type, R)[SMALLM_HALF][R - SMALLM_LOW_MR] = smallm_##type##_HALF_##R,
#define SMALLM_HIGH_ENTRY(type, R)                                                                     \
    SMALLM_LOW_ENTRY(type, R)[SMALLM_QUARTER][R - SMALLM_LOW_MR] = smallm_##type##_QUARTER_##R,
#define SMALLM_TWO_ENTRY(type) [SMALLM_TWO] = {smallm_##type##_TWO},
#define SMALLM_ENTRY(type, number, text, unused)                                                       \
    [DTYPE_##type] = {[SMALLM_ROW] = {smallm_##type##_ROW},                                            \
                      [SMALLM_ROW_L2] = {smallm_##type##_ROW_L2},                                      \
                      [SMALLM_FEW] = {smallm_##type##_FEW},                                            \
                      SMALLM_HEIGHTS(SMALLM_TWO_ENTRY, SMALLM_SINGLE_ENTRY, SMALLM_LOW_ENTRY,          \
                                     SMALLM_HIGH_ENTRY, type)},
static void (*const smallm_functions[DTYPE_COUNT][SMALLM_KERNELS][SMALLM_MR - SMALLM_LOW_MR + 1])(
    const struct smallm_tile *) = {QUANT_TYPES(SMALLM_ENTRY, )};

/* The kernel that is used for a number of activation rows, and how far ahead it prefetches. */
struct smallm_plan {
    enum smallm_kernel kernel;
    size_t blocks; /* weight blocks per tile */
    /* A single tile of rows prefetches `distance` bytes ahead in the weight blocks that it reads,
     * as hardware prefetchers stop at the end of a 4 KiB page. 0: several tiles of rows, which
     * prefetch the weights that smallm_next() returns. */
    size_t distance;
};

static struct smallm_plan smallm_plan_of(size_t mr, size_t rows)
{
    static const struct smallm_plan row[2] = {{SMALLM_ROW, 1, 2048},
                                              {SMALLM_ROW_L2, PANEL_BLOCKS, 1536}};
    const size_t width = (size_t)smallm_width(mr), tiles = size_min(div_up(rows, mr), 3);
    if (mr == 1)
        return row[prefetch_l2];
    if (SMALLM_HAS_TWO && mr == 2)
        return (struct smallm_plan){SMALLM_TWO, PANEL_BLOCKS, 3072};
    if (mr == SMALLM_FEW_MR)
        return (struct smallm_plan){SMALLM_FEW, SMALLM_FEW_BLOCKS, 3072};
    return (struct smallm_plan){(enum smallm_kernel)(SMALLM_TILE + tiles - 1), width,
                                tiles == 1 ? 3072 * SMALLM_BLOCKS / width : 0};
}

/* Arguments of smallm_int8(), and the plan for them. */
struct smallm_job {
    float *y;
    const struct int8_rows *x;
    size_t rows;
    const struct panel *w;
    struct smallm_plan plan;
};

/* Returns the weights that are multiplied after inputs [k_begin, k_end) of the tile at block b: the
 * same inputs of the next blocks, the following inputs of the first block, or the next panel. */
static const unsigned char *smallm_next(const struct smallm_job *job, size_t b, size_t k_begin,
                                        size_t k_end)
{
    const struct panel *w = job->w;
    if (b + job->plan.blocks < w->blocks)
        return qtile_at(w->type, w, b + job->plan.blocks, k_begin);
    if (k_end < w->kc)
        return qtile_at(w->type, w, 0, k_end);
    return w->next ? (const unsigned char *)w->next : qtile_at(w->type, w, b, k_begin);
}

/* What a tile prefetches: the weights at `first`, from input `switch_at` on those at `second`. */
struct smallm_ahead {
    const unsigned char *first, *second;
    size_t switch_at;
};

/* Multiplies all activation rows by inputs [k_begin, k_end) of plan->blocks weight blocks from b
 * on, and prefetches. A tile may repeat the panel's last block or have more rows than x; those sums are
 * never read. */
static void smallm_blocks(const struct smallm_job *job, size_t b, size_t k_begin, size_t k_end,
                          struct smallm_ahead ahead)
{
    const struct panel *w = job->w;
    const struct smallm_plan *plan = &job->plan;
    const size_t mr = job->x->mr, group_bytes = mr * INT8_INTERLEAVED_BYTES;
    struct smallm_tile tile = {
        .y = job->y + b * NR,
        .x = job->x->interleaved + k_begin / QK_GROUP * group_bytes,
        .w = panel_behind(*w, b * w->block_bytes),
        .k_begin = k_begin,
        .k_end = k_end,
        .prefetch = ahead.first,
        .prefetch_second = ahead.second,
        .switch_at = ahead.switch_at,
        .prefetch_l1 = prefetch_l2,
    };
    tile.prefetch_scales =
        tile.w.scales[0] + plan->blocks * w->block_bytes + k_begin / QK_GROUP * PACK_LINE;
    for (size_t c = 0; c < plan->blocks; c++)
        tile.block_at[c] = size_min(c, w->blocks - 1 - b) * w->block_bytes;
    const size_t height = plan->kernel < SMALLM_TILE ? 0 : mr - SMALLM_LOW_MR;
    for (size_t i = 0; i < job->rows; i += mr) {
        smallm_functions[w->type][plan->kernel][height](&tile);
        tile.y += mr * PANEL_WIDTH;
        tile.x += w->kc / QK_GROUP * group_bytes;
        tile.prefetch += (k_end - k_begin) / QK_GROUP * smallm_prefetch_bytes(plan->kernel, w->type);
    }
}

/* Multiplies a panel by a single tile of activation rows, which reads weight blocks from end to
 * end. Prefetches further inputs of the same blocks; near their end, the next blocks. */
static void smallm_stream(const struct smallm_job *job)
{
    const struct panel *w = job->w;
    const size_t ahead = job->plan.distance / pack_q_bytes(w->type, QK_GROUP) * QK_GROUP;
    const size_t switch_at = w->kc - size_min(ahead, w->kc);
    for (size_t b = 0; b < w->blocks; b += job->plan.blocks) {
        smallm_blocks(job, b, 0, w->kc,
                      (struct smallm_ahead){qtile_at(w->type, w, b, 0) + job->plan.distance,
                                            smallm_next(job, b, 0, w->kc), switch_at});
    }
}

/* Multiplies a few activation rows by a panel. Several tiles of rows are multiplied by one K slab
 * after the other, which stays in L1, or in L2 if prefetch_l2 is set. */
static void smallm_int8(float *y, const struct int8_rows *x, size_t rows, const struct panel *w)
{
    enum { SLAB_L1 = 256, SLAB_L2 = 2048 };
    const size_t slab = prefetch_l2 ? SLAB_L2 : SLAB_L1;
    const struct smallm_job job = {y, x, rows, w, smallm_plan_of(x->mr, rows)};
    if (job.plan.distance) {
        smallm_stream(&job);
        return;
    }
    for (size_t k = 0, k_end; k < w->kc; k = k_end) {
        k_end = size_min(k + slab, w->kc);
        for (size_t b = 0; b < w->blocks; b += job.plan.blocks) {
            const unsigned char *next = smallm_next(&job, b, k, k_end);
            smallm_blocks(&job, b, k, k_end, (struct smallm_ahead){next, next, 0});
        }
    }
}
