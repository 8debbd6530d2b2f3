/* From a parsed request to what the generation loop takes: settings, prompt, constraint, adapters, choices. */
#include "serve/request_line.h"

#include "base/number.h"
#include "base/text_util.h"
#include "model/lora/lora.h"

/* Default settings: under --chat and for messages those of the model. */
static const struct sampler_options *sampling_defaults_of(const struct serve *serve,
                                                          const struct request *request)
{
    const struct serve_options *o = &serve->options;
    const json_t *root = request->root;
    if (!o->chat && !json_object_get(root, "messages"))
        return &o->defaults;
    return json_is_number(json_object_get(root, "temp")) ||
                   json_is_number(json_object_get(root, "temperature"))
               ? &o->chat_at_temp
               : &o->chat_defaults;
}

/* Makes the request resume a sequence of the snapshot. Found by the request's own id, the sequence
 * continues its random number stream; otherwise, as several requests may resume one sequence, it
 * gets the stream of the request's input line. */
static int read_origin(const struct serve *serve, struct request_line *line, struct err *err)
{
    const struct snapshot *snapshot = serve->snapshot;
    const struct given_settings *given = &serve->options.given;
    struct gen_request *request = &line->request.gen;
    const uint64_t stream = request->stream;
    const bool named = line->request.from != NULL;
    char *from = named ? request_format_id(line->request.from, err) : NULL;
    if (named && !from)
        return -1;
    const size_t index = resume_find(snapshot, from, line->id, err);
    free(from);
    if (index == SIZE_MAX ||
        resume_sequence(snapshot, index,
                        resume_seed(given, serve->options.request.seed, snapshot, index), request,
                        err) < 0)
        return -1;
    const bool own =
        !named && (line->id ? snapshot_seq(snapshot, index)->id_bytes != 0 : snapshot->file.n_seqs > 1);
    request->stream = own ? request->stream : stream;
    return resume_sampling(given, sampling_defaults_of(serve, &line->request), snapshot, index,
                           &line->request.sampling, err);
}

static int add_conversation(const struct serve *serve, struct request_line *line,
                            const struct conversation *conversation, struct err *err)
{
    const bool special = request_parses_special(&line->request, serve->options.parse_special_in_chat);
    const unsigned flags = (serve->snapshot ? CHAT_CONTINUES : 0) | (special ? CHAT_PARSES_SPECIAL : 0);
    return chat_prompts_add(&serve->chat, conversation, flags, &line->prompt,
                            line->tools ? &line->prompt_text : NULL, err);
}

/* Finds the format of what is not text in an answer. */
static void find_format(const struct serve *serve, struct request_line *line)
{
    line->tools = line->divides ? chat_prompts_tools(&serve->chat) : NULL;
    if (line->tools)
        line->request.gen.keep_special = true; /* they may be what calls begin with */
}

static int read_messages(struct serve *serve, struct request_line *line, struct err *err)
{
    const struct conversation conversation = serve_conversation(&line->request);
    if (chat_prompts_open(&serve->chat, err) < 0)
        return -1;
    find_format(serve, line);
    line->request.gen.turn_end = chat_prompts_turn_end(&serve->chat);
    line->request.gen.hold_partial_utf8 = false; /* what follows an answer begins anew */
    return add_conversation(serve, line, &conversation, err);
}

static int encode_text(const struct serve *serve, const struct request *request, const char *text,
                       size_t len, struct ids *ids, struct err *err)
{
    return serve_encode(serve->model, text, len, !serve->snapshot,
                        request_parses_special(request, serve->options.parse_special), ids, err);
}

static int read_text(const struct serve *serve, struct request_line *line, struct err *err)
{
    const struct prompt *prompt = &line->request.prompt;
    struct conversation said = serve_conversation(&line->request);
    said.user = prompt->text;
    said.user_len = prompt->len;
    if (serve->options.chat) {
        find_format(serve, line);
        return add_conversation(serve, line, &said, err);
    }
    return encode_text(serve, &line->request, prompt->text, prompt->len, &line->prompt, err);
}

