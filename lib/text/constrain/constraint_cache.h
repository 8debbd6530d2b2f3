/* Compiled constraints of a model, shared by requests with the same one. */
#ifndef BMC_CONSTRAINT_CACHE_H
#define BMC_CONSTRAINT_CACHE_H

#include "text/constrain/constraint.h"
#include "text/constrain/constraint_source.h"

struct constraint_cache;

enum { CONSTRAINTS_IDLE = 16 }; /* unused constraints that are kept */

/* `vocab` is the number of logits. The tokenizer is borrowed; its trie is built with the first
 * constraint. */
int constraint_cache_open(struct constraint_cache **cache, const struct tokenizer *tok, size_t vocab,
                          struct err *err) MUST_USE;
void constraint_cache_close(struct constraint_cache *cache); /* NULL is accepted */

/* Calls `note` with the first sentence about what a constraint asks for and is not done. */
void constraint_cache_on_note(struct constraint_cache *cache,
                              void note(void *arg, const char *sentence), void *arg);

/* Compiles a constraint, unless it is in the cache. Each one got is returned by
 * constraint_cache_put(). */
int constraint_cache_get(struct constraint_cache *cache, enum constraint_kind kind, const char *text,
                         size_t len, struct constraint **constraint, struct err *err) MUST_USE;
void constraint_cache_put(struct constraint_cache *cache, struct constraint *constraint);

#endif
