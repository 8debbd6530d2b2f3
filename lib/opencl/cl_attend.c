/* Attention: lists masks of query rows and spans of KV entries for the kernels. */
#include "attn/query_mask.h"
#include "base/mem.h"
#include "kv/kv.h"
#include "opencl/cl_pass.h"

enum { PARTIAL_BYTES = 32 << 20 }; /* partial results of the rows of one kernel */

static size_t value_dim(const struct attn_shape *shape)
{
    return shape->v_dim ? shape->v_dim : shape->head_dim;
}

/* ---- opening ---- */

/* Elements of a head that kernels have local memory for. */
static size_t most_dim(const struct cl_pass *pass)
{
    size_t most = CL_ATTEND_BLOCK;
    for (size_t i = 0; i < pass->n_shapes; i++)
        if (size_max(pass->shape[i].head_dim, value_dim(&pass->shape[i])) > most)
            most = CL_MOST_DIM;
    return most;
}

static int open_types(struct cl_pass *pass, const struct kv_sizes *sizes, struct err *err)
{
    const int k = cl_type_of(sizes->type[KV_K]), v = cl_type_of(sizes->type[KV_V]);
    struct cl_attend_kernels *kernels = &pass->attend[k][v];
    char options[128];
    snprintf(options, sizeof options, "-DK_TYPE=%d -DV_TYPE=%d -DMOST_DIM=%zu", k, v, most_dim(pass));
    return cl_kernel_open(&kernels->block, "attend.cl", "attend_block", options, err) < 0 ||
                   cl_kernel_open(&kernels->merge, "attend.cl", "merge_blocks", options, err) < 0
               ? -1
               : 0;
}

/* Copies the shapes, and their slopes to the device. */
static int open_shapes(struct cl_pass *pass, const struct backend_options *o, struct err *err)
{
    pass->shape = mem_alloc(size_max(o->n_shapes, 1), sizeof *pass->shape);
    pass->slopes = mem_zalloc(size_max(o->n_shapes, 1), sizeof *pass->slopes);
    if (!pass->shape || !pass->slopes)
        return err_no_memory(err, "%zu shapes of attention", o->n_shapes);
    pass->n_shapes = o->n_shapes;
    for (size_t i = 0; i < o->n_shapes; i++) {
        struct attn_shape *shape = &pass->shape[i];
        *shape = o->shape[i];
        if (shape->scale == 0)
            shape->scale = 1 / sqrtf((float)shape->head_dim);
        const size_t bytes = shape->heads * sizeof *shape->slopes;
        if (!shape->slopes)
            continue;
        if (!(pass->slopes[i] = cl_alloc(bytes)))
            return err_no_memory(err, "%zu slopes on the device", shape->heads);
        cl_write(pass->slopes[i], shape->slopes, bytes);
    }
    return 0;
}

/* At least the partial results of one row of the largest shape. */
static size_t partial_bytes(const struct cl_pass *pass)
{
    const struct kv_setup *setup = kv_setup(pass->kv);
    const size_t blocks =
        div_up(size_max(setup->view_rows, setup->shape.max_rows), CL_ATTEND_BLOCK) + 2;
    size_t most = 0;
    for (size_t i = 0; i < pass->n_shapes; i++)
        most = size_max(most, pass->shape[i].heads * (value_dim(&pass->shape[i]) + 2));
    return size_max(most * blocks * sizeof(float),
                    size_min(PARTIAL_BYTES, pass->max_rows * most * blocks * sizeof(float)));
}

int cl_attend_open(struct cl_pass *pass, const struct backend_options *o, struct err *err)
{
    const struct kv_shape *shape = &kv_setup(o->kv)->shape;
    if (open_shapes(pass, o, err) < 0)
        return -1;
    for (const struct op *op = o->op; op < o->op + o->n_ops; op++)
        if (op->kind == OP_ATTEND && open_types(pass, kv_sizes_of(shape, op->attend.layer), err) < 0)
            return -1;
    pass->partial_bytes = partial_bytes(pass);
    if (!(pass->partial = cl_alloc(pass->partial_bytes)))
        return err_no_memory(err, "%zu bytes of partial results of attention", pass->partial_bytes);
    return 0;
}

void cl_attend_close(struct cl_pass *pass)
{
    cl_free(pass->partial);
    for (size_t i = 0; i < pass->n_shapes; i++)
        cl_free(pass->slopes[i]);
    free(pass->slopes);
    free(pass->shape);
    free(pass->mask);
    free(pass->span);
    free(pass->tile);
}

/* ---- lists ---- */

/* What the kernels read in a call, as it is collected. */
struct attend_lists {
    size_t spans, bytes;     /* bytes: of row offsets and ancestors, which are staged on their own */
    size_t first_block, end; /* blocks that some row attends to */
};

