/* A cache larger than memory: rows come back as from one that is not, whatever the groups and the memory, of which it takes no
 * more than it may; its arithmetic; the file below it, by both engines. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/threads.h"
#include "cache.h"
#include "kv/kv_heads.h"
#include "kv/spill_engine.h"

enum { LAYERS = 2, KV_HEADS = 5, D = 32, WIDTH = KV_HEADS * D, N = 400, SEQS = 3 };

#ifdef __SANITIZE_ADDRESS__
enum { sanitized = true };
#else
enum { sanitized = false };
#endif

static uint64_t state;

static size_t draw(size_t n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (size_t)(state >> 11) % n;
}

static struct kv *open_cache(const char *text, enum dtype type)
{
    const struct kv_shape shape = {LAYERS, KV_HEADS, D, N, type};
    return cache_of(text, &shape, SEQS);
}

/* A cache that holds all in memory, and the one that must be its like. */
struct pair {
    const char *how;
    struct kv *kv[2];
};

static void append(struct pair *p, size_t seq, size_t rows)
{
    static float k[N * WIDTH], v[N * WIDTH];
    struct err err;
    for (size_t i = 0; i < 2; i++)
        check(kv_room(p->kv[i], seq, rows, &err) == 0, "%s: %s", p->how, err.text);
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < rows * WIDTH; i++) {
            k[i] = (float)draw(1000) / 8;
            v[i] = -(float)draw(1000) / 8;
        }
        for (size_t i = 0; i < 2; i++)
            kv_append(p->kv[i], seq, l, k, v, WIDTH);
    }
}

/* All rows of a head, those of the step under way among them; as heads are announced, or one at a time. */
static bool same_head(struct pair *p, size_t seq, size_t layer, size_t head)
{
    struct kv_view view[2];
    struct err err;
    const size_t rows = p->kv[0]->seq[seq].n + p->kv[0]->seq[seq].pending,
                 bytes = rows * kv_row_bytes(p->kv[0]);
    bool same = true;
    for (size_t i = 0; i < 2; i++)
        same = check(kv_view(p->kv[i], seq, layer, head, 1, &view[i], &err) == 0, "%s: %s", p->how,
                     err.text) &&
               same;
    if (!same || !rows)
        return same;
    const char *k[2], *v[2];
    for (size_t i = 0; i < 2; i++) {
        k[i] = (const char *)view[i].span[0].k + view[i].offset;
        v[i] = (const char *)view[i].span[0].v + view[i].offset;
    }
    return memcmp(k[0], k[1], bytes) == 0 && memcmp(v[0], v[1], bytes) == 0;
}

static void announce(struct kv *kv, size_t seq, size_t layer, size_t head)
{
    const size_t most = kv_setup(kv)->heads_at_once;
    if (layer < LAYERS && head < KV_HEADS)
        kv_announce(kv, seq, layer, head, size_min(most, KV_HEADS - head));
}

/* As attention goes over a step: the next heads are announced before some are viewed. */
static void expect_same(struct pair *p, size_t seq)
{
    const size_t at_once = kv_setup(p->kv[1])->heads_at_once, most = at_once ? at_once : KV_HEADS;
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < KV_HEADS; h += most) {
            announce(p->kv[1], seq, l, h);
            announce(p->kv[1], seq, h + most < KV_HEADS ? l : l + 1,
                     h + most < KV_HEADS ? h + most : 0);
            for (size_t i = h; i < size_min(h + most, KV_HEADS); i++)
                check(same_head(p, seq, l, i),
                      "%s: sequence %zu, layer %zu, head %zu of %zu rows differs", p->how, seq, l, i,
                      p->kv[0]->seq[seq].n);
        }
}

/* One head alone, which may still be there from the step before. */
static void expect_last(struct pair *p, size_t seq)
{
    const size_t at_once = kv_setup(p->kv[1])->heads_at_once, head = KV_HEADS - 1;
    announce(p->kv[1], seq, LAYERS - 1, at_once ? head / at_once * at_once : head);
    check(same_head(p, seq, LAYERS - 1, head), "%s: sequence %zu, the last head of %zu rows differs",
          p->how, seq, p->kv[0]->seq[seq].n);
}

