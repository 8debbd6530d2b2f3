/* Logits are the same under every cache policy: random ragged batches are compared with each
 * sequence computed alone.
 *
 *   test_exact MODEL.bmc [SEED [ROUNDS]]
 *
 * A round draws sequences of random ids and lengths and computes the logits of every token: first
 * each sequence alone, one token per forward pass, under `iterative`; then under every policy with
 * random T, r or block size, in a batch whose sequences begin, end and pause at random, with random
 * numbers of tokens per forward pass. The first sequence of a batch appends single tokens around n
 * = r - 1, r and r + 1, so that a single token meets every kind of growth.
 *
 * A round uses every kernel set that the machine supports, each with a random cache type and
 * precision (int8 or f32 for quantised models). With fused attention, logits must be equal bit for
 * bit, also those of tokens verified as nodes of a random draft tree. Eager attention and the BLAS
 * set are approximate: with an f32 cache logits agree to 1e-4, and the best id is the same unless
 * the best two logits are within 1e-3; such ties are printed. The sums of a BLAS product depend on
 * its shape, and with a bf16 cache this sometimes changes how a key or value is rounded, by 2^-8 of
 * it. Then logits agree to 0.05, and ties are within 0.1.
 *
 * The seed, SEED or else BMC_SEED, is printed; it reproduces a run. */
#include <stdlib.h>

#include "quant/cache_types.h"
#include "base/number.h"
#include "base/mem.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "decode/sample/rng.h"
#include "decode/sample/sampler.h"
#include "decode/session.h"
#include "kv/kv_policy.h"

enum { MAX_BATCH = 4, MAX_SEQUENCES = 7, MAX_N = 72 };

struct sequence {
    uint32_t id[MAX_N];
    size_t n;
    float *want; /* [n][vocab] */
};

/* Tolerances: the largest difference of a logit, and the largest gap between the best two logits
 * where another id may be chosen. */
static const struct tolerance {
    const char *name;
    double logit, tie;
} tolerances[] = {{"fused", 0, 0}, {"eager, f32", 1e-4, 1e-3}, {"eager, bf16", 0.05, 0.1}};
static size_t mode; /* index of the tolerance in use */

static struct model *model;
static size_t vocab;
static uint64_t seed;
static uint32_t draws; /* numbers drawn so far: the generator's counter */
static struct sequence sequence[MAX_SEQUENCES];
static double worst[ARRAY_LEN(tolerances)];
static size_t tokens[ARRAY_LEN(tolerances)], ties;

static size_t pick(size_t least, size_t most)
{
    return least + (size_t)(rng_uniform(seed, 0, draws++, 0) * (double)(most - least + 1));
}

static void die(const struct err *err)
{
    printf("not ok - seed %llu: %s\n", (unsigned long long)seed, err->text);
    exit(1);
}

static void open_session(struct session **session, const struct session_options *options)
{
    struct err err;
    if (session_open(session, model, options, &err) < 0)
        die(&err);
}

/* ---- alone ---- */

/* Computes logits[n][vocab] of a sequence alone, one token per forward pass, under `iterative`. */
static void run_alone(const struct session_options *like, const struct sequence *s, float *logits)
{
    struct session_options options = *like;
    struct session *session;
    struct err err;
    options.kv = (struct kv_spec){0};
    options.batch = options.chunk = 1;
    options.threads = options.threads_prefill = 1;
    if (kv_spec_parse(&options.kv, "iterative", &err) < 0)
        die(&err);
    open_session(&session, &options);
    for (size_t i = 0; i < s->n; i++) {
        const size_t row = batch_add(session, 0, &s->id[i], 1);
        if (session_run(session, 1, &err) < 0 ||
            session_logits(session, &row, 1, logits + i * vocab, &err) < 0)
            die(&err);
    }
    session_close(session);
}

static void draw_sequences(const struct session_options *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct sequence *s = &sequence[i];
        s->n = i ? pick(1, options->context) : options->context;
        for (size_t k = 0; k < s->n; k++)
            s->id[k] = (uint32_t)pick(0, vocab - 1);
        run_alone(options, s, s->want);
    }
}

