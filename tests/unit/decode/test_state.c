/* Layers with recurrent state, chunked attention, experts, latent and sparse attention, attention sinks and KV heads
 * of two sizes: whatever happens to a sequence, its next logits are those of its tokens, computed in one pass in an empty session.
 *
 *   test_state [STEPS]
 *
 * Random steps: chunks of prompts, accepted and rejected drafts, chains and trees, truncation, forks,
 * reordered beams, marks, snapshots and the prefix cache in files; with random types of weights and cache, kernel sets and numbers of threads.
 * BMC_SEED repeats a run. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn/attn.h"
#include "base/number.h"
#include "base/threads.h"
#include "decode/sample/rng.h"
#include "decode/prefix_store.h"
#include "decode/session.h"
#include "decode/snapshot.h"
#include "tests/unit/check.h"
#include "tests/unit/tiny_model.h"

enum { SEQS = 4, CONTEXT = 96, DRAFTS = 7, VOCAB = 61 };

static uint64_t seed;
static uint32_t draws;

static size_t pick(size_t least, size_t most)
{
    return least + (size_t)(rng_uniform(seed, 0, draws++, 0) * (double)(most - least + 1));
}

/* Drawn for a run, the same in both sessions. */
struct choices {
    enum dtype weights, cache;
    const struct kernels *kernels;
};

struct bench {
    struct model *model;
    struct session *session, *fresh;
    uint32_t id[SEQS][CONTEXT];
    size_t n[SEQS];
    size_t seq[SEQS]; /* the cache sequence of each text */
    const char *kv, *kind;
    struct prefix_store *store; /* NULL: the session's entries are not stored */
    size_t found;               /* tokens that it had */
};

static const char *folder; /* of snapshots and stores */

static struct session *open_session(const struct model *model, const char *kv, size_t batch,
                                    size_t rows, const struct choices *choices)
{
    struct err err;
    struct session *session = NULL;
    struct session_options o = {.cpu.attn = attn_find(NULL, &err),
                                .cpu.kernels = choices->kernels,
                                .kv_types = cache_types_alike(choices->cache),
                                .cpu.precision = dtype_is_quantized(choices->weights) ||
                                                         dtype_is_quantized(choices->cache)
                                                     ? PRECISION_INT8
                                                     : PRECISION_F32,
                                .context = CONTEXT,
                                .batch = batch,
                                .chunk = CONTEXT,
                                .rows = batch * rows,
                                .threads = 2,
                                .threads_prefill = 2,
                                .kept_states = 3,
                                .recent_states = 2,
                                .stored_every = batch > 1 ? 16 : 0};
    if (kv_spec_parse(&o.kv, kv, &err) < 0 || session_open(&session, model, &o, &err) < 0)
        check(false, "%s: %s", kv, err.text);
    return session;
}

static void must(int rc, const struct err *err)
{
    if (rc < 0) {
        printf("not ok - %s\n", err->text);
        exit(1);
    }
}

/* The logits after id[0..n), in one pass. */
static void logits_of(struct session *fresh, const uint32_t *id, size_t n, float *logits)
{
    struct err err;
    session_clear(fresh, 0);
    const size_t row = batch_add(fresh, 0, id, n) + n - 1;
    must(session_run(fresh, 2, &err), &err);
    must(session_logits(fresh, &row, 1, logits, &err), &err);
}

static void compare(struct bench *b, const uint32_t *id, size_t n, const float *found, const char *what)
{
    float want[VOCAB];
    logits_of(b->fresh, id, n, want);
    check(memcmp(want, found, sizeof want) == 0, "%s, %s, %s: logits after %zu tokens differ", b->kind,
          b->kv, what, n);
}

