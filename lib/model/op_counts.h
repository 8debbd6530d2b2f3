/* What forward passes have to do, from the list of their operations: bytes of weights and KV entries, multiply-adds. */
#pragma once

#include "kernel/gemm.h"
#include "model/model.h"
#include "model/ops.h"

/* Attention of layers that see the same positions: sums over these layers, for one token and one entry. */
struct attend_counts {
    size_t window, chunk; /* as in struct op_attend */
    size_t entry_bytes, macs;
};

/* Of this rank. Sums over layers; KV entries as a cache of the given type stores them. */
struct op_counts {
    /* Weights that a decode step of one token reads: matrices with their scales, of experts as many as a token uses,
     * norms, biases and other vectors, the head. Without padding, and without tables of which it reads one row. */
    size_t weight_bytes;
    size_t head_bytes;                  /* of them, those of the head */
    size_t expert_bytes;                /* one expert of each layer that has experts */
    size_t expert_layers, experts_used; /* layers with experts, and experts of each that a token uses */
    /* products of a token, by the class of their weights; those of f32 activations count as f32 */
    size_t row_macs[WEIGHTS_CLASSES];
    size_t output_macs[WEIGHTS_CLASSES]; /* of them, those only for tokens whose output is needed */
    size_t head_macs[WEIGHTS_CLASSES];   /* of a token whose logits are needed */
    size_t append_bytes;                 /* KV entries of a token */
    size_t state_bytes;                  /* recurrent state of a sequence */
    size_t n_attend;
    struct attend_counts attend[4]; /* more kinds than that are added to the last one */
};

/* Counts a list of a model's operations, with a cache of these shapes. */
struct op_counts op_list_counts(const struct op_list *list, const struct model *model,
                                const struct kv_shape *shape, const struct state_shape *state);

/* ---- passes ---- */

/* Phases of a forward pass, and what is timed across them. */
struct pass_times {
    double ms[FORWARD_PHASES];
    double convert_ms; /* of them, converting activations for products */
    double wait_ms;    /* of them, waiting at the end of parallel loops for the other threads */
    double lap_ms;     /* clock_ms() at the end of the last phase */
};

/* The least that forward passes have to do, and the time they took. Every pass reads weights once, those of experts if
 * a token has chosen them, and the KV entries of a sequence once per layer, whatever caches and policies add.
 * Streaming heads count as others. */
struct pass_work {
    size_t passes;
    size_t weight_bytes;
    size_t kv_read_bytes, kv_write_bytes; /* KV entries and recurrent states */
    size_t macs[WEIGHTS_CLASSES], attention_macs;
    struct pass_times times;
};

/* Adds a pass, in which `expert_runs` experts of all layers ran. */
void work_add_pass(struct pass_work *work, const struct op_counts *counts, size_t expert_runs);

/* Adds a sequence's `rows` tokens of a pass, the first of them at `position`, in a cache that keeps the last `kept`
 * positions; 0: all. */
void work_add_rows(struct pass_work *work, const struct op_counts *counts, size_t position, size_t rows,
                   size_t kept);

/* Subtracts the last layer's outputs of `rows` tokens, which a pass leaves out. */
void work_skip_outputs(struct pass_work *work, const struct op_counts *counts, size_t rows);

/* Adds the logits of `rows` tokens. */
void work_add_logits(struct pass_work *work, const struct op_counts *counts, size_t rows);

static inline size_t work_bytes(const struct pass_work *work)
{
    return work->weight_bytes + work->kv_read_bytes + work->kv_write_bytes;
}
