/* What a conversation prints besides the line that is typed: answers, and statistics. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chat/repl.h"
#include "decode/session.h"

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

static double rate(size_t tokens, double ms) { return ms > 0 ? (double)tokens * 1e3 / ms : 0; }

size_t repl_tokens(const struct repl *repl) { return repl->dialogue.ids.len; }

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
    const size_t n = repl_tokens(repl), context = session_options(repl->gen->session)->context;
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
                 rate(t->decoded, t->decode_ms));
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
             s->shared_rows + s->loaded_tokens, rate(s->prefill_tokens, s->prefill_ms));
    repl_say("decode: %zu tokens, %.1f tokens/s", s->sampled_tokens,
             rate(s->decode_tokens, s->decode_ms));
    repl_say("KV cache: %s, %.2f MiB", kv_setup(session_kv(repl->gen->session))->policy,
             (double)kv.resident_bytes / 1048576);
}
