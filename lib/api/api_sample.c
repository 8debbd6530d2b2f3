/* The public API: sampling from logits under settings and a constraint. */
#include "api/api.h"
#include "decode/sample/token_mask.h"

struct bmc_sampler {
    struct api_object object; /* which has the lock of its context */
    struct bmc_context *context;
    struct request request;
    struct sampler sampler;
    struct constraint *constraint; /* NULL: none */
    struct constraint_cursor at;
    struct token_mask mask;
    struct ids ends;  /* tokens that may end a constrained text */
    struct ids taken; /* tokens that the constraint has moved on by */
    uint64_t stream;
    double mirostat_mu;
};

static void close_constraint(struct bmc_sampler *s)
{
    constraint_end(&s->at);
    if (s->constraint)
        constraint_cache_put(s->context->serve.constraints, s->constraint);
    s->constraint = NULL;
}

/* Begins the constraint, and moves on by the tokens that were sampled before. */
static int begin_constraint(struct bmc_sampler *s, struct err *err)
{
    const struct request *r = &s->request;
    if (constraint_cache_get(s->context->serve.constraints, r->constraint,
                             buf_text(&r->constraint_text), r->constraint_text.len, &s->constraint,
                             err) < 0)
        return -1;
    int rc = constraint_begin(&s->at, s->constraint, err);
    for (size_t i = 0; i < s->taken.len && rc == 0; i++)
        rc = constraint_advance(&s->at, s->taken.id[i], err);
    if (rc < 0)
        close_constraint(s);
    return rc;
}

static int open_constraint(struct bmc_sampler *s, struct err *err)
{
    const struct config *config = &s->context->model->model->config;
    if (s->request.constraint == CONSTRAINT_NONE)
        return 0;
    for (size_t i = 0; i < config->n_eos && !s->request.gen.ignore_eos; i++)
        if (ids_add(&s->ends, config->eos[i], err) < 0)
            return -1;
    return begin_constraint(s, err);
}

static int check_biases(const struct bmc_sampler *s, size_t vocab, struct err *err)
{
    const struct sampler_options *o = &s->request.sampling;
    for (size_t i = 0; i < o->n_biases; i++)
        if (o->bias[i].id >= vocab)
            return err_set(err, "logit bias for id %u, which is outside the vocabulary of %zu",
                           o->bias[i].id, vocab);
    return 0;
}

static int open_settings(struct bmc_sampler *s, const char *settings, struct err *err)
{
    struct bmc_context *c = s->context;
    struct request *r = &s->request;
    const size_t vocab = bmc_model_vocab(c->model);
    settings = settings ? settings : "{}";
    if (request_open(r, settings, strlen(settings), 0, err) < 0)
        return r->root ? -1 : err_prefix(err, "settings");
    r->sampling = c->serve.options.sampling;
    if (request_apply(r, err) < 0 || check_biases(s, vocab, err) < 0)
        return -1;
    c->ignored |= r->ignored;
    api_log_ignored(c);
    if (r->n_prompts)
        return err_set(err, "settings of a sampler have a prompt: give the tokens to bmc_sample()");
    if (r->breakers_given)
        return err_set(err, "\"dry_sequence_breakers\" are those of bmc_generate() only");
    if (dry_breakers_find(&c->serve.breakers, &r->sampling, err) < 0)
        return -1;
    s->mirostat_mu = sampler_mirostat_begin(&r->sampling);
    return sampler_open(&s->sampler, &r->sampling, vocab, err) < 0 ? -1 : open_constraint(s, err);
}

static void free_sampler(struct api_object *object)
{
    AUTO(free_auto) struct bmc_sampler *s = (struct bmc_sampler *)object;
    close_constraint(s);
    token_mask_release(&s->mask);
    ids_release(&s->ends);
    ids_release(&s->taken);
    sampler_close(&s->sampler);
    request_close(&s->request);
}

static int open_sampler(struct bmc_sampler **sampler, struct bmc_context *c, const char *settings,
                        uint64_t stream, struct err *err)
{
    if (api_given(sampler, "sampler", err) < 0)
        return -1;
    struct bmc_sampler *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a sampler");
    api_object_open(&s->object, API_OBJECT(c), true, free_sampler);
    s->context = c;
    s->stream = stream;
    if (open_settings(s, settings, err) == 0) {
        *sampler = s;
        return 0;
    }
    bmc_sampler_close(s);
    return -1;
}

int bmc_sampler_open(struct bmc_sampler **sampler, struct bmc_context *c, const char *settings,
                     uint64_t stream, struct bmc_error *error)
{
    if (sampler)
        *sampler = NULL;
    API_CALL("context", c, open_sampler(sampler, c, settings, stream, &err), BMC_INVALID, error);
}

void bmc_sampler_close(struct bmc_sampler *s) { api_object_drop(API_OBJECT(s)); }

/* Limits the sampler to the tokens that the constraint allows. One whose automaton an earlier call could
 * not extend, for lack of memory, is compiled again. */
static int constrain(struct bmc_sampler *s, struct err *err)
{
    s->sampler.allowed = NULL;
    if (s->request.constraint == CONSTRAINT_NONE)
        return 0;
    if (s->constraint && constraint_failed(s->constraint))
        close_constraint(s);
    if (!s->constraint && begin_constraint(s, err) < 0)
        return -1;
    if (token_mask_set(&s->mask, s->constraint, s->at.state, &s->ends, err) < 0)
        return -1;
    s->sampler.allowed = s->mask.bits;
    return s->mask.any ? 0
                       : err_set(err, "no token of the vocabulary continues the text as the "
                                      "constraint asks for");
}

static int advance(struct bmc_sampler *s, uint32_t id, struct err *err)
{
    if (ids_add(&s->taken, id, err) < 0)
        return -1;
    if (constraint_advance(&s->at, id, err) == 0)
        return 0;
    s->taken.len--;
    return -1;
}

static int sample(struct bmc_sampler *s, const float *logits, const uint32_t *ids, size_t n_ids,
                  uint32_t *id, struct err *err)
{
    const size_t vocab = bmc_model_vocab(s->context->model);
    const uint64_t seed = s->request.gen.seed;
    const uint32_t position = (uint32_t)n_ids;
    if (api_given(logits, "logits", err) < 0 || api_given(id, "id", err) < 0 ||
        api_check_ids(s->context->model, ids, n_ids, err) < 0)
        return -1;
    if (!logits_finite(logits, vocab))
        return session_refuse_output(s->context->session, "the model", "logits", err);
    if (constrain(s, err) < 0)
        return -1;
    sampler_begin(&s->sampler, &s->request.sampling, seed, s->stream, position);
    s->sampler.mirostat_mu = s->mirostat_mu;
    const uint32_t chosen = sampler_sample(&s->sampler, logits, ids, n_ids);
    bool ends = false;
    for (size_t i = 0; i < s->ends.len; i++)
        ends = ends || s->ends.id[i] == chosen;
    if (s->constraint && !ends && advance(s, chosen, err) < 0)
        return -1;
    s->mirostat_mu = sampler_mirostat_next(&s->sampler, chosen);
    *id = chosen;
    return 0;
}

int bmc_sample(struct bmc_sampler *s, const float *logits, const uint32_t *ids, size_t n_ids,
               uint32_t *id, struct bmc_error *error)
{
    API_CALL("sampler", s, sample(s, logits, ids, n_ids, id, &err), BMC_FAILED, error);
}
