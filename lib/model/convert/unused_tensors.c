/* Finds tensors of a source that a conversion does not use. */
#include "model/convert/unused_tensors.h"

#include "base/number.h"
#include "model/family/family_words.h"

/* Why a tensor may be left out. INTO_CONFIG: its values are in the configuration; UNKNOWN: it may not. */
enum reason { BUFFER, ACTIVATIONS, VISION, AUDIO, POOLER, MTP, SHARED_KV, STALE, INTO_CONFIG, UNKNOWN };

static const char *const reasons[INTO_CONFIG] = {
    [BUFFER] = "masks and tables",
    [ACTIVATIONS] = "scales for quantised activations and KV entries",
    [VISION] = "vision encoder",
    [AUDIO] = "audio encoder",
    [POOLER] = "pooler of a classifier",
    [MTP] = "multi-token prediction",
    [SHARED_KV] = "keys and values of layers that use those of another",
    [STALE] = "copies that the index replaces by those in other files",
};

/* The place of a text in tensor names: at the end, behind a dot; at the beginning, also behind "model."; or
 * at the beginning of names of GGUF files, which are short. */
enum place { END, BEGIN, GGUF_BEGIN };

/* Tensors that publishers release beside those of the language model. */
static const struct {
    const char *text;
    enum place place;
    enum reason reason;
} others[] = {
    {"rotary_emb.inv_freq", END, BUFFER},
    {"position_ids", END, BUFFER},
    {"pooler.dense.weight", END, POOLER},
    {"pooler.dense.bias", END, POOLER},
    {"cls.output.weight", GGUF_BEGIN, POOLER}, /* of Qwen3-Reranker, rows of the LM head */
    {"attn.bias", END, BUFFER},
    {"attn.masked_bias", END, BUFFER},
    {"attn.causal_mask", END, BUFFER},
    {"attention.bias", END, BUFFER},
    {"attention.masked_bias", END, BUFFER},
    {"attn.embed_positions", END, BUFFER},
    {"self_attn.bias", END, BUFFER},
    {"decoder.version", END, BUFFER},  /* of OPT */
    {"input_scale", END, ACTIVATIONS}, /* of FP8, as the next four */
    {"input_zero_point", END, ACTIVATIONS},
    {"input_scale_ub", END, ACTIVATIONS},
    {"k_scale", END, ACTIVATIONS},
    {"v_scale", END, ACTIVATIONS},
    {"rope_freqs.weight", END, INTO_CONFIG},
    {"rope_factors_long.weight", END, INTO_CONFIG},
    {"rope_factors_short.weight", END, INTO_CONFIG},
    {"t2d", END, INTO_CONFIG}, /* of EAGLE-3: the tokens in the image of d2t */
    {"vision_tower.", BEGIN, VISION},
    {"vision_model.", BEGIN, VISION},
    {"vision_embedder.", BEGIN, VISION},
    {"visual.", BEGIN, VISION},
    {"multi_modal_projector.", BEGIN, VISION},
    {"vit_large_projector.", BEGIN, VISION},
    {"mm_projector.", BEGIN, VISION},
    {"embed_vision.", BEGIN, VISION},
    {"audio_tower.", BEGIN, AUDIO},
    {"embed_audio.", BEGIN, AUDIO},
    {"mtp.", BEGIN, MTP},       /* beyond the first layer */
    {"mtp_block.", BEGIN, MTP}, /* of ERNIE 4.5, as the next three */
    {"mtp_emb_norm.", BEGIN, MTP},
    {"mtp_hidden_norm.", BEGIN, MTP},
    {"mtp_linear_proj.", BEGIN, MTP},
    {"mm.a.", GGUF_BEGIN, AUDIO},
    {"a.", GGUF_BEGIN, AUDIO},
    {"mm.", GGUF_BEGIN, VISION},
    {"v.", GGUF_BEGIN, VISION},
};

static bool begins(const char *name, const char *text)
{
    return strncmp(name, text, strlen(text)) == 0;
}

static bool has_text(const char *name, const char *text, enum place place, bool gguf)
{
    static const char base[] = "model.";
    const size_t len = strlen(name), n = strlen(text);
    switch (place) {
    case END:
        return len >= n && strcmp(name + len - n, text) == 0 && (len == n || name[len - n - 1] == '.');
    case BEGIN: return !gguf && begins(name + (begins(name, base) ? sizeof base - 1 : 0), text);
    case GGUF_BEGIN: break;
    }
    return gguf && begins(name, text);
}

static enum reason by_name(const char *name, bool gguf)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (has_text(name, others[i].text, others[i].place, gguf))
            return others[i].reason;
    return UNKNOWN;
}

