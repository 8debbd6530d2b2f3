/* Ranks and the trie of vocabularies with scores. */
#include "text/import/tok_sorted.h"

#include <stdlib.h>

#include "base/text_util.h"

/* A token and its sort keys, since qsort() has no context argument. */
struct sort_token {
    const char *bytes;
    uint32_t len, id;
    double score;
};

static int list_tokens(const struct tok_vocab *vocab, const double *score, struct sort_token **tokens,
                       size_t *count, struct err *err)
{
    *count = 0;
    *tokens = mem_alloc(vocab->ids + (size_t)1, sizeof(*tokens)[0]);
    if (!*tokens)
        return err_no_memory(err, "a vocabulary of %u tokens", vocab->ids);
    for (uint32_t id = 0; id < vocab->ids; id++)
        if (vocab->flags[id] & TOK_MODEL)
            (*tokens)[(*count)++] = (struct sort_token){vocab->bytes + vocab->token_at[id],
                                                        vocab->token_at[id + 1] - vocab->token_at[id],
                                                        id, score ? score[id] : 0};
    return 0;
}

uint32_t tok_vocab_longest(const struct tok_vocab *vocab)
{
    uint32_t longest = 0;
    for (uint32_t id = 0; id < vocab->ids; id++)
        if (vocab->flags[id] & TOK_MODEL && vocab->token_at[id + 1] - vocab->token_at[id] > longest)
            longest = vocab->token_at[id + 1] - vocab->token_at[id];
    return longest;
}

bool tok_vocab_joins_words(const struct tok_vocab *vocab)
{
    for (uint32_t id = 0; id < vocab->ids; id++) {
        size_t at = vocab->token_at[id], end = vocab->token_at[id + 1];
        while (at < end && tok_is_space(vocab->bytes + at, end - at))
            at += 3;
        for (; at < end && vocab->flags[id] & TOK_MODEL; at++)
            if (tok_is_space(vocab->bytes + at, end - at))
                return true;
    }
    return false;
}

static int compare_scores(const void *one, const void *two)
{
    const struct sort_token *a = one, *b = two;
    return a->score > b->score ? -1 : a->score < b->score;
}

int tok_vocab_ranks(const struct tok_vocab *vocab, const double *score, uint32_t *rank, struct err *err)
{
    struct sort_token *tokens;
    size_t count;
    uint32_t next = 0;
    if (list_tokens(vocab, score, &tokens, &count, err) < 0)
        return -1;
    qsort(tokens, count, sizeof tokens[0], compare_scores);
    memset(rank, 0xff, vocab->ids * sizeof rank[0]);
    for (size_t i = 0; i < count; i++) {
        next += i > 0 && tokens[i].score < tokens[i - 1].score;
        rank[tokens[i].id] = next;
    }
    free(tokens);
    return 0;
}

static int compare_bytes(const void *one, const void *two)
{
    const struct sort_token *a = one, *b = two;
    const int order = text_order(a->bytes, a->len, b->bytes, b->len);
    return order ? order : a->id < b->id ? -1 : 1;
}

/* A node of the trie: the sorted tokens [low, high) share their first `depth` bytes. */
struct node {
    uint32_t low, high, depth, run, id;
    uint8_t byte;
};

struct nodes {
    struct node *node;
    size_t count, cap;
};

static int add_node(struct nodes *nodes, struct node node, struct err *err)
{
    if (nodes->count >= TOK_NONE - 1)
        return err_set(err, "too many nodes for the tokenizer's trie");
    if (mem_grow(&nodes->node, &nodes->cap, nodes->count, sizeof nodes->node[0], err) < 0)
        return -1;
    nodes->node[nodes->count++] = node;
    return 0;
}

/* Appends the children of node `at`, and sets the id of the token that ends there. */
static int add_children(struct nodes *nodes, size_t at, const struct sort_token *tokens,
                        struct err *err)
{
    struct node parent = nodes->node[at];
    uint32_t low = parent.low;
    nodes->node[at].run = (uint32_t)nodes->count;
    nodes->node[at].id = TOK_NONE;
    for (; low < parent.high && tokens[low].len == parent.depth; low++)
        nodes->node[at].id = tokens[low].id;
    for (uint32_t end; low < parent.high; low = end) {
        uint8_t byte = (uint8_t)tokens[low].bytes[parent.depth];
        for (end = low + 1; end < parent.high && (uint8_t)tokens[end].bytes[parent.depth] == byte;)
            end++;
        struct node child = {.low = low, .high = end, .depth = parent.depth + 1, .byte = byte};
        if (add_node(nodes, child, err) < 0)
            return -1;
    }
    return 0;
}

static int make_trie(const struct nodes *nodes, struct tok_trie *trie, struct err *err)
{
    trie->nodes = nodes->count;
    trie->run = mem_alloc(nodes->count + 1, sizeof trie->run[0]);
    trie->byte = mem_alloc(nodes->count, sizeof trie->byte[0]);
    trie->id = mem_alloc(nodes->count, sizeof trie->id[0]);
    if (!trie->run || !trie->byte || !trie->id)
        return err_no_memory(err, "a trie of %zu nodes", nodes->count);
    for (size_t i = 0; i < nodes->count; i++) {
        trie->run[i] = nodes->node[i].run;
        trie->byte[i] = nodes->node[i].byte;
        trie->id[i] = nodes->node[i].id;
    }
    trie->run[nodes->count] = (uint32_t)nodes->count;
    return 0;
}

int tok_trie_build(const struct tok_vocab *vocab, struct tok_trie *trie, struct err *err)
{
    struct sort_token *tokens;
    struct nodes nodes = {0};
    size_t count;
    int rc = -1;
    *trie = (struct tok_trie){0};
    if (list_tokens(vocab, NULL, &tokens, &count, err) < 0)
        goto out;
    qsort(tokens, count, sizeof tokens[0], compare_bytes);
    if (add_node(&nodes, (struct node){.high = (uint32_t)count}, err) < 0)
        goto out;
    for (size_t at = 0; at < nodes.count; at++)
        if (add_children(&nodes, at, tokens, err) < 0)
            goto out;
    rc = make_trie(&nodes, trie, err);
out:
    free(tokens);
    free(nodes.node);
    return rc;
}

void tok_trie_release(struct tok_trie *trie)
{
    free(trie->run);
    free(trie->byte);
    free(trie->id);
    *trie = (struct tok_trie){0};
}
