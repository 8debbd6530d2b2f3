/* Chooses types by measured divergence. A forward pass with a matrix rounded to 4 bits, or a few of one kind, shows what
 * an error there costs; for other types the cost is taken to be proportional to the squared error, which needs no pass: near its minimum,
 * divergence is quadratic in the weights. */
#include "prof/type_search.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "format/gguf/gguf_write.h"
#include "model/convert/tensor_sources.h"
#include "model/convert/type_mixtures.h"
#include "model/weight_kinds.h"
#include "prof/knapsack.h"
#include "quant/pack.h"
#include "quant/quantize.h"

enum { MOST_TOKENS = 128, LOGIT_ROWS = 32, SAMPLED_ROWS = 32, PROBE_WORK = 512 };

/* Forward passes that are aimed at, and matrices that are measured by one at most. */
enum { MOST_PASSES = 64, MOST_GROUP = 16 };

/* How often the types for a divergence are measured, and those for a size computed exactly. */
enum { MOST_KLD_TRIES = 8, MOST_SIZE_TRIES = 4 };

/* Types that may be chosen, and the matrix's own, which costs nothing. */
static const enum dtype candidates[] = {
    DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_IQ3_S, DTYPE_IQ4_XS, DTYPE_IQ4_NL, DTYPE_Q4_K,
    DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,  DTYPE_Q5_K,   DTYPE_Q6_K,   DTYPE_Q8_0,
};
enum { CANDIDATES = ARRAY_LEN(candidates), CHOICES = CANDIDATES + 1 };

struct searched_matrix {
    char name[WEIGHT_NAME_SIZE];
    const struct weight_kind *kind;
    size_t layer;
    /* index of the first matrix in the same tensor of the file, which has the choices of all */
    size_t first;
    const struct bmc_tensor *tensor;
    struct mat *mat;     /* in the model, which is given other weights for a pass */
    struct mat own;      /* those of the source */
    unsigned char *copy; /* in copy_type; NULL: none */
    enum dtype copy_type;
    const float *weight;
    struct type_choice choice[CHOICES]; /* ascending by bytes; each has a lower kld than those before */
    size_t n, chosen;                   /* n = 0: not the first in its tensor */
};

struct search_run {
    const struct type_search *o;
    struct searched_matrix *matrix;
    size_t n;
    float *reference, *logits;   /* [tokens][vocab], [LOGIT_ROWS][vocab] */
    struct quality_token *token; /* [tokens - 1] of the last pass */
    size_t tokens, vocab;
    size_t overhead; /* bytes of the file beside these matrices */
    struct knapsack sack;
    double most_kld; /* GOAL_KLD: expected divergence that is aimed at */
};

/* ---- quantised copies ---- */

/* Quantises rows of a matrix of the file, 16 at a time. */
struct matrix_copy {
    const struct search_run *run;
    const struct searched_matrix *matrix;
    enum dtype type;
    bool probe;            /* rounds to nearest, which takes a tenth of the time */
    size_t step;           /* every so many blocks of 16 rows */
    unsigned char *packed; /* the copy; NULL: errors only */
    double *error;         /* [blocks] */
    atomic_bool failed;
};

static void copy_block(void *arg, size_t index)
{
    struct matrix_copy *job = arg;
    const struct bmc_tensor *tensor = job->matrix->tensor;
    const struct bmc_matrices m = bmc_matrices_of(tensor);
    const size_t per_matrix = div_up(m.out, PACK_OUT), block = index * job->step,
                 matrix = block / per_matrix, first = block % per_matrix * PACK_OUT,
                 n = size_min(PACK_OUT, m.out - first), bytes = dtype_row_bytes(job->type, m.in);
    const float *weight = job->matrix->weight ? job->matrix->weight + matrix * m.in : NULL;
    float *x = mem_alloc(PACK_OUT, m.in * sizeof *x), *back = mem_alloc(m.in, sizeof *back);
    char *rows = mem_zalloc(PACK_OUT, bytes);
    bool fine = x && back && rows &&
                model_source_rows(&job->run->o->model->file, tensor, matrix * m.out + first, n,
                                  DTYPE_F32, x) == IMPORT_FINITE;
    double error = 0;
    for (size_t i = 0; i < n && fine; i++) {
        if (job->probe)
            quantize_nearest(rows + i * bytes, job->type, x + i * m.in, m.in);
        else
            fine = quantize(rows + i * bytes, job->type, x + i * m.in, m.in, weight);
        if (!fine || job->packed)
            continue;
        dtype_to_f32(back, job->type, rows + i * bytes, m.in);
        for (size_t k = 0; k < m.in; k++) {
            const double d = (double)back[k] - (double)x[i * m.in + k];
            error += d * d * (weight ? (double)weight[k] : 1);
        }
    }
    if (fine && job->packed)
        pack_rows(job->packed + block * pack_block_bytes(job->type, layout_in(LAYOUT_PACKED, m.in)),
                  layout_in(LAYOUT_PACKED, m.in), rows, m.in, n, m.in, job->type);
    if (job->error)
        job->error[index] = error;
    if (!fine)
        atomic_store(&job->failed, true);
    free(x);
    free(back);
    free(rows);
}

