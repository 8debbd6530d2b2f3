/* Inside lib/opencl: the state of forward passes, and the operations. Each starts kernels and returns. */
#pragma once

#include "backend/backend.h"
#include "opencl/cl_memory.h"

/* The kernels for weights of one type. */
struct cl_weights {
    struct cl_kernel *one, *few, *block, *fetch;
};

/* The kernels of attention for one type of K and one of V. */
struct cl_attend_kernels {
    struct cl_kernel *block, *merge;
};

/* A copy on the device of an array of the step, until room begins anew or the pass ends. */
struct cl_staged {
    cl_address at;
    size_t turn; /* of cl_stage_room(); 0: not copied */
};

struct cl_pass {
    struct kv *kv;
    struct attn_shape *shape; /* [n_shapes], with slopes on the device */
    cl_address *slopes;       /* [n_shapes] */
    size_t n_shapes, max_rows;
    struct cl_weights weights[DTYPE_COUNT];
    struct cl_kernel *norm, *rope, *copy, *add, *map, *gate, *mix, *shared, *route;
    struct cl_attend_kernels attend[CL_Q8_TURN + 1][CL_Q8_TURN + 1]; /* by types of K and V */
    cl_address gates, scores, partial; /* of gates, routing and attention */
    size_t gate_width, partial_bytes;
    struct cl_staged token, position, cosine[2], sine[2], temperature;
    struct cl_mask *mask; /* of the rows of an operation, for each KV head */
    struct cl_span *span;
    struct cl_rows *tile; /* of attention */
    size_t masks_cap, spans_cap, tiles_cap;
};

/* Row `row` of an operand. */
static inline cl_address cl_row(const struct op_step *step, struct op_arg o, size_t row)
{
    return step->buffer[o.buffer].device_address + (row * o.stride + o.column) * sizeof(float);
}

enum { CL_MOST_DIM = 512 }; /* most elements of a head */

/* Fails for types of weights that there are no kernels for. */
int cl_weights_refuse(enum dtype type, struct err *err) MUST_USE;

/* Compiles the kernels of products with weights of a type, and that of tables. */
int cl_weights_open(struct cl_pass *pass, enum dtype type, struct err *err) MUST_USE;
int cl_table_open(struct cl_pass *pass, enum dtype type, struct err *err) MUST_USE;

typedef int cl_run(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                   struct row_range rows, struct err *err);
cl_run cl_run_rows, cl_run_linear, cl_run_fetch, cl_run_attend, cl_run_route, cl_run_mix;
void cl_run_groups(struct cl_pass *pass, const struct op_groups *groups, const struct op_step *step);

int cl_attend_open(struct cl_pass *pass, const struct backend_options *options,
                   struct err *err) MUST_USE;
void cl_attend_close(struct cl_pass *pass);
