/* The public API: bmc_generate(), which serves requests by the generation loop of the programs. */
#include "api/api_draft.h"
#include "serve/result.h"
#include "text/utf8.h"

/* Members of the first version of the library, which every program has. */
#define FIRST_REQUEST   (offsetof(struct bmc_request, n_ids) + sizeof(size_t))
#define FIRST_RESULT    (offsetof(struct bmc_result, error) + sizeof(struct bmc_error))
#define FIRST_CALLBACKS (offsetof(struct bmc_callbacks, cancelled) + sizeof(int *))

static const struct err no_choices = {"out of memory for the choices of a request", ERR_NO_MEMORY};

/* A request of the call and its result, until it is copied to the caller's. */
struct generated {
    const char *settings; /* NULL: the request cannot be read */
    bool has_prompt;      /* apart from the settings */
    struct prompt prompt;
    struct bmc_result result; /* and further choices; those have ended whose `size` is set */
};

struct generation {
    struct bmc_context *context;
    struct bmc_callbacks callbacks;
    struct generated *item; /* [n] */
    size_t n, next;
};

static int next_request(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct generation *g = arg;
    (void)wait;
    (void)err;
    while (g->next < g->n && !g->item[g->next].settings)
        g->next++;
    if (g->next == g->n)
        return GEN_END;
    const struct generated *item = &g->item[g->next];
    *input = (struct serve_input){.json = item->settings,
                                  .len = strlen(item->settings),
                                  .number = g->next++,
                                  .prompt = item->has_prompt ? &item->prompt : NULL};
    return GEN_REQUEST;
}

static void fail_result(struct bmc_result *result, const struct err *why)
{
    result->finish = BMC_FINISH_ERROR;
    result->status = api_status(-1, why, BMC_FAILED, &result->error);
}

/* Sets the tokens and the text of a result to copies. */
static int copy_answer(struct bmc_result *to, const uint32_t *ids, size_t n_ids, const char *text,
                       size_t len, struct err *err)
{
    to->ids = malloc(n_ids * sizeof *to->ids + 1);
    to->text = malloc(len + 1);
    if (!to->ids || !to->text)
        return err_no_memory(err, "a result");
    if (n_ids)
        memcpy(to->ids, ids, n_ids * sizeof *to->ids);
    if (len)
        memcpy(to->text, text, len);
    to->text[len] = 0;
    to->n_ids = n_ids;
    to->text_len = len;
    return 0;
}

static int copy_result(struct bmc_result *to, const struct gen_result *from, struct err *err)
{
    const size_t n_logprobs = from->n_ids * (1 + from->n_best);
    _Static_assert(sizeof(struct bmc_logprob) == sizeof(struct logprob), "the same structure");
    if (copy_answer(to, from->ids, from->n_ids, from->text, from->text_len, err) < 0)
        return -1;
    if (from->n_best && !(to->logprobs = malloc(n_logprobs * sizeof *to->logprobs + 1)))
        return err_no_memory(err, "a result");
    if (to->logprobs)
        memcpy(to->logprobs, from->logprobs, n_logprobs * sizeof *to->logprobs);
    to->n_best = from->n_best;
    to->n_prompt = from->n_prompt;
    return 0;
}

/* Links results for all choices of a request. */
static int make_choices(struct generated *item, size_t n, struct err *err)
{
    struct bmc_result *last = &item->result;
    for (size_t i = 1; i < n; i++, last = last->next)
        if (!last->next && !(last->next = mem_zalloc(1, sizeof *last)))
            return *err = no_choices, -1;
    return 0;
}

/* Ends a choice that has failed or was cancelled. */
static void end_choice(struct bmc_result *to, const struct err *why)
{
    to->size = sizeof *to;
    if (why->code == ERR_INTERRUPTED)
        to->finish = BMC_FINISH_CANCELLED;
    else
        fail_result(to, why);
}

/* Ends those choices of a request that have not ended. */
static void end_rest(struct generated *item, const struct err *why)
{
    for (struct bmc_result *one = &item->result; one; one = one->next)
        if (!one->size)
            end_choice(one, why);
}

