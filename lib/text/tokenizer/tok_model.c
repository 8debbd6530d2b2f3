/* The tokenizer models: BPE by merges, SentencePiece's BPE, Unigram. */
#include "text/tokenizer/tok_model.h"

#include "text/tokenizer/tok_tables.h"
#include "text/utf8.h"

#define MERGE_NONE UINT32_MAX

/* ---- byte fallback and the unknown token, shared by the models ---- */

/* A symbol in a doubly linked list. A merge keeps the left symbol, so the first one remains. */
struct merge_queue_link {
    uint32_t id;
    uint32_t before; /* indices of the neighbours, or MERGE_NONE */
    uint32_t after;
    uint32_t rank;   /* rank of the pair with the next symbol, or MERGE_NONE */
    uint32_t result; /* id of the merged pair */
};

/* Callback: the rank of the pair of symbol `at` and the next one, with its merged id in *result;
 * MERGE_NONE if they do not merge. */
typedef uint32_t merge_rank_fn(void *owner, const struct merge_queue_link *link, uint32_t at,
                               uint32_t *result);

/* More symbols are refused: they are nothing that a model could read, but take 48 bytes each. */
enum { MERGE_MOST = 1 << 22 };

/* Best segmentation of a pre-token up to a byte offset. */
struct lattice_node {
    double score;
    uint32_t start; /* start of the last token, or TOK_NONE: unreachable */
    uint32_t id;    /* id of the last token, or TOK_NONE: a character without a token */
};

/* If byte fallback is on and all byte tokens "<0x..>" of `text` exist, appends them and sets
 * *added to true, else to false. */
static int tok_add_bytes(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                         bool *added, struct err *err)
{
    *added = false;
    if (!(tok->flags & TOK_BYTE_FALLBACK))
        return 0;
    for (size_t i = 0; i < len; i++)
        if (tok->byte_unit[(unsigned char)text[i]] >= tok->ids)
            return 0;
    for (size_t i = 0; i < len; i++)
        if (ids_add(ids, tok->byte_unit[(unsigned char)text[i]], err) < 0)
            return -1;
    *added = true;
    return 0;
}

/* Appends byte tokens or the unknown token for text that no token covers. Consecutive unknown
 * tokens are fused, but not with those before index `from` of `ids`. */
static int tok_add_unknown(const struct tokenizer *tok, const char *text, size_t len, size_t from,
                           struct ids *ids, struct err *err)
{
    bool added;
    if (tok_add_bytes(tok, text, len, ids, &added, err) < 0)
        return -1;
    if (added)
        return 0;
    if (tok->unk == TOK_NONE)
        return err_set(err, "a character is not in the tokenizer's vocabulary, nor is its unk_token");
    if (ids->len > from && ids->id[ids->len - 1] == tok->unk)
        return 0;
    return ids_add(ids, tok->unk, err);
}

/* Merging by rank with a binary heap. A queue entry is rank << 32 | index of the left
 * symbol. Entries are not removed when a pair changes; an entry is stale if the symbol's rank is
 * another one now. */

static void merge_queue_release(struct merge_queue *mq)
{
    free(mq->link);
    free(mq->queue);
    *mq = (struct merge_queue){0};
}

static int merge_queue_check(size_t count, struct err *err)
{
    return count <= MERGE_MOST ? 0
                               : err_set(err,
                                         "a word of more than %d characters: text without a place to "
                                         "cut it cannot be longer",
                                         MERGE_MOST);
}

/* Links `count` symbols, at most MERGE_MOST, to a list; the caller sets their ids. */
static int merge_queue_start(struct merge_queue *mq, size_t count, struct err *err)
{
    /* Queue entries: one per initial pair, and at most two more per merge. */
    size_t entries = 3 * count;
    if (mq->cap < count) {
        merge_queue_release(mq);
        mq->link = mem_alloc(count, sizeof mq->link[0]);
        mq->queue = mem_alloc(entries, sizeof mq->queue[0]);
        mq->cap = mq->link && mq->queue ? count : 0;
        if (!mq->cap)
            return err_no_memory(err, "a piece of text of %zu units", count);
    }
    for (size_t i = 0; i < count; i++) {
        mq->link[i].before = i > 0 ? (uint32_t)i - 1 : MERGE_NONE;
        mq->link[i].after = i + 1 < count ? (uint32_t)i + 1 : MERGE_NONE;
    }
    return 0;
}

