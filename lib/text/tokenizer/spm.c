/* SentencePiece's BPE, as in Llama's tokenizer.
 *
 * Initial symbols are characters; the adjacent pair whose concatenation is the token with the
 * best score, leftmost first, is merged until no pair forms a token. Unused tokens take part but
 * are split again at the end. If no token spans words, words are encoded one by one: same
 * result, faster. */
#include "text/tokenizer/spm.h"

#include <stdlib.h>

#include "text/import/tok_unknown.h"
#include "text/utf8.h"

void spm_release(void *scratch)
{
    struct spm *spm = scratch;
    merge_queue_release(&spm->merge_queue);
    ids_release(&spm->start);
    free(spm->left);
    free(spm->inside);
    *spm = (struct spm){0};
}

/* Byte offset of the end of symbol `at`. */
static size_t end_of(const struct spm *spm, const struct merge_queue_link *link, uint32_t at)
{
    return link[at].after == MERGE_NONE ? spm->len : spm->start.id[link[at].after];
}

static uint32_t find(const struct spm *spm, size_t start, size_t len)
{
    if (len > spm->tok->longest)
        return TOK_NONE;
    return tok_lookup(spm->tok, spm->text + start, len, false, TOK_MODEL);
}

static uint32_t rank_of(void *owner, const struct merge_queue_link *link, uint32_t at, uint32_t *result)
{
    struct spm *spm = owner;
    uint32_t right = link[at].after, start = spm->start.id[at];
    *result = find(spm, start, end_of(spm, link, right) - start);
    if (*result == TOK_NONE)
        return MERGE_NONE;
    if (spm->left && tok_flags(spm->tok, *result) & TOK_UNUSED) {
        spm->left[*result] = spm->start.id[right] - start;
        spm->formed_unused = true;
    }
    return spm->tok->rank[*result];
}

static int make_symbols(struct spm *spm, struct err *err)
{
    spm->start.len = 0;
    for (size_t at = 0; at < spm->len;) {
        uint32_t code;
        if (ids_add(&spm->start, (uint32_t)at, err) < 0 || merge_queue_check(spm->start.len, err) < 0)
            return -1;
        at += utf8_decode(spm->text + at, &code);
    }
    if (merge_queue_start(&spm->merge_queue, spm->start.len, err) < 0)
        return -1;
    for (size_t i = 0; i < spm->start.len; i++) {
        size_t end = i + 1 < spm->start.len ? spm->start.id[i + 1] : spm->len;
        spm->merge_queue.link[i].id = find(spm, spm->start.id[i], end - spm->start.id[i]);
    }
    return 0;
}

/* Appends the ids of a symbol; an unused token is split into the two symbols it was merged from.
 * Recursion is bounded by tok->longest, since these are shorter. */
static int add_symbol(const struct spm *spm, size_t start, size_t len, uint32_t id, size_t from,
                      struct ids *ids, struct err *err)
{
    while (id != TOK_NONE && spm->left && tok_flags(spm->tok, id) & TOK_UNUSED && spm->left[id] &&
           spm->left[id] < len) {
        size_t left = spm->left[id];
        if (add_symbol(spm, start, left, find(spm, start, left), from, ids, err) < 0)
            return -1;
        start += left;
        len -= left;
        id = find(spm, start, len);
    }
    if (id != TOK_NONE)
        return ids_add(ids, id, err);
    return tok_add_unknown(spm->tok, spm->text + start, len, from, ids, err);
}

/* Encodes spm->text, of which no token can extend into the text before or after it. */
static int encode_part(struct spm *spm, size_t from, struct ids *ids, struct err *err)
{
    if (make_symbols(spm, err) < 0)
        return -1;
    merge_queue_run(&spm->merge_queue, spm->start.len, rank_of, spm);
    const struct merge_queue_link *link = spm->merge_queue.link;
    for (uint32_t at = 0; at != MERGE_NONE; at = link[at].after) {
        size_t start = spm->start.id[at];
        if (add_symbol(spm, start, end_of(spm, link, at) - start, link[at].id, from, ids, err) < 0)
            return -1;
    }
    return 0;
}

