/* Rows of few bits as attention over them has them at hand: a block of 32 positions of K, whose lanes are positions, and of
 * V, whose lanes are columns. Included, by set_attend_few.h, after what says which instructions there are. */
#include "kernel/set_weigh.h"

enum { FEW_WORDS = FEW_GROUP / 4 /* of a group of codes of 8 bits */ };

#ifndef vu_load_some
INLINE vu vu_load_some(const void *p, size_t n)
{
    vu x = {0};
    memcpy(&x, p, n * 4);
    return x;
}
#endif

/* A line of the next block, to where this one's buffers leave room for it. */
INLINE void fetch_near(const char *at) { __builtin_prefetch(at, 0, 3); }

/* A block's buffers, and what is the same in all blocks. Groups are of columns that share a scale. */
struct few_block {
    const struct attend *a;
    struct next_block next;
    size_t fetched; /* bytes of a K tile of it that are prefetched with each word of the codes */
    ptrdiff_t *fetch[BLOCK_TILES]; /* [words]: where in tiles of `next` that are scattered */
    size_t groups;                 /* q8: 1 */
    size_t scale_at, low_at;       /* in a row */
    size_t words;                  /* of a row's codes */
    size_t columns;                /* of V's, in whole registers */
    uint32_t *turned;              /* [words][ATTEND_BLOCK]: codes of K */
    uint32_t *pairs; /* [ATTEND_BLOCK / 2][columns]: codes of V less their middle, of two positions */
    float *k_step, *k_base; /* [groups][ATTEND_BLOCK] */
    float *v_step, *v_base; /* the same */
    float *scores;          /* [queries][ATTEND_BLOCK], then weights */
    float *ratio;           /* [ATTEND_BLOCK] */
    int16_t *share;         /* [queries][ATTEND_BLOCK]: of positions, in a group of columns */
    /* [queries], and up to a whole register of them: */
    float *max, *most;    /* of all scores so far, of a block's */
    float *shrink, *grow; /* what sums so far, what a block's are multiplied by */
    float *unit;          /* what a share of 1 stands for, in a group of columns */
    float *begun;         /* what its bases come to */
    int32_t *sum;         /* of all codes of a query */
};

INLINE const int8_t *query_codes(const struct attend *a, size_t query)
{
    return a->q_int8->code + query * a->q_int8->row_bytes;
}

INLINE const int32_t *query_sums(const struct attend *a, size_t query)
{
    return (const void *)((const char *)a->q_int8->sum + query * a->q_int8->row_bytes);
}

INLINE float query_scale(const struct attend *a, size_t query)
{
    float scale;
    memcpy(&scale, (const char *)a->q_int8->scale + query * a->q_int8->row_bytes, sizeof scale);
    return scale;
}

/* ---- rows as they lie ---- */

/* Steps and bases of a tile's rows: column p of [groups][ATTEND_BLOCK]. */
INLINE void load_scales(const struct few_block *f, bool scattered, float *step, float *base,
                        struct tile rows)
{
    const size_t stride = f->a->row_stride, groups = f->groups;
    const struct tile scales = {rows.base + f->scale_at, rows.row},
                      lows = {rows.base + f->low_at, rows.row};
    if (f->a->type == DTYPE_Q8C) {
        for (size_t p = 0; p < ATTEND_TILE; p++)
            memcpy(step + p, row_of(scales, scattered, stride, p), sizeof *step);
        return;
    }
    for (size_t g = 0; g < groups; g++) {
        f16 scale[2][ATTEND_TILE];
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            memcpy(&scale[0][p], row_of(scales, scattered, stride, p) + g * sizeof(f16), sizeof(f16));
            memcpy(&scale[1][p], row_of(lows, scattered, stride, p) + g * sizeof(f16), sizeof(f16));
        }
        for (size_t p = 0; p < ATTEND_TILE; p += VW) {
            vf_store(step + g * ATTEND_BLOCK + p, vf_load_f16(scale[0] + p));
            vf_store(base + g * ATTEND_BLOCK + p, vf_load_f16(scale[1] + p));
        }
    }
}

