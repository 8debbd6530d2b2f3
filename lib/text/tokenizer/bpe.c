/* Byte-pair encoding of a pre-token.
 *
 * Initial symbols are bytes (byte-level) or characters; the adjacent pair of lowest rank,
 * leftmost first, is merged until no pair has a rank. Short pre-tokens scan an array of ranks;
 * long ones use a priority queue: O(n log n). */
#include "text/tokenizer/bpe.h"

#include "text/import/byte_alphabet.h"
#include "text/import/tok_unknown.h"
#include "text/utf8.h"

enum { SHORT_UNITS = 40 };

void bpe_release(void *scratch)
{
    struct bpe *bpe = scratch;
    ids_release(&bpe->units);
    merge_queue_release(&bpe->merge_queue);
    *bpe = (struct bpe){0};
}

static const struct tok_merge *find_merge(const struct tokenizer *tok, uint32_t left, uint32_t right)
{
    if (left >= tok->ids)
        return NULL;
    size_t low = tok->run_at[left], high = tok->run_at[left + 1], end = high;
    if (high > tok->merges)
        return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tok->merge[middle].right < right)
            low = middle + 1;
        else
            high = middle;
    }
    if (low >= end || tok->merge[low].right != right || tok->merge[low].result >= tok->ids)
        return NULL;
    return &tok->merge[low];
}

/* The id of an initial symbol, a byte or character; TOK_NONE: not in the vocabulary. */
static uint32_t unit_of(const struct tokenizer *tok, const char *text, size_t len)
{
    if (len == 1)
        return tok->unit[(unsigned char)text[0]];
    return tok_lookup(tok, text, len, false, TOK_MODEL);
}

/* Handles a symbol that is not in the vocabulary: adds byte tokens, the unknown token, or nothing.
 * The unknown token is deferred to the next known symbol (*unknown), as in the tokenizers
 * library. */
static int add_missing(struct bpe *bpe, const char *text, size_t len, bool *unknown, struct err *err)
{
    const struct tokenizer *tok = bpe->tok;
    if (tok->flags & TOK_BYTE_FALLBACK) {
        bool added;
        char letter[UTF8_MAX];
        if (tok->flags & TOK_BYTE_LEVEL) {
            len = utf8_write(byte_alphabet_letter((unsigned char)text[0]), letter);
            text = letter;
        }
        if (tok_add_bytes(tok, text, len, &bpe->units, &added, err) < 0)
            return -1;
        if (added)
            return 0;
    }
    if (tok->flags & TOK_UNK_MISSING)
        return err_set(err, "a character and the unk_token are not in the tokenizer's vocabulary");
    if (tok->unk == TOK_NONE)
        return 0;
    if (*unknown && !(tok->flags & TOK_FUSE_UNK) && ids_add(&bpe->units, tok->unk, err) < 0)
        return -1;
    *unknown = true;
    return 0;
}

static int make_units(struct bpe *bpe, const char *pretoken, size_t len, struct err *err)
{
    const struct tokenizer *tok = bpe->tok;
    bool unknown = false;
    bpe->units.len = 0;
    for (size_t at = 0, step; at < len; at += step) {
        uint32_t code;
        step = tok->flags & TOK_BYTE_LEVEL ? 1 : utf8_decode(pretoken + at, &code);
        uint32_t unit = unit_of(tok, pretoken + at, step);
        if (merge_queue_check(bpe->units.len, err) < 0)
            return -1;
        if (unit >= tok->ids) {
            if (add_missing(bpe, pretoken + at, step, &unknown, err) < 0)
                return -1;
            continue;
        }
        if (unknown && ids_add(&bpe->units, tok->unk, err) < 0)
            return -1;
        unknown = false;
        if (ids_add(&bpe->units, unit, err) < 0)
            return -1;
    }
    return unknown ? ids_add(&bpe->units, tok->unk, err) : 0;
}

static void merge_short(struct bpe *bpe)
{
    const struct tok_merge *pair[SHORT_UNITS]; /* [i]: merge of symbols i and i + 1 */
    uint32_t *unit = bpe->units.id;
    size_t count = bpe->units.len;
    for (size_t i = 0; i + 1 < count; i++)
        pair[i] = find_merge(bpe->tok, unit[i], unit[i + 1]);
    while (count > 1) {
        size_t best = count;
        for (size_t i = 0; i + 1 < count; i++)
            if (pair[i] && (best == count || pair[i]->rank < pair[best]->rank))
                best = i;
        if (best == count)
            break;
        unit[best] = pair[best]->result;
        count--;
        for (size_t i = best + 1; i < count; i++)
            unit[i] = unit[i + 1];
        for (size_t i = best + 1; i + 1 < count; i++)
            pair[i] = pair[i + 1];
        if (best + 1 < count)
            pair[best] = find_merge(bpe->tok, unit[best], unit[best + 1]);
        if (best > 0)
            pair[best - 1] = find_merge(bpe->tok, unit[best - 1], unit[best]);
    }
    bpe->units.len = count;
}

static uint32_t rank_of(void *owner, const struct merge_queue_link *link, uint32_t at, uint32_t *result)
{
    const struct bpe *bpe = owner;
    const struct tok_merge *merge = find_merge(bpe->tok, link[at].id, link[link[at].after].id);
    if (!merge)
        return MERGE_NONE;
    *result = merge->result;
    return merge->rank;
}

static int merge_long(struct bpe *bpe, struct err *err)
{
    size_t count = bpe->units.len;
    if (merge_queue_start(&bpe->merge_queue, count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        bpe->merge_queue.link[i].id = bpe->units.id[i];
    merge_queue_run(&bpe->merge_queue, count, rank_of, bpe);
    bpe->units.len = 0;
    for (uint32_t at = 0; at != MERGE_NONE; at = bpe->merge_queue.link[at].after)
        bpe->units.id[bpe->units.len++] = bpe->merge_queue.link[at].id;
    return 0;
}

int bpe_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
               struct ids *ids, struct err *err)
{
    struct bpe *bpe = scratch;
    if (len == 0)
        return 0;
    bpe->tok = tok;
    if (tok->flags & TOK_IGNORE_MERGES) {
        uint32_t whole = tok_lookup(tok, pretoken, len, false, TOK_MODEL);
        if (whole != TOK_NONE)
            return ids_add(ids, whole, err);
    }
    if (make_units(bpe, pretoken, len, err) < 0)
        return -1;
    if (bpe->units.len <= SHORT_UNITS)
        merge_short(bpe);
    else if (merge_long(bpe, err) < 0)
        return -1;
    return ids_append(ids, &bpe->units, err);
}
