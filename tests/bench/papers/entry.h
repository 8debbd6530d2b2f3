/* Results of entries: JSON files that run.sh writes, and their verdicts. */
#ifndef BMC_ENTRY_H
#define BMC_ENTRY_H

#include "paper_rows.h"
#include "verdict.h"

/* One result file. `parts` has what the entry's script printed, an object per line, by "kind":
 * claim (verdict.h), equal ({"name", "values"}: results that must be the same), figure (chart.h),
 * table ({"title", "head", "rows"}), markdown, note and form ({"text"}; form: why no claim of the
 * paper is tested), skip ({"text"}: why nothing was measured). */
struct entry {
    json_t *root;
    const char *key, *state; /* borrowed from root */
    const json_t **claim;    /* [n_claims] borrowed */
    struct judged *judged;
    size_t n_claims;
    enum outcome outcome;
    const char *form;    /* NULL: the paper's claims are tested */
    const char *differs; /* name of the first "equal" whose values differ; NULL: none does */
};

struct entries {
    struct entry *entry;
    size_t n, cap;
};

/* Reads DIR/NAME.json of all entries, in order of names. */
int entries_read(struct entries *entries, const char *dir, struct err *err) MUST_USE;
void entries_close(struct entries *entries);

/* The result that belongs to a row of the index; NULL if there is none. */
const struct entry *entry_of_row(const struct entries *entries, const struct paper_row *row);

/* The verdict of this result, as the first words of the index's verdicts. */
const char *entry_verdict(const struct entry *entry);

/* True if one of both verdicts says that the claim holds and the other that it does not. */
bool entry_contradicts(const struct entry *entry, const char *index_verdict);

/* A member of an object as text, "" if it is none. */
const char *entry_text(const json_t *object, const char *key);

#endif
