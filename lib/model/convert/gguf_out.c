/* GGUF output: metadata, tensors, and reading both back before the file is written. */
#include "model/convert/gguf_out.h"

#include <stdio.h>

#include "base/number.h"
#include "base/text_util.h"
#include "format/gguf/gguf_source.h"
#include "format/gguf/gguf_write.h"
#include "model/convert/gguf_metadata.h"
#include "model/convert/gguf_tensors.h"

enum { QUANTIZATION_VERSION = 2 }; /* of ggml's blocks */

struct gguf_job {
    const struct gguf_out *out;
    struct gguf_values values;
    struct gguf_tensors tensors;
    struct family names;
};

/* ---- metadata of a GGUF file ---- */

static int by_address(const void *a, const void *b)
{
    const struct gguf_value *const *x = a, *const *y = b;
    return (*x)->key < (*y)->key ? -1 : (*x)->key > (*y)->key;
}

static bool is_key(const struct gguf_value *value, const char *key)
{
    return strlen(key) == value->key_len && memcmp(value->key, key, value->key_len) == 0;
}

/* True for what was measured of another file. */
static bool is_certificate(const struct gguf_value *value)
{
    static const char prefix[] = "bmc.quality_";
    return value->key_len >= strlen(prefix) && memcmp(value->key, prefix, strlen(prefix)) == 0;
}

/* True if a tensor has another type than in the source, so that its general.file_type may be wrong. */
static bool types_changed(const struct gguf_job *job)
{
    for (size_t i = 0; i < job->tensors.n; i++) {
        const struct source_tensor *old = source_find(job->out->source, job->tensors.tensor[i].name);
        if (!old || old->type != job->tensors.tensor[i].type->stored)
            return true;
    }
    return false;
}

/* Copies metadata in the order of the file, without those that this file has of its own. */
static int copy_metadata(struct gguf_job *job, const struct gguf *gguf, struct err *err)
{
    const struct gguf_value **value = calloc(gguf->n_values + 1, sizeof *value);
    const bool changed = types_changed(job);
    if (!value)
        return err_no_memory(err, "%s: its metadata", job->out->name);
    for (size_t i = 0; i < gguf->n_values; i++)
        value[i] = &gguf->value[i];
    qsort(value, gguf->n_values, sizeof *value, by_address);
    for (size_t i = 0; i < gguf->n_values; i++)
        if (!is_key(value[i], "general.quantization_version") &&
            !is_key(value[i], "general.alignment") && !is_certificate(value[i]) &&
            !is_key(value[i], "split.no") && !is_key(value[i], "split.count") &&
            !is_key(value[i], "split.tensors.count") &&
            !(changed && is_key(value[i], "general.file_type")))
            gguf_put_value(&job->values, value[i]);
    free(value);
    return job->values.failed ? -1 : 0;
}

/* ---- the file ---- */

static int produce(void *arg, size_t index, struct gguf_sink *sink, struct err *err)
{
    const struct gguf_job *job = arg;
    return gguf_tensors_produce(&job->tensors, index, job->out, sink, err);
}

static void progress(void *arg, size_t done, size_t total)
{
    const struct bmc_plan *plan = ((const struct gguf_job *)arg)->out->plan;
    if (plan->progress)
        plan->progress(plan->arg, done, total);
}

static struct gguf_plan plan_of(struct gguf_job *job)
{
    return (struct gguf_plan){.values = &job->values,
                              .tensor = job->tensors.tensor,
                              .n = job->tensors.n,
                              .produce = produce,
                              .progress = progress,
                              .arg = job};
}

/* Opens the model's family with the tensor names of an architecture. */
static int open_names(struct gguf_job *job, const struct gguf_arch *arch, struct err *err)
{
    struct weight_source source;
    int rc = gguf_names_open(&source, arch, err);
    if (rc == 0)
        rc = family_take_names(&job->names, &source, err);
    weight_source_close(&source);
    return rc;
}

/* ---- reading back ---- */

/* The first line in which the configuration `a` of a GGUF file differs from the model's, `b`, after the one with the
 * family; NULL: none. A line for which GGUF has no key, as a note says, is none. */
