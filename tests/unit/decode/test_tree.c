/* The parts of speculative decoding that need no model: trees, draft lengths, throttling, auto-tuning,
 * prompt lookup.
 *
 * Expected values for trees are those of Sequoia's own program for its acceptance vector. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/check.h"
#include "decode/spec/draft_autotune.h"
#include "decode/spec/draft_length.h"
#include "decode/spec/length_plan.h"
#include "decode/spec/tree.h"
#include "decode/spec/spec.h"

/* ---- trees ---- */

static void test_sequoia(void)
{
    static const double accept[] = {.634183, .107946, .056972, .022489, .019490};
    static const double tokens[][2] = {
        {2, 1.6342}, {4, 2.2914}, {8, 2.7322}, {16, 3.1303}, {32, 3.5007}};
    static const int parents[] = {-1, 0, 0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 8, 12, 13, 14};
    struct sequoia plan;
    struct tree_shape shape;
    struct err err;
    if (!check(sequoia_open(&plan, accept, ARRAY_LEN(accept), 33, 10, &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        const double found = sequoia_tokens(&plan, (size_t)tokens[i][0], 10);
        check(near(found, tokens[i][1], 5e-5), "%g nodes give %.5f tokens, %.4f expected", tokens[i][0],
              found, tokens[i][1]);
    }
    sequoia_shape(&plan, 16, 10, &shape);
    check(shape.n == 16, "a tree of 16 nodes has %zu", shape.n);
    for (size_t i = 1; i < 16; i++)
        check(shape.parent[i] == parents[i], "node %zu is below %u, %d expected", i, shape.parent[i],
              parents[i]);
    /* Expected tokens: the sum over nodes of the product of acceptance rates on their path. */
    double sum = 0, worth[TREE_NODES] = {1};
    for (size_t i = 0; i < shape.n; i++) {
        worth[i] = i ? worth[shape.parent[i]] * accept[shape.rank[i]] : 1;
        sum += worth[i];
    }
    check(near(sum, 3.1303, 5e-5), "expected tokens of the tree: %.5f", sum);
    sequoia_shape(&plan, 4, 4, &shape);
    check(shape.n == 4 && shape.levels == 4 && shape.parent[3] == 2,
          "four nodes on four levels are a chain");
    sequoia_shape(&plan, 30, 2, &shape);
    check(shape.n == 6 && shape.levels == 2 && shape.children[0] == 5,
          "two levels and five ranks hold six nodes, not %zu", shape.n);
    check(sequoia_levels(&plan, 16, 1, 1) < sequoia_levels(&plan, 16, 0, 1),
          "expensive drafting makes flat trees");
    check(sequoia_levels(&plan, 16, 9, 1) == 1 && sequoia_levels(&plan, 16, 9, 2) == 2,
          "drafting that cannot pay: no level of draft tokens unless one is asked for");
    sequoia_close(&plan);
}

static void test_tails(void)
{
    static const uint16_t parent[] = {0, 0, 0, 1, 3}, depth[] = {0, 1, 1, 2, 3};
    static const uint32_t want[] = {0, 0, 1, 0, 2, 0, 1, 3, 0, 1, 3, 4};
    uint32_t ancestors[ARRAY_LEN(want)];
    size_t at[6];
    tree_ancestors(parent, depth, 5, ancestors, at);
    check(memcmp(ancestors, want, sizeof want) == 0 && at[5] == ARRAY_LEN(want) && at[3] == 5,
          "ancestors");
}

/* Algorithm 1 by hand. */
static void test_length(void)
{
    static const size_t steps[][3] = {/* offered, accepted, next */
                                      {7, 7, 9},
                                      {9, 3, 8},
                                      {8, 2, 6},
                                      {6, 6, 8},
                                      {8, 7, 7},
                                      {7, 0, 5},
                                      {5, 0, 3},
                                      {3, 0, 1},
                                      {1, 0, 1},
                                      {1, 1, 3},
                                      {0, 0, 3},
                                      /* shorter than the length: accepted as a whole, or not */
                                      {2, 2, 3},
                                      {1, 1, 3},
                                      {3, 3, 5},
                                      {4, 4, 5},
                                      {4, 2, 4},
                                      {3, 3, 4},
                                      {4, 3, 3},
                                      {3, 3, 5}};
    struct draft_length l = {.increment = 2, .modulus = 10, .limit = 32, .now = 7};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        draft_length_update(&l, steps[i][0], steps[i][1]);
        check(l.now == steps[i][2], "step %zu: length %zu, %zu expected", i, l.now, steps[i][2]);
    }
    l.now = 31;
    draft_length_update(&l, 31, 31);
    check(l.now == 32, "the limit");
    draft_length_update(&l, 32, 1);
    check(l.now == 28, "32 becomes %zu: the quotient is rounded up", l.now);
    l.fixed = true;
    draft_length_update(&l, 28, 28);
    check(l.now == 28, "a fixed length does not change");
    check(draft_length_limit(16, 1) == 15 && draft_length_limit(16, 3) == 4 &&
              draft_length_limit(16, 8) == 1 && draft_length_limit(16, 50) == 1,
          "draft tokens limited by free rows");
}

/* A machine that computes `tile` tokens at a time, and a drafter: ms of a step with k draft tokens. */
struct gain_machine {
    double pass_ms, tile_ms, draft_ms, rate;
    size_t tile;
};

static double gain_machine_ms(const struct gain_machine *m, size_t k)
{
    return m->pass_ms + m->tile_ms * (double)((k + m->tile) / m->tile) + m->draft_ms * (double)k;
}

/* Tokens per ms with a fixed length. */
static double gain_machine_rate(const struct gain_machine *m, size_t k)
{
    double tokens = 1, path = 1;
    for (size_t d = 1; d <= k; d++)
        tokens += path *= m->rate;
    return tokens / gain_machine_ms(m, k);
}

/* Lengths that adapt give nearly the tokens per time of the best fixed length. */
static void test_gain(void)
{
    enum { STEPS = 2000, LIMIT = 32 };
    static const struct gain_machine machines[] = {{10, 0, 0, .8, 4}, {10, 0, 1, .8, 4},
                                                   {1, 10, 0, .8, 8}, {5, 5, .5, .6, 4},
                                                   {1, 10, 0, .9, 1}, {10, 1, .2, .95, 16}};
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        const struct gain_machine *m = &machines[i];
        struct draft_gain gain = {0};
        double best = 0, tokens = 0, ms = 0;
        for (size_t k = 1; k <= LIMIT; k++)
            best = gain_machine_rate(m, k) > best ? gain_machine_rate(m, k) : best;
        for (size_t step = 0, k = 0; step < STEPS; step++) {
            size_t accepted = 0;
            while (accepted < k && rng_uniform(7, i, (uint32_t)step, (uint32_t)accepted) < m->rate)
                accepted++;
            draft_gain_accepted(&gain, k, accepted);
            /* one step in 20 is interrupted */
            draft_gain_timed(&gain, 1, k, gain_machine_ms(m, k) * (step % 20 == 7 ? 2 : 1));
            tokens += 1 + (double)accepted;
            ms += gain_machine_ms(m, k);
            k = draft_gain_length(&gain, 7, LIMIT);
            check(k >= 1 && k <= LIMIT, "length %zu", k);
        }
        check(tokens / ms > .95 * best, "machine %zu: %.4f tokens per ms of %.4f", i, tokens / ms,
              best);
    }
    struct draft_gain gain = {0};
    draft_gain_timed(&gain, 1, 0, 1);
    check(draft_gain_length(&gain, 1, 32) == 1, "a plain step: one token is tried");
    check(draft_gain_length(&gain, 12, 32) > 1, "or up to the present length");
    draft_gain_timed(&gain, 2, 5, 1);
    check(gain.time[0].ms == 0 && gain.time[5].ms == 1, "times of another batch are forgotten");
    check(draft_gain_length(&gain, 7, 3) <= 3, "within the limit");
    for (size_t i = 0; i < 300; i++)
        draft_gain_timed(&gain, 2, 1, 1);
    draft_gain_timed(&gain, 2, 5, 9);
    check(gain.time[5].ms == 9, "a time of long ago does not count: %g", gain.time[5].ms);
    gain = (struct draft_gain){0};
    draft_gain_timed(&gain, 8, 1, 10);
    check(draft_gain_length(&gain, 1, 7) > 1, "only one short length measured: longer ones are tried");
    /* 16 draft tokens count as 14.9, none accepted: the rate is likely below 1.5 / 16.9 and 1.6 deviations, .2. */
    gain = (struct draft_gain){0};
    check(isinf(draft_gain_most(&gain, 4)), "nothing measured: no limit");
    draft_gain_timed(&gain, 8, 0, 10);
    draft_gain_timed(&gain, 8, 1, 10);
    for (size_t i = 0; i < 16; i++)
        draft_gain_accepted(&gain, 1, 0);
    check(draft_gain_most(&gain, 1) > 1.1 / 10 && draft_gain_most(&gain, 1) < 1.21 / 9,
          "at most %g tokens per ms", draft_gain_most(&gain, 1));
    gain = (struct draft_gain){0};
    check(draft_gain_length(&gain, 9, 32) == 9 && draft_gain_length(&gain, 9, 4) == 4,
          "nothing measured: the present length");
}

