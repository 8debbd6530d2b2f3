/* Head-wise KV offload: rows equal those of a cache in memory for any group and budget, which is
 * not exceeded; the arithmetic; the file, with both I/O engines. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file_head.h"
#include "base/threads.h"
#include "tests/unit/cache.h"
#include "kv/offload/offload_heads.h"
#include "base/async_file.h"

enum { LAYERS = 2, KV_HEADS = 5, D = 32, WIDTH = KV_HEADS * D, N = 400, SEQS = 3 };

#ifdef __SANITIZE_ADDRESS__
enum { sanitized = true };
#else
enum { sanitized = false };
#endif

/* With V in K, heads are twice as wide: they take as many bytes. */
static size_t head_dim(void) { return v_in_k ? 2 * D : D; }
static size_t width(void) { return KV_HEADS * head_dim(); }

static uint64_t state;

static size_t draw(size_t n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (size_t)(state >> 11) % n;
}

/* ---- a device: memory in blocks, which are counted, and copies to and from the process's ---- */

static size_t device_bytes, device_peak, exchanged_bytes;

static struct device_addr device_alloc(enum vm_alloc how, size_t bytes)
{
    const struct device_addr at = cpu_memory.alloc(how, bytes);
    memset(cpu_at(at), 0x7f, bytes);
    device_bytes += bytes;
    device_peak = size_max(device_peak, device_bytes);
    return at;
}

static void device_free(enum vm_alloc how, struct device_addr at, size_t bytes)
{
    device_bytes -= bytes;
    cpu_memory.free(how, at, bytes);
}

/* Copies to the device are made when they are waited for, at the latest moment. */
static struct late {
    struct async_ticket *ticket;
    void *host;
    struct device_addr at;
    size_t bytes;
} late[4096];
static size_t n_late;

static void device_exchange(struct async_ticket *ticket, void *host, struct device_addr at,
                            size_t bytes, bool to_host)
{
    exchanged_bytes += bytes;
    ticket->copies = ticket;
    if (to_host)
        memcpy(host, cpu_at(at), bytes);
    else
        late[n_late++] = (struct late){ticket, host, at, bytes};
}

static void device_wait(struct async_ticket *ticket)
{
    size_t left = 0;
    for (size_t i = 0; i < n_late; i++)
        if (late[i].ticket == ticket)
            memcpy(cpu_at(late[i].at), late[i].host, late[i].bytes);
        else
            late[left++] = late[i];
    n_late = left;
    ticket->copies = NULL;
}

static const struct backend_memory *device_memory(void)
{
    static struct backend_memory memory;
    memory = cpu_memory;
    memory.alloc = device_alloc;
    memory.free = device_free;
    memory.reserve = NULL;
    memory.drop = NULL;
    memory.exchange = device_exchange;
    memory.wait_exchange = device_wait;
    return &memory;
}

static struct kv *open_cache(const char *text, enum dtype type)
{
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, head_dim(), N, type);
    return cache_of(text, &shape, SEQS);
}

/* A cache in memory, and the one that must equal it. */
struct pair {
    const char *how;
    struct kv *kv[2];
};

static void append(struct pair *p, size_t seq, size_t rows)
{
    static float k[2 * N * WIDTH], v[2 * N * WIDTH];
    struct err err;
    for (size_t i = 0; i < 2; i++)
        check(kv_ensure(p->kv[i], seq, rows, &err) == 0, "%s: %s", p->how, err.text);
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < rows * width(); i++) {
            k[i] = (float)draw(1000) / 8;
            v[i] = -(float)draw(1000) / 8;
        }
        for (size_t i = 0; i < 2; i++)
            cache_append(p->kv[i], seq, l, k, v, width());
    }
}

