/* Speculative steps. */
#include "decode/spec.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"

enum { RECORD_RANKS = 16 };

/* What a step knows of one slot. */
struct spec_seq {
    struct draft draft;
    struct tree_shape shape;
    struct draws draws;
    uint32_t *tail;
    size_t *tail_at, *depth;
    size_t logits;   /* index of its first row in spec->logits */
    double begun_ms; /* when its first step began */
    size_t decoded;  /* tokens since */
};

struct spec {
    struct step_strategy strategy; /* its arg is this */
    struct drafter *drafter;
    struct spec_options options;
    struct spec_stats stats;
    struct pace pace;
    struct sequoia plan; /* trees */
    size_t levels;
    size_t most; /* candidates of a sequence at most */
    struct verifier verifier;
    struct spec_seq *seq; /* per slot */
    struct draft_ask *ask;
    size_t n_seqs, vocab;
    float *logits; /* [rows][vocab] */
    size_t *row;
};

size_t spec_most(const struct spec_options *options)
{
    if (options->record)
        return RECORD_RANKS;
    return options->tree ? options->tree : options->length.limit;
}

/* ---- what is wanted ---- */

/* Candidates that a slot can have: rows that are free, and tokens that may still come. */
static void choose_shape(const struct spec *spec, const struct loop *loop, const struct slot *slot,
                         size_t allowed, struct tree_shape *shape)
{
    const struct spec_options *o = &spec->options;
    const size_t free_rows =
        size_min(kv_free_rows(loop->session->kv, slot->seq), session_left(loop->session, slot->seq)) -
        1;
    const size_t levels = size_min(slot->request->n - loop_generated(slot), loop_left(loop, slot));
    const size_t most = levels > 1 ? size_min(size_min(free_rows, spec->most), allowed) : 0;
    if (o->record)
        tree_fan(shape, size_min(most, size_min(RECORD_RANKS, spec->drafter->ranks)));
    else if (o->tree)
        sequoia_shape(&spec->plan, most + 1, size_min(levels, spec->levels), shape);
    else
        tree_chain(shape, size_min(size_min(most, o->length.now), levels - 1));
}

/* The newest token and the candidates of every slot. */
static int propose(struct spec *spec, struct loop *loop, size_t allowed, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        struct spec_seq *seq = &spec->seq[i];
        if (!slot->busy)
            continue;
        if (loop_generated(slot) == 1) {
            seq->begun_ms = clock_ms();
            seq->decoded = 0;
        }
        seq->draws =
            (struct draws){slot->request->seed, slot->request->stream, (uint32_t)slot->ids->len, 0};
        choose_shape(spec, loop, slot, allowed, &seq->shape);
        draft_begin(&seq->draft, slot->ids->id[slot->ids->len - 1]);
        if (seq->shape.n > 1)
            spec->ask[n++] = (struct draft_ask){.slot = i,
                                                .ids = slot->ids->id,
                                                .n_ids = slot->ids->len,
                                                .shape = &seq->shape,
                                                .draws = &seq->draws,
                                                .draft = &seq->draft,
                                                .sampling = loop_sampling(loop, slot)};
    }
    return n ? spec->drafter->propose(spec->drafter, spec->ask, n, err) : 0;
}

/* ---- one pass of the target ---- */

static size_t add_tree(struct session *session, const struct slot *slot, struct spec_seq *seq)
{
    const struct draft *draft = &seq->draft;
    bool chain = true;
    for (size_t node = 0; node < draft->n; node++) {
        chain = chain && draft->depth[node] == node;
        seq->depth[node] = draft->depth[node];
    }
    if (chain)
        return session_add(session, slot->seq, draft->token, draft->n);
    tree_tails(draft->parent, draft->depth, draft->n, seq->tail, seq->tail_at);
    return session_add_tree(session, slot->seq, draft->token, seq->depth, draft->n, seq->tail,
                            seq->tail_at);
}

static int compute(struct spec *spec, struct loop *loop, struct err *err)
{
    struct forward_times times = {0};
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++) {
        if (!loop->slot[i].busy)
            continue;
        const size_t first = add_tree(loop->session, &loop->slot[i], &spec->seq[i]);
        spec->seq[i].logits = n;
        for (size_t node = 0; node < spec->seq[i].draft.n; node++)
            spec->row[n++] = first + node;
    }
    loop->session->forward.times = &times;
    const int rc = session_compute(loop->session, loop->session->options.threads, err);
    loop->session->forward.times = NULL;
    if (rc < 0)
        return -1;
    spec->stats.attention_ms += times.ms[PART_ATTENTION];
    if (session_logits(loop->session, spec->row, n, spec->logits, err) < 0)
        return -1;
    for (size_t i = 0; i < loop->n_slots && spec->drafter->observe; i++)
        if (loop->slot[i].busy)
            spec->drafter->observe(spec->drafter, &spec->seq[i].draft,
                                   spec->logits + spec->seq[i].logits * spec->vocab);
    return 0;
}