static int read_prompt(struct serve *serve, struct request_line *line, struct err *err)
{
    const struct request *request = &line->request;
    const bool resumes = serve->snapshot != NULL;
    if (!resumes && request->from)
        return err_set(err, "\"from\" names a sequence of a snapshot: give one with --load-kv");
    if (!request->n_prompts && !resumes && json_is_null(json_object_get(request->root, "cancel")))
        return err_set(err, "\"cancel\" is null: give the id of the requests to end");
    if (request->n_prompts > 1 || (!request->n_prompts && !resumes))
        return err_set(err, "%s one of \"prompt\", \"ids\" and \"messages\" is expected",
                       resumes ? "at most" : "exactly");
    if (request->messages)
        return read_messages(serve, line, err);
    if (request->prompt.text)
        return read_text(serve, line, err);
    if (request->prompt_ids && serve->options.chat)
        return err_set(
            err,
            "\"prompt\" is a list of token ids: with --chat a string is expected, the user's message");
    return request_ids(request, &line->prompt, err);
}

/* Compiles the request's own constraint, if any. */
static int read_constraint(const struct serve *serve, struct request_line *line, struct err *err)
{
    const struct request *request = &line->request;
    if (!request->constraint_given)
        return 0;
    line->constraints = serve->constraints;
    if (request->constraint != CONSTRAINT_NONE &&
        constraint_cache_get(line->constraints, request->constraint,
                             buf_text(&request->constraint_text), request->constraint_text.len,
                             &line->constraint, err) < 0)
        return -1;
    line->request.gen.constraint = line->constraint;
    return 0;
}

/* Finds the sequence breakers of DRY, the request's own or the run's. */
static int read_breakers(struct serve *serve, struct request_line *line, struct err *err)
{
    struct request *request = &line->request;
    struct dry_breakers *breakers = &serve->breakers;
    if (!dry_is_on(&request->sampling))
        return 0;
    if (request->breakers_given) {
        line->breakers = *breakers;
        line->breakers.token = NULL;
        line->breakers.text = request->breaker;
        line->breakers.n_texts = request->n_breakers;
        breakers = &line->breakers;
    }
    request->sampling.dry_text = breakers->text == dry_default_breakers ? NULL : breakers->text;
    request->sampling.n_dry_texts = breakers->n_texts;
    return dry_breakers_find(breakers, &request->sampling, err);
}

/* The last component of a path, without slashes at its end. */
static struct slice_of_path {
    const char *at;
    size_t len;
} last_component(const char *path)
{
    size_t end = strlen(path), at;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (at = end; at > 0 && path[at - 1] != '/';)
        at--;
    return (struct slice_of_path){path + at, end - at};
}

static bool has_name(const struct lora *lora, const char *name)
{
    const struct slice_of_path last = last_component(lora->path);
    return strcmp(lora->path, name) == 0 ||
           (strlen(name) == last.len && memcmp(name, last.at, last.len) == 0);
}

static int find_name(const char *name, const struct loras *loras, size_t *index, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < loras->n; i++)
        if (has_name(loras->one[i], name)) {
            *index = i;
            n++;
        }
    if (n == 1)
        return 0;
    return err_set(err, "\"lora\": %s --lora %s \"%s\"%s", n ? "several" : "no",
                   n ? "options have" : "option has", excerpt_of(name, strlen(name)).text,
                   n ? ": give the number of one, from 0" : "");
}

static int find_adapter(const json_t *id, const struct loras *loras, size_t *index, struct err *err)
{
    if (!loras || !loras->n)
        return err_set(err, "\"lora\" names adapters, but the model was opened without any: give them "
                            "with --lora, or to bmc_model_open_with()");
    if (json_is_string(id))
        return find_name(json_string_value(id), loras, index, err);
    *index = (size_t)json_integer_value(id);
    return *index < loras->n
               ? 0
               : err_set(err, "\"lora\": there is no adapter %lld: --lora is given %zu time%s, from 0",
                         (long long)json_integer_value(id), loras->n, loras->n == 1 ? "" : "s");
}

/* Sets *factor[loras->n] from a list that member_set_adapters() accepts: adapters that it does not name get
 * 0, one that it names twice the sum. The caller frees *factor, even on error. `loras` may be NULL. */
