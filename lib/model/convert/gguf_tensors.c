/* Plans the tensors of a GGUF file, by the lines that read them, and makes their data: rows in the order that the file
 * has, parts of fused tensors side by side. */
#include "model/convert/gguf_tensors.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/number.h"
#include "base/threads.h"
#include "format/gguf/gguf_source.h"
#include "quant/pack.h"

enum { CHUNK_BYTES = 2 << 20 };

/* ---- planning ---- */

/* The kind and layer of a planned tensor, by its name: "layers.3.q.weight". */
static const struct weight_kind *kind_of(const char *name, size_t *layer)
{
    char kind[WEIGHT_NAME_SIZE], digits[16];
    static const char prefix[] = "layers.";
    *layer = 0;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return weight_kind_find(name);
    const char *number = name + strlen(prefix), *rest = strchr(number, '.');
    if (!rest)
        return NULL;
    snprintf(digits, sizeof digits, "%.*s", (int)(rest - number), number);
    snprintf(kind, sizeof kind, "layer%s", rest);
    return parse_size(digits, layer) ? weight_kind_find(kind) : NULL;
}

/* The shape of a tensor in GGUF files; `rows` of a matrix of a stack, or of the only one. */
static size_t shape_of(const struct weight_kind *kind, const struct tensor_transform *transform,
                       const struct config *c, size_t stack, size_t rows, size_t dim[GGUF_DIMS])
{
    const size_t columns = config_dim(c, kind->in), taps = c->recurrent->conv_kernel;
    const bool mamba = c->recurrent->heads && config_state_kind(c) != LAYER_DELTA;
    size_t n = 0, lines = 0; /* vectors of all heads, or matrices of each */
    if (kind->out == DIM_CONV_WEIGHT && transform->transposed)
        return dim[0] = rows / taps, dim[1] = taps, 2;
    if ((kind->out == DIM_Q_NORM || kind->out == DIM_K_NORM) && c->qk_norm == QK_NORM_EACH)
        lines = rows / c->head_dim;
    else if (kind->out == DIM_STATE_NORM && mamba)
        lines = c->recurrent->key_heads;
    else if (kind->out == DIM_K_B || strcmp(kind->name, "layer.v_b.weight") == 0)
        lines = c->heads;
    else if (mamba && (strcmp(kind->name, "layer.state_decay") == 0 ||
                       strcmp(kind->name, "layer.state_skip") == 0))
        lines = rows;
    if (stack)
        dim[n++] = stack;
    if (lines)
        dim[n++] = lines;
    dim[n++] = lines ? rows / lines : rows;
    if (kind->in != DIM_NONE)
        dim[n++] = columns;
    return n;
}

static size_t elements_of(const size_t *dim, size_t n)
{
    size_t elements = 1;
    for (size_t i = 0; i < n; i++)
        elements *= dim[i];
    return elements;
}

static int add_tensor(struct gguf_tensors *t, const char *name, const struct block_type *type,
                      struct err *err)
{
    if (strlen(name) >= GGUF_NAME_SIZE)
        return err_set(err, "tensor name \"%.80s\" has more than %d bytes, the most in GGUF", name,
                       GGUF_NAME_SIZE - 1);
    if (mem_grow(&t->tensor, &t->cap, t->n, sizeof *t->tensor, err) < 0 ||
        mem_grow(&t->origin, &t->cap_origins, t->n, sizeof *t->origin, err) < 0)
        return -1;
    t->tensor[t->n] = (struct gguf_tensor){.type = type};
    strcpy(t->tensor[t->n].name, name);
    t->origin[t->n++] = (struct gguf_origin){0};
    return 0;
}

/* The index of the tensor of that name among the last few, where parts of fused tensors are; SIZE_MAX: none. */
static size_t find_recent(const struct gguf_tensors *t, const char *name)
{
    enum { RECENT = 64 };
    for (size_t i = t->n; i > 0 && t->n - i < RECENT; i--)
        if (strcmp(t->tensor[i - 1].name, name) == 0)
            return i - 1;
    return SIZE_MAX;
}

