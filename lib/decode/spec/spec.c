/* Speculative decoding: drafting, verification, acceptance, and commit of KV entries. */
#include "decode/spec/spec.h"

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"
#include "decode/spec/length_plan.h"

enum { RECORD_RANKS = 16 };

struct spec_seq {
    struct draft draft;
    struct tree_shape shape;
    struct draws draws;
    uint32_t *ancestors;
    size_t *ancestors_at, *depth;
    float probability[TREE_NODES];   /* of draft tokens, for the plan */
    size_t path[TREE_NODES], n_path; /* accepted nodes of the draft, root first */
    size_t logits;                   /* index of the root's logits in spec->logits */
    size_t row;                      /* and of its row in the target's pass */
    bool pending;                    /* the pass's KV entries are to be committed */
    double begun_ms;                 /* start of the sequence's first step */
    size_t decoded;                  /* tokens generated since begun_ms */
};

struct spec {
    struct step_strategy strategy; /* strategy.arg points to this struct */
    struct drafter *drafter;
    struct spec_options options;
    struct spec_stats stats;
    struct throttle throttle;
    struct draft_gain gain;
    struct length_plan plan;       /* with options.length.planned; `planned` are its drafts */
    struct planned_draft *planned; /* [slots] */
    struct sequoia trees;          /* shapes of trees */
    struct tree_rates rates;
    size_t levels;
    size_t max_draft; /* maximum draft tokens per sequence */
    struct verifier verifier;
    struct spec_seq *seq; /* [slots]: draft and acceptance of each slot */
    struct draft_request *request;
    size_t n_seqs, vocab;
    float *logits; /* [draft nodes of all slots][vocab], from the target */
    size_t *row;
    size_t *chunk_row; /* [a pass of the target], for drafters that learn from prompts */
};

/* After a rejected token, layers with recurrent state apply the inputs of accepted ones again, and larger passes record
 * these inputs: that it pays without a draft model is not known. Of an offloaded cache larger passes need more memory,
 * which ram= limits. Where a library's sums depend on the number of rows, a text would depend on which drafts were
 * made, and so on time. */
const char *spec_off_by_default(const struct model *model, const struct session_options *options)
{
    const struct recurrent_plan *recurrent = model->config.recurrent;
    return recurrent && recurrent->conv_kernel  ? "recurrent state"
           : options->kv.offload.ram            ? "KV offload"
           : options->cpu.kernels->foreign_sums ? "--isa blas"
                                                : options->cpu.attn->foreign_sums;
}

struct spec_options spec_default_options(size_t context)
{
    const struct draft_length_params params = {
        .planned = true, .start = DRAFT_LENGTH_START, .limit = DRAFT_LENGTH_LIMIT, .context = context};
    return (struct spec_options){.length = draft_length_choose(&params), .simulate = -1};
}

size_t spec_max_draft(const struct spec_options *options)
{
    if (options->record)
        return RECORD_RANKS;
    return options->tree ? options->tree : options->length.limit;
}

size_t spec_max_rows(const struct spec_options *options, size_t batch)
{
    const size_t most = spec_max_draft(options);
    size_t rows;
    if (options->length.planned)
        return batch + size_max(batch, most);
    return size_mul(batch, most + 1, &rows) ? rows : SIZE_MAX;
}

/* KV entries that a draft of a sequence with `left` tokens to go may use, the root's included: those of
 * the padding, and those that the cache must grow by in any case, as the sequence needs them later. */
static size_t draft_entries(const struct session *session, size_t seq, size_t left)
{
    const size_t padding = kv_rows_before_growth(session_kv(session), seq);
    const bool rolling = kv_left(session_kv(session), seq) == SIZE_MAX;
    const size_t max = size_min(session_remaining(session, seq), session_unscaled(session, seq));
    return size_min(rolling ? padding : size_max(padding, left), max);
}

