/* Runs normalizers and pre-tokenizers. Each kind of step is a function in the tables `normalizers`, `splitters` and
 * `rewriters`. To add one: a kind in tok_tables.h, its rule in tok_tables.c, a function here, and its name and parse
 * function in tok_components.c. */
#include "text/tokenizer/tok_steps.h"

#include <utf8proc.h>

#include "text/tokenizer/tok_tables.h"
#include "text/tokenizer/added.h"
#include "text/utf8.h"

/* ---- operands of steps, and size limits of the texts that they produce ---- */

enum { GROWTH_FACTOR = 64, GROWTH_FREE = 64 << 10 };

/* A text that is rewritten by a step: a whole text, or a pre-token. The first error is kept in *err. */
struct rewrite_job {
    const struct tokenizer *tok;
    const struct tok_step *step;
    struct matcher *matcher;
    bool first;   /* the text is at the start of the input */
    size_t limit; /* maximum size of the result */
    struct buf *out;
    struct err *err;
    bool failed;
};

/* A rewriting step: appends the new text to r->out. */
typedef void rewrite_fn(struct rewrite_job *r, struct slice text);

static struct slice step_a(const struct rewrite_job *r)
{
    return (struct slice){r->tok->text + r->step->a, r->step->a_len};
}

static struct slice step_b(const struct rewrite_job *r)
{
    return (struct slice){r->tok->text + r->step->b, r->step->b_len};
}

/* Calls a function that reports to r->err, unless there is an error; true: there is one now. */
#define TRY(r, call) ((r)->failed = (r)->failed || (call) < 0)

static int check_growth(const struct rewrite_job *r)
{
    return r->out->len <= r->limit
               ? 0
               : err_set(r->err, "the tokenizer expands a text to more than %zu bytes", r->limit);
}

static void put_bytes(struct rewrite_job *r, const char *bytes, size_t len)
{
    TRY(r, buf_add(r->out, bytes, len, r->err));
    TRY(r, check_growth(r));
}

static void put_slice(struct rewrite_job *r, struct slice text) { put_bytes(r, text.data, text.size); }

static void put_code(struct rewrite_job *r, uint32_t code)
{
    char bytes[UTF8_MAX];
    put_bytes(r, bytes, utf8_write(code, bytes));
}

/* Starts a search in `text` for the regular expression that is operand a of a step. */
static int step_search(const struct tokenizer *tok, const struct tok_step *step,
                       struct matcher *matcher, struct slice text, struct search *search,
                       struct err *err)
{
    /* every normalizer and pre-tokenizer step has an index among the tokenizer's patterns */
    size_t index = (size_t)(step - tok->steps[LIST_NORMALIZER]);
    return search_start(search, matcher, tok->patterns, index, tok->text + step->a, step->a_len,
                        text.data, text.size, err);
}

/* Maximum bytes to which steps may expand a text of `len` bytes: those of untrusted tables could
 * double it repeatedly. */
static size_t step_limit(size_t len) { return GROWTH_FREE + GROWTH_FACTOR * len; }

/* Matching charsmap rules in the double-array trie. All offsets are checked here, since nothing
 * validated them before. */

/* A u32 unit of the double array. Bits 0-7: label, 8: has a leaf, 9: offset counts units of 256,
 * 10-30: offset. If bit 31 is set, the rest is the value of a leaf, an offset into the strings. */
enum { UNIT_ENDS = 1 << 8, UNIT_FAR = 1 << 9 };
#define UNIT_VALUE 0x80000000U

static uint32_t read_unit(const char *at)
{
    uint32_t unit;
    memcpy(&unit, at, sizeof unit);
    return unit;
}

static uint32_t distance(uint32_t unit) { return (unit >> 10) << (unit & UNIT_FAR ? 8 : 0); }

bool charsmap_valid(const char *bytes, size_t size)
{
    if (size < 8)
        return false;
    uint32_t trie_bytes = read_unit(bytes);
    return trie_bytes >= 4 && trie_bytes % 4 == 0 && trie_bytes < size - 4 && !bytes[size - 1] &&
           utf8_valid(bytes + 4 + trie_bytes, size - 4 - trie_bytes) == size - 4 - trie_bytes;
}

