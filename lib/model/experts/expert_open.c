/* Opening a store of experts: its option, its file, and how its memory is divided. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/number.h"
#include "base/vm.h"
#include "model/experts/expert_slots.h"
#include "quant/pack.h"

enum { LEAST_SLOTS = 2 }; /* one expert is read while another is multiplied */

int expert_store_parse(struct expert_store_options *options, const char *text, struct err *err)
{
    char copy[128], *rest = NULL;
    bool good = strlen(text) < sizeof copy;
    *options = (struct expert_store_options){0};
    snprintf(copy, sizeof copy, "%s", text);
    for (char *one = copy, *end; good && one; one = rest) {
        end = strchr(one, ',');
        rest = end ? end + 1 : NULL;
        if (end)
            *end = 0;
        if (strncmp(one, "ram=", 4) == 0)
            good = !options->ram && parse_bytes(one + 4, &options->ram);
        else if ((good = strcmp(one, "prefetch=off") == 0 || strcmp(one, "prefetch=on") == 0))
            options->no_prefetch = one[sizeof "prefetch=o" - 1] == 'f';
    }
    if (good && options->ram)
        return 0;
    return err_set(
        err,
        "--experts is \"%.60s\", expected is ram=BYTES, as ram=8G, with ,prefetch=off to read "
        "experts only when they are needed",
        text);
}

/* ---- where experts are ---- */

/* The stack of matrices of a layer's experts. */
static const struct mat *stack_of(const struct model *model, size_t layer, enum expert_matrix matrix)
{
    const struct layer *w = &model->weights.layer[layer];
    switch (matrix) {
    case EXPERT_GATE: return &w->experts_gate.weight;
    case EXPERT_UP: return &w->experts_up.weight;
    case EXPERT_DOWN:
    case EXPERT_MATRICES: break;
    }
    return &w->experts_down.weight;
}

/* Finds the experts of a layer in the file. */
static void locate(const struct model *model, size_t layer, struct expert_layer *to)
{
    if (!model->config.plan[layer].has_experts)
        return;
    for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++) {
        const struct mat *mat = stack_of(model, layer, m);
        to->offset[m] = (size_t)((const unsigned char *)mat->data - model->file.map.data);
        to->size[m] = layout_bytes(mat->layout, mat->dtype, mat->out, mat->in);
        to->at[m] = to->bytes;
        /* matrices that are no multiple of a block share the blocks at both ends with their neighbours */
        to->bytes += round_up(to->size[m], ASYNC_BLOCK) + (to->size[m] % ASYNC_BLOCK ? ASYNC_BLOCK : 0);
    }
}

static int locate_all(struct expert_store *o, const struct model *model, struct err *err)
{
    o->layer = mem_zalloc(size_max(o->n_layers, 1), sizeof *o->layer);
    if (!o->layer)
        return err_no_memory(err, "%zu layers", o->n_layers);
    for (size_t l = 0; l < o->n_layers; l++) {
        locate(model, o->first_layer + l, &o->layer[l]);
        o->slot_bytes = size_max(o->slot_bytes, o->layer[l].bytes);
        o->stats.total += o->experts * o->layer[l].bytes;
    }
    return 0;
}

/* ---- memory ---- */

/* Divides the slots: a part is for experts on their way, of the others each layer keeps an equal number. */
static void divide_slots(struct expert_store *o, size_t experts_used)
{
    size_t layers = 0;
    o->moving = size_max(LEAST_SLOTS, size_min(o->n_slots / 2, 2 * experts_used));
    size_t left = o->n_slots - o->moving;
    for (size_t l = 0; l < o->n_layers; l++)
        layers += o->layer[l].bytes > 0;
    for (size_t l = 0; l < o->n_layers; l++) {
        if (!o->layer[l].bytes)
            continue;
        o->layer[l].keeps = size_min(o->experts, div_up(left, layers));
        left -= o->layer[l].keeps;
        layers--;
    }
}

static int alloc_slots(struct expert_store *o, struct err *err)
{
    o->slot = mem_zalloc(o->n_slots, sizeof *o->slot);
    o->spare = mem_alloc(o->n_slots, sizeof *o->spare);
    o->slots_of = mem_alloc(o->n_layers * o->experts, sizeof *o->slots_of);
    o->counts = mem_zalloc(o->n_layers * o->experts, 2 * sizeof *o->counts);
    o->demand = mem_zalloc(o->experts, sizeof *o->demand);
    o->predicted = mem_zalloc(o->experts, sizeof *o->predicted);
    o->memory = vm_get(VM_THP, o->stats.ram);
    if (!o->slot || !o->spare || !o->slots_of || !o->counts || !o->demand || !o->predicted ||
        !o->memory)
        return err_no_memory(err, "%zu bytes of --experts, which has %zu experts", o->stats.ram,
                             o->n_slots);
    for (size_t i = 0; i < o->n_slots; i++)
        o->spare[o->n_spare++] = o->n_slots - 1 - i;
    for (size_t i = 0; i < o->n_layers * o->experts; i++)
        o->slots_of[i] = NO_SLOT;
    for (size_t l = 0; l < o->n_layers; l++) {
        o->layer[l].slot = o->slots_of + l * o->experts;
        o->layer[l].count = o->counts + 2 * l * o->experts;
        o->layer[l].last = o->layer[l].count + o->experts;
    }
    return 0;
}

