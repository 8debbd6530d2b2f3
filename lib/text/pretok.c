/* Normalizers and pre-tokenizers: they stand between added tokens and BPE.
 *
 * A step of the tables is one function of a list below. Normalizers turn a text into a text.
 * Pre-tokenizers turn a list of pieces into a list of pieces: splitting steps only narrow spans,
 * the others write the pieces into a new text. To add a step: a kind in tok_tables.h, a function here,
 * a name and a parse function in tok_parts.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "text/pretok.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/slice.h"
#include "text/utf8.h"

/* Steps of hostile tables may double a text again and again. */
enum { GROWTH_FACTOR = 64, GROWTH_FREE = 64 << 10 };

void pretok_release(struct pretok *pretok)
{
    matcher_release(&pretok->matcher);
    for (size_t i = 0; i < 2; i++) {
        buf_release(&pretok->normal[i]);
        buf_release(&pretok->moved[i]);
    }
    free(pretok->pieces.span);
    free(pretok->next.span);
    *pretok = (struct pretok){0};
}

/* Sets how long a text of `len` bytes may become. */
static void limit_growth(struct pretok *pretok, size_t len)
{
    pretok->limit = GROWTH_FREE + GROWTH_FACTOR * len;
}

static int check_growth(const struct pretok *pretok, size_t len, struct err *err)
{
    if (len > pretok->limit)
        return err_set(err, "the tokenizer makes more than %zu bytes of a text", pretok->limit);
    return 0;
}

static const char *step_a(const struct pretok *pretok, const struct tok_step *step)
{
    return pretok->tok->text + step->a;
}

static const char *step_b(const struct pretok *pretok, const struct tok_step *step)
{
    return pretok->tok->text + step->b;
}

/* A step's text a becomes its text b. */
static int replace(const struct pretok *pretok, const struct tok_step *step, struct slice text,
                   struct buf *out, struct err *err)
{
    return slice_replace(text, (struct slice){step_a(pretok, step), step->a_len},
                         (struct slice){step_b(pretok, step), step->b_len}, pretok->limit, out, err);
}

/* Number of a step's pattern among those of the tokenizer. */
static size_t pattern_index(const struct pretok *pretok, const struct tok_step *step)
{
    return (size_t)(step - pretok->tok->steps[LIST_NORMALIZER]);
}

static int start_pattern(struct pretok *pretok, const struct tok_step *step, const char *text,
                         size_t len, struct search *search, struct err *err)
{
    return search_start(search, &pretok->matcher, pretok->tok->patterns, pattern_index(pretok, step),
                        step_a(pretok, step), step->a_len, text, len, err);
}

/* --- normalizers --- */

struct mark {
    utf8proc_int32_t code;
    utf8proc_propval_t class;
};

/* Sorts a run of combining marks by class, equal ones in their order; linear, since runs may be long.
 */
static void sort_marks(utf8proc_int32_t *code, size_t count, struct mark *scratch)
{
    size_t at[257] = {0};
    for (size_t i = 0; i < count; i++) {
        scratch[i].code = code[i];
        scratch[i].class = utf8proc_get_property(code[i])->combining_class;
        at[(scratch[i].class & 255) + 1]++;
    }
    for (size_t i = 1; i < ARRAY_LEN(at); i++)
        at[i] += at[i - 1];
    for (size_t i = 0; i < count; i++)
        code[at[scratch[i].class & 255]++] = scratch[i].code;
}

static int order_marks(utf8proc_int32_t *code, size_t count, struct err *err)
{
    struct mark *scratch = NULL;
    for (size_t at = 0; at < count;) {
        size_t end = at;
        while (end < count && utf8proc_get_property(code[end])->combining_class)
            end++;
        if (end - at > 1) {
            if (!scratch && !(scratch = mem_alloc(count, sizeof scratch[0])))
                return err_set(err, "out of memory: a text of %zu characters", count);
            sort_marks(code + at, end - at, scratch);
        }
        at = size_max(end, at + 1);
    }
    free(scratch);
    return 0;
}

/* Below U+0300 nothing composes: most texts need no work. */
static bool is_plainly_composed(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0xcc)
            return false;
    return true;
}

