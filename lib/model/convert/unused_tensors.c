/* Finds tensors of a source that a conversion does not use. */
#include "model/convert/unused_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

/* Suffixes of tensors without learned weights: masks, position tables, and RoPE factors that are
 * read into the configuration. */
static const char *const harmless[] = {
    "rotary_emb.inv_freq",
    "position_ids",
    "attn.bias",
    "attn.masked_bias",
    "attn.causal_mask",
    "attention.bias",
    "attention.masked_bias",
    "attn.embed_positions",
    "self_attn.bias",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "t2d", /* of EAGLE-3: the tokens in the image of d2t */
};

/* Prefixes of tensors of multimodal models beside the language model, and of layers for multi-token
 * prediction that are not supported, as ERNIE 4.5 has them, or beyond the first. */
static const char *const other_parts[] = {
    "vision_tower.",
    "multi_modal_projector.",
    "vision_model.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.vision_model.",
    "model.visual.",
    "mtp.",
    "model.mtp_block.",
    "model.mtp_emb_norm.",
    "model.mtp_hidden_norm.",
    "model.mtp_linear_proj.",
};

/* True if the name is `end`, or ends in a dot and `end`. */
static bool ends_in(const char *name, const char *end)
{
    const size_t len = strlen(name), n = strlen(end);
    return len >= n && strcmp(name + len - n, end) == 0 && (len == n || name[len - n - 1] == '.');
}

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++)
        if (ends_in(name, harmless[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(other_parts); i++)
        if (strncmp(name, other_parts[i], strlen(other_parts[i])) == 0)
            return true;
    return false;
}

/* True for tensors of MTP layers in GGUF files, behind those of the model. */
static bool in_mtp_layer(const struct weight_source *source, const struct config *config,
                         const char *name)
{
    char digits[24] = "";
    size_t layer;
    if (source->format->kind != KIND_GGUF || strncmp(name, "blk.", 4) != 0)
        return false;
    const size_t len = strspn(name + 4, "0123456789");
    if (len >= sizeof digits || name[4 + len] != '.')
        return false;
    memcpy(digits, name + 4, len);
    const json_t *json = source->format->config(source, SOURCE_CONFIG);
    const json_int_t mtp = json_integer_value(json_object_get(json, "num_nextn_predict_layers"));
    return mtp > 0 && parse_size(digits, &layer) && layer >= config->layers &&
           layer - config->layers < (size_t)mtp;
}

/* True for a head that the source stores although it is tied to the embedding. */
static bool is_tied_head(const struct family *family, const struct config *config, const char *name)
{
    char known[TENSOR_NAME_SIZE];
    const struct weight_kind *head = weight_kind_find("head.weight");
    for (size_t nth = 0;
         config->tied_head && family_tensor(family, head, (struct tensor_place){0}, nth, known); nth++)
        if (strcmp(name, known) == 0)
            return true;
    return false;
}

static int by_address(const void *a, const void *b)
{
    const struct source_tensor *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

int check_unused_tensors(const struct weight_source *source, const struct family *family,
                         const struct config *config, const struct source_tensor **used, size_t n,
                         struct err *err)
{
    const struct source_tensor *tensor;
    const char *first = NULL, *name = conf_get(&family->conf, "family");
    size_t more = 0;
    qsort(used, n, sizeof(*used), by_address);
    for (size_t i = 0; (tensor = source->format->tensor(source, i)); i++) {
        if (bsearch(&tensor, used, n, sizeof(*used), by_address) || tensor->is_scales ||
            is_harmless(tensor->name) || is_tied_head(family, config, tensor->name) ||
            in_mtp_layer(source, config, tensor->name))
            continue;
        more += first != NULL;
        first = first ? first : tensor->name;
    }
    if (!first)
        return 0;
    if (more)
        return err_set(err,
                       "%s: the %s family does not use tensor %.200s and %zu other%s; correct the "
                       "configuration, or choose a family that uses them (--family)",
                       source->path, name, first, more, more > 1 ? "s" : "");
    return err_set(err,
                   "%s: the %s family does not use tensor %.200s; correct the configuration, or "
                   "choose a family that uses it (--family)",
                   source->path, name, first);
}