/* ---- verification ---- */

/* The token after a node, and the child that it is; 0: none of them. */
static size_t choose(struct spec *spec, struct loop *loop, const struct slot *slot,
                     struct spec_seq *seq, size_t node, const float *logits, uint32_t *id)
{
    const struct draft *draft = &seq->draft;
    const struct sampler *sampler = &loop->sampler;
    const uint32_t *child = draft->token + draft->first[node];
    const size_t n = draft->children[node];
    if (n && spec->options.simulate >= 0 && draws_next(&seq->draws) < spec->options.simulate) {
        *id = child[0];
        return draft->first[node];
    }
    *id = loop_choose(loop, slot, logits);
    if (n == 0 || spec->options.simulate >= 0)
        return 0;
    size_t c = 0;
    if (sampler->options.temp <= 0)
        while (c < n && child[c] != *id)
            c++;
    else
        c = spec->options.rule(&spec->verifier, sampler->candidate, sampler->n, child, n,
                               draft->pool + draft->q_at[node], draft->q_n[node], &seq->draws, id);
    if (spec->options.record && node == 0) {
        spec->stats.record_steps++;
        spec->stats.record[c] += c < n;
    }
    return c < n ? draft->first[node] + c : 0;
}

/* A sequence has ended: its latency counts. */
static void count_end(struct spec_stats *stats, const struct spec_seq *seq)
{
    if (seq->decoded == 0)
        return;
    const double ptl = (clock_ms() - seq->begun_ms) / (double)seq->decoded;
    stats->first_ptl_ms = stats->ended == 0 || ptl < stats->first_ptl_ms ? ptl : stats->first_ptl_ms;
    stats->last_ptl_ms = ptl > stats->last_ptl_ms ? ptl : stats->last_ptl_ms;
    stats->sum_ptl_ms += ptl;
    stats->ended++;
}

/* Takes tokens along the accepted path. path[0..*n_path): its nodes, the root included. */
static int verify_slot(struct spec *spec, struct loop *loop, struct slot *slot, struct spec_seq *seq,
                       size_t *path, size_t *n_path, struct err *err)
{
    struct spec_stats *stats = &spec->stats;
    const struct draft *draft = &seq->draft;
    size_t node = 0, depth = 0;
    *n_path = 0;
    do {
        const float *logits = spec->logits + (seq->logits + node) * spec->vocab;
        uint32_t id;
        path[(*n_path)++] = node;
        if (!logits_finite(logits, spec->vocab))
            return loop_finish(loop, slot, FINISHED_ERROR, NO_FINITE_LOGITS, err);
        node = choose(spec, loop, slot, seq, node, logits, &id);
        if (node)
            stats->accepted_at[++depth]++;
        seq->decoded++;
        stats->tokens++;
        loop->stats->decode_tokens++;
        if (loop_take(loop, slot, id, logits, err) < 0)
            return -1;
    } while (slot->busy && node);
    stats->steps++;
    stats->accepted += depth;
    stats->drafted += draft->n - 1;
    for (size_t d = 1; d <= draft->depth[draft->n - 1]; d++)
        stats->offered_at[d]++;
    if (!slot->busy)
        count_end(stats, seq);
    return 0;
}

/* All slots: tokens out, accepted rows kept. */
static int verify(struct spec *spec, struct loop *loop, size_t *offered, size_t *accepted,
                  struct err *err)
{
    size_t path[TREE_NODES], n_path;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        struct spec_seq *seq = &spec->seq[i];
        if (!slot->busy)
            continue;
        if (verify_slot(spec, loop, slot, seq, path, &n_path, err) < 0)
            return -1;
        *offered = size_max(*offered, seq->draft.depth[seq->draft.n - 1]);
        *accepted = size_max(*accepted, n_path - 1);
        if (!slot->busy)
            continue; /* its storage is gone already */
        const double start = clock_ms();
        session_keep(loop->session, slot->seq, path, n_path);
        spec->stats.compact_ms += clock_ms() - start;
    }
    return 0;
}

/* ---- the step ---- */

static size_t n_busy(const struct loop *loop)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        n += loop->slot[i].busy;
    return n;
}

static int remember(struct spec_stats *stats, size_t most, struct err *err)
{
    if (!stats->history)
        stats->history = mem_alloc(SPEC_HISTORY, sizeof *stats->history);
    if (!stats->history)
        return err_set(err, "out of memory for draft lengths");
    if (stats->n_history < SPEC_HISTORY)
        stats->history[stats->n_history++] = (uint16_t)most;
    return 0;
}

