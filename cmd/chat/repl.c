/* A conversation at a terminal: reads messages and commands, and prints answers. */
#include <signal.h>

#include "base/clock.h"
#include "chat/repl.h"
#include "chat/repl_session.h"
#include "decode/generate.h"

/* ---- reading a message ---- */

static int read_line(struct repl *repl, const char *prompt, bool as_is, struct buf *line,
                     struct err *err)
{
    const size_t from = line->len;
    const int got = line_editor_read(repl->editor, prompt, as_is, line, err);
    if (got == LINE_READ && line->len > from)
        line_editor_remember(repl->editor, line->data + from);
    return got;
}

/* Reads the lines up to one of three quotation marks, which may also end a line. */
static int read_block(struct repl *repl, struct buf *text, struct err *err)
{
    for (;;) {
        const size_t from = text->len;
        const int got = read_line(repl, "... ", true, text, err);
        if (got != LINE_READ)
            return got == LINE_END ? LINE_READ : got;
        if (text->len >= from + 3 && memcmp(text->data + text->len - 3, "\"\"\"", 3) == 0) {
            text->len -= 3;
            if (text->len && text->len == from)
                text->len--; /* the newline before the mark */
            text->data[text->len] = 0;
            return LINE_READ;
        }
        if (buf_add(text, "\n", 1, err) < 0)
            return -1;
    }
}

/* Reads a message or a command of one line or more. */
static int read_message(struct repl *repl, struct buf *text, struct err *err)
{
    buf_clear(text);
    int got = read_line(repl, "> ", false, text, err);
    if (got == LINE_READ && text->len >= 3 && memcmp(text->data, "\"\"\"", 3) == 0) {
        char *rest = text->data + 3;
        const size_t n = text->len - 3;
        memmove(text->data, rest, n + 1);
        text->len = n;
        if (n >= 3 && memcmp(text->data + n - 3, "\"\"\"", 3) == 0) {
            text->data[text->len -= 3] = 0;
            return LINE_READ;
        }
        if (n && buf_add(text, "\n", 1, err) < 0)
            return -1;
        return read_block(repl, text, err);
    }
    while (got == LINE_READ && text->len && text->data[text->len - 1] == '\\') {
        text->data[text->len - 1] = '\n';
        got = read_line(repl, "... ", false, text, err);
        got = got == LINE_END ? LINE_READ : got;
    }
    return got;
}

/* Adds what the user says, with attached files before it. Two slashes at its start are one. */
static int say_typed(struct repl *repl, const struct buf *typed, struct err *err)
{
    struct buf *all = &repl->attached;
    const size_t before = all->len, skip = typed->len && typed->data[0] == '/';
    int rc = buf_add(all, buf_text(typed) + skip, typed->len - skip, err);
    while (rc == 0 && all->len > before && all->data[all->len - 1] == '\n')
        all->len--;
    if (rc == 0)
        rc = dialogue_say(&repl->dialogue, "user", buf_text(all), all->len, err);
    if (rc == 0)
        buf_clear(all);
    else
        all->len = before;
    return rc;
}

/* True for a word that people type to leave, alone in a message. */
static bool is_leaving(const struct buf *text)
{
    static const char *const words[] = {"exit", "quit", "bye"};
    const char *word = buf_text(text) + strspn(buf_text(text), " \t");
    const size_t len = strcspn(word, " \t\n");
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strlen(words[i]) == len && strncasecmp(word, words[i], len) == 0)
            return word[len + strspn(word + len, " \t\n")] == 0;
    return false;
}

/* Asks whether such a word ends the conversation. COMMAND_QUIT; COMMAND_ANSWER: it is a message. */
static int ask_leaving(struct repl *repl, struct err *err)
{
    AUTO(buf_release) struct buf answer = {0};
    const int got = line_editor_read(
        repl->editor, "end the conversation? y ends it, else this is a message: ", true, &answer, err);
    const bool yes =
        strcasecmp(buf_text(&answer), "y") == 0 || strcasecmp(buf_text(&answer), "yes") == 0;
    return got < 0                  ? -1
           : got == LINE_END || yes ? COMMAND_QUIT
           : got == LINE_STOPPED    ? COMMAND_DONE
                                    : COMMAND_ANSWER;
}

static bool is_blank(const struct buf *text) { return strspn(buf_text(text), " \t\n") == text->len; }

/* Acts on what was typed: COMMAND_ANSWER, COMMAND_DONE, COMMAND_QUIT, or -1 with a sentence for the
 * user. */
