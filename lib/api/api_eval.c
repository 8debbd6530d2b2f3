/* The public API: bmc_eval(), which runs forward passes over new tokens of several sequences. */
#include "api/api.h"
#include "decode/sample/sampler.h"
#include "model/position.h"

/* Members of the first version of the library, which every program has. */
#define FIRST_INPUT offsetof(struct bmc_input, hidden)

static size_t output_at(const struct bmc_input *in, size_t i)
{
    return in->output_at ? in->output_at[i] : in->n_ids - in->n_outputs + i;
}

static int check_outputs(const struct bmc_context *c, const struct bmc_input *in, struct err *err)
{
    if (in->n_outputs > in->n_ids)
        return err_code(err, ERR_INVALID, "%zu outputs are requested of %zu tokens", in->n_outputs,
                        in->n_ids);
    for (size_t i = 0; in->output_at && i < in->n_outputs; i++)
        if (in->output_at[i] >= in->n_ids || (i && in->output_at[i] <= in->output_at[i - 1]))
            return err_code(err, ERR_INVALID,
                            "output %zu is that of token %zu of %zu: indices must ascend", i,
                            in->output_at[i], in->n_ids);
    return in->hidden && !c->hidden_states
               ? err_code(err, ERR_INVALID,
                          "hidden states need a context with the option hidden_states")
               : 0;
}

static int check_input(struct bmc_context *c, const struct bmc_input *in, struct err *err)
{
    if (api_check_sequence(c, in->sequence, err) < 0)
        return -1;
    if (c->seen[in->sequence])
        return err_code(err, ERR_INVALID, "sequence %zu is in the inputs twice", in->sequence);
    c->seen[in->sequence] = true;
    if (!in->n_ids)
        return err_code(err, ERR_INVALID, "sequence %zu gets no tokens: at least one is expected",
                        in->sequence);
    if (in->n_ids > session_remaining(c->session, in->sequence))
        return err_code(err, ERR_FULL,
                        "the context of %zu tokens is full: sequence %zu has %zu, %zu more are given",
                        bmc_context_size(c), in->sequence, api_length(c, in->sequence), in->n_ids);
    return api_check_ids(c->model, in->ids, in->n_ids, err) < 0 ? -1 : check_outputs(c, in, err);
}

/* Reserves room for the tokens, so that they can be recorded when their entries are committed. */
static int reserve_tokens(struct bmc_context *c, const struct bmc_input *in, struct err *err)
{
    struct ids *tokens = &c->tokens[in->sequence];
    const size_t before = tokens->len;
    int rc = 0;
    for (size_t i = 0; i < in->n_ids && rc == 0; i++)
        rc = ids_add(tokens, in->ids[i], err);
    tokens->len = before;
    return rc;
}

/* Reads and checks all inputs; nothing changes before. */
static int read_inputs(struct bmc_context *c, const struct bmc_input *inputs, size_t n, struct err *err)
{
    const size_t sequences = bmc_context_sequences(c);
    memset(c->seen, 0, sequences * sizeof *c->seen);
    if (n && api_given(inputs, "inputs", err) < 0)
        return -1;
    if (n > sequences)
        return err_code(err, ERR_INVALID, "%zu inputs for %zu sequences", n, sequences);
    for (size_t i = 0; i < n; i++) {
        struct eval_part *part = &c->part[i];
        const char *at = (const char *)inputs + (i ? i * inputs->size : 0);
        *part = (struct eval_part){0};
        if (api_read(&part->input, sizeof part->input, at, FIRST_INPUT, "bmc_input", err) < 0)
            return -1;
        if (part->input.size != inputs->size)
            return err_code(err, ERR_INVALID, "inputs of %zu and of %zu bytes", inputs->size,
                            part->input.size);
        if (check_input(c, &part->input, err) < 0)
            return -1;
        part->before = api_length(c, part->input.sequence);
    }
    for (size_t i = 0; i < n; i++)
        if (reserve_tokens(c, &c->part[i].input, err) < 0)
            return -1;
    return 0;
}

/* Fills the batch with the next tokens of all inputs, as many as fit. False: there are none. */
static bool fill_batch(struct bmc_context *c, size_t n)
{
    struct session *s = c->session;
    const struct session_options *o = session_options(s);
    size_t space = size_max(o->chunk, o->batch); /* passes may be larger, for draft tokens */
    bool any = false;
    for (struct eval_part *part = c->part; part < c->part + n; part++) {
        const struct bmc_input *in = &part->input;
        part->n = size_min(in->n_ids - part->done, size_min(space, batch_space(s)));
        if (!part->n)
            continue;
        space -= part->n;
        part->row = batch_add(s, in->sequence, in->ids + part->done, part->n);
        any = true;
    }
    return any;
}

/* The outputs of an input that the current pass computes. */
static size_t outputs_now(const struct eval_part *part)
{
    size_t n = 0;
    const struct bmc_input *in = &part->input;
    while (part->outputs + n < in->n_outputs && output_at(in, part->outputs + n) < part->done + part->n)
        n++;
    return n;
}

static size_t output_row(const struct eval_part *part, size_t i)
{
    return part->row + output_at(&part->input, part->outputs + i) - part->done;
}

