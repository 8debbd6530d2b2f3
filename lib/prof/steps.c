/* Whole forward passes: prefill and greedy decoding of a batch, with every step timed. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"
#include "decode/sample/rng.h"
#include "decode/sample/sampler.h"
#include "prof/report.h"
#include "tune/layer_bench.h"

struct session_options run_session_options(const struct run *run, size_t context, size_t batch)
{
    return (struct session_options){
        .kv_types = run->kv_types,
        .backend = run->backend,
        .cpu = {run->kernels, run->precision, run->attn},
        .context = context,
        .batch = batch,
        .chunk = size_min(DEFAULT_CHUNK, context),
        .threads = run->threads,
        .threads_prefill = run->threads,
    };
}

struct stepper {
    const struct run *run;
    struct session *session;
    float *logits;   /* [batch][vocab] */
    size_t *row;     /* [batch] */
    uint32_t *token; /* [batch] token sampled last */
    uint32_t *prompt;
};

static void choose_tokens(struct stepper *s)
{
    const size_t vocab = session_vocab(s->session);
    for (size_t i = 0; i < s->run->batch; i++) {
        struct candidate best;
        top_logits(s->logits + i * vocab, vocab, 1, &best);
        s->token[i] = best.id;
    }
}

/* Tokens of sequences without a prompt: they differ, as those of different experts cost more. */
static void draw_tokens(struct stepper *s)
{
    const double vocab = (double)session_vocab(s->session);
    for (size_t i = 0; i < s->run->batch; i++)
        s->token[i] = (uint32_t)(rng_uniform(s->run->seed, i, 0, 9) * vocab);
}

/* Prefills every sequence with `n` random tokens, in chunks. */
static int feed_random(struct stepper *s, size_t n, struct err *err)
{
    const size_t vocab = session_vocab(s->session), chunk = session_options(s->session)->chunk;
    for (size_t seq = 0; seq < s->run->batch; seq++)
        for (size_t at = 0, rows; at < n; at += rows) {
            rows = size_min(chunk, n - at);
            for (size_t i = 0; i < rows; i++)
                s->prompt[i] =
                    (uint32_t)(rng_uniform(s->run->seed, seq, (uint32_t)(at + i), 7) * (double)vocab);
            s->row[seq] = batch_add(s->session, seq, s->prompt, rows) + rows - 1;
            if (*s->run->interrupted)
                return err_code(err, ERR_INTERRUPTED, "interrupted");
            session_skip_outputs(s->session, s->row[seq]);
            if (session_run(s->session, s->run->threads, err) < 0)
                return -1;
            if (at + rows == n &&
                session_logits(s->session, &s->row[seq], 1, s->logits + seq * vocab, err) < 0)
                return -1;
        }
    return 0;
}

/* Fills every sequence with `depth` synthetic KV entries, copies of one random entry, in
 * prefill-sized chunks. Step times do not depend on their values. */
static int fill_depth(struct stepper *s, size_t depth, struct err *err)
{
    struct kv *kv = session_kv(s->session);
    const struct kv_shape *shape = &kv_setup(kv)->shape;
    const size_t width = kv_shape_width(shape), chunk = session_options(s->session)->chunk;
    AUTO(free_auto) float *row = mem_alloc(width, sizeof *row);
    int rc = row ? 0 : err_no_memory(err, "a row of %zu numbers", width);
    for (size_t i = 0; rc == 0 && i < width; i++)
        row[i] = (float)rng_uniform(s->run->seed, 0, (uint32_t)i, 8) - 0.5f;
    const struct backend_memory *memory = kv_setup(kv)->memory;
    const struct device_addr at_row =
        rc == 0 ? memory->adopt(row, width * sizeof *row) : (struct device_addr){0};
    if (rc == 0 && addr_is_null(at_row))
        rc = err_no_memory(err, "a row of %zu numbers", width);
    for (size_t seq = 0; seq < s->run->batch; seq++)
        for (size_t at = 0, rows; rc == 0 && at < depth; at += rows) {
            rows = size_min(chunk, depth - at);
            rc = *s->run->interrupted ? err_code(err, ERR_INTERRUPTED, "interrupted")
                                      : kv_ensure(kv, seq, rows, err);
            for (size_t l = 0; rc == 0 && l < shape->layers; l++)
                kv_append(kv, seq, l, at_row, at_row, 0, NULL);
            if (rc == 0)
                kv_commit(kv, seq, rows);
        }
    if (!addr_is_null(at_row))
        memory->disown(at_row, width * sizeof *row);
    return rc;
}

size_t run_snapshot_rows(const struct snapshot *snapshot, size_t index)
{
    const struct kvfile_seq *seq = snapshot_seq(snapshot, index);
    return (size_t)(seq->n_rows < seq->n_tokens ? seq->n_rows : seq->n_tokens - 1);
}

/* Loads the snapshot's sequences into the batch, repeating them if there are fewer; decoding starts
 * with the token of each that has no KV entry yet. */
static int begin_with_snapshot(struct stepper *s, struct err *err)
{
    const struct snapshot *snapshot = s->run->snapshot;
    for (size_t i = 0; i < s->run->batch; i++) {
        const size_t index = i % snapshot->file.n_seqs, rows = run_snapshot_rows(snapshot, index);
        s->token[i] = snapshot_tokens(snapshot, index)[rows];
        if (s->token[i] >= session_vocab(s->session))
            return err_set(err, "%s: id %u is outside the vocabulary", snapshot->path, s->token[i]);
        if (rows && snapshot_load(s->session, i, snapshot, index, rows, err) < 0)
            return -1;
    }
    return 0;
}

