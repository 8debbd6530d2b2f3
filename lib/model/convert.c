/* Making model.bmc. Both kinds of source fill one plan, role by role; the format room writes it. */
#include "model/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pack.h"
#include "format/source.h"
#include "model/chat_source.h"
#include "model/eos.h"
#include "model/family.h"
#include "model/pick.h"
#include "model/quantise.h"
#include "model/roles.h"
#include "model/synth.h"
#include "model/unused.h"
#include "text/tok_build.h"
#include "text/tokenizer.h"

/* One tensor to be written, and where its elements come from. */
struct origin {
    char name[ROLE_NAME_SIZE];
    const struct role *role;
    struct pick pick;    /* where it is not synthetic */
    const float *weight; /* of inputs, for the rounding to few bits, or NULL */
    bool taken;          /* few bits of the source, over as they are */
};

struct job {
    struct config config;
    const struct convert_options *options;
    struct weight_source source;
    struct family family;
    struct synth synth;
    bool synthetic;
    struct buf config_text, tokenizer, chat;
    struct bmc_plan_tensor *plan;
    struct origin *origin;
    size_t n;
    float *wide; /* rows that become few bits */
    size_t wide_n;
};

static void job_release(struct job *job)
{
    free(job->wide);
    weight_source_close(&job->source);
    family_release(&job->family);
    synth_close(&job->synth);
    buf_release(&job->config_text);
    buf_release(&job->tokenizer);
    buf_release(&job->chat);
    free(job->plan);
    free(job->origin);
}

/* ---- elements ---- */

/* Synthetic vectors: gains are 1, biases 0. */
static void fill_constant(enum fill fill, enum dtype type, void *out, size_t n)
{
    const float x = fill == FILL_ONE ? 1 : 0;
    for (size_t i = 0; i < n; i++)
        dtype_narrow((char *)out + i * dtype_size(type), type, &x, 1);
}

static int check_worst(const struct job *job, size_t index, enum pick_worst worst, struct err *err)
{
    const enum dtype type = job->plan[index].dtype;
    const char *path = job->source.path, *name = job->origin[index].pick.from->name;
    if (worst == PICK_FINITE)
        return 0;
    if (worst == PICK_TOO_LARGE)
        return err_set(err, "%s: tensor \"%s\" has weights that are too large for %s: take --type %s",
                       path, name, dtype_name(type), type == DTYPE_BF16 ? "f32" : "bf16 or f32");
    return err_set(err,
                   "%s: tensor \"%s\" has weights that are NaN or infinite as %s; the model is damaged",
                   path, name, dtype_name(type));
}

/* Rows of a tensor in a type that has a dtype_size(), or that of the source, taken over. */
static int fill(const struct job *job, size_t index, size_t first_row, size_t rows, enum dtype type,
                void *to, struct err *err)
{
    const struct origin *origin = &job->origin[index];
    const struct bmc_plan_tensor *plan = &job->plan[index];
    const size_t row = plan->n_dims == 2 ? plan->shape[1] : 1;
    if (!job->synthetic)
        return check_worst(job, index, pick_rows(&origin->pick, first_row, rows, type, to), err);
    if (origin->role->fill == FILL_RANDOM)
        synth_fill(&job->synth, index, first_row * row, rows * row, type, to);
    else
        fill_constant(origin->role->fill, type, to, rows * row);
    return 0;
}

/* Rows become few bits by way of f32. */
static int fill_few(struct job *job, size_t index, size_t first_row, size_t rows, void *to,
                    struct err *err)
{
    const struct bmc_plan_tensor *plan = &job->plan[index];
    const size_t in = plan->shape[1], n = rows * in;
    if (job->wide_n < n) {
        free(job->wide);
        job->wide = mem_alloc(n, sizeof *job->wide);
        job->wide_n = job->wide ? n : 0;
        if (!job->wide)
            return err_set(err, "out of memory for %zu elements", n);
    }
    if (fill(job, index, first_row, rows, DTYPE_F32, job->wide, err) < 0)
        return -1;
    const struct quantise quantise = {.type = plan->dtype,
                                      .x = job->wide,
                                      .rows = rows,
                                      .n = in,
                                      .weight = job->origin[index].weight,
                                      .simple = job->synthetic,
                                      .to = to};
    return quantise_rows(&quantise) ? 0 : check_worst(job, index, PICK_TOO_LARGE, err);
}