/* Gets the replacement string at offset `place`: 1, or -1 if it is damaged. */
static int read_string(const char *strings, size_t size, uint32_t place, struct slice *string,
                       struct err *err)
{
    const char *end = place < size ? memchr(strings + place, 0, size - place) : NULL;
    if (!end)
        return err_set(err, "the tokenizer's charsmap is damaged: string offset %u of %zu", place,
                       size);
    *string = (struct slice){strings + place, (size_t)(end - strings) - place};
    if (utf8_valid(string->data, string->size) != string->size)
        return err_set(err, "the tokenizer's charsmap is damaged: the string at %u is not UTF-8",
                       place);
    return 1;
}

/* Finds the longest, or else the shortest, rule that matches at the start of `text`. 1: *becomes is
 * the replacement of the first *used bytes; 0: no rule matches; -1: error. */
static int charsmap_find(const struct tokenizer *tok, struct slice text, bool longest,
                         struct slice *becomes, size_t *used, struct err *err)
{
    uint32_t trie_bytes = tok->charsmap_bytes > 8 ? read_unit(tok->charsmap) : 0;
    if (trie_bytes < 4 || trie_bytes > tok->charsmap_bytes - 4)
        return 0;
    const char *trie = tok->charsmap + 4, *strings = trie + trie_bytes;
    uint32_t units = trie_bytes / 4, at = distance(read_unit(trie)), found = UNIT_VALUE;
    for (size_t i = 0; i < size_min(text.size, TOK_MAX_PIECE); i++) {
        unsigned char byte = (unsigned char)text.data[i];
        at ^= byte;
        if (at >= units)
            break;
        uint32_t unit = read_unit(trie + 4 * (size_t)at);
        if ((unit & (UNIT_VALUE | 0xff)) != byte || !byte)
            break;
        at ^= distance(unit);
        if (!(unit & UNIT_ENDS) || at >= units)
            continue;
        found = read_unit(trie + 4 * (size_t)at) & ~UNIT_VALUE;
        *used = i + 1;
        if (!longest)
            break;
    }
    if (found == UNIT_VALUE)
        return 0;
    return read_string(strings, tok->charsmap_bytes - 4 - trie_bytes, found, becomes, err);
}

/* ---- character normalizers: Unicode normal forms, accents, case, charsmaps ---- */

/* --- normal forms --- */

struct mark {
    utf8proc_int32_t code;
    utf8proc_propval_t class;
};

/* Sorts combining marks by combining class: counting sort, stable and linear. */
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
                return err_no_memory(err, "a text of %zu characters", count);
            sort_marks(code + at, end - at, scratch);
        }
        at = size_max(end, at + 1);
    }
    free(scratch);
    return 0;
}

/* True if the form leaves the text as it is (fast path): NFC changes nothing below U+0300, the
 * other forms nothing below U+00A0. */
static bool is_plain(enum tok_form form, struct slice text)
{
    unsigned char least = form == FORM_NFC ? 0xcc : 0xc2;
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] >= least)
            return false;
    return true;
}

/* Decomposes `text` to *count code points in canonical order. `code` must have room for the longest
 * possible decomposition; `longest` is the maximum for one character. */
static int decompose(struct slice text, utf8proc_option_t options, utf8proc_int32_t *code,
                     utf8proc_ssize_t longest, size_t *count, struct err *err)
{
    *count = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t whole;
        at += utf8_decode(text.data + at, &whole);
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)whole, code + *count, longest, options, NULL);
        if (got < 0 || got > longest)
            return err_set(err, "U+%04X cannot be normalized", whole);
        *count += (size_t)got;
    }
    return order_marks(code, *count, err);
}

