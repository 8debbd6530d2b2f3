/* Suffix decoding and combined drafters without a model: hand-calculated drafts, those of an exhaustive
 * search in Python (tests/fixtures/make_suffix.py), and an index that is overwritten.
 *
 *   test_suffix FIXTURES */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "decode/spec/drafter.h"
#include "decode/spec/suffix_index.h"
#include "tests/unit/check.h"

enum { SLOTS = 3 };

/* ---- shapes and drafts ---- */

/* The shape of a tree whose nodes have these parents, in ascending order. */
static void shape_from(struct tree_shape *shape, const uint32_t *parent, size_t n)
{
    *shape = (struct tree_shape){.n = n, .levels = 1};
    for (size_t i = 1; i < n; i++) {
        const size_t p = parent[i];
        if (shape->children[p]++ == 0)
            shape->first[p] = (uint16_t)i;
        shape->parent[i] = (uint16_t)p;
        shape->depth[i] = (uint16_t)(shape->depth[p] + 1);
        shape->levels = size_max(shape->levels, (size_t)shape->depth[i] + 1);
    }
}

/* Compares the draft that follows ids with tokens and parents of its nodes, the root left out. */
static void check_draft(struct drafter *drafter, size_t slot, const struct ids *ids,
                        const struct tree_shape *shape, const uint32_t *token, const uint32_t *parent,
                        size_t n, const char *what)
{
    static struct draft draft;
    struct err err;
    const struct draft_request request = {
        .slot = slot, .ids = ids->id, .n_ids = ids->len, .shape = shape, .draft = &draft};
    draft_begin(&draft, ids->id[ids->len - 1]);
    if (!check(drafter->propose(drafter, &request, 1, &err) == 0 && draft.n == n + 1,
               "%s: %zu draft tokens, %zu expected", what, draft.n - 1, n))
        return;
    for (size_t i = 0; i < n; i++)
        check(draft.token[i + 1] == token[i] && draft.parent[i + 1] == (parent ? parent[i] : i),
              "%s: token %zu is %u below %u", what, i + 1, draft.token[i + 1], draft.parent[i + 1]);
}

#define IDS(...)                                                                                       \
    (struct ids)                                                                                       \
    {                                                                                                  \
        .id = (uint32_t[]){__VA_ARGS__}, .len = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)   \
    }

static struct drafter *open_suffix(const struct ids *corpus)
{
    struct drafter *drafter;
    struct err err;
    if (!check(draft_suffix_open(&drafter, SLOTS, 1 << 12, corpus, &err) == 0, "%s", err.text))
        exit(check_result());
    return drafter;
}

static void learn(struct drafter *drafter, size_t slot, const struct ids *ids)
{
    drafter->learn(drafter, slot, ids->id, ids->len);
}

/* ---- drafts by hand ---- */

static void test_counts(void)
{
    /* 1 2 occurred three times: 3 follows each, then 4, 5 and 4. */
    const struct ids ids = IDS(1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3, 4, 9, 1, 2);
    static const uint32_t parents[] = {0, 0, 1, 1, 2, 2, 3}, levels[] = {0, 1, 1, 2, 2, 3};
    struct tree_shape shape;
    struct drafter *drafter = open_suffix(NULL);
    tree_chain(&shape, 5);
    /* of 9 and 1, which follow 3 4 once each, the latest */
    check_draft(drafter, 0, &ids, &shape, (uint32_t[]){3, 4, 9, 1, 2}, NULL, 5, "chain");
    shape_from(&shape, parents, 7);
    check_draft(drafter, 0, &ids, &shape, (uint32_t[]){3, 4, 5, 9, 1, 1}, levels, 6, "tree");
    tree_star(&shape, 4);
    check_draft(drafter, 0, &ids, &shape, (uint32_t[]){3}, NULL, 1, "star");
    drafter_close(drafter);
}

