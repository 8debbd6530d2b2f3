/* Conversion to model.bmc: plans the output tensors from a source of weights or a shape;
 * bmc_file_write() calls back for the rows of each. */
#include "model/convert/convert.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/text_util.h"
#include "base/threads.h"
#include "quant/pack.h"
#include "quant/quantize.h"
#include "format/gguf/gguf_source.h"
#include "format/source.h"
#include "model/convert/chat_source.h"
#include "model/convert/embedding_source.h"
#include "model/convert/generation_source.h"
#include "model/convert/gguf_out.h"
#include "model/family/family.h"
#include "model/model.h"
#include "model/convert/tensor_sources.h"
#include "model/weight_kinds.h"
#include "model/synth/synth.h"
#include "model/convert/unused_tensors.h"
#include "text/chat/chat.h"
#include "text/import/tok_build.h"
#include "text/tokenizer/tokenizer.h"

/* One output tensor and the origin of its values. */
struct tensor_origin {
    char name[WEIGHT_NAME_SIZE];
    const struct weight_kind *kind;
    struct tensor_sources from;      /* none in a synthetic model, or if the source is a model file */
    const struct bmc_tensor *tensor; /* of a model file; else NULL */
    const float *weight; /* [in] imatrix weights for rounding, of each matrix of a stack; or NULL */
    bool transcoded;     /* copied losslessly from quantised blocks */
    /* The type that options ask for, and the one that takes its place in rows of this width. The tensor's own may be
     * another one, which the source has. */
    enum dtype asked, fits;
};

struct convert_job {
    struct config config;
    const struct convert_options *options;
    struct weight_source *source; /* of a draft head, its model's */
    const struct bmc_file *file;  /* the source if it is a model file: `source` has its path alone */
    struct family family;
    /* Of a draft head in the model's file: MTP layers of the source (0: no draft head), and
     * their copies of tensors of the model */
    size_t mtp_layers;
    const struct source_tensor *copy[2];
    struct synth synth;
    bool synthetic;
    struct buf config_text, tokenizer, chat;
    struct bmc_plan_tensor *plan;
    struct tensor_origin *origin;
    size_t n;
    struct convert_notes notes;
    float *f32_rows; /* scratch: rows to be quantised */
    size_t f32_rows_size;
};

static void job_release(struct convert_job *job)
{
    for (size_t i = 0; i < job->n; i++)
        tensor_sources_release(&job->origin[i].from);
    free(job->f32_rows);
    family_release(&job->family);
    synth_close(&job->synth);
    config_close(&job->config);
    buf_release(&job->config_text);
    buf_release(&job->tokenizer);
    buf_release(&job->chat);
    free(job->plan);
    free(job->origin);
}

/* The type of model.bmc that has a tensor's values in the source. */
static enum dtype type_of_origin(const struct tensor_origin *origin)
{
    const struct tensor_import *import = origin->from.import;
    if (origin->tensor)
        return (enum dtype)origin->tensor->dtype;
    return !origin->from.n                 ? DTYPE_BF16
           : tensor_import_gathers(import) ? DTYPE_F32
                                           : import->type->stored;
}

/* ---- values ---- */

static void fill_constant(enum fill fill, enum dtype type, void *out, size_t n)
{
    const float x = fill == FILL_ONE ? 1 : 0;
    for (size_t i = 0; i < n; i++)
        dtype_from_f32((char *)out + i * dtype_size(type), type, &x, 1);
}

static int check_result(const struct convert_job *job, size_t index, enum import_result result,
                        struct err *err)
{
    const enum dtype type = job->plan[index].dtype;
    const struct tensor_origin *origin = &job->origin[index];
    const char *path = job->source->path,
               *name = origin->tensor ? origin->name : origin->from.import->from->name;
    if (result == IMPORT_FINITE)
        return 0;
    if (result == IMPORT_TOO_LARGE)
        return err_set(err, "%s: tensor \"%s\" has weights that are too large for %s; use --type %s",
                       path, name, dtype_name(type), type == DTYPE_BF16 ? "f32" : "bf16 or f32");
    return err_set(err,
                   "%s: tensor \"%s\" has weights that are NaN or infinite as %s; the model is damaged",
                   path, name, dtype_name(type));
}

/* Writes rows of an output tensor that is unquantised or transcoded. */
static int fill_rows(const struct convert_job *job, size_t index, size_t first_row, size_t rows,
                     enum dtype type, void *to, struct err *err)
{
    const struct tensor_origin *origin = &job->origin[index];
    const struct bmc_plan_tensor *plan = &job->plan[index];
    const size_t row = plan->n_dims > 1 ? plan->shape[plan->n_dims - 1] : 1;
    if (origin->tensor)
        return check_result(
            job, index, model_source_rows(job->file, origin->tensor, first_row, rows, type, to), err);
    if (!job->synthetic)
        return check_result(job, index, tensor_sources_rows(&origin->from, first_row, rows, type, to),
                            err);
    if (origin->kind->fill == FILL_RANDOM)
        synth_fill(&job->synth, index, first_row * row, rows * row, type, to);
    else
        fill_constant(origin->kind->fill, type, to, rows * row);
    return 0;
}

