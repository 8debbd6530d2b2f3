/* Speculative decoding with small random models: ids equal those of plain decoding, greedy and sampled, whose
 * tokens follow the exact distribution, as those of rejection sampling do, and not those of faulty rules.
 *
 * A sample of the cases, selected by BMC_SEED, or all:
 *
 *   test_spec [full] */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "tests/unit/decode/naive_sampler.h"
#include "tests/unit/decode/spec_run.h"
#include "tests/unit/check.h"
#include "decode/generate.h"
#include "decode/spec/spec.h"
#include "tests/unit/rules.h"
#include "tests/unit/random_head.h"
#include "tests/unit/draft_shapes.h"

/* ---- the ids of plain decoding, greedy and sampled ---- */

static void compare(const struct test_run *want, struct test_run *run, const char *what)
{
    struct err err;
    if (check(run_all(run, &err) == 0, "%s: %s", what, err.text))
        for (size_t i = 0; i < run->requests; i++)
            check(run->n_ids[i] == want->n_ids[i] &&
                      memcmp(run->ids + i * run->n, want->ids + i * run->n,
                             run->n_ids[i] * sizeof *run->ids) == 0,
                  "%s: request %zu has other ids", what, i);
    free_run(run);
}

/* Settings whose draft tokens are drawn with the noise of the target's. */
static const struct sampler_options samplings[] = {
    {.temp = 0},
    {.temp = 0.3, .top_p = 1},
    {.temp = 0.5, .top_k = 20, .top_p = 0.95, .min_p = 0.01, .repeat_penalty = 1.2},
    {.temp = 0.4, .top_p = 1, .xtc_probability = 0.5, .xtc_threshold = 0.1, .dynatemp_range = 0.2},
    {.temp = 0.4, .top_p = 1, .mirostat = 2, .mirostat_tau = 3, .mirostat_eta = 0.3},
};

static void test_equal_ids(bool full, uint64_t seed)
{
    static const char *const kvs[] = {"iterative", "upfront", "bmc:T=4",
                                      "bmc:r=5",   "reserve", "paged:16"};
    static const char *const names[] = {"plain",        "model",  "lookup",        "oldest",
                                        "recycle",      "suffix", "suffix corpus", "lookup+model",
                                        "suffix+model", "eagle",  "suffix+eagle"};
    static const size_t ks[] = {1, 2, 4, 8, 26}, batches[] = {1, 3, 8};
    struct model *target = make_model(GREEDY_VOCAB, 2, DTYPE_F32, 1),
                 *draft = make_model(GREEDY_VOCAB, 2, DTYPE_BF16, 1), *head = random_head(target, 0, 7);
    struct test_run plain[ARRAY_LEN(samplings)];
    struct err err;
    size_t turn = 0, accepted = 0, drafted = 0;
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        plain[i] = (struct test_run){.target = target,
                                     .kv = "upfront",
                                     .batch = 1,
                                     .n = 80,
                                     .requests = 9,
                                     .lengths = true,
                                     .sampling = samplings[i]};
        if (!check(run_all(&plain[i], &err) == 0, "%s", err.text))
            return;
        /* Some fill the context: it holds less than 80 tokens. */
        check(plain[i].n_ids[0] == CONTEXT - 3, "a request has %zu tokens", plain[i].n_ids[0]);
    }
    for (size_t kv = 0; kv < ARRAY_LEN(kvs); kv++)
        for (size_t k = 0; k < ARRAY_LEN(ks); k++)
            for (size_t b = 0; b < ARRAY_LEN(batches); b++)
                for (enum test_drafter kind = MODEL; kind < GREEDY_KINDS; kind++)
                    for (int tree = 0; tree < 2; tree++) {
                        char what[128];
                        turn++;
                        if ((!full && (turn + seed) % 23) || (tree && !drafts_trees(kind)))
                            continue;
                        const size_t of = (turn / (full ? 1 : 23) + seed) % ARRAY_LEN(plain);
                        struct test_run run = plain[of];
                        run.draft = has_head(kind) ? head : draft;
                        run.kind = kind;
                        run.kv = kvs[kv];
                        run.batch = batches[b];
                        run.options = tree ? tree_of(ks[k]) : chain_of(ks[k]);
                        run.split = turn % 2;
                        run.draft_context = has_model(kind) && turn % 4 == 0 ? 32 : 0;
                        snprintf(what, sizeof what,
                                 "sampling %zu, %s, %s, %s of %zu, batch %zu, window %zu", of,
                                 names[kind], kvs[kv], tree ? "tree" : "chain", ks[k], batches[b],
                                 run.draft_context);
                        compare(&plain[of], &run, what);
                        accepted += run.stats.accepted;
                        drafted += run.stats.drafted;
                    }
    check(accepted > drafted / 50 && accepted < drafted, "of %zu draft tokens %zu were accepted",
          drafted, accepted);
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        free_run(&plain[i]);
    /* With penalties and biases, too: draft and target consider the preceding draft tokens. */
    static const struct logit_bias biases[] = {{3, 0.2f}, {5, -0.3f}, {3, 0.1f}};
    struct test_run penalized = plain[0];
    penalized.sampling = (struct sampler_options){.repeat_penalty = 1.3,
                                                  .presence_penalty = 0.1,
                                                  .frequency_penalty = 0.05,
                                                  .bias = biases,
                                                  .n_biases = ARRAY_LEN(biases)};
    check(run_all(&penalized, &err) == 0, "%s", err.text);
    struct test_run run = penalized;
    run.draft = draft;
    run.kind = MODEL;
    run.options = tree_of(12);
    compare(&penalized, &run, "penalties");
    check(run.stats.accepted > run.stats.steps / 2,
          "penalties: the draft of the same weights agrees: %zu in %zu", run.stats.accepted,
          run.stats.steps);
    free_run(&penalized);
    model_close(head);
    model_close(target);
    model_close(draft);
}

