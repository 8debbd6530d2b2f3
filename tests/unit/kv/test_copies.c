/* Compares kv_copied_bytes with the copies made: every memcpy() and memmove() from cache memory is
 * counted through the linker's --wrap, except loads of a scale or a word into a register. Both
 * counts must agree after every random operation (forward passes, token trees, accepted drafts,
 * forks, cuts, beam reordering), for every policy, cache type and attention backend. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attn/attn.h"
#include "quant/cache_types.h"
#include "quant/kv_entries.h"
#include "base/vm.h"
#include "base/threads.h"
#include "tests/unit/cache.h"
#include "kv/kv_policy.h"

enum {
    LAYERS = 2,
    KV_HEADS = 2,
    HEADS = 4,
    D = 128 /* rows fill whole registers */,
    WIDTH = KV_HEADS * D,
    N = 400,
    SEQS = 4,
    ROWS = 24
};

/* ---- the count ---- */

void *__real_memcpy(void *to, const void *from, size_t n);
void *__real_memmove(void *to, const void *from, size_t n);
void *__real_vm_get(enum vm_alloc how, size_t bytes);
void __real_vm_free(enum vm_alloc how, void *block, size_t bytes);
void *__real_vm_reserve(enum vm_alloc how, size_t bytes);
void __real_vm_release(void *block, size_t bytes);

void *__wrap_memcpy(void *to, const void *from, size_t n);
void *__wrap_memmove(void *to, const void *from, size_t n);
void *__wrap_vm_get(enum vm_alloc how, size_t bytes);
void __wrap_vm_free(enum vm_alloc how, void *block, size_t bytes);
void *__wrap_vm_reserve(enum vm_alloc how, size_t bytes);
void __wrap_vm_release(void *block, size_t bytes);

static struct {
    _Atomic uintptr_t from, to;
} area[4096]; /* cache memory; from 0: free */
static atomic_size_t n_areas;
static atomic_size_t copied;
enum { LOAD = 8 };

static void add_area(const void *from, size_t bytes)
{
    for (size_t i = 0; from && i < ARRAY_LEN(area); i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&area[i].from, &none, (uintptr_t)from))
            continue;
        atomic_store(&area[i].to, (uintptr_t)from + bytes);
        if (i >= n_areas)
            atomic_store(&n_areas, i + 1);
        return;
    }
}

static void drop_area(const void *from)
{
    for (size_t i = 0; from && i < n_areas; i++)
        if (area[i].from == (uintptr_t)from)
            atomic_store(&area[i].from, 0);
}

static void count(const void *from, size_t n)
{
    for (size_t i = 0; n > LOAD && i < n_areas; i++)
        if (area[i].from && (uintptr_t)from >= area[i].from && (uintptr_t)from < area[i].to)
            atomic_fetch_add(&copied, n);
}

void *__wrap_memcpy(void *to, const void *from, size_t n)
{
    count(from, n);
    return __real_memcpy(to, from, n);
}

void *__wrap_memmove(void *to, const void *from, size_t n)
{
    count(from, n);
    return __real_memmove(to, from, n);
}

void *__wrap_vm_get(enum vm_alloc how, size_t bytes)
{
    void *block = __real_vm_get(how, bytes);
    add_area(block, bytes);
    return block;
}

void __wrap_vm_free(enum vm_alloc how, void *block, size_t bytes)
{
    drop_area(block);
    __real_vm_free(how, block, bytes);
}

void *__wrap_vm_reserve(enum vm_alloc how, size_t bytes)
{
    void *block = __real_vm_reserve(how, bytes);
    add_area(block, bytes);
    return block;
}

void __wrap_vm_release(void *block, size_t bytes)
{
    drop_area(block);
    __real_vm_release(block, bytes);
}

/* ---- operations ---- */

static unsigned seed;
static size_t draw(size_t below) { return (size_t)rand_r(&seed) % below; }

static float values[ROWS * WIDTH], q[ROWS * SEQS * HEADS * D], out[ROWS * SEQS * HEADS * D];

struct test_run {
    struct kv *kv;
    struct attn *attn;
    const struct kernels *kernels;
};

/* Appends `rows` rows to every sequence with room; in a tree, row i is a child of an earlier
 * one. */