/* The imatrix weights of an output tensor's row, or NULL. */
static const float *weight_of(const struct convert_job *job, size_t index, size_t row)
{
    const struct bmc_plan_tensor *plan = &job->plan[index];
    const float *weight = job->origin[index].weight;
    return weight && plan->n_dims == 3 ? weight + row / plan->shape[1] * plan->shape[2] : weight;
}

enum { WORK_SIMPLE = 16, WORK_BEST = 512 }; /* rough cost per element, for parallel_for() */

/* Rows of a matrix that are quantised by several threads. */
struct quantize_job {
    enum dtype type;
    const float *x; /* [rows][n] */
    size_t n;
    const float *weight; /* [n] imatrix weights, or NULL */
    bool simple;         /* round to nearest instead of least squares */
    void *to;
    atomic_bool too_large; /* values exceed the type's range */
};

static void quantize_row(void *arg, size_t i)
{
    struct quantize_job *q = arg;
    char *to = (char *)q->to + i * dtype_row_bytes(q->type, q->n);
    const float *x = q->x + i * q->n;
    if (q->simple)
        dtype_from_f32(to, q->type, x, q->n);
    else if (!quantize(to, q->type, x, q->n, q->weight))
        atomic_store(&q->too_large, true);
}

/* Writes rows of an output tensor by converting them to f32 and quantising them. */
static int fill_quantized(struct convert_job *job, size_t index, size_t first_row, size_t rows,
                          void *to, struct err *err)
{
    const struct bmc_plan_tensor *plan = &job->plan[index];
    const size_t in = plan->shape[plan->n_dims - 1], n = rows * in;
    if (job->f32_rows_size < n) {
        free(job->f32_rows);
        job->f32_rows = mem_alloc(n, sizeof *job->f32_rows);
        job->f32_rows_size = job->f32_rows ? n : 0;
        if (!job->f32_rows)
            return err_no_memory(err, "%zu elements", n);
    }
    if (fill_rows(job, index, first_row, rows, DTYPE_F32, job->f32_rows, err) < 0)
        return -1;
    struct quantize_job q = {.type = plan->dtype,
                             .x = job->f32_rows,
                             .n = in,
                             .weight = weight_of(job, index, first_row),
                             .simple = job->synthetic,
                             .to = to};
    parallel_for(rows, (q.simple ? WORK_SIMPLE : WORK_BEST) * n, quantize_row, &q);
    return q.too_large ? check_result(job, index, IMPORT_TOO_LARGE, err) : 0;
}

static int produce(void *arg, size_t index, size_t first_row, size_t rows, void *bytes, struct err *err)
{
    struct convert_job *job = arg;
    const enum dtype type = job->plan[index].dtype;
    const bool made = dtype_is_quantized(type) && !job->origin[index].transcoded;
    const int rc = made ? fill_quantized(job, index, first_row, rows, bytes, err)
                        : fill_rows(job, index, first_row, rows, type, bytes, err);
    if (rc == 0)
        source_release_pages(job->source);
    return rc;
}

static void report_progress(void *arg, size_t done, size_t total)
{
    const struct convert_job *job = arg;
    if (job->options->progress)
        job->options->progress(job->options->arg, done, total);
}

/* ---- the plan ---- */

/* Records the GGUF type of a source tensor of quantised blocks whose values are kept exactly. */
static void mark_transcoded(struct tensor_origin *origin, struct bmc_plan_tensor *plan)
{
    const struct block_type *type = origin->from.n ? origin->from.import->type : NULL;
    bool same = type && type->elements > 1 && type->stored == plan->dtype &&
                !tensor_import_gathers(origin->from.import);
    plan->source = same ? type->ggml : 0;
    if (origin->tensor) {
        same = origin->tensor->dtype == plan->dtype;
        plan->source = same ? origin->tensor->source : 0;
    }
    origin->transcoded = same && dtype_is_quantized(plan->dtype);
}

/* Finds the imatrix weights of an output tensor. Fails if its type needs them: the head does not, as its inputs are
 * all alike in most models, and a draft head has none. */
static int find_weight(const struct convert_job *job, struct tensor_origin *origin,
                       const struct bmc_plan_tensor *plan, struct err *err)
{
    const struct convert_options *o = job->options;
    if (job->mtp_layers || job->synthetic || origin->transcoded || !dtype_is_quantized(plan->dtype) ||
        weight_kind_looked_up(origin->kind, &job->config))
        return 0;
    if (!o->imatrix_weights && !o->calibrated && type_needs_imatrix(plan->dtype) &&
        !type_is_head(origin->kind, &job->config))
        return err_set(err,
                       "tensor \"%s\": %s needs an importance matrix: give --calibrate, or --imatrix "
                       "FILE, as bmc-gen --score --save-imatrix makes it",
                       origin->name, dtype_name(plan->dtype));
    if (!o->imatrix_weights)
        return 0;
    const size_t inputs = plan->n_dims == 3 ? plan->shape[0] * plan->shape[2] : plan->shape[1];
    return imatrix_weights_find(o->imatrix_weights, origin->name, inputs, &origin->weight, err);
}