static size_t blocks_of(const struct searched_matrix *matrix)
{
    const struct bmc_matrices m = bmc_matrices_of(matrix->tensor);
    return m.n * div_up(m.out, PACK_OUT);
}

/* The squared error of a type on some rows; infinite: values are too large for it. */
static double sampled_error(const struct search_run *run, const struct searched_matrix *matrix,
                            enum dtype type, bool probe)
{
    const size_t blocks = blocks_of(matrix), step = size_max(1, blocks / (SAMPLED_ROWS / PACK_OUT)),
                 n = div_up(blocks, step);
    struct matrix_copy job = {.run = run, .matrix = matrix, .type = type, .probe = probe, .step = step};
    double sum = 0;
    if (!(job.error = mem_zalloc(n, sizeof *job.error)))
        return INFINITY;
    parallel_for(n, PROBE_WORK * n * PACK_OUT * bmc_matrices_of(matrix->tensor).in, copy_block, &job);
    for (size_t i = 0; i < n; i++)
        sum += job.error[i];
    free(job.error);
    return job.failed ? INFINITY : sum;
}

/* ---- divergence ---- */

struct logit_rows {
    const struct search_run *run;
    size_t at; /* token whose logits are the first row */
};

static void compare_row(void *arg, size_t row)
{
    const struct logit_rows *job = arg;
    const struct search_run *run = job->run;
    const size_t at = job->at + row;
    if (at + 1 == run->tokens)
        return;
    run->token[at].position = at + 1;
    quality_compare(&run->token[at], run->reference + at * run->vocab, run->logits + row * run->vocab,
                    run->vocab, run->o->id[at + 1]);
}

/* Runs the text; *kld receives the mean divergence from the reference, which is set if `kld` is NULL. */
static int run_text(struct search_run *run, double *kld, struct err *err)
{
    struct session *session = NULL;
    size_t row[LOGIT_ROWS];
    double sum = 0;
    if (*run->o->interrupted)
        return err_code(err, ERR_INTERRUPTED, "interrupted");
    int rc = session_open(&session, run->o->model, run->o->options, err);
    if (rc == 0) {
        session_begin(session, 0, run->tokens, run->tokens);
        batch_add(session, 0, run->o->id, run->tokens);
        rc = session_run(session, run->o->options->threads, err);
    }
    for (size_t at = 0, n; at < run->tokens && rc == 0; at += n) {
        n = size_min(LOGIT_ROWS, run->tokens - at);
        for (size_t i = 0; i < n; i++)
            row[i] = at + i;
        float *reference = run->reference + at * run->vocab;
        rc = session_logits(session, row, n, kld ? run->logits : reference, err);
        if (rc < 0 || !kld)
            continue;
        struct logit_rows job = {run, at};
        parallel_for(n, n * run->vocab * 32, compare_row, &job);
    }
    session_close(session);
    for (size_t i = 0; i + 1 < run->tokens && kld && rc == 0; i++)
        sum += run->token[i].kld;
    if (kld)
        *kld = sum / (double)(run->tokens - 1);
    return rc;
}

/* The type in which a matrix is measured, rounded to nearest. */
static enum dtype probe_of(const struct searched_matrix *matrix)
{
    return matrix->tensor->dtype == DTYPE_Q4_0 ? DTYPE_IQ4_NL : DTYPE_Q4_0;
}