/* Computes all logits of the pass at once: in place if the inputs' arrays follow each other. */
static int compute_logits(struct bmc_context *c, size_t n, struct err *err)
{
    const size_t vocab = session_vocab(c->session);
    float *to = NULL;
    size_t rows = 0;
    bool in_place = true;
    for (struct eval_part *part = c->part; part < c->part + n; part++) {
        const size_t some = part->input.logits ? outputs_now(part) : 0;
        float *at = some ? part->input.logits + part->outputs * vocab : NULL;
        if (some && !to)
            to = at;
        in_place = in_place && (!some || at == to + rows * vocab);
        for (size_t i = 0; i < some; i++)
            c->row[rows++] = output_row(part, i);
    }
    if (!rows)
        return 0;
    if (!in_place) {
        buf_clear(&c->gathered);
        if (rows > SIZE_MAX / vocab / sizeof *to ||
            buf_reserve(&c->gathered, rows * vocab * sizeof *to, err) < 0)
            return err_no_memory(err, "%zu logits", rows);
        to = (float *)(void *)c->gathered.data;
    }
    if (session_logits(c->session, c->row, rows, to, err) < 0)
        return -1;
    if (!logits_finite(to, rows * vocab))
        return session_refuse_output(c->session, "the model", "logits", err);
    for (struct eval_part *part = c->part; part < c->part + n && !in_place; part++) {
        const size_t some = part->input.logits ? outputs_now(part) : 0;
        if (some)
            memcpy(part->input.logits + part->outputs * vocab, to, some * vocab * sizeof *to);
        to += some * vocab;
    }
    return 0;
}

static void copy_hidden(const struct bmc_context *c, const struct eval_part *part)
{
    const size_t hidden = bmc_model_hidden(c->model);
    for (size_t i = 0; part->input.hidden && i < outputs_now(part); i++)
        session_hidden(c->session, output_row(part, i),
                       part->input.hidden + (part->outputs + i) * hidden);
}

static bool tell_progress(const struct bmc_context *c, size_t n, struct err *err)
{
    size_t done = 0, total = 0;
    for (const struct eval_part *part = c->part; part < c->part + n; part++) {
        done += part->done;
        total += part->input.n_ids;
    }
    return api_progress(c, done, total, err);
}

static int run_pass(struct bmc_context *c, size_t n, struct err *err)
{
    const struct session_options *o = session_options(c->session);
    bool prompts = false;
    for (size_t i = 0; i < n; i++)
        prompts = prompts || c->part[i].n > 1;
    if (session_run(c->session, prompts ? o->threads_prefill : o->threads, err) < 0)
        return -1;
    if (compute_logits(c, n, err) < 0)
        return -1;
    for (struct eval_part *part = c->part; part < c->part + n; part++) {
        copy_hidden(c, part);
        part->outputs += outputs_now(part);
        part->done += part->n;
    }
    return tell_progress(c, n, err) ? 0 : -1;
}

/* Begins an empty sequence; or computes it again if it has other rotary frequencies than those of its length
 * with the new tokens. */
static int begin_part(struct bmc_context *c, const struct eval_part *part, struct err *err)
{
    struct session *s = c->session;
    const size_t seq = part->input.sequence, total = part->before + part->input.n_ids;
    const bool scaled = rope_depends(session_model(s)->config.rope, total);
    if (part->before && session_scaled(s, seq) == scaled)
        return 0;
    if (part->before)
        session_clear(s, seq);
    session_begin(s, seq, total, c->expected[seq] ? c->expected[seq] : bmc_context_size(c));
    for (size_t at = 0, n; at < part->before; at += n) {
        n = size_min(part->before - at, size_min(session_options(s)->chunk, batch_space(s)));
        batch_add(s, seq, c->tokens[seq].id + at, n);
        if (session_run(s, session_options(s)->threads_prefill, err) < 0)
            return -1;
    }
    return 0;
}

int api_eval(struct bmc_context *c, const struct bmc_input *inputs, size_t n, struct err *err)
{
    struct err ignored;
    int rc = 0;
    if (read_inputs(c, inputs, n, err) < 0)
        return -1;
    for (const struct eval_part *part = c->part; part < c->part + n; part++) {
        const size_t seq = part->input.sequence;
        if (rc == 0)
            rc = begin_part(c, part, err);
        session_mark(c->session, seq, part->before); /* for the way back */
    }
    while (rc == 0 && fill_batch(c, n))
        rc = run_pass(c, n, err);
    for (const struct eval_part *part = c->part; part < c->part + n; part++) {
        struct ids *tokens = &c->tokens[part->input.sequence];
        for (size_t i = 0; i < part->input.n_ids && rc == 0; i++)
            if (ids_add(tokens, part->input.ids[i], &ignored) < 0)
                break; /* never: reserve_tokens() */
        if (rc < 0)
            api_truncate(c, part->input.sequence, part->before);
    }
    return rc;
}

int bmc_eval(struct bmc_context *c, const struct bmc_input *inputs, size_t n, struct bmc_error *error)
{
    API_CALL("context", c, api_eval(c, inputs, n, &err), BMC_FAILED, error);
}
