/* Blocks of sequences that grow by reallocation: shared by kv_grow.c and kv_prepare.c. */
#ifndef BMC_KV_GROW_BLOCKS_H
#define BMC_KV_GROW_BLOCKS_H

#include "kv/kv_rows.h"

/* Memory of one layer's K or V, [sequence][KV head][rows][head_dim]: of one sequence, or in
 * lockstep of all sequences. */
struct grow_block {
    struct device_addr data;
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

/* Bytes of blocks of `rows` rows of the matrices [matrix, end). */
static inline size_t grow_blocks_bytes(const struct kv *kv, size_t matrix, size_t end, size_t rows)
{
    return grow_members(kv) * rows *
           (kv->head[kv->matrix_head[end]].before - kv->head[kv->matrix_head[matrix]].before);
}

/* First row of a head of a sequence in its matrix's block. */
static inline struct device_addr grow_head(const struct kv *kv, const struct grow_block *block,
                                           size_t seq, size_t head)
{
    const size_t member = kv->spec.lockstep ? seq : 0;
    const struct kv_head *h = &kv->head[head];
    const size_t first = kv->matrix_head[h->matrix], heads = kv->matrix_head[h->matrix + 1] - first;
    return addr_add(block->data, (member * heads + head - first) * block->rows * h->bytes);
}

/* Frees the block of a matrix unless it is the caller's memory; returns the bytes freed. */
static inline size_t grow_block_free(const struct kv *kv, const struct grow_block *block, size_t matrix)
{
    if (addr_is_null(block->data) || block->foreign)
        return 0;
    const size_t bytes = grow_blocks_bytes(kv, matrix, matrix + 1, block->rows);
    kv->memory->free(kv->spec.alloc, block->data, bytes);
    return bytes;
}

#endif