/* Puts a quantised copy of a matrix into the model. */
static int swap_matrix(struct search_run *run, struct searched_matrix *matrix, enum dtype type,
                       bool probe, struct err *err)
{
    const struct bmc_matrices m = bmc_matrices_of(matrix->tensor);
    struct matrix_copy job = {.run = run, .matrix = matrix, .type = type, .probe = probe, .step = 1};
    if (!matrix->copy || matrix->copy_type != type) {
        free(matrix->copy);
        matrix->copy_type = type;
        job.packed = matrix->copy = mem_zalloc(m.n * layout_bytes(LAYOUT_PACKED, type, m.out, m.in), 1);
        if (!job.packed)
            return err_no_memory(err, "a quantised copy of %s", matrix->name);
        parallel_for(blocks_of(matrix), PROBE_WORK * m.n * m.out * m.in, copy_block, &job);
    }
    if (job.failed)
        return err_set(err, "tensor \"%s\" has weights that are too large for %s", matrix->name,
                       dtype_name(type));
    *matrix->mat =
        (struct mat){type, LAYOUT_PACKED, m.out, m.in, layout_in(LAYOUT_PACKED, m.in), matrix->copy};
    return 0;
}

/* Puts the matrices of the source back; copies in the chosen types stay for the next choice. */
static void swap_back(struct searched_matrix *first, size_t n, bool chosen)
{
    for (size_t i = 0; i < n; i++) {
        *first[i].mat = first[i].own;
        if (chosen)
            continue;
        free(first[i].copy);
        first[i].copy = NULL;
    }
}

static enum dtype chosen_type(const struct search_run *run, const struct searched_matrix *matrix)
{
    const struct searched_matrix *first = &run->matrix[matrix->first];
    return first->choice[first->chosen].type;
}

/* Measures the mean divergence with n matrices in other types: those of their probes, or the chosen ones. */
static int measure(struct search_run *run, struct searched_matrix *first, size_t n, bool chosen,
                   double *kld, struct err *err)
{
    struct model *model = (struct model *)(uintptr_t)run->o->model;
    struct mat *const head = &model->weights.head.weight, old_head = *head;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct searched_matrix *matrix = &first[i];
        const enum dtype type = chosen ? chosen_type(run, matrix) : probe_of(matrix);
        if (type != (enum dtype)matrix->tensor->dtype)
            rc = swap_matrix(run, matrix, type, !chosen, err);
        if (model->config.tied_head && strcmp(matrix->kind->name, "embed.weight") == 0)
            *head = *matrix->mat;
    }
    if (rc == 0)
        rc = run_text(run, kld, err);
    swap_back(first, n, chosen);
    *head = old_head;
    return rc;
}

/* ---- the choices of a matrix ---- */

static bool whole_blocks(enum dtype type, size_t in)
{
    return block_types[type].name && in % block_types[type].elements == 0;
}

/* Bytes of a matrix in the file; 0: it cannot have the type, as rows are no whole blocks. */
static size_t bytes_of(const struct search_run *run, const struct searched_matrix *matrix,
                       enum dtype type)
{
    const struct bmc_matrices m = bmc_matrices_of(matrix->tensor);
    if (type != (enum dtype)matrix->tensor->dtype && !whole_blocks(type, m.in))
        return 0;
    if (!run->o->fused)
        return round_up(m.n * layout_bytes(LAYOUT_PACKED, type, m.out, m.in), BMC_ALIGN);
    return whole_blocks(type, m.in)
               ? round_up(m.n * m.out * (m.in / block_types[type].elements) * block_types[type].bytes,
                          GGUF_ALIGNMENT)
               : 0;
}

static int by_bytes(const void *a, const void *b)
{
    const struct type_choice *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
           : x->kld < y->kld    ? -1
                                : x->kld > y->kld;
}

static void add_choice(const struct search_run *run, struct searched_matrix *matrix, enum dtype type,
                       double kld)
{
    const size_t bytes = bytes_of(run, matrix, type);
    if (bytes && isfinite(kld))
        matrix->choice[matrix->n++] = (struct type_choice){type, bytes, kld};
}

