/* The Unigram model, by the Viterbi algorithm over byte positions. Tokens are found by walking
 * the trie; a character without a token of its own becomes the unknown token. Ties and rounding
 * are those of the library whose file it was: SentencePiece or tokenizers. */
#include "text/tokenizer/unigram.h"

#include <stdlib.h>

#include "text/import/tok_unknown.h"
#include "text/utf8.h"

void unigram_release(void *scratch)
{
    struct unigram *unigram = scratch;
    free(unigram->end);
    ids_release(&unigram->path);
    *unigram = (struct unigram){0};
}

static int make_ends(struct unigram *unigram, size_t len, struct err *err)
{
    if (unigram->cap < len + 1) {
        free(unigram->end);
        unigram->end = mem_alloc(len + 1, sizeof unigram->end[0]);
        unigram->cap = unigram->end ? len + 1 : 0;
        if (!unigram->cap)
            return err_no_memory(err, "a piece of text of %zu bytes", len);
    }
    for (size_t i = 0; i <= len; i++)
        unigram->end[i] = (struct lattice_node){.start = TOK_NONE};
    return 0;
}

/* Replaces the best segmentation up to `end` if one that ends with token `id`, from `start`, is
 * better. */
static void relax(const struct tokenizer *tok, struct unigram *unigram, size_t start, size_t end,
                  uint32_t id, double score)
{
    struct lattice_node *known = &unigram->end[end];
    double sum = score + unigram->end[start].score;
    if (tok->flags & TOK_F32_SCORES)
        sum = (float)sum;
    if (known->start == TOK_NONE || sum > known->score)
        *known = (struct lattice_node){sum, (uint32_t)start, id};
}

/* Calls relax() for all tokens that match at `start`; true if one is just the character there. */
static bool relax_tokens(const struct tokenizer *tok, struct unigram *unigram, const char *pretoken,
                         size_t len, size_t start, size_t character)
{
    bool covered = false;
    size_t most = size_min(len - start, tok->longest);
    for (size_t i = 0, node = 0; i < most; i++) {
        uint32_t child = tok_trie_child(tok, (uint32_t)node, pretoken[start + i]);
        if (child == TOK_NONE)
            break;
        node = child;
        uint32_t id = tok->trie_id[node];
        if (id >= tok->ids)
            continue;
        relax(tok, unigram, start, start + i + 1, id, tok->score[id]);
        covered |= i + 1 == character;
    }
    return covered;
}

/* Appends the tokens of the best segmentation of the pre-token. */
static int add_best(const struct tokenizer *tok, struct unigram *unigram, const char *pretoken,
                    size_t len, struct ids *ids, struct err *err)
{
    size_t from = ids->len;
    unigram->path.len = 0;
    for (size_t end = len; end > 0; end = unigram->end[end].start)
        if (ids_add(&unigram->path, (uint32_t)end, err) < 0)
            return -1;
    for (size_t i = unigram->path.len; i-- > 0;) {
        size_t end = unigram->path.id[i], start = unigram->end[end].start;
        uint32_t id = unigram->end[end].id;
        int rc = id == TOK_NONE ? tok_add_unknown(tok, pretoken + start, end - start, from, ids, err)
                                : ids_add(ids, id, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int unigram_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
                   struct ids *ids, struct err *err)
{
    struct unigram *unigram = scratch;
    if (len == 0)
        return 0;
    if (make_ends(unigram, len, err) < 0)
        return -1;
    for (size_t at = 0; at < len;) {
        uint32_t code;
        size_t character = utf8_decode(pretoken + at, &code);
        if (!relax_tokens(tok, unigram, pretoken, len, at, character))
            relax(tok, unigram, at, at + character, TOK_NONE, tok->unk_score);
        at += character;
    }
    return add_best(tok, unigram, pretoken, len, ids, err);
}
