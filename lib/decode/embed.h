/* Embeddings of texts: hidden states after the final norm, pooled over a text's tokens, and what the model's dense layers
 * make of them (forward_pooled()); of a classifier, its scores. */
#pragma once

#include "decode/text_batch.h"

/* What the embedding of a text is: the mean of its tokens' hidden states, that of the last token, or that
 * of the first one; or, for rerankers, logits of two tokens after the last one. */
enum embed_pooling { EMBED_MEAN, EMBED_LAST, EMBED_CLS, EMBED_LOGITS };

/* The pooling that a model declares, or EMBED_MEAN; fails if it declares another one, with an error that does not name
 * the model. */
int embed_declared(const struct model *model, enum embed_pooling *pooling, struct err *err) MUST_USE;

/* Appends the text that precedes those to embed: that of the model's prompt of this name; `name` NULL: the default one,
 * "": none. Without such a prompt an error, which does not name the model. */
int embed_prompt(const struct model *model, const char *name, struct buf *prompt,
                 struct err *err) MUST_USE;

enum { EMBED_TOKENS = 2 };

struct embed_callbacks {
    text_next *next;
    /* Takes embedding[config_pooled_width()] of a text, or its two logits, valid during the call; or NULL and the
     * reason. */
    int (*done)(void *arg, const struct text_ids *text, const float *embedding, const struct err *error,
                struct err *err);
    void *arg;
    uint32_t token[EMBED_TOKENS]; /* those whose logits are computed with EMBED_LOGITS */
};

struct embed_stats {
    size_t texts, tokens;
    double ms;
};

/* Fails unless the context holds a text of n tokens. */
int embed_check_length(const struct session *session, size_t n, struct err *err) MUST_USE;

/* Computes embeddings of texts until there are no more or *interrupted is not 0, as many at a time as the
 * session's batch has sequences; of unit length (L2) if `normalize`. An embedding does not depend on other
 * texts in the batch. Texts that do not fit the context, are empty or have unknown ids get an error. */
int embed_texts(struct session *session, enum embed_pooling pooling, bool normalize,
                const struct embed_callbacks *callbacks, const volatile sig_atomic_t *interrupted,
                struct embed_stats *stats, struct err *err) MUST_USE;