/* Compares all KV entries of a prefetched head, pending ones included. */
static bool same_head(struct pair *p, size_t seq, size_t layer, size_t head)
{
    struct kv_view view[2];
    struct err err;
    const size_t rows = p->kv[0]->seq[seq].n + p->kv[0]->seq[seq].pending,
                 bytes = rows * kv_row_bytes(p->kv[0], layer, KV_K);
    bool same = true;
    for (size_t i = 0; i < 2; i++)
        same = check(kv_view(p->kv[i], seq, layer, head, 1, &view[i], &err) == 0, "%s: %s", p->how,
                     err.text) &&
               same;
    if (!same || !rows)
        return same;
    const char *k[2], *v[2];
    for (size_t i = 0; i < 2; i++) {
        k[i] = (const char *)cpu_at(view[i].span[0].k) + view[i].offset[KV_K];
        v[i] = (const char *)cpu_at(view[i].span[0].v) + view[i].offset[KV_V];
    }
    return memcmp(k[0], k[1], bytes) == 0 && memcmp(v[0], v[1], bytes) == 0;
}

static void prefetch(struct kv *kv, size_t seq, size_t layer, size_t head)
{
    const size_t most = kv_offload(kv).heads_at_once;
    if (layer < LAYERS && head < KV_HEADS)
        kv_prefetch(kv, seq, layer, head, size_min(most, KV_HEADS - head));
}

/* Compares all heads in the order of attention: the next heads are prefetched before some are
 * viewed. */
static void expect_same(struct pair *p, size_t seq)
{
    const size_t at_once = kv_offload(p->kv[1]).heads_at_once, most = at_once ? at_once : KV_HEADS;
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < KV_HEADS; h += most) {
            prefetch(p->kv[1], seq, l, h);
            prefetch(p->kv[1], seq, h + most < KV_HEADS ? l : l + 1,
                     h + most < KV_HEADS ? h + most : 0);
            for (size_t i = h; i < size_min(h + most, KV_HEADS); i++)
                check(same_head(p, seq, l, i),
                      "%s: sequence %zu, layer %zu, head %zu of %zu rows differs", p->how, seq, l, i,
                      p->kv[0]->seq[seq].n);
        }
}

/* Compares the last head, which may still be in a buffer. */
static void expect_last(struct pair *p, size_t seq)
{
    const size_t at_once = kv_offload(p->kv[1]).heads_at_once, head = KV_HEADS - 1;
    prefetch(p->kv[1], seq, LAYERS - 1, at_once ? head / at_once * at_once : head);
    check(same_head(p, seq, LAYERS - 1, head), "%s: sequence %zu, the last head of %zu rows differs",
          p->how, seq, p->kv[0]->seq[seq].n);
}

static void both(struct pair *p, void (*act)(struct kv *kv, size_t seq, size_t n), size_t seq, size_t n)
{
    act(p->kv[0], seq, n);
    act(p->kv[1], seq, n);
}

/* Accepts every third pending KV entry. */
static void accept_some(struct kv *kv, size_t seq, size_t n)
{
    size_t kept[N], count = 0;
    for (size_t i = n % 3; i < n; i += 3)
        kept[count++] = i;
    kv_accept(kv, seq, kept, count);
}

static void act(struct pair *p, size_t seq)
{
    struct err err;
    const size_t n = p->kv[0]->seq[seq].n, other = (seq + 1) % SEQS;
    const size_t kind = draw(12);
    if (kind == 0) {
        both(p, kv_truncate, seq, draw(4) ? n - draw(n / 2 + 1) : 0);
    } else if (kind == 1 && n) {
        both(p, kv_truncate, other, 0);
        for (size_t i = 0; i < 2; i++)
            check(kv_fork(p->kv[i], other, seq, n - n / 5, &err) == 0, "%s: %s", p->how, err.text);
        expect_same(p, other);
    } else {
        const size_t rows = size_min(kind < 8 ? 1 + draw(9) : 60 + draw(90), N - n);
        append(p, seq, rows);
        (draw(2) ? expect_same : expect_last)(p, seq);
        both(p, draw(3) ? kv_commit : accept_some, seq, kind == 2 ? rows / 2 : rows);
    }
}

/* Appends KV entries, in steps of random size, until the context is full. */
static void fill(struct pair *p, size_t seq)
{
    for (size_t rows; (rows = size_min(1 + draw(60), N - p->kv[0]->seq[seq].n));) {
        append(p, seq, rows);
        both(p, kv_commit, seq, rows);
    }
    expect_same(p, seq);
}

static const char *const hows[] = {"headwise",
                                   "headwise:ram=2600K",
                                   "headwise:ram=2900K,group=2",
                                   "headwise:ram=2200K,group=1,dir=/dev/shm",
                                   "headwise:dir=/var/tmp,group=auto,ram=2600K",
                                   "headwise:ram=2900K,group=1"};

