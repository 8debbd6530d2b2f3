/* A store of experts over a file of known bytes: every expert that it returns has its own weights, whatever
 * the memory, the order and the predictions; the most used ones stay; a truncated file is an error. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cpu/cpu_memory.h"
#include "model/config/config_keys.h"
#include "model/experts/expert_slots.h"
#include "tests/unit/check.h"

enum { LAYERS = 3, EXPERTS = 9, USED = 2, IN = 32, FFN = 48, MATRIX = IN * FFN * 4, ALIGN = 4096 };

static char path[] = "/var/tmp/bmc-experts-XXXXXX";

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

/* Every word of a matrix is its number. */
static uint32_t number_of(size_t layer, size_t matrix, size_t expert)
{
    return (uint32_t)((layer * EXPERT_MATRICES + matrix) * EXPERTS + expert + 1);
}

static size_t stack_at(size_t layer, size_t matrix)
{
    return ALIGN + (layer * EXPERT_MATRICES + matrix) * round_up(EXPERTS * MATRIX, ALIGN);
}

/* The last stack is not padded: the file does not end with a block. */
static void write_file(void)
{
    const int fd = mkstemp(path);
    uint32_t words[MATRIX / 4];
    check(fd >= 0, "%s", path);
    for (size_t l = 0; l < LAYERS; l++)
        for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++)
            for (size_t e = 0; e < EXPERTS; e++) {
                for (size_t i = 0; i < MATRIX / 4; i++)
                    words[i] = number_of(l, m, e);
                check(pwrite(fd, words, MATRIX, (off_t)(stack_at(l, m) + e * MATRIX)) == MATRIX,
                      "write");
            }
    close(fd);
}

static void open_model(struct model *model, const struct expert_store_options *options)
{
    struct err err;
    *model = (struct model){.path = path, .name = path};
    static const struct config_keys keys = {.moe = {.experts = EXPERTS, .used = USED},
                                            .expert_every = 1};
    model->config = (struct config){.layers = LAYERS, .keys = &keys};
    check(config_plan(&model->config, &err) == 0, "%s", err.text);
    model->weights.layer = mem_zalloc(LAYERS, sizeof *model->weights.layer);
    check(file_map(&model->file.map, path, &err) == 0, "%s", err.text);
    for (size_t l = 0; l < LAYERS; l++) {
        struct layer *w = &model->weights.layer[l];
        struct linear *const stacks[] = {&w->experts_gate, &w->experts_up, &w->experts_down};
        for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++)
            stacks[m]->weight = (struct mat){.dtype = DTYPE_F32,
                                             .layout = LAYOUT_PACKED,
                                             .out = m == EXPERT_DOWN ? IN : FFN,
                                             .in = m == EXPERT_DOWN ? FFN : IN,
                                             .in_padded = m == EXPERT_DOWN ? 64 : IN,
                                             .data = model->file.map.data + stack_at(l, m)};
        w->experts_down.weight.out = FFN; /* of the same size as the others */
        w->experts_down.weight.in = w->experts_down.weight.in_padded = IN;
    }
    check(expert_store_open(model, options, &cpu_memory, &err) == 0, "%s", err.text);
}

static void close_model(struct model *model)
{
    expert_store_close(model->store);
    file_unmap(&model->file.map);
    free(model->weights.layer);
    config_close(&model->config);
}

/* Runs a layer that needs the experts whose bits are set, and checks what it gets. */
static int run_layer(struct expert_store *store, size_t layer, unsigned bits, bool predict,
                     struct err *err)
{
    size_t expert[EXPERTS], rows[EXPERTS], ready[EXPERTS], n = 0, some;
    unsigned got = 0;
    for (size_t e = 0; e < EXPERTS; e++)
        if (bits & 1u << e) {
            rows[n] = 1;
            expert[n++] = e;
        }
    expert_store_begin(store, layer, expert, rows, n, 1);
    const size_t next = predict ? expert_store_predicts(store) : 0;
    if (next) {
        const uint32_t guess[] = {draw(EXPERTS), 3, draw(EXPERTS)};
        expert_store_predict(store, next, guess, ARRAY_LEN(guess));
    }
    for (;;) {
        if (expert_store_next(store, ready, &some, err) < 0)
            return -1;
        if (!some)
            break;
        for (size_t i = 0; i < some; i++) {
            const size_t e = expert[ready[i]];
            check(!(got & 1u << e), "expert %zu is returned twice", e);
            got |= 1u << e;
            for (enum expert_matrix m = 0; m < EXPERT_MATRICES; m++) {
                const uint32_t *words = cpu_at(expert_store_data(store, e, m));
                check(words[0] == number_of(layer, m, e) && words[MATRIX / 4 - 1] == words[0],
                      "layer %zu, matrix %d of expert %zu: %u", layer, (int)m, e, words[0]);
            }
        }
    }
    check(got == bits, "experts %x of %x", got, bits);
    return 0;
}

static size_t held(const struct expert_store *store)
{
    size_t n = 0;
    for (size_t l = 0; l < store->n_layers; l++)
        n += store->layer[l].held;
    return n;
}

