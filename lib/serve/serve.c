/* What programs share that serve requests: defaults of requests, prompts. */
#include "serve/serve.h"

struct conversation serve_conversation(const struct request *request)
{
    return (struct conversation){
        .messages = request->messages,
        .tools = request->tools,
        .documents = request->documents,
        .variables = request->template_variables,
        .no_answer = request->add_generation_prompt && !json_is_true(request->add_generation_prompt),
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