/* A cache on a device takes at most ram=, and the largest block again while that grows. */
static void test_rows(const char *how, enum dtype type, bool on_device)
{
    struct pair p = {how, {open_cache("upfront", type)}};
    bool offloaded = false;
    cache_memory = on_device ? device_memory() : &cpu_memory;
    p.kv[1] = open_cache(how, type);
    cache_memory = &cpu_memory;
    device_bytes = device_peak = exchanged_bytes = 0;
    for (size_t i = 0; i < 120; i++) {
        act(&p, draw(SEQS));
        offloaded = offloaded || kv_offload(p.kv[1]).heads_at_once;
    }
    for (size_t s = 0; s < SEQS; s++)
        fill(&p, s);
    offloaded = offloaded || kv_offload(p.kv[1]).heads_at_once;
    const size_t ram = p.kv[1]->spec.offload.ram, peak = p.kv[1]->stats.peak_bytes;
    check(peak <= ram, "%s: %zu bytes in memory", how, peak);
    check(offloaded == (type == DTYPE_F32 && ram < 1 << 30), "%s %s: heads %s", how, dtype_name(type),
          offloaded ? "came and went" : "stayed");
    const size_t block = round_up(N, OFFLOAD_STEP) * kv_row_bytes(p.kv[1], 0, KV_K);
    check(device_peak <= ram + block && (device_peak > 0) == on_device &&
              (exchanged_bytes > 0) == (on_device && offloaded),
          "%s %s: %zu bytes on the device, %zu exchanged", how, dtype_name(type), device_peak,
          exchanged_bytes);
    for (size_t s = 0; s < SEQS; s++)
        both(&p, kv_truncate, s, 0);
    check(p.kv[1]->stats.resident_bytes == 0 && !device_bytes && !kv_offload(p.kv[1]).heads_at_once,
          "%s: empty, and %zu bytes are there", how, p.kv[1]->stats.resident_bytes);
    kv_close(p.kv[0]);
    kv_close(p.kv[1]);
}

/* Attached rows are copied within the budget. */
static void test_attach(void)
{
    static float rows[LAYERS][2][KV_HEADS][N][D];
    struct kv_layer_rows layer[LAYERS];
    struct err err;
    struct pair p = {"attached",
                     {open_cache("upfront", DTYPE_F32), open_cache("headwise:ram=700K", DTYPE_F32)}};
    for (size_t i = 0; i < sizeof rows / sizeof(float); i++)
        ((float *)rows)[i] = (float)draw(1000);
    for (size_t l = 0; l < LAYERS; l++)
        layer[l] =
            (struct kv_layer_rows){cpu_addr(rows[l][0]), cpu_addr(rows[l][1]), {DTYPE_F32, DTYPE_F32}};
    for (size_t i = 0; i < 2; i++)
        check(kv_attach(p.kv[i], 1, layer, 0, N - 3, N, &err) == 0, "attaching: %s", err.text);
    expect_same(&p, 1);
    check(p.kv[1]->stats.peak_bytes <= 700 << 10 && kv_offload(p.kv[1]).heads_at_once,
          "attached rows: %zu bytes in memory", p.kv[1]->stats.peak_bytes);
    kv_close(p.kv[0]);
    kv_close(p.kv[1]);
}

static void fill_and_view(struct kv *kv, size_t seq, size_t rows, size_t step)
{
    static float k[512 * WIDTH];
    struct kv_view view;
    struct err err;
    for (size_t at = 0; at < rows; at += step) {
        check(kv_ensure(kv, seq, step, &err) == 0, "%s", err.text);
        for (size_t l = 0; l < LAYERS; l++) {
            cache_append(kv, seq, l, k, k, WIDTH);
            for (size_t h = 0; h < KV_HEADS; h++) {
                prefetch(kv, seq, l, h);
                prefetch(kv, seq, h + 1 < KV_HEADS ? l : l + 1, (h + 1) % KV_HEADS);
                check(kv_view(kv, seq, l, h, 1, &view, &err) == 0, "%s", err.text);
            }
        }
        kv_commit(kv, seq, step);
    }
}

