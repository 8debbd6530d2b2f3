/* Regular expressions of tokenizers: translated from the dialect of tokenizer.json (Oniguruma,
 * Ruby syntax) to PCRE2 at conversion, compiled on first use. */
#pragma once

#include "base/mem.h"

/* Appends the PCRE2 translation of a pattern to `out`. Constructs without an exact equivalent,
 * and patterns that do not compile, are errors. */
int pattern_translate(const char *pattern, size_t len, struct buf *out, struct err *err) MUST_USE;

/* The compiled patterns of one tokenizer; compiled on first use, thread-safe. */
struct patterns;

struct patterns *patterns_new(size_t count);
void patterns_free(struct patterns *patterns);

/* PCRE2's match state of one thread; to be initialised with zeros. */
struct matcher {
    void *match_data, *context, *stack;
};

void matcher_release(struct matcher *matcher);

/* A search for all matches in a text. */
struct search {
    struct matcher *matcher;
    const void *code;
    const char *text; /* valid UTF-8 */
    size_t len, from, last_end;
    bool matched; /* there was a match; it ended at last_end */
};

/* Starts a search in `text` for pattern number `index`, whose PCRE2 source is `pattern`. */
int search_start(struct search *search, struct matcher *matcher, struct patterns *patterns,
                 size_t index, const char *pattern, size_t pattern_len, const char *text, size_t len,
                 struct err *err) MUST_USE;

/* Finds the next match: 1 with its bounds, 0 if there are no more, -1 on error. Skips empty matches
 * directly after a match, as Oniguruma's scan does. */
int search_next(struct search *search, size_t *start, size_t *end, struct err *err) MUST_USE;
