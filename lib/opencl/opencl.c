/* OpenCL as a backend: opening, and the table of operations. */
#include "opencl/opencl.h"

#include "base/mem.h"
#include "cpu/cpu.h"
#include "kv/kv.h"
#include "opencl/cl_pass.h"

/* ---- operations ---- */

static int append_entries(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                          struct row_range rows, struct err *err)
{
    (void)rows;
    (void)err;
    /* without op->append.q, which is for keys of 4 to 6 bits, of which the device has none */
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++)
        kv_append(pass->kv, q->seq, op->append.layer, cl_addr(cl_row(step, op->in, q->first)),
                  cl_addr(cl_row(step, op->append.v, q->first)), op->in.stride, NULL);
    return 0;
}

static cl_run *const run_of[64] = {
    [OP_FETCH] = cl_run_fetch,    [OP_FETCH_ADD] = cl_run_fetch, [OP_LINEAR] = cl_run_linear,
    [OP_NORM] = cl_run_rows,      [OP_ROPE] = cl_run_rows,       [OP_COPY] = cl_run_rows,
    [OP_PICK] = cl_run_rows,      [OP_ADD] = cl_run_rows,        [OP_SCALE] = cl_run_rows,
    [OP_CLIP] = cl_run_rows,      [OP_SOFTCAP] = cl_run_rows,    [OP_GATE] = cl_run_rows,
    [OP_APPEND] = append_entries, [OP_ATTEND] = cl_run_attend,   [OP_ROUTE] = cl_run_route,
    [OP_MIX] = cl_run_mix,
};

/* ---- what it lacks ---- */

static const char *lacking(const struct op *op)
{
    switch (op->kind) {
    case OP_RECUR:
    case OP_RECUR_END: return "layers with recurrent state";
    case OP_CHOOSE: return "sparse attention";
    case OP_HEADS: return "latent attention";
    case OP_BLEND:
    case OP_MATCH:
    case OP_SPARSIFY: return "AltUp and sparse activations";
    case OP_ROUND: return "activations of 8 bits";
    case OP_GATHER: return "tensor parallelism";
    case OP_KEEP_KV: return "pipeline parallelism";
    case OP_ROUTE: return op->route.kind > ROUTER_TOPK_SIGMOID ? "the router sparsemixer" : NULL;
    case OP_ATTEND: return op->attend.most ? "sparse attention" : NULL;
    case OP_EXPERTS:
    case OP_TAP: return NULL;
    default: return run_of[op->kind] ? NULL : "an operation of this model";
    }
}

static int refuse_cache(const struct kv_sizes *sizes, struct err *err)
{
    for (size_t m = 0; m < 2; m++) {
        const int type = cl_type_of(sizes->type[m]);
        if (type < 0)
            return err_set(
                err,
                "backend opencl has KV caches of the types f32, bf16, f16, q8 and q8_channel, "
                "not of %s",
                cache_type_name(sizes->type[m]));
        if (type >= CL_Q8 && sizes->head_dim % 4)
            return err_set(err,
                           "backend opencl has KV caches of type %s for heads of a multiple of 4 "
                           "elements, not of %zu",
                           cache_type_name(sizes->type[m]), sizes->head_dim);
    }
    return sizes->head_dim > CL_MOST_DIM
               ? err_set(err, "backend opencl has heads of at most %d elements, this model's have %zu",
                         CL_MOST_DIM, sizes->head_dim)
               : 0;
}

static int refuse_matrix(const struct op_matrix *m, struct err *err)
{
    return m->out ? cl_weights_refuse(m->dtype, err) : 0;
}

static int refuse_product(const struct op_product *p, struct err *err)
{
    return refuse_matrix(&p->w.matrix, err) < 0 ? -1 : refuse_matrix(&p->gate.matrix, err);
}

static int refuse_weights(const struct op *op, struct err *err)
{
    int rc = 0;
    if (op->kind == OP_FETCH || op->kind == OP_FETCH_ADD)
        rc = refuse_matrix(&op->fetch.table, err);
    for (size_t i = 0; op->kind == OP_LINEAR && i < op->linear.n && rc == 0; i++)
        rc = refuse_product(&op->linear.product[i], err);
    if (op->kind == OP_EXPERTS)
        rc = refuse_product(op->experts.up, err) < 0 ? -1 : refuse_product(op->experts.down, err);
    return rc;
}

static int refuse_op(const struct op *op, const struct kv_shape *shape, struct err *err)
{
    const char *lacks = lacking(op);
    if (lacks)
        return err_set(err, "backend opencl lacks %s", lacks);
    if (op->kind == OP_APPEND || op->kind == OP_ATTEND) {
        const size_t layer = op->kind == OP_APPEND ? op->append.layer : op->attend.layer;
        return refuse_cache(kv_sizes_of(shape, layer), err);
    }
    return refuse_weights(op, err);
}

static int check_options(const struct backend_options *o, struct err *err)
{
    const struct kv_setup *setup = kv_setup(o->kv);
    struct err why;
    for (size_t i = 0; i < o->n_ops; i++)
        if (refuse_op(&o->op[i], &setup->shape, &why) < 0)
            return err_set(err, "%.400s: use --backend cpu, or --fallback cpu", why.text);
    const char *lacks = o->max_rank                   ? "LoRA adapters"
                        : kv_has_shared_scales(setup) ? "shared scales of a KV cache"
                                                      : NULL;
    return lacks ? err_set(err, "backend opencl lacks %s: use --backend cpu", lacks) : 0;
}

/* ---- opening ---- */

/* The opaque pass of the interface is one of this backend. */
static struct cl_pass *own_pass(struct backend_pass *pass) { return (struct cl_pass *)pass; }

