/* Finds the source tensors of each output tensor. */
#include "model/convert/tensor_sources.h"

#include "base/mem.h"

void tensor_sources_release(struct tensor_sources *sources)
{
    free(sources->import);
    *sources = (struct tensor_sources){0};
}

const struct source_tensor *tensor_sources_single(const struct weight_source *source,
                                                  const struct family *family, const char *kind)
{
    char name[TENSOR_NAME_SIZE];
    const struct source_tensor *tensor = NULL;
    for (size_t nth = 0;
         !tensor && family_tensor(family, weight_kind_find(kind), (struct tensor_place){0}, nth, name);
         nth++)
        tensor = source_find(source, name);
    return tensor;
}

/* Plans the import of one matrix or vector of a stack, or of the only one; `name` receives the first of
 * the possible names of its tensor. Returns 1 if there is no such tensor. */
static int find_one(struct tensor_import *import, const struct weight_source *source,
                    const struct family *family, const struct config *config,
                    const struct weight_kind *kind, struct tensor_place place,
                    char first[TENSOR_NAME_SIZE], struct err *err)
{
    char name[TENSOR_NAME_SIZE];
    const struct tensor_transform *transform;
    *first = 0;
    for (size_t nth = 0; (transform = family_tensor(family, kind, place, nth, name)); nth++) {
        const struct source_tensor *tensor = source_find(source, name);
        if (nth == 0)
            memcpy(first, name, TENSOR_NAME_SIZE);
        if (tensor)
            return tensor_import_plan(import, tensor, transform, kind, place.expert, config,
                                      source->path, err);
    }
    return 1;
}

/* Heads whose gains may be vectors of their own; 0: none. */
static size_t heads_of(const struct config *config, const struct weight_kind *kind)
{
    if (config->qk_norm != QK_NORM_EACH)
        return 0;
    return kind->out == DIM_Q_NORM ? config->heads : kind->out == DIM_K_NORM ? config->kv_heads : 0;
}

/* Gives quantised matrices of one stack one type, f32 if they have different ones: import[n] is the next. */
static void unite_types(struct tensor_import *import, size_t n)
{
    const bool differ = import[n].type != import[0].type;
    for (size_t i = 0; differ && i <= n; i++)
        import[i].type = split_type(DTYPE_F32);
}

int tensor_sources_find(struct tensor_sources *sources, const struct weight_source *source,
                        const struct family *family, const struct config *config,
                        const struct weight_kind *kind, size_t layer, struct err *err)
{
    char name[TENSOR_NAME_SIZE];
    const size_t heads = heads_of(config, kind);
    size_t n = size_max(weight_kind_stack(kind, config), 1);
    *sources = (struct tensor_sources){
        .import = mem_zalloc(size_max(n, size_max(heads, CONV_PARTS)), sizeof *sources->import),
        .n = n,
        .rows = config_dim(config, kind->out),
        .vectors = weight_kind_stack(kind, config) && kind->in == DIM_NONE,
    };
    if (!sources->import)
        return err_no_memory(err, "%s: %zu tensors", source->path, n);
    for (size_t i = 0; i < n; i++) {
        const struct tensor_place place = {layer, i};
        const int rc = find_one(&sources->import[i], source, family, config, kind, place, name, err);
        if (rc == 1 && !*name)
            return err_set(err, "%s: no \"tensor\" line for \"%s\"", family->conf.name, kind->name);
        if (rc == 1)
            return err_set(err, "%s: tensor \"%s\" is missing from the weights", source->path, name);
        if (rc < 0)
            return -1;
        if (sources->import[i].from->split && sources->import[0].from->split)
            unite_types(sources->import, i);
        if (sources->import[i].type != sources->import[0].type)
            return err_set(err, "%s: tensors \"%s\" and \"%s\" have different types", source->path,
                           sources->import[0].from->name, sources->import[i].from->name);
        if (sources->import[0].per_head) {
            sources->n = n = heads;
            sources->rows = config->head_dim;
        }
        if (sources->import[0].conv_part) {
            sources->n = n = CONV_PARTS;
            sources->rows = config_conv_width(config) / CONV_PARTS;
        }
    }
    return 0;
}

enum import_result tensor_sources_rows(const struct tensor_sources *sources, size_t first_row,
                                       size_t rows, enum dtype to, void *out)
{
    const size_t each = sources->rows, size = sources->vectors ? each * dtype_size(to) : 0;
    enum import_result worst = IMPORT_FINITE;
    for (size_t done = 0, some; !sources->vectors && done < rows; done += some) {
        const size_t at = first_row + done;
        const struct tensor_import *import = &sources->import[at / each % sources->n];
        some = size_min(rows - done, each - at % each);
        char *part = (char *)out + (done ? done * import->columns * dtype_size(to) : 0);
        const enum import_result result =
            tensor_import_rows(import, at / each / sources->n * each + at % each, some, to, part);
        worst = result > worst ? result : worst;
    }
    if (!sources->vectors)
        return worst;
    for (size_t i = 0; i < rows; i++) {
        const enum import_result result =
            tensor_import_rows(&sources->import[first_row + i], 0, each, to, (char *)out + i * size);
        worst = result > worst ? result : worst;
    }
    return worst;
}
