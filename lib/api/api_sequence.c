/* The public API: lengths, truncation, forks and LoRA factors of sequences. */
#include "api/api.h"

int api_check_sequence(const struct bmc_context *c, size_t sequence, struct err *err)
{
    const size_t n = bmc_context_sequences(c);
    return sequence < n ? 0
                        : err_code(err, ERR_INVALID, "there is no sequence %zu: the context has %zu",
                                   sequence, n);
}

size_t api_length(const struct bmc_context *c, size_t sequence)
{
    return sequence < bmc_context_sequences(c) ? session_length(c->session, sequence) : 0;
}

size_t bmc_length(const struct bmc_context *c, size_t sequence)
{
    struct err ignored;
    size_t n = 0;
    if (api_enter(API_OBJECT(c), "context", &ignored) == 0) {
        n = api_length(c, sequence);
        api_leave(API_OBJECT(c));
    }
    return n;
}

const uint32_t *bmc_tokens(const struct bmc_context *c, size_t sequence)
{
    struct err ignored;
    const uint32_t *ids = NULL;
    if (api_enter(API_OBJECT(c), "context", &ignored) == 0) {
        ids = api_length(c, sequence) ? c->tokens[sequence].id : NULL;
        api_leave(API_OBJECT(c));
    }
    return ids;
}

/* The number of tokens, at most n, to which a sequence can be truncated or forked. */
static size_t whole(const struct bmc_context *c, size_t sequence, size_t n)
{
    return kv_is_untrimmed(session_kv(c->session), sequence) ? session_rewind(c->session, sequence, n)
                                                             : 0;
}

size_t api_truncate(struct bmc_context *c, size_t sequence, size_t n)
{
    if (n < api_length(c, sequence))
        session_truncate(c->session, sequence, whole(c, sequence, n));
    if (sequence < bmc_context_sequences(c))
        c->tokens[sequence].len = size_min(c->tokens[sequence].len, api_length(c, sequence));
    return api_length(c, sequence);
}

size_t bmc_truncate(struct bmc_context *c, size_t sequence, size_t n)
{
    struct err ignored;
    size_t left = 0;
    if (api_enter(API_OBJECT(c), "context", &ignored) == 0) {
        left = api_truncate(c, sequence, n);
        api_leave(API_OBJECT(c));
    }
    return left;
}

static int begin_sequence(struct bmc_context *c, size_t sequence, size_t length, struct err *err)
{
    if (api_check_sequence(c, sequence, err) < 0)
        return -1;
    api_truncate(c, sequence, 0);
    c->expected[sequence] = length;
    return 0;
}

int bmc_begin(struct bmc_context *c, size_t sequence, size_t length, struct bmc_error *error)
{
    API_CALL("context", c, begin_sequence(c, sequence, length, &err), BMC_INVALID, error);
}

const float *api_lora_factors(const struct bmc_context *c, size_t sequence)
{
    return lora_factors(&session_pass(c->session)->lora, sequence);
}

void api_set_lora(struct bmc_context *c, size_t sequence, const float *factors)
{
    session_adapt(c->session, sequence, factors);
    c->tokens[sequence].len = session_length(c->session, sequence);
}

static int set_lora(struct bmc_context *c, size_t sequence, const float *factors, size_t n,
                    struct err *err)
{
    const size_t adapters = bmc_model_lora(c->model);
    if (api_check_sequence(c, sequence, err) < 0)
        return -1;
    if (n != (factors ? adapters : 0))
        return err_set(err, "%zu factors are given, the model has %zu LoRA adapters", n, adapters);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(factors[i]))
            return err_set(err, "the factor of LoRA adapter %zu is not a finite number", i);
    api_set_lora(c, sequence, factors);
    return 0;
}

int bmc_set_lora(struct bmc_context *c, size_t sequence, const float *factors, size_t n,
                 struct bmc_error *error)
{
    API_CALL("context", c, set_lora(c, sequence, factors, n, &err), BMC_INVALID, error);
}

static int fork_tokens(struct bmc_context *c, size_t to, size_t from, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids_add(&c->tokens[to], c->tokens[from].id[i], err) < 0)
            return -1;
    return session_fork(c->session, to, from, n, err);
}

static int fork_sequence(struct bmc_context *c, size_t to, size_t from, size_t n, size_t *forked,
                         struct err *err)
{
    if (api_check_sequence(c, to, err) < 0 || api_check_sequence(c, from, err) < 0)
        return -1;
    if (to == from)
        return err_code(err, ERR_INVALID, "sequence %zu cannot be forked to itself", to);
    api_truncate(c, to, 0);
    c->expected[to] = c->expected[from];
    api_set_lora(c, to, api_lora_factors(c, from));
    n = whole(c, from, size_min(n, api_length(c, from)));
    if (!n)
        return 0;
    const size_t original = session_model(c->session)->config.rope->original;
    session_begin(c->session, to, session_scaled(c->session, from) ? size_max(n, original + 1) : n,
                  c->expected[to] ? c->expected[to] : bmc_context_size(c));
    if (fork_tokens(c, to, from, n, err) < 0) {
        session_clear(c->session, to);
        c->tokens[to].len = 0;
        return -1;
    }
    *forked = n;
    return 0;
}

int bmc_fork(struct bmc_context *c, size_t to, size_t from, size_t n, size_t *forked,
             struct bmc_error *error)
{
    size_t ignored;
    size_t *number = forked ? forked : &ignored;
    *number = 0;
    API_CALL("context", c, fork_sequence(c, to, from, n, number, &err), BMC_FAILED, error);
}
