/* What programs share that serve requests: defaults of requests, prompts, resumed sequences. */
#include "serve/serve.h"

#include "base/hash.h"
#include "base/text_util.h"

int serve_open(struct serve *serve, const struct model *model,
               void (*say)(void *arg, const char *sentence), void *arg, struct err *err)
{
    const struct sampler_options defaults = sampling_defaults();
    *serve = (struct serve){
        .options = {.request = {.n = GENERATE_NO_LIMIT},
                    .answer = {.budget = GENERATE_NO_LIMIT},
                    .parse_special = true,
                    .most_tokens = GENERATE_NO_LIMIT,
                    .given = {.sampling = sampling_not_given()},
                    .sampling = defaults,
                    .defaults = defaults,
                    .chat_defaults = defaults,
                    .chat_at_temp = defaults},
        .model = model,
        .breakers = {.tok = model->tok,
                     .vocab = model->config.vocab,
                     .text = dry_default_breakers,
                     .n_texts = ARRAY_LEN(dry_default_breakers)},
        .chat = {.model = model, .options = {.notes = &serve->notes}},
        .notes = {say, arg, 0},
    };
    if (constraint_cache_open(&serve->constraints, model->tok, model->config.vocab, err) < 0)
        return -1;
    constraint_cache_on_note(serve->constraints, say, arg);
    return 0;
}

void serve_close(struct serve *serve)
{
    chat_prompts_close(&serve->chat);
    constraint_cache_close(serve->constraints);
    dry_breakers_release(&serve->breakers);
}

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
    struct gen_request request = serve->options.request;
    request.ids = ids;
    if (serve->options.chat)
        request.turn_end = chat_prompts_turn_end(&serve->chat);
    return request;
}

uint64_t serve_call_seed(const struct gen_request *request, size_t choice)
{
    const struct hash hash = hash_of(request->ids->id, request->ids->len * sizeof *request->ids->id);
    uint64_t seed;
    memcpy(&seed, hash.byte, sizeof seed);
    return seed + request->seed + choice;
}

int serve_encode(const struct model *model, const char *text, size_t len, bool with_template,
                 bool parse_special, struct ids *ids, struct err *err)
{
    return parse_special ? tokenizer_encode(model->tok, text, len, with_template, ids, err)
                         : tokenizer_encode_plain(model->tok, text, len, with_template, ids, err);
}

/* ---- sequences of snapshots ---- */

int resume_sampling(const struct given_settings *given, const struct sampler_options *defaults,
                    const struct snapshot *snapshot, size_t index, struct sampler_options *sampling,
                    struct err *err)
{
    *sampling = *defaults;
    if (snapshot && snapshot_sampling(snapshot, index, sampling, err) < 0)
        return -1;
    sampling_override(sampling, &given->sampling);
    sampling->bias = given->sampling.bias;
    sampling->n_biases = given->sampling.n_biases;
    return 0;
}

uint64_t resume_seed(const struct given_settings *given, uint64_t seed, const struct snapshot *snapshot,
                     size_t index)
{
    return snapshot && !given->seed ? snapshot_seq(snapshot, index)->seed : seed;
}

int resume_sequence(const struct snapshot *snapshot, size_t index, uint64_t seed,
                    struct gen_request *request, struct err *err)
{
    const struct kvfile_seq *seq = snapshot_seq(snapshot, index);
    const uint32_t *token = snapshot_tokens(snapshot, index);
    for (size_t i = 0; i < seq->n_tokens; i++)
        if (ids_add(request->ids, token[i], err) < 0)
            return -1;
    request->from = snapshot;
    request->from_seq = index;
    request->from_rows = (size_t)(seq->first + seq->n_rows);
    request->seed = seed;
    request->stream = seq->stream;
    return 0;
}

bool resume_prefix(const struct session *session, const struct snapshot *snapshot,
                   struct gen_request *request)
{
    const struct ids *prompt = request->ids;
    size_t best = 0;
    for (size_t i = 0; i < snapshot->file.n_seqs; i++) {
        const size_t common = snapshot_tokens_of_rows(
            session, snapshot, i, snapshot_common(snapshot, i, prompt->id, prompt->len));
        if (common <= best)
            continue;
        best = common;
        request->from = snapshot;
        request->from_seq = i;
        request->from_rows = common;
    }
    return best > 0;
}

size_t resume_find(const struct snapshot *snapshot, const char *from, const char *id, struct err *err)
{
    const bool only = snapshot->file.n_seqs == 1;
    const char *name = from ? from : id;
    const size_t index = name    ? snapshot_find(snapshot, name, strlen(name))
                         : !only ? snapshot_find(snapshot, "", 0)
                                 : SIZE_MAX;
    if (index != SIZE_MAX)
        return index;
    if (!from && only && !snapshot_seq(snapshot, 0)->id_bytes)
        return 0;
    err_set(err, "%s: has no sequence with%s id%s%s", snapshot->path, name ? "" : "out",
            name ? " " : "", name ? excerpt_of(name, strlen(name)).text : "");
    return SIZE_MAX;
}