static void sift_down(uint64_t *queue, size_t len, size_t at)
{
    uint64_t entry = queue[at];
    for (size_t child; (child = 2 * at + 1) < len; at = child) {
        if (child + 1 < len && queue[child + 1] < queue[child])
            child++;
        if (entry <= queue[child])
            break;
        queue[at] = queue[child];
    }
    queue[at] = entry;
}

static void queue_push(struct merge_queue *mq, uint64_t entry)
{
    size_t hole = mq->queue_len++;
    for (; hole > 0 && mq->queue[(hole - 1) / 2] > entry; hole = (hole - 1) / 2)
        mq->queue[hole] = mq->queue[(hole - 1) / 2];
    mq->queue[hole] = entry;
}

static uint64_t queue_pop(struct merge_queue *mq)
{
    uint64_t entry = mq->queue[0];
    mq->queue[0] = mq->queue[--mq->queue_len];
    if (mq->queue_len)
        sift_down(mq->queue, mq->queue_len, 0);
    return entry;
}

/* Ranks the pair of symbol `at` and the next one, and queues it if it has a rank. */
static void queue_pair(struct merge_queue *mq, uint32_t at, merge_rank_fn *rank, void *owner)
{
    struct merge_queue_link *link = &mq->link[at];
    link->rank = MERGE_NONE;
    if (link->after != MERGE_NONE)
        link->rank = rank(owner, mq->link, at, &link->result);
    if (link->rank != MERGE_NONE)
        queue_push(mq, (uint64_t)link->rank << 32 | at);
}

static void join_pair(struct merge_queue *mq, uint32_t at)
{
    struct merge_queue_link *link = &mq->link[at], *right = &mq->link[link->after];
    link->id = link->result;
    link->after = right->after;
    right->rank = MERGE_NONE;
    if (link->after != MERGE_NONE)
        mq->link[link->after].before = at;
}

/* Merges pairs of symbols, lowest rank first, leftmost of equals, until no pair has a rank:
 * O(n log n). `owner` is passed to rank(). */
static void merge_queue_run(struct merge_queue *mq, size_t count, merge_rank_fn *rank, void *owner)
{
    mq->queue_len = 0;
    for (size_t i = 0; i < count; i++)
        queue_pair(mq, (uint32_t)i, rank, owner);
    while (mq->queue_len) {
        uint64_t entry = queue_pop(mq);
        uint32_t at = (uint32_t)entry;
        if (mq->link[at].rank != (uint32_t)(entry >> 32))
            continue;
        join_pair(mq, at);
        if (mq->link[at].before != MERGE_NONE)
            queue_pair(mq, mq->link[at].before, rank, owner);
        queue_pair(mq, at, rank, owner);
    }
}

/* Byte-pair encoding of a pre-token.
 *
 * Initial symbols are bytes (byte-level) or characters; the adjacent pair of lowest rank,
 * leftmost first, is merged until no pair has a rank. Short pre-tokens scan an array of ranks;
 * long ones use a priority queue: O(n log n). */

enum { SHORT_UNITS = 40 };

static void bpe_release(void *scratch)
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

static uint32_t bpe_rank(void *owner, const struct merge_queue_link *link, uint32_t at,
                         uint32_t *result)
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
    merge_queue_run(&bpe->merge_queue, count, bpe_rank, bpe);
    bpe->units.len = 0;
    for (uint32_t at = 0; at != MERGE_NONE; at = bpe->merge_queue.link[at].after)
        bpe->units.id[bpe->units.len++] = bpe->merge_queue.link[at].id;
    return 0;
}

/* Appends the ids of a pre-token: at most UINT32_MAX / 4 bytes, valid UTF-8 unless the
 * vocabulary is byte-level. `scratch` is a struct bpe. */
static int bpe_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
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

/* SentencePiece's BPE, as in Llama's tokenizer.
 *
 * Initial symbols are characters; the adjacent pair whose concatenation is the token with the
 * best score, leftmost first, is merged until no pair forms a token. Unused tokens take part but
 * are split again at the end. If no token spans words, words are encoded one by one: same
 * result, faster. */

