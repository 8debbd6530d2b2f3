/* Building the trie of a vocabulary. */
#include "text/constrain/vocab_trie.h"

#include <pthread.h>

/* Characters that grammars often tell apart have groups of their own. */
static uint8_t group_of_byte[128];
static pthread_once_t groups_once = PTHREAD_ONCE_INIT;

static void set_groups(void)
{
    static const struct {
        uint8_t first, last;
    } spans[] = {{0x00, 0x08}, {'\t', '\t'}, {'\n', '\n'}, {0x0b, 0x1f}, {' ', ' '}, {'0', '0'},
                 {'1', '9'},   {'A', 'F'},   {'G', 'Z'},   {'a', 'f'},   {'g', 'z'}, {0x7f, 0x7f}};
    uint8_t n = 0;
    for (size_t b = 0; b < 128; b++)
        group_of_byte[b] = UINT8_MAX;
    for (size_t i = 0; i < ARRAY_LEN(spans); i++, n++)
        for (size_t b = spans[i].first; b <= spans[i].last; b++)
            group_of_byte[b] = n;
    for (size_t b = 0; b < 128; b++)
        if (group_of_byte[b] == UINT8_MAX)
            group_of_byte[b] = n++;
}

const uint8_t *vocab_trie_groups(void)
{
    pthread_once(&groups_once, set_groups);
    return group_of_byte;
}