static int normalize_nfc(struct pretok *pretok, const struct tok_step *step, const char *text,
                         size_t len, struct buf *out, struct err *err)
{
    /* Code points of one character's canonical decomposition; at most two per byte of UTF-8. */
    enum { LONGEST = 4, PER_BYTE = 2 };
    int rc = -1;
    utf8proc_int32_t *code = NULL;
    size_t count = 0;
    (void)pretok;
    (void)step;
    if (is_plainly_composed(text, len))
        return buf_add(out, text, len, err);
    if (!(code = mem_alloc(len + LONGEST, PER_BYTE * sizeof code[0]))) {
        err_set(err, "out of memory: a text of %zu bytes", len);
        goto out;
    }
    for (size_t at = 0; at < len;) {
        uint32_t whole;
        at += utf8_decode(text + at, &whole);
        utf8proc_ssize_t got = utf8proc_decompose_char((utf8proc_int32_t)whole, code + count, LONGEST,
                                                       UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
        if (got < 0 || got > LONGEST) {
            err_set(err, "U+%04X cannot be normalized", whole);
            goto out;
        }
        count += (size_t)got;
    }
    if (order_marks(code, count, err) < 0)
        goto out;
    utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(code, (utf8proc_ssize_t)count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[UTF8_MAX];
        if (buf_add(out, bytes, utf8_encode((uint32_t)code[i], bytes), err) < 0)
            goto out;
    }
    rc = 0;
out:
    free(code);
    return rc;
}

static int normalize_prepend(struct pretok *pretok, const struct tok_step *step, const char *text,
                             size_t len, struct buf *out, struct err *err)
{
    if (len > 0 && buf_add(out, step_a(pretok, step), step->a_len, err) < 0)
        return -1;
    return buf_add(out, text, len, err);
}

static int normalize_replace(struct pretok *pretok, const struct tok_step *step, const char *text,
                             size_t len, struct buf *out, struct err *err)
{
    return replace(pretok, step, (struct slice){text, len}, out, err);
}

static int normalize_replace_pattern(struct pretok *pretok, const struct tok_step *step,
                                     const char *text, size_t len, struct buf *out, struct err *err)
{
    struct search search;
    size_t done = 0, start, end;
    int found;
    if (len == 0)
        return 0;
    if (start_pattern(pretok, step, text, len, &search, err) < 0)
        return -1;
    while ((found = search_next(&search, &start, &end, err)) > 0) {
        if (buf_add(out, text + done, start - done, err) < 0 ||
            buf_add(out, step_b(pretok, step), step->b_len, err) < 0 ||
            check_growth(pretok, out->len, err) < 0)
            return -1;
        done = end;
    }
    return found < 0 ? -1 : buf_add(out, text + done, len - done, err);
}

typedef int normalize_fn(struct pretok *, const struct tok_step *, const char *, size_t, struct buf *,
                         struct err *);

static normalize_fn *const normalizers[STEP_KINDS] = {
    [NORMALIZE_NFC] = normalize_nfc,
    [NORMALIZE_PREPEND] = normalize_prepend,
    [NORMALIZE_REPLACE] = normalize_replace,
    [NORMALIZE_REPLACE_PATTERN] = normalize_replace_pattern,
};

int pretok_normalize(struct pretok *pretok, const char *text, size_t len, const char **normal,
                     size_t *normal_len, struct err *err)
{
    const struct tok_step *steps = pretok->tok->steps[LIST_NORMALIZER];
    *normal = text;
    *normal_len = len;
    limit_growth(pretok, len);
    for (size_t i = 0; i < pretok->tok->step_count[LIST_NORMALIZER]; i++) {
        struct buf *out = &pretok->normal[i % 2];
        buf_clear(out);
        if (buf_reserve(out, *normal_len, err) < 0 ||
            normalizers[steps[i].kind](pretok, &steps[i], *normal, *normal_len, out, err) < 0 ||
            check_growth(pretok, out->len, err) < 0)
            return -1;
        *normal = out->data;
        *normal_len = out->len;
    }
    return 0;
}

/* --- splitting --- */

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
    if (start_pattern(pretok, step, pretok->text + piece.start, len, &search, err) < 0)
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
    size_t done = piece.start;
    while (done < piece.end) {
        const char *found =
            memmem(pretok->text + done, piece.end - done, step_a(pretok, step), step->a_len);
        if (!found)
            break;
        size_t start = (size_t)(found - pretok->text), end = start + step->a_len;
        if (start != done && fold_add(fold, done, start, false, err) < 0)
            return -1;
        if (fold_add(fold, start, end, true, err) < 0)
            return -1;
        done = end;
    }
    return done == piece.end ? 0 : fold_add(fold, done, piece.end, false, err);
}

static int split_digits(struct pretok *pretok, const struct tok_step *step, struct span piece,
                        struct fold *fold, struct err *err)
{
    size_t done = piece.start;
    (void)step;
    for (size_t at = piece.start, after; at < piece.end; at = after) {
        uint32_t code;
        after = at + utf8_decode(pretok->text + at, &code);
        if (!utf8_is_numeric(code))
            continue;
        if (done != at && fold_add(fold, done, at, false, err) < 0)
            return -1;
        if (fold_add(fold, at, after, true, err) < 0)
            return -1;
        done = after;
    }
    return done == piece.end ? 0 : fold_add(fold, done, piece.end, false, err);
}

static split_fn *const splitters[STEP_KINDS] = {
    [SPLIT_PATTERN] = split_pattern,
    [SPLIT_TEXT] = split_text,
    [SPLIT_DIGITS] = split_digits,
};

/* A step that writes one piece anew. */
typedef int rewrite_fn(struct pretok *, const struct tok_step *, struct span, bool, struct buf *,
                       struct err *);

static int rewrite_prefix(struct pretok *pretok, const struct tok_step *step, struct span piece,
                          bool first, struct buf *out, struct err *err)
{
    const char *text = pretok->text + piece.start, *prefix = step_a(pretok, step);
    size_t len = piece.end - piece.start;
    bool there = len >= step->a_len && memcmp(text, prefix, step->a_len) == 0;
    bool wanted = step->option == PREFIX_ALWAYS || first;
    if (wanted && !there && buf_add(out, prefix, step->a_len, err) < 0)
        return -1;
    return buf_add(out, text, len, err);
}

static int rewrite_replace(struct pretok *pretok, const struct tok_step *step, struct span piece,
                           bool first, struct buf *out, struct err *err)
{
    (void)first;
    return replace(pretok, step, (struct slice){pretok->text + piece.start, piece.end - piece.start},
                   out, err);
}

static rewrite_fn *const rewriters[STEP_KINDS] = {
    [SPLIT_PREFIX] = rewrite_prefix,
    [SPLIT_REPLACE] = rewrite_replace,
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
            check_growth(pretok, out->len, err) < 0)
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
    limit_growth(pretok, len);
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