static int copy_choice(struct generated *item, struct bmc_result *to, const struct gen_result *from,
                       struct err *err)
{
    static const enum bmc_finish finish[] = {
        [FINISHED_LENGTH] = BMC_FINISH_LENGTH,       [FINISHED_EOS] = BMC_FINISH_EOS,
        [FINISHED_STOP] = BMC_FINISH_STOP,           [FINISHED_REPETITION] = BMC_FINISH_LENGTH,
        [FINISHED_CANCELLED] = BMC_FINISH_CANCELLED, [FINISHED_ERROR] = BMC_FINISH_ERROR};
    const struct hash run = gen_run_hash(&from->logits_hash, 1);
    if (copy_result(to, from, err) < 0)
        return -1;
    if (from->n_beams)
        to->score = from->beams[0].score;
    for (struct bmc_result *one = &item->result; one; one = one->next)
        hash_hex(&run, 8, one->logits_hash);
    to->finish = finish[from->finish];
    return 0;
}

static int copy_beam(struct bmc_result *to, const struct model *model, const struct gen_result *from,
                     size_t i, struct err *err)
{
    const struct beam *beam = &from->beams[i];
    struct buf text = {0};
    int rc = result_beam_text(model->tok, from, i, &text, err);
    if (rc == 0)
        rc = copy_answer(to, beam->ids.id, beam->ids.len, text.data, text.len, err);
    buf_release(&text);
    to->n_prompt = from->n_prompt;
    to->score = beam->score;
    return rc;
}

/* Copies the beams after the best one. */
static int copy_beams(const struct generation *g, struct generated *item, const struct gen_result *from,
                      struct err *err)
{
    const struct bmc_result *best = &item->result;
    struct bmc_result *to = item->result.next;
    for (size_t i = 1; i < from->n_beams; i++, to = to->next) {
        if (copy_beam(to, g->context->model->model, from, i, err) < 0)
            return -1;
        to->size = sizeof *to;
        to->finish = best->finish == BMC_FINISH_EOS || best->finish == BMC_FINISH_LENGTH
                         ? from->beams[i].by_eos ? BMC_FINISH_EOS : BMC_FINISH_LENGTH
                         : best->finish;
        memcpy(to->logits_hash, best->logits_hash, sizeof to->logits_hash);
    }
    return 0;
}

static int take_choice(void *arg, const struct serve_choice *which, const struct gen_result *from,
                       const struct err *error, struct err *err)
{
    const struct generation *g = arg;
    struct generated *item = &g->item[which->number];
    struct bmc_result *to = &item->result;
    const size_t n_beams = from ? from->n_beams : 0;
    const int made = make_choices(item, size_max(which->n_choices, n_beams), err);
    if (made < 0 || which->choice == SIZE_MAX) {
        end_rest(item, made < 0 ? err : error);
        return 0;
    }
    for (size_t i = 0; i < which->choice; i++)
        to = to->next;
    if (to->size)
        return 0; /* memory was exhausted when another choice ended */
    to->size = sizeof *to;
    if (from && (copy_choice(item, to, from, err) < 0 || copy_beams(g, item, from, err) < 0))
        error = err;
    if (error)
        end_choice(to, error);
    for (struct bmc_result *beam = n_beams ? to->next : NULL; beam && error; beam = beam->next)
        end_choice(beam, error);
    return 0;
}

static int pass_text(void *arg, const struct serve_choice *which, const char *text, size_t len,
                     const uint32_t *ids, size_t n_ids, struct err *err)
{
    const struct generation *g = arg;
    const struct bmc_callbacks *c = &g->callbacks;
    (void)err;
    if (c->choice_text)
        return c->choice_text(c->arg, which->number, which->choice, text, len, ids, n_ids);
    return c->text && which->choice == 0 && c->text(c->arg, which->number, text, len, ids, n_ids);
}

static void pass_prefill(void *arg, size_t done, size_t total)
{
    const struct generation *g = arg;
    if (g->callbacks.prefill)
        g->callbacks.prefill(g->callbacks.arg, done, total);
}

static void free_arrays(const struct bmc_result *result)
{
    free(result->ids);
    free(result->text);
    free(result->logprobs);
}

