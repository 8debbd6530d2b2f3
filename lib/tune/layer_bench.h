/* Benchmark of attention layers with their KV cache: growths (reallocations) and steps are timed
 * one by one, at any number of cached tokens. */
#pragma once

#include <signal.h>

#include "attn/attn.h"
#include "backend/backend.h"

/* Whether a backend computes on another device than the CPU; NULL is the CPU. */
static inline bool tune_on_device(const struct backend *backend)
{
    return backend && backend->describe;
}

/* The name that rates of attention have: that of the CPU's kernels, or of the backend of a device. */
static inline const char *tune_attn_name(const struct backend *backend, const struct attn_backend *attn)
{
    return tune_on_device(backend) ? backend->name : attn->name;
}

/* A buffer that is read to evict the caches, as reading weights does between steps: those of the CPU or, where `memory` is
 * set, those of a device, by copying half of it to the other. */
struct evictor {
    char *data;
    const struct backend_memory *memory;
    struct device_addr block;
    size_t bytes;
    size_t threads; /* number of threads that share the reading */
};

/* Allocates a buffer of `bytes` bytes; 0: as large as the largest CPU cache, but 64 to 128 MiB, of a device 128 MiB. */
int evictor_open(struct evictor *evictor, const struct backend *backend, size_t bytes,
                 struct err *err) MUST_USE;
void evictor_close(struct evictor *evictor);

/* The configuration of a benchmark. */
struct tune_run {
    size_t layers;
    size_t heads, kv_heads, head_dim;
    size_t v_dim; /* as in struct kv_shape */
    size_t batch; /* sequences */
    /* tokens that a step appends, and tokens it keeps; 1 and 1 without speculation */
    size_t k, m;
    enum dtype type; /* data type of the KV cache */
    enum vm_alloc alloc;
    /* true: reuses memory that earlier runs freed, as in a long-running process; false: the
     * allocator behaves as in a new process */
    bool reuse_heap;
    /* that of a device runs appending and attention as operations; NULL: the CPU */
    const struct backend *backend;
    const struct attn_backend *attn;
    const struct kernels *kernels;
    int threads;
    uint64_t seed;
    /* evicts the CPU caches before each measurement (cold); NULL: caches stay warm (hot) */
    const struct evictor *evictor;
    struct attn_times *parts; /* accumulates the times of attention's phases; NULL: not measured */
    const volatile sig_atomic_t *interrupted;
};

struct layer_bench {
    const struct tune_run *run;
    struct kv *kv;
    struct attn *attn;             /* of the CPU; else: */
    struct backend_pass *pass;     /* of a device */
    struct op *op;                 /* [2 * layers] */
    struct device_addr buffer[4];  /* q, k, v, out */
    struct attn_query *query;      /* [batch] */
    float *q, *k, *v, *out;        /* of attention, [batch * k tokens][width] */
    struct device_addr k_at, v_at; /* the same of k and v in the cache's memory */
    size_t n;                      /* cached tokens, equal in all sequences */
    double append_ms;              /* total over all steps: appending KV entries */
    double sdpa_ms;                /* total over all steps: scores, softmax, values */
};

/* Opens the benchmark with an empty cache under `spec`, for sequences of at most N tokens. */
int layer_bench_open(struct layer_bench *block, const struct tune_run *run, const struct kv_spec *spec,
                     size_t N, struct err *err) MUST_USE;
void layer_bench_close(struct layer_bench *block);

/* Advances all sequences to n tokens, n >= bench->n, without timing. KV entries of skipped tokens
 * are written, so that later growths copy initialised pages and later steps find their pages
 * mapped, as in a whole run. */
int layer_bench_skip_to(struct layer_bench *block, size_t n, struct err *err) MUST_USE;

/* Empties all sequences and returns their memory to the system. */
void layer_bench_clear(struct layer_bench *block);

/* Allocates KV entries for the next step; *ms is the time, 0 if the cache did not have to grow. */
int layer_bench_grow(struct layer_bench *block, double *ms, struct err *err) MUST_USE;

/* Times a step of all layers, for which layer_bench_grow() has been called: appends KV entries,
 * computes scores, softmax and values. Keeps m of the appended tokens. */
int layer_bench_step(struct layer_bench *block, double *ms, struct err *err) MUST_USE;

/* Bytes of K and V of one token in one layer. */
double layer_bench_entry_bytes(const struct tune_run *run);

/* Fail if a batch needs more memory than is available, before it is allocated: `bytes` of buffers; the cache of
 * `batch` sequences of `rows` rows each, plus `buffers` bytes. `one` is such a cache, of one sequence. */
int memory_check(size_t bytes, size_t batch, struct err *err) MUST_USE;
int memory_check_cache(const struct kv *one, size_t batch, size_t rows, size_t buffers,
                       struct err *err) MUST_USE;
