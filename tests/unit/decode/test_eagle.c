/* Draft heads against an independent implementation (tests/fixtures/make_heads.py): proposed tokens are
 * equal, their probabilities within 1e-4, for chains, trees and
 * dynamic trees, alone and in a batch.
 *
 *   test_eagle TARGET.bmc HEAD.bmc RESULTS.json */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "decode/spec/drafter.h"
#include "model/draft_head.h"
#include "tests/unit/check.h"
#include "tests/unit/open_json.h"

enum { MOST_CASES = 8, CONTEXT = 128, SHORT_CONTEXT = 30 };

static struct model *target, *head;
static size_t layer[MAX_FEATURES];
static const json_t *results;

static void die_if(int rc, const struct err *err)
{
    if (rc == 0)
        return;
    printf("not ok - %s\n", err->text);
    exit(1);
}

static size_t list_size(const json_t *list, size_t i)
{
    return (size_t)json_integer_value(json_array_get(list, i));
}

/* The shape of which "chain" or "tree" lists the parents; or the limits of "dynamic". */
static struct tree_shape read_shape(const char *name)
{
    const json_t *parents = json_object_get(results, name);
    struct tree_shape shape = {.n = json_array_size(parents)};
    if (json_is_object(parents)) /* only size and levels of a dynamic tree */
        return (struct tree_shape){.n = (size_t)json_integer_value(json_object_get(parents, "nodes")),
                                   .levels =
                                       (size_t)json_integer_value(json_object_get(parents, "levels"))};
    for (size_t i = 1; i < shape.n; i++) {
        const size_t parent = list_size(parents, i);
        if (shape.children[parent] == 0)
            shape.first[parent] = (uint16_t)i;
        shape.parent[i] = (uint16_t)parent;
        shape.rank[i] = shape.children[parent]++;
        shape.depth[i] = (uint16_t)(shape.depth[parent] + 1);
        shape.levels = shape.depth[i] + (size_t)1;
    }
    return shape;
}

/* The target and the head over sequences of the results, one per slot. */
struct head_run {
    struct session *target, *head;
    struct drafter *drafter;
    size_t n_slots;
    uint32_t ids[MOST_CASES][CONTEXT];
    size_t computed[MOST_CASES]; /* tokens that the target has computed */
};

static void open_run(struct head_run *run, size_t n_slots, size_t head_context)
{
    struct err err;
    struct session_options o = {.cpu.attn = attn_find(NULL, &err),
                                .cpu.kernels = kernels_select(NULL, &err),
                                .context = CONTEXT,
                                .batch = n_slots,
                                .chunk = 5,
                                .rows = n_slots * 16,
                                .threads = 1,
                                .threads_prefill = 1};
    *run = (struct head_run){.n_slots = n_slots};
    die_if(kv_spec_parse(&o.kv, "bmc", &err), &err);
    die_if(session_open(&run->target, target, &o, &err), &err);
    o.context = head_context;
    die_if(session_open(&run->head, head, &o, &err), &err);
    die_if(draft_eagle_open(&run->drafter, run->head, run->target, layer, 0.1, &err), &err);
}

static void close_run(struct head_run *run)
{
    drafter_close(run->drafter);
    session_close(run->head);
    session_close(run->target);
}

/* The target computes the tokens of a slot below `end`, a few per pass. */
static void compute(struct head_run *run, size_t slot, size_t end)
{
    struct err err;
    while (run->computed[slot] < end) {
        const size_t from = run->computed[slot], n = size_min(5, end - from);
        size_t row[5];
        row[0] = batch_add(run->target, slot, run->ids[slot] + from, n);
        for (size_t i = 1; i < n; i++)
            row[i] = row[0] + i;
        die_if(session_run(run->target, 1, &err), &err);
        die_if(run->drafter->read_hidden(run->drafter, slot, run->ids[slot], from, row, n, &err), &err);
        run->computed[slot] += n;
    }
}

static void compare(const struct draft *draft, const float *probability, const json_t *want,
                    const char *what, size_t slot, size_t n)
{
    const json_t *tokens = json_object_get(want, "tokens"), *p = json_object_get(want, "probabilities");
    if (!check(draft->n == json_array_size(tokens) + 1, "%s of case %zu at %zu: %zu nodes, %zu wanted",
               what, slot, n, draft->n, json_array_size(tokens) + 1))
        return;
    const json_t *parents = json_object_get(want, "parents");
    for (size_t i = 1; i < draft->n; i++) {
        const double wanted = json_real_value(json_array_get(p, i - 1));
        check(draft->token[i] == list_size(tokens, i - 1),
              "%s of case %zu at %zu: node %zu is %u, not %zu", what, slot, n, i, draft->token[i],
              list_size(tokens, i - 1));
        check(!parents || draft->parent[i] == list_size(parents, i - 1),
              "%s of case %zu at %zu: node %zu has parent %u, not %zu", what, slot, n, i,
              draft->parent[i], list_size(parents, i - 1));
        check(near(probability[i], wanted, 1e-4), "%s of case %zu at %zu: node %zu has %g, not %g",
              what, slot, n, i, (double)probability[i], wanted);
    }
}