/* Chooses the type and layout of an output tensor, and its imatrix weights. */
static int choose_type(const struct convert_job *job, struct tensor_origin *origin, size_t layer,
                       struct bmc_plan_tensor *plan, struct err *err)
{
    const struct convert_options *o = job->options;
    char name[DRAFT_NAME_SIZE];
    snprintf(name, sizeof name, "%s%s", job->mtp_layers ? DRAFT_PREFIX : "", origin->name);
    const struct typed_matrix matrix = {
        .config = &job->config,
        .kind = origin->kind,
        .layer = layer,
        .columns = plan->shape[plan->n_dims - 1],
        .from = type_of_origin(origin),
        .imatrix = o->imatrix_weights && !o->calibrated,
    };
    struct typed_matrix wide = matrix;
    plan->dtype = tensor_types_choose(&o->types, &matrix, name);
    wide.from = DTYPE_F32; /* is not kept where a quantised type is asked for */
    origin->fits = tensor_types_choose(&o->types, &wide, name);
    wide.columns = QK_SUPER;
    origin->asked = tensor_types_choose(&o->types, &wide, name);
    if (!dtype_is_quantized(origin->fits))
        origin->asked = origin->fits = plan->dtype;
    plan->layout = weight_kind_layout(origin->kind, &job->config, plan->dtype);
    mark_transcoded(origin, plan);
    return find_weight(job, origin, plan, err);
}

static int plan_tensor(struct convert_job *job, const struct weight_kind *kind, size_t layer,
                       struct err *err)
{
    struct tensor_origin *origin = &job->origin[job->n];
    struct bmc_plan_tensor *plan = &job->plan[job->n];
    weight_kind_tensor_name(kind, layer, origin->name);
    origin->kind = kind;
    *plan = (struct bmc_plan_tensor){.name = origin->name, .tied_to = -1};
    struct config own;
    const struct config *c = config_of_layer(&job->config, layer, &own);
    plan->n_dims = weight_kind_shape(kind, c, plan->shape);
    job->n++;
    if (job->config.tied_head && strcmp(kind->name, "head.weight") == 0) {
        plan->tied_to = 0; /* index of the embedding, the first weight kind */
        return 0;
    }
    origin->tensor = job->file ? bmc_file_find(job->file, origin->name) : NULL;
    if (!job->synthetic && !job->file &&
        tensor_sources_find(&origin->from, job->source, &job->family, c, kind, layer, err) < 0)
        return -1;
    return choose_type(job, origin, layer, plan, err);
}

/* Plans the weight kinds [first, end) for layers 0 .. times - 1. */
static int plan_kinds(struct convert_job *job, size_t first, size_t end, size_t times, struct err *err)
{
    for (size_t layer = 0; layer < times; layer++)
        for (size_t i = first; i < end; i++)
            if (weight_kind_has(&weight_kinds[i], &job->config, layer) &&
                plan_tensor(job, &weight_kinds[i], layer, err) < 0)
                return -1;
    return 0;
}

/* Plans all output tensors, layer by layer in the order of weight_kinds[]. */
static int plan_tensors(struct convert_job *job, struct err *err)
{
    const size_t most = n_weight_kinds * (job->config.layers + 1);
    job->plan = calloc(most, sizeof *job->plan);
    job->origin = calloc(most, sizeof *job->origin);
    if (!job->plan || !job->origin)
        return err_no_memory(err, "a plan of %zu tensors", most);
    size_t first = 0;
    while (!weight_kind_in_layer(&weight_kinds[first]))
        first++;
    size_t last = first;
    while (weight_kind_in_layer(&weight_kinds[last]))
        last++;
    return plan_kinds(job, 0, first, 1, err) < 0 ||
                   plan_kinds(job, first, last, job->config.layers, err) < 0
               ? -1
               : plan_kinds(job, last, n_weight_kinds, 1, err);
}

/* Tensors of a source that a conversion uses, or need not use. */
struct tensor_list {
    const struct source_tensor **tensor;
    size_t n, cap;
};

static int list_tensor(struct tensor_list *list, const struct source_tensor *tensor, struct err *err)
{
    if (mem_grow(&list->tensor, &list->cap, list->n, sizeof(*list->tensor), err) < 0)
        return -1;
    list->tensor[list->n++] = tensor;
    return 0;
}

/* Lists the tensors of MTP layers after the first, which are not used. */
static int list_other_layers(struct tensor_list *list, const struct convert_job *draft, struct err *err)
{
    char name[TENSOR_NAME_SIZE];
    for (size_t layer = 1; layer < draft->mtp_layers; layer++)
        for (size_t i = 0; i < n_weight_kinds; i++)
            for (size_t nth = 0; family_tensor(&draft->family, &weight_kinds[i],
                                               (struct tensor_place){layer, 0}, nth, name);
                 nth++)
                if (list_tensor(list, source_find(draft->source, name), err) < 0)
                    return -1;
    return 0;
}