/* Models with the same vocabulary may have embeddings of different sizes: ids beyond the draft
 * model's are not an error. */
static void test_smaller_table(void)
{
    static const struct sampler_options with[] = {{.temp = 0, .repeat_penalty = 1.2},
                                                  {.temp = 2, .top_p = 1, .repeat_penalty = 1.2}};
    struct model *target = make_model(8 * GREEDY_VOCAB, 1, DTYPE_F32, 3),
                 *draft = make_model(VOCAB, 1, DTYPE_F32, 3);
    for (size_t i = 0; i < ARRAY_LEN(with); i++)
        for (int tree = 0; tree < 2; tree++) {
            struct test_run plain = {.target = target,
                                     .kv = "upfront",
                                     .batch = 1,
                                     .n = 40,
                                     .requests = 4,
                                     .lengths = true,
                                     .sampling = with[i]};
            struct test_run run = plain;
            struct err err;
            run.draft = draft;
            run.kind = MODEL;
            run.batch = 3;
            run.options = tree ? tree_of(12) : chain_of(4);
            if (check(run_all(&plain, &err) == 0, "%s", err.text)) {
                size_t beyond = 0;
                for (size_t t = 0; t < plain.n_ids[0]; t++)
                    beyond += plain.ids[t] >= VOCAB;
                check(beyond > 10, "the draft model knows all but %zu of the ids", beyond);
                compare(&plain, &run, "smaller embedding");
            }
            free_run(&plain);
        }
    model_close(target);
    model_close(draft);
}