static const char *first_difference(const char *a, const char *b)
{
    static const char unsaid[] = "round_inputs true\n";
    a += strcspn(a, "\n");
    b += strcspn(b, "\n");
    const char *line = a;
    for (; *a && *a == *b; a++, b++)
        if (*a == '\n') {
            line = a + 1;
            if (strncmp(b + 1, unsaid, sizeof unsaid - 1) == 0)
                b += sizeof unsaid - 1;
        }
    return *a == *b ? NULL : line;
}

/* Replaces the reason why a file that is written cannot be read by one that says what to do. */
static void say_unreadable(const struct gguf_out *out, struct err *err)
{
    const struct err why = *err;
    if (why.code != ERR_NO_MEMORY)
        err_set(
            err,
            "%s: models of the %s family are not written as GGUF files: write a .bmc model (%.200s)",
            out->name, out->config->family, why.text);
}

/* Reads the file as it would be: 1 if it gives the same model, 0 and the reason in `err` if it does not. */
static int reads_same(const struct gguf_job *job, const struct gguf_plan *plan, struct err *err)
{
    static const char zeros[GGUF_ALIGNMENT];
    const struct gguf_out *out = job->out;
    struct buf head = {0};
    struct weight_source source = {0};
    struct model_texts texts = {0};
    size_t size;
    int rc = gguf_head(plan, &head, &size, err);
    for (size_t i = 0; i < plan->n && rc == 0 && job->tensors.origin[i].own; i++) {
        const size_t bytes = plan->tensor[i].bytes;
        rc = buf_add(&head, job->tensors.origin[i].own, bytes, err);
        if (rc == 0)
            rc = buf_add(&head, zeros, round_up(bytes, GGUF_ALIGNMENT) - bytes, err);
    }
    if (rc == 0) {
        rc = gguf_image_open(&source, head.data, size, out->name, err) == 0 &&
             out->read_texts(out->arg, &source, &texts, err) == 0;
        if (rc == 0)
            say_unreadable(out, err);
    }
    weight_source_close(&source);
    const char *line = rc == 1 ? first_difference(buf_text(&texts.config), out->plan->config) : NULL;
    if (line) {
        err_set(err,
                "%s: its configuration has no form in GGUF files of the %s family, which would be read "
                "as \"%.*s\"",
                out->name, out->config->family, (int)strcspn(line, "\n"), line);
        rc = 0;
    } else if (rc == 1 && (texts.tokenizer.len != out->plan->tokenizer_bytes ||
                           memcmp(texts.tokenizer.data, out->plan->tokenizer, texts.tokenizer.len))) {
        err_set(err, "%s: its tokenizer has no form in GGUF: it would be read as another one",
                out->name);
        rc = 0;
    }
    buf_release(&texts.config);
    buf_release(&texts.tokenizer);
    buf_release(&texts.chat);
    buf_release(&head);
    return rc;
}

/* Adds what was measured: numbers as such, the hash of the text as a string. */
static void put_certificate(struct gguf_job *job)
{
    const char *line = job->out->certificate;
    for (size_t len; line && *line; line += len + (line[len] == '\n')) {
        char key[64], value[64];
        double number;
        len = strcspn(line, "\n");
        const size_t word = strcspn(line, " ");
        snprintf(key, sizeof key, "bmc.%.*s", (int)word, line);
        snprintf(value, sizeof value, "%.*s", (int)(len - word - 1), line + word + 1);
        if (strcmp(key, "bmc.quality_text") != 0 && parse_double(value, &number))
            gguf_put_real(&job->values, key, number);
        else
            gguf_put_text(&job->values, key, value, strlen(value));
    }
}

static void add_own_keys(struct gguf_job *job)
{
    put_certificate(job);
    gguf_put_integer(&job->values, "general.quantization_version", GGUF_U32, QUANTIZATION_VERSION);
    gguf_put_integer(&job->values, "general.alignment", GGUF_U32, GGUF_ALIGNMENT);
}

/* Makes metadata for an architecture, without keys that have their usual values, or, if that would be read otherwise,
 * with all: 1; 0 and the reason in `err`: neither gives the same model. */
