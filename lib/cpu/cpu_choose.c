/* The positions that a query attends to in sparse attention: those for whose keys an indexer has the largest scores
 * (struct op_choose). Scores are f32, of f32 queries and dequantised keys, whatever the precision: products as panel_f32()
 * adds them, then a sum over heads in order. So the choice depends on a token and those before it alone, as attention does. */
#include "attn/attn_rows.h"
#include "attn/query_mask.h"
#include "base/mem.h"
#include "base/threads.h"
#include "cpu/cpu_pass.h"

enum {
    CHOOSE_ROWS = 16, /* query rows that are computed for a key at once */
    CHOOSE_KEYS = PANEL_WIDTH
};

int cpu_choose_open(struct cpu_choose *c, const struct backend_options *o, struct err *err)
{
    const struct kv_setup *setup = kv_setup(o->kv);
    for (size_t i = 0; i < o->n_ops; i++)
        if (o->op[i].kind == OP_CHOOSE) {
            c->heads = size_max(c->heads, o->op[i].choose.heads);
            c->dim = size_max(c->dim, round_up(o->op[i].choose.dim, 32));
        }
    if (!c->heads)
        return 0;
    c->entries = round_up(size_max(setup->view_rows, setup->shape.max_rows) + o->max_rows, CHOOSE_KEYS);
    c->scratch_floats = (c->dim + c->heads) * CHOOSE_KEYS + c->dim;
    c->score = mem_alloc(c->entries, CHOOSE_ROWS * sizeof *c->score);
    c->q = mem_zalloc(c->heads * c->dim, CHOOSE_ROWS * sizeof *c->q);
    c->scratch = mem_alloc((size_t)threads_max(), c->scratch_floats * sizeof *c->scratch);
    return c->score && c->q && c->scratch
               ? 0
               : err_no_memory(err, "the scores of %zu positions", c->entries);
}

void cpu_choose_close(struct cpu_choose *c)
{
    free(c->score);
    free(c->q);
    free(c->scratch);
}

/* Up to CHOOSE_ROWS rows of a sequence. */
struct choose_job {
    const struct backend_pass *pass;
    const struct op *op;
    const struct op_step *step;
    const struct attn_query *query;
    const struct kv_view *view;
    size_t first, rows; /* of the query's */
    size_t entries;     /* KV entries that one of the rows may attend to */
};

/* ---- scores ---- */

/* Transposes keys from entry `at` on to blocks of NR, [block][dim][NR], and returns their number. */
static size_t load_keys(const struct choose_job *job, size_t at, float *to, float *key)
{
    const size_t dim = job->op->choose.dim, padded = round_up(dim, 32);
    const enum dtype type = job->view->type[KV_K];
    struct tiles tiles;
    const size_t end = size_min(at + CHOOSE_KEYS, job->entries),
                 n = view_tiles(job->view, at, end, &tiles);
    for (size_t t = 0; t < n; t++, to += padded * NR) {
        for (size_t i = 0; i < NR; i++) {
            const ptrdiff_t *rows = tiles.k_rows[t];
            dtype_to_f32(key, type,
                         tiles.k[t] + (rows ? rows[i] : (ptrdiff_t)(i * dtype_row_bytes(type, dim))),
                         dim);
            for (size_t j = 0; j < dim; j++)
                to[j * NR + i] = key[j];
        }
        memset(to + dim * NR, 0, (padded - dim) * NR * sizeof *to);
    }
    return n;
}

/* Body of a parallel loop over runs of CHOOSE_KEYS entries. */
static void score_keys(void *arg, size_t index)
{
    static_assert((int)NR == (int)ATTEND_TILE, "a block has the keys of a tile");
    const struct choose_job *job = arg;
    const struct cpu_choose *c = &job->pass->choose;
    const struct op_choose *op = &job->op->choose;
    const size_t padded = round_up(op->dim, 32), at = index * CHOOSE_KEYS;
    float *keys = c->scratch + (size_t)threads_self() * c->scratch_floats,
          *products = keys + c->dim * CHOOSE_KEYS, *key = products + c->heads * CHOOSE_KEYS;
    const struct panel panel = {.w = (const char *)keys,
                                .type = DTYPE_F32,
                                .block_bytes = padded * NR * sizeof *keys,
                                .blocks = load_keys(job, at, keys, key),
                                .kc = padded,
                                .last_k = true};
    for (size_t i = 0; i < job->rows; i++) {
        const size_t row = job->query->first + job->first + i;
        const float *weight = cpu_row(job->step, op->weights, row);
        float *score = c->score + i * c->entries + at;
        job->pass->kernels->panel_f32(products, c->q + i * op->heads * padded, padded, op->heads,
                                      &panel);
        memset(score, 0, CHOOSE_KEYS * sizeof *score);
        for (size_t h = 0; h < op->heads; h++)
            for (size_t k = 0; k < panel.blocks * NR; k++) {
                const float x = products[h * PANEL_WIDTH + k];
                score[k] += weight[h] * (x > 0 ? x : 0);
            }
    }
}