/* Chooses the slot's draft shape: at most `allowed` draft tokens, no more than there are KV entries
 * for, and no more levels than tokens that may still be generated. */
static void choose_shape(const struct spec *spec, const struct loop *loop, const struct slot *slot,
                         size_t allowed, struct tree_shape *shape)
{
    const struct spec_options *o = &spec->options;
    const size_t levels = size_min(slot->request->n - loop_generated(slot), loop_remaining(loop, slot));
    const size_t entries =
        size_min(draft_entries(loop->session, slot->seq, levels), pressure_left(loop, slot));
    const size_t max = levels > 1 ? size_min(size_min(entries - 1, spec->max_draft), allowed) : 0;
    if (o->record)
        tree_star(shape, size_min(max, size_min(RECORD_RANKS, spec->drafter->ranks)));
    else if (o->tree)
        sequoia_shape(&spec->trees, max + 1, size_min(levels, spec->levels), shape);
    else
        tree_chain(shape, size_min(size_min(max, o->length.planned ? max : o->length.now), levels - 1));
}

/* Cuts the n drafts to the tokens that are to be verified. */
static void plan_drafts(struct spec *spec, size_t n, size_t busy)
{
    for (size_t i = 0; i < n; i++)
        spec->planned[i] = (struct planned_draft){.probability = spec->request[i].probability + 1,
                                                  .n = spec->request[i].draft->n - 1};
    length_plan_choose(&spec->plan, spec->planned, n, busy);
    for (size_t i = 0; i < n; i++)
        draft_cut(spec->request[i].draft, spec->planned[i].verified);
}

/* Fills the draft of every busy slot: the newest token and up to `allowed` draft tokens. */
static int draft_all(struct spec *spec, struct loop *loop, size_t allowed, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        struct spec_seq *seq = &spec->seq[i];
        const struct gen_request *request = slot->request;
        if (!slot->busy)
            continue;
        if (loop_generated(slot) == 1) {
            seq->begun_ms = clock_ms();
            seq->decoded = 0;
        }
        seq->draws = (struct draws){request->seed, request->stream, (uint32_t)slot->ids->len, 0};
        choose_shape(spec, loop, slot, allowed, &seq->shape);
        seq->draft.constraint = loop_constraint(slot);
        seq->draft.ends = &slot->ends;
        seq->draft.state[0] = slot->constrained.state;
        draft_begin(&seq->draft, slot->ids->id[slot->ids->len - 1]);
        if (spec->drafter->learn)
            spec->drafter->learn(spec->drafter, i, slot->ids->id, slot->ids->len);
        if (seq->shape.n > 1)
            spec->request[n++] = (struct draft_request){
                .slot = i,
                .ids = slot->ids->id,
                .n_ids = slot->ids->len,
                .shape = &seq->shape,
                .draft = &seq->draft,
                .dynamic = spec->options.dynamic,
                .sampling = loop_sampling(loop, slot),
                .seed = request->seed,
                .stream = request->stream,
                .mirostat_mu = slot->mirostat_mu,
                .keep_q = spec->options.rule != NULL,
                .probability = spec->options.length.planned ? seq->probability : NULL};
    }
    const int rc = n ? spec->drafter->propose(spec->drafter, spec->request, n, err) : 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        draft_prune(spec->request[i].draft);
    if (spec->options.length.planned && rc == 0)
        plan_drafts(spec, n, loop_in_flight(loop));
    return rc;
}

/* Adds a draft to the batch of the next target pass; returns the index of its root in the batch. */
static size_t add_draft(struct session *session, const struct slot *slot, struct spec_seq *seq)
{
    const struct draft *draft = &seq->draft;
    bool chain = true;
    for (size_t node = 0; node < draft->n; node++) {
        chain = chain && draft->depth[node] == node;
        seq->depth[node] = draft->depth[node];
    }
    if (chain)
        return batch_add(session, slot->seq, draft->token, draft->n);
    tree_ancestors(draft->parent, draft->depth, draft->n, seq->ancestors, seq->ancestors_at);
    return batch_add_tree(session, slot->seq, draft->token, seq->depth, draft->n, seq->ancestors,
                          seq->ancestors_at);
}

