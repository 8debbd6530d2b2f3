/* The public API: sampling from logits under settings and a constraint. */
#include <stdlib.h>
#include <string.h>

#include "api/api_settings.h"
#include "decode/sample/rng.h"
#include "decode/sample/token_mask.h"

struct bmc_sampler {
    struct bmc_context *context;
    struct request request;
    struct sampler sampler;
    struct constraint *constraint; /* NULL: none */
    struct constraint_cursor at;
    struct token_mask mask;
    struct ids ends; /* tokens that may end a constrained text */
    uint64_t stream;
    double mirostat_mu;
};

static int open_constraint(struct bmc_sampler *s, struct err *err)
{
    const struct request *r = &s->request;
    const struct config *config = &s->context->model->model->config;
    if (r->constraint == CONSTRAINT_NONE)
        return 0;
    if (constraint_cache_get(s->context->settings->constraints, r->constraint,
                             buf_text(&r->constraint_text), r->constraint_text.len, &s->constraint,
                             err) < 0)
        return -1;
    for (size_t i = 0; i < config->n_eos && !r->gen.ignore_eos; i++)
        if (ids_add(&s->ends, config->eos[i], err) < 0)
            return -1;
    return constraint_begin(&s->at, s->constraint, err);
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
    struct api_settings *known = s->context->settings;
    struct request *r = &s->request;
    const size_t vocab = bmc_model_vocab(s->context->model);
    char *line = api_request_line(&(struct bmc_request){.settings = settings}, err);
    if (!line)
        return -1;
    const int rc = request_open(r, line, strlen(line), false, err);
    free(line);
    r->sampling = known->serve.options.sampling;
    if (rc < 0 || request_apply(r, err) < 0 || check_biases(s, vocab, err) < 0)
        return -1;
    if (r->text || r->ids || r->messages)
        return err_set(err, "settings of a sampler have a prompt: give the tokens to bmc_sample()");
    if (r->breakers_given)
        return err_set(err, "\"dry_sequence_breakers\" are those of bmc_generate() only");
    if (dry_is_on(&r->sampling) && dry_breakers_find(&known->breakers, err) < 0)
        return -1;
    r->sampling.dry_breaker = known->breakers.token;
    s->mirostat_mu = sampler_mirostat_begin(&r->sampling);
    return sampler_open(&s->sampler, &r->sampling, vocab, err) < 0 ? -1 : open_constraint(s, err);
}

int bmc_sampler_open(struct bmc_sampler **sampler, struct bmc_context *c, const char *settings,
                     uint64_t stream, struct bmc_error *error)
{
    struct err *err = api_err(error);
    struct bmc_sampler *s = *sampler = mem_zalloc(1, sizeof *s);
    if (!s)
        return err_set(err, "out of memory for a sampler"), BMC_NO_MEMORY;
    s->context = c;
    s->stream = stream;
    if (open_settings(s, settings, err) == 0)
        return 0;
    bmc_sampler_close(s);
    *sampler = NULL;
    return api_failed(err, BMC_INVALID);
}

void bmc_sampler_close(struct bmc_sampler *s)
{
    if (!s)
        return;
    constraint_end(&s->at);
    if (s->constraint)
        constraint_cache_put(s->context->settings->constraints, s->constraint);
    token_mask_release(&s->mask);
    ids_release(&s->ends);
    sampler_close(&s->sampler);
    request_close(&s->request);
    free(s);
}

/* Limits the sampler to the tokens that the constraint allows. */
static int constrain(struct bmc_sampler *s, struct err *err)
{
    s->sampler.allowed = NULL;
    if (!s->constraint)
        return 0;
    if (token_mask_set(&s->mask, s->constraint, s->at.state, &s->ends, err) < 0)
        return -1;
    s->sampler.allowed = s->mask.bits;
    return s->mask.any ? 0
                       : err_set(err, "no token of the vocabulary continues the text as the "
                                      "constraint asks for");
}

int bmc_sample(struct bmc_sampler *s, const float *logits, const uint32_t *ids, size_t n_ids,
               uint32_t *id, struct bmc_error *error)
{
    struct err *err = api_err(error);
    const size_t vocab = bmc_model_vocab(s->context->model);
    const uint64_t seed = s->request.gen.seed;
    const uint32_t position = (uint32_t)n_ids;
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] >= vocab)
            return err_set(err, "id %u is outside the vocabulary of %zu", ids[i], vocab), BMC_INVALID;
    if (!logits_finite(logits, vocab))
        return err_set(err, NO_FINITE_LOGITS), BMC_FAILED;
    if (constrain(s, err) < 0)
        return api_failed(err, BMC_FAILED);
    s->sampler.options = s->request.sampling;
    s->sampler.xtc_u = rng_uniform(seed, s->stream, position, SAMPLER_XTC_DRAW);
    s->sampler.mirostat_mu = s->mirostat_mu;
    *id = sampler_sample(&s->sampler, logits, ids, n_ids, rng_uniform(seed, s->stream, position, 0));
    bool ends = false;
    for (size_t i = 0; i < s->ends.len; i++)
        ends = ends || s->ends.id[i] == *id;
    if (s->constraint && !ends && constraint_advance(&s->at, *id, err) < 0)
        return api_failed(err, BMC_FAILED);
    s->mirostat_mu = sampler_mirostat_next(&s->sampler, *id);
    return 0;
}