static void both(struct pair *p, void (*act)(struct kv *kv, size_t seq, size_t n), size_t seq, size_t n)
{
    act(p->kv[0], seq, n);
    act(p->kv[1], seq, n);
}

/* Every third row of a step, and the last. */
static void keep_some(struct kv *kv, size_t seq, size_t n)
{
    size_t kept[N], count = 0;
    for (size_t i = n % 3; i < n; i += 3)
        kept[count++] = i;
    kv_keep(kv, seq, kept, count);
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
        both(p, draw(3) ? kv_commit : keep_some, seq, kind == 2 ? rows / 2 : rows);
    }
}

/* Up to the last row of the context. */
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

static void test_rows(const char *how, enum dtype type)
{
    struct pair p = {how, {open_cache("upfront", type), open_cache(how, type)}};
    bool parted = false;
    for (size_t i = 0; i < 120; i++) {
        act(&p, draw(SEQS));
        parted = parted || kv_setup(p.kv[1])->heads_at_once;
    }
    for (size_t s = 0; s < SEQS; s++)
        fill(&p, s);
    parted = parted || kv_setup(p.kv[1])->heads_at_once;
    const size_t ram = p.kv[1]->spec.spill.ram, peak = p.kv[1]->stats.peak_bytes;
    check(peak <= ram, "%s: %zu bytes in memory", how, peak);
    check(parted == (type == DTYPE_F32 && ram < 1 << 30), "%s %s: heads %s", how, dtype_name(type),
          parted ? "came and went" : "stayed");
    for (size_t s = 0; s < SEQS; s++)
        both(&p, kv_truncate, s, 0);
    check(p.kv[1]->stats.resident_bytes == 0 && !kv_setup(p.kv[1])->heads_at_once,
          "%s: empty, and %zu bytes are there", how, p.kv[1]->stats.resident_bytes);
    kv_close(p.kv[0]);
    kv_close(p.kv[1]);
}

/* Rows that lie in memory come in without more of it than is allowed. */
static void test_adopt(void)
{
    static float rows[LAYERS][2][KV_HEADS][N][D];
    struct kv_rows_in layer[LAYERS];
    struct err err;
    struct pair p = {"adopted",
                     {open_cache("upfront", DTYPE_F32), open_cache("headwise:ram=700K", DTYPE_F32)}};
    for (size_t i = 0; i < sizeof rows / sizeof(float); i++)
        ((float *)rows)[i] = (float)draw(1000);
    for (size_t l = 0; l < LAYERS; l++)
        layer[l] = (struct kv_rows_in){rows[l][0], rows[l][1]};
    for (size_t i = 0; i < 2; i++)
        check(kv_adopt(p.kv[i], 1, layer, DTYPE_F32, 0, N - 3, N, &err) == 0, "adopting: %s", err.text);
    expect_same(&p, 1);
    check(p.kv[1]->stats.peak_bytes <= 700 << 10 && kv_setup(p.kv[1])->heads_at_once,
          "adopted rows: %zu bytes in memory", p.kv[1]->stats.peak_bytes);
    kv_close(p.kv[0]);
    kv_close(p.kv[1]);
}

static void fill_and_view(struct kv *kv, size_t seq, size_t rows, size_t step)
{
    static float k[512 * WIDTH];
    struct kv_view view;
    struct err err;
    for (size_t at = 0; at < rows; at += step) {
        check(kv_room(kv, seq, step, &err) == 0, "%s", err.text);
        for (size_t l = 0; l < LAYERS; l++) {
            kv_append(kv, seq, l, k, k, WIDTH);
            for (size_t h = 0; h < KV_HEADS; h++) {
                announce(kv, seq, l, h);
                announce(kv, seq, h + 1 < KV_HEADS ? l : l + 1, (h + 1) % KV_HEADS);
                check(kv_view(kv, seq, l, h, 1, &view, &err) == 0, "%s", err.text);
            }
        }
        kv_commit(kv, seq, step);
    }
}