/* ---- in a batch ---- */

/* The largest difference of two vectors of logits; not 0 if any bit differs. */
static double difference(const float *a, const float *b)
{
    double most = memcmp(a, b, vocab * sizeof *a) ? 0x1p-149 : 0;
    for (size_t i = 0; i < vocab; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (isnan(d))
            return INFINITY;
        most = fmax(most, d);
    }
    return most;
}

/* Compares the logits of token `at` of sequence `s` with those of the sequence alone. */
static void compare(const char *how, size_t s, size_t at, const float *logits)
{
    const size_t t = mode;
    const float *want = sequence[s].want + at * vocab;
    const double off = difference(logits, want);
    struct candidate best[2], found;
    worst[t] = fmax(worst[t], off);
    tokens[t]++;
    check(off <= tolerances[t].logit,
          "seed %llu, %s: logits of sequence %zu differ by %g at position %zu",
          (unsigned long long)seed, how, s, off, at);
    top_logits(want, vocab, 2, best);
    top_logits(logits, vocab, 1, &found);
    if (found.id == best[0].id)
        return;
    const double gap = (double)best[0].logit - (double)best[1].logit;
    ties++;
    printf("# tie: %s, sequence %zu, position %zu: %u and %u are %g apart\n", how, s, at, best[0].id,
           found.id, gap);
    check(gap <= tolerances[t].tie, "seed %llu, %s: id %u in place of %u", (unsigned long long)seed,
          how, found.id, best[0].id);
}

struct test_slot {
    size_t sequence; /* in flight, or SIZE_MAX */
    size_t first, rows;
};

/* Number of tokens that the next forward pass appends to sequence `s` after `at` tokens, at most
 * `space`. */
static size_t rows_of_step(size_t s, size_t at, size_t r, size_t space)
{
    const size_t most = size_min(sequence[s].n - at, space);
    size_t rows = pick(0, 1) ? 1 : pick(1, most);
    if (s == 0 && at + 1 < r)
        rows = size_min(rows, r - 1 - at);
    else if (s == 0 && at <= r + 1)
        rows = 1;
    return rows;
}

/* Adds tokens of a random subset of the slots, at least one, to the next forward pass. */
static void put_step_together(struct session *session, struct test_slot *slot, size_t batch)
{
    const size_t begin = pick(0, batch - 1);
    size_t parts = 0;
    for (size_t k = 0; k < batch; k++) {
        const size_t i = (begin + k) % batch;
        const size_t space = batch_space(session);
        const bool last = k + 1 == batch;
        slot[i].rows = 0;
        if (slot[i].sequence == SIZE_MAX || !space || (pick(0, 3) == 0 && (parts || !last)))
            continue;
        const struct sequence *s = &sequence[slot[i].sequence];
        const size_t at = session_length(session, i);
        slot[i].rows = rows_of_step(slot[i].sequence, at, kv_setup(session_kv(session))->r, space);
        slot[i].first = batch_add(session, i, s->id + at, slot[i].rows);
        parts++;
    }
}