/* Rates learnt from verified nodes, against the mean by hand; typical rates count for 8 nodes. */
static void test_tree_rates(void)
{
    static const double typical[] = {.6, .2, .1};
    struct tree_rates r;
    double rates[TREE_RANKS];
    tree_rates_begin(&r, typical, 3, false);
    for (size_t i = 0; i < 8; i++) /* rank 0 four times, rank 1 twice, none twice */
        tree_rates_add(&r, 2, i < 4 ? 0 : i < 6 ? 1 : 2);
    tree_rates_add(&r, 0, 0); /* a leaf */
    tree_rates_get(&r, rates);
    check(near(rates[0], 8.8 / 16, 1e-12) && near(rates[1], 3.6 / 16, 1e-12) &&
              near(rates[2], .1, 1e-12),
          "rates %g, %g, %g", rates[0], rates[1], rates[2]);
    for (size_t i = 8; i < 31; i++)
        tree_rates_add(&r, 1, 0);
    check(!tree_rates_due(&r), "31 nodes");
    tree_rates_add(&r, 5, 4); /* more children than ranks */
    check(tree_rates_due(&r) && !tree_rates_due(&r) && r.due == 64, "32 nodes, the next at %zu", r.due);
    for (size_t i = 0; i < 4000; i++)
        tree_rates_add(&r, 1, 0);
    tree_rates_get(&r, rates);
    check(near(rates[0] + rates[1] + rates[2], 1, 1e-12) && rates[0] > .7, "sum %g",
          rates[0] + rates[1] + rates[2]);
    tree_rates_begin(&r, typical, 3, true);
    tree_rates_add(&r, 3, 3);
    tree_rates_get(&r, rates);
    check(near(rates[0], .6 * 256 / 257, 1e-12), "recorded rates count for 256 nodes: %g", rates[0]);
}

