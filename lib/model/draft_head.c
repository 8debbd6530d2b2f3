/* Attaching a draft head to its target model. */
#include "model/draft_head.h"

#include "model/forward.h"
#include "quant/pack.h"

/* The hidden states that the head names. */
static int take_layers(const struct model *head, const struct model *target, size_t layer[MAX_FEATURES],
                       struct err *err)
{
    const struct factors *of = &head->config.draft->feature_layers;
    for (size_t i = 0; i < of->n; i++) {
        if (of->x[i] > (double)target->config.layers)
            return err_set(err,
                           "%s: reads the hidden state behind layer %.0f of a target, the model %s has "
                           "%zu layers; choose a head made for this model",
                           head->name, of->x[i], target->name, target->config.layers);
        layer[i] = (size_t)of->x[i];
    }
    return 0;
}

/* The hidden states of EAGLE-3: early, middle and late. One hidden state is the final one. */
static int choose_layers(const struct model *head, const struct model *target,
                         size_t layer[MAX_FEATURES], struct err *err)
{
    const size_t n = target->config.layers, features = head->config.draft->features;
    if (head->config.draft->feature_layers.n)
        return take_layers(head, target, layer, err);
    if (features != 1 && features != 3)
        return err_set(err, "%s: reads %zu hidden states of a target; 1 or 3 are supported", head->name,
                       features);
    if (features == 3 && n / 2 + 3 >= n)
        return err_set(
            err,
            "%s: reads three hidden states of a target of at least 7 layers, the model %s has "
            "%zu; choose a head made for this model",
            head->name, target->name, n);
    layer[0] = features == 1 ? HIDDEN_FINAL : 2;
    for (size_t i = 1; i < features; i++)
        layer[i] = i == 1 ? n / 2 : n - 3;
    return 0;
}

static int check_sizes(const struct model *head, const struct model *target, struct err *err)
{
    const struct config *h = &head->config, *t = &target->config;
    const size_t tokens = h->draft->input_vocab ? h->draft->input_vocab : h->vocab;
    const struct {
        const char *what;
        size_t head, target;
        bool differ;
    } sizes[] = {
        {"a hidden size", h->draft->feature_hidden, t->hidden, h->draft->feature_hidden != t->hidden},
        {"a vocabulary", tokens, t->vocab, tokens != t->vocab},
        {"embeddings of size", h->embed, t->embed, h->target_embed && h->embed != t->embed},
        {"an LM head of input size", h->hidden, t->embed, h->target_head && h->hidden != t->embed},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if (sizes[i].differ)
            return err_set(
                err,
                "%s: is a draft head for a model with %s %s%zu, the model %s has %zu; choose a head "
                "made for this model",
                head->name, sizes[i].what, i < 2 ? "of " : "", sizes[i].head, target->name,
                sizes[i].target);
    return 0;
}

/* Checks the table of the target's ids: hostile files may have anything in it. */
static int check_map(const struct model *head, struct err *err)
{
    const struct config *c = &head->config;
    const float *offset = head->weights.draft_offset;
    const double tokens = (double)config_dim(c, DIM_TOKENS);
    for (size_t i = 0; offset && i < c->vocab; i++) {
        const double id = (double)i + (double)offset[i];
        if (!(id >= 0 && id < tokens) || id != floor(id))
            return err_set(err,
                           "%s: draft_offset gives logit %zu the id %g, expected a whole number below "
                           "%.0f",
                           head->name, i, id, tokens);
    }
    return 0;
}

int draft_open(struct model **draft, const char *path, const char *name, const struct model *target,
               struct err *err)
{
    return strcmp(path, "self") == 0 ? model_open_draft(draft, target, err)
                                     : model_open_any(draft, path, name, err);
}

int draft_head_attach(struct model *head, const struct model *target, size_t layer[MAX_FEATURES],
                      struct err *err)
{
    struct weights *w = &head->weights;
    if (check_sizes(head, target, err) < 0 || choose_layers(head, target, layer, err) < 0 ||
        check_map(head, err) < 0)
        return -1;
    if (head->config.target_embed) {
        w->embed = target->weights.embed;
        head->config.embed_scale = target->config.embed_scale;
    }
    if (head->config.target_head) {
        w->head = target->weights.head;
        head->config.logit_softcap = target->config.logit_softcap;
        head->config.logit_scale = target->config.logit_scale;
    }
    return 0;
}
