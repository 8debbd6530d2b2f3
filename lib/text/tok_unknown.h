/* What stands for characters that a vocabulary lacks. */
#ifndef BMC_TOK_UNKNOWN_H
#define BMC_TOK_UNKNOWN_H

#include "text/ids.h"
#include "text/tok_tables.h"

/* Appends the ids of "<0x..>" for all bytes, if byte fallback is on and none of them is missing;
 * `*added` tells. */
int tok_add_bytes(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                  bool *added, struct err *err) MUST_USE;

/* Appends what stands for a text that no token covers: its bytes, or the unknown token. Of unknown
 * tokens that follow each other from place `from` of the list on, only the first is added. */
int tok_add_unknown(const struct tokenizer *tok, const char *text, size_t len, size_t from,
                    struct ids *ids, struct err *err) MUST_USE;

#endif