static int list_used(struct tensor_list *list, const struct convert_job *job, struct err *err)
{
    for (size_t i = 0; i < job->n; i++)
        for (size_t k = 0; k < job->origin[i].from.n; k++)
            if (list_tensor(list, job->origin[i].from.import[k].from, err) < 0)
                return -1;
    for (size_t i = 0; i < ARRAY_LEN(job->copy); i++)
        if (list_tensor(list, job->copy[i], err) < 0)
            return -1;
    return list_other_layers(list, job, err);
}

/* Fails if the source has tensors that the plans do not use: they would be dropped silently. */
static int check_unused(struct convert_job *job, const struct convert_job *draft, struct err *err)
{
    struct tensor_list list = {0};
    int rc = list_used(&list, job, err) < 0 || list_used(&list, draft, err) < 0 ? -1 : 0;
    if (rc == 0)
        rc = check_unused_tensors(job->source, &job->family, &job->config, list.tensor, list.n,
                                  &job->notes.left_out, err);
    free(list.tensor);
    return rc;
}

bool convert_makes_gguf(const char *out_path) { return out_path && text_ends_like(out_path, ".gguf"); }

/* Bytes of an output tensor, in a model.bmc padding included. */
static size_t planned_bytes(const struct bmc_plan_tensor *plan, bool gguf)
{
    const size_t stack = plan->n_dims == 3, n = stack ? plan->shape[0] : 1;
    const struct block_type *block = &block_types[plan->dtype];
    size_t elements = 1;
    for (size_t i = 0; i < plan->n_dims; i++)
        elements *= plan->shape[i];
    if (gguf && block->name)
        return elements / block->elements * block->bytes;
    return plan->n_dims > 1
               ? n * layout_bytes(plan->layout, plan->dtype, plan->shape[stack], plan->shape[stack + 1])
               : plan->shape[0] * dtype_size(plan->dtype);
}

static const char *matrices(size_t n) { return n == 1 ? "matrix" : "matrices"; }

/* Notes that matrices of 5 bits or fewer are quantised again, that some keep types which are narrower than the asked
 * one, and that types of other blocks replace those that do not fit the rows. */
static void note_types(struct convert_job *job)
{
    struct convert_notes *notes = &job->notes;
    const struct tensor_origin *again = NULL, *kept = NULL, *replaced = NULL;
    size_t n_again = 0, n_kept = 0, n_replaced = 0;
    for (size_t i = 0; i < job->n; i++) {
        const struct tensor_origin *o = &job->origin[i];
        const enum dtype from = type_of_origin(o), to = job->plan[i].dtype;
        if (!o->transcoded && dtype_is_quantized(from) && dtype_is_quantized(to) &&
            (quant_types[from].bits <= 5 || quant_has_grid(from))) {
            n_again++;
            again = o;
        }
        if (o->transcoded && o->fits != to) {
            n_kept++;
            kept = o;
        } else if (dtype_is_quantized(to) && o->asked != to) {
            n_replaced++;
            replaced = replaced && o->asked != job->options->types.type ? replaced : o;
        }
    }
    if (again)
        err_set(
            &notes->requantized,
            "%zu %s of 5 bits or fewer (as %s) %s quantised again, which adds to the error: convert "
            "from a source of more bits if there is one",
            n_again, matrices(n_again), dtype_name(type_of_origin(again)), n_again > 1 ? "are" : "is");
    if (kept)
        err_set(&notes->kept,
                "%zu %s %s as in the source (%s instead of %s): types of as many bits or more gain "
                "nothing",
                n_kept, matrices(n_kept), n_kept > 1 ? "stay" : "stays",
                dtype_name(type_of_origin(kept)), dtype_name(kept->fits));
    if (replaced)
        err_set(
            &notes->replaced,
            "%zu %s %s a wider type, as rows are no multiple of 256 weights (of %zu in %s, where %s "
            "replaces %s)",
            n_replaced, matrices(n_replaced), n_replaced > 1 ? "get" : "gets",
            job->plan[replaced - job->origin].shape[job->plan[replaced - job->origin].n_dims - 1],
            replaced->name, dtype_name(replaced->fits), dtype_name(replaced->asked));
}

/* Notes that quantised matrices of the source are dequantised, as no quantised type holds their values. */
static void note_dequantized(struct convert_job *job)
{
    const struct tensor_origin *first = NULL;
    size_t n = 0, bytes = 0;
    enum dtype to = DTYPE_BF16;
    for (size_t i = 0; i < job->n; i++) {
        const struct tensor_origin *o = &job->origin[i];
        const enum dtype type = job->plan[i].dtype;
        if (!o->from.n || !o->from.import->from->split || dtype_is_quantized(type) ||
            type != type_of_origin(o))
            continue;
        first = first ? first : o;
        n++;
        bytes += planned_bytes(&job->plan[i], false);
        to = type == DTYPE_F32 ? type : to;
    }
    if (n)
        err_set(&job->notes.dequantized,
                "%zu %s of %s %s %s, the narrowest type that holds the values exactly: %.1f MB%s", n,
                matrices(n), first->from.import->from->type_name, n > 1 ? "become" : "becomes",
                dtype_name(to), (double)bytes / 1e6,
                to == DTYPE_F32 ? "; --type bf16, which rounds them, or q8_0 takes less" : "");
}