/* The name and transform of a planned tensor: those that the source has, or the first. */
static const struct tensor_transform *find_name(const struct gguf_out *out, const struct family *names,
                                                const struct weight_kind *kind, size_t layer,
                                                char name[TENSOR_NAME_SIZE])
{
    const bool from_gguf = out->source->format && out->source->format->tensor_line;
    const struct tensor_transform *transform, *first = NULL;
    char found[TENSOR_NAME_SIZE];
    for (size_t nth = 0;
         (transform = family_tensor(names, kind, (struct tensor_place){layer, 0}, nth, found)); nth++) {
        if (transform->per_expert)
            continue;
        if (!first || (from_gguf && source_find(out->source, found)))
            memcpy(name, found, TENSOR_NAME_SIZE);
        if (from_gguf && source_find(out->source, found))
            return transform;
        first = first ? first : transform;
    }
    return first;
}

/* Rows of a matrix of the tensor that a kind is, or is a part of. */
static size_t rows_of(const struct weight_kind *kind, const struct tensor_transform *transform,
                      const struct config *config)
{
    size_t rows = transform->n_parts ? 0 : config_dim(config, kind->out);
    for (size_t i = 0; i < transform->n_parts; i++)
        rows += config_dim(config, transform->parts[i]->out);
    return rows;
}

/* A tensor of the source that is written as it is: vectors, whose values do not change, K and V in one tensor as older
 * files of latent attention have them, and all that keep their type. NULL: the source has none. */
static const struct source_tensor *find_kept(const struct gguf_out *out, const char *name,
                                             const struct weight_kind *kind,
                                             const struct tensor_transform *transform, enum dtype type)
{
    const struct source_tensor *old =
        gguf_of_source(out->source) ? source_find(out->source, name) : NULL;
    return old && (kind->in == DIM_NONE || transform->of_kv_b || old->type == type) ? old : NULL;
}

static void copy_tensor(struct gguf_tensors *t, const struct source_tensor *from)
{
    struct gguf_tensor *copy = &t->tensor[t->n - 1];
    copy->n_dims = from->n_dims;
    memcpy(copy->dim, from->dim, from->n_dims * sizeof *from->dim);
    copy->bytes = from->bytes;
    t->origin[t->n - 1].data = from->data;
}

/* Begins a tensor with its shape; one that the source has keeps that. */
static int begin_tensor(struct gguf_tensors *t, const struct gguf_out *out, const char *name,
                        const struct weight_kind *kind, const struct tensor_transform *transform,
                        const struct config *config, enum dtype type, struct err *err)
{
    const struct source_tensor *kept = find_kept(out, name, kind, transform, type),
                               *old =
                                   gguf_of_source(out->source) ? source_find(out->source, name) : NULL;
    if (add_tensor(t, name, &block_types[kept ? kept->type : type], err) < 0)
        return -1;
    struct gguf_tensor *tensor = &t->tensor[t->n - 1];
    struct gguf_origin *origin = &t->origin[t->n - 1];
    if (kept) {
        copy_tensor(t, kept);
        return 0;
    }
    origin->stack = size_max(1, weight_kind_stack(kind, config));
    tensor->n_dims = shape_of(kind, transform, config, weight_kind_stack(kind, config),
                              rows_of(kind, transform, config), tensor->dim);
    if (old && old->n_dims <= GGUF_DIMS &&
        elements_of(old->dim, old->n_dims) == elements_of(tensor->dim, tensor->n_dims)) {
        tensor->n_dims = old->n_dims;
        memcpy(tensor->dim, old->dim, old->n_dims * sizeof *old->dim);
        origin->data = old->data;
    }
    return gguf_tensor_size(tensor, out->name, err);
}

/* Adds a planned tensor as a part of the tensor `at`, which is not one that is kept. */
static int add_part(struct gguf_tensors *t, size_t at, const struct gguf_out *out, size_t index,
                    const struct weight_kind *kind, const struct tensor_transform *transform,
                    const struct config *config, struct err *err)
{
    const struct gguf_tensor *tensor = &t->tensor[at];
    struct gguf_origin *origin = &t->origin[at];
    struct source_tensor form = {.name = tensor->name,
                                 .type_name = tensor->type->name,
                                 .type = tensor->type->stored,
                                 .n_dims = tensor->n_dims};
    memcpy(form.dim, tensor->dim, sizeof tensor->dim);
    struct gguf_part *part = &origin->part[origin->n_parts++];
    part->plan = index;
    part->kind = kind;
    return tensor_import_plan(&part->import, &form, transform, kind, 0, config, out->name, err);
}