/* Runs the target model over all drafts; sets spec->logits to its logits after each draft node. */
static int verify_all(struct spec *spec, struct loop *loop, struct err *err)
{
    const double *attention_ms = &loop->stats->decode.times.ms[PHASE_ATTENTION], before = *attention_ms;
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++) {
        if (!loop->slot[i].busy)
            continue;
        const size_t first = add_draft(loop->session, &loop->slot[i], &spec->seq[i]);
        spec->seq[i].row = first;
        spec->seq[i].pending = true;
        spec->seq[i].n_path = 0;
        spec->seq[i].logits = n;
        for (size_t node = 0; node < spec->seq[i].draft.n; node++)
            spec->row[n++] = first + node;
    }
    if (session_forward(loop->session, session_options(loop->session)->threads, err) < 0)
        return -1;
    spec->stats.attention_ms += *attention_ms - before;
    if (session_logits(loop->session, spec->row, n, spec->logits, err) < 0)
        return -1;
    for (size_t i = 0; i < loop->n_slots && spec->drafter->observe; i++)
        if (loop->slot[i].busy)
            spec->drafter->observe(spec->drafter, &spec->seq[i].draft,
                                   spec->logits + spec->seq[i].logits * spec->vocab);
    return 0;
}

/* Chooses the token after a draft node, *id, from the target's logits there. Returns the node's
 * child that is thereby accepted, or 0 if the draft is rejected or ends here. */
static size_t accept_child(struct spec *spec, struct loop *loop, struct slot *slot,
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
    *id = loop_sample_token(loop, slot, logits);
    if (n == 0 || spec->options.simulate >= 0)
        return 0;
    size_t c = 0;
    if (sampler->options.temp <= 0 || !spec->options.rule)
        while (c < n && child[c] != *id)
            c++;
    else
        c = spec->options.rule(&spec->verifier, sampler->candidate, sampler->n, child, n,
                               draft->pool + draft->q_at[node], draft->q_n[node], &seq->draws, id);
    if (spec->options.tree)
        tree_rates_add(&spec->rates, n, c);
    if (spec->options.record && node == 0) {
        spec->stats.record_steps++;
        spec->stats.record[c] += c < n;
    }
    return c < n ? draft->first[node] + c : 0;
}

/* Tells the drafter which tokens of the draft are now part of the sequence: those whose KV entries
 * are kept. `first` is the root's position. */
static int report_accepted(struct spec *spec, size_t index, const struct slot *slot, size_t first,
                           struct err *err)
{
    const struct spec_seq *seq = &spec->seq[index];
    size_t row[TREE_NODES];
    if (!spec->drafter->read_hidden)
        return 0;
    for (size_t i = 0; i < seq->n_path; i++)
        row[i] = seq->row + seq->path[i];
    return spec->drafter->read_hidden(spec->drafter, index, slot->ids->id, first, row, seq->n_path,
                                      err);
}

/* The same for a chunk of a prompt. */
static int report_prefilled(void *arg, struct loop *loop, struct slot *slot, struct err *err)
{
    struct spec *spec = arg;
    for (size_t i = 0; i < slot->chunk_len; i++)
        spec->chunk_row[i] = slot->chunk_row + i;
    return spec->drafter->read_hidden(spec->drafter, (size_t)(slot - loop->slot), slot->ids->id,
                                      slot->chunk_from, spec->chunk_row, slot->chunk_len, err);
}

/* Adds the per-token latency of a finished sequence to the statistics. */
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

/* Verifies a slot's draft: appends the tokens chosen after each node of the accepted path, and sets
 * seq->path[0 .. seq->n_path) to these nodes, the root first. */