static int act_on(struct repl *repl, const struct buf *typed, struct err *err)
{
    const char *text = buf_text(typed);
    if (strlen(text) != typed->len)
        return err_set(err, "the message holds a zero character");
    if (is_blank(typed))
        return COMMAND_DONE;
    if (text[0] == '/' && text[1] != '/')
        return repl_command(repl, text, err);
    const int outcome = is_leaving(typed) ? ask_leaving(repl, err) : COMMAND_ANSWER;
    if (outcome != COMMAND_ANSWER)
        return outcome;
    return say_typed(repl, typed, err) < 0 ? -1 : COMMAND_ANSWER;
}

/* ---- calls of tools ---- */

/* Under --run-tools, answers the calls of the last message. GEN_REQUEST: the model is to go on; GEN_LATER: there are none, or
 * the user stopped; or -1. */
static int answer_calls(struct repl *repl, struct err *err)
{
    struct answer_options *answer = &repl->gen->serve.options.answer;
    const struct answer_options given = *answer;
    const json_t *calls = repl->tools.commands ? dialogue_calls(&repl->dialogue) : NULL, *call;
    int got = LINE_READ, rc = 0;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        AUTO(buf_release) struct buf result = {0};
        got = got == LINE_READ && rc == 0
                  ? repl_tools_call(&repl->tools, repl->editor, call, &result, err)
                  : got;
        rc = got < 0 || rc < 0 || (got != LINE_READ && buf_addf(&result, err, "[not run]") < 0)
                 ? -1
                 : dialogue_say_result(&repl->dialogue, call, buf_text(&result), result.len, err);
    }
    if (rc < 0 || !calls || got != LINE_READ)
        return rc < 0 ? -1 : GEN_LATER;
    if (answer->choice.kind != TOOL_CHOICE_NONE) /* which applies to messages of the user */
        answer->choice.kind = TOOL_CHOICE_AUTO;
    rc = repl_begin_turn(repl, err);
    *answer = given;
    return rc < 0 ? -1 : GEN_REQUEST;
}

/* ---- callbacks of generate() ---- */

/* Reads until there is something to answer. GEN_REQUEST, GEN_END, or -1. */
static int ask(struct repl *repl, struct buf *typed, struct err *err)
{
    for (;;) {
        struct err why;
        int outcome = COMMAND_DONE;
        repl_stop = 0;
        const int called = answer_calls(repl, &why);
        if (called == GEN_REQUEST)
            return GEN_REQUEST;
        if (called < 0)
            repl_say("%s", why.text);
        const int got = read_message(repl, typed, err);
        if (got < 0)
            return -1;
        if (got == LINE_STOPPED && !cli_interrupted) {
            puts("");
            repl_say("Ctrl-D or /quit ends the conversation");
            continue;
        }
        if (got != LINE_READ) {
            puts("");
            return GEN_END;
        }
        outcome = act_on(repl, typed, &why);
        if (outcome == COMMAND_ANSWER && repl_begin_turn(repl, &why) < 0) {
            dialogue_drop_answer(&repl->dialogue, true);
            repl->changed = true;
            outcome = -1;
        }
        if (outcome < 0)
            repl_say("%s", why.text);
        if (outcome == COMMAND_ANSWER)
            return GEN_REQUEST;
        if (outcome == COMMAND_QUIT)
            return GEN_END;
    }
}

/* The first message may be given by -p. */
static int ask_first(struct repl *repl, struct buf *typed, struct err *err)
{
    const char *prompt = repl->gen->options->prompt;
    if (repl->n_requests || !prompt || !prompt[strspn(prompt, " \t\n")])
        return ask(repl, typed, err);
    fputs("> ", stdout);
    if (cli_put(prompt, strlen(prompt), err) < 0)
        return -1;
    puts("");
    if (dialogue_say(&repl->dialogue, "user", prompt, strlen(prompt), err) < 0 ||
        repl_begin_turn(repl, err) < 0)
        return -1;
    return GEN_REQUEST;
}

static int save_at_end(struct repl *repl, size_t seq, struct err *err)
{
    const char *path = repl->gen->options->save_kv;
    repl_session_save_kv(repl, seq);
    return path && repl->n_requests ? repl_save_kv(repl, path, seq, err) : 0;
}

static int next_request(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct repl *repl = arg;
    struct buf typed = {0};
    if (!wait)
        return GEN_LATER;
    int got = ask_first(repl, &typed, err);
    buf_release(&typed);
    if (got == GEN_END && save_at_end(repl, 0, err) < 0)
        got = -1;
    *request = &repl->request;
    return got;
}

