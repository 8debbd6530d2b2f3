/* A turn of a conversation: from its messages to a request, from the result to its messages, and what is printed. */
#include "chat/repl.h"
#include "quant/cache_types.h"
#include "decode/session.h"

/* ---- output ---- */

volatile sig_atomic_t repl_stop;

void repl_say(const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fflush(stdout);
    cli_say(stderr, "%s\n", line);
}

int repl_print(struct repl *repl, const char *text, size_t len, struct err *err)
{
    if (cli_put(text, len, err) < 0)
        return -1;
    if (len)
        repl->last_byte = text[len - 1];
    return fflush(stdout) == 0 ? 0 : err_errno(err, "cannot write to standard output");
}

static double tokens_per_second(size_t tokens, double ms)
{
    return ms > 0 ? (double)tokens * 1e3 / ms : 0;
}

static size_t count_tokens(const struct repl *repl) { return repl->dialogue.ids.len; }

/* After a command that changed the conversation: renders what is left of it, to count its tokens. */
static void count_again(struct repl *repl)
{
    struct dialogue *d = &repl->dialogue;
    struct err ignored;
    if (!repl->changed || (dialogue_questions(d) && dialogue_prompt(d, &ignored) == 0))
        return;
    d->ids.len = size_min(d->ids.len, d->base.len);
    d->n_ends = 0;
}

struct context_words {
    char text[96];
};

/* How much of the context the conversation uses, as "95 of 1024 tokens". */
static struct context_words context_use(const struct repl *repl)
{
    const size_t n = count_tokens(repl), context = session_options(repl->gen->session)->context;
    const bool rolls = kv_left(session_kv(repl->gen->session), 0) == SIZE_MAX;
    struct context_words use;
    snprintf(use.text, sizeof use.text,
             n <= context ? "%zu of %zu tokens"
             : rolls      ? "%zu tokens, of which the last %zu are seen"
                          : "%zu tokens, more than the %zu that fit",
             n, context);
    return use;
}

/* Says why an answer ended before its end. */
static void print_end(const struct repl *repl, const struct gen_result *result)
{
    const size_t context = session_options(repl->gen->session)->context;
    if (result->finish == FINISHED_CANCELLED)
        repl_say("[stopped: /regen answers again, /undo takes the question back]");
    else if (result->full)
        repl_say("[the context of %zu tokens is full: /undo or /reset makes room%s]", context,
                 context < repl->gen->model->config.context ? ", -c takes more" : "");
    else if (result->finish == FINISHED_REPETITION)
        repl_say("[ended because the answer repeats itself: /regen answers again, with /set temp 0 it "
                 "has no such end]");
    else if (result->finish == FINISHED_LENGTH)
        repl_say("[the answer has the %zu tokens of -n]", result->n_ids);
}

void repl_print_turn(const struct repl *repl, const struct gen_result *result)
{
    const struct turn_counts *t = &repl->last;
    print_end(repl, result);
    if (!repl->gen->options->quiet)
        repl_say("[prompt %zu tokens, %zu of them cached; answer %zu; context %s; %.1f tokens/s]",
                 t->prompt, t->reused + t->loaded, t->generated, context_use(repl).text,
                 tokens_per_second(t->decoded, t->decode_ms));
}

void repl_print_stats(struct repl *repl)
{
    count_again(repl);
    const struct gen_stats *s = &repl->stats;
    const struct kv_stats kv = kv_stats(session_kv(repl->gen->session));
    repl_say("questions: %zu, answers in this run: %zu", dialogue_questions(&repl->dialogue),
             s->sequences);
    repl_say("context: %s%s", context_use(repl).text,
             repl->dialogue.n_left_out ? "; the oldest turns are left out" : "");
    repl_say("prefill: %zu tokens computed, %zu reused, %.1f tokens/s", s->prefill_tokens,
             s->shared_rows + s->loaded_tokens, tokens_per_second(s->prefill_tokens, s->prefill_ms));
    repl_say("decode: %zu tokens, %.1f tokens/s", s->sampled_tokens,
             tokens_per_second(s->decode_tokens, s->decode_ms));
    repl_say("KV cache: %s, %s, %.2f MiB", kv_setup(session_kv(repl->gen->session))->policy,
             cache_types_format(&session_options(repl->gen->session)->kv_types).text,
             (double)kv.resident_bytes / 1048576);
}

/* ---- turns ---- */

/* The tokens that a prompt may have: with room for an answer of one token. */
static size_t prompt_limit(const struct repl *repl)
{
    const struct session *session = repl->gen->session;
    return session_is_bounded(session) || session_options(session)->recompute
               ? session_options(session)->context
               : SIZE_MAX;
}

/* Under --context-shift recompute: leaves out the oldest turns until half of the context is free. */
static int shorten_prompt(struct repl *repl, struct err *err)
{
    const size_t limit = prompt_limit(repl) / 2;
    while (repl->dialogue.ids.len > limit && dialogue_leave_out(&repl->dialogue))
        if (dialogue_prompt(&repl->dialogue, err) < 0)
            return -1;
    return 0;
}