static void run_batch(const struct session_options *options, const char *how, size_t n_sequences)
{
    const size_t batch = options->batch;
    struct session *session;
    struct test_slot slot[MAX_BATCH];
    struct err err;
    size_t next = 0, done = 0, met = 0;
    open_session(&session, options);
    const size_t r = kv_setup(session_kv(session))->r;
    float *logits = mem_alloc(vocab, sizeof *logits);
    for (size_t i = 0; i < batch; i++)
        slot[i].sequence = next < n_sequences ? next++ : SIZE_MAX;
    while (done < n_sequences) {
        put_step_together(session, slot, batch);
        if (!batch_tokens(session))
            continue;
        for (size_t i = 0; i < batch; i++) {
            const size_t n = session_length(session, i);
            met += slot[i].rows == 1 && slot[i].sequence == 0 && (n + 1 == r || n == r || n == r + 1);
        }
        if (session_run(session, options->threads, &err) < 0)
            die(&err);
        for (size_t i = 0; i < batch; i++) {
            const size_t s = slot[i].sequence, n = session_length(session, i);
            for (size_t k = 0; k < slot[i].rows; k++) {
                const size_t row = slot[i].first + k;
                if (session_logits(session, &row, 1, logits, &err) < 0)
                    die(&err);
                compare(how, s, n - slot[i].rows + k, logits);
            }
            if (s == SIZE_MAX || n < sequence[s].n)
                continue;
            /* The next sequence takes over the slot; its KV memory is new or comes from a pool. */
            session_clear(session, i);
            slot[i].sequence = next < n_sequences ? next++ : SIZE_MAX;
            done++;
        }
    }
    if (r >= 2 && r + 2 <= options->context)
        check(met == 3, "seed %llu, %s: the first sequence met %zu of the rows r - 1, r, r + 1",
              (unsigned long long)seed, how, met);
    session_close(session);
    free(logits);
}

/* ---- a round ---- */

/* Writes the policy's name with random parameters to `text`. */
static void draw_policy(const struct kv_policy *policy, size_t N, char text[64])
{
    const size_t kind = pick(0, 3);
    snprintf(text, 64, "%s", policy->name);
    if (policy->growth == &kv_grow_in_blocks && kind)
        snprintf(text, 64, "%s:%d", policy->name, kind == 1 ? 32 : 16);
    if (policy->growth == &kv_grow_in_steps && kind == 1)
        snprintf(text, 64, "%s:T=%zu", policy->name, pick(1, N + 5)); /* T > N, too */
    if (policy->growth == &kv_grow_in_steps && kind >= 2)
        snprintf(text, 64, "%s:r=%zu", policy->name, pick(2, N / 2));
}

static void run_policy(struct session_options *options, const struct kv_policy *policy)
{
    char text[64], how[256];
    struct err err;
    const size_t batch = pick(1, MAX_BATCH), n = size_min(batch + pick(0, 3), MAX_SEQUENCES);
    draw_policy(policy, options->context, text);
    if (kv_spec_parse(&options->kv, text, &err) < 0)
        die(&err);
    options->kv.alloc = (enum vm_alloc)pick(VM_POOL, VM_THP);
    options->kv.lockstep = policy->lockstep && pick(0, 2) == 0;
    options->kv.attend_valid = pick(0, 2) == 0;
    options->batch = batch;
    options->chunk = pick(1, 40);
    options->threads = options->threads_prefill = (int)pick(1, 2);
    snprintf(how, sizeof how, "%s %s %s, %s %s, N %zu, batch %zu, chunk %zu, %d threads, %s%s%s",
             options->cpu.kernels->isa, precision_name(options->cpu.precision), options->cpu.attn->name,
             text, cache_types_format(&options->kv_types).text, options->context, batch, options->chunk,
             options->threads, vm_alloc_name(options->kv.alloc),
             options->kv.lockstep ? ", lockstep" : "", options->kv.attend_valid ? ", valid rows" : "");
    run_batch(options, how, n);
}

/* The comparison must notice a sequence in which one token differs. */
static void test_the_test(const struct session_options *options)
{
    struct sequence *s = &sequence[0], other = *s;
    other.n = 3;
    other.id[1] = (other.id[1] + 1) % (uint32_t)vocab;
    float *logits = mem_alloc(other.n * vocab, sizeof *logits);
    run_alone(options, &other, logits);
    check(difference(logits, s->want) == 0, "the same token gives other logits");
    check(difference(logits + 2 * vocab, s->want + 2 * vocab) > 0.01,
          "another token before gives the same logits");
    logits[0] = NAN;
    check(difference(logits, s->want) > 1, "NaN is not seen");
    free(logits);
}

/* ---- a tree ---- */

/* A random draft tree of `rows` tokens that continues sequence `s` at position n. Each of its first
 * `depth` levels contains the true token among others; path[j] is the node of true token n + j. */
