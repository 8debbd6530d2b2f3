/* Benchmark of attention layers with their KV cache. */
#include "tune/layer_bench.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "base/threads.h"
#include "base/vm.h"
#include "decode/sample/rng.h"
#include "kv/kv_footprint.h"
#include "kv/offload/offload.h"

/* Resets the allocator to the state of a new process. In a new process growing blocks are mapped and get fresh pages
 * every time; a second run would get used pages from the heap, and copy five times as fast. */
static void reset_allocator(const struct tune_run *run)
{
    if (!run->reuse_heap)
        vm_trim_heap();
}

static const struct backend_memory *memory_of(const struct tune_run *run)
{
    return (run->backend ? run->backend : backends[0])->memory;
}

/* Waits for the commands of a device. */
static void wait_for(const struct layer_bench *b)
{
    float word;
    if (b->pass)
        b->run->backend->memory->read(&word, b->k_at, sizeof word);
}

static size_t q_width(const struct tune_run *run) { return run->heads * run->head_dim; }
static size_t kv_width(const struct tune_run *run) { return run->kv_heads * run->head_dim; }

double layer_bench_entry_bytes(const struct tune_run *run)
{
    return (double)kv_sizes_bytes(
        &(struct kv_sizes){run->kv_heads, run->head_dim, run->v_dim, {run->type, run->type}});
}

/* What was available when it was first asked for, so that all caches of a run are judged alike. */
static size_t available_at_first(void)
{
    static size_t bytes;
    if (!bytes)
        bytes = vm_available();
    return bytes;
}

int memory_check(size_t bytes, size_t batch, struct err *err)
{
    const size_t available = available_at_first();
    return available && bytes > available
               ? err_set(err,
                         "a batch of %zu needs at least %zu MiB, %zu are available: give a smaller -np",
                         batch, bytes >> 20, available >> 20)
               : 0;
}

int memory_check_cache(const struct kv *one, size_t batch, size_t rows, size_t buffers, struct err *err)
{
    const size_t available = available_at_first();
    struct kv_footprint need = kv_footprint(one, 0, rows, 1);
    need.floor = offload_floor(one, rows, 1);
    need = kv_footprint_times(need, batch);
    const size_t cache = kv_footprint_peak(one, need);
    if (!kv_footprint_possible(one, need))
        return err_set(
            err,
            "the cache of %zu sequences of %zu entries needs %zu MiB of `ram` at least: give a "
            "smaller -np or more `ram`",
            batch, rows, need.floor >> 20);
    return available && size_plus(cache, buffers) > available
               ? err_set(
                     err,
                     "the cache of %zu sequences of %zu entries needs %zu MiB, %zu are available: give "
                     "a smaller -np, fewer tokens or another --cache-type",
                     batch, rows, cache >> 20, available >> 20)
               : 0;
}

/* Bytes to read to evict the CPU caches: the size of the largest one, bounded, since virtual
 * machines may report the cache of the whole host. */
static size_t evict_size(void)
{
    enum { LEAST = 64 << 20, MOST = 128 << 20 };
    return size_min(size_max(cpu_cache_bytes(3), LEAST), MOST);
}

int evictor_open(struct evictor *evictor, const struct backend *backend, size_t bytes, struct err *err)
{
    enum { OF_DEVICE = 128 << 20 };
    if (tune_on_device(backend)) {
        *evictor = (struct evictor){.memory = backend->memory, .bytes = bytes ? bytes : OF_DEVICE};
        evictor->block = evictor->memory->alloc(VM_MMAP, evictor->bytes);
        return addr_is_null(evictor->block)
                   ? err_no_memory(err, "%zu bytes of the device to sweep its caches with",
                                   evictor->bytes)
                   : 0;
    }
    *evictor = (struct evictor){.bytes = bytes ? bytes : evict_size()};
    evictor->data = mem_zalloc(1, evictor->bytes);
    return evictor->data ? 0 : err_no_memory(err, "%zu bytes to sweep the caches with", evictor->bytes);
}

void evictor_close(struct evictor *evictor)
{
    free(evictor->data);
    if (evictor->memory)
        evictor->memory->free(VM_MMAP, evictor->block, evictor->bytes);
    *evictor = (struct evictor){0};
}

/* Reads one thread's share of the eviction buffer, which exceeds its private caches; all shares
 * together exceed the shared cache. */
