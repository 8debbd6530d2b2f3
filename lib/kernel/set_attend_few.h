/* Attention of one KV head over rows of few bits, in one pass. Included, after set_vec.h, by a file of its own per set.
 *
 * A block of 32 positions at a time: the codes of K are turned four neighbours at a time, so that lanes are positions, then
 *   whole[position] = sum over j of code of q[j] * code of k[position][j], whole numbers, so in any order;
 *   q8: score = whole * (scale of q * scale of k);
 *   q4: score = scale of q * (for each group of 32, in order: + step * whole, + base * sum of the codes of q);
 *   weight = e^(score - largest score of the block);
 *   share[position] = weight * step of v, in units of the largest step seen / 32767, to the nearest whole number;
 *   whole[j] = sum over positions of share * (code - middle) of v[position][j], whole numbers, so in any order, below 2^27;
 *   context[j] = whole * (unit * grow) + (context[j] * shrink + grow * sum of weight * value of middle), where grow is
 *   e^(largest score of the block - largest so far), and shrink is what that makes of what was summed before.
 * The largest step is that of the rows which a query sees. So neither the number of queries nor the place of a row in storage
 * can change a bit; and a share is off by half a unit: 2^-16 of the block's largest weight times its largest step.
 *
 * A set may define vi_dot4(sum, k, q): each lane of sum and the four products of the unsigned bytes of k and the signed
 * bytes of q in that lane; vi_dot2(sum, v, w): the same for two numbers of 16 bits, both signed; vu_load_some(p, n): n
 * words, and zeros. */
#include "kernel/set_few_block.h"

enum {
    WHOLE_QUERIES = VW == 16 ? 8 : 2, /* queries whose whole numbers stay in registers */
    GROUP_QUERIES = VW == 16 ? 4 : 1, /* the same, beside sums in f32 */
    SHARE_QUERIES = VW == 16 ? 8 : 4, /* queries whose context stays in registers */
    SHARE_GROUPS = 2,                 /* registers of it */
    SHARE_ONE = 32767                 /* what the largest step comes to where a weight is 1 */
};

#ifndef vi_dot4
INLINE vi vi_dot4(vi sum, vu k, vi q)
{
    for (int b = 0; b < 4; b++)
        sum += (vi)(k >> 8 * b & 255) * (q << (24 - 8 * b) >> 24);
    return sum;
}
#endif

#ifndef vi_dot2
INLINE vi vi_dot2(vi sum, vu v, vi w)
{
    return sum + ((vi)v << 16 >> 16) * (w << 16 >> 16) + ((vi)v >> 16) * (w >> 16);
}
#endif

INLINE vi vi_set1(int32_t x) { return x - (vi){0}; }
INLINE vf vf_of(vi x) { return __builtin_convertvector(x, vf); }