/* Adds the spans of a view, `apart`: of a single head; addresses of row tables are those of the host until they are staged. */
static int add_spans(struct cl_pass *pass, const struct kv_view *view, bool apart,
                     struct attend_lists *lists, struct err *err)
{
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct kv_span *s = &view->span[i];
        if (mem_grow(&pass->span, &pass->spans_cap, lists->spans, sizeof *pass->span, err) < 0)
            return -1;
        pass->span[lists->spans++] = (struct cl_span){.k = s->k.device_address + view->offset[KV_K],
                                                      .v = s->v.device_address + view->offset[KV_V],
                                                      .row = (cl_address)(uintptr_t)s->row,
                                                      .k_head = apart ? 0 : s->head_stride[KV_K],
                                                      .v_head = apart ? 0 : s->head_stride[KV_V],
                                                      .k_row = (cl_number)s->row_stride[KV_K],
                                                      .v_row = (cl_number)s->row_stride[KV_V],
                                                      .first = (cl_number)s->first,
                                                      .rows = (cl_number)s->rows};
        lists->bytes += s->row ? round_up(s->rows * sizeof *s->row, CL_STAGE_ALIGN) : 0;
    }
    return 0;
}

static void add_masks(struct cl_pass *pass, const struct attn_query *q, const struct kv_view *view,
                      const struct op_attend *a, struct cl_mask *to, size_t span,
                      struct attend_lists *lists)
{
    const struct mask_limits limits = {a->window, a->chunk, a->ahead, view->sink, view->recent};
    for (size_t i = 0; i < q->rows; i++) {
        const struct query_mask m = query_mask_of(pass->kv, q, i, &limits);
        const size_t first = m.sink_end > m.first ? m.first : m.recent;
        to[i] = (struct cl_mask){.ancestors = (cl_address)(uintptr_t)m.ancestors,
                                 .position = (cl_number)m.position,
                                 .end = (cl_number)m.end,
                                 .first = (cl_number)m.first,
                                 .sink_end = (cl_number)m.sink_end,
                                 .recent = (cl_number)m.recent,
                                 .committed = (cl_number)m.committed,
                                 .span = (cl_number)span,
                                 .n_spans = (cl_number)view->n_spans};
        lists->bytes +=
            m.ancestors ? round_up((m.end - m.committed) * sizeof(uint32_t), CL_STAGE_ALIGN) : 0;
        lists->first_block = size_min(lists->first_block, first / CL_ATTEND_BLOCK);
        lists->end = size_max(lists->end, div_up(m.end, CL_ATTEND_BLOCK));
    }
}

/* Stages row tables and ancestors, in place of the host's addresses. */
static void stage_tables(struct cl_pass *pass, size_t masks, size_t spans)
{
    for (size_t i = 0; i < spans; i++)
        if (pass->span[i].row)
            pass->span[i].row = cl_stage((const void *)(uintptr_t)pass->span[i].row,
                                         pass->span[i].rows * sizeof(ptrdiff_t));
    for (size_t i = 0; i < masks; i++) {
        struct cl_mask *m = &pass->mask[i];
        if (m->ancestors)
            m->ancestors = cl_stage((const void *)(uintptr_t)m->ancestors,
                                    (m->end - m->committed) * sizeof(uint32_t));
    }
}

/* ---- kernels ---- */

struct attend_slice {
    size_t head, heads; /* KV heads */
    bool apart;         /* each has a view of its own */
};

/* Most query rows whose partial results there is room for. */
static size_t most_rows(const struct cl_pass *pass, const struct cl_attend_args *args)
{
    const size_t bytes = (size_t)args->heads * args->blocks * (args->d_v + 2) * sizeof(float);
    return size_max(pass->partial_bytes / bytes, 1);
}

/* Divides the rows of all sequences into *n tiles. */
static int list_tiles(struct cl_pass *pass, const struct op_step *step, size_t gqa, size_t most,
                      size_t *n, struct err *err)
{
    const size_t each = size_min(size_max(CL_ATTEND_QUERIES / gqa, 1), most);
    *n = 0;
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++)
        for (size_t row = 0, rows; row < q->rows; row += rows) {
            rows = pass->mask[q->first + row].ancestors ? 1 : size_min(each, q->rows - row);
            for (size_t i = 1; i < rows; i++)
                if (pass->mask[q->first + row + i].ancestors)
                    rows = i;
            if (mem_grow(&pass->tile, &pass->tiles_cap, *n, sizeof *pass->tile, err) < 0)
                return -1;
            pass->tile[(*n)++] = (struct cl_rows){(cl_number)(q->first + row), (cl_number)rows};
        }
    return 0;
}

/* Starts the kernels for n tiles, as many at a time as there is room for partial results. */
static void launch(const struct cl_pass *pass, const struct kv_sizes *sizes,
                   const struct cl_attend_args *all, size_t n)
{
    const struct cl_attend_kernels *kernels =
        &pass->attend[cl_type_of(sizes->type[KV_K])][cl_type_of(sizes->type[KV_V])];
    const size_t most = most_rows(pass, all),
                 groups = all->heads / all->gqa * div_up(all->gqa, CL_ATTEND_QUERIES);
    for (size_t at = 0, end; at < n; at = end) {
        struct cl_attend_args args = *all;
        size_t rows = 0;
        for (end = at; end < n && rows + pass->tile[end].n <= most; end++)
            rows += pass->tile[end].n;
        args.tile += at * sizeof *pass->tile;
        args.row = pass->tile[at].first;
        cl_launch(kernels->block, &args, sizeof args, (size_t[]){args.blocks, groups, end - at},
                  (size_t[]){CL_ATTEND_BLOCK, 1, 1});
        cl_launch(kernels->merge, &args, sizeof args, (size_t[]){1, args.heads, rows},
                  (size_t[]){CL_LANES, 1, 1});
    }
}

