/* Attention layers whose growths and steps are timed one by one. */
#include "tune/block.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"
#include "decode/rng.h"

/* A run is to find the allocator as a new process does, whatever ran before: what was kept from earlier runs goes back,
 * and blocks of more than 128 KiB are mapped. glibc raises that bound to the largest block that was freed: growing blocks
 * stay above it in a new process, and are fresh pages every time; but a second run would find it raised, get used pages from
 * the heap, and copy five times as fast. */
static void forget_memory(const struct tune_run *run)
{
    if (run->heap_as_is)
        return;
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, BLOCK_MAPPED);
    malloc_trim(0);
#endif
}

static size_t q_width(const struct tune_run *run) { return run->heads * run->head_dim; }
static size_t kv_width(const struct tune_run *run) { return run->kv_heads * run->head_dim; }

double block_row_bytes(const struct tune_run *run)
{
    return 2.0 * (double)run->kv_heads * (double)dtype_row_bytes(run->type, run->head_dim);
}

size_t memory_available(void) { return file_proc_bytes("/proc/meminfo", "MemAvailable"); }

/* As much as the largest cache holds, within reason: virtual machines are told sizes of the whole host. */
static size_t sweep_size(void)
{
    enum { LEAST = 64 << 20, MOST = 128 << 20 };
    const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return size_min(size_max(level3 > 0 ? (size_t)level3 : 0, LEAST), MOST);
}

int sweeper_open(struct sweeper *sweeper, size_t bytes, struct err *err)
{
    *sweeper = (struct sweeper){.bytes = bytes ? bytes : sweep_size()};
    sweeper->data = mem_zalloc(1, sweeper->bytes);
    return sweeper->data
               ? 0
               : err_set(err, "out of memory: %zu bytes to sweep the caches with", sweeper->bytes);
}

void sweeper_close(struct sweeper *sweeper)
{
    free(sweeper->data);
    *sweeper = (struct sweeper){0};
}

/* One thread's part of the sweep: far more than its own caches hold, and all parts together more than the shared one. */
static void sweep_part(void *arg, size_t member)
{
    const struct sweeper *sweeper = arg;
    const size_t part = sweeper->bytes / sweeper->threads / 64 * 64;
    uint64_t sum = 0;
    for (size_t at = member * part; at + 64 <= (member + 1) * part; at += 64)
        sum += *(const uint64_t *)(const void *)(sweeper->data + at);
    volatile uint64_t keep = sum;
    (void)keep;
}

static void sweep_caches(const struct block *b)
{
    struct sweeper *sweeper = (struct sweeper *)(uintptr_t)b->run->sweeper;
    if (!sweeper)
        return;
    sweeper->threads = (size_t)threads_now(); /* a worker does not know it */
    threads_all(sweep_part, sweeper);
}

/* `rows` rows with the same random numbers in [-1, 1): what they are does not move the clock. */
static void fill_rows(float *row, size_t width, size_t rows, uint64_t seed, uint64_t line)
{
    for (size_t i = 0; i < width; i++)
        row[i] = (float)(2 * rng_uniform(seed, line, (uint32_t)i, 0) - 1);
    for (size_t r = 1; r < rows; r++)
        memcpy(row + r * width, row, width * sizeof *row);
}

static int open_buffers(struct block *b, struct err *err)
{
    const struct tune_run *run = b->run;
    const size_t rows = run->batch * run->k;
    b->query = mem_zalloc(run->batch, sizeof *b->query);
    b->q = mem_alloc(rows * q_width(run), sizeof *b->q);
    b->out = mem_alloc(rows * q_width(run), sizeof *b->out);
    b->k = mem_alloc(rows * kv_width(run), sizeof *b->k);
    b->v = mem_alloc(rows * kv_width(run), sizeof *b->v);
    if (!b->query || !b->q || !b->out || !b->k || !b->v)
        return err_set(err, "out of memory for a batch of %zu sequences of %zu rows a step", run->batch,
                       run->k);
    fill_rows(b->q, q_width(run), rows, run->seed, 0);
    fill_rows(b->k, kv_width(run), rows, run->seed, 1);
    fill_rows(b->v, kv_width(run), rows, run->seed, 2);
    return 0;
}

