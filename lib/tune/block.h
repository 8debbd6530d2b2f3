/* Attention layers with their cache, whose growths and steps can be timed one by one, at any fill. */
#ifndef BMC_BLOCK_H
#define BMC_BLOCK_H

#include <signal.h>

#include "attn/attn.h"

/* What is read to fill the caches with something else, as the weights of a model do between two of its steps. */
struct sweeper {
    char *data;
    size_t bytes;
    size_t threads; /* of the sweep under way */
};

/* `bytes` of 0: as much as the largest cache holds, within 64 and 128 MiB. */
int sweeper_open(struct sweeper *sweeper, size_t bytes, struct err *err) MUST_USE;
void sweeper_close(struct sweeper *sweeper);

/* Blocks from this size on are pages of their own, fresh whenever they are allocated: so it is with glibc in a process
 * whose blocks only grow. Opening a block sees to it that it stays so, unless the heap is to be as it is. */
enum { BLOCK_MAPPED = 128 << 10 };

/* What is measured. */
struct tune_run {
    size_t layers;
    size_t heads, kv_heads, head_dim;
    size_t batch;    /* sequences */
    size_t k, m;     /* rows a step adds, and those that stay: 1 and 1 without speculation */
    enum dtype type; /* of the cache */
    enum pages_alloc alloc;
    /* What the heap kept of earlier runs is used again, as in a process that has run for long; false: the allocator is as
     * in a new one. */
    bool heap_as_is;
    const struct attn_backend *attn;
    const struct kernels *kernels;
    int threads;
    uint64_t seed;
    const struct sweeper
        *sweeper;             /* sweeps the caches before everything that is timed: cold; NULL: hot */
    struct attn_times *parts; /* the parts of attention are added up here; NULL: not wanted */
    const volatile sig_atomic_t *interrupted;
};

struct block {
    const struct tune_run *run;
    struct kv *kv;
    struct attn *attn;
    struct attn_query *query; /* [batch] */
    float *q, *k, *v, *out;   /* [batch * k][width] */
    size_t n;                 /* committed rows, the same in all sequences */
    double append_ms;         /* of all steps: new rows into place */
    double sdpa_ms;           /* of all steps: scores, softmax, values */
};

/* A cache of N rows under `spec`, empty. */
int block_open(struct block *block, const struct tune_run *run, const struct kv_spec *spec, size_t N,
               struct err *err) MUST_USE;
void block_close(struct block *block);

/* The sequences hold their first n rows, n >= block->n, as if they had got there step by step. Rows that are skipped are
 * written all the same: a growth is to copy pages with something in them, and a step to find the pages of its rows there
 * as often as in a whole run. Not timed. */
int block_skip_to(struct block *block, size_t n, struct err *err) MUST_USE;

/* Empties all sequences; what they held is given back to the kernel. */
void block_clear(struct block *block);

/* Rows that the next step adds: at most k, and no more than there are free rows (BMC paper VI: rather
 * fewer candidates than an early growth), unless none is free. */
size_t block_step_rows(const struct block *block);

/* Makes room for the next step: ms is 0 where no growth was needed. */
int block_grow(struct block *block, double *ms, struct err *err) MUST_USE;

/* One step of all layers: new rows into place, scores, softmax, values. m of its rows stay. Room has been made. */
int block_step(struct block *block, double *ms, struct err *err) MUST_USE;

/* Bytes of K and V of one row of one sequence in one layer. */
double block_row_bytes(const struct tune_run *run);

/* What the kernel could still give to this process; 0 when it does not tell. */
size_t memory_available(void);

#endif