static int produce(void *arg, size_t index, size_t first_row, size_t rows, void *bytes, struct err *err)
{
    struct job *job = arg;
    const enum dtype type = job->plan[index].dtype;
    const bool made = dtype_few_bits(type) && !job->origin[index].taken;
    const int rc = made ? fill_few(job, index, first_row, rows, bytes, err)
                        : fill(job, index, first_row, rows, type, bytes, err);
    if (rc == 0 && job->source.format && job->source.format->forget)
        job->source.format->forget(&job->source);
    return rc;
}

static void report(void *arg, size_t done, size_t total)
{
    const struct job *job = arg;
    if (job->options->progress)
        job->options->progress(job->options->arg, done, total);
}

/* ---- the plan ---- */

/* Finds what a role is made of, and says what was tried first when there is none. */
static int find_tensor(const struct job *job, const struct role *role, size_t layer, struct pick *pick,
                       struct err *err)
{
    char name[TENSOR_NAME_SIZE], first[TENSOR_NAME_SIZE] = "";
    const struct recipe *recipe;
    for (size_t nth = 0; (recipe = family_tensor(&job->family, role, layer, nth, name)); nth++) {
        const struct weight_source *source = &job->source;
        const struct source_tensor *tensor = source->format->find(source, name);
        if (tensor)
            return pick_plan(pick, tensor, recipe, role, &job->config, source->path, err);
        if (nth == 0)
            memcpy(first, name, sizeof first);
    }
    if (*first)
        return err_set(err, "%s: no tensor \"%s\" in its weights", job->source.path, first);
    return err_set(err, "%s: names no tensor for \"%s\"", job->family.conf.name, role->name);
}

/* Blocks whose values are all there, as they were, are remembered; those of few bits are taken over. */
static void note_blocks(struct origin *origin, struct bmc_plan_tensor *plan)
{
    const struct source_tensor *from = origin->pick.from;
    const bool same =
        from && block_types[from->type].elements > 1 && block_types[from->type].stored == plan->dtype;
    plan->source = same ? block_types[from->type].ggml : 0;
    origin->taken = same && dtype_few_bits(plan->dtype);
}

/* The type of a tensor, and how its rounding weighs its inputs. */
static int choose_type(const struct job *job, struct origin *origin, struct bmc_plan_tensor *plan,
                       struct err *err)
{
    const struct convert_options *o = job->options;
    const struct source_tensor *from = origin->pick.from;
    plan->dtype = types_choose(&o->types, &job->config, origin->role, origin->name,
                               from ? block_types[from->type].stored : DTYPE_BF16);
    plan->layout = role_layout(origin->role, &job->config, plan->dtype);
    note_blocks(origin, plan);
    if (!o->weighing || !dtype_few_bits(plan->dtype) || role_looked_up(origin->role, &job->config))
        return 0;
    return weighing_find(o->weighing, origin->name, plan->shape[1], &origin->weight, err);
}

static int plan_tensor(struct job *job, const struct role *role, size_t layer, struct err *err)
{
    struct origin *origin = &job->origin[job->n];
    struct bmc_plan_tensor *plan = &job->plan[job->n];
    const size_t out = config_dim(&job->config, role->out), in = config_dim(&job->config, role->in);
    role_tensor_name(role, layer, origin->name);
    origin->role = role;
    *plan = (struct bmc_plan_tensor){.name = origin->name,
                                     .tied_to = -1,
                                     .n_dims = role->in == DIM_NONE ? 1 : 2,
                                     .shape = {out, in}};
    job->n++;
    if (job->config.tied_head && strcmp(role->name, "head.weight") == 0) {
        plan->tied_to = 0; /* the embedding is the first role of the table */
        return 0;
    }
    if (!job->synthetic && find_tensor(job, role, layer, &origin->pick, err) < 0)
        return -1;
    return choose_type(job, origin, plan, err);
}