static int plan_tensor(struct gguf_tensors *t, const struct gguf_out *out, const struct family *names,
                       size_t index, struct err *err)
{
    const struct bmc_plan_tensor *plan = &out->plan->tensor[index];
    char name[TENSOR_NAME_SIZE];
    size_t layer;
    struct config own;
    const struct weight_kind *kind = kind_of(plan->name, &layer);
    const struct tensor_transform *transform = kind ? find_name(out, names, kind, layer, name) : NULL;
    if (!transform)
        return err_set(err, "%s: GGUF files of its architecture have no tensor for %s", out->name,
                       plan->name);
    if (!block_types[plan->dtype].name)
        return err_set(err, "%s: %s is %s, which GGUF lacks: choose another type with --type",
                       out->name, plan->name, dtype_name(plan->dtype));
    const struct config *config = config_of_layer(out->config, layer, &own);
    size_t at = transform->n_parts || transform->of_kv_b ? find_recent(t, name) : SIZE_MAX;
    if (at == SIZE_MAX) {
        at = t->n;
        if (begin_tensor(t, out, name, kind, transform, config, plan->dtype, err) < 0)
            return -1;
    } else if (t->tensor[at].type != &block_types[plan->dtype] && !transform->of_kv_b &&
               kind->in != DIM_NONE) {
        return err_set(err,
                       "%s: %s is %s, but other parts of GGUF's tensor %s are %s: give them the same "
                       "type with --tensor-type",
                       out->name, plan->name, dtype_name(plan->dtype), name, t->tensor[at].type->name);
    }
    return t->origin[at].data && find_kept(out, name, kind, transform, plan->dtype)
               ? 0
               : add_part(t, at, out, index, kind, transform, config, err);
}

/* True if a tensor of the source is planned, or is that of one expert of a stack that is. */
static bool is_planned(const struct gguf_tensors *t, const struct source_tensor *tensor)
{
    char stacked[GGUF_NAME_SIZE + 8] = "";
    static const char *const one[] = {".ffn_gate.", ".ffn_up.", ".ffn_down."};
    for (size_t i = 0; i < ARRAY_LEN(one); i++) {
        const char *at = strstr(tensor->name, one[i]);
        const size_t len = at ? (size_t)(at - tensor->name) + strlen(one[i]) - 1 : 0;
        if (at && at[strlen(one[i])] >= '0' && at[strlen(one[i])] <= '9' && len < GGUF_NAME_SIZE - 16)
            snprintf(stacked, sizeof stacked, "%.*s_exps.weight", (int)len, tensor->name);
    }
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->tensor[i].name, tensor->name) == 0 || strcmp(t->tensor[i].name, stacked) == 0)
            return true;
    return false;
}

/* Adds the tensors of a GGUF file that the plan does not use, such as those of MTP layers. */
static int add_others(struct gguf_tensors *t, const struct weight_source *source, struct err *err)
{
    const struct source_tensor *tensor;
    for (size_t i = 0; (tensor = source_nth(source, i)); i++) {
        if (is_planned(t, tensor))
            continue;
        if (add_tensor(t, tensor->name, &block_types[tensor->type], err) < 0)
            return -1;
        copy_tensor(t, tensor);
    }
    return 0;
}

struct placed_tensor {
    struct gguf_tensor tensor;
    struct gguf_origin origin;
    size_t list; /* number of the file */
};

static int by_place(const void *a, const void *b)
{
    const struct placed_tensor *x = a, *y = b;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return x->origin.data < y->origin.data ? -1 : x->origin.data > y->origin.data;
}

/* Orders tensors as the files of the source do. */
static int order_as_source(struct gguf_tensors *t, const struct weight_source *source, struct err *err)
{
    struct placed_tensor *place = mem_zalloc(t->n, sizeof *place);
    if (!place)
        return err_no_memory(err, "%zu tensors", t->n);
    for (size_t i = 0; i < t->n; i++) {
        place[i] = (struct placed_tensor){t->tensor[i], t->origin[i], source->n_lists};
        for (size_t l = 0; l < source->n_lists && t->origin[i].data; l++)
            if (t->origin[i].data >= source->list[l].map->data &&
                t->origin[i].data < source->list[l].map->data + source->list[l].map->size)
                place[i].list = l;
    }
    qsort(place, t->n, sizeof *place, by_place);
    for (size_t i = 0; i < t->n; i++) {
        t->tensor[i] = place[i].tensor;
        t->origin[i] = place[i].origin;
    }
    free(place);
    return 0;
}