/* The counted bytes are those of the system, within 5 %. */
static void expect_resident(const struct kv *kv, size_t before, const char *when)
{
    const size_t now = file_proc_bytes("/proc/self/status", "RssAnon") - before,
                 counted = kv->stats.resident_bytes;
    check(fabs((double)now / (double)counted - 1) < 0.05, "%s: %zu bytes counted, %zu there", when,
          counted, now);
}

static void test_resident(void)
{
    enum { ROWS = 40960, STEP = 512, RAM = 30 << 20 };
    struct kv_spec spec;
    struct err err;
    struct kv *kv;
    const struct kv_shape shape = kv_shape_uniform(
        LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, ROWS, DTYPE_F32);
    if (!check(cache_spec_parse(&spec, "headwise:ram=30M,group=1", &err) == 0 &&
                   kv_open(&kv, &spec, &shape, 1, &err) == 0,
               "%s", err.text))
        return;
    const size_t before = file_proc_bytes("/proc/self/status", "RssAnon"),
                 most = file_proc_bytes("/proc/self/status", "VmHWM");
    fill_and_view(kv, 0, ROWS, STEP);
    expect_resident(kv, before, "filled");
    const size_t peak = file_proc_bytes("/proc/self/status", "VmHWM") - most;
    check(kv->stats.peak_bytes <= RAM && peak <= RAM + (256 << 10) &&
              (double)peak > 0.95 * (double)kv->stats.peak_bytes,
          "at most %zu bytes counted, %zu there", kv->stats.peak_bytes, peak);
    kv_truncate(kv, 0, ROWS / 2);
    check(kv_ensure(kv, 0, 1, &err) == 0, "%s", err.text);
    expect_resident(kv, before, "cut");
    kv_close(kv);
}

static void test_parameters(void)
{
    static const char *const bad[] = {
        "headwise:",        "headwise:ram=",    "headwise:ram=0",        "headwise:ram=1X",
        "headwise:ram=1GB", "headwise:group=0", "headwise:group=a",      "headwise:ram=1G,",
        "headwise:dir=",    "headwise:16",      "headwise:ram=99999999T"};
    struct kv_spec spec;
    struct err err;
    struct kv *kv;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check(cache_spec_parse(&spec, bad[i], &err) < 0, "\"%s\" was accepted", bad[i]);
    check(cache_spec_parse(&spec, "headwise:group=3,ram=2m,dir=/no/such/folder", &err) == 0 &&
              spec.offload.ram == 2 << 20 && spec.offload.group == 3 &&
              strcmp(spec.offload.dir, "/no/such/folder") == 0,
          "parameters");
    const struct kv_shape shape =
        kv_shape_uniform(LAYERS, (struct kv_sizes){.kv_heads = KV_HEADS, .head_dim = D}, N, DTYPE_F32);
    check(kv_open(&kv, &spec, &shape, 1, &err) < 0 &&
              strstr(err.text, "/no/such/folder: cannot make a file"),
          "a folder that is not there: %s", err.text);
    kv = open_cache("headwise:ram=60K", DTYPE_F32);
    check(kv_ensure(kv, 0, N, &err) < 0 && strstr(err.text, "ram=61440"), "too little memory: %s",
          err.text);
    kv_close(kv);
}