/* Layer by layer in the order of the table, so that what is read together lies together. */
static int plan_tensors(struct job *job, struct err *err)
{
    const size_t most = n_roles * (job->config.layers + 1);
    job->plan = calloc(most, sizeof *job->plan);
    job->origin = calloc(most, sizeof *job->origin);
    if (!job->plan || !job->origin)
        return err_set(err, "out of memory for a plan of %zu tensors", most);
    size_t first = 0;
    while (!role_in_layer(&roles[first]))
        first++;
    size_t last = first;
    while (role_in_layer(&roles[last]))
        last++;
    for (size_t i = 0; i < first; i++)
        if (role_wanted(&roles[i], &job->config) && plan_tensor(job, &roles[i], 0, err) < 0)
            return -1;
    for (size_t layer = 0; layer < job->config.layers; layer++)
        for (size_t i = first; i < last; i++)
            if (role_wanted(&roles[i], &job->config) && plan_tensor(job, &roles[i], layer, err) < 0)
                return -1;
    for (size_t i = last; i < n_roles; i++)
        if (role_wanted(&roles[i], &job->config) && plan_tensor(job, &roles[i], 0, err) < 0)
            return -1;
    return 0;
}

/* What the source has beyond the plan would be lost without a word. */
static int check_unused(const struct job *job, struct err *err)
{
    const struct source_tensor **used = calloc(job->n, sizeof(*used));
    if (!used)
        return err_set(err, "out of memory for a list of %zu tensors", job->n);
    for (size_t i = 0; i < job->n; i++)
        used[i] = job->origin[i].pick.from;
    const int rc = unused_refuse(&job->source, &job->family, &job->config, used, job->n, err);
    free(used);
    return rc;
}

/* What becomes of the source's quantised types. */
static void count_held(const struct job *job)
{
    for (size_t i = 0; job->options->held && i < job->n; i++) {
        const struct bmc_plan_tensor *plan = &job->plan[i];
        if (plan->tied_to >= 0 || !plan->source)
            continue;
        const enum source_type from = job->origin[i].pick.from->type;
        const struct block_type *block = &block_types[from];
        struct held_type *held = &job->options->held[from];
        held->stored = plan->dtype;
        held->tensors++;
        held->weights += plan->shape[0] * plan->shape[1];
        held->source_bytes += plan->shape[0] * plan->shape[1] / block->elements * block->bytes;
        held->stored_bytes += layout_bytes(plan->layout, plan->dtype, plan->shape[0], plan->shape[1]);
    }
}

static int write_plan(struct job *job, const char *out_path, struct hash *model_id, struct err *err)
{
    if (types_check(&job->options->types, &job->config, err) < 0 || plan_tensors(job, err) < 0 ||
        (!job->synthetic && check_unused(job, err) < 0) ||
        config_write(&job->config, &job->config_text, err) < 0)
        return -1;
    count_held(job);
    const struct bmc_plan plan = {
        .config = job->config_text.data,
        .config_bytes = job->config_text.len,
        .tokenizer = job->tokenizer.data,
        .tokenizer_bytes = job->tokenizer.len,
        .chat = job->chat.data,
        .chat_bytes = job->chat.len,
        .tensor = job->plan,
        .n_tensors = job->n,
        .produce = produce,
        .progress = report,
        .arg = job,
    };
    return bmc_file_write(&plan, out_path, model_id, err);
}

/* ---- sources ---- */

static int build_tokenizer(const struct job *job, size_t rows, struct buf *blob, struct err *err)
{
    const struct weight_source *source = &job->source;
    const struct tokenizer_source texts = {
        .folder = source->path,
        .name = source->tokenizer_name,
        .tokenizer_json = text_of_source(source, SOURCE_TOKENIZER),
        .vocab_json = text_of_source(source, SOURCE_VOCAB),
        .merges_txt = text_of_source(source, SOURCE_MERGES),
        .tokenizer_config_json = text_of_source(source, SOURCE_TOKENIZER_CONFIG),
        .special_tokens_map_json = text_of_source(source, SOURCE_SPECIAL_TOKENS),
        .vocab_rows = rows,
        .no_start = job->options->no_start,
    };
    return tokenizer_build(&texts, blob, err);
}

static int find_chat(struct job *job, struct err *err)
{
    const struct convert_options *o = job->options;
    const struct chat_wish wish = {o->models_dir, o->chat, o->no_start};
    bool unknown;
    if (chat_of_source(&job->source, &wish, &job->config, &job->tokenizer, &job->chat, &unknown, err) <
        0)
        return -1;
    if (o->template_unknown)
        *o->template_unknown = unknown;
    return 0;
}