/* What is counted is what the system says, to a twentieth. */
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
    const struct kv_shape shape = {LAYERS, KV_HEADS, D, ROWS, DTYPE_F32};
    if (!check(kv_spec_parse(&spec, "headwise:ram=30M,group=1", &err) == 0 &&
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
    check(kv_room(kv, 0, 1, &err) == 0, "%s", err.text);
    expect_resident(kv, before, "cut");
    kv_close(kv);
}

static void test_spelling(void)
{
    static const char *const bad[] = {
        "headwise:",        "headwise:ram=",    "headwise:ram=0",        "headwise:ram=1X",
        "headwise:ram=1GB", "headwise:group=0", "headwise:group=a",      "headwise:ram=1G,",
        "headwise:dir=",    "headwise:16",      "headwise:ram=99999999T"};
    struct kv_spec spec;
    struct err err;
    struct kv *kv;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        check(kv_spec_parse(&spec, bad[i], &err) < 0, "\"%s\" was accepted", bad[i]);
    check(kv_spec_parse(&spec, "headwise:group=3,ram=2m,dir=/no/such/folder", &err) == 0 &&
              spec.spill.ram == 2 << 20 && spec.spill.group == 3 &&
              strcmp(spec.spill.dir, "/no/such/folder") == 0,
          "parameters");
    const struct kv_shape shape = {LAYERS, KV_HEADS, D, N, DTYPE_F32};
    check(kv_open(&kv, &spec, &shape, 1, &err) < 0 &&
              strstr(err.text, "/no/such/folder: cannot make a file"),
          "a folder that is not there: %s", err.text);
    kv = open_cache("headwise:ram=60K", DTYPE_F32);
    check(kv_room(kv, 0, N, &err) < 0 && strstr(err.text, "ram=61440"), "too little memory: %s",
          err.text);
    kv_close(kv);
}

/* The paper's model, llama-3-8b, a million rows in a GiB. And who stays, computed by hand. */
static void test_plan(void)
{
    struct kv_plan plan;
    bool fits;
    struct kv_memory m = {.ram = 1 << 30, .layers = 32, .kv_heads = 8, .bytes_per_ms = 2e6};
    m.head_bytes = 2 * 1000000 * (size_t)256;
    m.tail_bytes = 2 * 3 * SPILL_BLOCK;
    fits = kv_plan_make(&plan, &m);
    check(fits && plan.group == 1 && plan.groups == 0 &&
              plan.bytes == 2 * m.head_bytes + 256 * m.tail_bytes,
          "a million rows: groups of %zu, %zu bytes", plan.group, plan.bytes);
    m.group = 2;
    fits = kv_plan_make(&plan, &m);
    check(!fits && plan.bytes > m.ram, "two heads of a million rows fit");
    m.group = 0;
    m.head_bytes /= 4; /* reading one takes 64 ms; two buffers, six that stay, and tails */
    fits = kv_plan_make(&plan, &m);
    check(fits && plan.group == 1 && plan.groups == 6, "a quarter: groups of %zu, %zu stay", plan.group,
          plan.groups);
    m.head_bytes = 1 << 20; /* read in half a ms: four are worth a request */
    m.tail_bytes = 4096;
    m.ram = 100 << 20;
    fits = kv_plan_make(&plan, &m);
    check(fits && plan.group == 4 && plan.groups == 22, "short: groups of %zu, %zu stay", plan.group,
          plan.groups);
    check(kv_plan_heads(&plan, &m, 0) == 4 && kv_plan_heads(&plan, &m, 21) == 4 &&
              kv_plan_heads(&plan, &m, 22) == 0,
          "heads that stay");
    m.before = 6;
    fits = kv_plan_make(&plan, &m);
    check(fits && plan.group == 4, "groups of 6 become %zu", plan.group);
    m.before = 0;
    m.ram = 300 << 20;
    fits = kv_plan_make(&plan, &m);
    check(fits && plan.group == 0 && plan.bytes == 256 << 20, "all fit");
}

/* ---- the file ---- */

/* Asked of the system, not of the engine: containers, old kernels and emulators refuse the call itself. */
static bool uring_allowed(void)
{
    return syscall(SYS_io_uring_setup, 0, NULL) == 0 || (errno != ENOSYS && errno != EPERM);
}

/* More pieces than can be under way, some of which begin beyond the file's end. */
static void test_engine(const struct spill_engine *engine, const char *name)
{
    enum { BLOCKS = 40 };
    char path[] = "/var/tmp/.bmc-test-XXXXXX";
    const int fd = mkstemp(path);
    void *ring = NULL;
    char *from = aligned_alloc(SPILL_BLOCK, BLOCKS * SPILL_BLOCK),
         *to = aligned_alloc(SPILL_BLOCK, BLOCKS * SPILL_BLOCK);
    struct spill_piece piece[BLOCKS] = {0};
    unlink(path);
    for (size_t i = 0; i < BLOCKS * SPILL_BLOCK; i++)
        from[i] = (char)draw(256);
    if (!check(fd >= 0 && engine->open(&ring, fd), "%s cannot be had", name))
        return;
    for (int read = 0; read < 2; read++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            piece[i] = (struct spill_piece){.at = (read ? to : from) + i * SPILL_BLOCK,
                                            .offset = (i + (size_t)read) * SPILL_BLOCK,
                                            .bytes = SPILL_BLOCK,
                                            .write = !read};
            engine->take(ring, &piece[i]);
        }
        engine->begin(ring);
        for (size_t i = 0; i < BLOCKS; i++)
            engine->ended(ring);
        for (size_t i = 0; i < BLOCKS; i++)
            check(piece[i].result == (read && i + 1 == BLOCKS ? 0 : SPILL_BLOCK),
                  "%s: piece %zu gave %zd", name, i, piece[i].result);
    }
    check(memcmp(from + SPILL_BLOCK, to, (BLOCKS - 1) * SPILL_BLOCK) == 0, "%s: other bytes", name);
    engine->close(ring);
    close(fd);
    free(from), free(to);
}