/* The HeadInfer paper's model, llama-3-8b, a million rows in a GiB; heads in memory by hand. */
static void test_plan(void)
{
    struct offload_plan plan;
    bool fits;
    size_t resident[32], groups = 0;
    const struct kv_shape shape =
        kv_shape_uniform(32, (struct kv_sizes){.kv_heads = 8, .head_dim = 128}, 1000000, DTYPE_BF16);
    struct offload_memory m = {.ram = 1 << 30, .shape = &shape, .bytes_per_ms = 2e6};
    m.size[0].head_bytes = 2 * 1000000 * (size_t)256;
    m.size[0].tail_bytes = 2 * 3 * OFFLOAD_BLOCK;
    fits = offload_plan_make(&plan, &m, resident);
    for (size_t l = 0; l < 32; l++)
        groups += resident[l];
    check(fits && plan.group == 1 && groups == 0 &&
              plan.bytes == 2 * m.size[0].head_bytes + 256 * m.size[0].tail_bytes,
          "a million rows: groups of %zu, %zu bytes", plan.group, plan.bytes);
    m.group = 2;
    fits = offload_plan_make(&plan, &m, resident);
    check(!fits && plan.bytes > m.ram, "two heads of a million rows fit");
    m.group = 0;
    m.size[0].head_bytes /= 4; /* read in 64 ms; two buffers, six heads in memory, and tails */
    fits = offload_plan_make(&plan, &m, resident);
    check(fits && plan.group == 1 && resident[5] == 1 && resident[6] == 0, "a quarter: groups of %zu",
          plan.group);
    m.size[0].head_bytes = 1 << 20; /* read in half a ms: groups of four */
    m.size[0].tail_bytes = 4096;
    m.ram = 100 << 20;
    fits = offload_plan_make(&plan, &m, resident);
    check(fits && plan.group == 4, "short: groups of %zu", plan.group);
    check(resident[0] == 4 && resident[21] == 4 && resident[22] == 0, "heads that stay");
    m.before = 6;
    fits = offload_plan_make(&plan, &m, resident);
    check(fits && plan.group == 4, "groups of 6 become %zu", plan.group);
    m.before = 0;
    m.ram = 300 << 20;
    fits = offload_plan_make(&plan, &m, resident);
    check(fits && plan.group == 0 && plan.bytes == 256 << 20, "all fit");
}

/* Layers of 1, 4 and 2 heads of 8, 16 and 32 MiB, twice, groups of two heads: by hand, both buffers take 2 * 2 * 32 MiB,
 * the tails of 14 heads 1 MiB each; the rest keeps the first groups of the layers in turn. */
static void test_sizes(void)
{
    enum { MIB = 1 << 20, BASE = 128 + 14, L = 6 };
    static const struct {
        size_t ram, resident[L];
    } cases[] = {
        {BASE, {0}},
        {BASE + 7, {1}},
        {BASE + 7 + 30, {1, 2}},
        {BASE + 7 + 30 + 61, {1, 2}},
        {BASE + 7 + 30 + 62, {1, 2, 2}},
        {BASE + 7 + 30 + 62 + 7, {1, 2, 2, 1}},
    };
    struct kv_shape shape = {.max_rows = 1024};
    for (size_t l = 0; l < L; l++)
        check(kv_shape_add(&shape, l % 3 == 0   ? (struct kv_sizes){.kv_heads = 1, .head_dim = 128}
                                   : l % 3 == 1 ? (struct kv_sizes){.kv_heads = 4, .head_dim = 256}
                                                : (struct kv_sizes){.kv_heads = 2, .head_dim = 512}),
              "layer %zu", l);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct offload_memory m = {
            .ram = cases[i].ram * MIB, .shape = &shape, .group = 2, .bytes_per_ms = 1};
        struct offload_plan plan;
        size_t resident[L] = {9};
        for (size_t k = 0; k < shape.n_sizes; k++) {
            m.size[k].head_bytes = (size_t)8 * MIB << k;
            m.size[k].tail_bytes = MIB;
        }
        check(shape.n_sizes == 3 && offload_plan_make(&plan, &m, resident) && plan.group == 2 &&
                  memcmp(resident, cases[i].resident, sizeof resident) == 0,
              "%zu MiB: %zu, %zu, %zu and %zu heads stay", cases[i].ram, resident[0], resident[1],
              resident[2], resident[3]);
    }
}

/* ---- the file ---- */

/* True if io_uring works, by a system call: containers, old kernels and emulators refuse it. */
static bool uring_allowed(void)
{
    return syscall(SYS_io_uring_setup, 0, NULL) == 0 || (errno != ENOSYS && errno != EPERM);
}