/* The Unicode form that the step selects: NFC, NFD, NFKC, NFKD. */
static void normalize_unicode(struct rewrite_job *r, struct slice text)
{
    const enum tok_form form = (enum tok_form)r->step->option;
    /* Maximum code points of a decomposition, per character and per byte of UTF-8. */
    static const struct {
        bool composed;
        utf8proc_option_t options;
        size_t longest, per_byte;
    } forms[FORM_COUNT] = {
        [FORM_NFC] = {true, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, 4, 2},
        [FORM_NFD] = {false, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, 4, 2},
        [FORM_NFKC] = {true, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT, 18, 6},
        [FORM_NFKD] = {false, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT, 18, 6},
    };
    size_t longest = forms[form].longest, count = 0;
    if (is_plain(form, text)) {
        put_slice(r, text);
        return;
    }
    utf8proc_int32_t *code = mem_alloc(text.size + longest, forms[form].per_byte * sizeof code[0]);
    TRY(r, code ? decompose(text, forms[form].options, code, (utf8proc_ssize_t)longest, &count, r->err)
                : err_no_memory(r->err, "a text of %zu bytes", text.size));
    if (forms[form].composed && !r->failed)
        count = (size_t)utf8proc_normalize_utf32(code, (utf8proc_ssize_t)count,
                                                 UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (size_t i = 0; i < count && !r->failed; i++)
        put_code(r, (uint32_t)code[i]);
    free(code);
}

static void normalize_strip_accents(struct rewrite_job *r, struct slice text)
{
    for (size_t at = 0, step; at < text.size; at += step) {
        uint32_t code;
        step = utf8_decode(text.data + at, &code);
        if (!utf8_is_mark(code))
            put_bytes(r, text.data + at, step);
    }
}

static void normalize_lowercase(struct rewrite_job *r, struct slice text)
{
    for (size_t at = 0; at < text.size;) {
        uint32_t code;
        at += utf8_decode(text.data + at, &code);
        put_code(r, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
        if (code == 0x130) /* the only letter whose lower case has two code points */
            put_code(r, 0x307);
    }
}

/* Offset of the end of the grapheme cluster that starts at `at`. */
static size_t grapheme_end(struct slice text, size_t at)
{
    uint32_t code, next;
    utf8proc_int32_t state = 0;
    at += utf8_decode(text.data + at, &code);
    for (; at < text.size; code = next) {
        unsigned step = utf8_decode(text.data + at, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state))
            break;
        at += step;
    }
    return at;
}

/* Puts the charsmap's replacement of `part`; false: no rule matches. */
static bool put_mapped(struct rewrite_job *r, struct slice part)
{
    struct slice becomes;
    size_t used;
    const int found = r->failed ? 0 : charsmap_find(r->tok, part, false, &becomes, &used, r->err);
    if (found > 0)
        put_slice(r, becomes);
    r->failed |= found < 0;
    return found > 0;
}

/* Applies the charsmap as the tokenizers library does: grapheme clusters of less than 6 bytes,
 * or else their code points, are replaced by their shortest matching rule. */
static void normalize_charsmap(struct rewrite_job *r, struct slice text)
{
    for (size_t at = 0, end; at < text.size && !r->failed; at = end) {
        end = grapheme_end(text, at);
        if (end - at < 6 && put_mapped(r, (struct slice){text.data + at, end - at}))
            continue;
        for (size_t step; at < end && !r->failed; at += step) {
            uint32_t code;
            step = utf8_decode(text.data + at, &code);
            const struct slice character = {text.data + at, step};
            if (!put_mapped(r, character))
                put_slice(r, character);
        }
    }
}

/* SentencePiece's normalizer: characters, white space and U+2581 in one pass, as in its
 * own implementation; user-defined tokens are left alone. */

static const struct slice space_mark = {"\xe2\x96\x81", 3}; /* U+2581 */

/* Length of the longest user-defined token of a Unigram model at the start of `text`, or 0. */
static size_t user_defined_in_trie(const struct tokenizer *tok, struct slice text)
{
    size_t found = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < size_min(text.size, tok->longest); i++) {
        node = tok_trie_child(tok, node, text.data[i]);
        if (node == TOK_NONE)
            break;
        if (tok_flags(tok, tok->trie_id[node]) & TOK_USER)
            found = i + 1;
    }
    return found;
}

/* Length of the longest user-defined token at the start of `text`, or 0, for any model: in BPE they
 * are added tokens. */
static size_t user_defined(const struct tokenizer *tok, struct slice text)
{
    if (tok->kind == KIND_UNIGRAM)
        return user_defined_in_trie(tok, text);
    const struct tok_added *added = added_longest(tok, 1, text.data, text.size);
    return added ? added->len : 0;
}