int gguf_tensors_plan(struct gguf_tensors *t, const struct gguf_out *out, const struct family *names,
                      struct err *err)
{
    for (size_t i = 0; i < out->plan->n_tensors; i++)
        if (out->plan->tensor[i].tied_to < 0 && plan_tensor(t, out, names, i, err) < 0)
            return -1;
    if (!gguf_of_source(out->source))
        return 0;
    return add_others(t, out->source, err) < 0 ? -1 : order_as_source(t, out->source, err);
}

int gguf_tensors_add_vector(struct gguf_tensors *t, const char *name, float *value, size_t n,
                            struct err *err)
{
    if (add_tensor(t, name, &block_types[DTYPE_F32], err) < 0) {
        free(value);
        return -1;
    }
    struct gguf_tensor tensor = t->tensor[t->n - 1];
    tensor.n_dims = 1;
    tensor.dim[0] = n;
    tensor.bytes = n * sizeof *value;
    memmove(t->tensor + 1, t->tensor, (t->n - 1) * sizeof *t->tensor);
    memmove(t->origin + 1, t->origin, (t->n - 1) * sizeof *t->origin);
    t->tensor[0] = tensor;
    t->origin[0] = (struct gguf_origin){.data = (const unsigned char *)value, .own = value};
    return 0;
}

void gguf_tensors_release(struct gguf_tensors *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->origin[i].own);
    free(t->tensor);
    free(t->origin);
    *t = (struct gguf_tensors){0};
}

/* ---- data ---- */

/* A tensor that is being made: rows of the plan's types, then blocks. */
struct maker {
    const struct gguf_out *out;
    const struct gguf_tensor *tensor;
    const struct gguf_origin *origin;
    struct gguf_sink *sink;
    size_t columns, row_bytes,
        block_bytes;              /* of a row: elements, bytes in the plan's form and in blocks */
    unsigned char *rows, *blocks; /* of a chunk */
    size_t chunk;                 /* rows */
};

struct encoding {
    const struct maker *maker;
    const unsigned char *rows;
    size_t n, each;
    atomic_bool wrong;
};

static void encode_some(void *arg, size_t i)
{
    struct encoding *e = arg;
    const struct maker *m = e->maker;
    const size_t from = i * e->each, n = size_min(e->each, e->n - from);
    if (!block_type_encode(m->tensor->type, m->blocks + from * m->block_bytes,
                           e->rows + from * m->row_bytes, n, m->columns))
        atomic_store(&e->wrong, true);
}

/* Passes at most `chunk` rows on, as blocks. */
static int pass_rows(const struct maker *m, const unsigned char *rows, size_t n, struct err *err)
{
    if (m->tensor->type->elements == 1)
        return gguf_sink_add(m->sink, rows, n * m->row_bytes, err);
    struct encoding e = {m, rows, n, div_up(n, 8), false};
    parallel_for(div_up(n, e.each), 4 * n * m->columns, encode_some, &e);
    return e.wrong ? err_set(err, "%s: tensor \"%s\" has values that %s cannot hold: it is damaged",
                             m->out->name, m->tensor->name, m->tensor->type->name)
                   : gguf_sink_add(m->sink, m->blocks, n * m->block_bytes, err);
}

/* Undoes what reading does to the values of a vector. */
static void undo(const struct tensor_import *import, unsigned char *value)
{
    float x;
    memcpy(&x, value, sizeof x);
    x = import->negated ? -x : x;
    memcpy(value, &x, sizeof x);
}

/* True if the rows of the file are in the order of the plan. */
static bool keeps_order(const struct gguf_origin *origin)
{
    const struct tensor_import *import = &origin->part[0].import;
    return origin->n_parts == 1 && !import->rope_dim && !import->taps;
}

static int stream_rows(const struct maker *m, size_t rows, struct err *err)
{
    const struct bmc_plan *plan = m->out->plan;
    const struct gguf_part *part = &m->origin->part[0];
    const size_t each = rows / m->origin->stack;
    for (size_t row = 0, n; row < rows; row += n) {
        n = size_min(m->chunk, each - row % each);
        if (plan->produce(plan->arg, part->plan, row, n, m->rows, err) < 0)
            return -1;
        for (size_t i = 0; i < n && part->import.negated; i++)
            undo(&part->import, m->rows + i * m->row_bytes);
        if (pass_rows(m, m->rows, n, err) < 0)
            return -1;
    }
    return 0;
}