/* Columns of VW positions, from position p of a tile on, in `some` rows of turned[words][ATTEND_BLOCK]; word w of rows. */
INLINE void turn_words(uint32_t *turned, size_t some, struct tile k, bool scattered, size_t stride,
                       size_t p, size_t w)
{
    vf x[VW];
    for (size_t i = 0; i < VW; i++) {
        const char *words = row_of(k, scattered, stride, p + i) + w * 4;
        x[i] = (vf)vu_keep(some == VW ? vu_load(words) : vu_load_some(words, some));
    }
    vf_transpose(x);
    for (size_t i = 0; i < VW; i++) /* all indices known, so that x stays in registers */
        if (i < some)
            vf_store((float *)(void *)(turned + (w + i) * ATTEND_BLOCK + p), x[i]);
}

/* turned[words][ATTEND_BLOCK] of the tile whose columns begin at `turned`. */
INLINE void turn_codes(uint32_t *turned, size_t words, struct tile k, bool scattered, size_t stride)
{
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        size_t w = 0;
        for (; w + VW <= words; w += VW)
            turn_words(turned, VW, k, scattered, stride, p, w);
        if (w < words)
            turn_words(turned, words - w, k, scattered, stride, p, w);
    }
}

/* Bytes, and pairs of them, of two registers in turns; words so that, where this is done to all of four registers, lanes
 * stand in order. */
typedef uint8_t vb __attribute__((vector_size(4 * VW)));
typedef uint16_t vp __attribute__((vector_size(4 * VW)));
#define SIXTEEN(F, l, s) EIGHT(F, l, s), EIGHT(F, l + 8, s)
#define ZIP(k, of, s)                                                                                  \
    ((k) / (of) * (of) + (k) % (of) / 2 + (s) * (of) / 2 + ((k) % 2 ? (of)*VW / 4 : 0))
#define ZIP_BYTES(k, s)  ZIP(k, 16, s)
#define ZIP_PAIRS(k, s)  ZIP(k, 8, s)
#define DEAL_WORDS(l, s) ((l) % 4 * (VW / 4) + (l) / 4)
#if VW == 4
#define ALL_PAIRS(F, s) EIGHT(F, 0, s)
#define ALL_BYTES(F, s) SIXTEEN(F, 0, s)
#elif VW == 8
#define ALL_PAIRS(F, s) SIXTEEN(F, 0, s)
#define ALL_BYTES(F, s) SIXTEEN(F, 0, s), SIXTEEN(F, 16, s)
#else
#define ALL_PAIRS(F, s) SIXTEEN(F, 0, s), SIXTEEN(F, 16, s)
#define ALL_BYTES(F, s) ALL_PAIRS(F, s), SIXTEEN(F, 32, s), SIXTEEN(F, 48, s)
#endif
#define ZIPPED(type, ALL, F, x, y, s) ((vu)__builtin_shufflevector((type)(x), (type)(y), ALL(F, s)))

/* Of four rows' bytes [n][4 * VW] into those of columns [r * VW ..]: a lane has rows 0, 2, 1, 3. */
INLINE void zip_rows(vu x[4])
{
    const vu even = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[0], x[2], 0);
    const vu even_high = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[0], x[2], 1);
    const vu odd = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[1], x[3], 0);
    const vu odd_high = ZIPPED(vb, ALL_BYTES, ZIP_BYTES, x[1], x[3], 1);
    x[0] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even, odd, 0);
    x[1] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even, odd, 1);
    x[2] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even_high, odd_high, 0);
    x[3] = ZIPPED(vp, ALL_PAIRS, ZIP_PAIRS, even_high, odd_high, 1);
}

