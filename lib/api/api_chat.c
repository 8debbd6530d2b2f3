/* The public API: chat rendering. */
#include "api/api.h"

static int render(struct bmc_context *c, const char *conversation, struct request *request,
                  struct ids *ids, struct buf *text, struct err *err)
{
    struct chat_prompts *chat = &c->serve.chat;
    if (request_open(request, conversation, strlen(conversation), 0, err) < 0 ||
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
