/* The public API: log-probabilities of texts, embeddings, and relevance. */
#include "api/api.h"
#include "decode/rerank.h"
#include "decode/score.h"

static const volatile sig_atomic_t never;

static int check_ids(const struct bmc_context *c, const uint32_t *ids, size_t n, struct err *err)
{
    if (api_check_ids(c->model, ids, n, err) < 0)
        return -1;
    return n ? 0 : err_code(err, ERR_INVALID, "the text is empty");
}

struct logprobs_job {
    const struct bmc_context *context;
    double *logprobs;
};

static int take_logprob(void *arg, const struct text_ids *text, size_t at, double logprob,
                        struct err *err)
{
    enum { OFTEN = 64 };
    const struct logprobs_job *job = arg;
    const size_t done = at + 1;
    job->logprobs[at] = logprob;
    return (done % OFTEN && done < text->n) || api_progress(job->context, done, text->n, err) ? 0 : -1;
}

static int score(struct bmc_context *c, const uint32_t *ids, size_t n, double *logprobs,
                 struct err *err)
{
    struct logprobs_job job = {c, logprobs};
    struct score_stats stats;
    if (check_ids(c, ids, n, err) < 0 || api_given(logprobs, "logprobs", err) < 0)
        return -1;
    api_truncate(c, 0, 0);
    const int rc = score_ids(c->session, 0, ids, n, take_logprob, &job, &never, &stats, err);
    session_clear(c->session, 0);
    return rc;
}

int bmc_score(struct bmc_context *c, const uint32_t *ids, size_t n, double *logprobs,
              struct bmc_error *error)
{
    API_CALL("context", c, score(c, ids, n, logprobs, &err), BMC_FAILED, error);
}

/* A single text for embed_texts(), and where its embedding goes. */
struct embed_job {
    struct text_once once; /* first */
    struct bmc_context *context;
    volatile sig_atomic_t cancelled;
    float *embedding;
    size_t n;       /* its elements */
    double *score;  /* of a pair */
    struct err why; /* of the cancellation */
};

static void layer_done(void *arg, size_t done, size_t layers)
{
    struct embed_job *job = arg;
    const struct kv_seq_info info = kv_seq_info(session_kv(job->context->session), 0);
    if (done == layers &&
        !api_progress(job->context, info.n + info.pending, job->once.text.n, &job->why))
        job->cancelled = 1;
}

static int take_embedding(void *arg, const struct text_ids *text, const float *embedding,
                          const struct err *error, struct err *err)
{
    const struct embed_job *job = arg;
    (void)text;
    if (error)
        return *err = *error, -1;
    memcpy(job->embedding, embedding, job->n * sizeof *embedding);
    return 0;
}

static int begin_embed(struct embed_job *job, struct err *err)
{
    struct bmc_context *c = job->context;
    struct forward *pass = session_pass(c->session);
    if (job->once.text.n > bmc_context_size(c))
        return err_code(err, ERR_FULL, "the text has %zu tokens, the context holds %zu",
                        job->once.text.n, bmc_context_size(c));
    pass->layer_done = layer_done;
    pass->layer_arg = job;
    api_truncate(c, 0, 0);
    return 0;
}

static int end_embed(const struct embed_job *job, int rc, struct err *err)
{
    session_pass(job->context->session)->layer_done = NULL;
    session_clear(job->context->session, 0);
    return job->cancelled ? (*err = job->why, -1) : rc;
}

static int embed(struct bmc_context *c, const uint32_t *ids, size_t n, enum bmc_pooling pooling,
                 int normalize, float *embedding, struct err *err)
{
    static const enum embed_pooling poolings[] = {
        [BMC_POOL_MEAN] = EMBED_MEAN, [BMC_POOL_LAST] = EMBED_LAST, [BMC_POOL_FIRST] = EMBED_CLS};
    struct embed_job job = {.context = c,
                            .once.text = {.id = ids, .n = n},
                            .embedding = embedding,
                            .n = bmc_model_embedding(c->model)};
    const struct embed_callbacks callbacks = {
        .next = text_once_next, .done = take_embedding, .arg = &job};
    struct embed_stats stats;
    if (check_ids(c, ids, n, err) < 0 || api_given(embedding, "embedding", err) < 0)
        return -1;
    enum embed_pooling how = EMBED_MEAN;
    if (pooling == BMC_POOL_MODEL) {
        if (embed_declared(c->model->model, &how, err) < 0)
            return err_prefix(err, "%s", c->model->model->name);
    } else if ((size_t)pooling < ARRAY_LEN(poolings)) {
        how = poolings[pooling];
    } else {
        return err_code(err, ERR_INVALID, "there is no pooling %d", (int)pooling);
    }
    if (begin_embed(&job, err) < 0)
        return -1;
    const int rc = embed_texts(c->session, how, normalize, &callbacks, &job.cancelled, &stats, err);
    return end_embed(&job, rc, err);
}

int bmc_embed(struct bmc_context *c, const uint32_t *ids, size_t n, enum bmc_pooling pooling,
              int normalize, float *embedding, struct bmc_error *error)
{
    API_CALL("context", c, embed(c, ids, n, pooling, normalize, embedding, &err), BMC_FAILED, error);
}

static int take_relevance(void *arg, const struct text_ids *text, const struct rerank_score *score,
                          const struct err *error, struct err *err)
{
    const struct embed_job *job = arg;
    (void)text;
    if (error)
        return *err = *error, -1;
    *job->score = score->score;
    return 0;
}

static int rerank(struct bmc_context *c, struct slice instruction, struct slice query,
                  struct slice document, double *score, struct err *err)
{
    AUTO(ids_release) struct ids ids = {0};
    struct reranker reranker;
    struct embed_job job = {.context = c, .score = score};
    const struct rerank_callbacks callbacks = {text_once_next, take_relevance, &job};
    struct embed_stats stats;
    if (api_given(query.data, "query", err) < 0 || api_given(document.data, "document", err) < 0 ||
        api_given(score, "score", err) < 0)
        return -1;
    if (reranker_init(&reranker, c->model->model, err) < 0)
        return err_prefix(err, "%s", c->model->model->name);
    if (rerank_encode(&reranker, instruction, query, document, &ids, &job.once.text.second, err) < 0)
        return -1;
    job.once.text.id = ids.id;
    job.once.text.n = ids.len;
    if (begin_embed(&job, err) < 0)
        return -1;
    const int rc = rerank_texts(&reranker, c->session, &callbacks, &job.cancelled, &stats, err);
    return end_embed(&job, rc, err);
}

int bmc_rerank(struct bmc_context *c, const char *instruction, const char *query, size_t query_len,
               const char *document, size_t document_len, double *score, struct bmc_error *error)
{
    const struct slice given = {instruction ? instruction : "", instruction ? strlen(instruction) : 0};
    API_CALL("context", c,
             rerank(c, given, (struct slice){query, query_len}, (struct slice){document, document_len},
                    score, &err),
             BMC_FAILED, error);
}
