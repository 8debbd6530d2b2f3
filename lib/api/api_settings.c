/* The public API: settings of requests, and chat rendering. */
#include "api/api_settings.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int copy_text(char **to, const char *text, struct err *err)
{
    return !text || (*to = strdup(text)) ? 0 : err_no_memory(err, "an option");
}

static int open_serve(struct api_settings *s, const struct bmc_context *c, bool lenient,
                      struct err *err)
{
    struct chat chat;
    if (model_chat(c->model->model, &chat, err) < 0)
        return -1;
    const struct given_settings given = {.sampling = sampling_not_given()};
    const struct sampler_options defaults = sampling_defaults(),
                                 chat_defaults = chat_sampling_defaults(&chat.sampling);
    chat_release(&chat);
    s->serve = (struct serve){
        .options = {.request = {.n = GENERATE_NO_LIMIT},
                    .parse_special = true,
                    .lenient = lenient,
                    .given = given,
                    .sampling = defaults,
                    .defaults = defaults,
                    .chat_defaults = chat_defaults},
        .model = c->model->model,
        .session = c->session,
        .constraints = s->constraints,
        .breakers = &s->breakers,
        .chat = &s->chat,
        .ignored = &s->ignored,
    };
    return 0;
}

static void say_note(void *arg, const char *sentence) { api_log(arg, BMC_LOG_WARNING, "%s", sentence); }

int api_settings_open(struct api_settings **out, const struct bmc_context *c,
                      const struct bmc_options *options, struct err *err)
{
    const struct model *model = c->model->model;
    const time_t now = time(NULL);
    struct api_settings *s = *out = mem_zalloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "settings");
    s->breakers = (struct dry_breakers){.tok = model->tok,
                                        .vocab = model->config.vocab,
                                        .text = dry_default_breakers,
                                        .n_texts = ARRAY_LEN(dry_default_breakers)};
    if (copy_text(&s->chat_template, options->chat_template, err) < 0 ||
        copy_text(&s->models_dir, options->models_dir ? options->models_dir : ".", err) < 0 ||
        constraint_cache_open(&s->constraints, model->tok, model->config.vocab, err) < 0)
        return -1;
    s->notes = (struct chat_notes){say_note, (void *)(uintptr_t)c, 0};
    constraint_cache_on_note(s->constraints, say_note, (void *)(uintptr_t)c);
    s->chat = (struct chat_prompts){
        .model = model,
        .options = {.format = s->chat_template, .models_dir = s->models_dir, .notes = &s->notes}};
    return gmtime_r(&now, &s->chat.options.now) ? open_serve(s, c, options->lenient, err)
                                                : err_errno(err, "cannot read the time");
}

void api_settings_close(struct api_settings *s)
{
    if (!s)
        return;
    chat_prompts_close(&s->chat);
    constraint_cache_close(s->constraints);
    dry_breakers_release(&s->breakers);
    free(s->chat_template);
    free(s->models_dir);
    free(s);
}

void api_settings_log(const struct bmc_context *c)
{
    struct api_settings *s = c->settings;
    struct buf note = {0};
    struct err ignored;
    if ((s->ignored & ~s->told) && foreign_note(s->ignored & ~s->told, &note, &ignored) == 0)
        api_log(c, BMC_LOG_WARNING, "%s", buf_text(&note));
    s->told = s->ignored;
    buf_release(&note);
}

static int render(struct bmc_context *c, const char *conversation, struct request *request,
                  struct ids *ids, struct buf *text, struct err *err)
{
    struct chat_prompts *chat = &c->settings->chat;
    if (request_open(request, conversation, strlen(conversation), false, err) < 0 ||
        request_apply(request, err) < 0)
        return -1;
    if (!request->messages)
        return err_set(err, "the conversation has no \"messages\"");
    const struct conversation turns = serve_conversation(request);
    if (chat_prompts_open(chat, err) < 0)
        return -1;
    return chat_prompts_add(
        chat, &turns, request_parses_special(request, false) ? CHAT_PARSES_SPECIAL : 0, ids, text, err);
}

static int render_conversation(struct bmc_context *c, const char *conversation, uint32_t **ids,
                               size_t *n_ids, char **text, struct err *err)
{
    struct request request;
    struct ids list = {0};
    struct buf rendered = {0};
    if (api_given(conversation, "conversation", err) < 0 || api_given(ids, "ids", err) < 0 ||
        api_given(n_ids, "n_ids", err) < 0)
        return -1;
    int rc = render(c, conversation, &request, &list, &rendered, err);
    if (rc == 0 && text)
        rc = buf_reserve(&rendered, 1, err);
    request_close(&request);
    if (rc < 0) {
        ids_release(&list);
        buf_release(&rendered);
        return -1;
    }
    *ids = list.id;
    *n_ids = list.len;
    if (text) {
        rendered.data[rendered.len] = 0;
        *text = rendered.data;
    } else {
        buf_release(&rendered);
    }
    return 0;
}

int bmc_chat_render(struct bmc_context *c, const char *conversation, uint32_t **ids, size_t *n_ids,
                    char **text, struct bmc_error *error)
{
    if (ids)
        *ids = NULL;
    if (n_ids)
        *n_ids = 0;
    if (text)
        *text = NULL;
    API_CALL("context", c, render_conversation(c, conversation, ids, n_ids, text, &err), BMC_INVALID,
             error);
}