/* Finds what every type would cost the matrix, by what the probe costs. */
static void find_choices(struct search_run *run, struct searched_matrix *matrix, double kld)
{
    const enum dtype own = (enum dtype)matrix->tensor->dtype;
    const double unit = sampled_error(run, matrix, probe_of(matrix), true);
    for (size_t i = 0; i < CANDIDATES; i++)
        if (candidates[i] != own && (run->o->imatrix || !type_needs_imatrix(candidates[i])) &&
            bytes_of(run, matrix, candidates[i]) < bytes_of(run, matrix, own))
            add_choice(run, matrix, candidates[i],
                       unit > 0 ? kld * sampled_error(run, matrix, candidates[i], false) / unit : 0);
    add_choice(run, matrix, own, 0);
}

/* Adds the choices of a matrix to those of the first in its tensor, which keeps types that both can have. */
static void join_choices(struct searched_matrix *first, struct searched_matrix *matrix)
{
    size_t kept = 0;
    for (size_t i = 0; i < first->n; i++)
        for (size_t k = 0; k < matrix->n; k++)
            if (matrix->choice[k].type == first->choice[i].type) {
                const struct type_choice both = {matrix->choice[k].type,
                                                 first->choice[i].bytes + matrix->choice[k].bytes,
                                                 first->choice[i].kld + matrix->choice[k].kld};
                first->choice[kept++] = both;
                break;
            }
    first->n = kept;
    matrix->n = 0;
}

/* Drops choices that have a better one of no more bytes. */
static int sort_choices(struct search_run *run, struct err *err)
{
    for (size_t m = 0; m < run->n; m++)
        if (run->matrix[m].first != m)
            join_choices(&run->matrix[run->matrix[m].first], &run->matrix[m]);
    for (size_t m = 0; m < run->n; m++) {
        struct searched_matrix *matrix = &run->matrix[m];
        qsort(matrix->choice, matrix->n, sizeof *matrix->choice, by_bytes);
        size_t kept = 0;
        for (size_t i = 0; i < matrix->n; i++)
            if (!kept || matrix->choice[i].kld < matrix->choice[kept - 1].kld)
                matrix->choice[kept++] = matrix->choice[i];
        matrix->n = kept;
        if (!kept && matrix->first == m)
            return err_set(err, "tensor \"%s\" of %zu inputs has no type that GGUF can have",
                           matrix->name, bmc_matrices_of(matrix->tensor).in);
    }
    return 0;
}

/* ---- the knapsack ---- */

static double total_kld(const struct search_run *run)
{
    double sum = 0;
    for (size_t i = 0; i < run->n; i++)
        sum += run->matrix[i].n ? run->matrix[i].choice[run->matrix[i].chosen].kld : 0;
    return sum;
}

static size_t total_bytes(const struct search_run *run)
{
    size_t sum = run->overhead;
    for (size_t i = 0; i < run->n; i++)
        sum += run->matrix[i].n ? run->matrix[i].choice[run->matrix[i].chosen].bytes : 0;
    return sum;
}

static int fill_knapsack(struct search_run *run, struct err *err)
{
    size_t span = 0;
    for (size_t i = 0; i < run->n; i++)
        if (run->matrix[i].n)
            span += run->matrix[i].choice[run->matrix[i].n - 1].bytes - run->matrix[i].choice[0].bytes;
    if (knapsack_open(&run->sack, run->n, span, err) < 0)
        return -1;
    for (size_t i = 0; i < run->n; i++)
        if (run->matrix[i].n)
            knapsack_add(&run->sack, i, run->matrix[i].choice, run->matrix[i].n);
    return 0;
}

/* Chooses the types that have the least divergence of all that need at most `steps`. */
static void choose_best(struct search_run *run, size_t steps)
{
    for (size_t i = run->n; i-- > 0;) {
        struct searched_matrix *matrix = &run->matrix[i];
        matrix->chosen = matrix->n ? knapsack_take(&run->sack, i, matrix->choice, &steps) : 0;
    }
}

static void choose_smallest(struct search_run *run)
{
    for (size_t i = 0; i < run->n; i++)
        run->matrix[i].chosen = 0;
}