/* GGUF has no key for inputs that are rounded. */
static void note_unrounded(struct convert_job *job)
{
    if (job->config.plan[0].round_inputs)
        err_set(&job->notes.unrounded,
                "inputs of products are rounded to 8 bits per token, which a GGUF file does not say");
}

/* Passes the planned tensors to the caller. */
static int list_planned(const struct convert_job *job, bool gguf, struct err *err)
{
    const struct convert_options *o = job->options;
    for (size_t i = 0; i < job->n && o->planned; i++) {
        const struct bmc_plan_tensor *plan = &job->plan[i];
        const enum dtype from = type_of_origin(&job->origin[i]);
        const struct planned_tensor tensor = {
            .prefix = job->mtp_layers ? DRAFT_PREFIX : "",
            .name = plan->name,
            .source = job->synthetic           ? NULL
                      : block_types[from].name ? block_types[from].name
                                               : dtype_name(from),
            .type = plan->dtype,
            .shape = plan->shape,
            .n_dims = plan->n_dims,
            .bytes = planned_bytes(plan, gguf),
        };
        if (plan->tied_to < 0 && o->planned(o->planned_arg, &tensor, err) < 0)
            return -1;
    }
    return 0;
}

static void count_transcoded(const struct convert_job *job)
{
    for (size_t i = 0; job->options->transcoded && i < job->n; i++) {
        const struct bmc_plan_tensor *plan = &job->plan[i];
        if (plan->tied_to >= 0 || !plan->source || job->file)
            continue;
        const enum dtype from = job->origin[i].from.import->from->type;
        const struct block_type *block = &block_types[from];
        struct transcoded_type *held = &job->options->transcoded[from];
        held->stored = plan->dtype;
        held->tensors++;
        const size_t stack = plan->n_dims == 3, n = stack ? plan->shape[0] : 1,
                     out = plan->shape[stack], in = plan->shape[stack + 1];
        held->weights += n * out * in;
        held->source_bytes += n * out * in / block->elements * block->bytes;
        held->stored_bytes += planned_bytes(plan, false);
    }
}

/* The plan of a model, or of a draft head, as the writer needs it. */
static struct bmc_plan plan_of(struct convert_job *job)
{
    return (struct bmc_plan){
        .config = job->config_text.data,
        .config_bytes = job->config_text.len,
        .tokenizer = job->tokenizer.data,
        .tokenizer_bytes = job->tokenizer.len,
        .chat = job->chat.data,
        .chat_bytes = job->chat.len,
        .tensor = job->plan,
        .n_tensors = job->n,
        .produce = produce,
        .private = job->options->private,
        .progress = report_progress,
        .arg = job,
    };
}

static int read_texts(void *arg, struct weight_source *source, struct model_texts *texts,
                      struct err *err);

/* Refuses options that a copy of a GGUF file would ignore, and notes what GGUF files do not have of a model. */
static int check_gguf(struct convert_job *job, bool draft, struct err *err)
{
    const struct convert_options *o = job->options;
    struct chat chat;
    const bool copied = gguf_of_source(job->source);
    if (copied && (o->no_bos || o->chat))
        return err_set(err,
                       "%s: metadata of GGUF files are copied to GGUF files, which --no-bos and "
                       "--chat-template do not change: convert it to a .bmc model with them, and "
                       "that to GGUF",
                       job->source->path);
    if (draft)
        err_set(&job->notes.draft, "its draft head is not written: the GGUF file has the model alone");
    if (copied || !job->chat.len)
        return 0;
    if (chat_parse(&chat, job->chat.data, job->chat.len, job->source->path, err) < 0)
        return -1;
    if (chat.name && !chat.n_jinja)
        err_set(&job->notes.chat,
                "its chat format %.80s is not written: GGUF files have Jinja templates alone; "
                "--chat-template FILE.jinja gives one",
                chat.name);
    chat_release(&chat);
    return 0;
}

static int write_gguf(struct convert_job *job, const struct bmc_plan *plan, bool draft,
                      const char *path, struct err *err)
{
    if (check_gguf(job, draft, err) < 0)
        return -1;
    const struct gguf_out out = {.plan = plan,
                                 .config = &job->config,
                                 .models_dir = job->options->models_dir,
                                 .source = job->source,
                                 .name = job->source->path,
                                 .certificate = job->options->certificate,
                                 .dry_run = job->options->dry_run,
                                 .size = job->options->size,
                                 .read_texts = read_texts,
                                 .arg = (void *)(uintptr_t)job->options};
    return gguf_out_write(&out, path, err);
}