/* The next normalised chunk of `text`, and the number of bytes that it replaces. */
static struct slice next_chunk(struct rewrite_job *r, struct slice text, size_t *used)
{
    struct slice chunk = {text.data, 0};
    uint32_t code;
    *used = chunk.size = user_defined(r->tok, text);
    if (*used)
        return chunk;
    const int found = r->failed ? 0 : charsmap_find(r->tok, text, true, &chunk, used, r->err);
    r->failed |= found < 0;
    if (found <= 0)
        *used = chunk.size = utf8_decode(text.data, &code);
    return chunk;
}

static void put_escaped(struct rewrite_job *r, struct slice chunk)
{
    for (size_t i = 0; i < chunk.size; i++)
        put_slice(r, chunk.data[i] == ' ' ? space_mark : (struct slice){chunk.data + i, 1});
}

static bool ends_with_mark(const struct buf *out)
{
    return out->len >= space_mark.size &&
           !memcmp(out->data + out->len - space_mark.size, space_mark.data, space_mark.size);
}

static struct slice skip_bytes(struct slice text, size_t count)
{
    return (struct slice){text.data + count, text.size - count};
}

/* Skips leading characters of `text` that are normalised to a space. */
static void skip_spaces(struct rewrite_job *r, struct slice *text)
{
    while (text->size && !r->failed) {
        size_t used;
        const struct slice chunk = next_chunk(r, *text, &used);
        if (chunk.size != 1 || chunk.data[0] != ' ')
            break;
        *text = skip_bytes(*text, used);
    }
}

/* SentencePiece's normalizer: characters by the charsmap, white space by the step's option (enum
 * tok_sentencepiece), remaining spaces become U+2581. r->out must be empty. */
static void normalize_sentencepiece(struct rewrite_job *r, struct slice text)
{
    const uint32_t options = r->step->option;
    bool collapse = (options & SENTENCEPIECE_COLLAPSE) != 0, after_space = collapse;
    if (collapse)
        skip_spaces(r, &text);
    if (text.size && options & SENTENCEPIECE_PREFIX)
        put_slice(r, space_mark);
    while (text.size && !r->failed) {
        size_t used;
        struct slice chunk = next_chunk(r, text, &used);
        text = skip_bytes(text, used);
        while (after_space && chunk.size && chunk.data[0] == ' ')
            chunk = skip_bytes(chunk, 1);
        put_escaped(r, chunk);
        if (collapse && chunk.size)
            after_space = chunk.data[chunk.size - 1] == ' ';
    }
    while (collapse && ends_with_mark(r->out))
        r->out->len -= space_mark.size;
}

/* ---- rewriting: normalizers, and pre-tokenizers that change text ---- */

static void rewrite_prepend(struct rewrite_job *r, struct slice text)
{
    if (text.size > 0)
        put_slice(r, step_a(r));
    put_slice(r, text);
}

static void rewrite_prefix(struct rewrite_job *r, struct slice text)
{
    const struct slice prefix = step_a(r);
    bool there = text.size >= prefix.size && memcmp(text.data, prefix.data, prefix.size) == 0;
    if (!there && (r->step->option == PREFIX_ALWAYS || r->first))
        put_slice(r, prefix);
    put_slice(r, text);
}

static void rewrite_replace(struct rewrite_job *r, struct slice text)
{
    TRY(r, slice_replace(text, step_a(r), step_b(r), r->limit, r->out, r->err));
    TRY(r, check_growth(r));
}

static void rewrite_pattern(struct rewrite_job *r, struct slice text)
{
    struct search search;
    size_t done = 0, start, end;
    int found = 1;
    if (text.size == 0 || TRY(r, step_search(r->tok, r->step, r->matcher, text, &search, r->err)))
        return;
    while (!r->failed && (found = search_next(&search, &start, &end, r->err)) > 0) {
        put_bytes(r, text.data + done, start - done);
        put_slice(r, step_b(r));
        done = end;
    }
    r->failed |= found < 0;
    put_bytes(r, text.data + done, text.size - done);
}