static void evict_part(void *arg, size_t member)
{
    const struct evictor *evictor = arg;
    const size_t part = evictor->bytes / evictor->threads / 64 * 64;
    uint64_t sum = 0;
    for (size_t at = member * part; at + 64 <= (member + 1) * part; at += 64)
        sum += *(const uint64_t *)(const void *)(evictor->data + at);
    volatile uint64_t keep = sum;
    (void)keep;
}

static void evict_caches(const struct layer_bench *b)
{
    struct evictor *evictor = (struct evictor *)(uintptr_t)b->run->evictor;
    if (!evictor)
        return;
    if (evictor->memory) {
        const struct memory_copy sweep = {addr_add(evictor->block, evictor->bytes / 2), evictor->block,
                                          evictor->bytes / 2, 0};
        evictor->memory->copy(&sweep, 1);
        wait_for(b);
        return;
    }
    evictor->threads = (size_t)threads_now(); /* worker threads cannot query the team size */
    threads_all(evict_part, evictor);
}

/* Fills q, k or v of `rows` tokens with one random vector in [-1, 1): values do not affect
 * times. */
static void fill_rows(float *row, size_t width, size_t rows, uint64_t seed, uint64_t line)
{
    for (size_t i = 0; i < width; i++)
        row[i] = (float)(2 * rng_uniform(seed, line, (uint32_t)i, 0) - 1);
    for (size_t r = 1; r < rows; r++)
        memcpy(row + r * width, row, width * sizeof *row);
}

static size_t buffer_bytes(const struct tune_run *run)
{
    const size_t row = 2 * (q_width(run) + kv_width(run)) * sizeof(float);
    return size_plus(size_times(run->batch, sizeof(struct attn_query)),
                     size_times(size_times(run->batch, run->k), row));
}

static int open_buffers(struct layer_bench *b, struct err *err)
{
    const struct tune_run *run = b->run;
    const size_t rows = run->batch * run->k;
    b->query = mem_zalloc(run->batch, sizeof *b->query);
    b->q = mem_alloc(rows * q_width(run), sizeof *b->q);
    b->out = mem_alloc(rows * q_width(run), sizeof *b->out);
    b->k = mem_alloc(rows * kv_width(run), sizeof *b->k);
    b->v = mem_alloc(rows * kv_width(run), sizeof *b->v);
    if (!b->query || !b->q || !b->out || !b->k || !b->v)
        return err_no_memory(err, "a batch of %zu sequences of %zu rows a step", run->batch, run->k);
    fill_rows(b->q, q_width(run), rows, run->seed, 0);
    fill_rows(b->k, kv_width(run), rows, run->seed, 1);
    fill_rows(b->v, kv_width(run), rows, run->seed, 2);
    b->k_at = memory_of(run)->adopt(b->k, rows * kv_width(run) * sizeof *b->k);
    b->v_at = memory_of(run)->adopt(b->v, rows * kv_width(run) * sizeof *b->v);
    return addr_is_null(b->k_at) || addr_is_null(b->v_at)
               ? err_no_memory(err, "%zu rows of keys and values", rows)
               : 0;
}

/* Fails if there is too little memory for the batch. */
static int check_memory(const struct tune_run *run, const struct kv_spec *spec,
                        const struct kv_shape *shape, struct err *err)
{
    const size_t buffers = buffer_bytes(run);
    struct kv *one;
    if (memory_check(buffers, run->batch, err) < 0 || kv_open(&one, spec, shape, 1, err) < 0)
        return -1;
    const int rc = memory_check_cache(one, run->batch, shape->max_rows, buffers, err);
    kv_close(one);
    return rc;
}