/* Bytes of the tensors that keep their type. */
static size_t kept_bytes(const struct search_run *run)
{
    const struct bmc_file *file = &run->o->model->file;
    size_t sum = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        sum += (size_t)file->tensor[i].bytes;
    for (size_t i = 0; i < run->n; i++)
        sum -= (size_t)run->matrix[i].tensor->bytes;
    return sum;
}

/* The most bytes that the file may have. */
static size_t most_bytes(const struct search_run *run)
{
    const struct type_search *o = run->o;
    const double bytes = o->value * (double)model_parameters(o->model) / 8;
    return o->goal == GOAL_BYTES  ? (size_t)o->value
           : o->goal == GOAL_BITS ? (size_t)fmax(0, bytes - (double)kept_bytes(run)) + run->overhead
                                  : SIZE_MAX;
}

/* Chooses the types of least divergence that the goal allows, or of fewest bytes. */
static int choose(struct search_run *run, struct err *err)
{
    const size_t most = most_bytes(run);
    size_t steps = 0;
    choose_smallest(run);
    if (total_bytes(run) > most)
        return err_set(err, "the smallest types make %zu bytes, more than the %zu of the target",
                       total_bytes(run), most);
    if (run->o->goal == GOAL_KLD)
        while (steps < KNAPSACK_STEPS && run->sack.least[steps] > run->most_kld)
            steps++;
    else
        steps = (size_t)fmin(KNAPSACK_STEPS, (double)(most - total_bytes(run)) / run->sack.step_bytes);
    for (choose_best(run, steps); total_bytes(run) > most && steps > 0; choose_best(run, steps))
        steps--; /* rounded sizes are too small */
    if (total_bytes(run) > most)
        choose_smallest(run);
    return 0;
}

/* ---- the whole ---- */

/* The index of the first matrix in the same tensor of the file as one that is about to be listed. */
static size_t first_in_tensor(const struct search_run *run, const struct weight_kind *kind,
                              size_t layer)
{
    const struct weight_kind *const *fused = run->o->fused;
    size_t i = 0;
    while (i + 1 < run->n && !(fused && run->matrix[i].layer == layer &&
                               fused[run->matrix[i].kind - weight_kinds] == fused[kind - weight_kinds]))
        i++;
    return i;
}

static int list_matrices(struct search_run *run, struct err *err)
{
    const struct model *model = run->o->model;
    size_t cap = 0;
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t layer = 0; layer < weight_kind_copies(&weight_kinds[i], &model->config); layer++) {
            const struct weight_kind *kind = &weight_kinds[i];
            if (kind->in == DIM_NONE || !weight_kind_has(kind, &model->config, layer) ||
                weight_kind_stays_wide(kind) || weight_kind_looked_up(kind, &model->config) ||
                (model->config.tied_head && strcmp(kind->name, "head.weight") == 0))
                continue;
            if (mem_grow(&run->matrix, &cap, run->n, sizeof *run->matrix, err) < 0)
                return -1;
            struct searched_matrix *matrix = &run->matrix[run->n++];
            *matrix = (struct searched_matrix){
                .kind = kind, .layer = layer, .first = first_in_tensor(run, kind, layer)};
            weight_kind_tensor_name(kind, layer, matrix->name);
            matrix->tensor = bmc_file_find(&model->file, matrix->name);
            matrix->mat = weight_kind_at(kind, &model->weights, layer);
            matrix->own = *matrix->mat;
            const struct bmc_matrices m = bmc_matrices_of(matrix->tensor);
            if (run->o->imatrix && imatrix_weights_find(run->o->imatrix, matrix->name, m.n * m.in,
                                                        &matrix->weight, err) < 0)
                return -1;
        }
    return run->n ? 0 : err_set(err, "%s: has no matrices to quantise", model->name);
}

static void forget(struct chosen_types *chosen)
{
    for (size_t i = 0; i < chosen->n; i++)
        free(chosen->text[i]);
    free(chosen->text);
    chosen->text = NULL;
    chosen->n = 0;
}

