/* Experts that do not fit in memory: their weights are read from the model file when a layer needs
 * them, and those that most tokens choose stay in memory.
 *
 * Memory is divided into slots of the size of the largest expert (gate, up and down matrix). Each layer
 * keeps an equal number of its experts: those that most tokens have chosen, where counts are halved
 * after every 256 tokens, and of equal counts the last used. The other slots are for experts on their
 * way: those of the layer that runs, and while the file would be idle those that the next layer will
 * probably need (prefetch). Prefetching pauses while fewer than half of its predictions are right.
 *
 * What a store returns does not depend on any of this; only one forward pass at a time may use it. */
#pragma once

#include "model/model.h"

struct expert_store;

enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_MATRICES };

struct expert_store_options {
    size_t ram;       /* bytes for the weights of experts */
    bool no_prefetch; /* read experts only when they are needed */
};

struct expert_stats {
    size_t ram;             /* bytes of the slots, all that the store ever uses */
    size_t total;           /* bytes of all experts in the file */
    uint64_t uses;          /* experts that layers needed, over all layers and forward passes */
    uint64_t hits;          /* of these, in memory already and not by a prefetch */
    uint64_t prefetched;    /* experts that were prefetched */
    uint64_t prefetch_hits; /* of these, needed by the layer that they were prefetched for */
    uint64_t read_bytes;    /* read from the file */
    uint64_t needed_bytes;  /* of these, of experts that were not in memory when a layer needed them */
    double wait_ms;         /* forward passes waited for reads */
};

/* Parses the value of --experts, "ram=8G" or "ram=8G,prefetch=off". */
int expert_store_parse(struct expert_store_options *options, const char *text,
                       struct err *err) MUST_USE;

/* Opens a store for the layers of this rank, in the memory of the backend of all sessions, and sets model->store, which model_close() closes; no store
 * is made if the experts fit in options->ram: they are then used in the mapped file. Errors: a model
 * without experts or that is not a mapped file, memory for fewer than two experts, tensor parallelism. */
int expert_store_open(struct model *model, const struct expert_store_options *options,
                      const struct backend_memory *memory, struct err *err) MUST_USE;
void expert_store_close(struct expert_store *store); /* NULL is accepted */

const struct expert_stats *expert_store_stats(const struct expert_store *store);

/* Starts a layer that needs the weights of expert[0..n), each for rows[i] tokens of `tokens`. */
void expert_store_begin(struct expert_store *store, size_t layer, const size_t *expert,
                        const size_t *rows, size_t n, size_t tokens);

/* Waits until some of these experts are in memory and sets ready[0..*n) to their indices; each is
 * returned once, and its weights are valid until the next call. *n = 0: all were returned. */
int expert_store_next(struct expert_store *store, size_t *ready, size_t *n, struct err *err) MUST_USE;

/* The weights of an expert that expert_store_next() has returned. */
struct device_addr expert_store_data(const struct expert_store *store, size_t expert,
                                     enum expert_matrix matrix);

/* The next layer with experts, if predictions of its experts are wanted now; else 0. */
size_t expert_store_predicts(struct expert_store *store);

/* Tells the experts that layer `layer` will probably need, the most probable ones first. Between
 * expert_store_begin() and the first expert_store_next(). */
void expert_store_predict(struct expert_store *store, size_t layer, const uint32_t *expert, size_t n);