/* Codes are multiplied less this, so that a share's rounding weighs as little as can be. */
INLINE int few_middle(enum dtype type) { return type == DTYPE_Q4 ? 8 : few_bits[type].zero; }

/* Codes of four rows, one in each byte, as numbers of 16 bits: a row of pairs, and the next. */
INLINE void store_pairs(enum dtype type, uint32_t *to, size_t columns, vu codes)
{
    const vp middle = (uint16_t)few_middle(type) - (vp){0};
    *(vu_any *)to = (vu)((vp)(codes & 0x00ff00ff) - middle);
    *(vu_any *)(to + columns) = (vu)(((vp)codes >> 8) - middle);
}

/* Of `some` words of four rows, two rows of pairs. */
INLINE void pair_words(enum dtype type, uint32_t *to, size_t columns, const char *const *row, size_t at,
                       size_t some, size_t bytes)
{
    vu x[4];
    for (size_t i = 0; i < 4; i++) {
        const char *codes = row[i] + at;
        x[i] = some == VW ? vu_load(codes) : vu_load_some(codes, some);
        x[i] = __builtin_shufflevector(x[i], x[i], ALL_LANES(DEAL_WORDS, 0));
    }
    zip_rows(x);
#pragma GCC unroll 4
    for (size_t r = 0; r < 4 && at < bytes; r++, at += VW) {
        if (type == DTYPE_Q8C) {
            store_pairs(type, to + at, columns, x[r]);
            continue;
        }
        uint32_t *half = to + at / FEW_HALF * FEW_GROUP + at % FEW_HALF;
        store_pairs(type, half, columns, x[r] & 0x0f0f0f0f);
        store_pairs(type, half + FEW_HALF, columns, x[r] >> 4 & 0x0f0f0f0f);
    }
}

/* A tile's rows of pairs. */
INLINE void pair_tile(enum dtype type, bool scattered, const struct few_block *f, uint32_t *to,
                      struct tile v)
{
    const size_t columns = f->columns, words = f->words;
    const size_t bytes = few_code_bytes(type, f->a->d);
    for (size_t p = 0; p < ATTEND_TILE; p += 4) {
        const char *row[4];
        size_t w = 0;
        for (size_t i = 0; i < 4; i++)
            row[i] = row_of(v, scattered, f->a->row_stride, p + i);
        for (; w + VW <= words && w * 4 + 4 * VW <= bytes; w += VW)
            pair_words(type, to, columns, row, w * 4, VW, SIZE_MAX);
        if (w < words)
            pair_words(type, to, columns, row, w * 4, words - w, bytes);
        to += 2 * columns;
    }
}

PHASE void pair_block(const struct few_block *f, size_t block)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t;
        uint32_t *to = f->pairs + t * (ATTEND_TILE / 2) * f->columns;
        if (tile >= f->a->tiles) {
            memset(to, 0, ATTEND_TILE / 2 * f->columns * sizeof *to);
            continue;
        }
        const struct tile v = v_tile(f->a, tile);
        if (f->a->type == DTYPE_Q8C && v.row)
            pair_tile(DTYPE_Q8C, true, f, to, v);
        else if (f->a->type == DTYPE_Q8C)
            pair_tile(DTYPE_Q8C, false, f, to, v);
        else if (v.row)
            pair_tile(DTYPE_Q4, true, f, to, v);
        else
            pair_tile(DTYPE_Q4, false, f, to, v);
    }
}

/* Tile `tile` of K, and the scales of it and of V, to positions from `at` on of the block. */
INLINE void load_tile(const struct few_block *f, bool scattered, size_t tile, size_t at)
{
    const struct tile k = k_tile(f->a, tile);
    turn_codes(f->turned + at, f->words, k, scattered, f->a->row_stride);
    load_scales(f, scattered, f->k_step + at, f->k_base + at, k);
    load_scales(f, scattered, f->v_step + at, f->v_base + at, v_tile(f->a, tile));
}