static void step(const struct test_run *r, size_t rows, bool tree)
{
    struct err err;
    struct attn_query query[SEQS];
    uint32_t ancestors[ROWS * ROWS];
    size_t ancestors_at[ROWS + 1] = {0}, n = 0;
    for (size_t i = 0; tree && i < rows; i++) {
        const size_t parent = i ? draw(i) : 0,
                     depth = i ? ancestors_at[parent + 1] - ancestors_at[parent] : 0;
        for (size_t j = 0; j < depth; j++)
            ancestors[ancestors_at[i] + j] = ancestors[ancestors_at[parent] + j];
        ancestors[ancestors_at[i] + depth] = (uint32_t)i;
        ancestors_at[i + 1] = ancestors_at[i] + depth + 1;
    }
    for (size_t s = 0; s < SEQS; s++) {
        if (kv_left(r->kv, s) < rows || kv_ensure(r->kv, s, rows, &err) < 0)
            continue;
        query[n] =
            (struct attn_query){s, n * rows, rows, tree ? ancestors : NULL, tree ? ancestors_at : NULL};
        n++;
    }
    const struct attn_step at = {r->kv, r->kernels, query, n, NULL};
    check(attn_begin(r->attn, &at, &err) == 0, "no step");
    for (size_t l = 0; l < LAYERS; l++) {
        const struct attn_layer layer = {.index = l};
        for (size_t i = 0; i < n; i++)
            cache_append(r->kv, query[i].seq, l, values, values, WIDTH);
        check(attn_run(r->attn, &at, &layer, q, out, &err) == 0, "no attention: %s", err.text);
    }
    for (size_t i = 0; i < n; i++) {
        size_t kept[ROWS], n_kept = 0;
        for (size_t j = 0; j < rows; j++)
            if (!tree || j == 0 || draw(3) == 0)
                kept[n_kept++] = j;
        if (tree)
            kv_accept(r->kv, query[i].seq, kept, n_kept);
        else
            kv_commit(r->kv, query[i].seq, rows);
    }
}

static void change_one(const struct test_run *r)
{
    struct err err;
    const size_t seq = draw(SEQS), other = (seq + 1 + draw(SEQS - 1)) % SEQS;
    if (!kv_is_untrimmed(r->kv, seq))
        return;
    if (draw(2)) {
        kv_truncate(r->kv, seq, draw(kv_position(r->kv, seq) + 1));
        return;
    }
    kv_truncate(r->kv, other, 0);
    check(kv_fork(r->kv, other, seq, draw(kv_position(r->kv, seq) + 1), &err) == 0, "no fork: %s",
          err.text);
}

/* Attaches rows to a sequence, as from a snapshot; they count as cache memory. */
static void attach(const struct test_run *r, size_t seq, enum dtype type)
{
    struct err err;
    enum { STORED = 64, TAKEN = 37 };
    static char memory[LAYERS][2][KV_HEADS * STORED * D * sizeof(float)];
    struct kv_layer_rows layer[LAYERS];
    for (size_t l = 0; l < LAYERS; l++)
        layer[l] = (struct kv_layer_rows){cpu_addr(memory[l][0]), cpu_addr(memory[l][1]), {type, type}};
    drop_area(memory);
    add_area(memory, sizeof memory);
    kv_truncate(r->kv, seq, 0);
    if (kv_attachable(r->kv, 0, TAKEN) == TAKEN)
        check(kv_attach(r->kv, seq, layer, 0, TAKEN, STORED, &err) == 0, "not attached: %s", err.text);
}

/* Beams of one prompt: in families that never have a common ancestor again, or any parents. */
static void swap(const struct test_run *r, size_t *seq, bool families)
{
    struct err err;
    size_t parent[SEQS];
    for (size_t i = 0; i < SEQS; i++)
        parent[i] = families ? i / 2 * 2 + draw(2) : draw(SEQS);
    check(kv_reorder(r->kv, seq, parent, SEQS, &err) == 0, "no other order: %s", err.text);
}

static void is_counted(const struct test_run *r, const char *what, const char *spec, size_t n)
{
    const size_t said = kv_stats(r->kv).copied_bytes;
    check(said == copied, "%s, %s, step %zu: %zu bytes reported as copied, %zu were", spec, what, n,
          said, (size_t)copied);
}

