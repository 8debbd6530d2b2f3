/* Encoding of characters that are not in the vocabulary: byte fallback, unknown token. */
#ifndef BMC_TOK_UNKNOWN_H
#define BMC_TOK_UNKNOWN_H

#include "text/ids.h"
#include "text/tokenizer/tok_tables.h"

/* If byte fallback is on and all byte tokens "<0x..>" of `text` exist, appends them and sets
 * *added to true, else to false. */
int tok_add_bytes(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                  bool *added, struct err *err) MUST_USE;

/* Appends byte tokens or the unknown token for text that no token covers. Consecutive unknown
 * tokens are fused, but not with those before index `from` of `ids`. */
int tok_add_unknown(const struct tokenizer *tok, const char *text, size_t len, size_t from,
                    struct ids *ids, struct err *err) MUST_USE;

#endif
