/* Loads LoRA adapters: finds the model's layers by name, orders rows as the model has them, packs. */
#include "model/lora/lora_open.h"

#include "base/mem.h"
#include "base/text_util.h"
#include "model/convert/tensor_import.h"
#include "model/family/family.h"
#include "quant/pack.h"

/* Names of GGUF tensors, for family_take_names(). */
static bool gguf_line(const struct weight_source *source, const char *kind, size_t nth, char *line,
                      size_t size)
{
    return gguf_tensor_line(source->state, kind, nth, line, size);
}

static const struct weight_format gguf_names = {.tensor_line = gguf_line};

struct importing {
    const struct lora_file *file;
    const struct config *config;
    const char *path;
    struct family family;
    bool *used; /* [modules] */
    struct lora *lora;
};

static int open_family(struct importing *in, const char *models_dir, struct err *err)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/families/%s.family", models_dir, in->config->family);
    if (family_open(&in->family, models_dir, path, err) < 0)
        return err_prefix(err, "%s: the names of the model's layers are needed", in->path);
    const struct weight_source names = {.format = &gguf_names,
                                        .state = (void *)(uintptr_t)in->file->arch};
    return in->file->arch ? family_take_names(&in->family, &names, err) : 0;
}

/* True if a family file lists an architecture; NULL: any that GGUF files have. */
static bool lists(const struct conf *conf, const struct gguf_arch *arch)
{
    for (size_t i = 0; i < conf->n_entries; i++) {
        char name[128];
        if (strcmp(conf->entry[i].key, "architecture") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(conf->entry[i].value, " "),
                 conf->entry[i].value);
        if (arch ? gguf_arch_has(arch, name) : gguf_arch_of(name, 0) != NULL)
            return true;
    }
    return false;
}

/* Fails if a GGUF adapter is for another architecture, where the same names stand for rows in another order. A
 * family that GGUF files do not have may have the architecture of one that it is like. */
static int check_arch(const struct importing *in, struct err *err)
{
    bool same = !in->file->arch || lists(&in->family.conf, in->file->arch);
    if (!same && !lists(&in->family.conf, NULL))
        for (size_t i = 0; i < in->family.n_bases; i++)
            same |= lists(&in->family.base[i], in->file->arch);
    return same ? 0
                : err_set(err,
                          "%s: was made for models of general.architecture \"%s\", but this one is of "
                          "family %s; use an adapter that was made for it",
                          in->path, in->file->arch->name, in->config->family);
}

/* The same for the class that PEFT names, if it is known. */
static int check_class(const struct importing *in, const char *models_dir, struct err *err)
{
    const char *class = in->file->base_class;
    static const struct weight_format no_tensors = {.kind = KIND_OTHER};
    const struct weight_source none = {.format = &no_tensors};
    struct family family = {0};
    struct err unknown;
    if (!class || family_find(&family, models_dir, class, &none, &unknown) < 0)
        return 0;
    const char *name = conf_get(&family.conf, "family");
    const int rc = name && strcmp(name, in->config->family) == 0
                       ? 0
                       : err_set(err,
                                 "%s: was made for a %s, but the model is of family %s; use an adapter "
                                 "that was made for it",
                                 in->path, excerpt_of(class, strlen(class)).text, in->config->family);
    family_release(&family);
    return rc;
}

static int by_name(const void *key, const void *module)
{
    return strcmp(key, ((const struct lora_module *)module)->name);
}

/* The adapter's module of a weight, whose transform is set; NULL: there is none. */
static const struct lora_module *find_module(const struct importing *in, const struct weight_kind *kind,
                                             struct tensor_place place,
                                             const struct tensor_transform **transform)
{
    char name[TENSOR_NAME_SIZE];
    static const char end[] = ".weight";
    for (size_t nth = 0; (*transform = family_tensor(&in->family, kind, place, nth, name)); nth++) {
        if (text_ends(name, end))
            name[strlen(name) - strlen(end)] = 0;
        const struct lora_module *found = in->file->n_modules
                                              ? bsearch(name, in->file->module, in->file->n_modules,
                                                        sizeof *in->file->module, by_name)
                                              : NULL;
        if (found)
            return found;
    }
    return NULL;
}

/* ---- matrices ---- */