int block_open(struct block *b, const struct tune_run *run, const struct kv_spec *spec, size_t N,
               struct err *err)
{
    const struct kv_shape shape = {run->layers, run->kv_heads, run->head_dim, N, run->type};
    const struct attn_shape attn_shape = {run->heads, run->kv_heads, run->head_dim, 0, 0, NULL, false};
    const struct attn_limits limits = {N, run->batch * run->k, run->batch};
    struct kv_spec own = *spec;
    *b = (struct block){.run = run};
    own.alloc = run->alloc;
    forget_memory(run);
    threads_set(run->threads);
    if (open_buffers(b, err) < 0 || kv_open(&b->kv, &own, &shape, run->batch, err) < 0 ||
        attn_open(&b->attn, run->attn, &attn_shape, &limits, err) < 0) {
        block_close(b);
        return -1;
    }
    return 0;
}

void block_close(struct block *b)
{
    attn_close(b->attn);
    kv_close(b->kv);
    free(b->query);
    free(b->q);
    free(b->k);
    free(b->v);
    free(b->out);
    *b = (struct block){0};
}

void block_clear(struct block *b)
{
    for (size_t s = 0; s < b->run->batch; s++)
        kv_truncate(b->kv, s, 0);
    b->n = 0;
    forget_memory(b->run);
}

int block_skip_to(struct block *b, size_t n, struct err *err)
{
    if (*b->run->interrupted)
        return err_set(err, "interrupted");
    for (size_t s = 0; s < b->run->batch && n > b->n; s++) {
        if (kv_room(b->kv, s, n - b->n, err) < 0)
            return -1;
        for (size_t layer = 0; layer < b->run->layers; layer++)
            kv_append(b->kv, s, layer, b->k, b->v, 0);
        kv_commit(b->kv, s, n - b->n);
    }
    b->n = size_max(b->n, n);
    return 0;
}

size_t block_step_rows(const struct block *b)
{
    const size_t cap = kv_fill(b->kv, 0).cap, N = kv_setup(b->kv)->shape.max_rows;
    if (kv_setup(b->kv)->window)
        return size_min(b->run->k, kv_free_rows(b->kv, 0));
    const size_t after = cap > b->n ? cap : size_min(round_up(b->n + 1, kv_setup(b->kv)->r), N);
    return size_min(b->run->k, after - b->n);
}

/* Allocations and copies so far. */
static size_t growths(const struct kv *kv)
{
    return kv_stats(kv)->allocations + kv_stats(kv)->copied_rows;
}

int block_grow(struct block *b, double *ms, struct err *err)
{
    const size_t rows = block_step_rows(b), grown = growths(b->kv);
    if (b->n + rows > kv_fill(b->kv, 0).cap)
        sweep_caches(b);
    const double start = clock_ms();
    for (size_t s = 0; s < b->run->batch; s++)
        if (kv_room(b->kv, s, rows, err) < 0)
            return -1;
    *ms = growths(b->kv) > grown ? clock_ms() - start : 0;
    return 0;
}

static int run_layer(struct block *b, const struct attn_step *step, size_t index, struct err *err)
{
    const struct attn_layer layer = {index, kv_setup(b->kv)->window};
    const size_t width = kv_width(b->run);
    const double start = clock_ms();
    for (size_t s = 0; s < step->n_queries; s++)
        kv_append(b->kv, s, index, b->k + b->query[s].first * width, b->v + b->query[s].first * width,
                  width);
    const double appended = clock_ms();
    if (attn_run(b->attn, step, &layer, b->q, b->out, err) < 0)
        return -1;
    b->append_ms += appended - start;
    b->sdpa_ms += clock_ms() - appended;
    return 0;
}

int block_step(struct block *b, double *ms, struct err *err)
{
    const struct tune_run *run = b->run;
    const struct attn_step step = {b->kv, run->kernels, b->query, run->batch, run->parts};
    const size_t rows = kv_fill(b->kv, 0).pending, kept = size_min(run->m, rows);
    if (*run->interrupted)
        return err_set(err, "interrupted");
    for (size_t s = 0; s < run->batch; s++)
        b->query[s] = (struct attn_query){.seq = s, .first = s * rows, .rows = rows};
    sweep_caches(b);
    const double start = clock_ms();
    if (attn_begin(b->attn, &step, err) < 0)
        return -1;
    for (size_t layer = 0; layer < run->layers; layer++)
        if (run_layer(b, &step, layer, err) < 0)
            return -1;
    *ms = clock_ms() - start;
    for (size_t s = 0; s < run->batch; s++)
        kv_commit(b->kv, s, kept);
    b->n += kept;
    return 0;
}
