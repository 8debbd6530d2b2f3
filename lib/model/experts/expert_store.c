/* Experts that are read from the model file: opening, and the passes of layers over the slots in memory. */
#include "model/experts/expert_store.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
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
        if (!mat->data) /* plain MLPs have no gates */
            continue;
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
    o->slots = o->memory->alloc(VM_THP, o->stats.ram);
    if (!o->slot || !o->spare || !o->slots_of || !o->counts || !o->demand || !o->predicted ||
        addr_is_null(o->slots))
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
        for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++)
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
        return err_errno(err, "%s: cannot read the weights of experts", model->name);
    if (same)
        return async_file_open(&o->file, fd, model->file.map.size, err);
    close(fd);
    return err_set(err, "%s: the file was replaced while it was opened: start again", model->name);
}

/* ---- all of it ---- */

static int check_model(const struct model *model, struct err *err)
{
    if (!model->config.moe->experts)
        return err_set(err,
                       "--experts: %s has no experts; its weights are read from memory in every step",
                       model->name);
    if (!model->file.map.data)
        return err_set(err, "--experts needs a model file: %s has random weights in memory",
                       model->name);
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

int expert_store_open(struct model *model, const struct expert_store_options *options,
                      const struct backend_memory *memory, struct err *err)
{
    const struct config *c = &model->config;
    if (check_model(model, err) < 0)
        return -1;
    struct expert_store *o = mem_zalloc(1, sizeof *o);
    int rc = -1;
    if (!o || !(o->path = strdup(model->name))) {
        free(o);
        return err_no_memory(err, "the experts");
    }
    o->memory = memory;
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
    o->memory->free(VM_THP, o->slots, o->stats.ram);
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

/* ---- passes ---- */

enum {
    PREDICTIONS = 256,  /* predictions over which their precision is measured */
    SAMPLE_PASSES = 16, /* while prefetching pauses, predictions are made in one of so many passes */
    AGE_TOKENS = 256    /* after so many tokens the counts of a layer are halved */
};

/* State of an expert of the current layer. */
enum demand { NOT_NEEDED, WAITING, READING, RETURNED, DONE };

/* x += (new - x) / 8, or new for the first value */
static void average(double *x, double value) { *x = *x > 0 ? *x + (value - *x) / 8 : value; }

const struct expert_stats *expert_store_stats(const struct expert_store *o) { return &o->stats; }

/* ---- slots of a layer ---- */

/* Expert of a layer to evict: the one that fewest tokens have chosen, the least recently used one of these,
 * among those that the current pass does not need and that are not being read; `experts`: there is none. */
static size_t find_victim(const struct expert_store *o, const struct expert_layer *layer)
{
    const bool current = layer == o->current;
    size_t victim = o->experts;
    for (size_t e = 0; e < o->experts; e++) {
        const size_t slot = layer->slot[e];
        const bool needed = current && o->demand[e] != NOT_NEEDED && o->demand[e] != DONE;
        if (slot == NO_SLOT || needed || o->slot[slot].ticket.pending)
            continue;
        if (victim == o->experts || layer->count[e] < layer->count[victim] ||
            (layer->count[e] == layer->count[victim] && layer->last[e] < layer->last[victim]))
            victim = e;
    }
    return victim;
}

/* Takes the expert's slot from it. */
static void evict(struct expert_store *o, struct expert_layer *layer, size_t expert)
{
    struct async_failure failure;
    struct expert_slot *slot = &o->slot[layer->slot[expert]];
    if (slot->ticket.bytes && !async_file_wait(o->file, &slot->ticket, &failure))
        slot->ticket = (struct async_ticket){0}; /* nobody needed it */
    o->spare[o->n_spare++] = layer->slot[expert];
    layer->slot[expert] = NO_SLOT;
    layer->held--;
}

/* Evicts all but as many experts as a layer keeps between passes. */
static void trim(struct expert_store *o, struct expert_layer *layer)
{
    while (layer->held > layer->keeps) {
        const size_t victim = find_victim(o, layer);
        if (victim < o->experts)
            evict(o, layer, victim);
        else
            async_file_progress(o->file); /* the others are being read: a wrong prefetch */
    }
}

/* Bytes that are read for an expert. */
static size_t read_size(const struct expert_layer *layer, size_t expert)
{
    size_t bytes = 0;
    for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++)
        bytes += expert_slots_range(layer, m, expert).bytes;
    return bytes;
}

/* Starts to read an expert; false: there is no slot for it now. */
static bool start_read(struct expert_store *o, struct expert_layer *layer, size_t expert)
{
    if (!o->n_spare) {
        const size_t victim = find_victim(o, layer);
        if (victim == o->experts)
            return false;
        evict(o, layer, victim);
    }
    const size_t index = o->spare[--o->n_spare];
    struct expert_slot *slot = &o->slot[index];
    slot->prefetched = false;
    layer->slot[expert] = index;
    layer->held++;
    for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++) {
        const struct expert_range range = expert_slots_range(layer, m, expert);
        if (!range.bytes)
            continue;
        o->memory->file_read(o->file, &slot->ticket, addr_add(expert_slots_at(o, index), layer->at[m]),
                             range.from, range.bytes);
    }
    o->stats.read_bytes += read_size(layer, expert);
    return true;
}