static void close_pass(struct backend_pass *opaque)
{
    struct cl_pass *pass = own_pass(opaque);
    if (!pass)
        return;
    cl_attend_close(pass);
    cl_free(pass->gates);
    cl_free(pass->scores);
    free(pass);
}

static int open_matrix(struct cl_pass *pass, const struct op_matrix *m, struct err *err)
{
    return m->out ? cl_weights_open(pass, m->dtype, err) : 0;
}

static int open_product(struct cl_pass *pass, const struct op_product *p, struct err *err)
{
    if (p->gate.matrix.out)
        pass->gate_width = size_max(pass->gate_width, p->gate.matrix.out);
    if (p->w.skip)
        return err_set(err, "backend opencl lacks tensor parallelism: use --backend cpu");
    return open_matrix(pass, &p->w.matrix, err) < 0 ? -1 : open_matrix(pass, &p->gate.matrix, err);
}

/* Compiles the kernels that the operations need. */
static int open_weights(struct cl_pass *pass, const struct backend_options *o, struct err *err)
{
    for (const struct op *op = o->op; op < o->op + o->n_ops; op++) {
        int rc = 0;
        if (op->kind == OP_FETCH || op->kind == OP_FETCH_ADD)
            rc = cl_table_open(pass, op->fetch.table.dtype, err);
        for (size_t i = 0; op->kind == OP_LINEAR && i < op->linear.n && rc == 0; i++)
            rc = open_product(pass, &op->linear.product[i], err);
        if (op->kind == OP_EXPERTS)
            rc = open_product(pass, op->experts.up, err) < 0 ||
                         open_product(pass, op->experts.down, err) < 0
                     ? -1
                     : 0;
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int open_kernels(struct cl_pass *pass, struct err *err)
{
    const struct {
        struct cl_kernel **kernel;
        const char *file, *name;
    } list[] = {
        {&pass->norm, "rows.cl", "norm_rows"},   {&pass->rope, "rows.cl", "rope_rows"},
        {&pass->copy, "rows.cl", "copy_rows"},   {&pass->add, "rows.cl", "add_rows"},
        {&pass->map, "rows.cl", "map_rows"},     {&pass->gate, "rows.cl", "gate_rows"},
        {&pass->mix, "rows.cl", "mix_rows"},     {&pass->shared, "rows.cl", "mix_shared"},
        {&pass->route, "rows.cl", "route_rows"},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if ((list[i].kernel != &pass->route || pass->scores) &&
            cl_kernel_open(list[i].kernel, list[i].file, list[i].name, "", err) < 0)
            return -1;
    return 0;
}

static int open_buffers(struct cl_pass *pass, const struct backend_options *o, struct err *err)
{
    const size_t gates = size_max(o->max_rows, o->max_pairs) * pass->gate_width * sizeof(float),
                 scores = o->max_rows * 3 * o->max_experts * sizeof(float);
    if ((gates && !(pass->gates = cl_alloc(gates))) || (scores && !(pass->scores = cl_alloc(scores))))
        return err_no_memory(err, "%zu bytes of activations on the OpenCL device %s", gates + scores,
                             cl_limits()->name);
    return 0;
}

static int open_pass(struct backend_pass **out, const struct backend_options *o, struct err *err)
{
    *out = NULL;
    if (check_options(o, err) < 0)
        return -1;
    struct cl_pass *pass = mem_zalloc(1, sizeof *pass);
    if (!pass)
        return err_no_memory(err, "forward passes");
    pass->kv = o->kv;
    pass->max_rows = o->max_rows;
    if (open_weights(pass, o, err) == 0 && open_buffers(pass, o, err) == 0 &&
        open_kernels(pass, err) == 0 && cl_attend_open(pass, o, err) == 0 && cl_failed(err) == 0) {
        *out = (struct backend_pass *)pass;
        return 0;
    }
    close_pass((struct backend_pass *)pass);
    return -1;
}

/* PoCL keeps programs itself, and compiles each kernel once more when it is asked for a binary. */
static int start(const char *cache, struct err *err)
{
    if (cl_device_open(err) < 0)
        return -1;
    if (cache && !cl_limits()->is_cpu)
        cl_device_cache(cache);
    return cl_memory_open(err);
}

static void describe(char *text, size_t size)
{
    snprintf(text, size, "%.80s, driver %.32s", cl_limits()->name, cl_limits()->driver);
}

/* ---- passes ---- */

static int begin_pass(struct backend_pass *opaque, const struct op_step *step, struct err *err)
{
    struct cl_pass *pass = own_pass(opaque);
    (void)step;
    pass->token = pass->position = pass->temperature = (struct cl_staged){0};
    for (size_t i = 0; i < 2; i++)
        pass->cosine[i] = pass->sine[i] = (struct cl_staged){0};
    return cl_failed(err);
}

static int run_op(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                  struct row_range rows, struct err *err)
{
    if (!rows.n)
        return 0;
    cl_enter();
    const int rc = run_of[op->kind](own_pass(pass), op, step, rows, err);
    cl_leave();
    return rc < 0 ? -1 : cl_failed(err);
}

static void run_groups(struct backend_pass *pass, const struct op_groups *groups,
                       const struct op_step *step)
{
    cl_enter();
    cl_run_groups(own_pass(pass), groups, step);
    cl_leave();
}

static double convert_ms(const struct backend_pass *pass)
{
    (void)pass;
    return 0;
}

const struct backend opencl_backend = {
    .name = "opencl",
    .memory = &cl_memory,
    .only_f32 = true,
    .refuse = refuse_op,
    .start = start,
    .describe = describe,
    .peak_bytes = cl_most_bytes,
    .open = open_pass,
    .close = close_pass,
    .begin = begin_pass,
    .run = run_op,
    .run_groups = run_groups,
    .convert_ms = convert_ms,
};
