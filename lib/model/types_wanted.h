/* Which type each tensor of a model that is being made gets. */
#ifndef BMC_TYPES_WANTED_H
#define BMC_TYPES_WANTED_H

#include "base/err.h"
#include "model/roles.h"

/* Types are values of enum dtype; DTYPE_COUNT is the source's. */
struct types_wanted {
    enum dtype type;
    bool keep_head; /* the head, or the embedding that is the head, keeps the source's */
    char *const
        *keep; /* [n_keep] "PATTERN=TYPE": tensors by name; of several that match, the last counts */
    size_t n_keep;
};

/* Names of the types that can be made, as a list of options has them, and the type of each. */
#define TYPES_MADE "auto|f32|bf16|f16|q8|q8c|q4|q4s"
extern const enum dtype types_made[];

/* What one of `keep` says; false where it is not of that form. */
bool types_keep_parse(const char *text, char pattern[ROLE_NAME_SIZE], enum dtype *type);

/* Every pattern has a matrix to match. */
int types_check(const struct types_wanted *wanted, const struct config *config,
                struct err *err) MUST_USE;

/* The type of a tensor of that role and name, which the source has as `from`. Vectors are f32. */
enum dtype types_choose(const struct types_wanted *wanted, const struct config *config,
                        const struct role *role, const char *name, enum dtype from);

#endif