static int accept_slot(struct spec *spec, struct loop *loop, struct slot *slot, struct spec_seq *seq,
                       struct err *err)
{
    struct spec_stats *stats = &spec->stats;
    const struct draft *draft = &seq->draft;
    size_t node = 0, depth = 0;
    struct err why;
    seq->n_path = 0;
    do {
        const float *logits = spec->logits + (seq->logits + node) * spec->vocab;
        uint32_t id;
        seq->path[seq->n_path++] = node;
        if (!logits_finite(logits, spec->vocab))
            return loop_finish_damaged(loop, slot, err);
        if (loop_constrain(loop, slot, &why) < 0)
            return loop_refuse(loop, slot, &why, err);
        node = accept_child(spec, loop, slot, seq, node, logits, &id);
        if (node)
            stats->accepted_at[++depth]++;
        seq->decoded++;
        stats->tokens++;
        loop->stats->decode_tokens++;
        if (loop_append(loop, slot, id, logits, err) < 0)
            return -1;
    } while (slot->busy && node);
    stats->steps++;
    stats->accepted += depth;
    stats->drafted += draft->n - 1;
    for (size_t d = 1; d <= draft->depth[draft->n - 1]; d++)
        stats->offered_at[d]++;
    draft_gain_accepted(&spec->gain, draft->depth[draft->n - 1], depth);
    if (!slot->busy)
        count_end(stats, seq);
    return 0;
}

/* Result of a speculative step over all slots. */
struct outcome {
    size_t busy;     /* number of sequences in the step */
    size_t drafted;  /* draft tokens of the largest draft */
    size_t rows;     /* draft tokens of all drafts */
    size_t offered;  /* depth of the deepest draft */
    size_t accepted; /* draft tokens of the longest accepted path */
};

static int accept_all(struct spec *spec, struct loop *loop, struct outcome *out, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct spec_seq *seq = &spec->seq[i];
        if (!loop->slot[i].busy)
            continue;
        const size_t first = loop->slot[i].ids->len - 1;
        if (accept_slot(spec, loop, &loop->slot[i], seq, err) < 0 ||
            (loop->slot[i].busy && report_accepted(spec, i, &loop->slot[i], first, err) < 0))
            return -1;
        if (spec->drafter->verified)
            spec->drafter->verified(spec->drafter, i, &seq->draft, seq->n_path - 1);
        out->busy++;
        out->drafted = size_max(out->drafted, seq->draft.n - 1);
        out->rows += seq->draft.n - 1;
        out->offered = size_max(out->offered, seq->draft.depth[seq->draft.n - 1]);
        out->accepted = size_max(out->accepted, seq->n_path - 1);
    }
    return 0;
}

/* Commits the KV entries of the slot's accepted path. */
static void commit_path(void *arg, struct loop *loop, struct slot *slot)
{
    struct spec *spec = arg;
    struct spec_seq *seq = &spec->seq[slot - loop->slot];
    if (seq->pending)
        session_accept(loop->session, slot->seq, seq->path, seq->n_path);
    seq->pending = false;
}

/* The same for all slots but those whose requests have ended. */
static void commit_all(struct spec *spec, struct loop *loop)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy)
            commit_path(spec, loop, &loop->slot[i]);
}

static int record_length(struct spec_stats *stats, size_t drafted, struct err *err)
{
    if (!stats->history)
        stats->history = mem_alloc(SPEC_HISTORY, sizeof *stats->history);
    if (!stats->history)
        return err_no_memory(err, "draft lengths");
    if (stats->n_history < SPEC_HISTORY)
        stats->history[stats->n_history++] = (uint16_t)drafted;
    return 0;
}

/* Simulated acceptance measures a given draft length or tree; lengths that adapt may be none. */
static bool draft_always(const struct spec_options *o)
{
    return o->always || o->record || (o->simulate >= 0 && !o->length.measured);
}