/* Policies that grow in steps must not reallocate for draft tokens. */
static void test_no_early_growth(void)
{
    static const char *const kvs[] = {"bmc:r=16", "reserve"};
    struct model *target = make_model(GREEDY_VOCAB, 1, DTYPE_F32, 1);
    for (size_t i = 0; i < ARRAY_LEN(kvs); i++) {
        struct session *session;
        struct err err;
        struct session_options s = {.cpu.attn = attn_find(NULL, &err),
                                    .cpu.kernels = kernels_select(NULL, &err),
                                    .context = 60,
                                    .batch = 1,
                                    .chunk = 20,
                                    .threads = 1,
                                    .threads_prefill = 1};
        const uint32_t token[20] = {0};
        if (!check(kv_spec_parse(&s.kv, kvs[i], &err) == 0 &&
                       session_open(&session, target, &s, &err) == 0,
                   "%s", err.text))
            continue;
        if (i == 0)
            check(kv_rows_before_growth(session_kv(session), 0) == 16,
                  "%s: an empty sequence has %zu free rows", kvs[i],
                  kv_rows_before_growth(session_kv(session), 0));
        batch_add(session, 0, token, 15);
        check(session_run(session, 1, &err) == 0, "%s", err.text);
        const size_t grown = kv_stats(session_kv(session)).allocations,
                     rows = kv_rows_before_growth(session_kv(session), 0);
        check(i || rows == 1, "%s: with 15 entries %zu are free", kvs[i], rows);
        batch_add(session, 0, token, rows);
        check(session_run(session, 1, &err) == 0 && kv_stats(session_kv(session)).allocations == grown,
              "%s: free rows were not free", kvs[i]);
        if (i == 0)
            check(kv_rows_before_growth(session_kv(session), 0) == 16,
                  "bmc: after the last entry a whole growth step is free");
        session_close(session);
    }
    model_close(target);
}

/* ---- sampling: the exact distribution; by rejection and, without, of each sampler ---- */

/* The first token comes from prefill; the three after it are counted, so that a draft can have two
 * levels. */
enum { DRAWS = 20000, SOME_DRAWS = 10000, TOKENS = 4, CELLS = VOCAB * VOCAB * VOCAB };

/* Probabilities of the token after `ids`. */
static void next_shares(struct session *session, const struct sampler_options *sampling,
                        const uint32_t *ids, size_t n, double *share)
{
    struct err err;
    float logits[VOCAB];
    const size_t row = batch_add(session, 0, ids, n) + n - 1;
    if (session_run(session, 1, &err) < 0 || session_logits(session, &row, 1, logits, &err) < 0)
        exit(1);
    session_clear(session, 0);
    naive_shares(sampling, logits, VOCAB, ids, n, share);
}

/* Adds to p[] the probabilities of the last tokens of all continuations of ids[0..n), whose own
 * probability is `share`. */
static void add_texts(struct session *session, const struct sampler_options *sampling, uint32_t *ids,
                      size_t n, double share, double *p)
{
    double next[VOCAB];
    if (n == 3 + TOKENS) {
        p[(ids[n - 3] * VOCAB + ids[n - 2]) * VOCAB + ids[n - 1]] += share;
        return;
    }
    next_shares(session, sampling, ids, n, next);
    for (uint32_t t = 0; t < VOCAB; t++) {
        ids[n] = t;
        if (next[t] > 0)
            add_texts(session, sampling, ids, n + 1, share * next[t], p);
    }
}

/* Probabilities of all triples of last tokens, from one forward pass for each prefix. */
static void exact_distribution(const struct test_run *run, double *p)
{
    struct session *session;
    struct err err;
    struct session_options s = {.cpu.attn = attn_find(NULL, &err),
                                .cpu.kernels = kernels_select(NULL, &err),
                                .context = CONTEXT,
                                .batch = 1,
                                .chunk = 8,
                                .threads = 1,
                                .threads_prefill = 1};
    uint32_t ids[3 + TOKENS] = {run->prompt[0], run->prompt[1], run->prompt[2]};
    memset(p, 0, CELLS * sizeof *p);
    if (kv_spec_parse(&s.kv, "upfront", &err) < 0 || session_open(&session, run->target, &s, &err) < 0)
        exit(1);
    add_texts(session, &run->sampling, ids, 3, 1, p);
    session_close(session);
}