static void test_sources(void)
{
    const struct ids other = IDS(7, 8, 9, 10, 11, 12), shorter = IDS(3, 8, 9), none = IDS(8, 7, 3),
                     one = IDS(8), loop = IDS(5, 6, 5, 6), corpus = IDS(20, 21, 22, 23),
                     from_corpus = IDS(5, 20, 21);
    struct tree_shape shape;
    struct drafter *drafter = open_suffix(&corpus);
    tree_chain(&shape, 5);
    learn(drafter, 0, &other);
    check_draft(drafter, 1, &shorter, &shape, (uint32_t[]){10, 11, 12}, NULL, 3, "another sequence");
    check_draft(drafter, 1, &none, &shape, NULL, NULL, 0, "no match of two tokens");
    check_draft(drafter, 1, &one, &shape, NULL, NULL, 0, "a sequence of one token");
    check_draft(drafter, 2, &loop, &shape, (uint32_t[]){5, 6, 5, 6, 5}, NULL, 5, "a repetition");
    check_draft(drafter, 2, &from_corpus, &shape, (uint32_t[]){22, 23}, NULL, 2, "the corpus");
    /* The slot's next sequence does not continue the one before. */
    const struct ids joined = IDS(4, 12, 3), next = IDS(30, 31, 32);
    learn(drafter, 0, &next);
    check_draft(drafter, 1, &joined, &shape, NULL, NULL, 0, "the end of a sequence");
    drafter_close(drafter);

    /* The others go on with 4, the sequence itself with 3, which is certain there: a score of 1. */
    drafter = open_suffix(NULL);
    const struct ids others = IDS(1, 2, 4, 50, 1, 2, 4, 51, 1, 2, 4, 52), own = IDS(1, 2, 3, 60, 1, 2),
                     new = IDS(70, 1, 2);
    tree_chain(&shape, 1);
    learn(drafter, 0, &others);
    check_draft(drafter, 1, &own, &shape, (uint32_t[]){3}, NULL, 1, "the sequence itself");
    check_draft(drafter, 2, &new, &shape, (uint32_t[]){4}, NULL, 1, "the most frequent");
    drafter_close(drafter);
}

static void test_limits(void)
{
    enum { N = 43, MATCH = 2 };
    uint32_t text[N], want[N];
    struct tree_shape shape;
    struct drafter *drafter = open_suffix(NULL);
    for (uint32_t i = 0; i < N; i++)
        text[i] = i < 40 ? i + 1 : i == 40 ? 99 : i - 40;
    for (uint32_t i = 0; i < N; i++)
        want[i] = i + 3;
    tree_chain(&shape, 32);
    check_draft(drafter, 0, &(struct ids){.id = text, .len = N}, &shape, want, NULL, 4 * MATCH,
                "four times the match");
    drafter_close(drafter);

    /* 1 2 is followed 60 times by 5, then 32 times by 6: only the last 32 count. */
    struct ids many = {0};
    struct err err;
    for (uint32_t i = 0; i < 92; i++)
        if (ids_add(&many, 1, &err) < 0 || ids_add(&many, 2, &err) < 0 ||
            ids_add(&many, i < 60 ? 5 : 6, &err) < 0 || ids_add(&many, 100 + i, &err) < 0)
            exit(1);
    if (ids_add(&many, 1, &err) < 0 || ids_add(&many, 2, &err) < 0)
        exit(1);
    drafter = open_suffix(NULL);
    tree_star(&shape, 2);
    check_draft(drafter, 0, &many, &shape, (uint32_t[]){6}, NULL, 1, "the latest occurrences");
    drafter_close(drafter);
    ids_release(&many);
}

/* ---- the reference ---- */

/* Reads a line of ids; "-" is an empty list. */
static const char *read_line(const char *at, const char *end, struct ids *ids)
{
    char line[4096];
    struct err err;
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    const size_t len = stop ? (size_t)(stop - at) : 0;
    ids->len = 0;
    if (!stop || len >= sizeof line)
        exit(1);
    memcpy(line, at, len);
    line[len] = 0;
    if (strcmp(line, "-") != 0 && ids_parse(ids, line, &err) < 0)
        exit(1);
    return stop + 1;
}

/* Adds sequences that are separated by 0. */
static void learn_all(struct drafter *drafter, const struct ids *earlier)
{
    for (size_t from = 0, to; from < earlier->len; from = to + 1) {
        for (to = from; earlier->id[to] != 0;)
            to++;
        drafter->learn(drafter, 0, NULL, 0); /* ends the sequence before */
        drafter->learn(drafter, 0, earlier->id + from, to - from);
    }
}