/* Unmaps the experts of the mapped file, so that no page of theirs is loaded with a neighbour. */
static void unmap_experts(const struct expert_store *o, const struct model *model)
{
    for (size_t l = 0; l < o->n_layers; l++)
        for (enum expert_matrix m = 0; o->layer[l].bytes && m < EXPERT_MATRICES; m++)
            vm_forbid((void *)(uintptr_t)stack_of(model, o->first_layer + l, m)->data,
                      o->experts * o->layer[l].size[m]);
}

/* ---- the file ---- */

/* True if the file begins with the same header, which has its hash, as the mapped one. */
static bool same_file(int fd, const struct model *model, void *block)
{
    const size_t size = size_min(ASYNC_BLOCK, model->file.map.size);
    return pread(fd, block, ASYNC_BLOCK, 0) >= (ssize_t)size &&
           memcmp(block, model->file.map.data, size) == 0;
}

/* Opens the model file again, past the page cache if the file system supports that. */
static int open_file(struct expert_store *o, const struct model *model, struct err *err)
{
    void *block = aligned_alloc(ASYNC_BLOCK, ASYNC_BLOCK);
    if (!block)
        return err_no_memory(err, "the experts");
    int fd = open(model->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if ((fd < 0 && errno == EINVAL) || (fd >= 0 && pread(fd, block, ASYNC_BLOCK, 0) < 0)) {
        if (fd >= 0)
            close(fd);
        fd = open(model->path, O_RDONLY | O_CLOEXEC);
    }
    const bool same = fd >= 0 && same_file(fd, model, block);
    free(block);
    if (fd < 0)
        return err_errno(err, "%s: cannot read the weights of experts", model->path);
    if (same)
        return async_file_open(&o->file, fd, model->file.map.size, err);
    close(fd);
    return err_set(err, "%s: the file was replaced while it was opened: start again", model->path);
}

/* ---- all of it ---- */

static int check_model(const struct model *model, struct err *err)
{
    if (!model->config.moe->experts)
        return err_set(err,
                       "--experts: %s has no experts; its weights are read from memory in every step",
                       model->path);
    if (!model->file.map.data)
        return err_set(err, "--experts needs a model file: %s has random weights in memory",
                       model->path);
    if (model->ranks && !model->pipeline_parallel)
        return err_set(err,
                       "--experts does not support tensor and expert parallelism: use --parallelism "
                       "pipeline or data");
    return 0;
}

static int check_ram(const struct expert_store *o, size_t ram, struct err *err)
{
    const size_t least = LEAST_SLOTS * o->slot_bytes;
    const bool small = least < 1 << 20;
    if (ram >= least)
        return 0;
    return err_set(
        err,
        "--experts: ram=%zu is too small: an expert has %zu bytes and two must fit, ram=%zu%c "
        "is the least; ram=%zuM holds all experts",
        ram, o->slot_bytes, div_up(least, small ? 1 << 10 : 1 << 20), small ? 'K' : 'M',
        div_up(o->stats.total, 1 << 20));
}

int expert_store_open(struct model *model, const struct expert_store_options *options, struct err *err)
{
    const struct config *c = &model->config;
    if (check_model(model, err) < 0)
        return -1;
    struct expert_store *o = mem_zalloc(1, sizeof *o);
    int rc = -1;
    if (!o || !(o->path = strdup(model->path))) {
        free(o);
        return err_no_memory(err, "the experts");
    }
    o->experts = c->moe->experts;
    o->no_prefetch = options->no_prefetch;
    o->first_layer = model->pipeline_parallel ? model->first_layer : 0;
    o->n_layers = model->pipeline_parallel ? model->n_layers : c->layers;
    if (locate_all(o, model, err) < 0)
        goto out;
    if (o->stats.total <= options->ram) { /* also if this rank has none */
        rc = 0;
        goto out;
    }
    if (check_ram(o, options->ram, err) < 0)
        goto out;
    o->n_slots = options->ram / o->slot_bytes;
    o->stats.ram = o->n_slots * o->slot_bytes;
    divide_slots(o, c->moe->used);
    if (open_file(o, model, err) < 0 || alloc_slots(o, err) < 0)
        goto out;
    unmap_experts(o, model);
    model->store = o;
    return 0;
out:
    expert_store_close(o);
    return rc;
}

void expert_store_close(struct expert_store *o)
{
    if (!o)
        return;
    async_file_close(o->file);
    vm_free(VM_THP, o->memory, o->stats.ram);
    free(o->slot);
    free(o->spare);
    free(o->slots_of);
    free(o->counts);
    free(o->demand);
    free(o->predicted);
    free(o->layer);
    free(o->path);
    free(o);
}
