/* A forward pass of every kind, on a backend: prefill, decoding of two sequences, a token tree of which a part is accepted,
 * a fork, and a sequence from a snapshot. What comes out is traced: ids, the bits of all logits, and the inputs that an
 * observer gets. */
#ifndef BMC_TEST_TRACE_H
#define BMC_TEST_TRACE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode/sample/sampler.h"
#include "decode/snapshot.h"
#include "tests/unit/check.h"

enum { PROMPT = 19, STEPS = 4, TREE = 3, MOST_IDS = 64 };

struct trace {
    uint32_t id[MOST_IDS];
    size_t n;
    struct hasher logits, inputs;
    struct hash logits_hash, inputs_hash;
};

struct wall_run {
    struct session *session;
    struct trace *trace;
    float *logits;
    uint32_t token[2]; /* next of each sequence */
};

_Noreturn static void fail_with(const struct err *err)
{
    printf("not ok - %s\n", err->text);
    exit(1);
}

/* Adds logits of a row of the last pass, and returns the most likely id. */
static uint32_t choose(struct wall_run *r, size_t row)
{
    struct err err;
    struct candidate best;
    const size_t vocab = session_vocab(r->session);
    if (session_logits(r->session, &row, 1, r->logits, &err) < 0)
        fail_with(&err);
    hasher_add(&r->trace->logits, r->logits, vocab * sizeof *r->logits);
    top_logits(r->logits, vocab, 1, &best);
    r->trace->id[r->trace->n++] = best.id;
    return best.id;
}

static void run_pass(struct wall_run *r)
{
    struct err err;
    if (session_run(r->session, 2, &err) < 0)
        fail_with(&err);
}

static void prefill(struct wall_run *r)
{
    uint32_t prompt[PROMPT];
    const size_t chunk = session_options(r->session)->chunk;
    for (size_t i = 0; i < PROMPT; i++)
        prompt[i] = (uint32_t)((3 + 2 * i) % session_vocab(r->session));
    for (size_t at = 0, n; at < PROMPT; at += n) {
        n = PROMPT - at < chunk ? PROMPT - at : chunk;
        const size_t row = batch_add(r->session, 0, prompt + at, n) + n - 1;
        run_pass(r);
        if (at + n == PROMPT)
            r->token[0] = choose(r, row);
    }
}

/* Decodes a token of the first n sequences. */
static void decode(struct wall_run *r, size_t n)
{
    size_t row[2];
    for (size_t i = 0; i < n; i++)
        row[i] = batch_add(r->session, i, &r->token[i], 1);
    run_pass(r);
    for (size_t i = 0; i < n; i++)
        r->token[i] = choose(r, row[i]);
}

/* A root with two children, of which the second is accepted. */
static void accept_part(struct wall_run *r)
{
    static const size_t depth[TREE] = {0, 1, 1}, ancestors_at[TREE + 1] = {0, 1, 3, 5}, kept[] = {0, 2};
    static const uint32_t ancestors[] = {0, 0, 1, 0, 2};
    struct err err;
    const uint32_t token[TREE] = {r->token[0], 5, 7};
    if (batch_space(r->session) < TREE) /* a rolling cache with a short window */
        return;
    const size_t row = batch_add_tree(r->session, 0, token, depth, TREE, ancestors, ancestors_at);
    if (session_forward(r->session, 2, &err) < 0)
        fail_with(&err);
    r->token[0] = choose(r, row + 2);
    session_accept(r->session, 0, kept, 2);
}

/* Saves the first sequence and continues it as the second. */
static void reload(struct wall_run *r, const struct model *model)
{
    struct err err;
    struct kvwriter *writer;
    struct snapshot *snapshot;
    struct sampler_options sampling = sampling_defaults();
    char path[64];
    uint32_t id[MOST_IDS] = {0};
    const size_t n = session_length(r->session, 0);
    const struct saved_seq saved = {.token = id, .n_tokens = n, .n_prompt = n, .sampling = &sampling};
    if (!snapshot_fits(r->session, NULL))
        return;
    snprintf(path, sizeof path, "/tmp/wall-%ld.kv", (long)getpid());
    session_clear(r->session, 1);
    if (snapshot_create(&writer, path, r->session, &err) < 0 ||
        snapshot_add(writer, r->session, 0, &saved, &err) < 0 || kvwriter_commit(writer, &err) < 0 ||
        snapshot_open(&snapshot, path, model, &err) < 0)
        fail_with(&err);
    const size_t rows = snapshot_tokens_of_rows(r->session, snapshot, 0, n);
    if (rows == n && snapshot_load(r->session, 1, snapshot, 0, rows, &err) < 0)
        fail_with(&err);
    unlink(path);
    r->token[1] = r->token[0];
    if (rows == n)
        decode(r, 2);
    session_clear(r->session, 1);
    snapshot_close(snapshot);
}

static void add_inputs(void *arg, const void *weight, size_t expert, const float *x, size_t x_stride,
                       size_t rows)
{
    struct hasher *to = arg;
    hasher_add(to, &weight, sizeof weight);
    hasher_add(to, &expert, sizeof expert);
    for (size_t i = 0; i < rows; i++)
        hasher_add(to, x + i * x_stride, sizeof *x); /* of many columns the first */
}

static struct session_options options_for(const struct backend *backend, const char *policy,
                                          size_t chunk)
{
    struct err err;
    struct session_options options = {.backend = backend,
                                      .cpu.kernels = kernels_select("ref", &err),
                                      .cpu.attn = attn_find(NULL, &err),
                                      .cpu.precision = PRECISION_F32,
                                      .context = 64,
                                      .batch = 2,
                                      .chunk = chunk,
                                      .rows = 2 * TREE,
                                      .threads = 2,
                                      .threads_prefill = 2};
    if (!options.cpu.kernels || !options.cpu.attn || kv_spec_parse(&options.kv, policy, &err) < 0)
        fail_with(&err);
    return options;
}

static void run_model(struct trace *trace, const struct model *model,
                      const struct session_options *options)
{
    struct err err;
    struct wall_run r = {.trace = trace, .logits = calloc(model->config.vocab, sizeof(float))};
    *trace = (struct trace){.n = 0};
    hasher_init(&trace->logits);
    hasher_init(&trace->inputs);
    if (session_open(&r.session, model, options, &err) < 0)
        fail_with(&err);
    forward_observe(session_pass(r.session), add_inputs, &trace->inputs);
    prefill(&r);
    for (size_t i = 0; i < STEPS; i++)
        decode(&r, 1);
    if (kv_is_untrimmed(session_kv(r.session), 0) &&
        session_fork(r.session, 1, 0, session_length(r.session, 0), &err) < 0)
        fail_with(&err);
    r.token[1] = 3;
    decode(&r, session_length(r.session, 1) ? 2 : 1);
    accept_part(&r);
    decode(&r, 1);
    reload(&r, model);
    trace->logits_hash = hasher_result(&trace->logits);
    trace->inputs_hash = hasher_result(&trace->inputs);
    session_close(r.session);
    free(r.logits);
}

static bool same_trace(const struct trace *a, const struct trace *b)
{
    return a->n > STEPS && a->n == b->n && memcmp(a->id, b->id, a->n * sizeof *a->id) == 0 &&
           hash_equal(&a->logits_hash, &b->logits_hash);
}

#endif