/* Says that the prompt does not fit, and what would help. */
static int refuse_length(const struct repl *repl, size_t limit, struct err *err)
{
    const struct dialogue *d = &repl->dialogue;
    const char *larger =
        d->ids.len < repl->gen->model->config.context ? ", or begin with a larger -c" : "";
    if (dialogue_questions(d) > 1 || d->base.len)
        return err_set(err,
                       "the conversation has %zu tokens with this message, the context holds %zu: the "
                       "message was not sent; /undo or /reset makes room%s",
                       d->ids.len, limit, larger);
    return err_set(
        err,
        "the message has %zu tokens, with the template's and the system prompt's, the context "
        "holds %zu: it was not sent; send a shorter one%s",
        d->ids.len, limit, larger);
}

static int make_prompt(struct repl *repl, struct err *err)
{
    const size_t limit = prompt_limit(repl);
    if (dialogue_prompt(&repl->dialogue, err) < 0)
        return -1;
    const struct session_options *o = session_options(repl->gen->session);
    if (o->recompute && repl->dialogue.ids.len >= limit && shorten_prompt(repl, err) < 0)
        return -1;
    return repl->dialogue.ids.len < limit ? 0 : refuse_length(repl, limit, err);
}

int repl_begin_turn(struct repl *repl, struct err *err)
{
    if (make_prompt(repl, err) < 0)
        return -1;
    repl->request = serve_request(&repl->gen->serve, &repl->dialogue.ids);
    repl->request.line = repl->n_requests++;
    repl->request.stream = repl->n_answers_before + repl->request.line;
    repl->request.cancelled = &repl_stop;
    repl->request.hold_partial_utf8 = false;
    if (gen_answer_begin(repl->gen, &repl->answer, &repl->request, &repl->dialogue.text, err) < 0)
        return -1;
    if (repl->snapshot) { /* of later turns the slot retains the entries */
        const struct kvfile_seq *seq = snapshot_seq(repl->snapshot, 0);
        repl->request.from = repl->snapshot;
        repl->request.from_rows =
            size_min(snapshot_common(repl->snapshot, 0, repl->dialogue.ids.id, repl->dialogue.ids.len),
                     (size_t)(seq->first + seq->n_rows));
    }
    repl->changed = false;
    repl->before = repl->stats;
    repl->answering = false;
    repl->last_byte = '\n';
    repl->prefill_from_ms = 0;
    return 0;
}

static void drop_snapshot(struct repl *repl)
{
    if (repl->owns_snapshot)
        snapshot_close(repl->snapshot);
    repl->snapshot = NULL;
    repl->owns_snapshot = false;
}

static int record_turn(const struct repl *repl, const char *finish, struct err *err)
{
    const struct turn_counts *t = &repl->last;
    return json_push(repl->gen->turns,
                     json_pack("{s:I, s:I, s:I, s:I, s:s}", "prompt_tokens", (json_int_t)t->prompt,
                               "reused_tokens", (json_int_t)(t->reused + t->loaded), "prefill_tokens",
                               (json_int_t)t->prefilled, "generated_tokens", (json_int_t)t->generated,
                               "finish", finish),
                     err);
}

int repl_end_turn(struct repl *repl, const struct gen_result *result, struct err *err)
{
    const struct gen_stats *now = &repl->stats, *before = &repl->before;
    const char *finish = result->error && result->error->code == ERR_INTERRUPTED
                             ? err_interrupted.text
                             : gen_finish_name(result->finish);
    repl->last = (struct turn_counts){
        .prompt = result->n_prompt,
        .reused = now->shared_rows - before->shared_rows,
        .loaded = now->loaded_tokens - before->loaded_tokens,
        .prefilled = now->prefill_tokens - before->prefill_tokens,
        .generated = result->n_ids,
        .decode_ms = now->decode_ms - before->decode_ms,
        .decoded = now->decode_tokens - before->decode_tokens,
    };
    drop_snapshot(repl);
    if (record_turn(repl, finish, err) < 0)
        return -1;
    if (result->finish == FINISHED_ERROR && !result->n_ids) {
        dialogue_drop_answer(&repl->dialogue, true);
        return 0;
    }
    return dialogue_answer(&repl->dialogue, result, repl->answer.divides ? &repl->answer.parts : NULL,
                           err);
}

int repl_continue(struct repl *repl, struct snapshot *snapshot, bool owns, struct err *err)
{
    const size_t n = (size_t)snapshot_seq(snapshot, 0)->n_tokens;
    struct dialogue *d = &repl->dialogue;
    if (snapshot->file.n_seqs != 1)
        return err_set(err, "%s: has %zu sequences, a conversation continues one", snapshot->path,
                       snapshot->file.n_seqs);
    dialogue_clear(d);
    drop_snapshot(repl);
    for (size_t i = 0; i < n; i++)
        if (ids_add(&d->base, snapshot_tokens(snapshot, 0)[i], err) < 0 ||
            ids_add(&d->ids, snapshot_tokens(snapshot, 0)[i], err) < 0)
            return -1;
    repl->snapshot = snapshot;
    repl->owns_snapshot = owns;
    repl->changed = true;
    return 0;
}

int repl_reset(struct repl *repl, struct err *err)
{
    const char *system = dialogue_system(&repl->dialogue);
    char *kept = system ? strdup(system) : NULL;
    if (system && !kept)
        return err_no_memory(err, "a message");
    dialogue_clear(&repl->dialogue);
    drop_snapshot(repl);
    buf_clear(&repl->attached);
    repl->changed = true;
    const int rc = kept ? dialogue_set_system(&repl->dialogue, kept, strlen(kept), err) : 0;
    free(kept);
    return rc;
}
