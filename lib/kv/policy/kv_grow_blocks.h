/* Blocks of sequences that grow by reallocation: shared by kv_grow.c and kv_prepare.c. */
#ifndef BMC_KV_GROW_BLOCKS_H
#define BMC_KV_GROW_BLOCKS_H

#include "kv/kv_rows.h"

/* Memory of one layer's K or V, [sequence][KV head][rows][head_dim]: of one sequence, or in
 * lockstep of all sequences. */
struct grow_block {
    char *data;
    size_t rows;  /* allocated per head */
    bool foreign; /* memory from kv_attach(), owned by its caller */
};

/* The next growth event of a sequence, as far as it was done in advance: kv_prepare.h. */
struct kv_prepare {
    size_t layers;              /* leading layers that have their larger blocks already */
    struct grow_block fresh[2]; /* matrices of the layer after these, being filled; or no data */
    size_t filled;              /* rows at the end of `fresh` that are copied or zeroed */
    size_t unchanged;           /* leading rows that are the same since `fresh` was allocated */
    size_t copied;              /* rows copied, summed over layers */
};

struct grow_seq {
    struct kv_prepare prepare;
    struct grow_block block[]; /* [stored matrices] */
};

static inline size_t grow_members(const struct kv *kv)
{
    return kv->spec.lockstep ? kv->setup.n_seqs : 1;
}

static inline struct grow_block *grow_blocks_of(const struct kv *kv, size_t seq)
{
    return ((struct grow_seq *)kv->seq[seq].store)->block;
}

static inline size_t grow_block_bytes(const struct kv *kv, size_t rows)
{
    return grow_members(kv) * kv->setup.shape.kv_heads * rows * kv_row_bytes(kv);
}

/* First row of a head of a sequence in a block. */
static inline char *grow_head(const struct kv *kv, const struct grow_block *block, size_t seq,
                              size_t head)
{
    const size_t member = kv->spec.lockstep ? seq : 0;
    return block->data + (member * kv->setup.shape.kv_heads + head) * block->rows * kv_row_bytes(kv);
}

/* Frees a block unless it is the caller's memory; returns the bytes freed. */
static inline size_t grow_block_free(const struct kv *kv, const struct grow_block *block)
{
    const size_t bytes = block->data && !block->foreign ? grow_block_bytes(kv, block->rows) : 0;
    if (bytes)
        vm_free(kv->spec.alloc, block->data, bytes);
    return bytes;
}

#endif