static int tell(struct chosen_types *chosen, const struct search_run *run, struct err *err)
{
    forget(chosen);
    chosen->text = calloc(run->n, sizeof *chosen->text);
    if (!chosen->text)
        return err_no_memory(err, "chosen types");
    for (size_t i = 0; i < run->n; i++) {
        const struct searched_matrix *matrix = &run->matrix[i];
        struct buf text = {0};
        const int status =
            buf_addf(&text, err, "%s=%s", matrix->name, dtype_name(chosen_type(run, matrix)));
        chosen->text[chosen->n++] = text.data;
        if (status < 0)
            return -1;
    }
    return 0;
}

/* Writes what was measured as lines of a configuration. */
static int certify(struct chosen_types *chosen, const struct search_run *run, const struct quality *q,
                   struct err *err)
{
    char hash[2 * HASH_BYTES + 1];
    const struct hash of_text = hash_of(run->o->id, run->tokens * sizeof *run->o->id);
    hash_hex(&of_text, 8, hash);
    buf_clear(&chosen->certificate);
    chosen->kld = q->kld_mean;
    chosen->tokens = run->tokens;
    return buf_addf(&chosen->certificate, err,
                    "quality_text %s\nquality_tokens %zu\nquality_kld_mean %.6g\nquality_kld_p999 "
                    "%.6g\nquality_same_top %.4f\nquality_ppl %.6g\nquality_ppl_source %.6g\n",
                    hash, run->tokens, q->kld_mean, q->kld_p999, q->same_top, q->ppl, q->ppl_reference);
}

/* Measures the model of the chosen types. */
static int measure_whole(struct chosen_types *chosen, struct search_run *run, struct err *err)
{
    double kld;
    struct quality q;
    return measure(run, run->matrix, run->n, true, &kld, err) < 0 ||
                   quality_summarize(&q, run->token, run->tokens - 1, 0, SIZE_MAX, err) < 0
               ? -1
               : certify(chosen, run, &q, err);
}

/* Computes the size of the file, with a certificate that no other is longer than. */
static int find_size(struct chosen_types *chosen, struct search_run *run, struct err *err)
{
    const double longest = -1.23456e-300;
    const struct quality q = {.kld_mean = longest,
                              .kld_p999 = longest,
                              .same_top = longest,
                              .ppl = longest,
                              .ppl_reference = longest};
    if (tell(chosen, run, err) < 0 || certify(chosen, run, &q, err) < 0 ||
        run->o->size(run->o->size_arg, chosen, &chosen->bytes, err) < 0)
        return -1;
    run->overhead =
        (size_t)((ptrdiff_t)run->overhead + (ptrdiff_t)chosen->bytes - (ptrdiff_t)total_bytes(run));
    return 0;
}

/* Chooses types for a size; sums of sizes leave out padding at the end of the file, which the next try knows. */
static int reach_size(struct chosen_types *chosen, struct search_run *run, struct err *err)
{
    int rc = find_size(chosen, run, err);
    for (size_t i = 0; i < MOST_SIZE_TRIES && rc == 0; i++) {
        rc = choose(run, err);
        if (rc == 0)
            rc = find_size(chosen, run, err);
        if (rc == 0 && chosen->bytes <= most_bytes(run))
            return measure_whole(chosen, run, err);
    }
    return rc < 0 ? -1
                  : err_set(err, "the chosen types make %zu bytes, more than the %zu of the target",
                            chosen->bytes, most_bytes(run));
}

/* Gives all matrices the types of the source: 1 if the file may have its size, else 0, and no choices. */
static int keep_types(struct chosen_types *chosen, struct search_run *run, struct err *err)
{
    bool same = run->o->goal != GOAL_KLD;
    for (size_t i = 0; i < run->n && same; i++) {
        struct searched_matrix *matrix = &run->matrix[i];
        add_choice(run, matrix, (enum dtype)matrix->tensor->dtype, 0);
        same = matrix->n && matrix->tensor->dtype == run->matrix[matrix->first].tensor->dtype;
    }
    const int rc = same ? find_size(chosen, run, err) : 0;
    if (rc == 0 && same && chosen->bytes <= most_bytes(run))
        return 1;
    for (size_t i = 0; i < run->n; i++)
        run->matrix[i].n = 0;
    return rc;
}

/* Chooses types for a divergence, by a search for the expected one with which the whole has it: what matrices cost
 * does not simply add up. */
