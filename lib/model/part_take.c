/* Cutting a model's weights. */
#include "model/part_take.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pack.h"

/* A matrix that products read, where it is bound. */
struct bound {
    struct model *model;
    const struct role *role;
    size_t layer; /* of a role in layers */
    struct linear *linear;
};

static int each_product(struct model *model, int (*use)(const struct bound *bound, struct err *err),
                        struct err *err)
{
    const struct config *c = &model->config;
    for (size_t i = 0; i < n_roles; i++) {
        const struct role *role = &roles[i];
        if (role->in == DIM_NONE || role_is_table(role) || !role_wanted(role, c))
            continue;
        for (size_t layer = 0; layer < (role_in_layer(role) ? c->layers : 1); layer++) {
            char *base =
                role_in_layer(role) ? (char *)&model->weights.layer[layer] : (char *)&model->weights;
            const struct bound bound = {model, role, layer, (void *)(base + role->at)};
            if (use(&bound, err) < 0)
                return -1;
        }
    }
    return 0;
}

static size_t mat_bytes(const struct mat *w)
{
    return layout_bytes(w->layout, w->dtype, w->out, w->in);
}

/* ---- the file ---- */

/* The pages that lie within [from, to) of the mapped file: nothing there will be read, and what is not the file's cannot come
 * into memory because its neighbours do. The addresses stay taken: all of them are given back together. */
static void leave(const struct model *model, const char *from, const char *to)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = round_up((uintptr_t)from, page), end = (uintptr_t)to / page * page;
    if (!model->synthetic && first < end)
        (void)mmap((void *)first, end - first, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); /* else it stays */
}

/* Of a matrix all but `own`; a head that is the embedding is looked up, too. */
static void leave_rest(const struct bound *bound, const struct mat *all, const struct mat *own)
{
    const char *from = all->data, *mine = own->data, *end = from + mat_bytes(all);
    if (all->data == bound->model->weights.embed.data)
        return;
    leave(bound->model, from, mine ? mine : end);
    if (mine)
        leave(bound->model, mine + mat_bytes(own), end);
}

/* Of a table single rows are looked up: each shall bring its page, and not two megabytes. */
static void narrow(const struct model *model, const struct mat *table)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)table->data / page * page;
    if (!model->synthetic && table->data)
        (void)madvise((void *)first, (uintptr_t)table->data + mat_bytes(table) - first,
                      MADV_NOHUGEPAGE);
}

static void narrow_tables(const struct model *model)
{
    narrow(model, &model->weights.embed);
    narrow(model, &model->weights.position);
}

static int lock(const struct bound *bound, struct err *err)
{
    const struct mat *w = &bound->linear->weight;
    if (w->data && mlock(w->data, mat_bytes(w)) < 0)
        return err_errno(err, "%s: cannot lock %zu bytes in memory (ulimit -l)", bound->model->path,
                         mat_bytes(w));
    return 0;
}

int part_lock(struct model *model, struct err *err) { return each_product(model, lock, err); }

/* ---- by tensors ---- */

/* A block's first outputs may be another rank's: they are computed, too, and left out. */
static void cut_linear(struct linear *linear, struct piece own)
{
    struct mat *w = &linear->weight;
    linear->skip = own.first % PACK_OUT;
    w->data = (const char *)w->data + own.first / PACK_OUT * pack_block_bytes(w->dtype, w->in_padded);
    w->out = linear->skip + own.n;
    if (linear->bias)
        linear->bias += own.first - linear->skip;
}

static int cut(const struct bound *bound, struct err *err)
{
    const struct ranks *ranks = bound->model->ranks;
    const struct mat all = bound->linear->weight;
    (void)err;
    cut_linear(bound->linear, part_piece(&bound->model->config, bound->role->out, (size_t)ranks->rank,
                                         (size_t)ranks->size));
    leave_rest(bound, &all, &bound->linear->weight);
    return 0;
}

int part_take(struct model *model, struct ranks *ranks, struct err *err)
{
    const size_t kv_heads = model->config.kv_heads;
    if ((size_t)ranks->size > kv_heads)
        return err_set(
            err, "%s: has %zu KV heads, of which %d ranks cannot have one each; start %zu at most",
            model->path, kv_heads, ranks->size, kv_heads);
    model->ranks = ranks;
    narrow_tables(model);
    return each_product(model, cut, err);
}

/* ---- by layers ---- */

static bool is_own(const struct bound *bound)
{
    const struct model *model = bound->model;
    if (role_in_layer(bound->role))
        return bound->layer - model->first_layer < model->n_layers;
    const bool first = bound->linear == &model->weights.project_in;
    return model->ranks->rank == (first ? 0 : model->ranks->size - 1);
}

static int drop(const struct bound *bound, struct err *err)
{
    const struct mat all = bound->linear->weight;
    (void)err;
    if (is_own(bound))
        return 0;
    *bound->linear = (struct linear){0};
    leave_rest(bound, &all, &bound->linear->weight);
    return 0;
}

/* Of a layer's matrices. */
static size_t bytes_of(const struct model *model, size_t layer)
{
    const struct layer *w = &model->weights.layer[layer];
    const struct linear *all[] = {&w->q, &w->k, &w->v, &w->out, &w->gate, &w->up, &w->down};
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        bytes += mat_bytes(&all[i]->weight);
    return bytes;
}

/* The rank in whose share of all bytes the middle of a layer lies; each rank has one at least. */
void part_share_layers(const struct model *model, size_t size, size_t *count)
{
    const size_t layers = model->config.layers;
    size_t all = mat_bytes(&model->weights.head.weight), at = 0, rank = 0;
    for (size_t l = 0; l < layers; l++)
        all += bytes_of(model, l);
    for (size_t l = 0; l < layers; l++) {
        const size_t bytes = bytes_of(model, l), must = size - size_min(size, layers - l);
        const bool next = (double)(at + bytes / 2) * (double)size >= (double)all * (double)(rank + 1);
        if (rank + 1 < size && count[rank] && (next || rank < must))
            rank++;
        count[rank]++;
        at += bytes;
    }
}

int part_take_layers(struct model *model, struct ranks *ranks, const size_t *count, struct err *err)
{
    const size_t size = (size_t)ranks->size, layers = model->config.layers;
    size_t sum = 0;
    bool empty = false;
    if (size > layers)
        return err_set(err, "%s: has %zu layers, of which %zu ranks cannot have one each", model->path,
                       layers, size);
    size_t *shares = mem_zalloc(size, sizeof *shares);
    if (!shares)
        return err_set(err, "out of memory");
    if (!count)
        part_share_layers(model, size, shares);
    for (size_t r = 0; r < size; r++) {
        const size_t n = count ? count[r] : shares[r];
        if (r == (size_t)ranks->rank) {
            model->first_layer = sum;
            model->n_layers = n;
        }
        model->most_layers = size_max(model->most_layers, n);
        sum += n;
        empty |= n == 0;
    }
    free(shares);
    if (sum != layers || empty)
        return err_set(err, "%s: has %zu layers, one at least for each rank; %zu are shared out%s",
                       model->path, layers, sum, empty ? ", and a rank has none" : "");
    model->ranks = ranks;
    model->by_layers = true;
    narrow_tables(model);
    return each_product(model, drop, err);
}