static void test_random(size_t slots, bool predict)
{
    struct model model;
    struct err err;
    const size_t slot = EXPERT_MATRICES * (round_up(MATRIX, ALIGN) + ALIGN);
    open_model(&model, &(struct expert_store_options){.ram = slots * slot + draw((uint32_t)slot)});
    struct expert_store *store = model.store;
    check(store->n_slots == slots && store->stats.ram == slots * slot, "%zu slots", store->n_slots);
    for (int step = 0; step < 60; step++)
        for (size_t l = 0; l < LAYERS; l++) {
            const unsigned bits =
                step % 10 == 9 ? (1u << EXPERTS) - 1 : 1u << draw(EXPERTS) | 1u << draw(EXPERTS);
            store->rate = store->gap_ms = 1e6; /* as if there were time to read all that is predicted */
            check(run_layer(store, l, bits, predict, &err) == 0, "%s", err.text);
            check(held(store) + store->n_spare == slots, "%zu slots are held, %zu spare, of %zu",
                  held(store), store->n_spare, slots);
        }
    const struct expert_stats *s = expert_store_stats(store);
    check((s->hits > 0 || slots < 8) && s->hits + s->prefetch_hits < s->uses, "%zu uses, %zu hits",
          (size_t)s->uses, (size_t)s->hits);
    check(predict ? s->prefetched > s->prefetch_hits && s->read_bytes > s->needed_bytes
                  : s->prefetched == 0 && s->read_bytes == s->needed_bytes,
          "%zu prefetched, %zu bytes read", (size_t)s->prefetched, (size_t)s->read_bytes);
    close_model(&model);
}

/* Of 15 slots 4 are for experts on their way; each layer keeps the 3 or 4 that were used most. */
static void test_most_used(void)
{
    struct model model;
    struct err err;
    const size_t slot = EXPERT_MATRICES * (round_up(MATRIX, ALIGN) + ALIGN);
    open_model(&model, &(struct expert_store_options){.ram = 15 * slot, .no_prefetch = true});
    struct expert_store *store = model.store;
    for (int step = 0; step < 20; step++)
        check(run_layer(store, 1, 1u << (step % 3) | 1u << (3 + step % 6), true, &err) == 0, "%s",
              err.text);
    check(store->layer[1].keeps == 4, "%zu are kept", store->layer[1].keeps);
    const uint64_t hits = store->stats.hits;
    check(run_layer(store, 1, 7, false, &err) == 0 && store->stats.hits == hits + 3,
          "the three most used experts are not in memory");
    close_model(&model);
}

/* While predictions are wrong, experts are prefetched in one of 16 passes at most. */
static void test_wrong(void)
{
    struct model model;
    struct err err;
    const size_t slot = EXPERT_MATRICES * (round_up(MATRIX, ALIGN) + ALIGN);
    open_model(&model, &(struct expert_store_options){.ram = 6 * slot});
    struct expert_store *store = model.store;
    for (int step = 0; step < 1000; step++)
        for (size_t l = 0; l < 2; l++) {
            store->rate = store->gap_ms = 1e6;
            check(run_layer(store, l, 1u << (step % 2), true, &err) == 0, "%s", err.text);
        }
    check(store->stats.prefetched > 16 && store->stats.prefetched < 200, "%zu prefetched",
          (size_t)store->stats.prefetched);
    close_model(&model);
}

/* Wrong prefetches that are still being read take all slots that the next layer may have. */
static void test_no_slot(void)
{
    struct model model;
    struct err err;
    const size_t slot = EXPERT_MATRICES * (round_up(MATRIX, ALIGN) + ALIGN);
    open_model(&model, &(struct expert_store_options){.ram = 3 * slot});
    struct expert_store *store = model.store;
    for (int step = 0; step < 20; step++) {
        store->rate = store->gap_ms = 1e6;
        check(run_layer(store, 0, 1, true, &err) == 0, "%s", err.text);
        check(run_layer(store, 1, 1u << 1 | 1u << 2, false, &err) == 0, "%s", err.text);
    }
    check(store->stats.prefetched > 0 && store->stats.hits > 0, "%zu prefetched, %zu hits",
          (size_t)store->stats.prefetched, (size_t)store->stats.hits);
    close_model(&model);
}

static void test_truncated(void)
{
    struct model model;
    struct err err;
    const size_t slot = EXPERT_MATRICES * (round_up(MATRIX, ALIGN) + ALIGN);
    open_model(&model, &(struct expert_store_options){.ram = 4 * slot});
    check(truncate(path, (off_t)stack_at(2, EXPERT_DOWN) + 4 * MATRIX + 100) == 0, "truncate");
    check(run_layer(model.store, 2, 1u << 1 | 1u << 3, true, &err) == 0, "%s", err.text);
    for (int i = 0; i < 2; i++)
        check(run_layer(model.store, 2, 1u << 5 | 1u << 6, true, &err) < 0 &&
                  strstr(err.text, "the file was truncated while in use"),
              "%s", err.text);
    check(run_layer(model.store, 0, 1u << 5 | 1u << 6, true, &err) == 0, "%s", err.text);
    close_model(&model);
}

int main(void)
{
    state = check_state(check_seed(1));
    write_file();
    for (size_t slots = 2; slots < LAYERS * EXPERTS; slots += 1 + draw(5))
        for (int predict = 0; predict < 2; predict++)
            test_random(slots, predict);
    test_most_used();
    test_wrong();
    test_no_slot();
    test_truncated();
    unlink(path);
    return check_result();
}
