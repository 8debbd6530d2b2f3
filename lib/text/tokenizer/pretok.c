/* Runs pre-tokenizers. Each kind of step is a function below: splitters split pre-tokens, rewriters
 * change their text. To add one: a kind in tok_tables.h, its rule in tok_tables.c, a function
 * here, and its name and parse function in import_pretokenizers.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "text/tokenizer/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "text/import/byte_alphabet.h"
#include "text/tokenizer/tok_steps.h"
#include "text/utf8.h"

void pretok_release(struct pretok *pretok)
{
    matcher_release(&pretok->matcher);
    buf_release(&pretok->rewritten[0]);
    buf_release(&pretok->rewritten[1]);
    free(pretok->pretokens.span);
    free(pretok->next.span);
    *pretok = (struct pretok){0};
}

static int spans_add(struct spans *spans, size_t start, size_t end, struct err *err)
{
    if (start == end)
        return 0;
    if (mem_grow(&spans->span, &spans->cap, spans->len, sizeof spans->span[0], err) < 0)
        return -1;
    spans->span[spans->len++] = (struct short_span){(uint32_t)start, (uint32_t)end};
    return 0;
}

/* Combines matches and the text between them into pre-tokens according to a split behaviour. */
struct fold {
    struct pretok *pretok;
    uint32_t behavior;
    bool invert;
    bool holds; /* there is a span `held`, which may still be extended */
    bool after_match;
    struct span held;
};

static int fold_release(struct fold *fold, struct err *err)
{
    bool held = fold->holds;
    fold->holds = false;
    return held ? spans_add(&fold->pretok->next, fold->held.start, fold->held.end, err) : 0;
}

static int fold_hold(struct fold *fold, size_t start, size_t end, struct err *err)
{
    if (fold_release(fold, err) < 0)
        return -1;
    fold->held = (struct span){start, end};
    fold->holds = true;
    return 0;
}

/* Adds the next span, a match or the gap between two. Together they must cover the pre-token. */
static int fold_add(struct fold *fold, size_t start, size_t end, bool match, struct err *err)
{
    match ^= fold->invert;
    bool after_match = fold->after_match, grows = false;
    fold->after_match = match;
    switch (fold->behavior) {
    case BEHAVIOR_REMOVED: return match ? 0 : spans_add(&fold->pretok->next, start, end, err);
    case BEHAVIOR_CONTIGUOUS: grows = match == after_match; break;
    case BEHAVIOR_MERGED_WITH_PREVIOUS: grows = match && !after_match; break;
    case BEHAVIOR_MERGED_WITH_NEXT: grows = !match && after_match; break;
    default: break;
    }
    if (grows && fold->holds) {
        fold->held.end = end;
        return 0;
    }
    return fold_hold(fold, start, end, err);
}

/* Adds the gap [*done, start) before a match, unless empty, and the match; sets *done to `end`. */
static int fold_match(struct fold *fold, size_t *done, size_t start, size_t end, struct err *err)
{
    if ((start != *done && fold_add(fold, *done, start, false, err) < 0) ||
        fold_add(fold, start, end, true, err) < 0)
        return -1;
    *done = end;
    return 0;
}

/* Adds the gap [done, end) after the last match, unless it is empty. */
static int fold_rest(struct fold *fold, size_t done, size_t end, struct err *err)
{
    return done == end ? 0 : fold_add(fold, done, end, false, err);
}

/* A splitter: finds the matches in one pre-token and passes matches and gaps to the fold. */
typedef int split_fn(struct pretok *, const struct tok_step *, struct span, struct fold *,
                     struct err *);

static int split_pattern(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                         struct fold *fold, struct err *err)
{
    struct search search;
    const size_t first = pretoken.start;
    const struct slice text = {pretok->text + first, pretoken.end - first};
    size_t done = first, start, end;
    int found;
    if (step_search(pretok->tok, step, &pretok->matcher, text, &search, err) < 0)
        return -1;
    while ((found = search_next(&search, &start, &end, err)) > 0)
        if (fold_match(fold, &done, first + start, first + end, err) < 0)
            return -1;
    return found < 0 ? -1 : fold_rest(fold, done, pretoken.end, err);
}

static int split_text(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                      struct fold *fold, struct err *err)
{
    struct slice wanted = step_a(pretok->tok, step);
    size_t done = pretoken.start;
    while (done < pretoken.end) {
        const char *found = memmem(pretok->text + done, pretoken.end - done, wanted.data, wanted.size);
        if (!found)
            break;
        const size_t start = (size_t)(found - pretok->text);
        if (fold_match(fold, &done, start, start + wanted.size, err) < 0)
            return -1;
    }
    return fold_rest(fold, done, pretoken.end, err);
}

/* Splits a pre-token at the characters for which is_in() is true. */
static int split_class(struct pretok *pretok, struct span pretoken, bool (*is_in)(uint32_t),
                       struct fold *fold, struct err *err)
{
    size_t done = pretoken.start;
    for (size_t at = pretoken.start, after; at < pretoken.end; at = after) {
        uint32_t code;
        after = at + utf8_decode(pretok->text + at, &code);
        if (is_in(code) && fold_match(fold, &done, at, after, err) < 0)
            return -1;
    }
    return fold_rest(fold, done, pretoken.end, err);
}

static int split_digits(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                        struct fold *fold, struct err *err)
{
    (void)step;
    return split_class(pretok, pretoken, utf8_is_numeric, fold, err);
}

