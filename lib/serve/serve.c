/* What programs share that serve requests: defaults of requests, prompts. */
#include "serve/serve.h"

#include <string.h>

/* Whether the last message is continued: it was asked for, or no other answer begins behind the assistant's. */
static bool is_continued(const struct request *request)
{
    const json_t *list = request->messages, *asked = request->continue_final_message;
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return asked ? json_is_true(asked)
                 : json_is_false(request->add_generation_prompt) && role &&
                       strcmp(role, "assistant") == 0;
}

struct conversation serve_conversation(const struct request *request)
{
    const bool continued = is_continued(request);
    return (struct conversation){
        .messages = request->messages,
        .tools = request->tools,
        .documents = request->documents,
        .variables = request->template_variables,
        .no_answer = continued || json_is_false(request->add_generation_prompt),
        .open_end = continued,
    };
}

struct gen_request serve_request(const struct serve *serve, struct ids *ids)
{
    const struct serve_options *o = &serve->options;
    struct gen_request request = {
        .ids = ids,
        .seed = o->seed,
        .n = o->n,
        .stop = o->stop,
        .ignore_eos = o->ignore_eos,
        .keep_special = o->keep_special,
        .hold_partial_utf8 = o->hold_partial_utf8,
        .logprobs = o->logprobs,
        .constraint = o->constraint,
    };
    if (o->chat)
        request.turn_end = chat_prompts_turn_end(serve->chat);
    return request;
}

int serve_encode(const struct model *model, const char *text, size_t len, bool with_template,
                 bool parse_special, struct ids *ids, struct err *err)
{
    return parse_special ? tokenizer_encode(model->tok, text, len, with_template, ids, err)
                         : tokenizer_encode_plain(model->tok, text, len, with_template, ids, err);
}
