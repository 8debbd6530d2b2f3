/* Texts that are read line by line, plain or as JSON, and scored, embedded or reranked: each gets a result line.
 * Lines of JSON are objects with one of the fields text, prompt and ids, and optionally id and parse_special; of embeddings
 * in OpenAI's form also with input. Those to be reranked have query, documents (texts, or objects with text), and
 * optionally id, top_n, return_documents and instruction, as the requests of Cohere's and Jina's servers, whose form
 * results have where embeddings have OpenAI's. */
#pragma once

#include "base/json.h"
#include "decode/rerank.h"
#include "decode/score.h"
#include "serve/serve.h"

/* A job; results go to io->put(). */
struct text_lines {
    struct session *session;
    const struct serve_io *io;
    const volatile sig_atomic_t *interrupted;
    bool plain;         /* lines are texts, not JSON */
    bool parse_special; /* parse special tokens spelled in texts, unless the line says otherwise */
    bool lenient;       /* ignore unknown fields */
    /* of scoring: */
    bool logprobs;               /* results have the log-probability of every token */
    size_t stride;               /* of context windows, as in score_texts() */
    void (*progress)(void *arg); /* called after every result */
    void *arg;
    /* of embedding and reranking: for results in OpenAI's form, if its options say so */
    struct serve *serve;
    /* of embedding: */
    enum embed_pooling pooling;
    bool normalize;
    struct slice prompt; /* precedes every text, but not ids */
    /* of reranking: */
    const struct reranker *reranker;
};

/* Score, embed or rerank all lines of the input. If the run fails, lines in flight get a result with the reason. */
int text_lines_score(const struct text_lines *job, struct score_stats *stats, struct err *err) MUST_USE;
int text_lines_embed(const struct text_lines *job, struct embed_stats *stats, struct err *err) MUST_USE;
int text_lines_rerank(const struct text_lines *job, struct embed_stats *stats,
                      struct err *err) MUST_USE;

/* Adds the fields "tokens", "mean_logprob" and "perplexity" to an object. A perplexity that
 * overflows is null, as JSON has no infinity, or "inf" with `as_text`. */
int score_put(json_t *object, size_t tokens, double sum_logprob, bool as_text,
              struct err *err) MUST_USE;
