/* Reads requests: the prompt, the settings, and what else a line says. */
#include "serve/request_line.h"

#include <stdlib.h>

#include "base/mem.h"
#include "serve/lines/lines.h"
#include "serve/request_lora.h"

struct request_line *request_line_new(struct request_line **lines)
{
    struct request_line *line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->next = *lines;
    line->link = lines;
    if (line->next)
        line->next->link = &line->next;
    *lines = line;
    return line;
}

void request_line_free(struct request_line *line)
{
    *line->link = line->next;
    if (line->next)
        line->next->link = line->link;
    if (line->constraint)
        constraint_cache_put(line->constraints, line->constraint);
    for (size_t i = 0; i < line->n_choices; i++) {
        ids_release(&line->choice[i].ids);
        json_decref(line->choice[i].result);
    }
    free(line->choice);
    dry_breakers_release(&line->breakers);
    request_close(&line->request);
    ids_release(&line->prompt);
    free(line->lora_factor);
    free(line->id);
    free(line);
}

/* Default settings: under --chat and for messages those of the model. */
static const struct sampler_options *sampling_defaults_of(const struct serve *serve,
                                                          const struct request *request)
{
    const struct serve_options *o = &serve->options;
    return o->chat || json_object_get(request->root, "messages") ? &o->chat_defaults : &o->defaults;
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
        resume_sequence(snapshot, index, resume_seed(given, serve->options.seed, snapshot, index),
                        request, err) < 0)
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
    return chat_prompts_add(serve->chat, conversation, flags, &line->prompt, NULL, err);
}

static int read_messages(const struct serve *serve, struct request_line *line, struct err *err)
{
    const struct conversation conversation = serve_conversation(&line->request);
    if (chat_prompts_open(serve->chat, err) < 0)
        return -1;
    line->request.gen.turn_end = chat_prompts_turn_end(serve->chat);
    line->request.gen.hold_partial_utf8 = false; /* what follows an answer begins anew */
    return add_conversation(serve, line, &conversation, err);
}

/* A prompt that is what a user says. */
static int read_user_message(const struct serve *serve, struct request_line *line, const char *text,
                             size_t len, struct err *err)
{
    struct conversation conversation = serve_conversation(&line->request);
    json_t *messages = chat_user_message(text, len, err);
    conversation.messages = messages;
    const int rc = messages ? add_conversation(serve, line, &conversation, err) : -1;
    json_decref(messages);
    return rc;
}

static int read_text(const struct serve *serve, struct request_line *line, struct err *err)
{
    const char *text = json_string_value(line->request.text);
    const size_t len = json_string_length(line->request.text);
    if (serve->options.chat)
        return read_user_message(serve, line, text, len, err);
    return serve_encode(serve->model, text, len, !serve->snapshot,
                        request_parses_special(&line->request, serve->options.parse_special),
                        &line->prompt, err);
}

