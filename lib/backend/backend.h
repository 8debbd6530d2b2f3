/* A backend: memory that tensors are in, and operations on them. The CPU is one (cpu/cpu.h). */
#pragma once

#include "backend/op.h"

struct attn_shape;
struct kv;
struct kv_shape;
struct retrieval_score;
struct state_replay;

/* What a list of operations needs, by which open() allocates buffers of its own. */
struct backend_options {
    struct kv *kv; /* borrowed */
    size_t max_rows;
    size_t max_inputs; /* of products of rows */
    /* products of experts: rows of all of them, inputs, and products at once; 0: none */
    size_t max_pairs, max_expert_inputs, max_experts;
    size_t max_rank,
        max_adapted; /* of LoRA adapters; the widest activated product that they change; 0: none */
    const struct attn_shape *shape; /* [n_shapes]: the different shapes of attention, op_attend.shape */
    size_t n_shapes;
    const void *own;     /* options of the backend: of the CPU, struct cpu_options */
    const struct op *op; /* [n_ops]: those that will run */
    size_t n_ops;
};

/* State of forward passes that run one after the other. */
struct backend_pass;

struct backend {
    const char *name;
    const struct backend_memory *memory;
    /* the memory is that of the process: outputs can be written to the caller's, without a copy */
    bool in_process;

    bool only_f32; /* products are of f32 activations */

    /* Makes the device ready, before any other function; `cache`: a folder for what it keeps, or NULL. NULL: it is. */
    int (*start)(const char *cache, struct err *err);

    /* Writes the name of the device and its driver, which what was measured on it is kept by. NULL: it is the CPU. */
    void (*describe)(char *text, size_t size);

    /* The most bytes of its memory that were taken at once; `again`: from now on. NULL: it has none of its own. */
    uint64_t (*peak_bytes)(bool again);

    /* Fails if it cannot run an operation over a cache of this shape, and says what it lacks. NULL: it runs all. */
    int (*refuse)(const struct op *op, const struct kv_shape *shape, struct err *err);

    int (*open)(struct backend_pass **pass, const struct backend_options *options,
                struct err *err) MUST_USE;
    void (*close)(struct backend_pass *pass); /* NULL is accepted */

    /* Begins a pass, after kv_ensure() for all its sequences. */
    int (*begin)(struct backend_pass *pass, const struct op_step *step, struct err *err) MUST_USE;

    /* Runs an operation over a range of rows; whole operations (op_is_whole()) over all. */
    int (*run)(struct backend_pass *pass, const struct op *op, const struct op_step *step,
               struct row_range rows, struct err *err) MUST_USE;
    void (*run_groups)(struct backend_pass *pass, const struct op_groups *groups,
                       const struct op_step *step);

    /* Time that passes have spent converting activations for products so far. */
    double (*convert_ms)(const struct backend_pass *pass);

    /* Recurrent state after some of the tokens of a pass, from their recorded inputs (kv/state/state.h); `own` as in
     * struct backend_options. */
    void (*replay)(const struct state_replay *replay, const void *own);

    /* Adds up retrieval scores of a model whose layers have the same number of KV heads; NULL: no more. */
    void (*set_retrieval)(struct backend_pass *pass, struct retrieval_score *score);
};

/* The backends of this library, ended by NULL; the first is the default. */
extern const struct backend *const backends[];

/* The backend of a name, made ready; the first for NULL. NULL and an error: there is none, or it cannot run. */
const struct backend *backend_find(const char *name, const char *cache, struct err *err) MUST_USE;