/* Adds what was measured to the configuration of a .bmc model, whose readers skip these lines. */
static int certify(struct convert_job *job, const char *out_path, struct err *err)
{
    const char *lines = job->options->certificate;
    return lines && !convert_makes_gguf(out_path)
               ? buf_add(&job->config_text, lines, strlen(lines), err)
               : 0;
}

/* Writes a model and its draft head, if draft->mtp_layers is not 0. */
static int write_plan(struct convert_job *job, struct convert_job *draft, const char *out_path,
                      struct hash *model_id, struct err *err)
{
    const struct convert_options *o = job->options;
    const bool both = draft->mtp_layers > 0, gguf = convert_makes_gguf(out_path);
    if (tensor_types_check(&o->types, &job->config, both ? &draft->config : NULL, err) < 0 ||
        plan_tensors(job, err) < 0 || (both && plan_tensors(draft, err) < 0) ||
        (!job->synthetic && !job->file && check_unused(job, draft, err) < 0) ||
        config_write(&job->config, &job->config_text, err) < 0 || certify(job, out_path, err) < 0 ||
        (both && config_write(&draft->config, &draft->config_text, err) < 0))
        return -1;
    if (!gguf) {
        count_transcoded(job);
        count_transcoded(draft);
    }
    note_types(job);
    note_dequantized(job);
    if (gguf)
        note_unrounded(job);
    struct bmc_plan plan = plan_of(job);
    const struct bmc_plan draft_plan = plan_of(draft);
    if (both && !gguf)
        plan.draft = &draft_plan;
    if (o->size && !gguf && bmc_file_planned_size(&plan, out_path ? out_path : "", o->size, err) < 0)
        return -1;
    if (list_planned(job, gguf, err) < 0 || (!gguf && list_planned(draft, gguf, err) < 0))
        return -1;
    if (gguf)
        return write_gguf(job, &plan, both, out_path, err);
    return o->dry_run ? 0 : bmc_file_write(&plan, out_path, model_id, err);
}

/* ---- sources ---- */

static int build_tokenizer(const struct convert_job *job, size_t rows, struct buf *blob,
                           struct err *err)
{
    const struct weight_source *source = job->source;
    if (!*source->tokenizer_name)
        return err_set(
            err,
            "%s: no tokenizer: needs tokenizer.json, tokenizer.model, vocab.json and merges.txt, "
            "tiktoken.model or tekken.json",
            source->path);
    const struct tokenizer_source texts = {
        .folder = source->path,
        .name = source->tokenizer_name,
        .tokenizer_json = text_of_source(source, SOURCE_TOKENIZER),
        .vocab_json = text_of_source(source, SOURCE_VOCAB),
        .merges_txt = text_of_source(source, SOURCE_MERGES),
        .added_tokens_json = text_of_source(source, SOURCE_ADDED_TOKENS),
        .tokenizer_config_json = text_of_source(source, SOURCE_TOKENIZER_CONFIG),
        .special_tokens_map_json = text_of_source(source, SOURCE_SPECIAL_TOKENS),
        .vocab_rows = rows,
        .no_bos = job->options->no_bos,
    };
    return tokenizer_build(&texts, blob, err);
}

static int find_chat(struct convert_job *job, struct err *err)
{
    const struct convert_options *o = job->options;
    const struct chat_choice choice = {o->models_dir, o->chat, o->no_bos};
    struct chat_report report;
    if (chat_of_source(job->source, &choice, &job->config, &job->tokenizer, &job->chat, &report, err) <
        0)
        return -1;
    if (o->chat_report)
        *o->chat_report = report;
    return 0;
}

static int open_family(struct convert_job *job, const json_t *config, struct err *err)
{
    const struct convert_options *o = job->options;
    const char *name = job->source->config_name;
    if (o->family)
        return family_open(&job->family, o->models_dir, o->family, err);
    const char *architecture = json_string_value(json_array_get(json_at(config, "architectures"), 0));
    if (!architecture)
        return err_set(err, "%s: \"architectures\" is missing, so the family is unknown; use --family",
                       name);
    if (family_find(&job->family, o->models_dir, architecture, job->source, err) < 0)
        return err_prefix(err, "%s", name);
    return 0;
}

/* The configuration of the text model, with the architecture that the family lists. */
static json_t *text_config(const struct family *family, const json_t *config, struct err *err)
{
    json_t *text = family_text_config(family, config, err);
    if (!text || !*family->model)
        return text;
    return json_or_null(text, json_put(text, "architectures", json_pack("[s]", family->model), err),
                        err);
}

static int configure(struct convert_job *job, struct err *err)
{
    const struct weight_source *source = job->source;
    const json_t *config = source->json[SOURCE_CONFIG];
    const json_t *generation = source->json[SOURCE_GENERATION];
    if (open_family(job, config, err) < 0 || family_take_names(&job->family, source, err) < 0)
        return -1;
    json_t *text = text_config(&job->family, config, err);
    int rc = text ? family_configure(&job->family, text, source, &job->config, err) : -1;
    /* a draft head has the target's vocabulary, and ends no text */
    if (rc == 0 && !config_is_draft_head(&job->config))
        rc = eos_read(&job->config, generation, text, source->path, err);
    json_decref(text);
    return rc;
}