/* Plans trees for the acceptance rates learnt so far. */
static int plan_trees(struct spec *spec, struct err *err)
{
    enum { LEVELS = 33 };
    const struct spec_options *o = &spec->options;
    double rates[TREE_RANKS];
    struct sequoia plan;
    tree_rates_get(&spec->rates, rates);
    if (sequoia_open(&plan, rates, spec->rates.ranks, o->tree + 1, size_min(o->tree + 1, LEVELS), err) <
        0)
        return -1;
    sequoia_close(&spec->trees);
    spec->trees = plan;
    spec->levels = o->tree_levels ? size_min(o->tree_levels, plan.levels)
                                  : sequoia_levels(&plan, o->tree + 1, spec->drafter->cost,
                                                   draft_always(o) ? 2 : 1);
    return 0;
}

/* Updates draft length and throttle after a step of `ms` for `n` tokens. */
static void adapt_length(struct spec *spec, const struct outcome *out, size_t n, double ms)
{
    struct draft_length *length = &spec->options.length;
    const double tokens = (double)n / (double)out->busy;
    if (spec->options.length.planned) {
        length_plan_timed(&spec->plan, out->busy, out->rows, n, ms);
        spec->stats.pauses = spec->plan.pauses;
        return;
    }
    draft_gain_timed(&spec->gain, out->busy, out->drafted, ms);
    if (length->measured)
        length->now =
            out->drafted ? draft_gain_length(&spec->gain, length->now, length->limit) : length->now;
    else if (!spec->options.tree && !spec->options.record && !throttle_is_ramping(&spec->throttle))
        draft_length_update(length, out->offered, out->accepted);
    throttle_update(&spec->throttle, out->drafted > 0, tokens, ms,
                    length->measured ? draft_gain_most(&spec->gain, length->limit) : INFINITY);
    spec->stats.pauses = spec->throttle.pauses;
}

/* Returns the milliseconds since *clock, and sets *clock to now. */
static double restart_clock(double *clock)
{
    const double before = *clock;
    *clock = clock_ms();
    return *clock - before;
}

static int speculative_step(void *arg, struct loop *loop, struct err *err)
{
    struct spec *spec = arg;
    struct spec_stats *stats = &spec->stats;
    struct outcome out = {0};
    const size_t tokens = stats->tokens;
    const double prefill_ms = spec->drafter->prefill_ms;
    double clock = clock_ms();
    if (spec->options.tree && tree_rates_due(&spec->rates) && plan_trees(spec, err) < 0)
        return -1;
    const size_t allowed = spec->options.length.planned
                               ? SIZE_MAX
                               : throttle_draft_limit(&spec->throttle, loop_in_flight(loop));
    if (draft_all(spec, loop, allowed, err) < 0)
        return -1;
    const double draft_ms = restart_clock(&clock);
    if (verify_all(spec, loop, err) < 0)
        return -1;
    const double verify_ms = restart_clock(&clock);
    if (accept_all(spec, loop, &out, err) < 0 || record_length(stats, out.drafted, err) < 0)
        return -1;
    const double accept_ms = restart_clock(&clock);
    commit_all(spec, loop);
    const double commit_ms = restart_clock(&clock);
    stats->draft_ms += draft_ms;
    stats->verify_ms += verify_ms;
    stats->compact_ms += commit_ms;
    loop->stats->decode_steps++;
    loop->stats->decode_ms += draft_ms + verify_ms + commit_ms;
    loop->stats->sample_ms += accept_ms;
    adapt_length(spec, &out, stats->tokens - tokens,
                 draft_ms + verify_ms + accept_ms + commit_ms -
                     (spec->drafter->prefill_ms - prefill_ms));
    return 0;
}