static int make_metadata(struct gguf_job *job, const struct gguf_arch *arch, struct err *err)
{
    int same = 0;
    if (gguf_metadata_vectors(&job->tensors, job->out, err) < 0)
        return -1;
    for (int all = 0; all < 2 && same == 0; all++) {
        buf_clear(&job->values.bytes);
        job->values.n = 0;
        if (gguf_metadata(&job->values, job->out, arch, &job->names, all, err) < 0)
            return -1;
        add_own_keys(job);
        const struct gguf_plan plan = plan_of(job);
        same = job->values.failed ? -1 : reads_same(job, &plan, err);
    }
    return same;
}

/* Plans the tensors of a model that is not from a GGUF file, for the first architecture that can have it. */
static int plan_made(struct gguf_job *job, struct err *err)
{
    const struct gguf_arch *arch = gguf_metadata_arch(&job->names, 0);
    int same = 0;
    if (!arch)
        return err_set(err, "%s: models of the %s family have no form in GGUF: write a .bmc model",
                       job->out->name, job->out->config->family);
    for (size_t nth = 0; same == 0 && (arch = gguf_metadata_arch(&job->names, nth)); nth++) {
        gguf_tensors_release(&job->tensors);
        same = open_names(job, arch, err) < 0 ||
                       gguf_tensors_plan(&job->tensors, job->out, &job->names, err) < 0
                   ? -1
                   : make_metadata(job, arch, err);
    }
    return same == 1 ? 0 : -1;
}

/* Plans the tensors of a model that is from a GGUF file. */
static int plan_copied(struct gguf_job *job, const struct gguf *gguf, struct err *err)
{
    const struct gguf_set set = {(struct gguf *)(uintptr_t)gguf, 1};
    const struct gguf_arch *arch;
    if (gguf_arch_find(&arch, &set, job->out->name, err) < 0 || open_names(job, arch, err) < 0 ||
        gguf_tensors_plan(&job->tensors, job->out, &job->names, err) < 0 ||
        copy_metadata(job, gguf, err) < 0)
        return -1;
    add_own_keys(job);
    return job->values.failed ? -1 : 0;
}

static int plan_all(struct gguf_job *job, struct err *err)
{
    const struct gguf *gguf = gguf_of_source(job->out->source);
    if (gguf_metadata_family(&job->names, job->out, err) < 0)
        return -1;
    return gguf ? plan_copied(job, gguf, err) : plan_made(job, err);
}

static void find_fused(const struct family *names, const struct weight_kind **first)
{
    char name[TENSOR_NAME_SIZE];
    const struct tensor_transform *transform;
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t nth = 0; (transform = family_tensor(names, &weight_kinds[i],
                                                        (struct tensor_place){0, 0}, nth, name));
             nth++)
            if (transform->n_parts)
                first[i] = transform->parts[0];
}

int gguf_out_fused(const char *models_dir, const struct config *config,
                   const struct weight_kind **first, struct err *err)
{
    const struct gguf_out out = {.models_dir = models_dir, .config = config};
    struct gguf_job job = {.out = &out};
    const struct gguf_arch *arch;
    for (size_t i = 0; i < n_weight_kinds; i++)
        first[i] = &weight_kinds[i];
    int rc = gguf_metadata_family(&job.names, &out, err);
    for (size_t nth = 0; rc == 0 && (arch = gguf_metadata_arch(&job.names, nth)); nth++)
        if ((rc = open_names(&job, arch, err)) == 0)
            find_fused(&job.names, first);
    family_release(&job.names);
    return rc;
}

static int planned_size(const struct gguf_plan *plan, size_t *bytes, struct err *err)
{
    struct buf head = {0};
    const int rc = gguf_head(plan, &head, bytes, err);
    buf_release(&head);
    return rc;
}

int gguf_out_write(const struct gguf_out *out, const char *path, struct err *err)
{
    struct gguf_job job = {.out = out, .values.err = err};
    int rc = plan_all(&job, err);
    const struct gguf_plan plan = plan_of(&job);
    if (rc == 0 && out->size)
        rc = planned_size(&plan, out->size, err);
    if (rc == 0 && !out->dry_run)
        rc = gguf_write(&plan, path, err);
    gguf_tensors_release(&job.tensors);
    family_release(&job.names);
    buf_release(&job.values.bytes);
    return rc;
}