static int step(void *arg, struct loop *loop, struct err *err)
{
    struct spec *spec = arg;
    struct spec_stats *stats = &spec->stats;
    const size_t busy = n_busy(loop), tokens = stats->tokens;
    const double prefill = spec->drafter->prefill_ms, compact = stats->compact_ms;
    const size_t allowed = pace_candidates(&spec->pace, busy);
    size_t offered = 0, accepted = 0, most = 0;
    const double start = clock_ms();
    if (propose(spec, loop, allowed, err) < 0)
        return -1;
    const double drafted = clock_ms();
    if (compute(spec, loop, err) < 0)
        return -1;
    const double computed = clock_ms();
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy)
            most = size_max(most, spec->seq[i].draft.n - 1);
    if (verify(spec, loop, &offered, &accepted, err) < 0 || remember(stats, most, err) < 0)
        return -1;
    const double verified = clock_ms(), compacted = stats->compact_ms - compact;
    stats->draft_ms += drafted - start;
    stats->verify_ms += computed - drafted;
    loop->stats->decode_steps++;
    loop->stats->decode_ms += computed - start + compacted;
    loop->stats->sample_ms += verified - computed - compacted;
    if (!spec->options.tree && !spec->options.record && !pace_ramps(&spec->pace))
        draft_length_update(&spec->options.length, offered, accepted);
    pace_update(&spec->pace, most > 0, (double)(stats->tokens - tokens) / (double)busy,
                verified - start - (spec->drafter->prefill_ms - prefill));
    stats->pauses = spec->pace.pauses;
    return 0;
}

/* ---- opening ---- */

static int alloc_buffers(struct spec *spec, struct err *err)
{
    size_t rows = spec->n_seqs * (spec->most + 1), logits;
    spec->seq = mem_zalloc(spec->n_seqs, sizeof *spec->seq);
    spec->ask = mem_alloc(spec->n_seqs, sizeof *spec->ask);
    spec->row = mem_alloc(rows, sizeof *spec->row);
    if (size_mul(rows, spec->vocab, &logits))
        spec->logits = mem_alloc(logits, sizeof *spec->logits);
    bool ok = spec->seq && spec->ask && spec->row && spec->logits;
    for (size_t i = 0; ok && i < spec->n_seqs; i++) {
        struct spec_seq *seq = &spec->seq[i];
        seq->tail = mem_alloc((spec->most + 1) * (spec->most + 2) / 2, sizeof *seq->tail);
        seq->tail_at = mem_alloc(spec->most + 2, sizeof *seq->tail_at);
        seq->depth = mem_alloc(spec->most + 1, sizeof *seq->depth);
        ok = seq->tail && seq->tail_at && seq->depth;
    }
    return ok ? 0
              : err_set(err, "out of memory for %zu candidates of %zu sequences", spec->most,
                        spec->n_seqs);
}

static int open_trees(struct spec *spec, struct err *err)
{
    enum { LEVELS = 33 };
    const struct spec_options *o = &spec->options;
    if (!o->tree)
        return 0;
    if (sequoia_open(&spec->plan, o->accept, size_min(o->ranks, spec->drafter->ranks), o->tree + 1,
                     size_min(o->tree + 1, LEVELS), err) < 0)
        return -1;
    spec->levels = o->tree_levels ? size_min(o->tree_levels, spec->plan.levels)
                                  : sequoia_levels(&spec->plan, o->tree + 1, spec->drafter->cost);
    return 0;
}

int spec_open(struct spec **out, const struct session *session, struct drafter *drafter,
              const struct spec_options *options, struct err *err)
{
    struct spec *spec = mem_zalloc(1, sizeof *spec);
    *out = NULL;
    if (!spec)
        return err_set(err, "out of memory for speculation");
    *spec = (struct spec){
        .strategy =
            {.name = "speculative", .width = 1, .step = step, .beside = drafter->session, .arg = spec},
        .drafter = drafter,
        .options = *options,
        .most = spec_most(options),
        .n_seqs = session->options.batch,
        .vocab = session->model->config.vocab,
    };
    if (!options->rule)
        spec->options.rule = verify_choice;
    pace_begin(&spec->pace, options->always || options->record || options->simulate >= 0);
    if (open_trees(spec, err) < 0 || alloc_buffers(spec, err) < 0 ||
        verifier_open(&spec->verifier, spec->vocab, err) < 0) {
        spec_close(spec);
        return -1;
    }
    *out = spec;
    return 0;
}

void spec_close(struct spec *spec)
{
    if (!spec)
        return;
    for (size_t i = 0; spec->seq && i < spec->n_seqs; i++) {
        free(spec->seq[i].tail);
        free(spec->seq[i].tail_at);
        free(spec->seq[i].depth);
        free(spec->seq[i].draft.pool);
    }
    free(spec->seq);
    free(spec->ask);
    free(spec->row);
    free(spec->logits);
    free(spec->stats.history);
    sequoia_close(&spec->plan);
    verifier_close(&spec->verifier);
    free(spec);
}

const struct step_strategy *spec_strategy(const struct spec *spec)
{
    return spec ? &spec->strategy : NULL;
}

const struct spec_stats *spec_stats(const struct spec *spec)
{
    static const struct spec_stats none;
    return spec ? &spec->stats : &none;
}