static void spm_release(void *scratch)
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

static uint32_t spm_find(const struct spm *spm, size_t start, size_t len)
{
    if (len > spm->tok->longest)
        return TOK_NONE;
    return tok_lookup(spm->tok, spm->text + start, len, false, TOK_MODEL);
}

static uint32_t spm_rank(void *owner, const struct merge_queue_link *link, uint32_t at,
                         uint32_t *result)
{
    struct spm *spm = owner;
    uint32_t right = link[at].after, start = spm->start.id[at];
    *result = spm_find(spm, start, end_of(spm, link, right) - start);
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
        spm->merge_queue.link[i].id = spm_find(spm, spm->start.id[i], end - spm->start.id[i]);
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
        if (add_symbol(spm, start, left, spm_find(spm, start, left), from, ids, err) < 0)
            return -1;
        start += left;
        len -= left;
        id = spm_find(spm, start, len);
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
    merge_queue_run(&spm->merge_queue, spm->start.len, spm_rank, spm);
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

/* Appends the ids of a pre-token of at most UINT32_MAX / 4 bytes of valid UTF-8. `scratch` is a
 * struct spm. */
static int spm_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
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

/* The Unigram model, by the Viterbi algorithm over byte positions. Tokens are found by walking
 * the trie; a character without a token of its own becomes the unknown token. Ties and rounding
 * are those of the library whose file it was: SentencePiece or tokenizers. */

static void unigram_release(void *scratch)
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

/* Appends the ids of a pre-token of at most UINT32_MAX / 4 bytes of valid UTF-8. `scratch` is a
 * struct unigram. */
static int unigram_encode(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
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

/* ---- WordPiece ----
 *
 * A word is cut into the longest tokens from left to right, the first of them one that begins words. A word with a
 * rest that no token begins is one unknown token, and so is one of more than 100 characters. */

enum { WORDPIECE_MOST_CHARACTERS = 100 };

static void wordpiece_release(void *scratch) { buf_release(scratch); }

/* Bytes of the longest token at the start of text[len], or 0, and its id. */
static size_t longest_piece(const struct tokenizer *tok, const char *text, size_t len, uint32_t *id)
{
    for (size_t n = size_min(len, tok->longest); n; n--) {
        if (n < len && utf8_continues(text[n]))
            continue;
        *id = tok_lookup(tok, text, n, false, TOK_MODEL);
        if (*id != TOK_NONE)
            return n;
    }
    return 0;
}

/* Appends the ids of a word of at most UINT32_MAX / 4 bytes of valid UTF-8. `scratch` is a struct buf. */
static int wordpiece_encode(const struct tokenizer *tok, void *scratch, const char *pretoken,
                            size_t len, struct ids *ids, struct err *err)
{
    struct buf *word = scratch;
    const size_t before = ids->len;
    size_t characters = 0;
    if (!len)
        return 0;
    for (size_t i = 0; i < len; i++)
        characters += !utf8_continues(pretoken[i]);
    buf_clear(word);
    if (buf_add(word, TOK_SPACE, sizeof TOK_SPACE - 1, err) < 0 ||
        buf_add(word, pretoken, len, err) < 0)
        return -1;
    for (size_t at = 0; at < word->len;) {
        uint32_t id;
        const size_t piece = characters > WORDPIECE_MOST_CHARACTERS
                                 ? 0
                                 : longest_piece(tok, word->data + at, word->len - at, &id);
        if (piece < (at ? 1 : sizeof TOK_SPACE)) { /* none; or no letter behind U+2581 */
            ids->len = before;
            return tok->unk == TOK_NONE ? 0 : ids_add(ids, tok->unk, err);
        }
        if (ids_add(ids, id, err) < 0)
            return -1;
        at += piece;
    }
    return 0;
}

/* ---- the table of tokenizer models ---- */

const struct tok_model tok_models[KIND_COUNT] = {
    [KIND_BPE] = {"BPE", bpe_encode, bpe_release},
    [KIND_SPM] = {"SPM", spm_encode, spm_release},
    [KIND_UNIGRAM] = {"Unigram", unigram_encode, unigram_release},
    [KIND_WORDPIECE] = {"WordPiece", wordpiece_encode, wordpiece_release},
};