static void rewrite_strip(struct rewrite_job *r, struct slice text)
{
    size_t start = 0, end = text.size;
    uint32_t code;
    while (r->step->option & STRIP_LEFT && start < end) {
        size_t step = utf8_decode(text.data + start, &code);
        if (!utf8_is_space(code))
            break;
        start += step;
    }
    while (r->step->option & STRIP_RIGHT && end > start) {
        size_t before = utf8_before(text.data, end);
        utf8_decode(text.data + before, &code);
        if (!utf8_is_space(code))
            break;
        end = before;
    }
    put_bytes(r, text.data + start, end - start);
}

static void rewrite_to_alphabet(struct rewrite_job *r, struct slice text)
{
    for (size_t at = 0; at < text.size; at++)
        put_code(r, byte_alphabet_letter((unsigned char)text.data[at]));
}

static void rewrite_from_alphabet(struct rewrite_job *r, struct slice text)
{
    size_t bytes;
    if (TRY(r, buf_reserve(r->out, text.size, r->err)))
        return;
    if (byte_alphabet_decode(text.data, text.size, r->out->data + r->out->len, &bytes))
        r->out->len += bytes;
    else
        TRY(r, err_set(r->err, "\"%.*s\" is outside the byte alphabet of the tokenizer",
                       (int)size_min(text.size, 60), text.data));
}

static rewrite_fn *const rewriters[STEP_KINDS] = {
    [NORMALIZE_UNICODE] = normalize_unicode,
    [NORMALIZE_PREPEND] = rewrite_prepend,
    [NORMALIZE_REPLACE] = rewrite_replace,
    [NORMALIZE_REPLACE_PATTERN] = rewrite_pattern,
    [NORMALIZE_CHARSMAP] = normalize_charsmap,
    [NORMALIZE_SENTENCEPIECE] = normalize_sentencepiece,
    [NORMALIZE_STRIP] = rewrite_strip,
    [NORMALIZE_STRIP_ACCENTS] = normalize_strip_accents,
    [NORMALIZE_LOWERCASE] = normalize_lowercase,
    [SPLIT_PREFIX] = rewrite_prefix,
    [SPLIT_REPLACE] = rewrite_replace,
    [SPLIT_TO_BYTE_ALPHABET] = rewrite_to_alphabet,
    [SPLIT_FROM_BYTE_ALPHABET] = rewrite_from_alphabet,
};

void norm_release(struct normalizer *norm)
{
    matcher_release(&norm->matcher);
    buf_release(&norm->text[0]);
    buf_release(&norm->text[1]);
    *norm = (struct normalizer){0};
}

int norm_run(struct normalizer *norm, const struct tokenizer *tok, const char *text, size_t len,
             const char **normal, size_t *normal_len, struct err *err)
{
    struct rewrite_job r = {
        .tok = tok, .matcher = &norm->matcher, .limit = step_limit(len), .err = err};
    struct slice now = {text, len};
    for (size_t i = 0; i < tok->step_count[LIST_NORMALIZER]; i++) {
        r.step = &tok->steps[LIST_NORMALIZER][i];
        r.out = &norm->text[i % 2];
        buf_clear(r.out);
        if (TRY(&r, buf_reserve(r.out, now.size, err)))
            return -1;
        rewriters[r.step->kind](&r, now);
        if (r.failed)
            return -1;
        now = (struct slice){r.out->data, r.out->len};
    }
    *normal = now.data;
    *normal_len = now.size;
    return 0;
}

/* ---- pre-tokenizers: splitters split pre-tokens, rewriters change their text ---- */

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
    struct err *err;
    bool failed;
};

static void fold_put(struct fold *fold, size_t start, size_t end)
{
    TRY(fold, spans_add(&fold->pretok->next, start, end, fold->err));
}

static void fold_release(struct fold *fold)
{
    if (fold->holds)
        fold_put(fold, fold->held.start, fold->held.end);
    fold->holds = false;
}

/* Adds the next span, a match or the gap between two. Together they must cover the pre-token. */
static void fold_add(struct fold *fold, size_t start, size_t end, bool match)
{
    match ^= fold->invert;
    bool after_match = fold->after_match, grows = false;
    fold->after_match = match;
    switch (fold->behavior) {
    case BEHAVIOR_REMOVED:
        if (!match)
            fold_put(fold, start, end);
        return;
    case BEHAVIOR_CONTIGUOUS: grows = match == after_match; break;
    case BEHAVIOR_MERGED_WITH_PREVIOUS: grows = match && !after_match; break;
    case BEHAVIOR_MERGED_WITH_NEXT: grows = !match && after_match; break;
    default: break;
    }
    if (grows && fold->holds) {
        fold->held.end = end;
        return;
    }
    fold_release(fold);
    fold->held = (struct span){start, end};
    fold->holds = true;
}