/* Appends tokens to a text in passes of random sizes. */
static void feed(struct bench *b, size_t text)
{
    struct err err;
    float logits[VOCAB];
    const size_t end = b->n[text] + pick(1, 30);
    if (end > CONTEXT - DRAFTS - 1)
        return;
    for (size_t i = b->n[text]; i < end; i++)
        b->id[text][i] = (uint32_t)pick(0, VOCAB - 1);
    size_t row = 0;
    for (size_t n; b->n[text] < end; b->n[text] += n) {
        n = pick(1, end - b->n[text]);
        row = batch_add(b->session, b->seq[text], b->id[text] + b->n[text], n) + n - 1;
        must(session_run(b->session, 2, &err), &err);
    }
    must(session_logits(b->session, &row, 1, logits, &err), &err);
    compare(b, b->id[text], end, logits, "a prompt");
}

struct tree {
    uint32_t token[DRAFTS], ancestors[DRAFTS * DRAFTS];
    size_t n, parent[DRAFTS], depth[DRAFTS], at[DRAFTS + 1];
};

static void draw_tree(struct tree *t, bool chain)
{
    uint32_t *to = t->ancestors;
    t->n = pick(1, DRAFTS);
    for (size_t i = 0; i < t->n; i++) {
        t->token[i] = (uint32_t)pick(0, VOCAB - 1);
        t->parent[i] = i == 0 ? SIZE_MAX : chain ? i - 1 : pick(0, i) - 1; /* SIZE_MAX: another root */
        t->depth[i] = t->parent[i] == SIZE_MAX ? 0 : t->depth[t->parent[i]] + 1;
        t->at[i] = (size_t)(to - t->ancestors);
        for (size_t a = i, d = t->depth[i] + 1; d-- > 0; a = t->parent[a])
            to[d] = (uint32_t)a;
        to += t->depth[i] + 1;
    }
    t->at[t->n] = (size_t)(to - t->ancestors);
}

/* Verifies a draft for two texts in one pass, and accepts a random path of it. */
static void draft(struct bench *b, size_t text, bool chain)
{
    const size_t texts[] = {text, (text + 1) % SEQS};
    struct tree tree[2];
    size_t first[2];
    struct err err;
    float logits[VOCAB];
    for (size_t i = 0; i < 2; i++) {
        draw_tree(&tree[i], chain);
        if (b->n[texts[i]] + DRAFTS >= CONTEXT)
            session_clear(b->session, b->seq[texts[i]]), b->n[texts[i]] = 0;
        first[i] = chain ? batch_add(b->session, b->seq[texts[i]], tree[i].token, tree[i].n)
                         : batch_add_tree(b->session, b->seq[texts[i]], tree[i].token, tree[i].depth,
                                          tree[i].n, tree[i].ancestors, tree[i].at);
    }
    must(session_forward(b->session, 2, &err), &err);
    for (size_t i = 0; i < 2; i++) {
        uint32_t *id = b->id[texts[i]];
        size_t path[DRAFTS];
        const size_t leaf = pick(0, tree[i].n - 1), row = first[i] + leaf, n = b->n[texts[i]];
        const size_t length = tree[i].depth[leaf] + 1, kept = pick(0, length);
        for (size_t d = 0; d < length; d++) {
            path[d] = tree[i].ancestors[tree[i].at[leaf] + d];
            id[n + d] = tree[i].token[path[d]];
        }
        must(session_logits(b->session, &row, 1, logits, &err), &err);
        compare(b, id, n + length, logits, chain ? "a chain" : "a tree");
        session_accept(b->session, b->seq[texts[i]], path, kept);
        b->n[texts[i]] += kept;
    }
}

static void truncate_text(struct bench *b, size_t text)
{
    if (!b->n[text])
        return;
    const size_t end = pick(0, b->n[text]), kept = session_rewind(b->session, b->seq[text], end);
    check(kept <= end, "%s: rewinds to %zu, beyond %zu", b->kind, kept, end);
    session_truncate(b->session, b->seq[text], kept);
    b->n[text] = kept;
}