static void test_reference(const char *fixtures)
{
    enum { EARLIER, CORPUS, SEQUENCE, PARENTS, TOKENS, WANT, LINES };
    struct ids line[LINES] = {{0}};
    struct file_map map;
    struct err err;
    char path[4096], what[32];
    size_t cases = 0;
    snprintf(path, sizeof path, "%s/suffix.txt", fixtures);
    if (!check(file_map(&map, path, &err) == 0, "%s", err.text))
        return;
    const char *at = (const char *)map.data, *end = at + map.size;
    while (at < end) {
        uint32_t parent[TREE_NODES] = {0};
        struct tree_shape shape;
        for (size_t i = 0; i < LINES; i++)
            at = read_line(at, end, &line[i]);
        memcpy(parent + 1, line[PARENTS].id, line[PARENTS].len * sizeof *parent);
        shape_from(&shape, parent, line[PARENTS].len + 1);
        snprintf(what, sizeof what, "reference case %zu", cases++);
        struct drafter *drafter = open_suffix(&line[CORPUS]);
        learn_all(drafter, &line[EARLIER]);
        check_draft(drafter, 1, &line[SEQUENCE], &shape, line[TOKENS].id, line[WANT].id,
                    line[TOKENS].len, what);
        drafter_close(drafter);
    }
    check(cases == 200, "%zu cases", cases);
    for (size_t i = 0; i < LINES; i++)
        ids_release(&line[i]);
    file_unmap(&map);
}

/* ---- an index that is overwritten ---- */

enum { SEQUENCES = 6, LENGTH = 400, STEPS = 3000, POSITIONS = 1 << 20 };

/* What was added at each position, and the positions before and after it in its sequence. */
static struct shadow {
    uint32_t token, prev, next;
} shadow[POSITIONS];

/* Appends a token to a text and to its sequence in the index. */
static void append(struct suffix_index *index, struct suffix_sequence *sequence, uint32_t *text,
                   size_t *len, uint32_t token)
{
    const uint32_t before = *len ? sequence->last : 0;
    text[(*len)++] = token;
    suffix_index_follow(index, sequence, text, *len);
    if (sequence->last >= POSITIONS)
        exit(1);
    shadow[sequence->last] = (struct shadow){.token = token, .prev = before};
    shadow[before].next = sequence->last;
}

/* True if the occurrence was added as it was found, and the next token, too. */
static bool is_right(const struct suffix_index *index, const struct suffix_occurrence *found,
                     const uint32_t *ids, size_t n)
{
    uint32_t at = found->at, token = 0;
    if (found->length < SUFFIX_MIN || found->length > SUFFIX_DEPTH ||
        !suffix_index_next(index, &at, &token) || at != shadow[found->at].next ||
        token != shadow[at].token)
        return false;
    at = found->at;
    for (size_t i = 1; i <= found->length; i++, at = shadow[at].prev)
        if (at == 0 || shadow[at].token != ids[n - i])
            return false;
    return true;
}

/* Several sequences that grow and begin anew in a small ring. */
static void test_overwriting(size_t capacity, uint64_t state)
{
    static uint32_t text[SEQUENCES][LENGTH];
    struct suffix_sequence sequence[SEQUENCES] = {{0}};
    size_t len[SEQUENCES] = {0}, n_found = 0;
    struct suffix_index *index;
    struct err err;
    if (!check(suffix_index_open(&index, capacity, &err) == 0, "%s", err.text))
        return;
    for (size_t step = 0; step < STEPS; step++) {
        struct suffix_occurrence found[SUFFIX_OCCURRENCES];
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        const size_t s = state % SEQUENCES, more = 1 + state / 8 % 70;
        for (size_t i = 0; i < more; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            if (len[s] == LENGTH) {
                len[s] = 0;
                suffix_index_follow(index, &sequence[s], NULL, 0);
            }
            append(index, &sequence[s], text[s], &len[s], 1 + state % 5 % 4);
        }
        const size_t n = suffix_index_find(index, text[s], len[s], found);
        for (size_t i = 0; i < n; i++)
            check(is_right(index, &found[i], text[s], len[s]), "capacity %zu, step %zu: occurrence %zu",
                  capacity, step, i);
        n_found += n;
    }
    check(n_found > STEPS, "capacity %zu: %zu found", capacity, n_found);
    suffix_index_close(index);
}

static void test_eviction(void)
{
    enum { N = 200 };
    uint32_t text[N];
    struct suffix_sequence sequence = {0};
    struct suffix_occurrence found[SUFFIX_OCCURRENCES];
    struct suffix_index *index;
    struct err err;
    for (uint32_t i = 0; i < N; i++)
        text[i] = i;
    if (!check(suffix_index_open(&index, 64, &err) == 0, "%s", err.text))
        return;
    suffix_index_follow(index, &sequence, text, N);
    check(suffix_index_find(index, text + 9, 3, found) == 0, "overwritten tokens are not found");
    check(suffix_index_find(index, text + 179, 3, found) == 1 && found[0].length == 3,
          "the last tokens are found");
    check(suffix_index_find(index, text + 198, 2, found) == 0, "no token follows the last one");
    suffix_index_close(index);
}