static void release_choices(struct bmc_result *first)
{
    while (first) {
        struct bmc_result *next = first->next;
        free_arrays(first);
        free(first);
        first = next;
    }
}

/* Which sequence has the KV entries of the request, if they are retained. */
static void find_sequence(const struct generation *g, struct bmc_result *result)
{
    result->sequence = SIZE_MAX;
    for (size_t i = 0; i < bmc_context_sequences(g->context) && result->n_ids; i++) {
        const struct ids *tokens = &g->context->tokens[i];
        if (tokens->len >= result->n_prompt && tokens->len <= result->n_prompt + result->n_ids &&
            memcmp(tokens->id + result->n_prompt, result->ids,
                   (tokens->len - result->n_prompt) * sizeof *result->ids) == 0)
            result->sequence = i;
    }
}

/* Checks the structures' sizes; nothing is written before. */
static int check_sizes(const struct bmc_request *requests, const struct bmc_result *results, size_t n,
                       struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        struct bmc_request r;
        size_t given;
        memcpy(&given, (const char *)results + (i ? i * results->size : 0), sizeof given);
        if (api_read(&r, sizeof r, (const char *)requests + (i ? i * requests->size : 0), FIRST_REQUEST,
                     "bmc_request", err) < 0)
            return -1;
        if (given < FIRST_RESULT || given != results->size)
            return err_set(err,
                           "the member `size` of struct bmc_result is %zu: set it to sizeof(struct "
                           "bmc_result)",
                           given);
        if (r.size != requests->size)
            return err_set(err, "requests of %zu and of %zu bytes", requests->size, r.size);
    }
    return 0;
}

static int read_request(struct generated *item, const struct bmc_request *r, struct err *err)
{
    const size_t len = r->text ? strlen(r->text) : 0, valid = r->text ? utf8_valid(r->text, len) : 0;
    if (r->text && r->ids)
        return err_set(err, "the prompt is given as a text and as token ids");
    if (valid < len)
        return err_set(err, "the prompt is not valid UTF-8: byte %zu", valid);
    item->has_prompt = r->text || r->ids;
    item->prompt = (struct prompt){.text = r->text, .len = len, .ids = r->ids, .n_ids = r->n_ids};
    item->settings = r->settings ? r->settings : "{}";
    return 0;
}

/* Reads the requests; those that cannot be read have failed. */
static void read_requests(struct generation *g, const struct bmc_request *requests)
{
    struct err why;
    for (size_t i = 0; i < g->n; i++) {
        struct bmc_request r;
        struct generated *item = &g->item[i];
        if (api_read(&r, sizeof r, (const char *)requests + i * requests->size, FIRST_REQUEST,
                     "bmc_request", &why) < 0 ||
            read_request(item, &r, &why) < 0) {
            why.code = ERR_INVALID;
            end_choice(&item->result, &why);
        }
    }
}

/* Completes the results of a request; returns the first that has failed, or NULL. */
static const struct bmc_result *complete_results(const struct generation *g, struct generated *item)
{
    const struct bmc_result *failed = NULL;
    for (struct bmc_result *one = &item->result; one; one = one->next) {
        if (!one->size)
            end_choice(one, &no_choices);
        find_sequence(g, one);
        if (one->status < 0 && !failed)
            failed = one;
    }
    return failed;
}

/* Copies the results to the caller's, whose structures may be smaller or larger. Returns the status of the first
 * that has failed. */
static enum bmc_status put_results(struct generation *g, struct bmc_result *results, struct err *err)
{
    const size_t size = results->size;
    enum bmc_status status = BMC_OK;
    for (size_t i = 0; i < g->n; i++) {
        struct bmc_result *own = &g->item[i].result;
        const struct bmc_result *failed = complete_results(g, &g->item[i]);
        if (failed && status == BMC_OK) {
            status = (enum bmc_status)failed->status;
            err_set(err, "%s", failed->error.text);
            if (g->n > 1)
                err_prefix(err, "request %zu", i);
        }
        if (size < offsetof(struct bmc_result, next) + sizeof own->next)
            release_choices(own->next); /* of which the caller does not know */
        api_write((char *)results + i * size, size, own, sizeof *own);
    }
    return status;
}