/* Time that the cache has spent on growth so far. */
static double growth_ms(const struct stepper *s)
{
    const struct kv_stats kv = kv_stats(session_kv(s->session));
    return kv.alloc_ms + kv.copy_ms;
}

static int decode_step(struct stepper *s, size_t n, struct steps_result *result, struct err *err)
{
    const double growth = growth_ms(s), start = clock_ms();
    for (size_t i = 0; i < s->run->batch; i++)
        s->row[i] = batch_add(s->session, i, &s->token[i], 1);
    if (*s->run->interrupted)
        return err_code(err, ERR_INTERRUPTED, "interrupted");
    if (session_run(s->session, s->run->threads, err) < 0 ||
        session_logits(s->session, s->row, s->run->batch, s->logits, err) < 0)
        return -1;
    const double computed = clock_ms();
    choose_tokens(s);
    const double end = clock_ms();
    result->sample_ms += end - computed;
    result->step_ms[n] = end - start;
    result->growth_ms += growth_ms(s) - growth;
    result->decode_ms += end - start;
    return 0;
}

/* KV entries of the longest sequence after n_new more tokens. */
static size_t final_rows(const struct run *run, size_t depth, size_t n_new)
{
    for (size_t i = 0; run->snapshot && i < run->snapshot->file.n_seqs; i++)
        depth = size_max(depth, run_snapshot_rows(run->snapshot, i));
    return depth + n_new;
}

/* Fails if there is too little memory for the batch, whose sequences will have `rows` KV entries each. */
static int check_memory(const struct run *run, const struct model *model,
                        const struct session_options *options, size_t rows, struct err *err)
{
    /* the logits, and a row of activations at least */
    const size_t row = (model->config.vocab + model->config.hidden) * sizeof(float);
    const size_t buffers = size_times(run->batch, row);
    struct session_options one = *options;
    struct session *session;
    one.batch = 1;
    if (memory_check(buffers, run->batch, err) < 0 || session_open(&session, model, &one, err) < 0)
        return -1;
    const int rc = memory_check_cache(session_kv(session), run->batch, rows, buffers, err);
    session_close(session);
    return rc;
}

static int open_stepper(struct stepper *s, const struct model *model, const struct kv_spec *spec,
                        size_t rows, struct err *err)
{
    const struct run *run = s->run;
    /* rolling caches continue beyond the model's context */
    struct session_options options =
        run_session_options(run, size_min(run->N, model->config.context), run->batch);
    options.kv = *spec;
    if (run->batch > 1 && check_memory(run, model, &options, rows, err) < 0)
        return -1;
    s->logits = mem_alloc(run->batch, model->config.vocab * sizeof *s->logits);
    s->row = mem_alloc(run->batch, sizeof *s->row);
    s->token = mem_zalloc(run->batch, sizeof *s->token);
    s->prompt = mem_alloc(options.chunk, sizeof *s->prompt);
    if (!s->logits || !s->row || !s->token || !s->prompt)
        return err_no_memory(err, "a batch of %zu", run->batch);
    return session_open(&s->session, model, &options, err);
}

int run_steps(const struct run *run, const struct model *model, const struct kv_spec *spec,
              size_t depth, size_t n_prompt, size_t n_gen, struct steps_result *result, struct err *err)
{
    struct stepper s = {.run = run};
    int rc = -1;
    *result = (struct steps_result){0};
    threads_set(run->threads);
    result->step_ms = mem_zalloc(n_gen + 1, sizeof(double));
    if (!result->step_ms) {
        err_no_memory(err, "%zu times", n_gen);
        goto out;
    }
    if (open_stepper(&s, model, spec, final_rows(run, depth, n_prompt + n_gen), err) < 0 ||
        (run->snapshot ? begin_with_snapshot(&s, err) : fill_depth(&s, depth, err)) < 0)
        goto out;
    const double grown = growth_ms(&s), start = clock_ms();
    session_pass(s.session)->work = &result->prefill;
    if (!n_prompt && !run->snapshot)
        draw_tokens(&s);
    if (feed_random(&s, n_prompt, err) < 0)
        goto out;
    result->prefill_ms = clock_ms() - start;
    result->prefill_growth_ms = growth_ms(&s) - grown;
    if (n_prompt)
        choose_tokens(&s);
    session_pass(s.session)->work = &result->decode;
    const uint64_t runs = session_pass(s.session)->experts.runs;
    for (size_t n = 0; n < n_gen; n++)
        if (decode_step(&s, n, result, err) < 0)
            goto out;
    result->expert_runs =
        (double)(session_pass(s.session)->experts.runs - runs) / (double)size_max(n_gen, 1);
    result->T = kv_setup(session_kv(s.session))->T;
    result->r = kv_setup(session_kv(s.session))->r;
    result->T_from = kv_setup(session_kv(s.session))->T_from;
    rc = 0;
out:
    session_close(s.session);
    free(s.logits);
    free(s.row);
    free(s.token);
    free(s.prompt);
    if (rc < 0)
        free(result->step_ms);
    return rc;
}