static int read_prompt(const struct serve *serve, struct request_line *line, struct err *err)
{
    const struct request *request = &line->request;
    const bool resumes = serve->snapshot != NULL;
    const int prompts = (request->text != NULL) + (request->prompt_ids != NULL) +
                        (request->ids != NULL) + (request->messages != NULL);
    if (!resumes && request->from)
        return err_set(err, "\"from\" names a sequence of a snapshot: give one with --load-kv");
    if (!prompts && !resumes && json_is_null(json_object_get(request->root, "cancel")))
        return err_set(err, "\"cancel\" is null: give the id of the requests to end");
    if (prompts > 1 || (!prompts && !resumes))
        return err_set(err, "%s one of \"prompt\", \"ids\" and \"messages\" is expected",
                       resumes ? "at most" : "exactly");
    if (request->messages)
        return read_messages(serve, line, err);
    if (request->text)
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
static int read_breakers(const struct serve *serve, struct request_line *line, struct err *err)
{
    struct request *request = &line->request;
    struct dry_breakers *breakers = serve->breakers;
    if (!dry_is_on(&request->sampling) || !breakers)
        return 0;
    if (request->breakers_given) {
        line->breakers = *breakers;
        line->breakers.token = NULL;
        line->breakers.text = request->breaker;
        line->breakers.n_texts = request->n_breakers;
        breakers = &line->breakers;
    }
    const int rc = dry_breakers_find(breakers, err);
    request->sampling.dry_breaker = breakers->token;
    request->sampling.dry_text = breakers->text == dry_default_breakers ? NULL : breakers->text;
    request->sampling.n_dry_texts = breakers->n_texts;
    return rc;
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
    if (request_lora(list, serve->model->loras, &line->lora_factor, err) < 0)
        return -1;
    line->request.gen.lora_factor = serve->model->loras ? line->lora_factor : NULL;
    return 0;
}

static int check_choices(const struct serve *serve, const struct request *request, struct err *err)
{
    if (request->n_choices > 1 && serve->save)
        return err_set(err, "--save-kv keeps one sequence of a request: ask for one choice");
    return request->n_choices > 1 && serve->strategy && serve->strategy->width > 1
               ? err_set(err, "n_choices: beam search has one answer, and further beams of it")
               : 0;
}

/* Makes the choices of a request that has been read; each has its stream of random numbers, the first one
 * that of a request without others. */
static int make_choices(struct request_line *line, struct err *err)
{
    const struct gen_request *gen = &line->request.gen;
    const size_t n = line->request.n_choices;
    if (!(line->choice = mem_zalloc(n, sizeof *line->choice)))
        return err_no_memory(err, "%zu choices", n);
    line->n_choices = n;
    for (size_t i = 0; i < n; i++) {
        struct choice *choice = &line->choice[i];
        *choice = (struct choice){.line = line, .index = i, .gen = *gen};
        choice->gen.ids = &choice->ids;
        choice->gen.user = choice;
        choice->gen.stream += (uint64_t)i << 40;
        if (i > 0)
            choice->gen.prompt_logprobs = 0;
        if (i > 0 && ids_append(&choice->ids, &line->choice[0].ids, err) < 0)
            return -1;
        if (i == 0) {
            choice->ids = line->prompt;
            line->prompt = (struct ids){0};
        }
    }
    return 0;
}

/* Sequence breakers of a snapshot become the request's own, unless options give others. */
static void use_stored_breakers(const struct serve *serve, struct request *request)
{
    struct sampler_options *sampling = &request->sampling;
    char **text = (char **)(uintptr_t)sampling->dry_text;
    sampling->dry_text = NULL;
    sampling->dry_breaker = serve->options.sampling.dry_breaker; /* the run's */
    if (!text || (serve->breakers && serve->breakers->text != dry_default_breakers)) {
        free(text);
        return;
    }
    request->breaker = text;
    request->n_breakers = sampling->n_dry_texts;
    request->breakers_given = true;
}

static int read_settings(const struct serve *serve, struct request_line *line, struct err *err)
{
    struct request *request = &line->request;
    request->gen = serve_request(serve, &line->prompt);
    request->gen.line = request->gen.stream = line->number;
    request->gen.cancelled = &line->cancelled;
    if ((serve->snapshot ? read_origin(serve, line, err)
                         : resume_sampling(&serve->options.given, sampling_defaults_of(serve, request),
                                           NULL, 0, &request->sampling, err)) < 0)
        return -1;
    use_stored_breakers(serve, request);
    if (request_apply(request, err) < 0)
        return -1;
    return 0;
}

int request_line_read(const struct serve *serve, const struct jsonl_io *io, struct request_line *line,
                      const struct jsonl_line *read, struct err *err)
{
    struct request *request = &line->request;
    if (lines_check(read->text, err) < 0)
        return -1;
    const int rc = request_open(request, read->text, read->len, serve->options.lenient, err);
    if (request->id && !(line->id = request_format_id(request->id, err)))
        return -1;
    if (rc < 0)
        return -1;
    if (serve->ignored)
        *serve->ignored |= request->ignored;
    if (request->cancel)
        return io->can_cancel
                   ? request_check_cancel(request, serve->options.lenient, err)
                   : err_set(err, "\"cancel\" is for bmc-gen --jsonl: in the library (bmc.h) a "
                                  "callback's \"cancelled\" stops a request");
    if (read_settings(serve, line, err) < 0 || check_choices(serve, request, err) < 0 ||
        read_constraint(serve, line, err) < 0 || read_breakers(serve, line, err) < 0 ||
        read_lora(serve, line, err) < 0 || read_prompt(serve, line, err) < 0)
        return -1;
    request_drop_prompt(request);
    return make_choices(line, err);
}