/* Pearson's statistic in units of its critical value at p = 0.0001 (Wilson and Hilferty); cells with
 * fewer than five expected draws are pooled. Above 1 the distributions differ. */
static double chi_square(const struct test_run *run, const double *p)
{
    static size_t count[CELLS];
    double statistic = 0, rare_p = 0, rare_n = 0;
    size_t cells = 0;
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < run->requests; i++)
        count[(run->ids[i * TOKENS + 1] * VOCAB + run->ids[i * TOKENS + 2]) * VOCAB +
              run->ids[i * TOKENS + 3]]++;
    for (size_t i = 0; i <= CELLS; i++) {
        const bool last = i == CELLS;
        const double expected = (last ? rare_p : p[i]) * (double)run->requests,
                     found = last ? rare_n : (double)count[i];
        if (!last && expected < 5) {
            rare_p += p[i];
            rare_n += found;
        } else if (expected > 0) {
            statistic += (found - expected) * (found - expected) / expected;
            cells++;
        } else if (found > 0) {
            return INFINITY;
        }
    }
    const double df = (double)cells - 1, a = 2 / (9 * df);
    return statistic / (df * pow(1 - a + 3.719 * sqrt(a), 3));
}

static const struct logit_bias biases[] = {{1, 0.1f}, {2, -0.2f}};

/* Settings with all 8 tokens as candidates, or some. */
#define WHOLE                                                                                          \
    {                                                                                                  \
        .temp = 0.12, .top_p = 1                                                                       \
    }
#define TOP_5                                                                                          \
    {                                                                                                  \
        .temp = 0.12, .top_k = 5, .top_p = 1                                                           \
    }
#define TOP_3                                                                                          \
    {                                                                                                  \
        .temp = 0.12, .top_k = 3, .top_p = 1                                                           \
    }
#define CUT                                                                                            \
    {                                                                                                  \
        .temp = 0.3, .top_p = 0.8, .min_p = 0.02                                                       \
    }
#define ALL_SET                                                                                        \
    {                                                                                                  \
        .temp = 0.2, .top_k = 7, .top_p = 0.9, .min_p = 0.05, .repeat_penalty = 1.15,                  \
        .presence_penalty = 0.05, .frequency_penalty = 0.03, .bias = biases, .n_biases = 2             \
    }