static void fork_text(struct bench *b, size_t from)
{
    const size_t to = (from + pick(1, SEQS - 1)) % SEQS;
    struct err err;
    session_clear(b->session, b->seq[to]);
    b->n[to] = session_rewind(b->session, b->seq[from], pick(0, b->n[from]));
    must(session_fork(b->session, b->seq[to], b->seq[from], b->n[to], &err), &err);
    memcpy(b->id[to], b->id[from], sizeof b->id[to]);
}

static void reorder(struct bench *b)
{
    size_t parent[SEQS], n[SEQS];
    uint32_t id[SEQS][CONTEXT];
    struct err err;
    for (size_t i = 0; i < SEQS; i++)
        parent[i] = pick(0, SEQS - 1);
    must(session_reorder(b->session, b->seq, parent, SEQS, &err), &err);
    memcpy(id, b->id, sizeof id);
    memcpy(n, b->n, sizeof n);
    for (size_t i = 0; i < SEQS; i++) {
        memcpy(b->id[i], id[parent[i]], sizeof id[i]);
        b->n[i] = n[parent[i]];
    }
}

/* Beams: all texts continue one of them, token by token, and are reordered after each. */
static void beams(struct bench *b, size_t from)
{
    struct err err;
    for (size_t i = 0; i < SEQS; i++)
        if (i != from) {
            session_clear(b->session, b->seq[i]);
            must(session_fork(b->session, b->seq[i], b->seq[from], b->n[from], &err), &err);
            memcpy(b->id[i], b->id[from], sizeof b->id[i]);
            b->n[i] = b->n[from];
        }
    for (size_t round = 0; round < 5 && b->n[0] < CONTEXT - DRAFTS - 1; round++) {
        size_t row[SEQS];
        float logits[SEQS][VOCAB];
        for (size_t i = 0; i < SEQS; i++) {
            b->id[i][b->n[i]] = (uint32_t)pick(0, VOCAB - 1);
            row[i] = batch_add(b->session, b->seq[i], &b->id[i][b->n[i]], 1);
            b->n[i]++;
        }
        must(session_run(b->session, 2, &err), &err);
        must(session_logits(b->session, row, SEQS, logits[0], &err), &err);
        for (size_t i = 0; i < SEQS; i++)
            compare(b, b->id[i], b->n[i], logits[i], "a beam");
        reorder(b);
    }
}

/* A mark is a position that can be returned to. */
static void mark(struct bench *b, size_t text)
{
    const size_t at = b->n[text] + pick(0, 3);
    if (!b->n[text])
        return;
    session_mark(b->session, b->seq[text], at);
    feed(b, text);
    if (b->n[text] >= at)
        check(session_rewind(b->session, b->seq[text], at) == at, "%s, %s: no state at %zu of %zu",
              b->kind, b->kv, at, b->n[text]);
}

/* A model whose keys are scaled does not load the snapshot of one whose keys are not, and the other way round. */
static void refuse_other_scales(struct bench *b, const char *path)
{
    float *const gains = b->model->key_gains, other[1] = {0};
    struct snapshot *snapshot;
    struct err err;
    b->model->key_gains = gains ? NULL : other;
    check(snapshot_open(&snapshot, path, b->model, &err) < 0 && strstr(err.text, "with other scales"),
          "a snapshot with other scales is loaded");
    b->model->key_gains = gains;
}

