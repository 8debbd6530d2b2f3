/* Making model.bmc. Both kinds of source fill one plan, role by role; the format room writes it. */
#include "model/convert.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"
#include "format/hfdir.h"
#include "model/eos.h"
#include "model/family.h"
#include "model/roles.h"
#include "model/synth.h"
#include "text/tokenizer.h"

/* One tensor to be written, and where its elements come from. */
struct source {
    char name[ROLE_NAME_SIZE];
    const struct role *role;
    const struct st_tensor *tensor; /* NULL: synthetic */
};

struct job {
    struct config config;
    const struct convert_options *options;
    struct hf_dir dir;
    struct family family;
    struct synth synth;
    bool synthetic;
    struct buf config_text, tokenizer;
    struct bmc_plan_tensor *plan;
    struct source *source;
    size_t n;
};

static void job_release(struct job *job)
{
    hf_dir_release(&job->dir);
    family_release(&job->family);
    synth_close(&job->synth);
    buf_release(&job->config_text);
    buf_release(&job->tokenizer);
    free(job->plan);
    free(job->source);
}

/* ---- elements ---- */

static float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    uint32_t bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000 | fraction << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        const float tiny = ldexpf((float)fraction, -24);
        return sign ? -tiny : tiny;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float load(enum st_type type, const unsigned char *at)
{
    uint16_t narrow;
    float wide;
    if (type == ST_F32) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return type == ST_BF16 ? bf16_to_f32(narrow) : f16_to_f32(narrow);
}

enum { PIECE = 1 << 16 };

struct conversion {
    enum st_type from;
    enum dtype to;
    const unsigned char *in;
    void *out;
    size_t n;
    atomic_bool broken;
};

static void convert_piece(void *arg, size_t index)
{
    struct conversion *c = arg;
    enum { FEW = 256 };
    const size_t size = c->from == ST_F32 ? 4 : 2, end = size_min(c->n, (index + 1) * PIECE);
    bool finite = true;
    float x[FEW];
    for (size_t at = index * PIECE, n; at < end; at += n) {
        char *to = (char *)c->out + at * dtype_size(c->to);
        n = size_min(FEW, end - at);
        for (size_t i = 0; i < n; i++)
            x[i] = load(c->from, c->in + (at + i) * size);
        dtype_narrow(to, c->to, x, n);
        dtype_widen(x, c->to, to, n);
        for (size_t i = 0; i < n; i++)
            finite = finite && isfinite(x[i]);
    }
    if (!finite)
        atomic_store(&c->broken, true);
}

/* Converts `n` elements; false when one is NaN or infinite, before or after. */
static bool convert_elements(enum st_type from, const unsigned char *in, enum dtype to, void *out,
                             size_t n)
{
    struct conversion c = {from, to, in, out, n, false};
    threads_each(div_up(n, PIECE), 4 * n, convert_piece, &c);
    return !c.broken;
}

/* Synthetic vectors: gains are 1, biases 0. */
static void fill_constant(enum fill fill, enum dtype type, void *out, size_t n)
{
    const float x = fill == FILL_ONE ? 1 : 0;
    for (size_t i = 0; i < n; i++)
        dtype_narrow((char *)out + i * dtype_size(type), type, &x, 1);
}

static int produce(void *arg, size_t index, size_t first_row, size_t rows, void *bytes, struct err *err)
{
    const struct job *job = arg;
    const struct source *source = &job->source[index];
    const struct bmc_plan_tensor *plan = &job->plan[index];
    const size_t row = plan->n_dims == 2 ? plan->shape[1] : 1;
    const size_t first = first_row * row, n = rows * row;
    if (job->synthetic && source->role->fill == FILL_RANDOM) {
        synth_fill(&job->synth, index, first, n, plan->dtype, bytes);
    } else if (job->synthetic) {
        fill_constant(source->role->fill, plan->dtype, bytes, n);
    } else {
        const struct st_tensor *tensor = source->tensor;
        const size_t size = tensor->type == ST_F32 ? 4 : 2;
        if (!convert_elements(tensor->type, tensor->data + first * size, plan->dtype, bytes, n))
            return err_set(
                err,
                "%s: tensor \"%s\" has weights that are NaN or infinite as %s; the model is damaged",
                job->dir.path, tensor->name, dtype_name(plan->dtype));
    }
    return 0;
}

static void report(void *arg, size_t done, size_t total)
{
    const struct job *job = arg;
    if (job->options->progress)
        job->options->progress(job->options->arg, done, total);
}

/* ---- the plan ---- */

/* Finds the source tensor of a role, and says all names that were tried when there is none. */
static const struct st_tensor *find_source(const struct job *job, const struct role *role, size_t layer,
                                           struct err *err)
{
    char name[256], first[256] = "";
    for (size_t nth = 0; family_tensor_name(&job->family, role->name, layer, nth, name, sizeof name);
         nth++) {
        const struct st_tensor *tensor = hf_dir_find(&job->dir, name);
        if (tensor)
            return tensor;
        if (nth == 0)
            memcpy(first, name, sizeof first);
    }
    if (*first)
        err_set(err, "%s: no tensor \"%s\" in its weights", job->dir.path, first);
    else
        err_set(err, "%s: names no tensor for \"%s\"", job->family.conf.name, role->name);
    return NULL;
}