static int split_punctuation(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                             struct fold *fold, struct err *err)
{
    (void)step;
    return split_class(pretok, pretoken, utf8_is_punctuation, fold, err);
}

static split_fn *const splitters[STEP_KINDS] = {
    [SPLIT_PATTERN] = split_pattern,
    [SPLIT_TEXT] = split_text,
    [SPLIT_DIGITS] = split_digits,
    [SPLIT_PUNCTUATION] = split_punctuation,
};

/* A rewriter: appends the new text of one pre-token to a buffer. The bool says whether the
 * pre-token is at the start of the input. */
typedef int rewrite_fn(struct pretok *, const struct tok_step *, struct span, bool, struct buf *,
                       struct err *);

static int rewrite_prefix(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                          bool first, struct buf *out, struct err *err)
{
    struct slice prefix = step_a(pretok->tok, step);
    const char *text = pretok->text + pretoken.start;
    size_t len = pretoken.end - pretoken.start;
    bool there = len >= prefix.size && memcmp(text, prefix.data, prefix.size) == 0;
    bool wanted = step->option == PREFIX_ALWAYS || first;
    if (wanted && !there && buf_add(out, prefix.data, prefix.size, err) < 0)
        return -1;
    return buf_add(out, text, len, err);
}

static int rewrite_replace(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                           bool first, struct buf *out, struct err *err)
{
    (void)first;
    struct slice text = {pretok->text + pretoken.start, pretoken.end - pretoken.start};
    return slice_replace(text, step_a(pretok->tok, step), step_b(pretok->tok, step), pretok->limit, out,
                         err);
}

static int rewrite_to_alphabet(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                               bool first, struct buf *out, struct err *err)
{
    (void)step;
    (void)first;
    for (size_t at = pretoken.start; at < pretoken.end; at++) {
        char letter[UTF8_MAX];
        unsigned len = utf8_write(byte_alphabet_letter((unsigned char)pretok->text[at]), letter);
        if (buf_add(out, letter, len, err) < 0)
            return -1;
    }
    return 0;
}

static int rewrite_from_alphabet(struct pretok *pretok, const struct tok_step *step,
                                 struct span pretoken, bool first, struct buf *out, struct err *err)
{
    size_t len = pretoken.end - pretoken.start, bytes;
    (void)step;
    (void)first;
    if (buf_reserve(out, len, err) < 0)
        return -1;
    if (!byte_alphabet_decode(pretok->text + pretoken.start, len, out->data + out->len, &bytes))
        return err_set(err, "\"%.*s\" is outside the byte alphabet of the tokenizer",
                       (int)size_min(len, 60), pretok->text + pretoken.start);
    out->len += bytes;
    return 0;
}

static rewrite_fn *const rewriters[STEP_KINDS] = {
    [SPLIT_PREFIX] = rewrite_prefix,
    [SPLIT_REPLACE] = rewrite_replace,
    [SPLIT_TO_BYTE_ALPHABET] = rewrite_to_alphabet,
    [SPLIT_FROM_BYTE_ALPHABET] = rewrite_from_alphabet,
};

static int run_splitter(struct pretok *pretok, const struct tok_step *step, struct err *err)
{
    for (size_t i = 0; i < pretok->pretokens.len; i++) {
        struct fold fold = {.pretok = pretok,
                            .behavior = step->option & (SPLIT_INVERT - 1U),
                            .invert = (step->option & SPLIT_INVERT) != 0};
        const struct short_span at = pretok->pretokens.span[i];
        if (splitters[step->kind](pretok, step, (struct span){at.start, at.end}, &fold, err) < 0 ||
            fold_release(&fold, err) < 0)
            return -1;
    }
    return 0;
}

static int run_rewriter(struct pretok *pretok, const struct tok_step *step, bool first, struct err *err)
{
    struct buf *out = &pretok->rewritten[pretok->text == pretok->rewritten[0].data];
    buf_clear(out);
    for (size_t i = 0; i < pretok->pretokens.len; i++) {
        const struct short_span at = pretok->pretokens.span[i];
        size_t start = out->len;
        if (rewriters[step->kind](pretok, step, (struct span){at.start, at.end}, first && i == 0, out,
                                  err) < 0 ||
            spans_add(&pretok->next, start, out->len, err) < 0 ||
            step_check_growth(pretok->limit, out->len, err) < 0)
            return -1;
    }
    pretok->text = out->data;
    pretok->len = out->len;
    return 0;
}

int pretok_split(struct pretok *pretok, const char *text, size_t len, bool first, struct err *err)
{
    const struct tok_step *steps = pretok->tok->steps[LIST_PRETOKENIZER];
    pretok->text = text;
    pretok->len = len;
    pretok->pretokens.len = 0;
    pretok->limit = size_min(step_limit(len), UINT32_MAX);
    if (spans_add(&pretok->pretokens, 0, len, err) < 0)
        return -1;
    for (size_t i = 0; i < pretok->tok->step_count[LIST_PRETOKENIZER]; i++) {
        pretok->next.len = 0;
        int rc = splitters[steps[i].kind] ? run_splitter(pretok, &steps[i], err)
                                          : run_rewriter(pretok, &steps[i], first, err);
        if (rc < 0)
            return -1;
        struct spans done = pretok->pretokens;
        pretok->pretokens = pretok->next;
        pretok->next = done;
        /* BEHAVIOR_REMOVED may have dropped the start of the text. */
        first = first && pretok->pretokens.len > 0 && pretok->pretokens.span[0].start == 0;
    }
    return 0;
}
