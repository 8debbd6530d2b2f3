/* The commands of a conversation: lines that begin with a slash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/repl.h"

struct repl_command {
    const char *name, *arg, *help; /* arg: NULL: none; in brackets: may be missing */
    int (*run)(struct repl *repl, const char *arg, struct err *err);
};

static int run_help(struct repl *repl, const char *arg, struct err *err);

static int run_system(struct repl *repl, const char *arg, struct err *err)
{
    const char *now = dialogue_system(&repl->dialogue);
    if (repl->dialogue.base.len)
        return err_set(err, "the conversation began with a snapshot, and its system prompt with it; "
                            "/reset begins another one");
    if (!*arg) {
        repl_say(now ? "system prompt: %s" : "there is no system prompt%s", now ? now : "");
        return COMMAND_DONE;
    }
    repl->changed = true;
    return dialogue_set_system(&repl->dialogue, strcmp(arg, "\"\"") == 0 ? "" : arg,
                               strcmp(arg, "\"\"") == 0 ? 0 : strlen(arg), err) < 0
               ? -1
               : COMMAND_DONE;
}

static int run_save(struct repl *repl, const char *arg, struct err *err)
{
    if (repl_save(repl, arg, err) < 0)
        return -1;
    repl_say("saved as %s", arg);
    return COMMAND_DONE;
}

static int run_load(struct repl *repl, const char *arg, struct err *err)
{
    if (repl_load(repl, arg, err) < 0)
        return -1;
    if (repl->dialogue.base.len)
        repl_say("the conversation goes on after the %zu tokens of %s", repl->dialogue.base.len, arg);
    else
        repl_say("%s: %zu messages", arg, json_array_size(repl->dialogue.messages));
    return COMMAND_DONE;
}

static int run_reset(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    if (repl_reset(repl, err) < 0)
        return -1;
    repl_say("the conversation begins anew%s",
             dialogue_system(&repl->dialogue) ? ", with the same system prompt" : "");
    return COMMAND_DONE;
}

static int run_undo(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    if (!dialogue_drop_answer(&repl->dialogue, true))
        return err_set(err, "there is no message to take back");
    repl->changed = true;
    repl_say("took the last message and its answer back; %zu left",
             dialogue_questions(&repl->dialogue));
    return COMMAND_DONE;
}

static int run_regen(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    if (!dialogue_drop_answer(&repl->dialogue, false))
        return err_set(err, "there is no message to answer again");
    repl->changed = true;
    if (repl->gen->sampling.temp <= 0)
        repl_say("greedy decoding gives the same answer again; --temp 0.8 would sample");
    return COMMAND_ANSWER;
}

static int run_stats(struct repl *repl, const char *arg, struct err *err)
{
    (void)arg;
    (void)err;
    repl_print_stats(repl);
    return COMMAND_DONE;
}

static int run_file(struct repl *repl, const char *arg, struct err *err)
{
    if (repl_attach(repl, arg, err) < 0)
        return -1;
    repl_say("%s: %zu bytes go before the next message", arg, repl->attached.len);
    return COMMAND_DONE;
}

static int run_set(struct repl *repl, const char *arg, struct err *err)
{
    return repl_set(repl, arg, err) < 0 ? -1 : COMMAND_DONE;
}

static int run_quit(struct repl *repl, const char *arg, struct err *err)
{
    (void)repl;
    (void)arg;
    (void)err;
    return COMMAND_QUIT;
}

static const struct repl_command commands[] = {
    {"/help", NULL, "print this list", run_help},
    {"/system", "[TEXT]", "set the system prompt, \"\" removes it; without TEXT print it", run_system},
    {"/file", "FILE", "put a text file before the next message", run_file},
    {"/regen", NULL, "answer the last message again", run_regen},
    {"/undo", NULL, "take the last message and its answer back", run_undo},
    {"/reset", NULL, "begin a new conversation with the same system prompt", run_reset},
    {"/save", "FILE",
     "save the messages as JSON; with a name in .kv the KV cache, to go on without prefill", run_save},
    {"/load", "FILE", "go on with a saved conversation", run_load},
    {"/stats", NULL, "print the use of the context, and speed", run_stats},
    {"/set", "[NAME VALUE]", "set a sampling parameter, as temp 0.7; without VALUE print it", run_set},
    {"/quit", NULL, "end, as Ctrl-D does", run_quit},
};

static int run_help(struct repl *repl, const char *arg, struct err *err)
{
    (void)repl;
    (void)arg;
    (void)err;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        char usage[32];
        snprintf(usage, sizeof usage, "%s %s", commands[i].name,
                 commands[i].arg ? commands[i].arg : "");
        repl_say("%-17s %s", usage, commands[i].help);
    }
    repl_say(
        "A message goes on in the next line after a backslash at the end of a line, and in all lines "
        "between two lines of \"\"\". // at its start stands for a slash. Ctrl-C stops an answer.");
    return COMMAND_DONE;
}

const char *repl_command_name(size_t n) { return n < ARRAY_LEN(commands) ? commands[n].name : NULL; }

bool repl_takes_file(const char *command, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strlen(commands[i].name) == len && memcmp(commands[i].name, command, len) == 0)
            return commands[i].arg && strcmp(commands[i].arg, "FILE") == 0;
    return false;
}

/* The command that a line begins with, perhaps shortened. NULL with a sentence: there is none, or there are
 * several. */
static const struct repl_command *find(const char *line, size_t len, struct err *err)
{
    const struct repl_command *found = NULL;
    char names[128] = "";
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strncmp(commands[i].name, line, len) != 0)
            continue;
        if (strlen(commands[i].name) == len)
            return &commands[i];
        found = &commands[i];
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", n++ ? ", " : "", found->name);
    }
    if (n == 1 && len > 1)
        return found;
    const int shown = (int)size_min(len, 60);
    if (n > 1 && len > 1)
        err_set(err, "%.*s could be %s", shown, line, names);
    else
        err_set(err,
                "there is no command %.*s; /help lists them, and a message that begins with a slash "
                "begins with two",
                shown, line);
    return NULL;
}

int repl_command(struct repl *repl, const char *line, struct err *err)
{
    const size_t len = strcspn(line, " \t\n");
    const struct repl_command *command = find(line, len, err);
    const char *arg = line + len + strspn(line + len, " \t\n");
    size_t arg_len = strlen(arg);
    if (!command)
        return -1;
    while (arg_len && strchr(" \t\n", arg[arg_len - 1]))
        arg_len--;
    if (!command->arg && arg_len)
        return err_set(err, "%s takes no argument", command->name);
    if (command->arg && command->arg[0] != '[' && !arg_len)
        return err_set(err, "%s needs a name: %s %s", command->name, command->name, command->arg);
    char *copy = strndup(arg, arg_len);
    if (!copy)
        return err_no_memory(err, "a command");
    const int rc = command->run(repl, copy, err);
    free(copy);
    return rc;
}
