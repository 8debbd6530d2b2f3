/* Matching added tokens in a text: leftmost, longest, in one pass; then the flags single_word,
 * lstrip and rstrip are applied.
 *
 * Tokens are sorted by bytes: each further byte of the text narrows a range of candidates by
 * binary search, so cost does not depend on their number. A table of first bytes skips most
 * positions. */
#include "text/tokenizer/added.h"

#include "text/utf8.h"

void added_scan_init(struct added_scan *scan, const struct tokenizer *tok, unsigned list,
                     const char *text, size_t len, const struct added_filter *filter)
{
    *scan = (struct added_scan){
        .tok = tok, .list = list, .text = text, .len = len, .filter = filter, .id = TOK_NONE};
}

static bool is_special(const struct added_scan *scan, uint32_t id)
{
    const struct ids *delimiters = scan->filter->delimiters;
    for (size_t i = 0; delimiters && i < delimiters->len; i++)
        if (delimiters->id[i] == id)
            return true;
    return (tok_flags(scan->tok, id) & TOK_SPECIAL) != 0;
}

/* True if the filter allows an added token to match at offset `at`. */
static bool allowed(struct added_scan *scan, const struct tok_added *added, size_t at)
{
    const struct added_filter *filter = scan->filter;
    if (!filter)
        return true;
    if (!is_special(scan, added->id))
        return filter->plain;
    if (!filter->special)
        return false;
    at += filter->at;
    while (scan->word < filter->n_content && filter->content[scan->word].end <= at)
        scan->word++;
    return scan->word == filter->n_content || filter->content[scan->word].start >= at + added->len;
}

/* Byte `depth` of an added token; -1 at its end, which sorts first. */
static int byte_of(const struct tokenizer *tok, const struct tok_added *added, size_t depth)
{
    return depth < added->len ? (unsigned char)tok->text[added->text + depth] : -1;
}

/* Index of the first added token in [low, high) whose byte `depth` is at least `byte`. */
static size_t bound(const struct tokenizer *tok, const struct tok_added *added, size_t low, size_t high,
                    size_t depth, int byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (byte_of(tok, &added[middle], depth) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct tok_added *added_longest(const struct tokenizer *tok, unsigned list, const char *text,
                                      size_t len)
{
    const struct tok_added *added = tok->added[list], *longest = NULL;
    size_t low = 0, high = tok->added_count[list];
    if (len == 0 || !tok->added_start[list][(unsigned char)text[0]])
        return NULL;
    for (size_t depth = 0; depth < len && low < high; depth++) {
        int byte = (unsigned char)text[depth];
        low = bound(tok, added, low, high, depth, byte);
        high = bound(tok, added, low, high, depth, byte + 1);
        if (low < high && added[low].len == depth + 1)
            longest = &added[low];
    }
    return longest;
}

static bool is_single_word(const struct added_scan *scan, size_t start, size_t end)
{
    uint32_t code;
    if (start > 0) {
        utf8_decode(scan->text + utf8_before(scan->text, start), &code);
        if (utf8_is_word(code))
            return false;
    }
    if (end < scan->len) {
        utf8_decode(scan->text + end, &code);
        if (utf8_is_word(code))
            return false;
    }
    return true;
}

/* Offset of the start of the white space before `at`, but not before scan->done. */
static size_t space_before(const struct added_scan *scan, size_t at)
{
    while (at > scan->done) {
        uint32_t code;
        size_t before = utf8_before(scan->text, at);
        utf8_decode(scan->text + before, &code);
        if (!utf8_is_space(code) || before < scan->done)
            break;
        at = before;
    }
    return at;
}

/* Offset of the end of the white space after `at`. Memoised: a white-space token with rstrip would
 * rescan long white space at every match. */
static size_t space_behind(struct added_scan *scan, size_t at)
{
    if (at < scan->space_end)
        return scan->space_end;
    while (at < scan->len) {
        uint32_t code;
        unsigned step = utf8_decode(scan->text + at, &code);
        if (!utf8_is_space(code))
            break;
        at += step;
    }
    scan->space_end = at;
    return at;
}

/* Finds the next added token that may match; [*start, *end) includes stripped white space. */
static bool find_added_token(struct added_scan *scan, uint32_t *id, size_t *start, size_t *end)
{
    for (size_t at = scan->at; at < scan->len;) {
        const struct tok_added *added =
            added_longest(scan->tok, scan->list, scan->text + at, scan->len - at);
        if (!added || !allowed(scan, added, at)) {
            at++;
            continue;
        }
        size_t after = at + added->len;
        if ((added->flags & TOK_SINGLE_WORD) && !is_single_word(scan, at, after)) {
            at = after;
            continue;
        }
        *id = added->id;
        /* Inside white space stripped by an earlier token, a match may start before `done`. */
        *start = added->flags & TOK_LSTRIP ? size_max(space_before(scan, at), scan->done) : at;
        *end = added->flags & TOK_RSTRIP ? space_behind(scan, after) : after;
        scan->at = after;
        return true;
    }
    scan->at = scan->len;
    return false;
}

bool added_scan_next(struct added_scan *scan, uint32_t *id, size_t *start, size_t *end)
{
    if (scan->id == TOK_NONE && (scan->tok->added_count[scan->list] && scan->at < scan->len)) {
        size_t token_start;
        if (find_added_token(scan, &scan->id, &token_start, &scan->id_end) &&
            scan->done < token_start) {
            *id = TOK_NONE;
            *start = scan->done;
            *end = scan->done = token_start;
            return true;
        }
    }
    if (scan->id != TOK_NONE) {
        *id = scan->id;
        *start = *end = scan->done = scan->id_end;
        scan->id = TOK_NONE;
        return true;
    }
    *id = TOK_NONE;
    *start = scan->done;
    *end = scan->len;
    scan->done = scan->len;
    return *start < *end;
}