static int check_source(const struct job *job, const struct st_tensor *tensor, size_t out, size_t in,
                        size_t n_dims, struct err *err)
{
    if (tensor->type == ST_OTHER)
        return err_set(err, "%s: tensor \"%s\" is %s; F32, F16 and BF16 can be converted",
                       job->dir.path, tensor->name, tensor->type_name);
    if (tensor->n_dims != n_dims || tensor->dim[0] != out || (n_dims == 2 && tensor->dim[1] != in))
        return err_set(err,
                       "%s: tensor \"%s\" is [%zu][%zu] in the weights, config.json means [%zu][%zu]",
                       job->dir.path, tensor->name, tensor->n_dims ? tensor->dim[0] : 0,
                       tensor->n_dims > 1 ? tensor->dim[1] : 1, out, in);
    return 0;
}

/* Vectors are f32 always: they are small, and kernels need not ask. */
static enum dtype target_type(const struct job *job, const struct role *role,
                              const struct st_tensor *tensor)
{
    if (role->in == DIM_NONE)
        return DTYPE_F32;
    if (job->options->type != DTYPE_COUNT)
        return job->options->type;
    return !tensor || tensor->type == ST_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

static int plan_tensor(struct job *job, const struct role *role, size_t layer, struct err *err)
{
    struct source *source = &job->source[job->n];
    struct bmc_plan_tensor *plan = &job->plan[job->n];
    const size_t out = config_dim(&job->config, role->out), in = config_dim(&job->config, role->in);
    role_tensor_name(role, layer, source->name);
    source->role = role;
    *plan = (struct bmc_plan_tensor){.name = source->name,
                                     .tied_to = -1,
                                     .n_dims = role->in == DIM_NONE ? 1 : 2,
                                     .shape = {out, in}};
    job->n++;
    if (job->config.tied_head && strcmp(role->name, "head.weight") == 0) {
        plan->tied_to = 0; /* the embedding is the first role of the table */
        return 0;
    }
    if (!job->synthetic) {
        source->tensor = find_source(job, role, layer, err);
        if (!source->tensor || check_source(job, source->tensor, out, in, plan->n_dims, err) < 0)
            return -1;
    }
    plan->dtype = target_type(job, role, source->tensor);
    plan->layout = role_layout(role, &job->config);
    return 0;
}

/* Layer by layer in the order of the table, so that what is read together lies together. */
static int plan_tensors(struct job *job, struct err *err)
{
    const size_t most = n_roles * (job->config.layers + 1);
    job->plan = calloc(most, sizeof *job->plan);
    job->source = calloc(most, sizeof *job->source);
    if (!job->plan || !job->source)
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

static int write_plan(struct job *job, const char *out_path, struct hash *model_id, struct err *err)
{
    if (plan_tensors(job, err) < 0 || config_write(&job->config, &job->config_text, err) < 0)
        return -1;
    const struct bmc_plan plan = {
        .config = job->config_text.data,
        .config_bytes = job->config_text.len,
        .tokenizer = job->tokenizer.data,
        .tokenizer_bytes = job->tokenizer.len,
        .tensor = job->plan,
        .n_tensors = job->n,
        .produce = produce,
        .progress = report,
        .arg = job,
    };
    return bmc_file_write(&plan, out_path, model_id, err);
}

/* ---- sources ---- */

static int build_tokenizer(const struct hf_dir *dir, size_t vocab, struct buf *blob, struct err *err)
{
    const struct file_map *file = dir->file;
    const struct tokenizer_source source = {
        .folder = dir->path,
        .tokenizer_json = {(const char *)file[HF_TOKENIZER].data, file[HF_TOKENIZER].size},
        .vocab_json = {(const char *)file[HF_VOCAB].data, file[HF_VOCAB].size},
        .merges_txt = {(const char *)file[HF_MERGES].data, file[HF_MERGES].size},
        .tokenizer_config_json = {(const char *)file[HF_TOKENIZER_CONFIG].data,
                                  file[HF_TOKENIZER_CONFIG].size},
        .special_tokens_map_json = {(const char *)file[HF_SPECIAL_TOKENS].data,
                                    file[HF_SPECIAL_TOKENS].size},
        .vocab_rows = vocab,
    };
    return tokenizer_build(&source, blob, err);
}

static int open_family(struct job *job, struct err *err)
{
    if (job->options->family)
        return family_open(&job->family, job->options->family, err);
    const char *architecture =
        json_string_value(json_array_get(json_at(job->dir.config, "architectures"), 0));
    if (!architecture)
        return err_set(err, "%s/config.json: names no architecture (\"architectures\": [\"...\"])",
                       job->dir.path);
    if (family_find(&job->family, job->options->models_dir, architecture, err) < 0)
        return err_prefix(err, "%s/config.json", job->dir.path);
    return 0;
}

int convert_folder(const char *folder, const char *out_path, const struct convert_options *options,
                   struct hash *model_id, struct err *err)
{
    struct job job = {.options = options};
    char name[4096 + 32];
    int rc = -1;
    snprintf(name, sizeof name, "%s/config.json", folder);
    if (hf_dir_open(&job.dir, folder, err) < 0 || open_family(&job, err) < 0 ||
        family_configure(&job.family, job.dir.config, name, &job.config, err) < 0 ||
        eos_read(&job.config, job.dir.generation_config, job.dir.config, folder, err) < 0 ||
        build_tokenizer(&job.dir, job.config.vocab, &job.tokenizer, err) < 0)
        goto out;
    rc = write_plan(&job, out_path, model_id, err);
out:
    job_release(&job);
    return rc;
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
        if (hf_dir_open_tokenizer(&job.dir, tokenizer_folder, err) < 0 ||
            build_tokenizer(&job.dir, job.config.vocab, &job.tokenizer, err) < 0)
            goto out;
    } else if (tokenizer_build_bytes(job.config.vocab, &job.tokenizer, err) < 0) {
        goto out;
    }
    rc = write_plan(&job, out_path, model_id, err);
out:
    job_release(&job);
    return rc;
}
