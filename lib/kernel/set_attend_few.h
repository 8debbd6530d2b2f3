/* Attention of one KV head over rows of few bits, in one pass. Included, after set_vec.h, by a file of its own per set.
 *
 * A block of 32 positions at a time: the codes of K are turned four neighbours at a time, so that lanes are positions, then
 *   whole[position] = sum over j of code of q[j] * code of k[position][j], whole numbers, so in any order;
 *   q8: score = whole * (scale of q * scale of k);
 *   q4: score = scale of q * (for each group of 32, in order: + step * whole, + base * sum of the codes of q);
 *   weights as for rows of other types (set_weigh.h);
 *   context[j] = sum over positions in order of (weight * step of v) * code of v[position][j], codes as they are stored, one
 *   chain, which begins with the sum of weight * base; for q8 the base is -128 steps.
 * So neither the number of queries nor the place of a row in storage can change a bit.
 *
 * A set may define vi_dot4(sum, k, q): each lane of sum and the four products of the unsigned bytes of k and the signed
 * bytes of q in that lane; vu_load_some(p, n): n words, and zeros. */
#include "kernel/set_weigh.h"

enum {
    FEW_WORDS = FEW_GROUP / 4,        /* of a group of codes of 8 bits */
    WHOLE_QUERIES = VW == 16 ? 8 : 2, /* queries whose whole numbers stay in registers */
    GROUP_QUERIES = VW == 16 ? 4 : 1, /* the same, beside sums in f32 */
    CODE_QUERIES = VW == 16 ? 8 : 4,  /* queries whose context stays in registers */
    CODE_GROUPS = 2                   /* registers of it */
};

#ifndef vi_dot4
INLINE vi vi_dot4(vi sum, vu k, vi q)
{
    for (int b = 0; b < 4; b++)
        sum += (vi)(k >> 8 * b & 255) * (q << (24 - 8 * b) >> 24);
    return sum;
}
#endif

#ifndef vu_load_some
INLINE vu vu_load_some(const void *p, size_t n)
{
    vu x = {0};
    memcpy(&x, p, n * 4);
    return x;
}
#endif

INLINE vi vi_set1(int32_t x) { return x - (vi){0}; }
INLINE vf vf_of(vi x) { return __builtin_convertvector(x, vf); }

/* A block's buffers, and what is the same in all blocks. Groups are of columns that share a scale. */
struct few_block {
    const struct attend *a;
    size_t groups;          /* q8: 1 */
    size_t words;           /* of a row's codes */
    uint32_t *turned;       /* [words][ATTEND_BLOCK] */
    float *k_step, *k_base; /* [groups][ATTEND_BLOCK] */
    float *v_step, *v_base; /* the same */
    float *scores, *folded; /* [queries][ATTEND_BLOCK] */
    float *shrink, *begun;  /* [queries] */
    int32_t *sum;           /* [queries]: of all codes of a query */
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

/* Four codes of a query. */
INLINE vi query_word(const int8_t *code, size_t word)
{
    int32_t four;
    memcpy(&four, code + word * 4, sizeof four);
    return vi_set1(four);
}

/* Runs TILE for rows i .. i + R - 1 over all of `rows`, R a constant: powers of two from MAX down. Fewer than FOR_TILES has,
 * for they take long to compile. */
#define FEW_TILES(rows, MAX, TILE)                                                                     \
    {                                                                                                  \
        size_t i = 0;                                                                                  \
        POWER_TILES(rows, 8, MAX, TILE)                                                                \
        POWER_TILES(rows, 4, MAX, TILE)                                                                \
        POWER_TILES(rows, 2, MAX, TILE)                                                                \
        POWER_TILES(rows, 1, MAX, TILE)                                                                \
    }
#define POWER_TILES(rows, N, MAX, TILE)                                                                \
    for (; N <= MAX && i + N <= (rows); i += N) {                                                      \
        enum { R = N <= MAX ? N : 1 };                                                                 \
        TILE;                                                                                          \
    }

/* ---- rows as they lie ---- */

/* Steps and bases of a tile's rows: column p of [groups][ATTEND_BLOCK]. */
INLINE void load_scales(const struct few_block *f, float *step, float *base, const char *rows)
{
    const size_t d = f->a->d, stride = f->a->row_stride;
    const size_t at = few_plane_at(f->a->type, d, FEW_SCALE),
                 low = few_plane_at(f->a->type, d, FEW_LOW);
    if (f->a->type == DTYPE_Q8C) {
        for (size_t p = 0; p < ATTEND_TILE; p++)
            memcpy(step + p, rows + p * stride + at, sizeof *step);
        return;
    }
    for (size_t g = 0; g < f->groups; g++) {
        f16 scale[2][ATTEND_TILE];
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            memcpy(&scale[0][p], rows + p * stride + at + g * sizeof(f16), sizeof(f16));
            memcpy(&scale[1][p], rows + p * stride + low + g * sizeof(f16), sizeof(f16));
        }
        for (size_t p = 0; p < ATTEND_TILE; p += VW) {
            vf_store(step + g * ATTEND_BLOCK + p, vf_load_f16(scale[0] + p));
            vf_store(base + g * ATTEND_BLOCK + p, vf_load_f16(scale[1] + p));
        }
    }
}

