/* Pages of weights: mapped in advance, read ahead, huge, and on NUMA nodes. */
#include "model/model_pages.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/file_head.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/threads.h"
#include "base/vm.h"
#include "model/weight_kinds.h"
#include "quant/pack.h"

enum { PAGE = 4096 };

static int copy_file(const struct model *model, int threads, const char *option, map_huge_place *place,
                     void *arg, struct err *err)
{
    const size_t bytes = model->file.map.size, free_bytes = vm_available();
    if (free_bytes && free_bytes < bytes)
        return err_set(err, "%s: %s copies %zu bytes, %zu are available: leave it out", model->name,
                       option, bytes, free_bytes);
    threads_set(threads);
    mapped_remove(model->file.map.data); /* its name is for faults of truncated files */
    if (!map_huge_copy((void *)(uintptr_t)model->file.map.data, bytes, place, arg))
        return err_set(err, "%s: %s: not enough memory for a copy of %zu bytes: leave it out",
                       model->name, option, bytes);
    return 0;
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14 */
#endif

void model_map_pages(const struct model *model)
{
    const size_t bytes = model->file.map.size;
    if (bytes && bytes <= vm_available())
        (void)madvise((void *)(uintptr_t)model->file.map.data, bytes, MADV_POPULATE_READ);
}

/* ---- reading ahead ---- */

enum {
    READ_AHEAD_LEAST = 16 << 20, /* bytes of a file worth a thread */
    READ_AHEAD_PIECE = 8 << 20,  /* bytes that it may read after its end was asked for */
};

struct read_ahead {
    const struct model *model;
    pthread_t thread;
    atomic_bool ends;
};

static void read_weights(const struct read_ahead *r, const struct weight_kind *kind, size_t layer)
{
    const struct mat *w = weight_kind_at(kind, &r->model->weights, layer);
    const uintptr_t end =
        (uintptr_t)w->data + (w->data ? layout_bytes(w->layout, w->dtype, w->out, w->in) : 0);
    for (uintptr_t at = (uintptr_t)w->data / PAGE * PAGE; at < end && !r->ends; at += READ_AHEAD_PIECE)
        (void)madvise((void *)at, size_min(end - at, READ_AHEAD_PIECE), MADV_POPULATE_READ);
}

/* Reads the matrices of a layer, or those outside layers, in the order of the file. */
static void read_matrices(const struct read_ahead *r, bool in_layer, size_t layer)
{
    const struct config *c = &r->model->config;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        if (weight_kind_in_layer(kind) == in_layer && kind->in != DIM_NONE &&
            weight_kind_has(kind, c, layer) && !weight_kind_looked_up(kind, c) &&
            !weight_kind_of_experts(kind))
            read_weights(r, kind, layer);
}

static void *read_all(void *arg)
{
    const struct read_ahead *r = arg;
    for (size_t l = 0; l < r->model->config.layers && !r->ends; l++)
        read_matrices(r, true, l);
    read_matrices(r, false, 0);
    return NULL;
}

struct read_ahead *read_ahead_begin(const struct model *model)
{
    const size_t bytes = model->file.map.size;
    if (bytes < READ_AHEAD_LEAST || model->ranks || bytes > vm_available())
        return NULL;
    struct read_ahead *r = mem_zalloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->model = model;
    if (thread_start(&r->thread, read_all, r) == 0)
        return r;
    free(r);
    return NULL;
}

void read_ahead_end(struct read_ahead *r)
{
    if (!r)
        return;
    r->ends = true;
    pthread_join(r->thread, NULL);
    free(r);
}

void model_advise_table(const struct mat *table)
{
    const uintptr_t from = round_up((uintptr_t)table->data, PAGE),
                    to = ((uintptr_t)table->data +
                          layout_bytes(table->layout, table->dtype, table->out, table->in)) /
                         PAGE * PAGE;
    if (table->data && from < to)
        (void)madvise((void *)from, to - from, MADV_NOHUGEPAGE);
}

void model_advise_pages(const struct model *model)
{
    const struct config *c = &model->config;
    (void)madvise((void *)(uintptr_t)model->file.map.data, model->file.map.size, MADV_HUGEPAGE);
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t l = 0; l < weight_kind_copies(kind, c); l++)
            if (weight_kind_looked_up(kind, c) && weight_kind_has(kind, c, l))
                model_advise_table(weight_kind_at(kind, &model->weights, l));
}

