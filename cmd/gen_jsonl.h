/* The loop over requests, whoever reads them and writes their results: this process alone, or a rank among others. */
#ifndef BMC_GEN_JSONL_H
#define BMC_GEN_JSONL_H

#include "gen.h"

enum { JSONL_BATCH = 8 }; /* requests at a time unless -b says how many */

struct jsonl_line {
    const char *text; /* stands until the next one; NULL: it was too long */
    size_t len;
    uint64_t number; /* among all lines, from 0 */
};

struct jsonl_result {
    uint64_t number;
    bool failed;
    struct hash logits_hash; /* zero where no token was generated */
};

/* Where lines come from, and results go. Each line gets one result, also when the run ends by an error. */
struct jsonl_ends {
    /* GEN_REQUEST, GEN_END, GEN_LATER if we shall not wait, or -1 */
    int (*next)(void *arg, bool wait, struct jsonl_line *line, struct err *err);
    /* `text` is taken over */
    int (*put)(void *arg, const struct jsonl_result *result, struct buf *text, struct err *err);
    void *arg;
};

/* Generates until there are no more lines; the session is open. */
int jsonl_run(struct gen *gen, const struct jsonl_ends *ends, struct gen_stats *stats,
              struct err *err) MUST_USE;

/* A name as it came, to the last digit, as JSON; NULL, and the error: there was no memory. */
char *jsonl_spell_id(const json_t *id, struct err *err) MUST_USE;

/* --split requests: rank 0 deals the lines and writes the results, and all ranks generate. */
int gen_jsonl_ranks(struct gen *gen, struct err *err) MUST_USE;

#endif