/* The outcome of a run of steps. */
struct throttle_run {
    struct throttle throttle;
    size_t steps, drafted, most;
    double tokens, ms, most_per_ms;
};

/* A step of one sequence: a plain one takes `plain` ms, a speculative one `ms` and gives `tokens`. */
static void throttle_step(struct throttle_run *p, double plain, double tokens, double ms)
{
    const size_t allowed = throttle_draft_limit(&p->throttle, 1);
    p->steps++;
    p->drafted += allowed > 0;
    p->most = allowed;
    p->tokens += allowed ? tokens : 1;
    p->ms += allowed ? ms : plain;
    throttle_update(&p->throttle, allowed > 0, allowed ? tokens : 1, allowed ? ms : plain,
                    p->most_per_ms);
}

static void test_pace(void)
{
    struct throttle_run p = {.most_per_ms = INFINITY};
    /* A speculative step takes twice as long as a plain one and gives 1.5 tokens. */
    throttle_begin(&p.throttle, false, THROTTLE_FIRST);
    while (p.tokens < 1000)
        throttle_step(&p, 1, 1.5, 2);
    check(p.throttle.pauses >= 2 && p.drafted >= 4 && p.drafted < 30,
          "%zu speculative steps, %zu pauses", p.drafted, p.throttle.pauses);
    check(p.ms < 1.02 * p.tokens, "lost time: %.1f of 1000", p.ms - p.tokens);

    p = (struct throttle_run){.most_per_ms = INFINITY};
    throttle_begin(&p.throttle, false, THROTTLE_FIRST);
    while (p.steps < 1000)
        throttle_step(&p, 1, 2.5, 2);
    check(p.drafted > 950 && p.throttle.pauses == 0, "drafting that pays off continues: %zu of %zu",
          p.drafted, p.steps);

    /* Plain steps get faster, so drafting does not pay off any more. */
    while (p.steps < 1500)
        throttle_step(&p, .7, 2.5, 2);
    check(p.throttle.pauses > 0, "plain steps are timed again during drafting");

    /* Plain steps take four times as long at first, and drafting never pays off. */
    p = (struct throttle_run){.most_per_ms = INFINITY};
    throttle_begin(&p.throttle, false, THROTTLE_FIRST);
    for (double plain = 4; p.steps < 100; plain = 1 + .8 * (plain - 1)) {
        throttle_step(&p, plain, 2.5, 3);
        check(p.drafted != 1 || p.most <= THROTTLE_FIRST, "a trial begins with %zu draft tokens",
              p.most);
    }
    check(p.throttle.plain_ms < 1.2, "cold steps do not count: %.2f", p.throttle.plain_ms);
    check(p.throttle.pauses == 1 && p.drafted < 8, "%zu pauses, %zu speculative steps",
          p.throttle.pauses, p.drafted);

    /* Drafting that clearly pays begins after two plain steps, with all tokens if they are cheap. */
    p = (struct throttle_run){.most_per_ms = INFINITY};
    throttle_begin(&p.throttle, false, SIZE_MAX);
    while (p.steps < 16)
        throttle_step(&p, 1, 4, 1.5);
    check(p.drafted == 14 && p.most == SIZE_MAX, "%zu speculative steps of 16", p.drafted);
    /* If it does not clearly pay, two more are timed. */
    p = (struct throttle_run){.most_per_ms = INFINITY};
    throttle_begin(&p.throttle, false, SIZE_MAX);
    while (p.steps < 16)
        throttle_step(&p, 1, 1.8, 1.5);
    check(p.drafted == 12 && p.throttle.pauses == 0, "%zu speculative steps of 16", p.drafted);

    /* Drafting that cannot pay pauses after the first step that counts. */
    p = (struct throttle_run){.most_per_ms = .9};
    throttle_begin(&p.throttle, false, SIZE_MAX);
    while (p.steps < 100)
        throttle_step(&p, 1, 1, 1.1);
    check(p.drafted == 2 && p.throttle.pauses == 1, "%zu speculative steps", p.drafted);

    /* A single slow plain step is an outlier and does not count either. */
    p = (struct throttle_run){.most_per_ms = INFINITY};
    throttle_begin(&p.throttle, false, THROTTLE_FIRST);
    while (p.steps < 200)
        throttle_step(&p, p.steps == 3 ? 9 : 1, 2.5, 3);
    check(p.throttle.pauses == 1, "one slow step: %zu pauses", p.throttle.pauses);

    /* Plain steps are timed separately for each batch size. */
    p = (struct throttle_run){.most_per_ms = INFINITY};
    throttle_begin(&p.throttle, false, THROTTLE_FIRST);
    while (p.steps < 100)
        throttle_step(&p, 1, 2.5, 2);
    check(throttle_draft_limit(&p.throttle, 1) > 0 && throttle_draft_limit(&p.throttle, 8) == 0,
          "a larger batch is timed again");

    throttle_begin(&p.throttle, true, SIZE_MAX);
    check(throttle_draft_limit(&p.throttle, 1) == SIZE_MAX && !throttle_is_ramping(&p.throttle),
          "--always");
}