/* ---- the pass of a layer ---- */

/* Ends the pass of the current layer, if there is one. */
static void end_pass(struct expert_store *o)
{
    struct expert_layer *layer = o->current;
    o->current = NULL;
    if (layer)
        trim(o, layer);
}

/* Compares what was predicted for a layer with what it needs. */
static void check_predictions(struct expert_store *o, const size_t *expert, size_t n)
{
    for (size_t i = 0; i < n; i++)
        o->right += o->predicted[expert[i]];
    o->n_predicted += o->pending_predictions;
    o->pending_predictions = 0;
    memset(o->predicted, 0, o->experts * sizeof *o->predicted);
    if (o->n_predicted >= PREDICTIONS) {
        o->n_predicted /= 2;
        o->right /= 2;
    }
}

/* Counts that `tokens` tokens have chosen experts. */
static void count_uses(struct expert_store *o, struct expert_layer *layer, const size_t *expert,
                       const size_t *rows, size_t n, size_t tokens)
{
    o->clock++;
    for (size_t i = 0; i < n; i++) {
        layer->count[expert[i]] += rows[i];
        layer->last[expert[i]] = o->clock;
    }
    layer->tokens += tokens;
    if (layer->tokens < AGE_TOKENS)
        return;
    layer->tokens = 0;
    for (size_t e = 0; e < o->experts; e++)
        layer->count[e] /= 2;
}

/* Starts to read the experts that wait for it, as far as there are slots. */
static void read_waiting(struct expert_store *o)
{
    for (; o->next_read < o->n; o->next_read++) {
        const size_t expert = o->expert[o->next_read];
        if (o->demand[expert] != WAITING)
            continue;
        if (!start_read(o, o->current, expert))
            return;
        o->demand[expert] = READING;
        const size_t bytes = read_size(o->current, expert);
        o->stats.needed_bytes += bytes;
        o->pass_bytes += bytes;
    }
}

/* Notes how an expert that the current layer needs is found. */
static void find_expert(struct expert_store *o, size_t expert)
{
    struct expert_layer *layer = o->current;
    struct expert_slot *slot = layer->slot[expert] == NO_SLOT ? NULL : &o->slot[layer->slot[expert]];
    o->demand[expert] = slot ? READING : WAITING; /* an expert in memory counts as read at once */
    if (!slot)
        return;
    if (slot->prefetched) {
        o->stats.prefetch_hits++;
        o->pass_bytes += slot->ticket.pending ? read_size(layer, expert) : 0;
        o->stats.needed_bytes += read_size(layer, expert);
    } else {
        o->stats.hits++;
    }
    slot->prefetched = false;
}

void expert_store_begin(struct expert_store *o, size_t layer, const size_t *expert, const size_t *rows,
                        size_t n, size_t tokens)
{
    struct expert_layer *current = &o->layer[layer - o->first_layer];
    end_pass(o);
    if (o->prefetching && o->prefetching != current) /* its forward pass has failed */
        trim(o, o->prefetching);
    o->prefetching = NULL;
    o->begun_ms = clock_ms();
    if (current > o->last && o->arrived_ms > 0) /* in one forward pass */
        average(&o->gap_ms, o->begun_ms - o->arrived_ms);
    o->last = current;
    o->current = current;
    o->expert = expert;
    o->n = n;
    o->next_read = o->n_done = o->pass_bytes = 0;
    o->stats.uses += n;
    memset(o->demand, NOT_NEEDED, o->experts * sizeof *o->demand);
    check_predictions(o, expert, n);
    count_uses(o, o->current, expert, rows, n, tokens);
    for (size_t i = 0; i < n; i++)
        find_expert(o, expert[i]);
    read_waiting(o);
}