static void test_rejection(bool full, uint64_t seed)
{
    struct model *target = make_model(VOCAB, 1, DTYPE_F32, 1),
                 *draft = make_model(VOCAB, 1, DTYPE_F32, 2), *head = random_head(target, 0, 3),
                 *small_head = random_head(target, VOCAB - 3, 4);
    const struct model *const drafts[] = {
        [MODEL] = draft, [LOOKUP_MODEL] = draft, [SUFFIX_MODEL] = draft,
        [EAGLE] = head,  [SUFFIX_EAGLE] = head,  [SMALL_EAGLE] = small_head};
    static double p[CELLS];
    const struct {
        const char *what;
        enum test_drafter kind;
        struct spec_options options;
        struct sampler_options sampling;
        rejection_rule *rule; /* NULL: rejection_verify() */
        enum { RIGHT, WRONG } expected;
    } cases[] = {
        {"chain", MODEL, chain_of(2), WHOLE, NULL, RIGHT},
        {"chain, top-k 5", MODEL, chain_of(2), TOP_5, NULL, RIGHT},
        {"chain, top-p and min-p", MODEL, chain_of(3), CUT, NULL, RIGHT},
        {"chain, every setting", MODEL, chain_of(3), ALL_SET, NULL, RIGHT},
        {"tree of sampled children", MODEL, tree_of(10), WHOLE, NULL, RIGHT},
        {"tree of sampled children, top-k 3", MODEL, tree_of(10), TOP_3, NULL, RIGHT},
        {"tree of sampled children, every setting", MODEL, tree_of(10), ALL_SET, NULL, RIGHT},
        {"tree of the best successors", RECYCLE, tree_of(10), WHOLE, NULL, RIGHT},
        {"tree of the best successors, every setting", RECYCLE, tree_of(10), ALL_SET, NULL, RIGHT},
        {"tree of sampled children, as if deterministic", MODEL, tree_of(10), WHOLE, right_as_chosen,
         RIGHT},
        {"chain of the best successors", RECYCLE, chain_of(3), CUT, NULL, RIGHT},
        {"lookup", LOOKUP, chain_of(2), WHOLE, NULL, RIGHT},
        {"suffix chain", SUFFIX, chain_of(2), WHOLE, NULL, RIGHT},
        {"suffix tree, every setting", SUFFIX, tree_of(10), ALL_SET, NULL, RIGHT},
        {"suffix and model", SUFFIX_MODEL, tree_of(10), WHOLE, NULL, RIGHT},
        {"lookup and model", LOOKUP_MODEL, chain_of(2), WHOLE, NULL, RIGHT},
        {"suffix tree, wrong residual", SUFFIX, tree_of(10), WHOLE, wrong_residual, WRONG},
        {"star, to record acceptance", MODEL, star(), WHOLE, NULL, RIGHT},
        {"chain of a draft head", EAGLE, chain_of(2), WHOLE, NULL, RIGHT},
        {"tree of a draft head, every setting", EAGLE, tree_of(10), ALL_SET, NULL, RIGHT},
        {"suffix and draft head", SUFFIX_EAGLE, chain_of(2), WHOLE, NULL, RIGHT},
        {"tree of a draft head for some tokens", SMALL_EAGLE, tree_of(10), WHOLE, NULL, RIGHT},
        {"dynamic tree of a draft head", EAGLE, dynamic_tree_of(10), WHOLE, NULL, RIGHT},
        {"chain, wrong residual", MODEL, chain_of(2), WHOLE, wrong_residual, WRONG},
        {"chain, accepted unseen", MODEL, chain_of(2), ALL_SET, wrong_eager, WRONG},
        {"tree, wrong residual", RECYCLE, tree_of(10), WHOLE, wrong_residual, WRONG},
        {"tree, wrong siblings", MODEL, tree_of(10), WHOLE, wrong_siblings, WRONG},
        {"tree, with replacement", MODEL, tree_of(10), WHOLE, wrong_replacement, WRONG},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const bool wrong = cases[i].expected == WRONG;
        if (!full && (i + seed) % 3)
            continue;
        const size_t draws = full || wrong ? DRAWS : SOME_DRAWS;
        struct test_run run = {.target = target,
                               .draft = drafts[cases[i].kind],
                               .kind = cases[i].kind,
                               .kv = "upfront",
                               .batch = 8,
                               .n = TOKENS,
                               .context = 32,
                               .requests = draws,
                               .options = cases[i].options,
                               .sampling = cases[i].sampling};
        run.options.rule = cases[i].rule ? cases[i].rule : rejection_verify;
        struct err err;
        if (check(run_all(&run, &err) == 0, "%s: %s", cases[i].what, err.text)) {
            exact_distribution(&run, p);
            const double found = chi_square(&run, p);
            printf("# %s: chi-square %.3f of the critical value, %zu of %zu accepted\n", cases[i].what,
                   found, run.stats.accepted, run.stats.drafted);
            if (wrong)
                check(found > 1, "%s is not detected: %.3f", cases[i].what, found);
            else
                check(found < 1, "%s: %.3f", cases[i].what, found);
            /* Both outcomes occurred. */
            check((run.stats.accepted > draws / (run.kind == LOOKUP ? 50 : 10) &&
                   run.stats.accepted + draws / 10 < run.stats.drafted),
                  "%s: %zu of %zu accepted", cases[i].what, run.stats.accepted, run.stats.drafted);
        }
        free_run(&run);
    }
    model_close(head);
    model_close(small_head);
    model_close(target);
    model_close(draft);
}

