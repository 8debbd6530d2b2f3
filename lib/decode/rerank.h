/* Reranking: how relevant a document is for a query, by a cross-encoder (Nogueira & Cho, 2019, "Passage Re-ranking with
 * BERT"), which reads both at once.
 *
 * A model with a classifier's head says so itself, with one output, or with two, whose difference counts. A language
 * model without one is asked whether the document meets the requirements, in the words of Qwen3-Reranker, and the logits
 * of the tokens "yes" and "no" after the prompt are compared. Either way the relevance is
 *
 *   score = sigmoid(logit), logit = the only output, or the second less the first, or that of "yes" less that of "no" */
#pragma once

#include "decode/embed.h"
#include "text/ids.h"
#include "text/slice.h"

struct reranker {
    const struct model *model;
    enum embed_pooling pooling;
    bool asks; /* a language model without a head: */
    uint32_t yes, no;
};

struct rerank_score {
    double logit, score;
};

/* Finds out how the model reranks; fails if it cannot, with an error that does not name it. The model is
 * borrowed. */
int reranker_init(struct reranker *reranker, const struct model *model, struct err *err) MUST_USE;

/* Appends the tokens of a query and a document. *second: struct text_ids. `instruction`: what language models are to find;
 * an empty one is that of Qwen3-Reranker; classifiers have none. */
int rerank_encode(const struct reranker *reranker, struct slice instruction, struct slice query,
                  struct slice document, struct ids *ids, size_t *second, struct err *err) MUST_USE;

struct rerank_callbacks {
    text_next *next; /* of pairs that rerank_encode() has made */
    /* Takes the score of a pair, or NULL and the reason. */
    int (*done)(void *arg, const struct text_ids *text, const struct rerank_score *score,
                const struct err *error, struct err *err);
    void *arg;
};

/* Scores pairs as embed_texts() embeds texts: as many at a time as the session's batch has sequences, without padding. */
int rerank_texts(const struct reranker *reranker, struct session *session,
                 const struct rerank_callbacks *callbacks, const volatile sig_atomic_t *interrupted,
                 struct embed_stats *stats, struct err *err) MUST_USE;
