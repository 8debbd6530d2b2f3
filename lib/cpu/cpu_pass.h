/* Inside lib/cpu: the state of forward passes, and the operations. Each computes a range of rows, on all threads. */
#pragma once

#include "attn/attn.h"
#include "backend/backend.h"
#include "cpu/cpu_memory.h"

/* Products with LoRA adapters. */
struct cpu_lora {
    float *reduced;   /* [max_rows][max_rank]: A x */
    float *up, *gate; /* [max_rows][max_adapted]: sums before activation */
    /* products of different adapters at once, [sequences of the cache] */
    struct lora_task {
        struct mat a, b;
        float factor;
        struct row_range rows;
    } * task;
    struct product *product;
    size_t *rows;
    uint32_t *x_row; /* [max_rows] */
};

/* Layers with recurrent state. */
struct cpu_recur {
    size_t width;            /* floats of struct state_inputs */
    size_t padded;           /* values of all heads, each head padded to whole slabs */
    float *q_gain, *k_gain;  /* [key_dim] */
    size_t *row_query;       /* [max_rows]: index of the row's query */
    struct state_view *view; /* [sequences]: of the pass's queries */
    /* states of the tokens of a tree, one slab of each: [threads][nodes][key_dim][STATE_SLAB] */
    float *nodes;
    size_t n_nodes;
};

/* Positions that indexers choose. */
struct cpu_choose {
    size_t entries, heads, dim; /* limits of these; dim is padded for kernels */
    float *score;               /* [CHOOSE_ROWS][entries] */
    float *q;                   /* [CHOOSE_ROWS][heads][dim] */
    float *scratch;             /* [threads][scratch_floats] */
    size_t scratch_floats;
};

struct backend_pass {
    const struct kernels *kernels;
    struct kv *kv;
    struct gemm *gemm, *expert_gemm;
    struct attn *attn;
    struct cpu_lora lora;
    struct cpu_recur recur;
    struct cpu_choose choose;
    struct product *product; /* [max_experts] */
    struct mat *mat;         /* [2][max_experts] */
};

/* Row `row` of an operand. */
static inline float *cpu_row(const struct op_step *step, struct op_arg o, size_t row)
{
    return (float *)cpu_at(step->buffer[o.buffer]) + row * o.stride + o.column;
}

/* Row `row` of an operand of positions. */
static inline uint32_t *cpu_positions(const struct op_step *step, struct op_arg o, size_t row)
{
    return (uint32_t *)cpu_at(step->buffer[o.buffer]) + row * o.stride + o.column;
}

/* Weights for kernels; NULL for none. */
static inline struct mat cpu_mat(const struct op_matrix *m)
{
    return (struct mat){m->dtype, m->layout, m->out, m->in, m->in_padded, cpu_at(m->data)};
}

static inline const float *cpu_floats(struct device_addr vector, size_t first)
{
    return addr_is_null(vector) ? NULL : (const float *)cpu_at(vector) + first;
}

typedef int cpu_run(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                    struct row_range rows, struct err *err);

cpu_run cpu_rows, cpu_parallel_rows;
cpu_run cpu_linear, cpu_heads;
cpu_run cpu_route, cpu_mix;
cpu_run cpu_recur, cpu_recur_end;
cpu_run cpu_choose;
void cpu_run_groups(struct backend_pass *pass, const struct op_groups *groups,
                    const struct op_step *step);

int cpu_lora_open(struct backend_pass *pass, const struct backend_options *options,
                  struct err *err) MUST_USE;
void cpu_lora_close(struct cpu_lora *lora);
int cpu_recur_open(struct backend_pass *pass, size_t max_rows, struct err *err) MUST_USE;
void cpu_recur_close(struct cpu_recur *recur);
int cpu_choose_open(struct cpu_choose *choose, const struct backend_options *options,
                    struct err *err) MUST_USE;
void cpu_choose_close(struct cpu_choose *choose);

void cpu_replay(const struct state_replay *replay, const void *own);