/* Fails with the error of a read. */
static int report(const struct expert_store *o, const struct async_failure *failure, struct err *err)
{
    if (failure->ended)
        return err_set(err, "%s: the file was truncated while in use", o->path);
    errno = failure->error;
    return err_errno(err, "%s: cannot read the weights of experts", o->path);
}

/* Moves experts that are in memory to ready[]. */
static int take_ready(struct expert_store *o, size_t *ready, size_t *n, struct err *err)
{
    for (size_t i = 0; i < o->n; i++) {
        struct async_failure failure;
        const size_t expert = o->expert[i];
        if (o->demand[expert] != READING)
            continue;
        struct expert_slot *slot = &o->slot[o->current->slot[expert]];
        if (slot->ticket.pending)
            continue;
        if (slot->ticket.bytes && !async_file_wait(o->file, &slot->ticket, &failure)) {
            o->demand[expert] = DONE;
            evict(o, o->current, expert);
            return report(o, &failure, err);
        }
        o->demand[expert] = RETURNED;
        ready[(*n)++] = i;
    }
    return 0;
}

/* All experts of the layer are in memory. */
static void note_arrival(struct expert_store *o)
{
    o->arrived_ms = clock_ms();
    if (o->pass_bytes && o->arrived_ms > o->begun_ms)
        average(&o->rate, (double)o->pass_bytes / (o->arrived_ms - o->begun_ms));
}

int expert_store_next(struct expert_store *o, size_t *ready, size_t *n, struct err *err)
{
    *n = 0;
    for (size_t i = 0; i < o->n; i++)
        if (o->demand[o->expert[i]] == RETURNED)
            o->demand[o->expert[i]] = DONE;
    if (o->n_done == o->n) {
        end_pass(o);
        return 0;
    }
    read_waiting(o);
    const double start = clock_ms();
    while (take_ready(o, ready, n, err) == 0) {
        if (*n) {
            o->n_done += *n;
            o->stats.wait_ms += clock_ms() - start;
            if (o->n_done == o->n)
                note_arrival(o);
            return 0;
        }
        async_file_progress(o->file);
        read_waiting(o); /* a wrong prefetch that has ended leaves its slot */
    }
    end_pass(o);
    return -1;
}

struct device_addr expert_store_data(const struct expert_store *o, size_t expert,
                                     enum expert_matrix matrix)
{
    const struct expert_layer *layer = o->current;
    return addr_add(expert_slots_at(o, layer->slot[expert]),
                    layer->at[matrix] + expert_slots_range(layer, matrix, expert).skip);
}

/* ---- prefetching ---- */

/* Bytes that a predicted expert costs on average, because it is not needed. */
static double wasted_bytes(const struct expert_store *o, const struct expert_layer *layer)
{
    enum { FEW = 16 };
    const double right = o->n_predicted < FEW ? 0.5 : (double)o->right / (double)o->n_predicted;
    return (1 - right) * (double)layer->bytes;
}

size_t expert_store_predicts(struct expert_store *o)
{
    size_t next = (size_t)(o->current - o->layer) + 1;
    const bool trusted = 2 * o->right >= o->n_predicted || o->n_predicted < PREDICTIONS / 4;
    while (next < o->n_layers && !o->layer[next].bytes)
        next++;
    if (o->no_prefetch || next == o->n_layers || o->next_read < o->n)
        return 0;
    /* what the file can read while the next layer's attention runs, and until its router has chosen */
    const double most = (double)(o->moving * o->layer[next].bytes);
    o->credit += o->rate * o->gap_ms;
    o->credit = o->credit < most ? o->credit : most;
    if (o->credit < wasted_bytes(o, &o->layer[next]) || (!trusted && o->clock % SAMPLE_PASSES))
        return 0;
    o->reads_predicted = trusted;
    return o->first_layer + next;
}

void expert_store_predict(struct expert_store *o, size_t layer, const uint32_t *expert, size_t n)
{
    struct expert_layer *next = &o->layer[layer - o->first_layer];
    const double wasted = wasted_bytes(o, next);
    double idle = o->rate * o->gap_ms; /* bytes: more would only delay what the next layer needs */
    o->prefetching = next;
    for (size_t i = 0; i < n && idle > 0 && o->credit >= wasted; i++) {
        if (next->slot[expert[i]] != NO_SLOT)
            continue;
        if (o->reads_predicted) {
            if (!o->n_spare || !start_read(o, next, expert[i]))
                return;
            o->slot[next->slot[expert[i]]].prefetched = true;
            o->stats.prefetched++;
        }
        o->credit -= wasted;
        idle -= (double)next->bytes;
        o->predicted[expert[i]] = true;
        o->pending_predictions++;
    }
}
