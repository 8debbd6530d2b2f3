/* Pooling and the layers after it, of sentence-transformers' modules, of classifiers, and of GGUF files. */
#include "model/convert/embedding_source.h"

#include "model/convert/tensor_sources.h"
#include "text/chat/chat.h"

/* The tensor of a role that is a matrix of a plausible size, or NULL. */
static const struct source_tensor *matrix_of(const struct weight_source *source,
                                             const struct family *family, const char *kind)
{
    enum { MOST_OUTPUTS = 1 << 20 };
    const struct source_tensor *found = tensor_sources_single(source, family, kind);
    return found && found->n_dims == 2 && found->dim[0] && found->dim[0] <= MOST_OUTPUTS ? found : NULL;
}

/* The dense layers that the source has. A layer without another one behind it counts only if the source says that it is a
 * module of its own: poolers of models for embeddings are left out, as in sentence-transformers. */
static void find_dense_layers(struct config *config, const struct weight_source *source,
                              const struct family *family, bool modules)
{
    const struct source_tensor *dense = matrix_of(source, family, "pooled_dense.weight"),
                               *out = matrix_of(source, family, "pooled_out.weight");
    if (!out && !modules)
        dense = NULL;
    config->pooled.dense = dense ? dense->dim[0] : 0;
    config->pooled.bias = dense && tensor_sources_single(source, family, "pooled_dense.bias");
    config->pooled.norm = dense && tensor_sources_single(source, family, "pooled_norm.weight");
    config->pooled.out = out ? out->dim[0] : 0;
    config->pooled.out_bias = out && tensor_sources_single(source, family, "pooled_out.bias");
    config->pooled.scores = out && !modules;
    if (!dense)
        config->pooled.activation = POOLED_PLAIN;
    if (config->pooled.scores && config->pooled.pooling == POOLING_NONE)
        config->pooled.pooling = config_is_encoder(config) ? POOLING_CLS : POOLING_LAST;
    if (!config->pooled.scores && !config->pooled.dense)
        config->pooled.pair_gap = 0;
}

void embedding_of_source(struct config *config, const struct weight_source *source,
                         const struct family *family, struct convert_notes *notes)
{
    const json_t *says = source->json[SOURCE_EMBEDDING];
    const bool modules = source_find(source, "dense_2.weight") != NULL;
    if (config_is_draft_head(config))
        return;
    if (modules)
        config->pooled.activation =
            config_pooled_activation(json_string_value(json_object_get(says, "dense_activation")));
    find_dense_layers(config, source, family, modules);
    if (!says || config->pooled.scores)
        return;
    config->pooled.pooling = config_pooling(json_string_value(json_object_get(says, "pooling")));
    config->pooled.normalize = json_is_true(json_object_get(says, "normalize"));
    char names[128];
    chat_name_prompts(json_object_get(says, "prompts"), names, sizeof names);
    if (*names)
        err_set(&notes->prompts,
                "has prompts (%s), which are to precede texts: bmc-gen --embed-prompt NAME adds one%s",
                names,
                json_object_get(json_object_get(says, "prompts"), "")
                    ? ", and one of them is the default"
                    : "");
    if (config->pooled.pooling == POOLING_UNSUPPORTED)
        err_set(&notes->pooling,
                "embeddings are declared to be made in a way that is not supported (%.100s): "
                "bmc-gen --embed will need --pooling",
                json_string_value(json_object_get(says, "unsupported")));
}