/* Many requests, the last one behind the end of the file. */
static void test_engine(const struct async_engine *engine, const char *name)
{
    enum { BLOCKS = 40 };
    char path[] = "/var/tmp/.bmc-test-XXXXXX";
    const int fd = mkstemp(path);
    void *ring = NULL;
    char *from = aligned_alloc(OFFLOAD_BLOCK, BLOCKS * OFFLOAD_BLOCK),
         *to = aligned_alloc(OFFLOAD_BLOCK, BLOCKS * OFFLOAD_BLOCK);
    struct async_request request[BLOCKS] = {0};
    unlink(path);
    for (size_t i = 0; i < BLOCKS * OFFLOAD_BLOCK; i++)
        from[i] = (char)draw(256);
    if (!check(fd >= 0 && engine->open(&ring, fd), "%s cannot be had", name))
        return;
    for (int read = 0; read < 2; read++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            request[i] = (struct async_request){.at = (read ? to : from) + i * OFFLOAD_BLOCK,
                                                .offset = (i + (size_t)read) * OFFLOAD_BLOCK,
                                                .bytes = OFFLOAD_BLOCK,
                                                .needed = OFFLOAD_BLOCK,
                                                .write = !read};
            engine->queue(ring, &request[i]);
        }
        engine->submit(ring);
        for (size_t i = 0; i < BLOCKS; i++)
            engine->wait(ring);
        for (size_t i = 0; i < BLOCKS; i++)
            check(request[i].result == (read && i + 1 == BLOCKS ? 0 : OFFLOAD_BLOCK),
                  "%s: request %zu gave %zd", name, i, request[i].result);
    }
    check(memcmp(from + OFFLOAD_BLOCK, to, (BLOCKS - 1) * OFFLOAD_BLOCK) == 0, "%s: other bytes", name);
    engine->close(ring);
    close(fd);
    free(from), free(to);
}

/* More requests than fit in the queue; one behind the end of the file fails, the next does not. */
static void test_file(void)
{
    enum { BYTES = 400 * OFFLOAD_BLOCK };
    struct offload_file *offload_file;
    struct err err;
    struct async_ticket ticket = {0};
    char *block = aligned_alloc(OFFLOAD_BLOCK, BYTES);
    memset(block, 7, BYTES);
    if (!check(offload_file_open(&offload_file, &cpu_memory, "/var/tmp", 0, &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0; i < 400; i++)
        offload_file_write(offload_file, &ticket, cpu_addr(block + i * OFFLOAD_BLOCK),
                           i * OFFLOAD_BLOCK, OFFLOAD_BLOCK);
    check(offload_file_wait(offload_file, &ticket, &err) == 0, "%s", err.text);
    memset(block, 0, BYTES);
    offload_file_read(offload_file, &ticket, cpu_addr(block), 0, BYTES);
    check(offload_file_wait(offload_file, &ticket, &err) == 0 && block[BYTES - 1] == 7 &&
              offload_file_rate(offload_file) > 0,
          "read");
    offload_file_read(offload_file, &ticket, cpu_addr(block), BYTES - OFFLOAD_BLOCK, 3 * OFFLOAD_BLOCK);
    check(offload_file_wait(offload_file, &ticket, &err) < 0 &&
              strstr(err.text, "shorter than what was written"),
          "beyond the end: %s", err.text);
    offload_file_read(offload_file, &ticket, cpu_addr(block), 0, OFFLOAD_BLOCK);
    check(offload_file_wait(offload_file, &ticket, &err) == 0, "after an error: %s", err.text);
    offload_file_read(offload_file, &ticket, cpu_addr(block), 0, BYTES); /* in flight when it closes */
    offload_file_close(offload_file);
    free(block);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* survives assertions */
    threads_set(2);
    state = check_state(check_seed(1));
    if (!sanitized && !getenv("BMC_EMULATED"))
        test_resident(); /* first, while little memory is in use */
    else
        printf("# memory that the system counts is not the cache's alone here: not tested\n");
    test_parameters();
    test_plan();
    test_sizes();
    test_engine(&async_engine_thread, "a thread");
    if (uring_allowed())
        test_engine(&async_engine_uring, "io_uring");
    else
        printf("# io_uring: refused here, not tested\n");
    test_file();
    for (int twice = 0; twice < 2; twice++) {
        v_in_k = twice;
        for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
            test_rows(hows[i], DTYPE_F32, false);
            test_rows(hows[i], DTYPE_Q8_CHANNEL, false);
        }
        test_rows("headwise:ram=2600K", DTYPE_F32, true);
        test_rows("headwise:ram=2900K,group=1", DTYPE_F32, true);
        test_rows("headwise", DTYPE_Q8_CHANNEL, true);
        test_attach();
    }
    return check_result();
}