/* Each sampler with each drafter: the exact distribution. */
static void test_samplers(bool full, uint64_t seed)
{
    static const struct sampler_options each[] = {
        {.temp = 0.2, .top_p = 1},
        {.temp = 0.2, .top_p = 1, .top_k = 4},
        {.temp = 0.2, .top_p = 0.2},
        {.temp = 0.2, .top_p = 1, .min_p = 0.95},
        {.temp = 0.2, .top_p = 1, .top_n_sigma = 1},
        {.temp = 0.2, .top_p = 1, .typical_p = 0.5},
        {.temp = 0.2, .top_p = 1, .xtc_probability = 0.5, .xtc_threshold = 0.125},
        {.temp = 0.2, .top_p = 1, .dynatemp_range = 0.15, .dynatemp_exponent = 40},
    };
    static const enum test_drafter kinds[] = {MODEL, SUFFIX, RECYCLE, EAGLE};
    struct model *target = make_model(VOCAB, 1, DTYPE_F32, 1),
                 *draft = make_model(VOCAB, 1, DTYPE_F32, 2), *head = random_head(target, 0, 3);
    static double p[CELLS];
    for (size_t i = 0; i < ARRAY_LEN(each) * ARRAY_LEN(kinds); i++) {
        const size_t which = i / ARRAY_LEN(kinds);
        if (!full && (i + seed) % 16)
            continue;
        struct test_run run = {.target = target,
                               .kind = kinds[i % ARRAY_LEN(kinds)],
                               .kv = "upfront",
                               .batch = 8,
                               .n = TOKENS,
                               .context = 32,
                               .seed = i,
                               .requests = full ? DRAWS : SOME_DRAWS,
                               .options = which % 2 ? tree_of(10) : chain_of(2),
                               .sampling = each[which]};
        run.draft = has_head(run.kind) ? head : draft;
        struct err err;
        if (check(run_all(&run, &err) == 0, "%s", err.text)) {
            exact_distribution(&run, p);
            const double found = chi_square(&run, p);
            printf("# sampler %zu, drafter %d: chi-square %.3f of the critical value, %zu of %zu "
                   "accepted\n",
                   which, run.kind, found, run.stats.accepted, run.stats.drafted);
            check(found < 1, "sampler %zu, drafter %d: %.3f", which, run.kind, found);
        }
        free_run(&run);
    }
    model_close(head);
    model_close(target);
    model_close(draft);
}

/* Simulated acceptance: the acceptance rates equal the given probability. */
static void test_simulated(void)
{
    struct model *target = make_model(GREEDY_VOCAB, 1, DTYPE_F32, 1),
                 *draft = make_model(GREEDY_VOCAB, 1, DTYPE_F32, 9);
    struct test_run run = {.target = target,
                           .draft = draft,
                           .kind = MODEL,
                           .kv = "bmc",
                           .batch = 4,
                           .n = 60,
                           .requests = 200,
                           .options = chain_of(4)};
    struct err err;
    run.options.simulate = 0.8;
    if (check(run_all(&run, &err) == 0, "%s", err.text)) {
        const struct spec_stats *s = &run.stats;
        const double first = (double)s->accepted_at[1] / (double)s->offered_at[1],
                     second = (double)s->accepted_at[2] / (double)s->offered_at[2];
        check(near(first, 0.8, 0.03) && near(second, 0.64, 0.04), "simulated: %.3f %.3f", first,
              second);
    }
    free_run(&run);
    model_close(target);
    model_close(draft);
}

int main(int argc, char **argv)
{
    const bool full = argc > 1 && strcmp(argv[1], "full") == 0;
    const uint64_t seed = check_seed(1);
    kernels_setup();
    threads_set(1);
    test_no_early_growth();
    test_equal_ids(full, seed);
    test_smaller_table();
    test_simulated();
    test_samplers(full, seed);
    test_rejection(full, seed);
    return check_result();
}