/* Replaces the mapped file by a copy in transparent huge pages, which `threads` threads make. */
static int model_use_huge_pages(const struct model *model, int threads, struct err *err)
{
    char enabled[64];
    const size_t n =
        file_head("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof enabled - 1);
    enabled[n] = 0;
    if (!strchr(enabled, '[') || strstr(enabled, "[never]"))
        return err_set(err, "transparent huge pages are switched off on this system: write madvise to "
                            "/sys/kernel/mm/transparent_hugepage/enabled, or leave --hugepages out");
    return copy_file(model, threads, "--hugepages", NULL, NULL, err);
}

/* ---- NUMA ---- */

struct placing {
    const struct numa *numa;
    const unsigned char *data;
    size_t threads, first[NUMA_NODES + 1];
    model_place *place;
    void *arg;
};

static size_t blocks_of(const struct mat *w)
{
    return w->data && w->layout == LAYOUT_PACKED ? div_up(w->out, PACK_OUT) : 0;
}

/* Places matrices that are multiplied in one loop. Threads begin with equal ranges of all their blocks. */
static void place_together(const struct placing *p, const struct mat *const *w, size_t n)
{
    size_t all = 0, at = 0;
    for (size_t m = 0; m < n; m++)
        all += blocks_of(w[m]);
    for (size_t m = 0; m < n; m++) {
        const size_t blocks = blocks_of(w[m]), end = at + blocks;
        const size_t bytes = blocks ? pack_block_bytes(w[m]->dtype, w[m]->in_padded) : 0;
        for (size_t node = 0; node < p->numa->n; node++) {
            const size_t from = size_max(at, all * p->first[node] / p->threads);
            const size_t to = size_min(end, all * p->first[node + 1] / p->threads);
            if (from < to)
                p->place(p->arg, node,
                         (size_t)((const unsigned char *)w[m]->data - p->data) + (from - at) * bytes,
                         (to - from) * bytes);
        }
        at = end;
    }
}

static void place_one(const struct placing *p, const struct mat *w) { place_together(p, &w, 1); }

static void place_layer(const struct placing *p, const struct layer *l)
{
    const struct mat *qkv[] = {&l->q.weight, &l->k.weight, &l->v.weight};
    const struct mat *const others[] = {
        &l->out.weight,         &l->gate.weight,      &l->up.weight,         &l->down.weight,
        &l->shared_gate.weight, &l->shared_up.weight, &l->shared_down.weight};
    place_together(p, qkv, ARRAY_LEN(qkv));
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        place_one(p, others[i]);
}

void model_place_weights(const struct model *model, const struct numa *numa, int threads,
                         model_place *place, void *arg)
{
    struct placing p = {.numa = numa,
                        .data = model->file.map.data,
                        .threads = (size_t)threads,
                        .place = place,
                        .arg = arg};
    numa_distribute(numa, p.threads, p.first);
    for (size_t i = 0; i < model->config.layers; i++)
        place_layer(&p, &model->weights.layer[i]);
    place_one(&p, &model->weights.head.weight);
}

struct copying {
    const struct model *model;
    const struct numa *numa;
    int threads;
    char *copy;
};

static void place_copied(void *arg, size_t node, size_t from, size_t bytes)
{
    const struct copying *c = arg;
    numa_place(c->numa, node, c->copy + from, bytes, bytes < 4 * HUGE_PAGE ? PAGE : HUGE_PAGE);
}

static void place_copy(void *arg, char *copy)
{
    struct copying *c = arg;
    c->copy = copy;
    numa_interleave(c->numa, copy, c->model->file.map.size);
    model_place_weights(c->model, c->numa, c->threads, place_copied, c);
}

/* Binds the calling thread's team of `threads` threads to the nodes, and replaces the mapped file by a copy in which
 * the rows of dense matrices are on the nodes of the threads that multiply them (kernel/steal.h): each node reads its
 * own memory. Experts, other weights, and all memory that threads allocate later are interleaved over the nodes. After
 * an error the team stays bound. */
static int model_use_numa(const struct model *model, const struct numa *numa, int threads,
                          struct err *err)
{
    struct copying c = {.model = model, .numa = numa, .threads = threads};
    numa_bind_team(numa, (size_t)threads);
    return copy_file(model, threads, "--numa", place_copy, &c, err);
}

int model_use_pages(const struct model *model, const struct pages_options *o, bool *one_node,
                    struct err *err)
{
    *one_node = false;
    if (o->numa) {
        struct numa numa;
        numa_read(&numa, "/sys");
        if (numa.n > 1)
            return model_use_numa(model, &numa, o->threads, err);
        *one_node = true;
    }
    return o->hugepages ? model_use_huge_pages(model, o->threads, err) : 0;
}