/* Saves a text in a file, and loads a prefix of it in place of another text. */
static void save_and_load(struct bench *b, size_t text)
{
    const size_t to = pick(0, SEQS - 1), n = b->n[text];
    const struct sampler_options sampling = {.top_p = 1, .repeat_penalty = 1};
    const struct saved_seq saved = {
        .token = b->id[text], .n_tokens = n, .n_prompt = n, .sampling = &sampling};
    char path[256];
    struct kvwriter *writer;
    struct snapshot *snapshot;
    struct err err;
    if (!n)
        return;
    snprintf(path, sizeof path, "%s/text.kv", folder);
    must(snapshot_create(&writer, path, b->session, &err), &err);
    must(snapshot_add(writer, b->session, b->seq[text], &saved, &err), &err);
    must(kvwriter_commit(writer, &err), &err);
    if (!kv_has_state(session_kv(b->session))) /* its versions tell scaled keys from others */
        refuse_other_scales(b, path);
    must(snapshot_open(&snapshot, path, b->model, &err), &err);
    check(kvfile_verify(&snapshot->file, path, NULL, NULL, &err) == 0, "%s", err.text);
    const size_t end = pick(1, n), kept = snapshot_tokens_of_rows(b->session, snapshot, 0, end),
                 back = session_rewind(b->session, b->seq[text], kept - (kept > 0));
    check(kept == session_rewind(b->session, b->seq[text], end),
          "%s, %s: the snapshot of %zu tokens does not have all states that the cache keeps", b->kind,
          b->kv, n);
    session_clear(b->session, b->seq[to]);
    if (kept)
        must(snapshot_load(b->session, b->seq[to], snapshot, 0, kept, &err), &err);
    if (kept && to != text)
        check(session_rewind(b->session, b->seq[to], kept - 1) == back,
              "%s, %s: the state at %zu before %zu is not loaded", b->kind, b->kv, back, kept);
    memmove(b->id[to], b->id[text], sizeof b->id[to]);
    b->n[to] = kept;
    snapshot_close(snapshot);
    unlink(path);
    feed(b, to);
}

/* Stores a text's blocks and states, and loads those of a prefix behind some that the sequence keeps. */
static void store_and_load(struct bench *b, size_t text)
{
    const size_t n = b->n[text];
    size_t dropped;
    struct err err;
    if (!b->store)
        return;
    struct prefix_chain chain = prefix_store_begin(b->store, b->model, NULL), saved = chain;
    prefix_store_save(b->store, b->session, b->seq[text], b->id[text], n, pick(0, 1), &saved);
    const size_t kept = pick(0, 1) ? session_rewind(b->session, b->seq[text], pick(0, n)) : 0;
    session_truncate(b->session, b->seq[text], kept);
    must(prefix_store_load(b->store, b->session, b->seq[text], b->id[text], n, pick(0, n), &chain,
                           &dropped, &err),
         &err);
    b->n[text] = session_length(b->session, b->seq[text]);
    b->found += b->n[text] - kept;
    check(!dropped, "%s, %s: %zu blocks of the prefix cache are damaged", b->kind, b->kv, dropped);
    feed(b, text);
}

/* Opens a store for this run alone, unless its entries cannot be stored. */
static void open_store(struct bench *b, size_t number)
{
    char path[256];
    struct err err;
    snprintf(path, sizeof path, "%s/%zu", folder, number);
    must(prefix_store_open(&b->store, path, 1 << 24, "a test", (struct kvblock_warn){0}, &err), &err);
    if (prefix_store_bind(b->store, b->session, &err) < 0) {
        prefix_store_close(b->store);
        b->store = NULL;
    }
}

struct state_kind {
    enum layer_kind kind;
    unsigned traits;
    const char *name;
};

static const struct kernels *pick_kernels(void)
{
    const struct kernels *usable[32];
    size_t n = 0;
    for (size_t i = 0; kernel_sets[i] && n < ARRAY_LEN(usable); i++)
        if (kernel_sets[i]->usable() && strcmp(kernel_sets[i]->isa, "blas") != 0)
            usable[n++] = kernel_sets[i];
    return usable[pick(0, n - 1)];
}

