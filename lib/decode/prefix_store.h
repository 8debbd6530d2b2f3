/* The prefix cache on disk, of a session: KV entries of prompts and answers in a folder of blocks, which
 * later runs and other processes reuse (format/kvblock/), and of models with recurrent layers states at some of their
 * ends: session_options.stored_every apart, and where later prompts are likely to continue. KV entries are used up to a
 * state only. A block's key covers the model, the
 * precision, the cache's type and all tokens up to its end, and kernel sets and attention backends whose
 * sums are their own: whatever affects the bits of its KV entries. */
#pragma once

#include "decode/session.h"
#include "format/kvblock/kvblock_folder.h"

struct prefix_store;

/* Default size of a folder. */
#define DEFAULT_STORE_GIB   4
#define DEFAULT_STORE_BYTES ((size_t)DEFAULT_STORE_GIB << 30)

/* Opens the folder at `path`, created if missing, for at most `size` bytes of blocks. Blocks are used by
 * programs of the same `version` only, as kernels of another may round differently. */
int prefix_store_open(struct prefix_store **store, const char *path, size_t size, const char *version,
                      struct kvblock_warn warn, struct err *err) MUST_USE;
void prefix_store_close(struct prefix_store *store); /* NULL is accepted */

/* The limit on its bytes, session_options.stored_bytes; 0: store is NULL. */
size_t prefix_store_size(const struct prefix_store *store);

/* Prepares the store for a session, whose options name it. Fails, with the reason, if the session's KV
 * entries cannot be stored; the store is then ignored. */
int prefix_store_bind(struct prefix_store *store, const struct session *session,
                      struct err *err) MUST_USE;

/* Where a sequence is in its chain of blocks. */
struct prefix_chain {
    struct hash key; /* of the last of the blocks, or what first blocks begin with */
    uint64_t begun;  /* kvblock_now() */
    size_t blocks;   /* leading blocks that were found or stored */
    /* Of models with recurrent layers, in tokens: the last position with a stored state; end of the blocks that were
     * there, with or without one; and positions whose states are to be stored, 0: none. */
    size_t state, branch, likely[3];
};

/* Before the first block of a sequence with these factors of the model's adapters (NULL: 1 each). */
struct prefix_chain prefix_store_begin(const struct prefix_store *store, const struct model *model,
                                       const float *lora_factor);

/* True if a whole block of token[0..n) that follows the chain, block `from` or a later one, is missing: *key is then
 * the key of the first one. */
bool prefix_store_missing(const struct prefix_store *store, struct prefix_chain chain, size_t from,
                          const uint32_t *token, size_t n, struct hash *key);

/* Loads KV entries into a sequence that has `session_length()` of them, of the tokens token[0..n): at
 * most the first `most`. *chain is before the first block, and advances. Sets *dropped to the number of damaged blocks
 * found. Entries that cannot be loaded are left out. Marks positions whose states are to be stored; if some entries
 * turned out to be damaged, the sequence may have lost others and their marks. */
int prefix_store_load(struct prefix_store *store, struct session *session, size_t seq,
                      const uint32_t *token, size_t n, size_t most, struct prefix_chain *chain,
                      size_t *dropped, struct err *err) MUST_USE;

/* Stores the whole blocks of the sequence's entries, whose tokens are token[0..n), that are not in the
 * chain yet, and states at their ends, and advances it. `ended`: the sequence's last state, too. Returns the number of
 * tokens stored. */
size_t prefix_store_save(struct prefix_store *store, struct session *session, size_t seq,
                         const uint32_t *token, size_t n, bool ended, struct prefix_chain *chain);

/* kvblock_folder_count(). */
void prefix_store_count(struct prefix_store *store, size_t tokens, size_t found);

/* kvblock_folder_claim() and kvblock_folder_release(). */
bool prefix_store_claim(struct prefix_store *store, const struct hash *key);
void prefix_store_release(struct prefix_store *store, const struct hash *key);