/* Drafts for all slots at once at their i-th position of the results. */
static void draft_all(struct head_run *run, size_t i, const char *what, bool compared)
{
    static const struct sampler_options greedy = {.repeat_penalty = 1};
    static struct draft draft[MOST_CASES];
    static float probability[MOST_CASES][TREE_NODES];
    const struct tree_shape shape = read_shape(what);
    struct draft_request request[MOST_CASES];
    const json_t *at[MOST_CASES];
    struct err err;
    for (size_t slot = 0; slot < run->n_slots; slot++) {
        const json_t *c = json_array_get(json_object_get(results, "cases"), slot);
        at[slot] = json_array_get(json_object_get(c, "drafts"), i);
        const size_t n = (size_t)json_integer_value(json_object_get(at[slot], "n"));
        compute(run, slot, n - 1);
        draft_begin(&draft[slot], run->ids[slot][n - 1]);
        request[slot] = (struct draft_request){.slot = slot,
                                               .ids = run->ids[slot],
                                               .n_ids = n,
                                               .shape = &shape,
                                               .draft = &draft[slot],
                                               .sampling = &greedy,
                                               .probability = probability[slot],
                                               .dynamic = strcmp(what, "dynamic") == 0};
    }
    die_if(run->drafter->propose(run->drafter, request, run->n_slots, &err), &err);
    for (size_t slot = 0; slot < run->n_slots && compared; slot++)
        compare(&draft[slot], probability[slot], json_object_get(at[slot], what), what, slot,
                request[slot].n_ids);
}

static void begin(struct head_run *run, size_t slot)
{
    const json_t *c = json_array_get(json_object_get(results, "cases"), slot);
    const json_t *ids = json_object_get(c, "ids");
    session_clear(run->target, slot);
    run->computed[slot] = 0;
    for (size_t i = 0; i < json_array_size(ids); i++)
        run->ids[slot][i] = (uint32_t)list_size(ids, i);
}

/* All results, chains and trees; the second round begins anew in the slots of the first. */
static void test_drafts(size_t n_slots)
{
    const json_t *first = json_array_get(json_object_get(results, "cases"), 0);
    const size_t n = json_array_size(json_object_get(first, "drafts"));
    struct head_run run;
    check(n >= 1, "no drafts");
    open_run(&run, n_slots, CONTEXT);
    for (int round = 0; round < 2; round++) {
        for (size_t slot = 0; slot < n_slots; slot++)
            begin(&run, slot);
        for (size_t i = 0; i < n; i++) {
            draft_all(&run, i, round ? "tree" : "chain", true);
            draft_all(&run, i, round ? "chain" : "tree", true);
            draft_all(&run, i, "dynamic", true);
        }
    }
    close_run(&run);
}

/* A head whose context is full begins a new window; its drafts then lack context, but are complete. */
static void test_full_context(void)
{
    const json_t *first = json_array_get(json_object_get(results, "cases"), 0);
    const size_t n = json_array_size(json_object_get(first, "drafts"));
    struct head_run run;
    open_run(&run, 1, SHORT_CONTEXT);
    begin(&run, 0);
    for (size_t i = 0; i < n; i++) {
        draft_all(&run, i, "tree", i + 1 < n);
        check(session_length(run.head, 0) <= SHORT_CONTEXT, "the head has %zu entries",
              session_length(run.head, 0));
    }
    close_run(&run);
}

int main(int argc, char **argv)
{
    struct err err;
    kernels_setup();
    threads_set(1);
    if (argc != 4)
        return 1;
    results = open_json(argv[3]);
    die_if(model_open(&target, argv[1], &err), &err);
    const bool self = strcmp(argv[2], "self") == 0; /* the target's file has the head */
    die_if(self ? model_open_draft(&head, target, &err) : model_open_any(&head, argv[2], argv[2], &err),
           &err);
    die_if(draft_head_attach(head, target, layer, &err), &err);
    const size_t n_cases = json_array_size(json_object_get(results, "cases"));
    check(n_cases >= 3 && n_cases <= MOST_CASES, "%zu cases", n_cases);
    test_drafts(1);
    test_drafts(n_cases);
    test_full_context();
    model_close(head);
    model_close(target);
    json_decref((json_t *)(uintptr_t)results);
    return check_result();
}