static int find_adapters(const json_t *list, const struct loras *loras, float **factor, struct err *err)
{
    const json_t *one;
    size_t i, index;
    if (!(*factor = mem_zalloc(loras && loras->n ? loras->n : 1, sizeof **factor)))
        return err_no_memory(err, "a request");
    if (json_is_string(list)) {
        if (find_adapter(list, loras, &index, err) < 0)
            return -1;
        (*factor)[index] = 1;
    }
    json_array_foreach(list, i, one)
    {
        const json_t *id = json_is_object(one) ? json_object_get(one, "id") : one;
        const json_t *scale = json_is_object(one) ? json_object_get(one, "scale") : NULL;
        if (find_adapter(id, loras, &index, err) < 0)
            return -1;
        (*factor)[index] += scale ? (float)json_number_value(scale) : 1;
    }
    return 0;
}

/* Finds the request's own LoRA adapters, if it names any. */
static int read_lora(const struct serve *serve, struct request_line *line, struct err *err)
{
    const json_t *list = line->request.lora;
    if (!list)
        return 0;
    if (serve->snapshot || serve->save)
        return err_set(err,
                       "\"lora\" goes neither with --load-kv nor with --save-kv: a snapshot has the "
                       "adapters of the run");
    if (find_adapters(list, serve->model->loras, &line->lora_factor, err) < 0)
        return -1;
    line->request.gen.lora_factor = serve->model->loras ? line->lora_factor : NULL;
    return 0;
}

static int check_choices(const struct line_queue *queue, const struct request_line *line,
                         struct err *err)
{
    enum { MOST_CHOICES = 2048 };
    const struct serve *serve = queue->serve;
    const struct request *request = &line->request;
    const size_t prompts = json_array_size(request->prompts);
    if (prompts && (!line_queue_is_openai(queue, line) || serve->options.chat || serve->save))
        return err_set(err, "\"prompt\" holds %zu prompts, one is expected: write a line for each",
                       prompts);
    if (prompts > MOST_CHOICES / request->n_choices)
        return err_set(err, "\"prompt\" holds %zu prompts, at most %zu are expected", prompts,
                       MOST_CHOICES / request->n_choices);
    if (request->n_choices > 1 && serve->save)
        return err_set(err, "--save-kv keeps one sequence of a request: ask for one choice");
    return (request->n_choices > 1 || prompts) && serve->strategy && serve->strategy->width > 1
               ? err_set(err, "n_choices: beam search has one answer, and further beams of it")
               : 0;
}

/* Begins to read what a choice says. Ids of calls differ between choices and prompts. */
static int begin_parts(struct choice *choice, struct err *err)
{
    struct request_line *line = choice->line;
    if (!line->tools)
        return 0;
    choice->said.parts = &choice->parts;
    const int rc = tool_answer_begin(
        &choice->parts, line->tools, line->request.tools, serve_call_seed(&choice->gen, choice->index),
        (struct slice){buf_text(&line->prompt_text), line->prompt_text.len}, err);
    answer_plan_report(&line->plan, &choice->parts);
    return rc;
}

/* Sets the ids of a choice: those of the prompt, or of one of several, of which each has the same number of choices. */
static int read_choice_ids(const struct serve *serve, struct request_line *line, size_t i,
                           struct err *err)
{
    const size_t each = line->request.n_choices;
    const json_t *prompt = json_array_get(line->request.prompts, i / each);
    struct ids *ids = &line->choice[i].ids;
    if (i == 0) {
        *ids = line->prompt;
        line->prompt = (struct ids){0};
        return 0;
    }
    if (i % each > 0)
        return ids_append(ids, &line->choice[i - i % each].ids, err);
    return json_is_string(prompt) ? encode_text(serve, &line->request, json_string_value(prompt),
                                                json_string_length(prompt), ids, err)
                                  : request_ids_of(prompt, ids, err);
}

/* Makes the choices of a request that has been read; each has its stream of random numbers, the first one
 * that of a request without others. */
static int make_choices(const struct serve *serve, struct request_line *line, struct err *err)
{
    const struct gen_request *gen = &line->request.gen;
    const size_t each = line->request.n_choices,
                 n = each * size_max(json_array_size(line->request.prompts), 1);
    if (!(line->choice = mem_zalloc(n, sizeof *line->choice)))
        return err_no_memory(err, "%zu choices", n);
    line->n_choices = n;
    for (size_t i = 0; i < n; i++) {
        struct choice *choice = &line->choice[i];
        *choice = (struct choice){.line = line, .index = i, .gen = *gen};
        choice->gen.ids = &choice->ids;
        choice->gen.user = choice;
        choice->gen.stream += (uint64_t)(i % each) << 40;
        if (i > 0)
            choice->gen.prompt_logprobs = 0;
        if (read_choice_ids(serve, line, i, err) < 0 || begin_parts(choice, err) < 0)
            return -1;
    }
    buf_release(&line->prompt_text);
    return 0;
}

