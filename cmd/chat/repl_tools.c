/* Commands of a tools file: finding them, asking the user, and telling the model what they wrote. */
#include "chat/repl_tools.h"

#include <stdlib.h>

#include "base/text_util.h"
#include "chat/repl.h"
#include "cli.h"
#include "text/tools/tool_call.h"

enum { COMMAND_WORDS = 32 };

/* Checks that a command is a list of strings without zero characters. */
static int check_command(const json_t *command, const char *path, const char *name, struct err *err)
{
    const json_t *word;
    size_t i;
    bool good = json_array_size(command) && json_array_size(command) < COMMAND_WORDS;
    json_array_foreach(command, i, word)
    {
        const char *text = json_string_value(word);
        good = good && text && strlen(text) == json_string_length(word) && (i || *text);
    }
    return good ? 0
                : err_set(err,
                          "%s: the \"command\" of %s is no list of the program and its arguments, at "
                          "most %d "
                          "strings",
                          path, name, COMMAND_WORDS - 1);
}

static int take_commands(struct repl_tools *t, json_t *list, const char *path, struct err *err)
{
    json_t *tool;
    size_t i;
    json_array_foreach(list, i, tool)
    {
        json_t *command = json_object_get(tool, "command");
        const char *name = tool_name(tool);
        if (!command || !name)
            continue;
        if (check_command(command, path, name, err) < 0 ||
            json_put(t->commands, name, json_incref(command), err) < 0)
            return -1;
        json_object_del(tool, "command");
    }
    return json_object_size(t->commands)
               ? 0
               : err_set(err, "%s: no tool has a \"command\" that --run-tools could run", path);
}

int repl_tools_open(struct repl_tools *t, json_t *list, const char *path, struct err *err)
{
    AUTO(free_auto) char *real = realpath(path, NULL);
    *t = (struct repl_tools){.commands = json_object()};
    if (!real)
        return err_errno(err, "%s", path);
    *strrchr(real, '/') = 0;
    t->folder = strdup(*real ? real : "/");
    if (!t->folder || !t->commands)
        return err_no_memory(err, "tools");
    return take_commands(t, list, path, err) < 0 ? -1 : sandbox_open(&t->sandbox, t->folder, err);
}

void repl_tools_close(struct repl_tools *t)
{
    json_decref(t->commands);
    free(t->folder);
    *t = (struct repl_tools){0};
}

/* Shows a whole call and its command, and asks. *yes: the user agrees. */
static int ask(struct line_editor *editor, const char *name, const char *arguments,
               const json_t *command, bool *yes, struct err *err)
{
    AUTO(buf_release) struct buf answer = {0}, shown = {0};
    const json_t *word;
    size_t i;
    int rc = buf_addf(&shown, err, "call of %s: %s\ncommand:", name, arguments);
    json_array_foreach(command, i, word)
    {
        rc = rc == 0 ? buf_addf(&shown, err, " %s", json_string_value(word)) : rc;
    }
    if (rc < 0 || buf_addf(&shown, err, "\n") < 0 || cli_put(shown.data, shown.len, err) < 0)
        return -1;
    const int got =
        line_editor_read(editor, "run it? y runs it, else the call is declined: ", true, &answer, err);
    *yes = strcasecmp(buf_text(&answer), "y") == 0 || strcasecmp(buf_text(&answer), "yes") == 0;
    return got;
}

/* What the model is told of a run. */
static int report(const struct sandbox_result *run, struct buf *out, struct err *err)
{
    const bool failed = run->late || run->cut || run->status != 0;
    if (buf_add(out, buf_text(&run->out), run->out.len, err) < 0)
        return -1;
    if (!failed)
        return 0;
    if ((out->len && buf_addf(out, err, "\n") < 0) ||
        buf_add(out, buf_text(&run->error), run->error.len, err) < 0)
        return -1;
    return run->late         ? buf_addf(out, err, "[ended after %d s]", SANDBOX_SECONDS)
           : run->cut        ? buf_addf(out, err, "[cut after %d bytes]", SANDBOX_OUTPUT)
           : run->status < 0 ? buf_addf(out, err, "[ended by a signal]")
                             : buf_addf(out, err, "[exit status %d]", run->status);
}

static int run_command(const struct repl_tools *t, const json_t *command, const char *arguments,
                       struct buf *out, struct err *err)
{
    char *argv[COMMAND_WORDS] = {NULL};
    struct sandbox_result result;
    struct err why;
    for (size_t i = 0; i < json_array_size(command); i++)
        argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(command, i));
    int rc = sandbox_run(&t->sandbox, argv, arguments, strlen(arguments), &result, &why);
    if (rc < 0) {
        repl_say("%s", why.text);
        rc = buf_addf(out, err, "[%s]", why.text);
    } else {
        rc = report(&result, out, err);
    }
    buf_release(&result.out);
    buf_release(&result.error);
    return rc;
}

int repl_tools_call(struct repl_tools *t, struct line_editor *editor, const json_t *call,
                    struct buf *result, struct err *err)
{
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name")),
               *arguments = json_string_value(json_object_get(function, "arguments"));
    const json_t *command = json_object_get(t->commands, name);
    bool yes = false;
    if (!command) {
        repl_say("[the model calls %s, which has no command]", excerpt_of(name, strlen(name)).text);
        return buf_addf(result, err, "[there is no tool of this name]") < 0 ? -1 : LINE_READ;
    }
    const int got = ask(editor, name, arguments, command, &yes, err);
    if (got < 0)
        return -1;
    const int rc = !yes ? buf_addf(result, err, "[the user declined this call]")
                        : run_command(t, command, arguments, result, err);
    return rc < 0 ? -1 : got;
}
