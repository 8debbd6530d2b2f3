/* The unigram model: a piece of text -> the ids whose scores add up to the most (Viterbi).
 *
 * From left to right, each character's place knows the best way to get there; every token that begins
 * there (a walk down the trie finds them) offers a way to where it ends, and a way that is not better
 * than the one known loses. A character that is no token by itself offers the unknown token. Which of
 * two equal ways wins, and how sums are rounded, is as in the library that the file is of. */
#include "text/unigram.h"

#include <stdlib.h>

#include "text/tok_unknown.h"
#include "text/utf8.h"

void unigram_release(void *room)
{
    struct unigram *unigram = room;
    free(unigram->end);
    ids_release(&unigram->cuts);
    *unigram = (struct unigram){0};
}

static int make_ends(struct unigram *unigram, size_t len, struct err *err)
{
    if (unigram->cap < len + 1) {
        free(unigram->end);
        unigram->end = mem_alloc(len + 1, sizeof unigram->end[0]);
        unigram->cap = unigram->end ? len + 1 : 0;
        if (!unigram->cap)
            return err_set(err, "out of memory: a piece of text of %zu bytes", len);
    }
    for (size_t i = 0; i <= len; i++)
        unigram->end[i] = (struct unigram_end){.start = TOK_NONE};
    return 0;
}

/* A token from `start` to `end`, of this score. */
static void offer(const struct tokenizer *tok, struct unigram *unigram, size_t start, size_t end,
                  uint32_t id, double score)
{
    struct unigram_end *known = &unigram->end[end];
    double sum = score + unigram->end[start].score;
    if (tok->flags & TOK_SINGLE)
        sum = (float)sum;
    if (known->start == TOK_NONE || sum > known->score)
        *known = (struct unigram_end){sum, (uint32_t)start, id};
}

/* Offers all tokens that begin at `start`; true when one of them is its first character alone. */
static bool offer_tokens(const struct tokenizer *tok, struct unigram *unigram, const char *piece,
                         size_t len, size_t start, size_t character)
{
    bool covered = false;
    size_t most = size_min(len - start, tok->longest);
    for (size_t i = 0, node = 0; i < most; i++) {
        uint32_t child = tok_trie_child(tok, (uint32_t)node, piece[start + i]);
        if (child == TOK_NONE)
            break;
        node = child;
        uint32_t id = tok->trie_id[node];
        if (id >= tok->ids)
            continue;
        offer(tok, unigram, start, start + i + 1, id, tok->score[id]);
        covered |= i + 1 == character;
    }
    return covered;
}

/* Appends the tokens of the best way to the end. */
static int add_best(const struct tokenizer *tok, struct unigram *unigram, const char *piece, size_t len,
                    struct ids *ids, struct err *err)
{
    size_t from = ids->len;
    unigram->cuts.len = 0;
    for (size_t end = len; end > 0; end = unigram->end[end].start)
        if (ids_add(&unigram->cuts, (uint32_t)end, err) < 0)
            return -1;
    for (size_t i = unigram->cuts.len; i-- > 0;) {
        size_t end = unigram->cuts.id[i], start = unigram->end[end].start;
        uint32_t id = unigram->end[end].id;
        int rc = id == TOK_NONE ? tok_add_unknown(tok, piece + start, end - start, from, ids, err)
                                : ids_add(ids, id, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int unigram_encode(const struct tokenizer *tok, void *room, const char *piece, size_t len,
                   struct ids *ids, struct err *err)
{
    struct unigram *unigram = room;
    if (len == 0)
        return 0;
    if (make_ends(unigram, len, err) < 0)
        return -1;
    for (size_t at = 0; at < len;) {
        uint32_t code;
        size_t character = utf8_decode(piece + at, &code);
        if (!offer_tokens(tok, unigram, piece, len, at, character))
            offer(tok, unigram, at, at + character, TOK_NONE, tok->unk_score);
        at += character;
    }
    return add_best(tok, unigram, piece, len, ids, err);
}
