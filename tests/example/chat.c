/* A chat at the terminal: reads lines, and prints the answers while they are generated.
 *
 *   cc chat.c $(pkg-config --cflags --libs bmc) -ljansson -o chat
 *   ./chat MODEL.bmc [SETTINGS [TEMPLATE]]
 *
 * SETTINGS as in requests of bmc-gen(1), such as '{"temp": 0.7}'; TEMPLATE as of --chat-template. */
#include <bmc.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_text(void *arg, size_t request, const char *text, size_t len, const uint32_t *ids,
                      size_t n_ids)
{
    (void)arg, (void)request, (void)ids, (void)n_ids;
    fwrite(text, 1, len, stdout);
    return fflush(stdout) != 0; /* nobody reads any more: cancel */
}

static int add_message(json_t *chat, const char *role, const char *text)
{
    json_t *messages = json_object_get(chat, "messages");
    return json_array_append_new(messages, json_pack("{s:s, s:s}", "role", role, "content", text));
}

/* Generates the answer to the conversation so far, and adds it. Prompts that begin with the earlier
 * turns reuse their KV entries. */
static int answer(struct bmc_context *context, json_t *chat, struct bmc_error *error)
{
    const struct bmc_callbacks callbacks = {.size = sizeof callbacks, .text = print_text};
    struct bmc_result result = {.size = sizeof result};
    char *settings = json_dumps(chat, JSON_COMPACT);
    const struct bmc_request request = {.size = sizeof request, .settings = settings};
    int rc = settings ? bmc_generate(context, &request, &result, 1, &callbacks, error) : -1;
    putchar('\n');
    if (rc == 0)
        rc = add_message(chat, "assistant", result.text);
    bmc_result_release(&result);
    free(settings);
    return rc;
}

static int talk(struct bmc_context *context, json_t *chat, struct bmc_error *error)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    while (rc == 0 && getline(&line, &cap, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        rc = add_message(chat, "user", line) < 0 ? -1 : answer(context, chat, error);
    }
    free(line);
    return rc;
}

int main(int argc, char **argv)
{
    struct bmc_model *model = NULL;
    struct bmc_context *context = NULL;
    struct bmc_error error = {"out of memory, or a line that is not UTF-8"};
    json_t *chat = json_loads(argc > 2 ? argv[2] : "{}", 0, NULL);
    if (argc < 2 || argc > 4 || !json_is_object(chat))
        return fprintf(stderr, "usage: chat MODEL.bmc [[SETTINGS [TEMPLATE]]\n"), 2;
    const struct bmc_options options = {.size = sizeof options,
                                        .chat_template = argc > 3 ? argv[3] : NULL};
    int rc = json_object_set_new(chat, "messages", json_array());
    if (rc == 0)
        rc = bmc_model_open(&model, argv[1], &error);
    if (rc == 0)
        rc = bmc_context_open(&context, model, &options, &error);
    if (rc == 0)
        rc = talk(context, chat, &error);
    if (rc < 0)
        fprintf(stderr, "chat: %s\n", error.text);
    json_decref(chat);
    bmc_context_close(context);
    bmc_model_close(model);
    return rc < 0;
}