static void prefill(void *arg, size_t rows, size_t total)
{
    enum { NOTICED_MS = 300 };
    struct repl *repl = arg;
    const double now = clock_ms();
    if (repl->prefill_from_ms == 0)
        repl->prefill_from_ms = now;
    if (rows < total && now - repl->prefill_from_ms >= NOTICED_MS)
        cli_progress(&repl->progress, rows, total);
    if (rows >= total)
        cli_progress_end(&repl->progress);
}

static int progress(void *arg, const struct gen_result *more, struct err *err)
{
    struct repl *repl = arg;
    struct err gone;
    AUTO(buf_release) struct buf text = {0};
    cli_progress_end(&repl->progress);
    if (gen_answer_add(&repl->answer, more->text, more->text_len, &text, err) < 0)
        return -1;
    /* A terminal that is gone ends the conversation as its signal does, which may come later. */
    if (repl_print(repl, buf_text(&text), text.len, &gone) < 0 && !cli_interrupted)
        cli_interrupted = SIGHUP;
    return 0;
}

static int answer_done(void *arg, const struct gen_result *result, struct err *err)
{
    struct repl *repl = arg;
    struct err gone;
    AUTO(buf_release) struct buf rest = {0};
    cli_progress_end(&repl->progress);
    if (gen_answer_end(&repl->answer, result, &rest, err) < 0)
        return -1;
    if (repl_print(repl, buf_text(&rest), rest.len, &gone) < 0 && !cli_interrupted)
        cli_interrupted = SIGHUP;
    if (repl->last_byte != '\n' || result->finish != FINISHED_ERROR)
        puts("");
    if (repl_end_turn(repl, result, err) < 0)
        return -1;
    repl_session_save(repl);
    if (result->finish == FINISHED_ERROR && !cli_interrupted)
        repl_say("%s", result->error->text);
    else if (!cli_interrupted)
        repl_print_turn(repl, result);
    return 0;
}

/* A signal that ends the program ends an answer, too: the KV cache is saved before it is dropped. */
static int keep(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct repl *repl = arg;
    (void)result;
    return cli_interrupted ? save_at_end(repl, seq, err) : 0;
}

static int begin_conversation(struct repl *repl, struct err *err)
{
    struct gen *gen = repl->gen;
    const char *system = gen->options->system;
    if (gen->snapshot)
        return repl_continue(repl, gen->snapshot, false, err);
    if (gen->options->session && repl_session_open(repl, gen->options->session, err) < 0)
        return -1;
    return system ? dialogue_set_system(&repl->dialogue, system, strlen(system), err) : 0;
}

int repl_run(struct gen *gen, struct err *err)
{
    struct repl repl = {
        .gen = gen,
        .dialogue = {.prompts = &gen->serve.chat,
                     .flags = gen->options->parse_special ? CHAT_PARSES_SPECIAL : 0,
                     .tools = gen->tools},
        .last_byte = '\n',
        .folder_fd = -1,
    };
    const struct gen_callbacks callbacks = {next_request, progress, answer_done, prefill,
                                            keep,         &repl,    NULL};
    int rc = -1;
    cli_progress_begin(&repl.progress, "prompt");
    if (gen_open_session(gen, 1, 0, err) < 0 ||
        line_editor_open(&repl.editor, gen->program->name, &repl_stop, repl_complete, &repl, err) < 0 ||
        (gen->options->run_tools &&
         repl_tools_open(&repl.tools, gen->tools, gen->options->tools, err) < 0) ||
        begin_conversation(&repl, err) < 0)
        goto out;
    gen->turns = json_array();
    if (!gen->options->quiet)
        repl_say("context of %zu tokens; /help lists commands, Ctrl-D ends",
                 session_options(gen->session)->context);
    cli_interrupt_to(&repl_stop);
    gen->serve.options.sampling.mirostat_mu =
        0; /* turns begin anew, in a continued conversation, too */
    if (generate(gen->session, &gen->serve.options.sampling, gen->strategy, &callbacks,
                 &cli_interrupted, &repl.stats, err) == 0)
        rc = gen_report(gen, &repl.stats, err);
    cli_interrupt_to(NULL);
out:
    cli_progress_end(&repl.progress);
    line_editor_close(repl.editor);
    repl_session_close(&repl);
    dialogue_release(&repl.dialogue);
    gen_answer_release(&repl.answer);
    repl_tools_close(&repl.tools);
    buf_release(&repl.attached);
    if (repl.owns_snapshot)
        snapshot_close(repl.snapshot);
    return rc;
}