/* Four codes of a query, or the shares of two positions. */
INLINE vi load_word(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return vi_set1(word);
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

/* ---- scores ---- */

/* As much of the next block's K as goes with word w of this one's. */
INLINE void fetch_words(const struct few_block *f, size_t w)
{
    for (size_t t = 0; t < BLOCK_TILES; t++)
        fetch_near(f->next.k[t].base +
                   (f->next.k[t].row ? f->fetch[t][w] : (ptrdiff_t)(f->fetched * w)));
}

/* Of R queries: one scale for all of a row. */
INLINE void score_q8(const int R, const struct few_block *f, size_t query)
{
    vi sum[WHOLE_QUERIES][BLOCK_GROUPS] = {{{0}}};
    const int8_t *code = query_codes(f->a, query);
    const size_t stride = f->a->q_int8->row_bytes;
    for (size_t w = 0; w < f->words; w++) {
        fetch_words(f, w);
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vu k = vu_load(f->turned + w * ATTEND_BLOCK + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vi_dot4(sum[i][g], k, load_word(code + (size_t)i * stride + w * 4));
        }
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
        for (size_t w = 0; w < FEW_WORDS / 2; w++) {
            fetch_words(f, n * (FEW_WORDS / 2) + w);
            for (int g = 0; g < BLOCK_GROUPS; g++) {
                const vu k = vu_load(turned + w * ATTEND_BLOCK + g * VW);
                const vu low = k & 0x0f0f0f0f, high = k >> 4 & 0x0f0f0f0f;
                for (int i = 0; i < R; i++) {
                    const int8_t *code_i = code + (size_t)i * stride;
                    sum[i][g] = vi_dot4(sum[i][g], low, load_word(code_i + w * 4));
                    sum[i][g] = vi_dot4(sum[i][g], high, load_word(code_i + (w + FEW_WORDS / 2) * 4));
                }
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

/* ---- weights ---- */

/* e^x for x of 0 and below, within 2^-22 of it, in fewer steps than vf_exp() takes: x = n ln 2 + r; e^r is the polynomial of
 * degree 5 with the least relative error (Remez) that is 1 and rises by 1 at 0. 0 below -87.3; NaN stays NaN. */
INLINE vf vf_weight(vf x)
{
    const vf magic =
        vf_set1(12582912.f); /* 1.5 * 2^23: rounds to an integer, whose bits are the lowest */
    const vi zero = x < vf_set1(-87.3f);
    x = vf_max(vf_set1(-87.3f), x);
    const vf n = vf_fma(x, vf_set1(1.44269504f), magic);
    const vf r = vf_fma(n - magic, vf_set1(-0.693147181f), x);
    vf p = vf_set1(8.3124776527e-3f);
    p = vf_fma(p, r, vf_set1(4.1890550138e-2f));
    p = vf_fma(p, r, vf_set1(1.6667116315e-1f));
    p = vf_fma(p, r, vf_set1(4.9999228825e-1f));
    p = vf_fma(p, r, vf_set1(1));
    p = vf_fma(p, r, vf_set1(1));
    const vu power = ((vu)n << 23) + (127u << 23);
    return (vf)((vi)(p * (vf)power) & ~zero);
}

/* What a block's scores do to the largest so far, for all queries side by side: one that sees nothing of the block has
 * -INFINITY for its largest score there. */
PHASE void find_growth(const struct few_block *f)
{
    for (size_t i = 0; i < f->a->queries; i += VW) {
        const vf before = vf_load(f->max + i), most = vf_load(f->most + i);
        const vf now = vf_select(most <= before, before, most); /* may be NaN: something was seen */
        const vf none = vf_set1(-INFINITY);
        vf_store(f->shrink + i, vf_select(before < now, vf_weight(before - now), vf_set1(1)));
        vf_store(f->grow + i, vf_select(most == none, vf_set1(0), vf_weight(most - now)));
        vf_store(f->max + i, now);
    }
}

/* Scores become weights; sums grow by them. */
PHASE void weigh_scores(const struct few_block *f, struct sight at)
{
    const float *most = f->most, *grow = f->grow, *shrink = f->shrink;
    float *score = f->scores + at.from * ATTEND_BLOCK, *sum = f->a->sum + at.from * LANES;
    for (size_t i = at.from; i < at.seen; i++, score += ATTEND_BLOCK, sum += LANES) {
        vf lane[GROUP];
        if (most[i] == -INFINITY) {
            memset(score, 0, ATTEND_BLOCK * sizeof *score);
            continue;
        }
        for (int g = 0; g < GROUP; g++)
            lane[g] = vf_load(sum + g * VW) * vf_set1(shrink[i]);
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vf e = vf_weight(vf_load(score + g * VW) - vf_set1(most[i]));
            vf_store(score + g * VW, e);
            lane[g % GROUP] = vf_fma(e, vf_set1(grow[i]), lane[g % GROUP]);
        }
        for (int g = 0; g < GROUP; g++)
            vf_store(sum + g * VW, lane[g]);
    }
}

PHASE void weigh_block(const struct few_block *f, size_t block, struct sight at)
{
    const size_t first = block * ATTEND_BLOCK;
    for (size_t i = 0; i < round_up(f->a->queries, VW); i++)
        f->most[i] = -INFINITY;
    for (size_t i = at.from; i < at.seen; i++) {
        const struct sight sight = sight_of(f->a, i, first);
        if (sight.seen <= sight.from)
            continue;
        const float most = block_max(f->a, i, first, sight, f->scores + i * ATTEND_BLOCK);
        f->most[i] = most > -INFINITY ? most : NAN; /* a maximum may miss what is no number */
    }
    find_growth(f);
    weigh_scores(f, at);
}

/* ---- values ---- */

#define OWN_LANE(l, s) (l)

/* A register of steps: those of positions that are seen, and 0. */
INLINE vf seen_steps(const float *step, struct sight sight, int g)
{
    const vi at = (vi){ALL_LANES(OWN_LANE, 0)} + g * VW;
    return vf_select((at >= (int32_t)sight.from) & (at < (int32_t)sight.seen), vf_load(step + g * VW),
                     vf_set1(0));
}

/* ratio[position]: the share of a weight of 1; returns the unit of shares, which is NaN where a step is. */
static float find_ratios(const struct few_block *f, const float *step, struct sight sight)
{
    const float tiny = 1e-30f; /* what all is below comes to 0 */
    vf most = {0}, bad = {0};
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        const vf x = seen_steps(step, sight, g);
        most = vf_max(most, vf_max(x, -x));
        bad += x * vf_set1(0);
    }
    const float largest = vf_fold_max(most);
    const vf inverse = vf_set1(largest > tiny ? SHARE_ONE / largest : 0);
    for (int g = 0; g < BLOCK_GROUPS; g++)
        vf_store(f->ratio + g * VW, seen_steps(step, sight, g) * inverse);
    return largest / SHARE_ONE + vf_fold(bad);
}

/* The nearest whole numbers, of 16 bits. */
INLINE void store_shares(int16_t *to, vf weight, vf ratio)
{
    const vf magic = vf_set1(12582912.f); /* 1.5 * 2^23: whole numbers in the low bits */
    const vh x = __builtin_convertvector((vu)vf_fma(weight, ratio, magic), vh);
    memcpy(to, &x, sizeof x);
}

/* The value of the code that few_middle() names, of rows with an offset. */
INLINE vf middle_of(vf step, vf base)
{
    return vf_fma(step, vf_set1((float)few_middle(DTYPE_Q4)), base);
}

/* Shares, units and what the bases come to, for one group of columns. Neighbours mostly see the same. */
PHASE void share_out(enum dtype type, const struct few_block *f, size_t block, struct sight at,
                     size_t group)
{
    const float *step = f->v_step + group * ATTEND_BLOCK, *base = f->v_base + group * ATTEND_BLOCK;
    const float *ratio = f->ratio, *grow = f->grow;
    const float *weight = f->scores + at.from * ATTEND_BLOCK;
    int16_t *share = f->share + at.from * ATTEND_BLOCK;
    float *units = f->unit, *begun = f->begun, unit = 0;
    struct sight last = {SIZE_MAX, 0};
    for (size_t i = at.from; i < at.seen; i++, weight += ATTEND_BLOCK, share += ATTEND_BLOCK) {
        const struct sight sight = sight_of(f->a, i, block * ATTEND_BLOCK);
        vf sum = {0};
        if (sight.from != last.from || sight.seen != last.seen)
            unit = find_ratios(f, step, sight);
        last = sight;
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vf w = vf_load(weight + g * VW);
            store_shares(share + g * VW, w, vf_load(ratio + g * VW));
            if (few_bits[type].offset)
                sum = vf_fma(w, middle_of(vf_load(step + g * VW), vf_load(base + g * VW)), sum);
        }
        units[i] = unit * grow[i];
        begun[i] = few_bits[type].offset ? vf_fold(sum) * grow[i] : 0;
    }
}

/* context[R][G * VW] from column j on, over a block's pairs; of the last register the first `some` columns. */
INLINE void value_tile(const int R, const int G, const struct few_block *f, size_t query, size_t j,
                       size_t some)
{
    vi sum[SHARE_QUERIES][SHARE_GROUPS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] = (vi){0};
    const int16_t *share = f->share + query * ATTEND_BLOCK;
    const uint32_t *pairs = f->pairs + j;
    const struct tile next = f->next.v[j / (SHARE_GROUPS * VW) % BLOCK_TILES];
    for (size_t p = 0; p < ATTEND_BLOCK; p += 2, pairs += f->columns) {
        vu v[SHARE_GROUPS];
        fetch_near(next.base + (next.row ? next.row[p / 2] : (ptrdiff_t)(p / 2 * f->a->row_stride)));
        for (int g = 0; g < G; g++)
            v[g] = vu_load(pairs + g * VW);
        for (int i = 0; i < R; i++) {
            const vi w = load_word(share + (size_t)i * ATTEND_BLOCK + p);
            for (int g = 0; g < G; g++)
                sum[i][g] = vi_dot2(sum[i][g], v[g], w);
        }
    }
    const float *unit = f->unit + query, *shrink = f->shrink + query, *begun = f->begun + query;
    float *context = f->a->context + query * f->a->d + j;
    const size_t d = f->a->d;
    UNROLL(for (int i = 0; i < R; i++, context += d))
    for (int g = 0; g < G; g++) {
        const size_t n = g + 1 < G ? VW : some;
        float *to = context + g * VW;
        const vf before = n == VW ? vf_load(to) : (vf)vu_load_some(to, n);
        const vf now = vf_fma(vf_of(sum[i][g]), vf_set1(unit[i]),
                              vf_fma(before, vf_set1(shrink[i]), vf_set1(begun[i])));
        if (n == VW)
            vf_store(to, now);
        else
            memcpy(to, &now, n * sizeof *to);
    }
}

/* Columns [j, end), which share a scale. */
PHASE void value_columns(const struct few_block *f, struct sight at, size_t j, size_t end)
{
    for (; j + SHARE_GROUPS * VW <= end; j += SHARE_GROUPS * VW)
        FEW_TILES(at.seen - at.from, SHARE_QUERIES, value_tile(R, SHARE_GROUPS, f, at.from + i, j, VW));
    for (; j < end; j += VW)
        for (size_t i = at.from; i < at.seen; i++)
            value_tile(1, 1, f, i, j, size_min(VW, end - j));
}

/* ---- */

static void attend_few(const struct attend *a)
{
    struct few_block f = place_block(a);
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        const struct sight at = queries_at(a, block);
        if (at.from == at.seen)
            continue;
        find_next_rows(&f, block);
        load_block(&f, block);
        if (a->type == DTYPE_Q4)
            scores_q4(&f, at.from, at.seen);
        else
            scores_q8(&f, at.from, at.seen);
        weigh_block(&f, block, at);
        pair_block(&f, block);
        for (size_t g = 0; g < f.groups; g++) {
            if (a->type == DTYPE_Q4)
                share_out(DTYPE_Q4, &f, block, at, g);
            else
                share_out(DTYPE_Q8C, &f, block, at, g);
            value_columns(&f, at, g * FEW_GROUP,
                          f.groups == 1 ? a->d : size_min((g + 1) * FEW_GROUP, a->d));
        }
    }
    memcpy(a->max, f.max, a->queries * sizeof *a->max);
}