/* turned[words][ATTEND_BLOCK] of the tile whose columns begin at `turned`. */
INLINE void turn_codes(uint32_t *turned, size_t words, const char *k, size_t stride, const char *next)
{
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        const char *rows = k + p * stride;
        for (size_t w = 0; w < words; w += VW) {
            const size_t some = size_min(VW, words - w);
            vf x[VW];
            for (size_t i = 0; i < VW; i++) {
                const char *at = rows + i * stride + w * 4;
                x[i] = (vf)(some == VW ? vu_load(at) : vu_load_some(at, some));
                fetch_line(next, (p + i) * stride + w * 4);
            }
            vf_transpose(x);
            for (size_t i = 0; i < VW; i++) /* all indices known, so that x stays in registers */
                if (i < some)
                    vf_store((float *)(void *)(turned + (w + i) * ATTEND_BLOCK + p), x[i]);
        }
    }
}

PHASE void load_block(const struct few_block *f, size_t block, const struct next_block *next)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t, at = t * ATTEND_TILE;
        if (tile < f->a->tiles) {
            turn_codes(f->turned + at, f->words, f->a->k[tile], f->a->row_stride, next->k[t]);
            load_scales(f, f->k_step + at, f->k_base + at, f->a->k[tile]);
            load_scales(f, f->v_step + at, f->v_base + at, f->a->v[tile]);
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

/* ---- scores ---- */

/* Of R queries: one scale for all of a row. */
INLINE void score_q8(const int R, const struct few_block *f, size_t query)
{
    vi sum[WHOLE_QUERIES][BLOCK_GROUPS] = {{{0}}};
    const int8_t *code = query_codes(f->a, query);
    const size_t stride = f->a->q_int8->row_bytes;
    for (size_t w = 0; w < f->words; w++)
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vu k = vu_load(f->turned + w * ATTEND_BLOCK + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vi_dot4(sum[i][g], k, query_word(code + (size_t)i * stride, w));
        }
    for (int i = 0; i < R; i++) {
        const size_t at = query + (size_t)i;
        const vi zero = vi_set1(few_bits[DTYPE_Q8C].zero * f->sum[at]);
        const vf scale = vf_set1(query_scale(f->a, at));
        for (int g = 0; g < BLOCK_GROUPS; g++)
            vf_store(f->scores + at * ATTEND_BLOCK + g * VW,
                     vf_of(sum[i][g] - zero) * (scale * vf_load(f->k_step + g * VW)));
    }
}

/* Of R queries: a step and a base for every 32 codes, of which 16 bytes hold two each. */
INLINE void score_q4(const int R, const struct few_block *f, size_t query)
{
    const size_t stride = f->a->q_int8->row_bytes;
    vf score[GROUP_QUERIES][BLOCK_GROUPS] = {{{0}}};
    for (size_t n = 0; n < f->groups; n++) {
        const int8_t *code = query_codes(f->a, query) + n * FEW_GROUP;
        const uint32_t *turned = f->turned + n * (FEW_WORDS / 2) * ATTEND_BLOCK;
        vi sum[GROUP_QUERIES][BLOCK_GROUPS] = {{{0}}};
        for (size_t w = 0; w < FEW_WORDS / 2; w++)
            for (int g = 0; g < BLOCK_GROUPS; g++) {
                const vu k = vu_load(turned + w * ATTEND_BLOCK + g * VW);
                const vu low = k & 0x0f0f0f0f, high = k >> 4 & 0x0f0f0f0f;
                for (int i = 0; i < R; i++) {
                    const int8_t *code_i = code + (size_t)i * stride;
                    sum[i][g] = vi_dot4(sum[i][g], low, query_word(code_i, w));
                    sum[i][g] = vi_dot4(sum[i][g], high, query_word(code_i, w + FEW_WORDS / 2));
                }
            }
        for (int i = 0; i < R; i++) {
            const int32_t *halves = query_sums(f->a, query + (size_t)i) + 2 * n;
            const vf own = vf_set1((float)(halves[0] + halves[1]));
            for (int g = 0; g < BLOCK_GROUPS; g++) {
                const size_t at = n * ATTEND_BLOCK + (size_t)(g * VW);
                score[i][g] = vf_fma(vf_load(f->k_step + at), vf_of(sum[i][g]), score[i][g]);
                score[i][g] = vf_fma(vf_load(f->k_base + at), own, score[i][g]);
            }
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < BLOCK_GROUPS; g++)
            vf_store(f->scores + (query + (size_t)i) * ATTEND_BLOCK + g * VW,
                     score[i][g] * vf_set1(query_scale(f->a, query + (size_t)i)));
}

PHASE void scores_q8(const struct few_block *f, size_t from, size_t to)
{
    FEW_TILES(to - from, WHOLE_QUERIES, score_q8(R, f, from + i));
}

PHASE void scores_q4(const struct few_block *f, size_t from, size_t to)
{
    FEW_TILES(to - from, GROUP_QUERIES, score_q4(R, f, from + i));
}

/* ---- values ---- */

/* Weights with the scale of each row of V in them, and what the bases come to: for one group of columns. */
INLINE void fold_scales(enum dtype type, const struct few_block *f, struct sight at, size_t group)
{
    const float *step = f->v_step + group * ATTEND_BLOCK, *base = f->v_base + group * ATTEND_BLOCK;
    const vf zero = vf_set1(-(float)few_bits[type].zero);
    for (size_t i = at.from; i < at.seen; i++) {
        const float *weight = f->scores + i * ATTEND_BLOCK;
        vf sum = {0};
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vf w = vf_load(weight + g * VW), folded = w * vf_load(step + g * VW);
            vf_store(f->folded + i * ATTEND_BLOCK + g * VW, folded);
            sum = few_bits[type].offset ? vf_fma(w, vf_load(base + g * VW), sum)
                                        : vf_fma(zero, folded, sum);
        }
        f->begun[i] = vf_fold(sum);
    }
}

/* VW codes of a row from column j on, as they are stored: of q4, half a group at most. */
INLINE vf load_codes(enum dtype type, const char *row, size_t j)
{
    if (type == DTYPE_Q8C)
        return vf_of(vi_load_u8(row + j));
    const vi bytes = vi_load_u8(row + j / FEW_GROUP * FEW_HALF + j % FEW_HALF);
    return vf_of(j % FEW_GROUP < FEW_HALF ? bytes & 15 : bytes >> 4);
}

/* context[R][G * VW] from column j on, over a block's rows of V. */
INLINE void value_codes(const int R, const int G, enum dtype type, const struct few_block *f,
                        size_t block, size_t query, size_t j, const struct next_block *next)
{
    const struct attend *a = f->a;
    float *context = a->context + query * a->d + j;
    vf sum[CODE_QUERIES][CODE_GROUPS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] =
                vf_fma(vf_load(context + (size_t)i * a->d + g * VW),
                       vf_set1(f->shrink[query + (size_t)i]), vf_set1(f->begun[query + (size_t)i]));
    const float *folded = f->folded + query * ATTEND_BLOCK;
    for (size_t t = 0; t < BLOCK_TILES && block * BLOCK_TILES + t < a->tiles; t++) {
        const char *row = a->v[block * BLOCK_TILES + t];
        for (size_t p = 0; p < ATTEND_TILE; p++, row += a->row_stride, folded++) {
            vf code[CODE_GROUPS];
            for (int g = 0; g < G; g++)
                code[g] = load_codes(type, row, j + (size_t)(g * VW));
            if (next)
                fetch_line(next->v[t], p * a->row_stride + j);
            for (int i = 0; i < R; i++)
                for (int g = 0; g < G; g++)
                    sum[i][g] = vf_fma(vf_set1(folded[(size_t)i * ATTEND_BLOCK]), code[g], sum[i][g]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            vf_store(context + (size_t)i * a->d + g * VW, sum[i][g]);
}

/* The same for columns [j, end) that fill no register. */
INLINE void value_column(enum dtype type, const struct few_block *f, size_t block, size_t query,
                         size_t j, size_t end)
{
    const struct attend *a = f->a;
    for (; j < end; j++) {
        float *context = a->context + query * a->d + j;
        const float *folded = f->folded + query * ATTEND_BLOCK;
        vf sum = vf_fma(vf_set1(*context), vf_set1(f->shrink[query]), vf_set1(f->begun[query]));
        for (size_t t = 0; t < BLOCK_TILES && block * BLOCK_TILES + t < a->tiles; t++)
            for (size_t p = 0; p < ATTEND_TILE; p++) {
                const char *row = a->v[block * BLOCK_TILES + t] + p * a->row_stride;
                const unsigned code = few_code(type, (const unsigned char *)row, j);
                sum = vf_fma(vf_set1(*folded++), vf_set1((float)code), sum);
            }
        *context = sum[0];
    }
}

/* Columns [j, end), which share a scale. */
INLINE void value_columns(enum dtype type, const struct few_block *f, size_t block, struct sight at,
                          size_t j, size_t end, const struct next_block *next)
{
    for (; j + CODE_GROUPS * VW <= end; j += CODE_GROUPS * VW)
        FEW_TILES(at.seen - at.from, CODE_QUERIES,
                  value_codes(R, CODE_GROUPS, type, f, block, at.from + i, j, i ? NULL : next));
    for (; j + VW <= end; j += VW)
        for (size_t i = at.from; i < at.seen; i++)
            value_codes(1, 1, type, f, block, i, j, i > at.from ? NULL : next);
    for (size_t i = at.from; i < at.seen && j < end; i++)
        value_column(type, f, block, i, j, end);
}

PHASE void values_q8(const struct few_block *f, size_t block, struct sight at,
                     const struct next_block *next)
{
    fold_scales(DTYPE_Q8C, f, at, 0);
    value_columns(DTYPE_Q8C, f, block, at, 0, f->a->d, next);
}

PHASE void values_q4(const struct few_block *f, size_t block, struct sight at,
                     const struct next_block *next)
{
    for (size_t g = 0; g < f->groups; g++) {
        fold_scales(DTYPE_Q4, f, at, g);
        value_columns(DTYPE_Q4, f, block, at, g * FEW_GROUP, size_min((g + 1) * FEW_GROUP, f->a->d),
                      next);
    }
}

/* ---- */

static struct few_block place_block(const struct attend *a)
{
    const size_t groups = div_up(a->d, FEW_GROUP), queries = LANES * div_up(a->queries, LANES);
    float *at = a->space;
    struct few_block f = {.a = a, .groups = a->type == DTYPE_Q4 ? groups : 1};
    f.words = a->type == DTYPE_Q4 ? groups * (FEW_WORDS / 2) : div_up(a->d, 4);
    f.turned = (uint32_t *)(void *)at;
    f.k_step = at += groups * FEW_WORDS * ATTEND_BLOCK;
    f.k_base = at += groups * ATTEND_BLOCK;
    f.v_step = at += groups * ATTEND_BLOCK;
    f.v_base = at += groups * ATTEND_BLOCK;
    f.scores = at += groups * ATTEND_BLOCK;
    f.folded = at += a->queries * ATTEND_BLOCK;
    f.shrink = at += a->queries * ATTEND_BLOCK;
    f.begun = at += queries;
    f.sum = (int32_t *)(void *)(at + queries);
    for (size_t i = 0; i < a->queries; i++) {
        const int32_t *sums = query_sums(a, i);
        f.sum[i] = 0;
        for (size_t h = 0; h < div_up(a->d, FEW_HALF); h++)
            f.sum[i] += sums[h];
    }
    return f;
}

/* As weigh() does it; all maxima are found before the first of many long chains of products begins. */
PHASE void weigh_all(const struct few_block *f, size_t block, struct sight at)
{
    const size_t first = block * ATTEND_BLOCK;
    float *max = f->begun; /* not begun yet */
    for (size_t i = at.from; i < at.seen; i++) {
        const struct sight sight = sight_of(f->a, i, first);
        if (sight.seen > sight.from)
            max[i] = find_max(f->a, i, first, sight, f->scores + i * ATTEND_BLOCK);
    }
    for (size_t i = at.from; i < at.seen; i++) {
        const struct sight sight = sight_of(f->a, i, first);
        float *scores = f->scores + i * ATTEND_BLOCK;
        f->shrink[i] = 1;
        if (sight.seen > sight.from)
            f->shrink[i] = add_weights(f->a, i, max[i], scores);
        else
            memset(scores, 0, ATTEND_BLOCK * sizeof *scores);
    }
}

static void attend_few(const struct attend *a)
{
    const struct few_block f = place_block(a);
    const bool q4 = a->type == DTYPE_Q4;
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        const struct next_block next = find_next(a, block);
        const struct sight at = queries_at(a, block);
        if (at.from == at.seen)
            continue;
        load_block(&f, block, &next);
        if (q4)
            scores_q4(&f, at.from, at.seen);
        else
            scores_q8(&f, at.from, at.seen);
        weigh_all(&f, block, at);
        if (q4)
            values_q4(&f, block, at, &next);
        else
            values_q8(&f, block, at, &next);
    }
}