static int reach_kld(struct chosen_types *chosen, struct search_run *run, struct err *err)
{
    const double wanted = run->o->value, near = 0.9;
    double low = 0,
           high = INFINITY; /* expected: the measured one is at most what is wanted, and more */
    run->most_kld = wanted;
    for (size_t i = 0; i < MOST_KLD_TRIES; i++) {
        if (choose(run, err) < 0 || measure_whole(chosen, run, err) < 0)
            return -1;
        const double expected = run->most_kld;
        *(chosen->kld <= wanted ? &low : &high) = expected;
        if (chosen->kld <= wanted && (chosen->kld >= near * wanted || total_kld(run) < near * expected))
            break;
        run->most_kld = expected * wanted * (1 + near) / 2 / fmax(chosen->kld, wanted / 16);
        if (run->most_kld <= low || run->most_kld >= high)
            run->most_kld = isinf(high) ? 2 * low : (low + high) / 2;
    }
    if (chosen->kld > wanted) {
        run->most_kld = low;
        if (choose(run, err) < 0 || measure_whole(chosen, run, err) < 0)
            return -1;
    }
    if (chosen->kld > wanted)
        return err_set(err,
                       "the mean KL divergence of types of most bytes is %.4g, more than the %.4g of "
                       "the target",
                       chosen->kld, wanted);
    struct buf certificate = chosen->certificate;
    const double kld = chosen->kld;
    chosen->certificate = (struct buf){0};
    const int rc = find_size(chosen, run, err);
    buf_release(&chosen->certificate);
    chosen->certificate = certificate;
    chosen->kld = kld;
    return rc;
}

/* The number of matrices from `first` on that are measured together: of one kind, in neighbouring layers. */
static size_t group_at(const struct search_run *run, size_t first)
{
    const size_t most = size_min(MOST_GROUP, div_up(run->n, MOST_PASSES));
    size_t n = 1;
    while (n < most && first + n < run->n && run->matrix[first + n].kind == run->matrix[first].kind)
        n++;
    return n;
}

static int find_group(struct search_run *run, struct searched_matrix *first, size_t n, struct err *err)
{
    double kld;
    const int rc = measure(run, first, n, false, &kld, err);
    for (size_t i = 0; i < n && rc == 0; i++) /* each has an equal part of it */
        find_choices(run, &first[i], kld / (double)n);
    return rc;
}

static int search_types(struct chosen_types *chosen, struct search_run *run, struct err *err)
{
    for (size_t i = 0, n; i < run->n; i += n) {
        n = group_at(run, i);
        if (find_group(run, &run->matrix[i], n, err) < 0)
            return -1;
        run->o->progress(run->o->arg, i + n, run->n);
    }
    return sort_choices(run, err) < 0 || fill_knapsack(run, err) < 0 ? -1
           : run->o->goal == GOAL_KLD                                ? reach_kld(chosen, run, err)
                                                                     : reach_size(chosen, run, err);
}

int type_search(struct chosen_types *chosen, const struct type_search *search, struct err *err)
{
    struct search_run run = {
        .o = search, .tokens = size_min(search->n, MOST_TOKENS), .vocab = search->model->config.vocab};
    *chosen = (struct chosen_types){0};
    run.reference = mem_alloc(run.tokens, run.vocab * sizeof *run.reference);
    run.logits = mem_alloc(LOGIT_ROWS, run.vocab * sizeof *run.logits);
    run.token = mem_zalloc(run.tokens, sizeof *run.token);
    int rc = run.reference && run.logits && run.token ? list_matrices(&run, err)
                                                      : err_no_memory(err, "logits");
    if (rc == 0)
        rc = run_text(&run, NULL, err);
    const int kept = rc == 0 ? keep_types(chosen, &run, err) : -1;
    rc = kept < 0 ? -1 : kept == 1 ? measure_whole(chosen, &run, err) : search_types(chosen, &run, err);
    for (size_t i = 0; i < run.n; i++)
        free(run.matrix[i].copy);
    free(run.matrix);
    free(run.reference);
    free(run.logits);
    free(run.token);
    knapsack_release(&run.sack);
    return rc;
}

void chosen_types_release(struct chosen_types *chosen)
{
    forget(chosen);
    buf_release(&chosen->certificate);
    *chosen = (struct chosen_types){0};
}