/* Puts the rows of a part, of one matrix of the stack, where the tensor has them. */
static int gather_part(const struct maker *m, const struct gguf_part *part, size_t matrix, size_t rows,
                       unsigned char *all, size_t all_rows, struct err *err)
{
    const struct bmc_plan *plan = m->out->plan;
    for (size_t row = 0, n; row < rows; row += n) {
        n = size_min(m->chunk, rows - row);
        if (plan->produce(plan->arg, part->plan, matrix * rows + row, n, m->rows, err) < 0)
            return -1;
        for (size_t i = 0; i < n; i++) {
            const size_t to = tensor_import_source_row(&part->import, row + i);
            if (to >= all_rows)
                return err_set(err, "%s: tensor \"%s\" has no row %zu", m->out->name, m->tensor->name,
                               to);
            memcpy(all + to * m->row_bytes, m->rows + i * m->row_bytes, m->row_bytes);
        }
    }
    return 0;
}

/* Rows that a planned tensor has in each matrix of a stack. */
static size_t plan_rows(const struct bmc_plan_tensor *plan, size_t stack, size_t columns)
{
    return elements_of(plan->shape, plan->n_dims) / stack / columns;
}

static int gather_rows(const struct maker *m, size_t rows, struct err *err)
{
    const size_t each = rows / m->origin->stack;
    unsigned char *all = mem_zalloc(each, m->row_bytes);
    int rc = all ? 0 : err_no_memory(err, "%s: tensor \"%s\"", m->out->name, m->tensor->name);
    for (size_t matrix = 0; matrix < m->origin->stack && rc == 0; matrix++) {
        for (size_t p = 0; p < m->origin->n_parts && rc == 0; p++) {
            const struct gguf_part *part = &m->origin->part[p];
            rc = gather_part(m, part, matrix,
                             plan_rows(&m->out->plan->tensor[part->plan], m->origin->stack, m->columns),
                             all, each, err);
        }
        for (size_t row = 0, n; row < each && rc == 0; row += n) {
            n = size_min(m->chunk, each - row);
            rc = pass_rows(m, all + row * m->row_bytes, n, err);
        }
    }
    free(all);
    return rc;
}

int gguf_tensors_produce(const struct gguf_tensors *t, size_t index, const struct gguf_out *out,
                         struct gguf_sink *sink, struct err *err)
{
    const struct gguf_tensor *tensor = &t->tensor[index];
    const struct gguf_origin *origin = &t->origin[index];
    if (!origin->n_parts)
        return gguf_sink_add(sink, origin->data, tensor->bytes, err);
    const struct bmc_plan_tensor *plan = &out->plan->tensor[origin->part[0].plan];
    const bool stacked = weight_kind_of_experts(origin->part[0].kind);
    struct maker m = {.out = out, .tensor = tensor, .origin = origin, .sink = sink};
    m.columns = plan->n_dims > 1 ? plan->shape[plan->n_dims - 1] : 1;
    m.row_bytes = dtype_row_bytes(plan->dtype, m.columns);
    m.block_bytes = m.columns / tensor->type->elements * tensor->type->bytes;
    m.chunk = size_max(PACK_OUT, CHUNK_BYTES / m.row_bytes / PACK_OUT * PACK_OUT);
    m.rows = mem_alloc(m.chunk, m.row_bytes);
    m.blocks = mem_alloc(m.chunk, m.block_bytes);
    const size_t rows = elements_of(tensor->dim, tensor->n_dims) / m.columns;
    int rc = m.rows && m.blocks ? 0 : err_no_memory(err, "%s: tensor \"%s\"", out->name, tensor->name);
    /* a vector of a stack is a row of it */
    if (rc == 0 && stacked && origin->part[0].kind->in == DIM_NONE && origin->n_parts > 1)
        rc = err_set(err, "%s: tensor \"%s\" has vectors of several kinds, which are not written",
                     out->name, tensor->name);
    if (rc == 0)
        rc = keeps_order(origin) ? stream_rows(&m, rows, err) : gather_rows(&m, rows, err);
    free(m.rows);
    free(m.blocks);
    return rc;
}