static void add_stats(struct bmc_stats *to, const struct gen_stats *run)
{
    to->prompt_tokens += run->prefill_tokens;
    to->reused_tokens += run->shared_rows;
    to->disk_tokens += run->store_hit_tokens;
    to->generated_tokens += run->sampled_tokens;
    to->prompt_ms += run->prefill_ms;
    to->generate_ms += run->decode_ms;
}

/* Empties all sequences of a context with beam search. */
static void clear_beams(struct bmc_context *c)
{
    for (size_t i = 0; c->beam && i < session_options(c->session)->batch; i++) {
        session_clear(c->session, i);
        c->tokens[i].len = 0;
    }
}

static void run_requests(struct generation *g, struct err *err)
{
    static const volatile sig_atomic_t never;
    struct bmc_context *c = g->context;
    struct serve *serve = &c->serve;
    struct gen_stats stats;
    const struct serve_io io = {.next = next_request,
                                .ignored = &c->ignored,
                                .arg = g,
                                .take = take_choice,
                                .progress = pass_text,
                                .prefill = pass_prefill};
    _Static_assert(sizeof(sig_atomic_t) == sizeof(int), "an int that another thread may set");
    serve->interrupted = g->callbacks.cancelled ? g->callbacks.cancelled : &never;
    serve->cached = c->beam ? NULL : c->tokens;
    serve->strategy = c->draft ? spec_strategy(c->draft->spec) : step_beam_strategy(c->beam);
    clear_beams(c);
    const int rc = serve_lines(serve, &io, &stats, err);
    clear_beams(c);
    add_stats(&c->stats, &stats);
    api_log_ignored(c);
    for (size_t i = 0; i < g->n; i++) /* those that were not begun, or for which there was no memory */
        end_rest(&g->item[i], rc < 0 ? err : g->item[i].result.size ? &no_choices : &err_interrupted);
}

/* Lets all requests fail. */
static void fail_all(struct bmc_result *results, size_t n, const struct err *why)
{
    const size_t size = results->size;
    struct bmc_result failed = {.sequence = SIZE_MAX};
    fail_result(&failed, why);
    for (size_t i = 0; i < n; i++)
        api_write((char *)results + i * size, size, &failed, sizeof failed);
}

/* Serves the requests; returns the status of the first that has failed. */
static enum bmc_status serve_requests(struct generation *g, const struct bmc_request *requests,
                                      struct bmc_result *results, struct err *err)
{
    read_requests(g, requests);
    run_requests(g, err);
    return put_results(g, results, err);
}

int bmc_generate(struct bmc_context *c, const struct bmc_request *requests, struct bmc_result *results,
                 size_t n, const struct bmc_callbacks *callbacks, struct bmc_error *error)
{
    struct err err;
    struct generation g = {.context = c, .n = n};
    enum bmc_status status = BMC_FAILED;
    if (n == 0)
        return 0;
    if (api_given(requests, "requests", &err) < 0 || api_given(results, "results", &err) < 0 ||
        (callbacks && api_read(&g.callbacks, sizeof g.callbacks, callbacks, FIRST_CALLBACKS,
                               "bmc_callbacks", &err) < 0) ||
        check_sizes(requests, results, n, &err) < 0)
        return api_status(-1, &err, BMC_INVALID, error);
    int rc = api_enter(API_OBJECT(c), "context", &err);
    if (rc == 0) {
        rc = (g.item = mem_zalloc(n, sizeof *g.item)) ? 0 : err_no_memory(&err, "%zu requests", n);
        if (rc == 0)
            status = serve_requests(&g, requests, results, &err);
        free(g.item);
        api_leave(API_OBJECT(c));
    }
    if (rc < 0)
        fail_all(results, n, &err);
    return api_status(status == BMC_OK ? 0 : -1, &err, status, error);
}

void bmc_result_release(struct bmc_result *result)
{
    const size_t size = result ? result->size : 0;
    if (!size)
        return;
    if (size >= offsetof(struct bmc_result, next) + sizeof result->next)
        release_choices(result->next);
    free_arrays(result);
    memset((char *)result + sizeof size, 0, size_min(size, sizeof *result) - sizeof size);
}