/* Many pieces; one that lies behind the end of the file is an error, and the next one is none. */
static void test_file(void)
{
    enum { BYTES = 400 * SPILL_BLOCK };
    struct spill *spill;
    struct err err;
    struct spill_ticket ticket = {0};
    char *block = aligned_alloc(SPILL_BLOCK, BYTES);
    memset(block, 7, BYTES);
    if (!check(spill_open(&spill, "/var/tmp", &err) == 0, "%s", err.text))
        return;
    for (size_t i = 0; i < 400; i++)
        spill_write(spill, &ticket, block + i * SPILL_BLOCK, i * SPILL_BLOCK, SPILL_BLOCK);
    check(spill_wait(spill, &ticket, &err) == 0, "%s", err.text);
    memset(block, 0, BYTES);
    spill_read(spill, &ticket, block, 0, BYTES);
    check(spill_wait(spill, &ticket, &err) == 0 && block[BYTES - 1] == 7 && spill_pace(spill) > 0,
          "read");
    spill_read(spill, &ticket, block, BYTES - SPILL_BLOCK, 3 * SPILL_BLOCK);
    check(spill_wait(spill, &ticket, &err) < 0 && strstr(err.text, "shorter than what was written"),
          "beyond the end: %s", err.text);
    spill_read(spill, &ticket, block, 0, SPILL_BLOCK);
    check(spill_wait(spill, &ticket, &err) == 0, "after an error: %s", err.text);
    spill_read(spill, &ticket, block, 0, BYTES); /* is under way when it closes */
    spill_close(spill);
    free(block);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* asserts must not swallow it */
    threads_set(2);
    state = check_state(check_seed(1));
    if (!sanitized && !getenv("BMC_EMULATED"))
        test_resident(); /* the first that takes memory */
    else
        printf("# memory that the system counts is not the cache's alone here: not tested\n");
    test_spelling();
    test_plan();
    test_engine(&spill_engine_thread, "a thread");
    if (uring_allowed())
        test_engine(&spill_engine_uring, "io_uring");
    else
        printf("# io_uring: refused here, not tested\n");
    test_file();
    for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
        test_rows(hows[i], DTYPE_F32);
        test_rows(hows[i], DTYPE_Q8C);
    }
    test_adopt();
    return check_result();
}