/* Length in bytes of the first word: up to the first space (U+2581) after another character. */
static size_t word_len(const char *text, size_t len)
{
    size_t at = 0;
    while (tok_is_space(text + at, len - at))
        at += 3;
    while (at < len && !tok_is_space(text + at, len - at))
        at++;
    return at;
}

/* ---- long texts, of which all symbols at once would take much memory ---- */

enum { LONG_TEXT = 1 << 18, PAIR_BITS = 1 << 20 };

static size_t pair_bit(uint32_t left, uint32_t right)
{
    return (left * UINT64_C(0x9e3779b97f4a7c15) ^ right * UINT64_C(0xc2b2ae3d27d4eb4f)) >> 13 &
           (PAIR_BITS - 1);
}

/* Calls of this find which characters follow each other inside tokens. */
static void add_pairs(uint8_t *inside, const char *text, size_t len)
{
    uint32_t before, code;
    for (size_t at = utf8_decode(text, &before); at < len; before = code) {
        at += utf8_decode(text + at, &code);
        const size_t bit = pair_bit(before, code);
        inside[bit / 8] |= (uint8_t)(1 << bit % 8);
    }
}

static int find_pairs(struct spm *spm, struct err *err)
{
    const struct tokenizer *tok = spm->tok;
    if (spm->inside)
        return 0;
    if (!(spm->inside = mem_zalloc(PAIR_BITS / 8, 1)))
        return err_no_memory(err, "pairs of characters");
    for (uint32_t id = 0; id < tok->ids; id++) {
        size_t len;
        const char *text = tok_bytes(tok, id, &len);
        if (tok_flags(tok, id) & TOK_MODEL && len && utf8_valid(text, len) == len)
            add_pairs(spm->inside, text, len);
    }
    return 0;
}

/* Length in bytes of the beginning of a text up to the first place, at least LONG_TEXT / 4 bytes from it, that is
 * inside no token. */
static size_t part_len(const struct spm *spm, const char *text, size_t len)
{
    uint32_t before, code;
    for (size_t at = utf8_decode(text, &before); at < len; before = code) {
        const size_t start = at, bit = (at += utf8_decode(text + at, &code), pair_bit(before, code));
        if (start >= LONG_TEXT / 4 && !(spm->inside[bit / 8] >> bit % 8 & 1))
            return start;
    }
    return len;
}

/* Encodes a long text in parts. Unused tokens are split as their last merge anywhere was: with any, all at once. */
static int encode_parts(struct spm *spm, const char *text, size_t len, size_t from, struct ids *ids,
                        struct err *err)
{
    const size_t before = ids->len;
    if (find_pairs(spm, err) < 0)
        return -1;
    spm->formed_unused = false;
    for (size_t at = 0; at < len && !spm->formed_unused; at += spm->len) {
        spm->text = text + at;
        spm->len = part_len(spm, text + at, len - at);
        if (encode_part(spm, from, ids, err) < 0)
            return -1;
    }
    if (!spm->formed_unused)
        return 0;
    ids->len = before;
    spm->text = text;
    spm->len = len;
    return encode_part(spm, from, ids, err);
}

int spm_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
               struct ids *ids, struct err *err)
{
    struct spm *spm = scratch;
    size_t from = ids->len;
    spm->tok = tok;
    if (tok->flags & TOK_HAS_UNUSED && !spm->left &&
        !(spm->left = mem_zalloc(tok->ids, sizeof *spm->left)))
        return err_no_memory(err, "a vocabulary of %u tokens", tok->ids);
    for (size_t word; len > 0; pretoken += word, len -= word) {
        word = tok->flags & TOK_WORDS ? word_len(pretoken, len) : len;
        spm->text = pretoken;
        spm->len = word;
        if ((word > LONG_TEXT ? encode_parts(spm, pretoken, word, from, ids, err)
                              : encode_part(spm, from, ids, err)) < 0)
            return -1;
    }
    return 0;
}
