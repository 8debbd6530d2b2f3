/* Draft tokens and their probabilities against an independent implementation of drafting.
 *
 *   test_drafts TARGET.bmc DRAFT.bmc DRAFTS.json    (tests/fixtures/README.md, Drafters) */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/threads.h"
#include "tests/unit/check.h"
#include "decode/spec/drafter.h"

enum { CONTEXT = 64, MOST_IDS = 48 };

__attribute__((noreturn)) static void die(const char *why)
{
    printf("not ok - %s\n", why);
    exit(1);
}

/* A draft of the file: of one prompt, a chain or a tree. */
struct expected_draft {
    uint32_t prompt[MOST_IDS];
    size_t n_prompt;
    struct tree_shape shape;
    uint32_t token[TREE_NODES]; /* of node i of the shape; node 0 is the root */
    double p[TREE_NODES];
};

static json_int_t integer_at(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

/* Reads a draft; `parents` are those of the shape's nodes without the root, which is -1. */
static void read_draft(struct expected_draft *e, const json_t *prompt, const json_t *draft)
{
    const json_t *parents = json_object_get(draft, "parents"), *ids = json_object_get(draft, "ids");
    const json_t *p = json_object_get(draft, "probabilities");
    struct tree_shape *s = &e->shape;
    memset(e, 0, sizeof *e);
    e->n_prompt = json_array_size(prompt);
    s->n = json_array_size(parents) + 1;
    if (s->n < 2 || s->n > TREE_NODES || e->n_prompt == 0 || e->n_prompt > MOST_IDS ||
        json_array_size(ids) != s->n - 1 || json_array_size(p) != s->n - 1)
        die("a draft of the file has lists of different lengths, or no nodes");
    for (size_t i = 0; i < e->n_prompt; i++)
        e->prompt[i] = (uint32_t)integer_at(prompt, i);
    for (size_t i = 1; i < s->n; i++) {
        const json_int_t parent = integer_at(parents, i - 1) + 1;
        if (parent < 0 || (size_t)parent >= i)
            die("a node of the file precedes its parent");
        s->parent[i] = (uint16_t)parent;
        s->rank[i] = s->children[parent]++;
        s->depth[i] = (uint16_t)(s->depth[parent] + 1);
        if (s->rank[i] == 0)
            s->first[parent] = (uint16_t)i;
        e->token[i] = (uint32_t)integer_at(ids, i - 1);
        e->p[i] = json_number_value(json_array_get(p, i - 1));
    }
    s->levels = s->depth[s->n - 1] + 1U;
}

static void draft_for(struct drafter *drafter, const struct expected_draft *e,
                      const struct sampler_options *sampling, struct draft *draft)
{
    const struct draft_request request = {.ids = e->prompt,
                                          .n_ids = e->n_prompt,
                                          .shape = &e->shape,
                                          .draft = draft,
                                          .sampling = sampling,
                                          .keep_q = true};
    struct err err;
    draft_begin(draft, e->prompt[e->n_prompt - 1]);
    if (drafter->propose(drafter, &request, 1, &err) < 0)
        die(err.text);
}

/* Greedy drafts: every node has the expected token. */
static void check_tokens(struct drafter *drafter, const struct expected_draft *e, struct draft *draft,
                         const char *what)
{
    const struct sampler_options greedy = {.repeat_penalty = 1};
    draft_for(drafter, e, &greedy, draft);
    if (!check(draft->n == e->shape.n, "%s: %zu nodes, %zu expected", what, draft->n, e->shape.n))
        return;
    for (size_t i = 1; i < draft->n; i++)
        check(draft->token[i] == e->token[i] && draft->parent[i] == e->shape.parent[i],
              "%s: node %zu is %u below %u, %u below %u expected", what, i, draft->token[i],
              draft->parent[i], e->token[i], e->shape.parent[i]);
}

/* Sampled drafts keep the distributions that they are drawn from, here without truncation. With mask
 * tokens that of a level does not depend on the tokens before, so the expected ones are in it. */
static double check_probabilities(struct drafter *drafter, const struct expected_draft *e,
                                  struct draft *draft, const char *what)
{
    const struct sampler_options sampled = {.temp = 1, .top_p = 1, .repeat_penalty = 1};
    double worst = 0;
    draft_for(drafter, e, &sampled, draft);
    for (size_t i = 1; i < e->shape.n; i++) {
        size_t node = 0;
        while (node + 1 < draft->n && draft->depth[node] + 1 < e->shape.depth[i])
            node++;
        double p = NAN;
        for (size_t c = 0; c < draft->q_n[node]; c++)
            if (draft->pool[draft->q_at[node] + c].id == e->token[i])
                p = draft->pool[draft->q_at[node] + c].p;
        check(near(p, e->p[i], 1e-4), "%s: token %u has probability %.6f, %.6f expected", what,
              e->token[i], p, e->p[i]);
        worst = fmax(worst, fabs(p - e->p[i]));
    }
    return worst;
}

static void test_file(struct drafter *drafter, const char *file)
{
    static const char *const kinds[] = {"chain", "tree"};
    static struct expected_draft e;
    static struct draft draft;
    json_t *root = json_load_file(file, 0, NULL);
    const json_t *cases = json_object_get(root, "cases");
    double worst = 0;
    if (json_array_size(cases) == 0)
        die("no cases in the file");
    for (size_t i = 0; i < json_array_size(cases); i++)
        for (size_t kind = 0; kind < ARRAY_LEN(kinds); kind++) {
            const json_t *of = json_array_get(cases, i);
            char what[64];
            snprintf(what, sizeof what, "case %zu, %s", i, kinds[kind]);
            read_draft(&e, json_object_get(of, "prompt_ids"), json_object_get(of, kinds[kind]));
            check_tokens(drafter, &e, &draft, what);
            worst = fmax(worst, check_probabilities(drafter, &e, &draft, what));
        }
    printf("# probabilities differ by %.1e at most\n", worst);
    free(draft.pool);
    json_decref(root);
}

int main(int argc, char **argv)
{
    struct model *target = NULL, *model = NULL;
    struct session *session = NULL;
    struct drafter *drafter = NULL;
    struct err err;
    kernels_setup();
    threads_set(1);
    struct session_options s = {.cpu.attn = attn_find(NULL, &err),
                                .cpu.kernels = kernels_select(NULL, &err),
                                .context = CONTEXT,
                                .batch = 1,
                                .chunk = CONTEXT,
                                .rows = CONTEXT,
                                .threads = 1,
                                .threads_prefill = 1};
    if (argc != 4)
        die("usage: test_drafts TARGET.bmc DRAFT.bmc DRAFTS.json");
    if (model_open(&target, argv[1], &err) < 0 || model_open(&model, argv[2], &err) < 0 ||
        draft_model_check(target, model, &err) < 0 || kv_spec_parse(&s.kv, "bmc", &err) < 0 ||
        session_open(&session, model, &s, &err) < 0 ||
        draft_model_open(&drafter, session, target->config.vocab, 0.1, &err) < 0)
        die(err.text);
    test_file(drafter, argv[3]);
    drafter_close(drafter);
    session_close(session);
    model_close(model);
    model_close(target);
    return check_result();
}
