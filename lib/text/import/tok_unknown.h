/* Characters that are not in the vocabulary. */
#ifndef BMC_TOK_UNKNOWN_H
#define BMC_TOK_UNKNOWN_H

#include "text/ids.h"
#include "text/tokenizer/tok_tables.h"

/* Appends the byte tokens "<0x..>" of `text` if byte fallback is on and all exist; sets *added. */
int tok_add_bytes(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                  bool *added, struct err *err) MUST_USE;

/* Appends byte tokens or the unknown token for an uncovered text. Consecutive unknown tokens
 * from index `from` on are fused. */
int tok_add_unknown(const struct tokenizer *tok, const char *text, size_t len, size_t from,
                    struct ids *ids, struct err *err) MUST_USE;

#endif