/* Dequantises row `row` of a matrix of `n` columns; false if it is not finite. */
static bool read_row(const struct source_tensor *from, size_t row, size_t n, float *to)
{
    const struct block_type *type = &block_types[from->type];
    type->dequantize(to, from->data + row * (n / type->elements) * type->bytes, n / type->elements);
    return dtype_finite(DTYPE_F32, to, n);
}

/* Packs the rows [out][in] of `from`, in the order of `import` (NULL: as they are), times `scale`. */
static int pack_matrix(struct mat *mat, const struct source_tensor *from,
                       const struct tensor_import *import, size_t out, size_t in, float scale,
                       const char *path, struct err *err)
{
    const size_t padded = layout_in(LAYOUT_PACKED, in);
    const size_t block_bytes = pack_block_bytes(DTYPE_F32, padded);
    const struct block_type *type = from->type == SOURCE_OTHER ? NULL : &block_types[from->type];
    float *rows = mem_alloc(in, PACK_OUT * sizeof *rows);
    char *data = mem_alloc(div_up(out, PACK_OUT), block_bytes);
    int rc = 0;
    if (!type || in % type->elements || from->strided)
        rc = err_set(err, "%s: tensor \"%s\" is of type %s, which cannot be read", path,
                     excerpt_of(from->name, strlen(from->name)).text, from->type_name);
    else if (!rows || !data)
        rc = err_no_memory(err, "%s: a matrix of %zu x %zu", path, out, in);
    for (size_t first = 0; first < out && rc == 0; first += PACK_OUT) {
        const size_t n = size_min(PACK_OUT, out - first);
        for (size_t i = 0; i < n && rc == 0; i++) {
            const size_t row = import ? tensor_import_source_row(import, first + i) : first + i;
            float *to = rows + i * in;
            bool finite = read_row(from, row, in, to);
            for (size_t j = 0; j < in; j++)
                to[j] *= scale;
            finite &= dtype_finite(DTYPE_F32, to, in);
            if (!finite)
                rc = err_set(err, "%s: tensor \"%s\" has values that are not finite", path,
                             excerpt_of(from->name, strlen(from->name)).text);
        }
        if (rc == 0)
            pack_rows(data + first / PACK_OUT * block_bytes, padded, rows, in, n, in, DTYPE_F32);
    }
    free(rows);
    if (rc < 0) {
        free(data);
        return -1;
    }
    *mat = (struct mat){DTYPE_F32, LAYOUT_PACKED, out, in, padded, data};
    return 0;
}

static int import_pair(struct importing *in, const struct lora_module *module,
                       const struct tensor_transform *transform, const struct weight_kind *kind,
                       size_t layer, struct lora_pair *pair, struct err *err)
{
    struct config own;
    const struct config *c = config_of_layer(in->config, layer, &own);
    const size_t outputs = config_dim(c, kind->out), inputs = config_dim(c, kind->in);
    const struct excerpt name = excerpt_of(module->name, strlen(module->name));
    struct tensor_import order;
    size_t rows;
    if (tensor_import_order(&order, &rows, module->b, transform, kind, c, in->path, err) < 0)
        return -1;
    if (module->a->dim[1] != inputs || module->b->dim[0] != rows)
        return err_set(
            err,
            "%s: \"%s\" is for %zu inputs and %zu outputs, the model has %zu and %zu: it was "
            "made for another model",
            in->path, name.text, module->a->dim[1], module->b->dim[0], inputs, rows);
    if (module->rank > in->config->hidden)
        return err_set(err, "%s: \"%s\" has rank %zu, more than the model's %zu hidden elements",
                       in->path, name.text, module->rank, in->config->hidden);
    in->lora->max_rank = size_max(in->lora->max_rank, module->rank);
    if (pack_matrix(&pair->a, module->a, NULL, module->rank, inputs, 1, in->path, err) < 0)
        return -1;
    return pack_matrix(&pair->b, module->b, &order, outputs, module->rank,
                       (float)(module->scale * in->lora->scale), in->path, err);
}

/* ---- layers ---- */

static enum lora_target target_of(const struct weight_kind *kind)
{
    enum lora_target target = 0;
    while (target < LORA_TARGETS && strcmp(lora_target_kind(target), kind->name) != 0)
        target++;
    return target;
}

