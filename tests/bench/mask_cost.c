/* Times masks of constrained output: mask_cost TOKENS SAMPLES SCHEMAS MODEL.bmc..
 *
 * The vocabulary is the union of the models' vocabularies, the first TOKENS different ones, and pairs
 * of their words if these are not enough. For each
 * schema, a line of the file, SAMPLES texts are generated at random; the first one begins with nothing
 * computed. Prints the number of masks, their median, 99th percentile and maximum in microseconds,
 * over all masks and over those of the first texts; and the time to compile a schema. */
#include <string.h>

#include "base/clock.h"
#include "bench.h"
#include "model/model.h"
#include "text/constrain/constraint.h"

enum { STEPS = 160, TRIES = 6 };

static uint64_t state = 0x9e3779b97f4a7c15u;

static size_t below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state % n);
}

/* Tokens that are already there are marked in a table of hashes. */
static bool is_new(uint32_t *seen, size_t slots, const struct buf *text, const uint32_t *at,
                   uint32_t id)
{
    const char *own = text->data + at[id];
    const size_t len = text->len - at[id];
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)own[i]) * 0x100000001b3ULL;
    size_t slot = (size_t)(hash ^ hash >> 31) & (slots - 1);
    for (; seen[slot]; slot = (slot + 1) & (slots - 1)) {
        const uint32_t other = seen[slot] - 1;
        if (at[other + 1] - at[other] == len && memcmp(text->data + at[other], own, len) == 0)
            return false;
    }
    seen[slot] = id + 1;
    return true;
}

/* True if a token consists of letters, after a space if `space`. */
static bool is_word(const char *text, size_t from, size_t to, bool space)
{
    for (size_t i = from + (space && text[from] == ' '); i < to; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80))
            return false;
    }
    return true;
}

static struct vocab_trie *union_of(size_t most, char **path, size_t n_paths)
{
    enum { SLOTS = 1 << 20 };
    static uint32_t seen[SLOTS];
    uint32_t *at = mem_zalloc(most + 1, sizeof *at), n = 0;
    struct buf text = {0};
    struct vocab_trie *trie;
    struct err err;
    for (size_t i = 0; i < n_paths && n < most; i++) {
        struct model *model;
        if (model_open(&model, path[i], &err) < 0)
            die(&err);
        for (uint32_t id = 0; id < tokenizer_vocab(model->tok) && n < most; id++) {
            at[n] = (uint32_t)text.len;
            if (tokenizer_is_special(model->tok, id))
                continue;
            if (tokenizer_piece(model->tok, id, &text, &err) < 0)
                die(&err);
            at[n + 1] = (uint32_t)text.len;
            if (text.len > at[n] && is_new(seen, SLOTS, &text, at, n))
                n++;
            else
                text.len = at[n];
        }
        model_close(model);
    }
    const size_t from = n; /* two words in one, until there are enough */
    while (n < most) {
        const size_t a = below(from), b = below(from);
        char both[2 * TRIE_TOKEN_BYTES];
        size_t len = 0;
        if (at[a + 1] - at[a] + at[b + 1] - at[b] > 16 || !is_word(text.data, at[a], at[a + 1], true) ||
            !is_word(text.data, at[b], at[b + 1], false))
            continue;
        memcpy(both, text.data + at[a], at[a + 1] - at[a]);
        len += at[a + 1] - at[a];
        memcpy(both + len, text.data + at[b], at[b + 1] - at[b]);
        len += at[b + 1] - at[b];
        at[n] = (uint32_t)text.len;
        if (buf_add(&text, both, len, &err) < 0)
            die(&err);
        at[n + 1] = (uint32_t)text.len;
        if (is_new(seen, SLOTS, &text, at, n))
            n++;
        else
            text.len = at[n];
    }
    printf("# %u tokens, %zu of them of the models, %zu bytes\n", n, from, text.len);
    const double start = clock_ms();
    if (vocab_trie_build(&trie, text.data, at, most, &err) < 0)
        die(&err);
    printf("# trie of %zu nodes in %.1f ms\n", trie->n, clock_ms() - start);
    return trie;
}