/* ---- combined drafters ---- */

/* Drafts a chain of a given depth of one token, and counts. */
struct fake {
    struct drafter drafter;
    uint32_t token;
    size_t depth, proposed, closed;
};

static int fake_propose(struct drafter *drafter, const struct draft_request *request, size_t n,
                        struct err *err)
{
    struct fake *fake = (struct fake *)drafter;
    (void)err;
    for (size_t a = 0; a < n; a++)
        for (size_t i = 0; i < size_min(fake->depth, request[a].shape->levels - 1); i++)
            draft_add(request[a].draft, i, fake->token, i + 1);
    fake->proposed += n;
    return 0;
}

static void fake_close(struct drafter *drafter) { ((struct fake *)drafter)->closed++; }

/* Steps of the combined drafter, of which each part's draft has so many tokens accepted; returns how
 * many drafts were the first part's, and adds to *drafted. */
static size_t steps(struct drafter *drafter, const struct fake part[2], size_t first_accepted,
                    size_t second_accepted, size_t *n_ids, size_t n, size_t *drafted)
{
    static struct draft draft;
    static const uint32_t ids[1000];
    struct tree_shape shape;
    struct err err;
    size_t first = 0;
    tree_chain(&shape, 4);
    for (size_t i = 0; i < n; i++) {
        drafter->learn(drafter, 0, ids, ++*n_ids);
        draft_begin(&draft, 0);
        const struct draft_request request = {
            .ids = ids, .n_ids = *n_ids, .shape = &shape, .draft = &draft};
        check(drafter->propose(drafter, &request, 1, &err) == 0, "%s", err.text);
        const bool is_first = draft.n > 1 && draft.token[1] == part[0].token;
        first += is_first;
        *drafted += draft.n - 1;
        drafter->verified(drafter, 0, &draft,
                          size_min(is_first ? first_accepted : second_accepted, draft.n - 1));
    }
    return first;
}

static void test_combined(void)
{
    struct fake part[2] = {
        {.drafter = {.name = "a", .propose = fake_propose, .close = fake_close},
         .token = 1,
         .depth = 4},
        {.drafter = {.name = "b", .propose = fake_propose, .close = fake_close, .cost = 0.1},
         .token = 2,
         .depth = 4},
    };
    struct drafter *drafter;
    struct err err;
    size_t n_ids = 5;
    if (!check(draft_combined_open(&drafter, &part[0].drafter, &part[1].drafter, 2, &err) == 0, "%s",
               err.text))
        return;
    check(strcmp(drafter->name, "a+b") == 0, "name %s", drafter->name);
    /* As good as each other: the one that costs nothing, but for one step in 16. */
    size_t drafted = 0, first = steps(drafter, part, 2, 2, &n_ids, 64, &drafted);
    check(first == 60, "equal: %zu drafts of the first", first);
    first = steps(drafter, part, 0, 4, &n_ids, 64, &drafted);
    check(first > 3 && first < 16, "first fails: %zu of its drafts", first);
    first = steps(drafter, part, 4, 0, &n_ids, 64, &drafted);
    check(first > 40 && first < 64, "second fails: %zu drafts of the first", first);
    n_ids = 5; /* a new sequence: the rates of the run count, until its own are known */
    part[0].depth = 0;
    first = steps(drafter, part, 0, 4, &n_ids, 32, &drafted);
    check(first == 0, "first finds nothing: %zu", first);
    drafted = 0;
    steps(drafter, part, 0, 4, &n_ids, 16, &drafted);
    check(drafted == 64, "all accepted: %zu draft tokens in 16 steps", drafted);
    steps(drafter, part, 0, 0, &n_ids, 64, &drafted);
    drafted = 0;
    steps(drafter, part, 0, 0, &n_ids, 64, &drafted);
    check(drafted == 4, "none accepted: %zu draft tokens in 64 steps", drafted);
    drafter_close(drafter);
    check(part[0].closed == 1 && part[1].closed == 1, "both are closed");
}

int main(int argc, char **argv)
{
    const uint64_t state = check_state(check_seed(31));
    test_counts();
    test_sources();
    test_limits();
    if (check(argc > 1, "usage: test_suffix FIXTURES"))
        test_reference(argv[1]);
    test_eviction();
    test_overwriting(40, state);
    test_overwriting(200, state);
    test_overwriting(3000, state);
    test_combined();
    return check_result();
}