static void test_cache(const char *spec, enum dtype type, const char *backend)
{
    struct err err;
    const struct kv_shape shape = cache_shape(LAYERS, KV_HEADS, D, N, type);
    const struct attn_shape attn_shape = {
        .heads = HEADS, .kv_heads = KV_HEADS, .head_dim = D, .v_dim = cache_v_dim(D)};
    const struct attn_limits limits = {.positions = N + 64, .step_rows = ROWS * SEQS, .queries = SEQS};
    struct test_run r = {.kv = cache_of(spec, &shape, SEQS), .kernels = kernels_select(NULL, &err)};
    const struct attn_backend *found = attn_find(backend, &err);
    if (!check(r.kv && r.kernels && found &&
                   attn_open(&r.attn, found, &attn_shape, 1, &limits, &err) == 0,
               "%s: %s", spec, err.text))
        return;
    atomic_store(&copied, 0);
    for (size_t n = 0; n < 30; n++) {
        const size_t what = draw(4);
        if (what == 0)
            change_one(&r);
        else
            step(&r, what == 1 ? 1 + draw(ROWS) : what == 2 ? 1 : 1 + draw(8), what == 3);
        is_counted(&r, (const char *[]){"fork or cut", "prompt", "row", "tree"}[what], spec, n);
    }
    attach(&r, 0, type);
    is_counted(&r, "attaching", spec, 0);
    kv_truncate(r.kv, 2, 0);
    check(kv_fork(r.kv, 2, 0, kv_position(r.kv, 0), &err) == 0, "no fork: %s", err.text);
    is_counted(&r, "a fork of attached rows", spec, 0);
    attach(&r, 0, type);
    for (size_t n = 0; n < 5; n++)
        step(&r, 7, false);
    is_counted(&r, "rows behind attached ones", spec, 0);
    for (size_t families = 0; families < 2; families++) {
        size_t seq[SEQS];
        for (size_t s = 0; s < SEQS; s++)
            kv_truncate(r.kv, seq[s] = s, 0);
        if (kv_ensure(r.kv, 0, 20, &err) == 0) {
            for (size_t l = 0; l < LAYERS; l++)
                cache_append(r.kv, 0, l, values, values, WIDTH);
            kv_commit(r.kv, 0, 20);
        }
        for (size_t s = 1; s < SEQS; s++)
            check(kv_fork(r.kv, s, 0, 20, &err) == 0, "no fork: %s", err.text);
        for (size_t n = 0; n < 40 && kv_is_untrimmed(r.kv, 0); n++) {
            step(&r, 1, false);
            swap(&r, seq, families);
            is_counted(&r, families ? "beams in families" : "beams", spec, n);
        }
    }
    attn_close(r.attn);
    kv_close(r.kv);
}

static void test_all(void)
{
    const unsigned first = seed;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        values[i] = (float)(i % 97) / 97 - .5f;
    for (size_t i = 0; i < ARRAY_LEN(q); i++)
        q[i] = (float)(i % 31) / 31 - .5f;
    for (size_t p = 0; kv_policy_name(p); p++)
        for (size_t t = 0; cache_types[t].name; t++)
            if (!v_in_k || !kv_type_rotated(cache_types[t].type)) /* V is no whole blocks of K */
                for (size_t b = 0; b < (v_in_k ? 1 : 2); b++)
                    if ((p + t + b + first) % check_every(v_in_k ? 3 : 9) == 0)
                        test_cache(kv_policy_name(p), cache_types[t].type, b ? "blas" : "fused");
    test_cache("shift:S=40", DTYPE_F32, "fused");
    test_cache("shift:S=40,slack=2", DTYPE_BF16, "blas");
    test_cache("shift:S=40,sinks=5", DTYPE_F32, "fused");
    test_cache("bmc:r=5", DTYPE_F32, "fused");
    test_cache("segment:step=5", DTYPE_F32, "fused");
    test_cache("headwise:ram=1536K,group=1", DTYPE_F32, "fused");
    test_cache("headwise:ram=2M", DTYPE_F32, "blas");
}

int main(void)
{
    kernels_setup();
    threads_set(2);
    seed = (unsigned)check_seed(1);
    for (int i = 0; i < 2; i++) {
        v_in_k = i;
        test_all();
    }
    return check_result();
}