static bool is_copy(const struct source_tensor *a, const struct source_tensor *b)
{
    return a && b && a->type == b->type && a->n_dims == b->n_dims && a->bytes == b->bytes &&
           memcmp(a->dim, b->dim, a->n_dims * sizeof *a->dim) == 0 && !a->strided && !b->strided &&
           !a->split && !b->split && memcmp(a->data, b->data, a->bytes) == 0;
}

/* Decides about the LM head. A model whose architecture has none, or whose weights lack one that is not
 * tied, is for embeddings. If the source has one that is no copy of the embedding, it is not tied,
 * as in transformers. */
static void check_head(struct convert_job *job)
{
    const struct source_tensor *head = tensor_sources_single(job->source, &job->family, "head.weight");
    const struct source_tensor *embed =
        tensor_sources_single(job->source, &job->family, "embed.weight");
    const bool base = *job->family.model, tied = job->config.tied_head;
    if (!head && !config_is_draft_head(&job->config) && (base || !tied)) {
        job->config.no_head = true;
        job->config.tied_head = false;
        err_set(&job->notes.head, "has no LM head (%s): it is a model for embeddings (bmc-gen --embed)",
                base ? "by its architecture" : "its weights lack one");
    }
    if (!tied || !head || !embed || is_copy(head, embed))
        return;
    job->config.tied_head = false;
    err_set(
        &job->notes.head,
        "the configuration ties the LM head to the embedding, but %.200s differs from it and is used",
        head->name);
}

/* Makes a draft head use a tensor of the model if its own is a copy: many checkpoints have
 * embedding and LM head twice. */
static void share_copy(struct convert_job *draft, const struct convert_job *model, const char *kind,
                       const char *model_kind, size_t index, bool *shared)
{
    const struct source_tensor *own = tensor_sources_single(draft->source, &draft->family, kind);
    if (!is_copy(own, tensor_sources_single(model->source, &model->family, model_kind)))
        return;
    draft->copy[index] = own;
    *shared = true;
}

/* Configures the draft head that the first MTP layer of a model's source is, if it has any. A
 * configuration may name layers that the weights lack: transformers drops them. */
static int configure_draft(struct convert_job *draft, const struct convert_job *model, struct err *err)
{
    const struct weight_source *source = model->source;
    const json_t *json = source->json[SOURCE_CONFIG];
    size_t n;
    if (config_is_draft_head(&model->config) || source->format->tensor_line)
        return 0;
    if (family_open_mtp(&draft->family, &model->family, draft->options->models_dir, source,
                        model->config.layers, &n, err) < 0)
        return -1;
    if (n == 0 || !tensor_sources_single(draft->source, &draft->family, "fusion.weight"))
        return 0;
    draft->mtp_layers = n;
    json_t *text = family_text_config(&draft->family, json, err);
    const int rc = text ? family_configure(&draft->family, text, source, &draft->config, err) : -1;
    json_decref(text);
    if (rc < 0)
        return -1;
    share_copy(draft, model, "embed.weight", "embed.weight", 0, &draft->config.target_embed);
    share_copy(draft, model, "head.weight", model->config.tied_head ? "embed.weight" : "head.weight", 1,
               &draft->config.target_head);
    return 0;
}

/* The tokenizer and the chat template; a draft head has none. */
static int add_texts(struct convert_job *job, struct err *err)
{
    if (config_is_draft_head(&job->config))
        return 0;
    return build_tokenizer(job, job->config.vocab, &job->tokenizer, err) < 0 ? -1 : find_chat(job, err);
}

/* Takes configuration, tokenizer and chat template from a model file. The configuration is borrowed. */
static int take_model(struct convert_job *job, const struct model *model, struct err *err)
{
    const struct bmc_file *file = job->file = &model->file;
    job->config = model->config;
    return buf_add(&job->tokenizer, (const char *)file->tokenizer, file->tokenizer_bytes, err) < 0
               ? -1
               : buf_add(&job->chat, file->chat, file->chat_bytes, err);
}

/* Converts a model file to another, which has other types. */
static int convert_model(const char *path, const char *out_path, const struct convert_options *options,
                         struct hash *model_id, struct err *err)
{
    struct weight_source source = {0};
    struct convert_job job = {.options = options, .source = &source}, draft = job;
    struct model *model, *head = NULL;
    if (options->family || options->chat || options->no_bos)
        return err_set(
            err,
            "%s: is a model file, which keeps its tensors' names, tokenizer and chat template: "
            "leave out --family, --chat-template and --no-bos, or convert its source",
            path);
    if (model_open_any(&model, path, path, err) < 0)
        return -1;
    snprintf(source.path, sizeof source.path, "%s", path);
    int rc = take_model(&job, model, err);
    if (rc == 0 && model->file.draft_offset) {
        draft.mtp_layers = 1;
        rc = model_open_draft(&head, model, err) < 0 ? -1 : take_model(&draft, head, err);
    }
    if (rc == 0)
        rc = write_plan(&job, &draft, out_path, model_id, err);
    if (options->notes)
        *options->notes = job.notes;
    job.config = draft.config = (struct config){0};
    job_release(&draft);
    job_release(&job);
    model_close(head);
    model_close(model);
    return rc;
}

