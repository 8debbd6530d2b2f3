/* Pre-tokenizers: a normalized text -> the pieces that the model encodes on their own.
 *
 * A step of the tables is one function of a list below. Splitting steps only narrow spans, the others
 * write the pieces into a new text. To add a step: a kind in tok_tables.h, its rule in tok_tables.c, a
 * function here, a name and a parse function in parts_pretok.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "text/pretok.h"

#include <stdlib.h>
#include <string.h>

#include "text/letters.h"
#include "text/tok_steps.h"
#include "text/utf8.h"

void pretok_release(struct pretok *pretok)
{
    matcher_release(&pretok->matcher);
    buf_release(&pretok->moved[0]);
    buf_release(&pretok->moved[1]);
    free(pretok->pieces.span);
    free(pretok->next.span);
    *pretok = (struct pretok){0};
}

static int spans_add(struct spans *spans, size_t start, size_t end, struct err *err)
{
    if (start == end)
        return 0;
    if (mem_grow(&spans->span, &spans->cap, spans->len, sizeof spans->span[0], err) < 0)
        return -1;
    spans->span[spans->len++] = (struct span){start, end};
    return 0;
}

/* Joins matches and the text between them to pieces, as a behaviour says. */
struct fold {
    struct pretok *pretok;
    uint32_t behavior;
    bool invert;
    bool holds; /* `held` may still grow */
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

/* The next part in order; parts cover the text without gaps. */
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

/* A splitting step over one piece: finds the matches and hands everything to the fold. */
typedef int split_fn(struct pretok *, const struct tok_step *, struct span, struct fold *,
                     struct err *);

static int split_pattern(struct pretok *pretok, const struct tok_step *step, struct span piece,
                         struct fold *fold, struct err *err)
{
    struct search search;
    size_t done = 0, start, end, len = piece.end - piece.start;
    int found;
    if (step_search(pretok->tok, step, &pretok->matcher,
                    (struct slice){pretok->text + piece.start, len}, &search, err) < 0)
        return -1;
    while ((found = search_next(&search, &start, &end, err)) > 0) {
        if (start != done && fold_add(fold, piece.start + done, piece.start + start, false, err) < 0)
            return -1;
        if (fold_add(fold, piece.start + start, piece.start + end, true, err) < 0)
            return -1;
        done = end;
    }
    if (found < 0)
        return -1;
    return done == len ? 0 : fold_add(fold, piece.start + done, piece.end, false, err);
}

static int split_text(struct pretok *pretok, const struct tok_step *step, struct span piece,
                      struct fold *fold, struct err *err)
{
    struct slice wanted = step_a(pretok->tok, step);
    size_t done = piece.start;
    while (done < piece.end) {
        const char *found = memmem(pretok->text + done, piece.end - done, wanted.data, wanted.size);
        if (!found)
            break;
        size_t start = (size_t)(found - pretok->text), end = start + wanted.size;
        if (start != done && fold_add(fold, done, start, false, err) < 0)
            return -1;
        if (fold_add(fold, start, end, true, err) < 0)
            return -1;
        done = end;
    }
    return done == piece.end ? 0 : fold_add(fold, done, piece.end, false, err);
}

/* Splits at characters of a class. */
static int split_class(struct pretok *pretok, struct span piece, bool (*is_in)(uint32_t),
                       struct fold *fold, struct err *err)
{
    size_t done = piece.start;
    for (size_t at = piece.start, after; at < piece.end; at = after) {
        uint32_t code;
        after = at + utf8_decode(pretok->text + at, &code);
        if (!is_in(code))
            continue;
        if (done != at && fold_add(fold, done, at, false, err) < 0)
            return -1;
        if (fold_add(fold, at, after, true, err) < 0)
            return -1;
        done = after;
    }
    return done == piece.end ? 0 : fold_add(fold, done, piece.end, false, err);
}

static int split_digits(struct pretok *pretok, const struct tok_step *step, struct span piece,
                        struct fold *fold, struct err *err)
{
    (void)step;
    return split_class(pretok, piece, utf8_is_numeric, fold, err);
}

static int split_punctuation(struct pretok *pretok, const struct tok_step *step, struct span piece,
                             struct fold *fold, struct err *err)
{
    (void)step;
    return split_class(pretok, piece, utf8_is_punctuation, fold, err);
}

static split_fn *const splitters[STEP_KINDS] = {
    [SPLIT_PATTERN] = split_pattern,
    [SPLIT_TEXT] = split_text,
    [SPLIT_DIGITS] = split_digits,
    [SPLIT_PUNCTUATION] = split_punctuation,
};

/* A step that writes one piece anew. */
typedef int rewrite_fn(struct pretok *, const struct tok_step *, struct span, bool, struct buf *,
                       struct err *);

static int rewrite_prefix(struct pretok *pretok, const struct tok_step *step, struct span piece,
                          bool first, struct buf *out, struct err *err)
{
    struct slice prefix = step_a(pretok->tok, step);
    const char *text = pretok->text + piece.start;
    size_t len = piece.end - piece.start;
    bool there = len >= prefix.size && memcmp(text, prefix.data, prefix.size) == 0;
    bool wanted = step->option == PREFIX_ALWAYS || first;
    if (wanted && !there && buf_add(out, prefix.data, prefix.size, err) < 0)
        return -1;
    return buf_add(out, text, len, err);
}

static int rewrite_replace(struct pretok *pretok, const struct tok_step *step, struct span piece,
                           bool first, struct buf *out, struct err *err)
{
    (void)first;
    struct slice text = {pretok->text + piece.start, piece.end - piece.start};
    return slice_replace(text, step_a(pretok->tok, step), step_b(pretok->tok, step), pretok->limit, out,
                         err);
}

static int rewrite_letters(struct pretok *pretok, const struct tok_step *step, struct span piece,
                           bool first, struct buf *out, struct err *err)
{
    (void)step;
    (void)first;
    for (size_t at = piece.start; at < piece.end; at++) {
        char letter[UTF8_MAX];
        unsigned len = utf8_encode(letter_of_byte((unsigned char)pretok->text[at]), letter);
        if (buf_add(out, letter, len, err) < 0)
            return -1;
    }
    return 0;
}

static int rewrite_bytes(struct pretok *pretok, const struct tok_step *step, struct span piece,
                         bool first, struct buf *out, struct err *err)
{
    size_t len = piece.end - piece.start, bytes;
    (void)step;
    (void)first;
    if (buf_reserve(out, len, err) < 0)
        return -1;
    if (!letters_to_bytes(pretok->text + piece.start, len, out->data + out->len, &bytes))
        return err_set(err, "the tokenizer takes \"%.*s\" for bytes", (int)size_min(len, 60),
                       pretok->text + piece.start);
    out->len += bytes;
    return 0;
}

static rewrite_fn *const rewriters[STEP_KINDS] = {
    [SPLIT_PREFIX] = rewrite_prefix,
    [SPLIT_REPLACE] = rewrite_replace,
    [SPLIT_LETTERS] = rewrite_letters,
    [SPLIT_BYTES] = rewrite_bytes,
};

static int run_splitter(struct pretok *pretok, const struct tok_step *step, struct err *err)
{
    for (size_t i = 0; i < pretok->pieces.len; i++) {
        struct fold fold = {.pretok = pretok,
                            .behavior = step->option & (SPLIT_INVERT - 1U),
                            .invert = (step->option & SPLIT_INVERT) != 0};
        if (splitters[step->kind](pretok, step, pretok->pieces.span[i], &fold, err) < 0 ||
            fold_release(&fold, err) < 0)
            return -1;
    }
    return 0;
}

static int run_rewriter(struct pretok *pretok, const struct tok_step *step, bool first, struct err *err)
{
    struct buf *out = &pretok->moved[pretok->text == pretok->moved[0].data];
    buf_clear(out);
    for (size_t i = 0; i < pretok->pieces.len; i++) {
        size_t start = out->len;
        if (rewriters[step->kind](pretok, step, pretok->pieces.span[i], first && i == 0, out, err) <
                0 ||
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
    pretok->pieces.len = 0;
    pretok->limit = step_limit(len);
    if (spans_add(&pretok->pieces, 0, len, err) < 0)
        return -1;
    for (size_t i = 0; i < pretok->tok->step_count[LIST_PRETOKENIZER]; i++) {
        pretok->next.len = 0;
        int rc = splitters[steps[i].kind] ? run_splitter(pretok, &steps[i], err)
                                          : run_rewriter(pretok, &steps[i], first, err);
        if (rc < 0)
            return -1;
        struct spans done = pretok->pieces;
        pretok->pieces = pretok->next;
        pretok->next = done;
        /* Whether the first piece is still the beginning: Removed may have dropped that. */
        first = first && pretok->pieces.len > 0 && pretok->pieces.span[0].start == 0;
    }
    return 0;
}