/* Imports the adapter of a weight, if there is one. */
static int import_weight(struct importing *in, const struct weight_kind *kind,
                         struct tensor_place place, struct err *err)
{
    const struct tensor_transform *transform;
    const struct lora_module *module = find_module(in, kind, place, &transform);
    const enum lora_target target = target_of(kind);
    if (!module)
        return 0;
    if (target == LORA_TARGETS)
        return err_set(err,
                       "%s: \"%s\" adapts \"%s\": adapters are supported of the projections of "
                       "attention and of dense MLPs only; merge it into the model before bmc-convert",
                       in->path, excerpt_of(module->name, strlen(module->name)).text, kind->name);
    in->used[module - in->file->module] = true;
    return import_pair(in, module, transform, kind, place.layer,
                       &in->lora->pair[place.layer * LORA_TARGETS + target], err);
}

static int import_kind(struct importing *in, const struct weight_kind *kind, struct err *err)
{
    const struct config *c = in->config;
    const size_t experts = size_max(1, weight_kind_stack(kind, c));
    if (kind->in == DIM_NONE)
        return 0;
    for (size_t layer = 0; layer < weight_kind_copies(kind, c); layer++)
        for (size_t e = 0; e < experts && weight_kind_has(kind, c, layer); e++)
            if (import_weight(in, kind, (struct tensor_place){layer, e}, err) < 0)
                return -1;
    return 0;
}

static int import_all(struct importing *in, struct err *err)
{
    if (in->config->plan[0].round_inputs)
        return err_set(err,
                       "%s: adapters have inputs of full precision, the model's products have inputs "
                       "of 8 bits: merge it into the model before bmc-convert",
                       in->path);
    for (size_t i = 0; i < n_weight_kinds; i++)
        if (import_kind(in, &weight_kinds[i], err) < 0)
            return -1;
    for (size_t i = 0; i < in->file->n_modules; i++)
        if (!in->used[i])
            return err_set(err,
                           "%s: the model, of family %s, has no layer \"%s\": the adapter was made for "
                           "another model",
                           in->path, in->config->family,
                           excerpt_of(in->file->module[i].name, strlen(in->file->module[i].name)).text);
    return 0;
}

static struct hash hash_adapter(const struct lora_file *file, double scale)
{
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, &file->hash, sizeof file->hash);
    hasher_add(&hasher, &scale, sizeof scale);
    return hasher_result(&hasher);
}

/* The second half of lora_open(): the adapter of an open file, for the model's configuration and
 * family. The caller closes it. */
static int lora_import(struct lora **out, const struct lora_file *file, const char *path, double scale,
                       const struct config *config, const char *models_dir, struct err *err)
{
    struct lora *lora = *out = calloc(1, sizeof *lora);
    struct importing in = {.file = file, .config = config, .path = path, .lora = lora};
    in.used = calloc(file->n_modules + 1, sizeof *in.used);
    int rc = -1;
    if (lora) {
        lora->scale = scale;
        lora->layers = config->layers;
        lora->path = strdup(path);
        lora->pair = mem_zalloc(config->layers, LORA_TARGETS * sizeof *lora->pair);
        lora->hash = hash_adapter(file, scale);
    }
    if (!lora || !in.used || !lora->path || !lora->pair)
        err_no_memory(err, "%s", path);
    else if (open_family(&in, models_dir, err) == 0 && check_arch(&in, err) == 0 &&
             check_class(&in, models_dir, err) == 0)
        rc = import_all(&in, err);
    family_release(&in.family);
    free(in.used);
    if (rc < 0) {
        lora_close(lora);
        *out = NULL;
    }
    return rc;
}

int lora_open(struct model *model, const char *path, double scale, const char *models_dir,
              struct err *err)
{
    struct lora_file file;
    struct lora *lora = NULL;
    if (!model->loras && !(model->loras = calloc(1, sizeof *model->loras)))
        return err_no_memory(err, "LoRA adapters");
    if (lora_file_open(&file, path, err) < 0)
        return -1;
    int rc = lora_import(&lora, &file, path, scale, &model->config, models_dir, err);
    if (rc == 0)
        rc = loras_add(model->loras, lora, err);
    lora_file_release(&file);
    return rc;
}