/* ---- the largest ones ---- */

/* A number that is larger, the larger a score is; 0 for NaN. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* no negative zero */
    memcpy(&bits, &score, sizeof bits);
    return isnan(score) ? 0 : bits >> 31 ? ~bits : bits | 1u << 31;
}

/* The positions of one query row. */
struct scored_positions {
    const float *score; /* of entries */
    struct query_mask mask;
    size_t n; /* positions up to its own */
};

static uint32_t rank_at(const struct scored_positions *c, size_t position)
{
    return rank_of(c->score[query_mask_entry(&c->mask, position)]);
}

/* The `most`-th largest rank, found byte by byte from the highest one; *equal: how many of that rank belong to these. */
static uint32_t find_limit(const struct scored_positions *c, size_t most, size_t *equal)
{
    uint32_t limit = 0, known = 0;
    for (unsigned shift = 32; shift > 0;) {
        size_t count[256] = {0};
        unsigned byte = 255;
        shift -= 8;
        for (size_t p = 0; p < c->n; p++) {
            const uint32_t rank = rank_at(c, p);
            count[rank >> shift & 255] += (rank & known) == limit;
        }
        for (; count[byte] < most; byte--)
            most -= count[byte];
        limit |= byte << shift;
        known |= 255u << shift;
    }
    *equal = most;
    return limit;
}

/* Body of a parallel loop over the rows of a job. */
static void choose_row(void *arg, size_t i)
{
    const struct choose_job *job = arg;
    const size_t most = job->op->choose.most, row = job->first + i;
    uint32_t *out = cpu_positions(job->step, job->op->out, job->query->first + row);
    struct scored_positions c = {
        .score = job->pass->choose.score + i * job->pass->choose.entries,
        .mask = query_mask_of(job->pass->kv, job->query, row, &(struct mask_limits){0})};
    size_t equal = SIZE_MAX;
    c.n = c.mask.position + 1;
    const uint32_t limit = c.n > most ? find_limit(&c, most, &equal) : 0;
    for (size_t p = 0, n = 0; p < c.n && n < most; p++) {
        const uint32_t rank = c.n > most ? rank_at(&c, p) : UINT32_MAX;
        if (rank > limit || (rank == limit && equal > 0))
            out[n++] = (uint32_t)p;
        equal -= rank == limit && equal > 0;
    }
}

/* ---- all rows ---- */

static void load_queries(const struct choose_job *job)
{
    const struct op_choose *op = &job->op->choose;
    const size_t padded = round_up(op->dim, 32);
    for (size_t i = 0; i < job->rows; i++) {
        const float *q = cpu_row(job->step, job->op->in, job->query->first + job->first + i);
        for (size_t h = 0; h < op->heads; h++)
            memcpy(job->pass->choose.q + (i * op->heads + h) * padded, q + h * op->dim,
                   op->dim * sizeof *q);
    }
}

static void choose_rows(struct choose_job *job)
{
    const struct attn_query *query = job->query;
    const size_t committed = kv_position(job->pass->kv, query->seq);
    job->entries = committed + (query->ancestors ? query->rows : job->first + job->rows);
    if (job->entries > job->op->choose.most) {
        const size_t blocks = div_up(job->entries, CHOOSE_KEYS);
        load_queries(job);
        parallel_for(blocks, job->entries * job->rows * job->op->choose.heads * job->op->choose.dim,
                     score_keys, job);
    }
    parallel_for(job->rows, job->rows * job->entries * 8, choose_row, job);
}

int cpu_choose(struct backend_pass *pass, const struct op *op, const struct op_step *step,
               struct row_range rows, struct err *err)
{
    (void)rows;
    for (size_t s = 0; s < step->n_queries; s++) {
        const struct attn_query *query = &step->query[s];
        struct kv_view view;
        kv_prefetch(pass->kv, query->seq, op->choose.layer, 0, 1);
        if (kv_view(pass->kv, query->seq, op->choose.layer, 0, 1, &view, err) < 0)
            return -1;
        for (size_t first = 0; first < query->rows; first += CHOOSE_ROWS)
            choose_rows(&(struct choose_job){pass, op, step, query, &view, first,
                                             size_min(CHOOSE_ROWS, query->rows - first), 0});
    }
    return 0;
}