static int alloc_buffers(struct spec *spec, size_t max_tokens, struct err *err)
{
    size_t rows = spec_max_rows(&spec->options, spec->n_seqs), logits;
    spec->seq = mem_zalloc(spec->n_seqs, sizeof *spec->seq);
    spec->request = mem_alloc(spec->n_seqs, sizeof *spec->request);
    spec->planned = mem_alloc(spec->n_seqs, sizeof *spec->planned);
    if (spec->options.length.planned && length_plan_open(&spec->plan, rows, err) < 0)
        return -1;
    spec->row = mem_alloc(rows, sizeof *spec->row);
    if (size_mul(rows, spec->vocab, &logits))
        spec->logits = mem_alloc(logits, sizeof *spec->logits);
    if (spec->drafter->read_hidden)
        spec->chunk_row = mem_alloc(max_tokens, sizeof *spec->chunk_row);
    bool ok = spec->seq && spec->request && spec->planned && spec->row && spec->logits &&
              (spec->chunk_row || !spec->drafter->read_hidden);
    for (size_t i = 0; ok && i < spec->n_seqs; i++) {
        struct spec_seq *seq = &spec->seq[i];
        seq->ancestors =
            mem_alloc((spec->max_draft + 1) * (spec->max_draft + 2) / 2, sizeof *seq->ancestors);
        seq->ancestors_at = mem_alloc(spec->max_draft + 2, sizeof *seq->ancestors_at);
        seq->depth = mem_alloc(spec->max_draft + 1, sizeof *seq->depth);
        ok = seq->ancestors && seq->ancestors_at && seq->depth;
    }
    return ok ? 0
              : err_no_memory(err, "%zu draft tokens of %zu sequences", spec->max_draft, spec->n_seqs);
}

static int open_trees(struct spec *spec, struct err *err)
{
    const struct spec_options *o = &spec->options;
    if (!o->tree)
        return 0;
    tree_rates_begin(&spec->rates, o->accept, size_min(o->ranks, spec->drafter->ranks), o->recorded);
    return plan_trees(spec, err);
}

/* Draft tokens in the first step: all of them unless drafting takes half a plain step or more. */
static size_t first_draft(const struct spec *spec)
{
    return spec->drafter->cost * (double)spec->options.length.now < 0.5 ? SIZE_MAX : THROTTLE_FIRST;
}

int spec_open(struct spec **out, const struct session *session, struct drafter *drafter,
              const struct spec_options *options, struct err *err)
{
    struct spec *spec = mem_zalloc(1, sizeof *spec);
    *out = NULL;
    if (!spec)
        return err_no_memory(err, "speculation");
    *spec = (struct spec){
        .strategy = {.name = "speculative",
                     .revises = options->rule || options->simulate >= 0,
                     .width = 1,
                     .step = speculative_step,
                     .commit = commit_path,
                     .prefilled = drafter->read_hidden ? report_prefilled : NULL,
                     .computed = drafter->read_hidden ? DRAFT_HEAD_PROMPT : 0,
                     .draft_session = drafter->session,
                     .arg = spec},
        .drafter = drafter,
        .options = *options,
        .max_draft = spec_max_draft(options),
        .n_seqs = session_options(session)->batch,
        .vocab = session_vocab(session),
    };
    throttle_begin(&spec->throttle, draft_always(options), first_draft(spec));
    if (open_trees(spec, err) < 0 || alloc_buffers(spec, session_max_tokens(session), err) < 0 ||
        (options->rule && verifier_open(&spec->verifier, spec->vocab, err) < 0)) {
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
        free(spec->seq[i].ancestors);
        free(spec->seq[i].ancestors_at);
        free(spec->seq[i].depth);
        free(spec->seq[i].draft.pool);
    }
    free(spec->seq);
    free(spec->request);
    free(spec->planned);
    length_plan_close(&spec->plan);
    free(spec->row);
    free(spec->chunk_row);
    free(spec->logits);
    free(spec->stats.history);
    sequoia_close(&spec->trees);
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