/* A machine whose passes take 1 ms, and `row_ms` more for each row after the first, and drafts of 16 tokens whose tokens are said
 * to be right with probability `said`; `right` of them are. */
struct plan_run {
    double row_ms, said, ms, tokens;
    size_t right, steps, drafted, last;
};

static void plan_step(struct length_plan *plan, struct plan_run *p)
{
    float probability[16];
    struct planned_draft draft = {.probability = probability, .n = 16};
    for (size_t i = 0; i < 16; i++)
        probability[i] = (float)p->said;
    length_plan_choose(plan, &draft, 1, 1);
    const size_t tokens = 1 + size_min(draft.verified, p->right);
    const double ms = 1 + p->row_ms * (double)draft.verified;
    length_plan_timed(plan, 1, draft.verified, tokens, ms);
    p->ms += ms;
    p->tokens += (double)tokens;
    p->drafted += draft.verified > 0;
    p->last = draft.verified;
    p->steps++;
}

static size_t run_plan(struct plan_run *p, size_t steps)
{
    struct length_plan plan;
    struct err err;
    if (!check(length_plan_open(&plan, 17, &err) == 0, "%s", err.text))
        return 0;
    while (p->steps < steps)
        plan_step(&plan, p);
    length_plan_close(&plan);
    return plan.pauses;
}

