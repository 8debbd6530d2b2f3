/* Operations on single rows. */
#include "opencl/cl_pass.h"

static size_t lanes(size_t n) { return div_up(n, CL_LANES); }

/* The copy of `bytes` bytes of an array of the step, which is made at most once in a pass. */
static cl_address cl_staged(struct cl_staged *staged, const void *from, size_t bytes)
{
    const size_t turn = cl_stage_room(round_up(bytes, CL_STAGE_ALIGN));
    if (staged->turn != turn || !staged->at)
        *staged = (struct cl_staged){cl_stage(from, bytes), turn};
    return staged->at;
}

/* Starts a kernel over columns and rows. */
static void launch_rows(struct cl_kernel *kernel, const struct cl_row_args *args, size_t columns,
                        size_t rows)
{
    cl_launch(kernel, args, sizeof *args, (size_t[]){lanes(columns), rows, 1},
              (size_t[]){CL_LANES, 1, 1});
}

/* The operands of an operation over rows from rows.first on. */
static struct cl_row_args args_of(const struct op *op, const struct op_step *step,
                                  struct row_range rows)
{
    return (struct cl_row_args){.in = cl_row(step, op->in, rows.first),
                                .out = cl_row(step, op->out, rows.first),
                                .in_stride = (cl_number)op->in.stride,
                                .out_stride = (cl_number)op->out.stride,
                                .width = (cl_number)op->width,
                                .rows = (cl_number)rows.n};
}

static void norm(struct cl_pass *pass, const struct op *op, struct cl_row_args *a)
{
    const struct op_norm *o = &op->norm;
    a->a = o->gain.device_address;
    a->b = o->bias.device_address;
    a->first = (cl_number)o->first;
    a->step = (cl_number)o->gains;
    a->mode = o->kind == NORM_RMS;
    a->eps = o->eps;
    cl_launch(pass->norm, a, sizeof *a, (size_t[]){1, o->groups, a->rows}, (size_t[]){CL_LANES, 1, 1});
}

static void rope(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                 struct row_range rows)
{
    const struct op_rope *o = &op->rope;
    const size_t bytes = step->rows * o->pairs * sizeof(float),
                 from = rows.first * o->pairs * sizeof(float);
    cl_stage_room(2 * round_up(bytes, CL_STAGE_ALIGN));
    const cl_address cosine = cl_staged(&pass->cosine[o->table], step->cosine[o->table], bytes),
                     sine = cl_staged(&pass->sine[o->table], step->sine[o->table], bytes);
    for (size_t i = 0; i < o->n; i++) {
        const struct cl_row_args a = {.out = cl_row(step, o->part[i].x, rows.first),
                                      .out_stride = (cl_number)o->part[i].x.stride,
                                      .a = cosine + from,
                                      .b = sine + from,
                                      .n = (cl_number)o->part[i].heads,
                                      .step = (cl_number)o->part[i].step,
                                      .width = (cl_number)o->pairs};
        launch_rows(pass->rope, &a, a.n * o->pairs, rows.n);
    }
}

/* Of the rows step->picked[rows] of `in`. */
static void pick(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                 struct row_range rows, struct cl_row_args *a)
{
    enum { SOME = 256 };
    for (size_t at = 0, n; at < rows.n; at += n) {
        uint32_t from[SOME];
        n = size_min(SOME, rows.n - at);
        for (size_t i = 0; i < n; i++)
            from[i] = (uint32_t)step->picked[rows.first + at + i];
        cl_stage_room(round_up(n * sizeof *from, CL_STAGE_ALIGN));
        a->in = cl_row(step, op->in, 0);
        a->out = cl_row(step, op->out, rows.first + at);
        a->index = cl_stage(from, n * sizeof *from);
        a->n = 1;
        launch_rows(pass->copy, a, op->width, n);
    }
}

/* x * factor, clipping and soft-capping. */
static void map(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                struct row_range rows, struct cl_row_args *a)
{
    const struct op_scale *o = &op->scale;
    a->mode = op->kind == OP_CLIP ? 1 : op->kind == OP_SOFTCAP ? 2 : 0;
    a->factor = op->limit;
    if (op->kind == OP_SCALE) {
        a->a = o->by.device_address;
        a->factor = o->factor;
        a->step = o->columns;
        if (!a->a && o->temperature)
            a->b = cl_staged(&pass->temperature, step->temperature, step->rows * sizeof(float)) +
                   rows.first * sizeof(float);
        else if (!a->a && o->factor == 1)
            return;
    }
    launch_rows(pass->map, a, op->width, rows.n);
}

int cl_run_rows(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                struct row_range rows, struct err *err)
{
    struct cl_row_args a = op->kind == OP_ROPE ? (struct cl_row_args){0} : args_of(op, step, rows);
    (void)err;
    switch (op->kind) {
    case OP_NORM: norm(pass, op, &a); break;
    case OP_ROPE: rope(pass, op, step, rows); break;
    case OP_PICK: pick(pass, op, step, rows, &a); break;
    case OP_ADD: launch_rows(pass->add, &a, op->width, rows.n); break;
    case OP_GATE:
        a.a = cl_row(step, op->gate.gate, rows.first);
        a.other_stride = (cl_number)op->gate.gate.stride;
        a.mode = op->gate.act;
        a.step = (cl_number)op->gate.group;
        launch_rows(pass->gate, &a, op->width, rows.n);
        break;
    case OP_COPY:
        a.n = (cl_number)op->copy.heads;
        a.step = (cl_number)op->copy.out_step;
        a.in_step = (cl_number)op->copy.in_step;
        launch_rows(pass->copy, &a, a.n * op->width, rows.n);
        break;
    default: map(pass, op, step, rows, &a); break;
    }
    return 0;
}