/* What is searched for tensors that may be left out. */
struct unused_search {
    const struct weight_source *source;
    const struct family *family;
    const struct config *config;
};

/* MTP layers that config.json counts. */
static json_int_t mtp_layers(const struct unused_search *s)
{
    const json_t *json = s->source->json[SOURCE_CONFIG], *text = json_object_get(json, "text_config");
    const char *key = "num_nextn_predict_layers";
    return json_integer_value(json_object_get(json_object_get(text, key) ? text : json, key));
}

/* True for tensors of MTP layers in a GGUF file, behind those of the model. */
static bool in_mtp_layer(const struct unused_search *s, const char *name)
{
    static const char block[] = "blk.";
    char digits[24] = "";
    size_t layer;
    const char *number = name + sizeof block - 1;
    const bool in_block = s->source->format->kind == KIND_GGUF && begins(name, block);
    const size_t len = in_block ? strspn(number, "0123456789") : 0;
    if (!len || len >= sizeof digits || number[len] != '.')
        return false;
    memcpy(digits, number, len);
    const json_int_t mtp = mtp_layers(s);
    return mtp > 0 && parse_size(digits, &layer) && layer >= s->config->layers &&
           layer - s->config->layers < (size_t)mtp;
}

/* True if one of the names of a kind's tensor is `name`. */
static bool has_name(const struct unused_search *s, const struct weight_kind *kind, size_t layer,
                     const char *name)
{
    char known[TENSOR_NAME_SIZE];
    for (size_t nth = 0; family_tensor(s->family, kind, (struct tensor_place){layer, 0}, nth, known);
         nth++)
        if (strcmp(name, known) == 0)
            return true;
    return false;
}

/* True for tensors of keys and values of layers that attend to those of another layer. */
static bool is_shared_kv(const struct unused_search *s, const char *name)
{
    const struct config *c = s->config;
    for (size_t layer = 0; layer < c->layers; layer++)
        for (size_t i = 0; i < n_weight_kinds && c->plan[layer].kv_source < layer; i++) {
            const struct weight_kind *kind = &weight_kinds[i];
            if ((kind->out == DIM_KV || kind->out == DIM_K_NORM) && has_name(s, kind, layer, name))
                return true;
        }
    return false;
}

/* Why a tensor that is not used may be left out. */
static enum reason find_reason(const struct unused_search *s, const struct source_tensor *tensor)
{
    const struct weight_format *format = s->source->format;
    const enum reason reason = by_name(tensor->name, format->kind == KIND_GGUF);
    if (reason != UNKNOWN)
        return reason;
    if (in_mtp_layer(s, tensor->name))
        return MTP;
    if (is_shared_kv(s, tensor->name))
        return SHARED_KV;
    return source_find(s->source, tensor->name) != tensor ? STALE : UNKNOWN;
}

static int by_address(const void *a, const void *b)
{
    const struct source_tensor *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Says how many tensors are left out, by reason. */
static void report(const size_t left_out[INTO_CONFIG], struct err *note)
{
    size_t all = 0, used = 0;
    char parts[sizeof note->text / 2] = "";
    for (enum reason i = 0; i < INTO_CONFIG; i++) {
        if (left_out[i])
            used += (size_t)snprintf(parts + used, sizeof parts - used, "%s%s (%zu)", used ? ", " : "",
                                     reasons[i], left_out[i]);
        all += left_out[i];
    }
    if (all)
        err_set(note, "%zu tensor%s that the language model does not use %s left out: %s", all,
                all > 1 ? "s" : "", all > 1 ? "are" : "is", parts);
}

int check_unused_tensors(const struct weight_source *source, const struct family *family,
                         const struct config *config, const struct source_tensor **used, size_t n,
                         struct err *note, struct err *err)
{
    const struct unused_search s = {source, family, config};
    const struct weight_kind *head = weight_kind_find("head.weight");
    const struct source_tensor *tensor;
    const char *first = NULL, *name = conf_get(&family->conf, "family");
    size_t more = 0, left_out[UNKNOWN] = {0};
    qsort(used, n, sizeof(*used), by_address);
    for (size_t i = 0; (tensor = source_nth(source, i)); i++) {
        if (bsearch(&tensor, used, n, sizeof(*used), by_address) || tensor->is_scales ||
            (config->tied_head && has_name(&s, head, 0, tensor->name)))
            continue;
        const enum reason reason = find_reason(&s, tensor);
        if (reason != UNKNOWN) {
            left_out[reason]++;
            continue;
        }
        more += first != NULL;
        first = first ? first : tensor->name;
    }
    if (!first) {
        report(left_out, note);
        return 0;
    }
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