static void test_plan(void)
{
    struct plan_run first = {.row_ms = .2, .said = .9, .right = 16}, pays = first, wrong = first,
                    unlikely = first, slow = first;
    size_t pauses = run_plan(&first, 2);
    check(pauses == 0 && first.drafted == 0, "the first steps draft");

    /* (1 + .9 + .. + .9^k) / (1 + .2 k) is 2.371, 2.373 and 2.356 for k = 6, 7 and 8, and less for others. One step in 49 is plain. */
    pauses = run_plan(&pays, 300);
    check(pauses == 0 && pays.drafted == 292 && pays.last >= 6 && pays.last <= 8,
          "%zu steps of 300 draft, the last %zu tokens", pays.drafted, pays.last);

    /* Nothing is accepted, whatever the drafter says. */
    wrong.right = 0;
    pauses = run_plan(&wrong, 2000);
    check(pauses >= 3 && wrong.ms < 1.03 * wrong.tokens, "%.0f ms for %.0f tokens, %zu pauses",
          wrong.ms, wrong.tokens, pauses);

    /* 1.2 tokens in 1.2 ms gain nothing; 1.9 tokens in 2 ms neither, which times of two rows tell. */
    unlikely.said = .2;
    pauses = run_plan(&unlikely, 100);
    check(pauses == 0 && unlikely.drafted == 0, "%zu steps draft", unlikely.drafted);
    slow.row_ms = 1;
    run_plan(&slow, 500);
    check(slow.last == 0 && slow.drafted < 20 && slow.ms < 1.01 * slow.tokens,
          "%zu steps draft, %.0f ms", slow.drafted, slow.ms);

    /* Of a batch the draft that is likely to be right. */
    struct length_plan plan;
    struct err err;
    const float likely[] = {.95F, .95F, .95F}, not [] = {.2F, .9F, .9F};
    struct planned_draft draft[] = {{.probability = not, .n = 3}, {.probability = likely, .n = 3}};
    check(length_plan_open(&plan, 8, &err) == 0, "a plan");
    for (int i = 0; i < 3; i++)
        length_plan_timed(&plan, 2, 0, 2, 1);
    length_plan_choose(&plan, draft, 2, 2);
    check(draft[0].verified == 0 && draft[1].verified == 3, "%zu and %zu tokens", draft[0].verified,
          draft[1].verified);
    length_plan_close(&plan);
}

