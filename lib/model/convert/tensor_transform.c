/* Parses tensor transforms. */
#include "model/convert/tensor_transform.h"

#include "base/number.h"

struct transform_reader {
    char *const *word;
    size_t n;
};

static bool accept_word(struct transform_reader *r, const char *word)
{
    if (r->n == 0 || strcmp(*r->word, word) != 0)
        return false;
    r->word++;
    r->n--;
    return true;
}

/* The weight kind whose name has `part` in place of the one in `kind`: for "layer.q.weight" and
 * "k", "layer.k.weight". */
static const struct weight_kind *sibling(const struct weight_kind *kind, const char *part)
{
    const char *suffix = strrchr(kind->name, '.');
    const char *prefix = weight_kind_in_layer(kind) ? "layer." : "";
    char name[WEIGHT_NAME_SIZE];
    const int len = snprintf(name, sizeof name, "%s%s%s", prefix, part, suffix);
    return len < WEIGHT_NAME_SIZE ? weight_kind_find(name) : NULL;
}

static bool has_part(const struct tensor_transform *transform, const struct weight_kind *kind)
{
    for (size_t i = 0; i < transform->n_parts; i++)
        if (transform->parts[i] == kind)
            return true;
    return false;
}

/* Parses the words "q of q,k,v" after "part": the part that `kind` is, and all parts of the fused
 * tensor in order. */
static bool read_part(struct transform_reader *r, struct tensor_transform *transform,
                      const struct weight_kind *kind)
{
    if (r->n < 3 || sibling(kind, r->word[0]) != kind || strcmp(r->word[1], "of") != 0)
        return false;
    for (char *rest = r->word[2], *name; (name = strsep(&rest, ","));) {
        const struct weight_kind *part = sibling(kind, name);
        if (!part || part->in != kind->in || has_part(transform, part) ||
            transform->n_parts == TRANSFORM_PARTS)
            return false;
        transform->parts[transform->n_parts++] = part;
    }
    r->word += 3;
    r->n -= 3;
    return transform->n_parts > 1 && has_part(transform, kind);
}

static bool of_heads(const struct weight_kind *kind)
{
    return kind->out == DIM_Q || kind->out == DIM_KV;
}

static bool of_states(const struct weight_kind *kind)
{
    return kind->out >= DIM_STATE_KEYS && kind->out <= DIM_STATE_DECAYS;
}

static bool rotates(const struct weight_kind *kind)
{
    return (of_heads(kind) && !strstr(kind->name, ".v.") && !strstr(kind->name, ".attn_gate.")) ||
           kind->out == DIM_Q_NORM || kind->out == DIM_K_NORM || kind->out == DIM_INDEX_Q ||
           kind->out == DIM_INDEX_K;
}

/* True for the roles that the matrix kv_b of latent attention is split into. */
static bool is_b(const struct weight_kind *kind)
{
    return strcmp(kind->name, "layer.k_b.weight") == 0 || strcmp(kind->name, "layer.v_b.weight") == 0;
}

/* Parses the number after "turns". */
static bool read_turns(struct transform_reader *r, struct tensor_transform *transform)
{
    if (r->n == 0 || !parse_size(*r->word, &transform->turns) || transform->turns == 0)
        return false;
    r->word++;
    r->n--;
    return true;
}

bool tensor_transform_parse(struct tensor_transform *transform, const struct weight_kind *kind,
                            char *const *word, size_t n)
{
    struct transform_reader r = {word, n};
    *transform = (struct tensor_transform){.transposed = accept_word(&r, "transposed")};
    if (transform->transposed && kind->in == DIM_NONE)
        return kind->out == DIM_CONV_WEIGHT && r.n == 0;
    transform->of_kv_b = is_b(kind) && !transform->transposed && accept_word(&r, "of_kv_b");
    if (accept_word(&r, "part") && !read_part(&r, transform, kind))
        return false;
    transform->by_head = transform->n_parts && accept_word(&r, "by_head");
    transform->by_query_head =
        transform->n_parts && kind->out == DIM_Q && accept_word(&r, "by_query_head");
    transform->by_key_head = transform->n_parts && of_states(kind) && accept_word(&r, "by_key_head");
    transform->by_row = transform->n_parts && accept_word(&r, "by_row");
    const bool by =
        transform->by_head || transform->by_query_head || transform->by_key_head || transform->by_row;
    if (transform->n_parts && !by && accept_word(&r, "turns") && !read_turns(&r, transform))
        return false;
    for (size_t i = 0; i < transform->n_parts; i++)
        if ((transform->by_head && !of_heads(transform->parts[i])) ||
            (transform->by_row && transform->parts[i]->out != kind->out) ||
            (transform->by_query_head && transform->parts[i]->out != DIM_Q) ||
            (transform->by_key_head && !of_states(transform->parts[i])))
            return false;
    transform->interleaved_head = rotates(kind) && accept_word(&r, "interleaved_head");
    transform->interleaved =
        transform->interleaved_head || (rotates(kind) && accept_word(&r, "interleaved"));
    transform->plus_one = kind->fill == FILL_ONE && accept_word(&r, "plus_one");
    transform->exp = kind->in == DIM_NONE && accept_word(&r, "exp");
    transform->negated = kind->in == DIM_NONE && accept_word(&r, "negated");
    return r.n == 0;
}