/* The operations of a step on a device, and their buffers. */
static int open_pass(struct layer_bench *b, const struct attn_shape *shape, struct err *err)
{
    enum { Q, K, V, OUT };
    const struct tune_run *run = b->run;
    const size_t rows = run->batch * run->k, q = q_width(run), kv = kv_width(run);
    const struct backend_options options = {
        .kv = b->kv, .max_rows = rows, .shape = shape, .n_shapes = 1, .n_ops = 2 * run->layers};
    b->buffer[Q] = run->backend->memory->adopt(b->q, rows * q * sizeof *b->q);
    b->buffer[OUT] = run->backend->memory->adopt(b->out, rows * q * sizeof *b->out);
    b->buffer[K] = b->k_at;
    b->buffer[V] = b->v_at;
    if (addr_is_null(b->buffer[Q]) || addr_is_null(b->buffer[OUT]) ||
        !(b->op = mem_zalloc(options.n_ops, sizeof *b->op)))
        return err_no_memory(err, "%zu rows of queries", rows);
    const size_t window = kv_layer_window(kv_setup(b->kv));
    for (size_t i = 0; i < run->layers; i++) {
        b->op[2 * i] =
            (struct op){.kind = OP_APPEND, .in = {K, 0, kv}, .append = {.v = {V, 0, kv}, .layer = i}};
        b->op[2 * i + 1] = (struct op){.kind = OP_ATTEND,
                                       .in = {Q, 0, q},
                                       .out = {OUT, 0, q},
                                       .attend = {.layer = i, .window = window}};
    }
    struct backend_options all = options;
    all.op = b->op;
    return run->backend->open(&b->pass, &all, err);
}

int layer_bench_open(struct layer_bench *b, const struct tune_run *run, const struct kv_spec *spec,
                     size_t N, struct err *err)
{
    const struct kv_shape shape = kv_shape_uniform(
        run->layers,
        (struct kv_sizes){.kv_heads = run->kv_heads, .head_dim = run->head_dim, .v_dim = run->v_dim}, N,
        run->type);
    const struct attn_shape attn_shape = {
        .heads = run->heads, .kv_heads = run->kv_heads, .head_dim = run->head_dim, .v_dim = run->v_dim};
    const struct attn_limits limits = {
        .positions = N, .step_rows = run->batch * run->k, .queries = run->batch};
    struct kv_spec own = *spec;
    *b = (struct layer_bench){.run = run};
    own.alloc = run->alloc;
    own.memory = memory_of(run);
    reset_allocator(run);
    threads_set(run->threads);
    if (check_memory(run, &own, &shape, err) < 0 || open_buffers(b, err) < 0 ||
        kv_open(&b->kv, &own, &shape, run->batch, err) < 0 ||
        (tune_on_device(run->backend)
             ? open_pass(b, &attn_shape, err)
             : attn_open(&b->attn, run->attn, &attn_shape, 1, &limits, err)) < 0) {
        layer_bench_close(b);
        return -1;
    }
    return 0;
}

static void disown(const struct backend_memory *memory, struct device_addr block, size_t elements)
{
    if (!addr_is_null(block))
        memory->disown(block, elements * sizeof(float));
}

void layer_bench_close(struct layer_bench *b)
{
    const struct backend_memory *memory = b->run ? memory_of(b->run) : NULL;
    const size_t rows = b->run ? b->run->batch * b->run->k : 0;
    attn_close(b->attn);
    if (b->pass)
        b->run->backend->close(b->pass);
    kv_close(b->kv);
    if (memory) {
        disown(memory, b->k_at, rows * kv_width(b->run));
        disown(memory, b->v_at, rows * kv_width(b->run));
        disown(memory, b->buffer[0], rows * q_width(b->run));
        disown(memory, b->buffer[3], rows * q_width(b->run));
    }
    free(b->op);
    free(b->query);
    free(b->q);
    free(b->k);
    free(b->v);
    free(b->out);
    *b = (struct layer_bench){0};
}

void layer_bench_clear(struct layer_bench *b)
{
    for (size_t s = 0; s < b->run->batch; s++)
        kv_truncate(b->kv, s, 0);
    b->n = 0;
    reset_allocator(b->run);
}

int layer_bench_skip_to(struct layer_bench *b, size_t n, struct err *err)
{
    if (*b->run->interrupted)
        return err_code(err, ERR_INTERRUPTED, "interrupted");
    for (size_t s = 0; s < b->run->batch && n > b->n; s++) {
        if (kv_ensure(b->kv, s, n - b->n, err) < 0)
            return -1;
        for (size_t layer = 0; layer < b->run->layers; layer++)
            kv_append(b->kv, s, layer, b->k_at, b->v_at, 0, NULL);
        kv_commit(b->kv, s, n - b->n);
    }
    b->n = size_max(b->n, n);
    return 0;
}

