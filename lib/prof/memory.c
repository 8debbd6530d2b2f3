/* KV cache memory: by the papers' equations, by each policy's formula, and as counted by a real cache that is grown to
 * its full length; and the memory of activations, by a session without weights, which allocates all its buffers. */
#include "base/threads.h"
#include "backend/backend.h"
#include "kv/kv_footprint.h"
#include "prof/report.h"

/* ---- activations ---- */

static int activations_of(const struct run *run, const struct kv_spec *spec, size_t seqs, size_t rows,
                          size_t *bytes, struct err *err)
{
    static const struct tensor_types f32 = {.type = DTYPE_F32};
    struct session *session;
    struct model model = {.config = run->config};
    struct session_options options = run_session_options(run, run->N, seqs);
    options.kv = *spec;
    *bytes = 0;
    if (weights_shape(&model.weights, &model.config, &f32, err) < 0)
        return -1;
    threads_set(run->threads);
    const struct mem_requests before = mem_requests();
    const int rc = session_open(&session, &model, &options, err);
    if (rc == 0) {
        const struct mem_requests after = mem_requests();
        const double most = (double)session_max_tokens(session);
        const double share = (double)size_min(size_max(rows, 1), session_max_tokens(session)) / most;
        /* cleared blocks are resident as a whole, of others the rows of the largest pass; logits of
         * the pass and those kept for each sequence */
        const size_t logits = size_times(2 * sizeof(float), size_times(seqs, run->config.vocab));
        *bytes = size_plus(after.cleared - before.cleared,
                           size_plus((size_t)((double)(after.plain - before.plain) * share), logits));
    }
    session_close(rc == 0 ? session : NULL);
    weights_release(&model.weights);
    return rc;
}

/* Bytes of a session's buffers, logits included, KV cache and weights not. The session has `seqs`
 * sequences; its largest forward pass has `rows` tokens, limited to a prefill chunk (512) or one per
 * sequence. Needs no weights. On an error *bytes is 0. */
static int run_activations(const struct run *run, const struct kv_spec *spec, size_t seqs, size_t rows,
                           size_t *bytes, struct err *err)
{
    /* more sequences than a chunk has tokens: buffers grow by the same for each */
    const size_t few = 2 * DEFAULT_CHUNK, many = 2 * few;
    size_t least;
    if (seqs <= many)
        return activations_of(run, spec, seqs, rows, bytes, err);
    if (activations_of(run, spec, few, few, &least, err) < 0 ||
        activations_of(run, spec, many, many, bytes, err) < 0)
        return -1;
    const double each = ((double)*bytes - (double)least) / (double)(many - few);
    const double all = (double)least + each * (double)(seqs - few);
    *bytes = all < 0x1p63 ? (size_t)all : SIZE_MAX;
    return 0;
}

/* ---- a real cache ---- */

static int open_cache(struct kv **kv, const struct run *run, const struct kv_spec *spec, size_t layers,
                      size_t n_seqs, struct err *err)
{
    struct kv_shape shape = config_kv_shape(&run->config, run->N, &run->kv_types);
    struct kv_spec own = *spec;
    own.state.shape = config_state_shape(&run->config);
    if (shape.layers) /* recurrent state in proportion */
        own.state.shape.layers = own.state.shape.layers * layers / shape.layers;
    own.memory = backends[0]->memory;
    shape.layers = layers;
    return kv_open(kv, &own, &shape, n_seqs, err);
}

static size_t kv_layers(const struct run *run)
{
    return config_kv_layers(&run->config, 0, run->config.layers);
}

/* Chooses the part of the case that fits in `most` bytes: all layers of some prompts, or some
 * layers of one prompt. */
static void choose_part(struct memory_result *r, const struct run *run, const struct test *what,
                        struct kv_footprint need, size_t most)
{
    /* need.total includes offloaded entries, since writing them takes time, too */
    const size_t layers = kv_layers(run),
                 all = size_plus(size_plus(need.total, need.ahead), need.state);
    const size_t fits = most < need.transient ? 0 : (most - need.transient) / size_max(1, all);
    const size_t of_layer = size_plus(all, need.transient) / layers;
    r->run_batch = size_max(1, size_min(what->batch, fits));
    r->run_layers = fits ? layers : size_min(layers, most / size_max(1, of_layer));
}

/* Maximum tokens to append at once: the policy's limit per forward pass; without one, all `rows`,
 * or a single tile with offloading. */
static size_t rows_at_once(const struct kv *kv, size_t rows)
{
    const size_t most = kv_setup(kv)->step_rows;
    if (most)
        return most;
    return kv_offload(kv).ram ? TILE_ROWS : rows;
}