static size_t run(const struct state_kind *kind, const char *kv, size_t steps, size_t number)
{
    static const enum dtype weights[] = {DTYPE_F32, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0},
                            caches[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_Q8_CHANNEL, DTYPE_Q4_1};
    const struct choices choices = {weights[pick(0, ARRAY_LEN(weights) - 1)],
                                    caches[pick(0, ARRAY_LEN(caches) - 1)], pick_kernels()};
    char name[128];
    snprintf(name, sizeof name, "%s, %s weights, %s cache, %s", kind->name, dtype_name(choices.weights),
             dtype_name(choices.cache), choices.kernels->isa);
    struct bench b = {.model = tiny_model_with(CONTEXT, kind->kind, kind->traits, choices.weights),
                      .kv = kv,
                      .kind = name};
    b.session = open_session(b.model, kv, SEQS, DRAFTS, &choices);
    b.fresh = open_session(b.model, "upfront", 1, 1, &choices);
    for (size_t i = 0; i < SEQS; i++)
        b.seq[i] = i;
    open_store(&b, number);
    for (size_t i = 0; b.session && b.fresh && i < steps; i++) {
        const size_t text = pick(0, SEQS - 1);
        switch (pick(0, 12)) {
        case 0:
        case 1: feed(&b, text); break;
        case 2:
        case 3: draft(&b, text, true); break;
        case 4:
        case 5: draft(&b, text, false); break;
        case 6: truncate_text(&b, text); break;
        case 7: fork_text(&b, text); break;
        case 8: reorder(&b); break;
        case 9: beams(&b, text); break;
        case 10: save_and_load(&b, text); break;
        case 11: store_and_load(&b, text); break;
        default: mark(&b, text);
        }
    }
    prefix_store_close(b.store);
    session_close(b.session);
    session_close(b.fresh);
    model_close(b.model);
    return b.found;
}

int main(int argc, char **argv)
{
    static const struct state_kind kinds[] = {
        {LAYER_CONV, 0, "conv"},
        {LAYER_DELTA, 0, "delta"},
        {LAYER_MAMBA, 0, "mamba"},
        {LAYER_MAMBA_FULL, 0, "mamba+full"},
        {LAYER_CHUNKED, 0, "chunked"},
        {LAYER_SLIDING, 0, "two sizes of heads"},
        {LAYER_SLIDING, TINY_BESIDE, "two sizes of heads, experts beside the MLP"},
        {LAYER_FULL, TINY_EXPERTS, "experts"},
        {LAYER_FULL, TINY_LATENT | TINY_GROUPS, "latent attention, groups of experts"},
        {LAYER_FULL, TINY_LATENT | TINY_INDEX, "sparse attention"},
        {LAYER_FULL, TINY_SINKS | TINY_EXPERTS, "sinks, experts"},
        {LAYER_DELTA, TINY_EXPERTS, "delta, experts"},
        {LAYER_DELTA, TINY_LATENT, "delta by row, latent attention"},
        {LAYER_MAMBA, TINY_GROUPS, "mamba, groups of experts"}};
    static const char *const kv[] = {"bmc", "segment", "paged", "reserve", "iterative", "headwise"};
    static char name[] = "test_state.XXXXXX"; /* in the current folder, which a test removes */
    size_t steps = 40, found = 0;
    if (argc > 2 || (argc == 2 && !parse_size(argv[1], &steps)))
        return fprintf(stderr, "usage: test_state [STEPS]\n"), 2;
    seed = check_seed((uint64_t)getpid());
    kernels_setup();
    threads_set(2);
    if (!(folder = mkdtemp(name)))
        return perror(name), 1;
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
        for (size_t p = 0; p < ARRAY_LEN(kv); p++) {
            if (kinds[k].kind == LAYER_SLIDING && strcmp(kv[p], "headwise") == 0)
                continue; /* which refuses them */
            const size_t n = run(&kinds[k], kv[p], steps, k * ARRAY_LEN(kv) + p);
            found += layer_kind_has_state(kinds[k].kind) ? n : 0;
        }
    check(found > 0 || steps < 40, "no stored state was used");
    return check_result();
}