struct tree {
    uint32_t token[MAX_N], ancestors[MAX_N * MAX_N];
    size_t position[MAX_N], ancestors_at[MAX_N + 1], parent[MAX_N], level[MAX_N], path[MAX_N];
    size_t rows, depth;
};

static void draw_tree(struct tree *t, const struct sequence *s, size_t n)
{
    t->rows = t->depth = 0;
    while (n + t->depth < s->n && t->rows < 24) {
        /* Some wrong tokens, with any parents, then the next true token. */
        const size_t wrong = pick(0, 3);
        for (size_t i = 0; i <= wrong; i++) {
            const bool on_path = i == wrong;
            const size_t node = t->rows++;
            t->parent[node] = on_path ? (t->depth ? t->path[t->depth - 1] : SIZE_MAX)
                              : node  ? (pick(0, node) == node ? SIZE_MAX : pick(0, node - 1))
                                      : SIZE_MAX;
            t->level[node] = t->parent[node] == SIZE_MAX ? 0 : t->level[t->parent[node]] + 1;
            t->token[node] = on_path ? s->id[n + t->depth] : (uint32_t)pick(0, vocab - 1);
            t->position[node] = n + t->level[node];
        }
        t->path[t->depth++] = t->rows - 1;
    }
    t->ancestors_at[0] = 0;
    for (size_t node = 0; node < t->rows; node++) {
        const size_t at = t->ancestors_at[node], len = t->level[node] + 1;
        for (size_t i = len, up = node; i-- > 0; up = t->parent[up])
            t->ancestors[at + i] = (uint32_t)up;
        t->ancestors_at[node + 1] = at + len;
    }
}

/* Computes one sequence up to a random position, then a draft tree that continues it. */
static void run_tree(const struct session_options *like, const struct kv_policy *policy)
{
    static struct tree tree;
    struct session_options options = *like;
    struct session *session;
    struct err err;
    char text[64], how[256];
    draw_policy(policy, options.context, text);
    if (kv_spec_parse(&options.kv, text, &err) < 0)
        die(&err);
    options.batch = 1;
    options.chunk = MAX_N;
    options.context += MAX_N; /* a tree has more nodes than positions */
    options.threads = options.threads_prefill = (int)pick(1, 2);
    snprintf(how, sizeof how, "tree: %s %s, %s %s", options.cpu.kernels->isa,
             precision_name(options.cpu.precision), text, cache_types_format(&options.kv_types).text);
    open_session(&session, &options);
    const size_t n = pick(1, sequence[0].n - 1);
    batch_add(session, 0, sequence[0].id, n);
    if (session_run(session, options.threads, &err) < 0)
        die(&err);
    draw_tree(&tree, &sequence[0], n);
    const struct attn_query query = {0, 0, tree.rows, tree.ancestors, tree.ancestors_at};
    const struct step step = {tree.rows, tree.token, tree.position, &query, 1};
    float *logits = mem_alloc(vocab, sizeof *logits);
    if (session_forward_step(session, &step, options.threads, &err) < 0)
        die(&err);
    for (size_t j = 0; j < tree.depth; j++) {
        if (session_logits(session, &tree.path[j], 1, logits, &err) < 0)
            die(&err);
        compare(how, 0, n + j, logits);
    }
    kv_commit(session_kv(session), 0, 0);
    free(logits);
    session_close(session);
}

static void run_config(struct session_options *options)
{
    const bool fused = strcmp(options->cpu.attn->name, "fused") == 0;
    static bool tested;
    mode = fused && strcmp(options->cpu.kernels->isa, "blas") != 0 ? 0
           : options->kv_types.all.k == DTYPE_F32                  ? 1
                                                                   : 2;
    options->context = pick(20, size_min(MAX_N, model->config.context / 2));
    draw_sequences(options, MAX_SEQUENCES);
    if (!tested)
        test_the_test(options);
    tested = true;
    for (size_t i = 0; kv_policies[i]; i++) {
        run_policy(options, kv_policies[i]);
        if (fused)
            run_tree(options, kv_policies[i]);
    }
}

