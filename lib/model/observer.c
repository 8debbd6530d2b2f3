/* Reading the inputs of products for an observer. */
#include "model/observer.h"

#include "base/mem.h"

void observer_release(struct observer *o)
{
    free(o->x);
    *o = (struct observer){0};
}

const float *observer_read(struct observer *o, const struct op_step *step, struct op_arg x,
                           size_t width, struct row_range rows, struct err *err)
{
    const size_t n = rows.n ? (rows.n - 1) * x.stride + width : 0;
    if (n > o->cap) {
        free(o->x);
        o->x = mem_alloc(n, sizeof *o->x);
        o->cap = o->x ? n : 0;
    }
    if (n > o->cap) {
        err_no_memory(err, "the inputs of %zu tokens", rows.n);
        return NULL;
    }
    o->memory->read(o->x,
                    addr_add(step->buffer[x.buffer], (rows.first * x.stride + x.column) * sizeof *o->x),
                    n * sizeof *o->x);
    return o->x;
}

void observer_tell(const struct observer *o, const struct op_product *product, size_t expert,
                   const float *x, size_t x_stride, size_t rows)
{
    o->observe(o->arg, product->w.of, expert, x, x_stride, rows);
    if (product_has_gate(product))
        o->observe(o->arg, product->gate.of, expert, x, x_stride, rows);
}

int observe_op(struct observer *o, const struct op *op, const struct op_step *step,
               struct row_range rows, struct err *err)
{
    const bool heads = op->kind == OP_HEADS;
    const size_t n = heads ? 1 : op->kind == OP_LINEAR ? op->linear.n : 0;
    struct op_product of_heads = {0};
    if (!o->observe || !n)
        return 0;
    if (heads)
        of_heads.w = op->heads.w;
    const struct op_product *product = heads ? &of_heads : op->linear.product;
    const float *x = observer_read(o, step, op->in, product->w.matrix.in, rows, err);
    for (size_t i = 0; x && i < n; i++)
        observer_tell(o, &product[i], 0, x, op->in.stride, rows.n);
    return x ? 0 : -1;
}