static int append_entries(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    const size_t most = rows_at_once(kv, rows);
    for (size_t step; rows; rows -= step) {
        step = size_min(most, rows);
        if (kv_ensure(kv, seq, step, err) < 0)
            return -1;
        kv_commit(kv, seq, step);
    }
    return 0;
}

/* Grows each beam to its full answer. The last token of every answer is appended separately, so
 * that policies that reallocate also copy. */
static int grow_answers(struct kv *kv, size_t first, const struct test *what, struct err *err)
{
    for (size_t i = 0; i < what->beams; i++)
        if (what->n_gen > 1 && append_entries(kv, first + i, what->n_gen - 1, err) < 0)
            return -1;
    for (size_t i = 0; i < what->beams; i++)
        if (what->n_gen && append_entries(kv, first + i, 1, err) < 0)
            return -1;
    return 0;
}

static int grow_prompt(struct kv *kv, size_t first, const struct test *what, struct err *err)
{
    if (what->n_prompt && append_entries(kv, first, what->n_prompt, err) < 0)
        return -1;
    for (size_t i = 1; i < what->beams; i++)
        if (kv_fork(kv, first + i, first, what->n_prompt, err) < 0)
            return -1;
    return grow_answers(kv, first, what, err);
}

static int run_part(struct memory_result *r, const struct run *run, const struct kv_spec *spec,
                    const struct test *what, struct err *err)
{
    struct kv *kv;
    struct kv_spec same = *spec; /* the policy with the growth step r of the full-length cache */
    same.T = 0;
    same.r = r->r;
    same.grow_now = true;
    int rc = open_cache(&kv, run, &same, r->run_layers, r->run_batch * what->beams, err);
    for (size_t i = 0; i < r->run_batch && rc == 0 && !*run->interrupted; i++)
        rc = grow_prompt(kv, i * what->beams, what, err);
    if (rc == 0) {
        const size_t rows = what->n_prompt + what->n_gen;
        r->run_bytes = kv_stats(kv).resident_bytes;
        r->arithmetic_bytes = kv_footprint_resident(
            kv, kv_footprint_times(kv_footprint(kv, what->n_prompt, rows, what->beams), r->run_batch));
    }
    kv_close(kv);
    return rc == 0 && *run->interrupted ? err_code(err, ERR_INTERRUPTED, "interrupted") : rc;
}

/* Predicts the most bytes of the whole cache, growth in advance included. */
static int predict_peak(const struct run *run, const struct kv_spec *spec, const struct test *what,
                        size_t *bytes, struct err *err)
{
    const size_t rows = what->n_prompt + what->n_gen;
    struct kv *kv;
    if (open_cache(&kv, run, spec, kv_layers(run), what->beams, err) < 0)
        return -1;
    const struct kv_footprint one = kv_footprint(kv, what->n_prompt, rows, what->beams);
    *bytes = kv_footprint_peak(kv, kv_footprint_times(one, what->batch));
    kv_close(kv);
    return 0;
}

/* Predicts KV cache memory for the whole case, and how many prompts fit in `budget` bytes; then
 * fills a real cache with as much of the case as `most` bytes hold. */
static MUST_USE int run_memory(const struct run *run, const struct kv_spec *spec,
                               const struct test *what, size_t budget, size_t most,
                               struct memory_result *r, struct err *err)
{
    struct kv *kv;
    struct kv_spec limited = *spec;
    *r = (struct memory_result){0};
    if (predict_peak(run, spec, what, &r->peak, err) < 0)
        return -1;
    limited.grow_now = true; /* as under bmc-gen --memory */
    if (open_cache(&kv, run, &limited, kv_layers(run), what->beams, err) < 0)
        return -1;
    const size_t rows = what->n_prompt + what->n_gen, step = size_max(what->n_prompt, 1);
    struct kv_footprint need = kv_footprint(kv, what->n_prompt, rows, what->beams);
    need.floor = size_times(what->beams, offload_floor(kv, rows, size_min(step, DEFAULT_CHUNK)));
    r->impossible = !kv_footprint_possible(kv, need);
    r->T = kv_setup(kv)->T;
    r->r = kv_setup(kv)->r;
    r->bytes = kv_footprint_resident(kv, kv_footprint_times(need, what->batch));
    r->least = need.floor;
    r->fits = r->impossible ? 0 : kv_footprint_fits(kv, need, budget);
    if (!r->impossible)
        choose_part(r, run, what, need, most);
    kv_close(kv);
    const size_t seqs = size_times(what->batch, what->beams);
    if (!r->impossible &&
        run_activations(run, spec, seqs, size_max(seqs, size_times(what->batch, what->n_prompt)),
                        &r->activations, err) < 0)
        return -1;
    return r->run_layers ? run_part(r, run, spec, what, err) : 0;
}

/* ---- equations: KV entries for one prompt and the tokens generated from it ---- */