/* A random precision; quantised weights are multiplied with int8 or f32 activations. */
static enum precision pick_precision(void)
{
    if (model_weights_class(model) == WEIGHTS_QUANTISED)
        return pick(0, 2) ? PRECISION_INT8 : PRECISION_F32;
    return (enum precision)pick(PRECISION_F32, PRECISION_INT8);
}

/* True if the library of an attention backend can be loaded. */
static bool is_installed(const struct attn_backend *backend, bool say)
{
    const struct attn_shape shape = {.heads = 1, .kv_heads = 1, .head_dim = 8};
    const struct attn_limits limits = {.positions = 1, .step_rows = 1, .queries = 1};
    struct attn *attn;
    struct err err;
    if (attn_open(&attn, backend, &shape, 1, &limits, &err) == 0) {
        attn_close(attn);
        return true;
    }
    if (say)
        printf("# skipped: %s\n", err.text);
    return false;
}

static void run_round(size_t round)
{
    struct err err;
    size_t best = 0;
    for (size_t i = 0; kernel_sets[i]; i++) {
        struct session_options options = {
            .kv_types = cache_types_alike(cache_types[pick(0, 5)].type),
            .cpu.attn = attn_find("fused", &err),
            .cpu.kernels = kernel_sets[i],
            .cpu.precision = pick_precision(),
        };
        if (!kernel_sets[i]->usable())
            continue;
        if (strcmp(kernel_sets[i]->isa, "blas") == 0) {
            /* BLAS results are not bitwise reproducible; rounding activations would amplify
             * differences. */
            options.cpu.precision = PRECISION_F32;
            if (cache_types_any(&options.kv_types, dtype_is_quantized))
                options.kv_types = cache_types_alike(DTYPE_F16);
        }
        best = i;
        run_config(&options);
    }
    for (size_t i = 0; attn_backends[i]; i++) {
        struct session_options eager = {
            .kv_types = cache_types_alike(round % 2 ? DTYPE_BF16 : DTYPE_F32),
            .cpu.attn = attn_backends[i],
            .cpu.kernels = kernel_sets[best],
            .cpu.precision = PRECISION_F32,
        };
        if (eager.cpu.attn->foreign_sums && is_installed(eager.cpu.attn, round == 0))
            run_config(&eager);
    }
}

static void report(void)
{
    for (size_t t = 0; t < ARRAY_LEN(tolerances); t++)
        if (tokens[t])
            printf("# %s: %zu tokens, logits off by %.2g at most\n", tolerances[t].name, tokens[t],
                   worst[t]);
    printf("# %zu ties\n", ties);
}

int main(int argc, char **argv)
{
    struct err err;
    size_t number = 1, rounds = 2;
    const char *text = argc > 2 ? argv[2] : getenv("BMC_SEED");
    if (argc < 2 || (text && *text && !parse_size(text, &number)) ||
        (argc > 3 && !parse_size(argv[3], &rounds)))
        return fprintf(stderr, "usage: test_exact MODEL.bmc [SEED [ROUNDS]]\n"), 2;
    seed = number;
    kernels_setup();
    if (model_open(&model, argv[1], &err) < 0)
        die(&err);
    vocab = model->config.vocab;
    printf("# seed %llu, %zu rounds, %s: %zu query heads, %zu KV heads\n", (unsigned long long)seed,
           rounds, argv[1], model->config.heads, model->config.kv_heads);
    for (size_t i = 0; i < MAX_SEQUENCES; i++)
        if (!(sequence[i].want = mem_alloc(MAX_N * vocab, sizeof(float))))
            return printf("not ok - out of memory\n"), 1;
    for (size_t round = 0; round < rounds; round++)
        run_round(round);
    report();
    for (size_t i = 0; i < MAX_SEQUENCES; i++)
        free(sequence[i].want);
    model_close(model);
    return check_result();
}