/* Tokens that the next step appends: at most k, and no more than the allocated entries
 * hold, since fewer draft tokens cost less than an early growth (BMC paper, section VI). */
static size_t step_tokens(const struct layer_bench *b)
{
    const size_t cap = kv_seq_info(b->kv, 0).cap, N = kv_setup(b->kv)->shape.max_rows;
    if (kv_setup(b->kv)->window)
        return size_min(b->run->k, kv_rows_before_growth(b->kv, 0));
    const size_t after = cap > b->n ? cap : size_min(round_up(b->n + 1, kv_setup(b->kv)->r), N);
    return size_min(b->run->k, after - b->n);
}

static size_t growths(const struct kv *kv)
{
    return kv_stats(kv).allocations + kv_stats(kv).copied_rows;
}

int layer_bench_grow(struct layer_bench *b, double *ms, struct err *err)
{
    const size_t rows = step_tokens(b), grown = growths(b->kv);
    if (b->n + rows > kv_seq_info(b->kv, 0).cap)
        evict_caches(b);
    wait_for(b);
    const double start = clock_ms();
    for (size_t s = 0; s < b->run->batch; s++)
        if (kv_ensure(b->kv, s, rows, err) < 0)
            return -1;
    wait_for(b);
    *ms = growths(b->kv) > grown ? clock_ms() - start : 0;
    return 0;
}

static int run_layer(struct layer_bench *b, const struct attn_step *step, size_t index, struct err *err)
{
    const struct attn_layer layer = {.index = index, .window = kv_layer_window(kv_setup(b->kv))};
    const size_t width = kv_width(b->run);
    const double start = clock_ms();
    for (size_t s = 0; s < step->n_queries; s++)
        kv_append(b->kv, s, index, addr_add(b->k_at, b->query[s].first * width * sizeof(float)),
                  addr_add(b->v_at, b->query[s].first * width * sizeof(float)), width, NULL);
    const double appended = clock_ms();
    if (attn_run(b->attn, step, &layer, b->q, b->out, err) < 0)
        return -1;
    b->append_ms += appended - start;
    b->sdpa_ms += clock_ms() - appended;
    return 0;
}

/* Appends and attends on a device. */
static int run_operations(struct layer_bench *b, const struct op_step *step, struct err *err)
{
    const struct backend *backend = b->run->backend;
    const struct row_range all = {0, step->rows};
    if (backend->begin(b->pass, step, err) < 0)
        return -1;
    for (size_t i = 0; i < 2 * b->run->layers; i++) {
        const double start = clock_ms();
        if (backend->run(b->pass, &b->op[i], step, all, err) < 0)
            return -1;
        if (b->run->parts) /* phases are measured apart */
            wait_for(b);
        *(b->op[i].kind == OP_APPEND ? &b->append_ms : &b->sdpa_ms) += clock_ms() - start;
    }
    wait_for(b);
    return memory_failed(backend->memory, err);
}

/* The same on the CPU. */
static int run_layers(struct layer_bench *b, struct err *err)
{
    const struct tune_run *run = b->run;
    const struct attn_step step = {b->kv, run->kernels, b->query, run->batch, run->parts};
    if (attn_begin(b->attn, &step, err) < 0)
        return -1;
    for (size_t layer = 0; layer < run->layers; layer++)
        if (run_layer(b, &step, layer, err) < 0)
            return -1;
    return 0;
}

int layer_bench_step(struct layer_bench *b, double *ms, struct err *err)
{
    const struct tune_run *run = b->run;
    const size_t rows = kv_seq_info(b->kv, 0).pending, kept = size_min(run->m, rows);
    if (*run->interrupted)
        return err_code(err, ERR_INTERRUPTED, "interrupted");
    for (size_t s = 0; s < run->batch; s++)
        b->query[s] = (struct attn_query){.seq = s, .first = s * rows, .rows = rows};
    evict_caches(b);
    const double start = clock_ms();
    const struct op_step step = {
        .buffer = b->buffer, .rows = run->batch * rows, .query = b->query, .n_queries = run->batch};
    if ((b->pass ? run_operations(b, &step, err) : run_layers(b, err)) < 0)
        return -1;
    *ms = clock_ms() - start;
    for (size_t s = 0; s < run->batch; s++)
        kv_commit(b->kv, s, kept);
    b->n += kept;
    return 0;
}