bool utf8_rest_begin(uint8_t byte, struct utf8_rest *rest)
{
    static const struct {
        uint8_t from, to, first, last, n;
    } leads[] = {{0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2}, {0xe1, 0xec, 0x80, 0xbf, 2},
                 {0xed, 0xed, 0x80, 0x9f, 2}, {0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3},
                 {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};
    for (size_t i = 0; i < ARRAY_LEN(leads); i++)
        if (byte >= leads[i].from && byte <= leads[i].to) {
            *rest = (struct utf8_rest){leads[i].first, leads[i].last, leads[i].n};
            return true;
        }
    return false;
}

static int by_text(const void *a, const void *b, void *arg)
{
    const struct vocab_trie *trie = arg;
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    size_t n, m;
    const char *s = vocab_trie_text(trie, x, &n), *t = vocab_trie_text(trie, y, &m);
    const int order = memcmp(s, t, size_min(n, m));
    return order ? order : n != m ? (n > m) - (n < m) : (x > y) - (x < y);
}

static size_t common_prefix(const char *s, size_t n, const char *t, size_t m)
{
    size_t same = 0;
    while (same < n && same < m && s[same] == t[same])
        same++;
    return same;
}

/* Number of nodes: the root, and for each token the bytes that the one before it has not. */
static size_t count_nodes(const struct vocab_trie *trie)
{
    size_t n = 1, before_len = 0, len;
    const char *before = "";
    for (size_t i = 0; i < trie->n_order; i++, before_len = len) {
        const char *text = vocab_trie_text(trie, trie->order[i], &len);
        n += len - common_prefix(before, before_len, text, len);
        before = text;
    }
    return n;
}

/* Nodes while the trie is built: in depth-first order, so that those below node n are n + 1 .. end[n]. */
struct building {
    struct trie_node *node; /* [n] */
    uint32_t *end, *at;     /* [n]; at: numbers in the finished trie */
    uint16_t *depth;
    size_t n;
};

static void end_node(struct building *b, uint32_t node, size_t next, size_t rank)
{
    b->end[node] = (uint32_t)next;
    b->node[node].last = (uint32_t)rank;
}

static void fill_nodes(struct building *b, const struct vocab_trie *trie)
{
    uint32_t path[TRIE_TOKEN_BYTES + 1] = {0};
    size_t n = 1, before_len = 0, len;
    const char *before = "";
    for (size_t i = 0; i < trie->n_order; i++, before_len = len) {
        const char *text = vocab_trie_text(trie, trie->order[i], &len);
        const size_t same = common_prefix(before, before_len, text, len);
        for (size_t d = before_len; d > same; d--)
            end_node(b, path[d], n, i);
        for (size_t d = same + 1; d <= len; d++) {
            path[d] = (uint32_t)n;
            b->depth[n] = (uint16_t)d;
            b->node[n].byte = (uint8_t)text[d - 1];
            b->node[n++].first = (uint32_t)i;
        }
        before = text;
    }
    for (size_t d = before_len + 1; d-- > 0;)
        end_node(b, path[d], n, trie->n_order);
}

/* Sets the group of each node's own byte, that of its character, which may not be complete; and the number of
 * characters. */
static void set_own_groups(struct building *b)
{
    static const struct utf8_rest complete;
    const uint8_t *group = vocab_trie_groups();
    struct utf8_rest rest[TRIE_TOKEN_BYTES + 1] = {complete};
    uint16_t chars[TRIE_TOKEN_BYTES + 1] = {0};
    for (size_t n = 1; n < b->n; n++) {
        const uint8_t byte = b->node[n].byte;
        const size_t depth = b->depth[n];
        const struct utf8_rest *before = &rest[depth - 1];
        struct utf8_rest *after = &rest[depth];
        unsigned own = TRIE_INVALID;
        const bool begins = !before->n;
        *after = complete;
        if (before->n && byte >= before->first && byte <= before->last) {
            *after = (struct utf8_rest){0x80, 0xbf, (uint8_t)(before->n - 1)};
            own = TRIE_OTHER;
        } else if (!before->n && byte < 0x80) {
            own = group[byte];
        } else if (!before->n && utf8_rest_begin(byte, after)) {
            own = TRIE_OTHER;
        }
        chars[depth] = (uint16_t)(chars[depth - 1] + begins);
        b->node[n].groups = (uint64_t)1 << own;
        b->node[n].chars = chars[depth];
    }
}

/* Sets groups and depths below the nodes, children before parents. */
static void sum_up(struct building *b)
{
    set_own_groups(b);
    for (size_t n = b->n; n-- > 0;) {
        struct trie_node *node = &b->node[n];
        for (size_t child = n + 1; child < b->end[n]; child = b->end[child]) {
            node->groups |= b->node[child].groups; /* with its own for its parent, until below */
            node->below = (uint16_t)size_max(node->below, (size_t)b->node[child].below + 1);
        }
    }
}

/* Puts the nodes side by side with their siblings, and leaves each node's own byte out of its groups. */
static void arrange(struct vocab_trie *trie, struct building *b)
{
    uint32_t next = 1;
    for (size_t n = 0; n < b->n; n++) { /* children are later */
        struct trie_node *node = &trie->node[b->at[n]];
        *node = b->node[n];
        node->child = next;
        node->groups = 0;
        for (size_t child = n + 1; child < b->end[n]; child = b->end[child], node->n_children++) {
            node->groups |= b->node[child].groups;
            b->at[child] = next++;
        }
        const uint32_t own = node->n_children ? b->node[n + 1].first : node->last;
        for (uint32_t rank = node->first; rank < own; rank++)
            trie->chars[rank] = node->chars;
    }
}

static int build_nodes(struct vocab_trie *trie, struct err *err)
{
    struct building b = {.n = trie->n};
    b.node = mem_zalloc(b.n, sizeof *b.node);
    b.end = mem_zalloc(b.n, sizeof *b.end);
    b.at = mem_zalloc(b.n, sizeof *b.at);
    b.depth = mem_zalloc(b.n, sizeof *b.depth);
    trie->node = mem_alloc(trie->n, sizeof *trie->node);
    trie->chars = mem_zalloc(trie->n_order + 1, sizeof *trie->chars);
    const bool ok = b.node && b.end && b.at && b.depth && trie->node && trie->chars;
    if (ok) {
        fill_nodes(&b, trie);
        sum_up(&b);
        arrange(trie, &b);
    }
    free(b.node);
    free(b.end);
    free(b.at);
    free(b.depth);
    return ok ? 0 : err_no_memory(err, "a trie of %zu tokens", trie->n_order);
}

static int build(struct vocab_trie *trie, struct err *err)
{
    size_t len;
    trie->order = mem_alloc(trie->vocab + 1, sizeof *trie->order);
    if (!trie->order)
        return err_no_memory(err, "%zu tokens", trie->vocab);
    for (uint32_t id = 0; id < trie->vocab; id++) {
        (void)vocab_trie_text(trie, id, &len);
        if (len > 0 && len <= TRIE_TOKEN_BYTES)
            trie->order[trie->n_order++] = id;
    }
    qsort_r(trie->order, trie->n_order, sizeof *trie->order, by_text, trie);
    trie->n = count_nodes(trie);
    return build_nodes(trie, err);
}

int vocab_trie_build(struct vocab_trie **out, char *text, uint32_t *at, size_t vocab, struct err *err)
{
    struct vocab_trie *trie = *out = mem_zalloc(1, sizeof *trie);
    if (!trie) {
        free(text);
        free(at);
        return err_no_memory(err, "a trie of %zu tokens", vocab);
    }
    *trie = (struct vocab_trie){.vocab = vocab, .text = text, .text_at = at};
    if (build(trie, err) == 0)
        return 0;
    vocab_trie_close(trie);
    *out = NULL;
    return -1;
}

int vocab_trie_open(struct vocab_trie **out, const struct tokenizer *tok, size_t vocab, struct err *err)
{
    struct buf text = {0};
    uint32_t *at = mem_zalloc(vocab + 1, sizeof *at);
    *out = NULL;
    if (!at)
        return err_no_memory(err, "%zu tokens", vocab);
    for (uint32_t id = 0; id < vocab; id++) {
        at[id] = (uint32_t)text.len;
        if (id < tokenizer_vocab(tok) && !tokenizer_is_special(tok, id) &&
            (tokenizer_piece(tok, id, &text, err) < 0 || text.len > UINT32_MAX)) {
            free(at);
            buf_release(&text);
            return err_prefix(err, "token %u", id);
        }
    }
    at[vocab] = (uint32_t)text.len;
    if (!text.data && buf_add(&text, "", 1, err) < 0) { /* no token has bytes */
        free(at);
        return -1;
    }
    return vocab_trie_build(out, text.data, at, vocab, err);
}

void vocab_trie_close(struct vocab_trie *trie)
{
    if (!trie)
        return;
    free(trie->node);
    free(trie->order);
    free(trie->chars);
    free(trie->text_at);
    free(trie->text);
    free(trie);
}