static void test_choice(void)
{
    static const double accept[] = {.6, .1, .05};
    const struct row_times flat = {.rows = {1, 64}, .ms = {10, 10}, .n = 2},
                           steep = {.rows = {1, 64}, .ms = {10, 640}, .n = 2},
                           draft = {.rows = {1, 64}, .ms = {1, 1}, .n = 2};
    struct draft_choice c;
    struct err err;
    check(near(row_times_at(&steep, 32), 320, 1e-9) && near(row_times_at(&flat, 128), 20, 1e-9),
          "between times");
    check(draft_autotune(&c, &steep, &draft, accept, 3, 15, 26, &err) == 0 && c.draft_tokens == 0,
          "tokens that cost in full: no drafting, not %zu", c.draft_tokens);
    check(draft_autotune(&c, &flat, NULL, accept, 3, 15, 26, &err) == 0 && c.tree &&
              c.draft_tokens == 26,
          "tokens that cost nothing: the largest tree");
    check(draft_autotune(&c, &flat, &draft, accept, 1, 15, 26, &err) == 0 && !c.tree &&
              c.draft_tokens == 3,
          "one rank and expensive drafting: a chain of 3, not %zu",
          c.draft_tokens); /* 1 + .6 + .36 + .216 in 13 */
}

/* ---- single drafters ---- */

static void test_lookup(void)
{
    static const uint32_t ids[] = {1, 2, 3, 9, 1, 2, 3, 8, 7, 1, 2, 3};
    const struct {
        bool oldest;
        uint32_t want[5];
    } cases[] = {{false, {8, 7, 1, 2, 3}}, {true, {9, 1, 2, 3, 8}}};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct drafter *drafter;
        struct tree_shape shape;
        static struct draft draft;
        tree_chain(&shape, 5);
        draft_begin(&draft, 3);
        const struct draft_request request = {
            .ids = ids, .n_ids = ARRAY_LEN(ids), .shape = &shape, .draft = &draft};
        if (!check(draft_lookup_open(&drafter, 4, 2, cases[i].oldest, &err) == 0, "%s", err.text))
            continue;
        check(drafter->propose(drafter, &request, 1, &err) == 0 && draft.n == 6 &&
                  memcmp(draft.token + 1, cases[i].want, sizeof cases[i].want) == 0,
              "lookup, oldest %d: %zu nodes", cases[i].oldest, draft.n);
        /* If a match reaches the end of the ids, the draft repeats what it has proposed. */
        static const uint32_t loop[] = {5, 6, 5, 6};
        const struct draft_request again = {.ids = loop, .n_ids = 4, .shape = &shape, .draft = &draft};
        draft_begin(&draft, 6);
        check(drafter->propose(drafter, &again, 1, &err) == 0 && draft.n == 6 && draft.token[1] == 5 &&
                  draft.token[4] == 6 && draft.token[5] == 5,
              "lookup in a repetition");
        const struct draft_request none = {.ids = ids, .n_ids = 3, .shape = &shape, .draft = &draft};
        draft_begin(&draft, 3);
        check(drafter->propose(drafter, &none, 1, &err) == 0 && draft.n == 1,
              "lookup without an earlier occurrence");
        drafter_close(drafter);
    }
}

int main(void)
{
    test_sequoia();
    test_tails();
    test_length();
    test_pace();
    test_plan();
    test_gain();
    test_tree_rates();
    test_choice();
    test_lookup();
    return check_result();
}