/* One contiguous cache per beam (segment paper, eq. 2). */
static double standard_rows(const struct run *run, const struct test *test)
{
    (void)run;
    return (double)test->beams * (double)(test->n_prompt + test->n_gen);
}

/* Prompt shared by all beams, generated tokens in growth steps of 16 (segment paper, eq. 3). */
static double segment_rows(const struct run *run, const struct test *test)
{
    (void)run;
    return (double)test->n_prompt + (double)test->beams * (double)round_up(test->n_gen, 16);
}

/* A sliding window of N positions in 2 (N - 1) KV entries, so that it rarely copies (HTP note). */
static double window_rows(const struct run *run, const struct test *test)
{
    return 2.0 * (double)test->beams * (double)(run->N - 1);
}

/* A sliding window of N positions in 1.5 (N - 1) KV entries, which copies more often. */
static double short_window_rows(const struct run *run, const struct test *test)
{
    return 1.5 * (double)test->beams * (double)(run->N - 1);
}

void memory_equations(struct contender contender[MEMORY_EQUATIONS], const struct kv_spec *any)
{
    const struct contender equations[MEMORY_EQUATIONS] = {
        {"standard (eq. 2)", *any, 0, standard_rows},
        {"segment (eq. 3)", *any, 0, segment_rows},
        {"2(N-1) rows", *any, 0, window_rows},
        {"1.5(N-1) rows", *any, 0, short_window_rows},
    };
    memcpy(contender, equations, sizeof equations);
}

/* ---- policies ---- */

/* Bytes of an untied input embedding that are resident after random tokens were looked up: on a page
 * fault the kernel maps the 64 KiB around the page (fault_around_bytes). */
static double embedding_read(const struct memory_job *job, const struct test *test)
{
    const double windows = (double)job->embed_bytes / 65536;
    const double tokens = (double)test->batch * (double)(test->n_prompt + test->beams * test->n_gen);
    return (double)job->embed_bytes * (windows > 1 ? 1 - exp(-tokens / windows) : 1);
}

/* Predicted peak of resident memory: the program, weights, KV entries while they grow, activations. */
static size_t peak_bytes(const struct memory_job *job, const struct test *test,
                         const struct memory_result *r)
{
    const size_t weights = job->weights.all - job->embed_bytes + (size_t)embedding_read(job, test);
    return size_plus(size_plus(job->program_bytes, weights), size_plus(r->peak, r->activations));
}

/* What applies to an equation, or could not be run, is not stated. */
static void leave_out(struct figures *f, const struct contender *contender, size_t budget)
{
    struct memory_result *r = &f->memory;
    const size_t none = SIZE_MAX;
    f->run_over =
        r->run_layers && r->arithmetic_bytes ? (double)r->run_bytes / (double)r->arithmetic_bytes : NAN;
    if (contender->equation)
        f->T = f->r = f->peak_bytes = r->activations = none;
    if (!r->run_layers)
        r->run_layers = r->run_batch = r->run_bytes = none;
    if (!r->least)
        r->least = none;
    if (!budget && !r->impossible)
        r->fits = none;
}

/* Bytes of one token's KV entries if K and V of every head were stored, where latent attention stores what they are made
 * of. */
static double full_token_bytes(const struct config *c, struct kv_types types, double stored)
{
    return c->latent->kv_rank ? (double)(c->layers * c->heads) *
                                    (double)(dtype_row_bytes(types.k, config_query_dim(c)) +
                                             dtype_row_bytes(types.k, c->latent->v_dim))
                              : stored;
}

int measure_memory(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct memory_job *job = arg;
    const struct run *run = &job->report->run;
    const struct test *test = &m->test;
    struct memory_result *r = &f->memory;
    f->token_bytes = (double)job->counts.append_bytes;
    f->full_token_bytes = full_token_bytes(&run->config, run->kv_types.all, f->token_bytes);
    f->weights = job->weights;
    f->active_weight_bytes = job->counts.weight_bytes;
    if (m->contender->equation) {
        const double one = m->contender->equation(run, test) * f->token_bytes;
        f->kv_bytes = (double)test->batch * one;
        r->fits = one > 0 ? (size_t)((double)job->budget / one) : 0;
    } else {
        if (run_memory(run, &m->contender->spec, test, job->budget, job->run_bytes, r, err) < 0)
            return -1;
        f->kv_bytes = (double)r->bytes;
        f->T = r->T;
        f->r = r->r;
        f->peak_bytes = peak_bytes(job, test, r);
    }
    const double standard = (double)test->batch * standard_rows(run, test) * f->token_bytes;
    f->over_standard = standard > 0 ? f->kv_bytes / standard : NAN;
    leave_out(f, m->contender, job->budget);
    return 0;
}
