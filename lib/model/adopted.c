/* Giving weights to a backend, and back. */
#include "model/adopted.h"

#include "base/mem.h"
#include "quant/pack.h"

int adopt_weights(struct adopted *o, const void *weights, size_t bytes, struct device_addr *at,
                  struct err *err)
{
    *at = (struct device_addr){0};
    if (!weights)
        return 0;
    if (!o->memory) {
        *at = addr_add(*at, 1);
        return 0;
    }
    if (mem_grow(&o->block, &o->cap, o->n, sizeof *o->block, err) < 0)
        return -1;
    *at = o->memory->adopt(weights, bytes);
    if (addr_is_null(*at))
        return err_no_memory(err, "%zu bytes of weights on the backend %s", bytes, o->memory->name);
    o->block[o->n++] = (struct adopted_block){o->memory, *at, bytes};
    return 0;
}

int adopt_matrix(struct adopted *o, const struct mat *mat, struct op_matrix *to, struct err *err)
{
    *to = (struct op_matrix){0};
    if (!mat->data)
        return 0;
    *to = (struct op_matrix){.dtype = mat->dtype,
                             .layout = mat->layout,
                             .out = mat->out,
                             .in = mat->in,
                             .in_padded = mat->in_padded};
    return adopt_weights(o, mat->data, layout_bytes(mat->layout, mat->dtype, mat->out, mat->in),
                         &to->data, err);
}

void adopted_release(struct adopted *o)
{
    for (size_t i = 0; i < o->n; i++)
        o->block[i].memory->disown(o->block[i].at, o->block[i].bytes);
    free(o->block);
    *o = (struct adopted){0};
}
