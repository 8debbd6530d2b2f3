/* Reranking: pairs of texts become embeddings of one or two numbers, and these scores. */
#include "decode/rerank.h"

#include "base/mem.h"
#include "base/repro_math.h"
#include "text/tokenizer/tokenizer.h"

/* The prompt of Qwen3-Reranker (Zhang et al., 2025), as its model card has it. */
static const char before_instruction[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    "Instruct provided. Note that the answer can only be \"yes\" or "
    "\"no\".<|im_end|>\n<|im_start|>user\n"
    "<Instruct>: ";
static const char usual_instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";
static const char before_query[] = "\n<Query>: ", before_document[] = "\n<Document>: ";
static const char behind_document[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

static int find_token(const struct model *model, const char *word, uint32_t *id, struct err *err)
{
    const int64_t found = tokenizer_find(model->tok, word, strlen(word));
    if (found < 0)
        return err_set(
            err, "cannot rerank: it has no classifier's head, and no token \"%s\"; use a reranker",
            word);
    *id = (uint32_t)found;
    return 0;
}

int reranker_init(struct reranker *r, const struct model *model, struct err *err)
{
    const struct config *c = &model->config;
    *r = (struct reranker){.model = model};
    if (c->pooled.scores && config_pooled_width(c) > 2)
        return err_set(err, "cannot rerank: its classifier has %zu outputs, a reranker has one, or two",
                       config_pooled_width(c));
    if (c->pooled.scores)
        return embed_declared(model, &r->pooling, err);
    if (c->no_head || config_is_draft_head(c))
        return err_set(err, "cannot rerank: it has no classifier's head; use a reranker");
    r->asks = true;
    r->pooling = EMBED_LOGITS;
    if (find_token(model, "yes", &r->yes, err) < 0)
        return -1;
    return find_token(model, "no", &r->no, err);
}

/* Appends a text to the prompt, as content, in which no special tokens are matched. */
static int add_content(struct buf *prompt, struct span *span, struct slice text, struct err *err)
{
    span->start = prompt->len;
    const int rc = buf_add(prompt, text.data, text.size, err);
    span->end = prompt->len;
    return rc;
}

static int encode_question(const struct reranker *r, const struct slice part[3], struct ids *ids,
                           struct err *err)
{
    const char *const before[] = {before_instruction, before_query, before_document};
    AUTO(buf_release) struct buf prompt = {0};
    struct span content[3];
    const struct ids none = {0};
    for (size_t i = 0; i < ARRAY_LEN(content); i++)
        if (buf_addf(&prompt, err, "%s", before[i]) < 0 ||
            add_content(&prompt, &content[i], part[i], err) < 0)
            return -1;
    if (buf_addf(&prompt, err, "%s", behind_document) < 0)
        return -1;
    return tokenizer_encode_chat(r->model->tok, buf_text(&prompt), prompt.len, content,
                                 ARRAY_LEN(content), &none, ids, err);
}

int rerank_encode(const struct reranker *r, struct slice instruction, struct slice query,
                  struct slice document, struct ids *ids, size_t *second, struct err *err)
{
    const struct slice usual = {usual_instruction, sizeof usual_instruction - 1};
    *second = 0;
    if (r->asks)
        return encode_question(
            r, (const struct slice[]){instruction.size ? instruction : usual, query, document}, ids,
            err);
    if (instruction.size)
        return err_set(err, "the model has a classifier's head, which takes no instruction");
    return tokenizer_encode_pair(r->model->tok, query, document, r->model->config.pooled.pair_gap, ids,
                                 second, err);
}

struct reranking {
    const struct reranker *reranker;
    const struct rerank_callbacks *callbacks;
};

static int next_pair(void *arg, bool wait, struct text_ids *text, struct err *err)
{
    const struct rerank_callbacks *callbacks = ((const struct reranking *)arg)->callbacks;
    return callbacks->next(callbacks->arg, wait, text, err);
}

static int take_outputs(void *arg, const struct text_ids *text, const float *outputs,
                        const struct err *error, struct err *err)
{
    const struct reranking *job = arg;
    const struct reranker *r = job->reranker;
    struct rerank_score score = {0, 0};
    if (outputs) {
        const bool two = r->asks || config_pooled_width(&r->model->config) == 2;
        score.logit = two ? (double)outputs[1] - (double)outputs[0] : (double)outputs[0];
        score.score = repro_sigmoid(score.logit);
    }
    return job->callbacks->done(job->callbacks->arg, text, outputs ? &score : NULL, error, err);
}

int rerank_texts(const struct reranker *reranker, struct session *session,
                 const struct rerank_callbacks *callbacks, const volatile sig_atomic_t *interrupted,
                 struct embed_stats *stats, struct err *err)
{
    struct reranking job = {reranker, callbacks};
    const struct embed_callbacks embed = {next_pair, take_outputs, &job, {reranker->no, reranker->yes}};
    return embed_texts(session, reranker->pooling, false, &embed, interrupted, stats, err);
}