/* Reads configuration, tokenizer and chat of a GGUF file that is about to be written. */
static int read_texts(void *arg, struct weight_source *source, struct model_texts *texts,
                      struct err *err)
{
    const struct convert_options plain = {.models_dir =
                                              ((const struct convert_options *)arg)->models_dir};
    struct convert_job job = {.options = &plain, .source = source};
    int rc = configure(&job, err);
    if (rc == 0) {
        check_head(&job);
        embedding_of_source(&job.config, source, &job.family, &job.notes);
        rc = add_texts(&job, err);
    }
    if (rc == 0)
        rc = config_write(&job.config, &job.config_text, err);
    *texts = (struct model_texts){job.config_text, job.tokenizer, job.chat};
    job.config_text = job.tokenizer = job.chat = (struct buf){0};
    job_release(&job);
    return rc;
}

int convert_folder(const char *folder, const char *out_path, const struct convert_options *options,
                   struct hash *model_id, struct err *err)
{
    struct weight_source source = {0};
    struct convert_job job = {.options = options, .source = &source}, draft = job;
    int rc = -1;
    if (path_detect(folder) == KIND_MODEL)
        return convert_model(folder, out_path, options, model_id, err);
    if (weight_source_open(&source, folder, SOURCE_ALL, err) < 0 || configure(&job, err) < 0)
        goto out;
    check_head(&job);
    embedding_of_source(&job.config, &source, &job.family, &job.notes);
    if (configure_draft(&draft, &job, err) == 0 && add_texts(&job, err) == 0)
        rc = write_plan(&job, &draft, out_path, model_id, err);
out:
    if (options->notes)
        *options->notes = job.notes;
    job_release(&draft);
    job_release(&job);
    weight_source_close(&source);
    return rc;
}

/* Enlarges the vocabulary if the tokenizer has more ids. */
static int grow_vocabulary(struct convert_job *job, struct err *err)
{
    struct tokenizer *tok = NULL;
    if (tokenizer_open(&tok, job->tokenizer.data, job->tokenizer.len, err) < 0)
        return -1;
    const size_t ids = size_max(job->source->tokens, tokenizer_vocab(tok));
    job->config.vocab = size_max(job->config.vocab, ids);
    tokenizer_free(tok);
    return 0;
}

/* Replaces the EOS ids of the shape by those of the tokenizer's source, if it has any. */
static int take_eos(struct convert_job *job, struct err *err)
{
    const struct config shape = job->config;
    const struct weight_source *source = job->source;
    if (eos_read(&job->config, source->json[SOURCE_GENERATION], source->json[SOURCE_CONFIG],
                 source->path, err) < 0)
        return -1;
    if (!job->config.n_eos)
        job->config = shape;
    return 0;
}

static int borrow_tokenizer(struct convert_job *job, const char *path, struct err *err)
{
    enum { MOST_IDS = 1 << 20 }; /* limit for damaged or malicious files */
    if (weight_source_open(job->source, path, SOURCE_TOKENIZER_ONLY, err) < 0)
        return -1;
    const size_t rows = size_max(MOST_IDS, size_max(job->config.vocab, job->source->tokens));
    if (build_tokenizer(job, rows, &job->tokenizer, err) < 0 || grow_vocabulary(job, err) < 0)
        return -1;
    return take_eos(job, err);
}

int convert_synth(const char *shape, const char *tokenizer_folder, uint64_t seed, const char *out_path,
                  const struct convert_options *options, struct hash *model_id, struct err *err)
{
    struct weight_source source = {0};
    struct convert_job job = {.options = options, .source = &source, .synthetic = true}, none = job;
    int rc = -1;
    if (shape_configure(options->models_dir, shape, &job.config, err) < 0)
        goto out;
    if (!synth_open(&job.synth, seed)) {
        err_no_memory(err, "synthetic weights");
        goto out;
    }
    if (config_is_draft_head(&job.config)) {
        if (tokenizer_folder) {
            err_set(err, "%s: a draft head has no tokenizer: it uses that of its target", shape);
            goto out;
        }
    } else if (tokenizer_folder) {
        if (borrow_tokenizer(&job, tokenizer_folder, err) < 0)
            goto out;
    } else if (tokenizer_build_bytes(job.config.vocab, &job.tokenizer, err) < 0) {
        goto out;
    }
    rc = write_plan(&job, &none, out_path, model_id, err);
out:
    job_release(&job);
    weight_source_close(&source);
    return rc;
}