PHASE void load_block(const struct few_block *f, size_t block)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t, at = t * ATTEND_TILE;
        if (tile < f->a->tiles) {
            if (k_tile(f->a, tile).row)
                load_tile(f, true, tile, at);
            else
                load_tile(f, false, tile, at);
            continue;
        }
        for (size_t w = 0; w < f->words; w++)
            memset(f->turned + w * ATTEND_BLOCK + at, 0, ATTEND_TILE * sizeof *f->turned);
        for (size_t g = 0; g < f->groups; g++) {
            memset(f->k_step + g * ATTEND_BLOCK + at, 0, ATTEND_TILE * sizeof *f->k_step);
            memset(f->k_base + g * ATTEND_BLOCK + at, 0, ATTEND_TILE * sizeof *f->k_base);
            memset(f->v_step + g * ATTEND_BLOCK + at, 0, ATTEND_TILE * sizeof *f->v_step);
            memset(f->v_base + g * ATTEND_BLOCK + at, 0, ATTEND_TILE * sizeof *f->v_base);
        }
    }
}

/* The block's successor. With word w of the codes byte `fetched * w` of its tiles is prefetched, counted through their rows. */
static void find_next_rows(struct few_block *f, size_t block)
{
    const size_t stride = f->a->row_stride;
    f->next = find_next(f->a, block);
    for (size_t t = 0; t < BLOCK_TILES; t++)
        for (size_t w = 0; f->next.k[t].row && w < f->words; w++)
            f->fetch[t][w] =
                f->next.k[t].row[f->fetched * w / stride] + (ptrdiff_t)(f->fetched * w % stride);
}

/* Buffers in the caller's space; attend_few_space() says how much that is. */
static struct few_block place_block(const struct attend *a)
{
    const size_t groups = div_up(a->d, FEW_GROUP), queries = round_up(a->queries, LANES);
    const bool q4 = a->type == DTYPE_Q4;
    float *at = a->space;
    struct few_block f = {.a = a, .groups = q4 ? groups : 1};
    f.words = q4 ? groups * (FEW_WORDS / 2) : div_up(a->d, 4);
    f.fetched = ATTEND_TILE * a->row_stride / f.words;
    f.columns = round_up(a->d, (q4 ? 8 : 4) * VW);
    f.scale_at = few_plane_at(a->type, a->d, FEW_SCALE);
    f.low_at = few_plane_at(a->type, a->d, FEW_LOW);
    f.turned = (uint32_t *)(void *)at;
    f.pairs = (uint32_t *)(void *)(at += groups * FEW_WORDS * ATTEND_BLOCK);
    f.k_step = at += ATTEND_BLOCK / 2 * f.columns;
    f.k_base = at += groups * ATTEND_BLOCK;
    f.v_step = at += groups * ATTEND_BLOCK;
    f.v_base = at += groups * ATTEND_BLOCK;
    f.scores = at += groups * ATTEND_BLOCK;
    f.ratio = at += a->queries * ATTEND_BLOCK;
    f.share = (int16_t *)(void *)(at += ATTEND_BLOCK);
    f.max = at += a->queries * ATTEND_BLOCK / 2;
    f.most = at += queries;
    f.shrink = at += queries;
    f.grow = at += queries;
    f.unit = at += queries;
    f.begun = at += queries;
    f.sum = (int32_t *)(void *)(at += queries);
    f.fetch[0] = (ptrdiff_t *)(void *)(at + queries);
    f.fetch[1] = f.fetch[0] + f.words;
    for (size_t i = 0; i < queries; i++)
        f.max[i] = i < a->queries ? a->max[i] : -INFINITY;
    for (size_t i = 0; i < a->queries; i++) {
        const int32_t *sums = query_sums(a, i);
        f.sum[i] = 0;
        for (size_t h = 0; h < div_up(a->d, FEW_HALF); h++)
            f.sum[i] += sums[h];
    }
    return f;
}
