/* Pipeline parallelism: each rank has some layers. Activations of a forward pass go from each rank
 * to the next, logits from the last rank to rank 0.
 *
 * A layer may attend to the keys and values of an earlier layer on another rank (kv_shared). These are sent along,
 * and every rank that needs them has them in its own cache.
 *
 * Sends do not block, so a rank can start the next forward pass at once. Rank 0 can request logits
 * of one and receive them after starting others. */
#pragma once

#include "model/model.h"

struct pipeline {
    struct ranks *ranks; /* NULL: not pipeline parallel */
    size_t first_layer;  /* first layer of this rank */
    size_t n_layers;
    size_t n_requests; /* logits requests so far; the same on all ranks */
    double wait_ms;    /* spent waiting for other ranks */
};

struct pipeline pipeline_open(const struct model *model);

/* True on the rank with the first layer, and with the last one; a single process has both. */
bool pipeline_is_first(const struct pipeline *pipeline);
bool pipeline_is_last(const struct pipeline *pipeline);

/* True if the next rank, or one behind it, attends to the keys and values of an earlier layer; true if this rank
 * receives them. */
bool pipeline_sends_kv(const struct pipeline *pipeline, const struct config *config, size_t layer);
bool pipeline_receives_kv(const struct pipeline *pipeline, const struct config *config, size_t layer);

/* Receives a forward pass's activations x from the previous rank, or sends them to the next; no-op
 * if there is no such rank. */
int pipeline_receive(struct pipeline *pipeline, float *x, size_t floats, struct err *err) MUST_USE;
int pipeline_send(const struct pipeline *pipeline, const float *x, size_t floats,
                  struct err *err) MUST_USE;

/* Logits of request `number`: the last rank sends them, rank 0 receives them. */
int pipeline_send_logits(const struct pipeline *pipeline, size_t number, const float *logits,
                         size_t floats, struct err *err) MUST_USE;
int pipeline_receive_logits(struct pipeline *pipeline, size_t number, float *logits, size_t floats,
                            struct err *err) MUST_USE;