static int open_family(struct job *job, const json_t *config, struct err *err)
{
    const struct convert_options *o = job->options;
    const char *name = job->source.config_name;
    if (o->family)
        return family_open(&job->family, o->models_dir, o->family, err);
    const char *architecture = json_string_value(json_array_get(json_at(config, "architectures"), 0));
    if (!architecture)
        return err_set(err, "%s: names no architecture (\"architectures\": [\"...\"])", name);
    if (family_find(&job->family, o->models_dir, architecture, err) < 0)
        return err_prefix(err, "%s", name);
    return 0;
}

/* The configuration, from what the source says about its model. */
static int configure(struct job *job, struct err *err)
{
    const struct weight_source *source = &job->source;
    const json_t *config = source->format->config(source, SOURCE_CONFIG);
    const json_t *generation = source->format->config(source, SOURCE_GENERATION);
    if (open_family(job, config, err) < 0 || family_take_names(&job->family, source, err) < 0 ||
        family_configure(&job->family, config, source->config_name, &job->config, err) < 0)
        return -1;
    return eos_read(&job->config, generation, config, source->path, err);
}

int convert_folder(const char *folder, const char *out_path, const struct convert_options *options,
                   struct hash *model_id, struct err *err)
{
    struct job job = {.options = options};
    int rc = -1;
    if (weight_source_open(&job.source, folder, SOURCE_ALL, err) == 0 && configure(&job, err) == 0 &&
        build_tokenizer(&job, job.config.vocab, &job.tokenizer, err) == 0 && find_chat(&job, err) == 0)
        rc = write_plan(&job, out_path, model_id, err);
    job_release(&job);
    return rc;
}

/* The shape gets a row for every id that the tokenizer has. */
static int grow_vocabulary(struct job *job, struct err *err)
{
    struct tokenizer *tok = NULL;
    if (tokenizer_open(&tok, job->tokenizer.data, job->tokenizer.len, err) < 0)
        return -1;
    const size_t ids = size_max(job->source.tokens, tokenizer_vocab(tok));
    job->config.vocab = size_max(job->config.vocab, ids);
    tokenizer_free(tok);
    return 0;
}

/* The end ids of the shape are of another vocabulary: those of the source count, where it says any. */
static int take_ends(struct job *job, struct err *err)
{
    const struct config shape = job->config;
    const struct weight_source *source = &job->source;
    if (eos_read(&job->config, source->format->config(source, SOURCE_GENERATION),
                 source->format->config(source, SOURCE_CONFIG), source->path, err) < 0)
        return -1;
    if (!job->config.n_eos)
        job->config = shape;
    return 0;
}

/* The tokenizer of a synthetic model, and what follows from it. */
static int borrow_tokenizer(struct job *job, const char *path, struct err *err)
{
    enum { MOST_IDS = 1 << 20 }; /* a hostile file could name any */
    if (weight_source_open(&job->source, path, SOURCE_ITS_TOKENIZER, err) < 0)
        return -1;
    const size_t rows = size_max(MOST_IDS, size_max(job->config.vocab, job->source.tokens));
    if (build_tokenizer(job, rows, &job->tokenizer, err) < 0 || grow_vocabulary(job, err) < 0)
        return -1;
    return take_ends(job, err);
}

int convert_synth(const char *shape, const char *tokenizer_folder, uint64_t seed, const char *out_path,
                  const struct convert_options *options, struct hash *model_id, struct err *err)
{
    struct job job = {.options = options, .synthetic = true};
    int rc = -1;
    if (shape_configure(options->models_dir, shape, &job.config, err) < 0)
        goto out;
    if (!synth_open(&job.synth, seed)) {
        err_set(err, "out of memory for synthetic weights");
        goto out;
    }
    if (tokenizer_folder) {
        if (borrow_tokenizer(&job, tokenizer_folder, err) < 0)
            goto out;
    } else if (tokenizer_build_bytes(job.config.vocab, &job.tokenizer, err) < 0) {
        goto out;
    }
    rc = write_plan(&job, out_path, model_id, err);
out:
    job_release(&job);
    return rc;
}
