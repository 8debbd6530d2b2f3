/* Makes retrieval texts, and finds what texts repeat. */
#include "prof/retrieval_text.h"

#include "decode/sample/rng.h"

/* ---- making a text ---- */

enum {
    NEEDLES = 16,
    NEEDLES_LEAST = 3, /* of them, REPEATS_LEAST tokens are retrieved */
    NEEDLE_TOKENS = 16,
    WORDS_LEAST = 256 /* in smaller vocabularies, any token but special ones is a word */
};

/* True if a token is a blank and lowercase ASCII letters, as most words in running text are. */
static bool is_word(const struct buf *piece)
{
    size_t letters = 0;
    while (letters + 1 < piece->len && piece->data[letters + 1] >= 'a' &&
           piece->data[letters + 1] <= 'z')
        letters++;
    return piece->len >= 4 && piece->data[0] == ' ' && letters + 1 == piece->len;
}

/* Appends the ids of all words of the vocabulary, or of all tokens that are text. */
static int list_words(struct ids *words, const struct tokenizer *tok, bool all, struct err *err)
{
    struct buf piece = {0};
    int rc = 0;
    for (size_t id = 0; rc == 0 && id < tokenizer_vocab(tok); id++) {
        piece.len = 0;
        if (tokenizer_is_special(tok, (uint32_t)id))
            continue;
        rc = tokenizer_piece(tok, (uint32_t)id, &piece, err);
        if (rc == 0 && piece.len && (all || is_word(&piece)))
            rc = ids_add(words, (uint32_t)id, err);
    }
    buf_release(&piece);
    return rc;
}

/* Appends n words: those with the numbers `at` and following of a random sequence. */
static int add_words(struct ids *ids, const struct ids *words, size_t at, size_t n, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const double u = rng_uniform(0, 0, (uint32_t)(at + i), 0);
        rc = ids_add(ids, words->id[(size_t)(u * (double)words->len)], err);
    }
    return rc;
}

/* Appends the text behind its leading tokens: `hay` words and `needles` needles between them, the window, and the
 * needles again, every fifth after the other. Word i of the text is word i of the random sequence; those of needles
 * are counted behind all others. */
static int add_text(struct ids *ids, const struct ids *words, size_t hay, size_t needles, size_t recent,
                    struct err *err)
{
    const size_t first = hay + recent;
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < needles; i++) {
        const size_t depth = hay * i / (needles - 1);
        if ((rc = add_words(ids, words, at, depth - at, err)) == 0)
            rc = add_words(ids, words, first + i * NEEDLE_TOKENS, NEEDLE_TOKENS, err);
        at = depth;
    }
    if (rc == 0)
        rc = add_words(ids, words, at, first - at, err);
    for (size_t i = 0; rc == 0 && i < needles; i++) {
        const size_t needle = needles % 5 ? i * 5 % needles : needles - 1 - i;
        rc = add_words(ids, words, first + needle * NEEDLE_TOKENS, NEEDLE_TOKENS, err);
    }
    return rc;
}

/* Appends the tokens that the tokenizer puts in front of a text, as BOS. */
static int add_leading(struct ids *ids, const struct tokenizer *tok, struct err *err)
{
    if (tokenizer_encode(tok, "", 0, true, ids, err) < 0)
        return -1;
    ids->len = tokenizer_leading(tok, ids->id, ids->len);
    return 0;
}

static int make_text(struct ids *ids, struct ids *words, const struct tokenizer *tok, size_t n,
                     size_t sink, size_t recent, struct err *err)
{
    if (list_words(words, tok, false, err) < 0)
        return -1;
    if (words->len < WORDS_LEAST) {
        words->len = 0;
        if (list_words(words, tok, true, err) < 0)
            return -1;
    }
    if (!words->len)
        return err_set(err, "the vocabulary has no words: give a text with -f");
    if (add_leading(ids, tok, err) < 0 ||
        (ids->len < sink && add_words(ids, words, n, sink - ids->len, err) < 0))
        return -1;
    const size_t taken = ids->len + recent, pair = 2 * NEEDLE_TOKENS, room = n - size_min(n, taken),
                 needles = size_min(NEEDLES, room / pair);
    if (needles < NEEDLES_LEAST)
        return err_set(err,
                       "a text of %zu tokens has no room for needles beside %zu sinks and a window "
                       "of %zu: raise -N to %zu, or lower --recent",
                       n, sink, recent, taken + NEEDLES_LEAST * pair);
    return add_text(ids, words, room - needles * pair, needles, recent, err);
}

int retrieval_text_make(struct ids *ids, const struct tokenizer *tok, size_t n, size_t sink,
                        size_t recent, struct err *err)
{
    struct ids words = {0};
    const int rc = make_text(ids, &words, tok, n, sink, recent, err);
    ids_release(&words);
    return rc;
}

/* ---- what a text repeats ---- */

/* Number of tokens up to positions a and b, a before b, that agree; at most 4 times REPEATS_MATCH are compared. */
static size_t agreeing_tokens(const uint32_t *id, size_t a, size_t b)
{
    size_t n = 0;
    while (n < 4 * REPEATS_MATCH && n <= a && id[a - n] == id[b - n])
        n++;
    return n;
}

/* The position before `p` up to which most tokens agree with those up to p, the last of several; 0: there is none. */
static size_t earlier_occurrence(const uint32_t *id, size_t p)
{
    size_t most = REPEATS_MATCH, found = 0;
    for (size_t at = 1; at < p; at++) {
        const size_t agree = agreeing_tokens(id, at, p);
        if (agree >= most) {
            most = agree;
            found = at;
        }
    }
    return found;
}

size_t retrieval_text_repeats(struct position_range *range, const uint32_t *id, size_t n, size_t sink,
                              size_t recent)
{
    size_t repeats = 0;
    for (size_t p = 0; p < n; p++) {
        range[p] = (struct position_range){0, 0};
        if (p + 1 == n || p + REPEATS_TAIL < n)
            continue;
        const size_t next = earlier_occurrence(id, p) + 1;
        if (next == 1 || next < sink || next + recent > p || id[next] != id[p + 1])
            continue;
        range[p] = (struct position_range){next, next + 1};
        repeats++;
    }
    return repeats;
}