/* Lists the rows of all sequences for KV heads of a slice, then starts the kernels. */
static int attend_slice(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                        const struct attend_slice *slice, struct err *err)
{
    const struct op_attend *a = &op->attend;
    const struct attn_shape *shape = &pass->shape[a->shape];
    const size_t gqa = shape->heads / shape->kv_heads, views = slice->apart ? slice->heads : 1,
                 masks = views * step->rows;
    struct attend_lists lists = {.first_block = SIZE_MAX};
    while (pass->masks_cap < masks)
        if (mem_grow(&pass->mask, &pass->masks_cap, pass->masks_cap, sizeof *pass->mask, err) < 0)
            return -1;
    for (size_t h = 0; h < views; h++)
        for (size_t i = 0; i < step->n_queries; i++) {
            const struct attn_query *q = &step->query[i];
            const size_t span = lists.spans;
            struct kv_view view;
            if (kv_view(pass->kv, q->seq, a->layer, slice->head + h, slice->apart ? 1 : slice->heads,
                        &view, err) < 0 ||
                add_spans(pass, &view, slice->apart, &lists, err) < 0)
                return -1;
            add_masks(pass, q, &view, a, pass->mask + h * step->rows + q->first, span, &lists);
        }
    const size_t first = slice->head * gqa;
    struct cl_attend_args args = {
        .q = cl_row(step, op->in, 0) + first * shape->head_dim * sizeof(float),
        .out = cl_row(step, op->out, 0) + first * value_dim(shape) * sizeof(float),
        .partial = pass->partial,
        .slopes = pass->slopes[a->shape],
        .sinks = a->sinks.device_address,
        .q_stride = (cl_number)op->in.stride,
        .out_stride = (cl_number)op->out.stride,
        .head = (cl_number)slice->head,
        .heads = (cl_number)(slice->heads * gqa),
        .gqa = (cl_number)gqa,
        .d = (cl_number)shape->head_dim,
        .d_v = (cl_number)value_dim(shape),
        .first_block = (cl_number)lists.first_block,
        .blocks = (cl_number)(lists.end - lists.first_block),
        .mask_stride = slice->apart ? (cl_number)step->rows : 0,
        .scale = shape->scale,
        .softcap = shape->softcap,
    };
    size_t tiles;
    if (list_tiles(pass, step, gqa, most_rows(pass, &args), &tiles, err) < 0)
        return -1;
    const size_t mask_bytes = masks * sizeof *pass->mask, span_bytes = lists.spans * sizeof *pass->span,
                 tile_bytes = tiles * sizeof *pass->tile;
    cl_stage_room(lists.bytes + round_up(mask_bytes, CL_STAGE_ALIGN) +
                  round_up(span_bytes, CL_STAGE_ALIGN) + round_up(tile_bytes, CL_STAGE_ALIGN));
    stage_tables(pass, masks, lists.spans);
    args.mask = cl_stage(pass->mask, mask_bytes);
    args.span = cl_stage(pass->span, span_bytes);
    args.tile = cl_stage(pass->tile, tile_bytes);
    launch(pass, kv_sizes_of(&kv_setup(pass->kv)->shape, a->layer), &args, tiles);
    return 0;
}

static void prefetch(struct cl_pass *pass, const struct op_step *step, size_t layer, size_t head,
                     size_t heads)
{
    for (size_t i = 0; i < step->n_queries; i++)
        kv_prefetch(pass->kv, step->query[i].seq, layer, head, heads);
}

int cl_run_attend(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                  struct row_range rows, struct err *err)
{
    (void)rows;
    const size_t layer = op->attend.layer, end = pass->shape[op->attend.shape].kv_heads,
                 most = kv_offload(pass->kv).heads_at_once;
    const bool apart = kv_offload(pass->kv).apart;
    const struct kv_shape *shape = &kv_setup(pass->kv)->shape;
    const struct attend_slice all = {0, end, apart};
    if (!most)
        return attend_slice(pass, op, step, &all, err);
    prefetch(pass, step, layer, 0, size_min(most, end));
    for (size_t head = 0, next; head < end; head = next) {
        next = head + size_min(most, end - head);
        if (next < end)
            prefetch(pass, step, layer, next, size_min(most, end - next));
        else if (layer + 1 < shape->layers)
            prefetch(pass, step, layer + 1, 0, size_min(most, kv_sizes_of(shape, layer + 1)->kv_heads));
        const struct attend_slice slice = {head, next - head, true};
        if (attend_slice(pass, op, step, &slice, err) < 0)
            return -1;
    }
    return 0;
}