/* The shortest of some tokens of a mask, so that texts come to an end; UINT32_MAX: there is none. */
static uint32_t choose(const struct vocab_trie *trie, const uint64_t *mask, size_t words)
{
    uint32_t best = UINT32_MAX;
    size_t best_len = 0;
    for (size_t t = 0; t < TRIES; t++) {
        size_t word = below(words), tries = 0;
        while (!mask[word] && tries++ < words)
            word = (word + 1) % words;
        if (!mask[word])
            return UINT32_MAX;
        uint64_t bits = mask[word];
        for (size_t skip = below((size_t)__builtin_popcountll(bits)); skip > 0; skip--)
            bits &= bits - 1;
        const uint32_t id = (uint32_t)(word * 64 + (size_t)__builtin_ctzll(bits));
        size_t len;
        const char *text = vocab_trie_text(trie, id, &len);
        if (best == UINT32_MAX || *text == '"' || len < best_len) {
            best = id;
            best_len = *text == '"' ? 0 : len;
        }
    }
    return best;
}

struct times {
    double *us;
    size_t n, cap;
};

static void add(struct times *times, double us)
{
    struct err err;
    if (mem_grow(&times->us, &times->cap, times->n, sizeof *times->us, &err) < 0)
        die(&err);
    times->us[times->n++] = us;
}

static void print(const char *what, struct times *times)
{
    const double m = median(times->us, times->n);
    printf("%-12s %8zu masks: median %7.1f us, 99th percentile %7.1f us, most %8.1f us\n", what,
           times->n, m, times->us[times->n * 99 / 100], times->us[times->n - 1]);
}

int main(int argc, char **argv)
{
    static char line[1 << 20];
    struct times all = {0}, first = {0}, compile = {0};
    struct err err;
    if (argc < 5) {
        fprintf(stderr, "usage: mask_cost TOKENS SAMPLES SCHEMAS MODEL.bmc..\n");
        return 2;
    }
    const size_t samples = strtoull(argv[2], NULL, 10);
    struct vocab_trie *trie = union_of(strtoull(argv[1], NULL, 10), argv + 4, (size_t)argc - 4);
    FILE *file = fopen(argv[3], "r");
    size_t memory = 0;
    while (file && fgets(line, sizeof line, file)) {
        struct grammar grammar;
        struct constraint *c;
        const double start = clock_ms();
        if (constraint_source_parse(&grammar, CONSTRAINT_JSON_SCHEMA, line, strlen(line), &err) < 0 ||
            constraint_open(&c, &grammar, trie, &err) < 0)
            die(&err);
        grammar_release(&grammar);
        add(&compile, (clock_ms() - start) * 1e3);
        uint64_t *mask = mem_alloc(constraint_mask_words(c), sizeof *mask);
        for (size_t s = 0; s < samples; s++) {
            struct constraint_cursor cursor = {0};
            if (constraint_begin(&cursor, c, &err) < 0)
                die(&err);
            for (size_t step = 0; step < STEPS; step++) {
                const double at = clock_ms();
                if (constraint_mask(c, cursor.state, mask, &err) < 0)
                    die(&err);
                const double us = (clock_ms() - at) * 1e3;
                const uint32_t id = choose(trie, mask, constraint_mask_words(c));
                add(&all, us);
                if (s == 0)
                    add(&first, us);
                if (id == UINT32_MAX || (constraint_accepts(c, cursor.state) && below(3) == 0))
                    break;
                if (constraint_advance(&cursor, id, &err) < 0)
                    die(&err);
            }
            constraint_end(&cursor);
        }
        memory = size_max(memory, constraint_stats(c).bytes);
        constraint_close(c);
        free(mask);
    }
    print("all", &all);
    print("first texts", &first);
    print("compile", &compile);
    printf("memory of a schema: at most %.1f MiB\n", (double)memory / (1 << 20));
    vocab_trie_close(trie);
    return 0;
}