/* Sequence breakers of a snapshot become the request's own, unless options give others. */
static void use_stored_breakers(const struct serve *serve, struct request *request)
{
    struct sampler_options *sampling = &request->sampling;
    char **text = (char **)(uintptr_t)sampling->dry_text;
    sampling->dry_text = NULL;
    sampling->dry_breaker = serve->options.sampling.dry_breaker; /* the run's */
    if (!text || serve->breakers.text != dry_default_breakers) {
        free(text);
        return;
    }
    request->breaker = text;
    request->n_breakers = sampling->n_dry_texts;
    request->breakers_given = true;
}

/* In OpenAI's form a seed alone makes the random numbers, whichever line has it. */
static int read_seed(const struct serve *serve, struct gen_request *gen, const json_t *given,
                     struct err *err)
{
    const struct serve_options *o = &serve->options;
    const bool none = !given || json_is_null(given);
    if (!o->openai || serve->snapshot || (none && !o->service))
        return 0;
    gen->stream = 0;
    gen->seed_drawn = gen->seed_drawn || (none && !o->given.seed);
    return none && !o->given.seed ? seed_draw(&gen->seed, err) : 0;
}

enum {
    SERVICE_LOGPROBS = 20
}; /* as OpenAI has it: each takes some hundred bytes of a result per token */

static int read_settings(const struct serve *serve, struct request_line *line,
                         const volatile sig_atomic_t *cancelled, struct err *err)
{
    struct request *request = &line->request;
    request->gen = serve_request(serve, &line->prompt);
    request->gen.line = serve->options.service ? GENERATE_NO_LINE : line->number;
    request->gen.stream = line->number;
    request->gen.cancelled = cancelled ? cancelled : &line->cancelled;
    request->answer = serve->options.answer;
    if ((serve->snapshot ? read_origin(serve, line, err)
                         : resume_sampling(&serve->options.given, sampling_defaults_of(serve, request),
                                           NULL, 0, &request->sampling, err)) < 0)
        return -1;
    use_stored_breakers(serve, request);
    if (request_apply(request, err) < 0 ||
        read_seed(serve, &request->gen, json_object_get(request->root, "seed"), err) < 0)
        return -1;
    if (serve->options.service && request->gen.logprobs > SERVICE_LOGPROBS)
        return err_set(err, "\"top_logprobs\" is %zu, at most %d are expected", request->gen.logprobs,
                       (int)SERVICE_LOGPROBS);
    request->gen.n = size_min(request->gen.n, serve->options.most_tokens);
    return 0;
}

int request_line_prepare(struct line_queue *queue, struct request_line *line,
                         const struct serve_input *input, struct err *err)
{
    struct serve *serve = queue->serve;
    struct request *request = &line->request;
    if (line_queue_open(queue, line, input, err) < 0)
        return -1;
    if (request->cancel)
        return 0;
    if (read_settings(serve, line, input->cancelled, err) < 0 || check_choices(queue, line, err) < 0 ||
        read_constraint(serve, line, err) < 0 || read_breakers(serve, line, err) < 0 ||
        read_lora(serve, line, err) < 0)
        return -1;
    if (input->prompt)
        request_set_prompt(request, input->prompt);
    if (!json_object_get(request->root, "tools") && !request->no_tools)
        request->tools = serve->options.tools;
    request->answer.tools = request->tools;
    line->divides = line_queue_is_openai(queue, line) ||
                    (!queue->io->take &&
                     (json_array_size(request->tools) || request->answer.reasoning != REASONING_AS_IS));
    if (read_prompt(serve, line, err) < 0 ||
        answer_plan_make(&line->plan, &request->answer, &serve->chat, serve->constraints, &line->prompt,
                         &request->gen, err) < 0)
        return -1;
    if (serve->watch && request->gen.markers && (request->gen.constraint || line->plan.close.len))
        return err_set(err,
                       "receipts have neither reasoning budgets nor constraints on tool calls: set "
                       "tool_choice to none");
    const int rc = make_choices(serve, line, err);
    request_drop_prompt(request);
    return rc;
}
