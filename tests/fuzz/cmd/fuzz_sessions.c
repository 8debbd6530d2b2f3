/* Kept conversations: a name, a newline, and the file with the messages. What opens is saved so that it opens again with
 * the same messages; no name leaves the folder of conversations. */
#include "chat/repl_session.h"
#include "tests/fuzz/support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct model model = {.name = (char[]){"fuzz"}, .config.vocab = 64};

/* Opens a conversation; its messages, or NULL. With `save` it is saved as after an answer. */
static json_t *messages_of(char *name, bool save)
{
    struct gen_options options = {.session = name, .quiet = true};
    static struct gen gen;
    struct err err;
    gen = (struct gen){.model = &model, .options = &options};
    gen.serve.chat.model = &model;
    struct repl repl = {.gen = &gen, .dialogue.prompts = &gen.serve.chat, .folder_fd = -1};
    json_t *messages = NULL;
    if (repl_session_open(&repl, name, &err) == 0) {
        messages = repl.dialogue.messages ? json_deep_copy(repl.dialogue.messages) : json_array();
        if (save)
            repl_session_save(&repl);
    }
    repl_session_close(&repl);
    dialogue_release(&repl.dialogue);
    return messages;
}

/* Names of folders that a check of names lets pass; of others nothing is written. */
static bool can_write(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, "..") != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { NAME = 200 };
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    char name[NAME], folder[NAME + 32], file[NAME + 64];
    struct err err;
    if (!end || end - data >= NAME)
        return 0;
    if (scratch_begin())
        setenv("XDG_STATE_HOME", scratch_folder, 1);
    memcpy(name, data, (size_t)(end - data));
    name[end - data] = 0;
    scratch_write("kept", (const uint8_t *)"", 0);
    scratch_write("bmc", NULL, 0);
    scratch_write("bmc/sessions", NULL, 0);
    snprintf(folder, sizeof folder, "bmc/sessions/%s", name);
    snprintf(file, sizeof file, "%s/conversation.json", folder);
    if (can_write(name) && scratch_write(folder, NULL, 0))
        scratch_write(file, end + 1, size - (size_t)(end + 1 - data));
    json_t *first = messages_of(name, true), *again = first ? messages_of(name, false) : NULL;
    if (first && !json_equal(first, again))
        abort();
    json_decref(first);
    json_decref(again);
    (void)!repl_list_sessions(&err);
    if (repl_remove_session(name, &err) == 0 && scratch_has(folder))
        abort();
    if (!scratch_has("kept") || !scratch_has("bmc/sessions"))
        abort();
    scratch_clear();
    return 0;
}