/* Adds the gap [*done, start) before a match, unless empty, and the match; sets *done to `end`. */
static void fold_match(struct fold *fold, size_t *done, size_t start, size_t end)
{
    if (start != *done)
        fold_add(fold, *done, start, false);
    fold_add(fold, start, end, true);
    *done = end;
}

/* A splitter: finds the matches in one pre-token, passes them and the gaps before them to the fold, and returns
 * the end of the last one. */
typedef size_t split_fn(struct pretok *, const struct tok_step *, struct span, struct fold *);

static size_t split_pattern(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                            struct fold *fold)
{
    struct search search;
    const size_t first = pretoken.start;
    const struct slice text = {pretok->text + first, pretoken.end - first};
    size_t done = first, start, end;
    int found = 1;
    TRY(fold, step_search(pretok->tok, step, &pretok->matcher, text, &search, fold->err));
    while (!fold->failed && (found = search_next(&search, &start, &end, fold->err)) > 0)
        fold_match(fold, &done, first + start, first + end);
    fold->failed |= found < 0;
    return done;
}

static size_t split_text(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                         struct fold *fold)
{
    const char *wanted = pretok->tok->text + step->a, *found;
    size_t done = pretoken.start;
    while (done < pretoken.end &&
           (found = memmem(pretok->text + done, pretoken.end - done, wanted, step->a_len)) != NULL) {
        const size_t start = (size_t)(found - pretok->text);
        fold_match(fold, &done, start, start + step->a_len);
    }
    return done;
}

/* Splits a pre-token at digits, or at punctuation. */
static size_t split_class(struct pretok *pretok, const struct tok_step *step, struct span pretoken,
                          struct fold *fold)
{
    bool (*const is_in)(uint32_t) = step->kind == SPLIT_DIGITS ? utf8_is_numeric : utf8_is_punctuation;
    size_t done = pretoken.start;
    for (size_t at = pretoken.start, after; at < pretoken.end; at = after) {
        uint32_t code;
        after = at + utf8_decode(pretok->text + at, &code);
        if (is_in(code))
            fold_match(fold, &done, at, after);
    }
    return done;
}

static split_fn *const splitters[STEP_KINDS] = {
    [SPLIT_PATTERN] = split_pattern,
    [SPLIT_TEXT] = split_text,
    [SPLIT_DIGITS] = split_class,
    [SPLIT_PUNCTUATION] = split_class,
};

static int run_splitter(struct pretok *pretok, const struct tok_step *step, struct err *err)
{
    for (size_t i = 0; i < pretok->pretokens.len; i++) {
        struct fold fold = {.pretok = pretok,
                            .behavior = step->option & (SPLIT_INVERT - 1U),
                            .invert = (step->option & SPLIT_INVERT) != 0,
                            .err = err};
        const struct short_span at = pretok->pretokens.span[i];
        const size_t done = splitters[step->kind](pretok, step, (struct span){at.start, at.end}, &fold);
        if (done != at.end)
            fold_add(&fold, done, at.end, false);
        fold_release(&fold);
        if (fold.failed)
            return -1;
    }
    return 0;
}

static int run_rewriter(struct pretok *pretok, const struct tok_step *step, bool first, struct err *err)
{
    struct buf *out = &pretok->rewritten[pretok->text == pretok->rewritten[0].data];
    struct rewrite_job r = {
        .tok = pretok->tok, .step = step, .limit = pretok->limit, .out = out, .err = err};
    buf_clear(out);
    for (size_t i = 0; i < pretok->pretokens.len; i++) {
        const struct short_span at = pretok->pretokens.span[i];
        const size_t start = out->len;
        r.first = first && i == 0;
        rewriters[step->kind](&r, (struct slice){pretok->text + at.start, at.end - at.start});
        TRY(&r, spans_add(&pretok->next, start, out->len, err));
        if (TRY(&r, check_growth(&r)))
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
