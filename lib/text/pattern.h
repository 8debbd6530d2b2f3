/* Regular expressions: translated from the dialect of tokenizer.json (Oniguruma, Ruby syntax) when a
 * tokenizer is built; compiled by PCRE2 when first needed; searched as the library searches. */
#ifndef BMC_PATTERN_H
#define BMC_PATTERN_H

#include "base/mem.h"

/* Appends to `out` the PCRE2 spelling of a pattern; what the two dialects understand differently and
 * has no translation is refused. The result is compiled once, so that a broken pattern is found here.
 */
int pattern_translate(const char *pattern, size_t len, struct buf *out, struct err *err) MUST_USE;

/* The compiled patterns of one tokenizer, filled when first needed, by any thread. */
struct patterns;

struct patterns *patterns_new(size_t count);
void patterns_free(struct patterns *patterns);

/* What one thread needs to search. Zero-initialised is empty. */
struct matcher {
    void *match_data;
    void *context;
    void *stack;
};

void matcher_release(struct matcher *matcher);

/* One pass over one text. */
struct search {
    struct matcher *matcher;
    const void *code;
    const char *text; /* valid UTF-8 */
    size_t len;
    size_t from;
    size_t last_end;
    bool matched; /* last_end counts */
};

/* Starts a pass with pattern number `index`, whose spelling is given. */
int search_start(struct search *search, struct matcher *matcher, struct patterns *patterns,
                 size_t index, const char *pattern, size_t pattern_len, const char *text, size_t len,
                 struct err *err) MUST_USE;

/* The next match: 1 and its bounds, 0 when there is none, -1. An empty match right behind the match
 * before it does not count. */
int search_next(struct search *search, size_t *start, size_t *end, struct err *err) MUST_USE;

#endif
