/* Opens what a run needs: model and adapters, snapshot, constraint, session. */
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text_util.h"
#include "base/threads.h"
#include "chat/line_editor.h"
#include "backend/backend.h"
#include "decode/prefix_store.h"
#include "decode/step_beam.h"
#include "format/detect.h"
#include "gen/gen.h"
#include "model_files.h"
#include "gen/gen_ranks.h"
#include "kv/kv_footprint.h"
#include "model/experts/expert_store.h"
#include "opt/opt.h"
#include "opt/opt_files.h"
#include "cli.h"
#include "model/model_pages.h"
#include "quant/cache_types.h"
#include "open_model.h"
#include "text/tools/tool_call.h"

/* ---- the prefix cache on disk ---- */

static void warn_of_prefix_cache(void *arg, const char *sentence)
{
    const struct gen *gen = arg;
    cli_say(stderr, "%s: --prefix-cache: %s\n", gen->program->name, sentence);
}

/* Cuts the options off the end of DIR,size=BYTES,states=TOKENS; what is not given stays NULL. */
static void cut_options(char *path, const char **size, const char **states)
{
    static const char *const mark[] = {",size=", ",states="};
    const char **const value[] = {size, states};
    for (;;) {
        size_t which = 0;
        char *last = NULL;
        for (size_t m = 0; m < ARRAY_LEN(mark); m++)
            for (char *at = strstr(path, mark[m]); at; at = strstr(at + 1, mark[m]))
                if (!last || at > last)
                    last = at, which = m;
        if (!last || *value[which])
            return;
        *value[which] = last + strlen(mark[which]);
        *last = 0;
    }
}

static int open_prefix_cache(struct gen *gen, struct err *err)
{
    const char *given = gen->options->prefix_cache;
    struct err why;
    if (!given || gen->prefix_store)
        return 0;
    AUTO(free_auto) char *path = strdup(given);
    if (!path)
        return err_no_memory(err, "the name of a prefix cache");
    const char *bytes = NULL, *states = NULL;
    cut_options(path, &bytes, &states);
    const size_t size = bytes ? opt_bytes(gen->program, "--prefix-cache", bytes) : DEFAULT_STORE_BYTES;
    if (states && (!parse_count(states, &gen->stored_every) || !gen->stored_every ||
                   gen->stored_every > SIZE_MAX / 4))
        opt_usage_error(gen->program,
                        "--prefix-cache: states= needs a number of tokens, as 512; found \"%s\"",
                        states);
    const char *comma = strrchr(path, ',');
    if (comma && strchr(comma, '=') && !strchr(comma, '/'))
        opt_usage_error(gen->program, "--prefix-cache: \"%s\" is none of size=BYTES and states=TOKENS",
                        comma + 1);
    if (!*path)
        opt_usage_error(gen->program, "--prefix-cache: the name of a folder is expected");
    const struct kvblock_warn by = {warn_of_prefix_cache, gen};
    if (prefix_store_open(&gen->prefix_store, path, size, BMC_RELEASE, by, &why) < 0)
        warn_of_prefix_cache(gen, why.text);
    return 0;
}

static void bind_prefix_cache(struct gen *gen)
{
    struct err why;
    if (gen->prefix_store && prefix_store_bind(gen->prefix_store, gen->session, &why) < 0)
        warn_of_prefix_cache(gen, why.text);
}

/* ---- the constraint and the sequence breakers that options give ---- */

/* Appends a file's text. */
static int read_file(const char *path, struct buf *text, struct err *err)
{
    enum { MOST = 16 << 20 };
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc =
        map.size > MOST
            ? err_set(err, "%s: %zu bytes are too many for a constraint: at most %d are read", path,
                      map.size, MOST)
            : buf_add(text, map.data, map.size, err);
    file_unmap(&map);
    return rc;
}

/* True for a schema itself, false for the name of the file that has it. */
static bool is_schema(const char *option)
{
    const char *start = option + strspn(option, " \t\r\n");
    return *start == '{' || strcmp(start, "true") == 0 || strcmp(start, "false") == 0;
}

static int read_schema(const char *option, struct buf *text, struct err *err)
{
    return is_schema(option) ? buf_add(text, option, strlen(option), err)
                             : read_file(option, text, err);
}

static int open_breakers(struct gen *gen, struct err *err)
{
    struct sampler_options *sampling = &gen->serve.options.sampling;
    const struct opt_list *given = &gen->options->dry_breaker;
    const bool none = given->n == 1 && strcmp(given->text[0], "none") == 0;
    gen->stored_breakers = (void *)(uintptr_t)sampling->dry_text;
    struct dry_breakers *breakers = &gen->serve.breakers;
    if (given->n || gen->stored_breakers) {
        breakers->text = given->n ? given->text : gen->stored_breakers;
        breakers->n_texts = none ? 0 : given->n ? given->n : sampling->n_dry_texts;
    }
    sampling->dry_text = breakers->text == dry_default_breakers ? NULL : breakers->text;
    sampling->n_dry_texts = breakers->n_texts;
    return dry_breakers_find(breakers, sampling, err);
}

/* The value of an option is why it failed, not memory. */
static int bad_value(struct err *err)
{
    err->code = err->code == ERR_FAILED ? ERR_INVALID : err->code;
    return -1;
}

static int open_constraint(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const enum constraint_kind kind = o->json_schema ? CONSTRAINT_JSON_SCHEMA
                                      : o->grammar   ? CONSTRAINT_GRAMMAR
                                      : o->regex     ? CONSTRAINT_REGEX
                                      : o->choice    ? CONSTRAINT_CHOICE
                                                     : CONSTRAINT_NONE;
    AUTO(buf_release) struct buf text = {0};
    if (kind == CONSTRAINT_NONE)
        return 0;
    int rc = kind == CONSTRAINT_JSON_SCHEMA ? read_schema(o->json_schema, &text, err)
             : kind == CONSTRAINT_GRAMMAR   ? read_file(o->grammar, &text, err)
             : kind == CONSTRAINT_REGEX     ? buf_add(&text, o->regex, strlen(o->regex), err)
                                            : constraint_split_choice(o->choice, &text, err);
    if (rc == 0 && constraint_cache_get(gen->serve.constraints, kind, buf_text(&text), text.len,
                                        &gen->serve.options.request.constraint, err) < 0)
        rc = err_prefix(err, "%s",
                        kind == CONSTRAINT_JSON_SCHEMA
                            ? is_schema(o->json_schema) ? "--json-schema" : o->json_schema
                        : kind == CONSTRAINT_GRAMMAR ? o->grammar
                        : kind == CONSTRAINT_REGEX   ? "--regex"
                                                     : "--choice");
    const bool from_file =
        kind == CONSTRAINT_GRAMMAR || (kind == CONSTRAINT_JSON_SCHEMA && !is_schema(o->json_schema));
    return rc < 0 && !from_file ? bad_value(err) : rc;
}

/* ---- snapshots ---- */

static int open_snapshot(struct gen *gen, const char *path, struct err *err)
{
    const struct gen_options *o = gen->options;
    const double start = clock_ms();
    if (snapshot_open(&gen->snapshot, path, gen->model, err) < 0)
        return -1;
    gen->open_kv_ms = clock_ms() - start;
    const struct cache_types types = snapshot_types(gen->snapshot);
    if (!o->cache_type && !o->cache_kld)
        gen->kv_types = types;
    if (!snapshot_has_types(gen->snapshot, &gen->kv_types))
        cli_say(stderr, "%s: %s: KV entries are converted from %s to %s\n", gen->program->name, path,
                cache_types_format(&types).text, cache_types_format(&gen->kv_types).text);
    return 0;
}

/* Reads the model's sampling defaults for chats. Beam search is greedy in any case. */
static int read_model_sampling(struct gen *gen, struct err *err)
{
    struct chat chat;
    if (gen->options->beams || (!gen->options->chat && !gen->options->jsonl))
        return 0;
    if (model_chat(gen->model, &chat, err) < 0)
        return -1;
    gen->model_sampling = chat.sampling;
    chat_release(&chat);
    return 0;
}

/* What the options say of reasoning and tool calls. */
static struct answer_options answer_options_of(const struct gen_options *o)
{
    struct answer_options answer = o->answer;
    if (o->reasoning >= 0)
        answer.reasoning = (enum reasoning_form)(REASONING_HIDE + o->reasoning);
    if (o->tool_choice) {
        const size_t kind = text_choice("auto|none|required", o->tool_choice);
        answer.choice.kind = kind == SIZE_MAX ? TOOL_CHOICE_NAME : (enum tool_choice_kind)kind;
        answer.choice.name = o->tool_choice;
        answer.choice_given = true;
    }
    return answer;
}

static int fill_serve(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    struct serve *serve = &gen->serve;
    struct serve_options *to = &serve->options;
    to->given = (struct given_settings){.sampling = o->sampling, .seed = o->seed.given};
    to->chat_defaults = to->chat_at_temp = chat_sampling_defaults(&gen->model_sampling);
    serve->snapshot = o->load_kv ? gen->snapshot : NULL;
    gen->chat_temp = o->chat && !o->beams && !serve->snapshot && isnan(o->sampling.temp) &&
                     !gen->model_sampling.given[SAMPLING_temp];
    if (gen->chat_temp)
        to->chat_defaults.temp = CHAT_TEMP;
    if (gen->chat_temp && !gen->model_sampling.given[SAMPLING_repeat_penalty])
        to->chat_defaults.repeat_penalty = CHAT_REPEAT_PENALTY;
    if (resume_sampling(&to->given, o->chat ? &to->chat_defaults : &to->defaults, serve->snapshot, 0,
                        &to->sampling, err) < 0)
        return -1;
    gen->seed = resume_seed(&to->given, gen->seed, serve->snapshot, 0);
    to->request = o->request;
    to->request.seed = gen->seed;
    to->request.stop = (struct stop_strings){o->stop.text, o->stop.n};
    to->request.hold_partial_utf8 = o->save_kv && !o->chat;
    to->request.end_repetition = o->chat;
    to->chat = o->chat;
    to->parse_special = !o->no_parse_special;
    to->parse_special_in_chat = o->parse_special;
    to->lenient = o->lenient;
    to->openai = o->openai;
    to->answer = answer_options_of(o);
    serve->interrupted = &cli_interrupted;
    serve->save = o->save_kv || o->prompt_cache ? gen_save : NULL;
    serve->save_arg = gen;
    serve->created = gen->now;
    return 0;
}

/* True if a snapshot is missing or empty that the run writes at its end: it is the first one of several. */
static bool is_first_run(const struct gen_options *o, const char *path)
{
    const bool written = o->prompt_cache || (o->save_kv && strcmp(o->save_kv, path) == 0);
    struct stat st;
    return written && (stat(path, &st) == 0 ? st.st_size == 0 : errno == ENOENT);
}

/* Opens the shared scales of --cache-type. */
static int open_scales(struct gen *gen, struct err *err)
{
    const struct kv_shape shape = config_kv_shape(&gen->model->config, 1, &gen->kv_types);
    if (!gen->options->kv_scales)
        return 0;
    if (gen_is_model_parallel(gen))
        return err_set(err,
                       "shared scales need the whole model in each process: use --parallelism data");
    return kv_scales_open(&gen->kv_scales, gen->options->kv_scales, &shape, &gen->model->file.model_id,
                          gen->model->key_gains != NULL, err);
}

/* A snapshot with other scales cannot be loaded; a prompt cache with others is not used. */
static int check_scales(struct gen *gen, struct err *err)
{
    if (!gen->snapshot ||
        snapshot_check_scales(gen->snapshot, &gen->kv_types, &gen->kv_scales.id, err) == 0)
        return 0;
    if (gen->options->load_kv)
        return -1;
    cli_say(stderr, "%s: %s: the prompt cache is not used\n", gen->program->name, err->text);
    snapshot_close(gen->snapshot);
    gen->snapshot = NULL;
    return 0;
}

static int open_kv(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const char *path = o->load_kv ? o->load_kv : o->prompt_cache;
    gen->kv_types = o->kv_types;
    if (o->cache_kld) {
        if (cli_choose_cache_types(&gen->kv_chosen, o->cache_kld, gen->model, gen->program, o->quiet,
                                   err) < 0)
            return -1;
        gen->kv_types = kv_chosen_types_of(&gen->kv_chosen);
    }
    if ((path && !is_first_run(o, path) && open_snapshot(gen, path, err) < 0) ||
        open_scales(gen, err) < 0 || check_scales(gen, err) < 0)
        return -1;
    if (read_model_sampling(gen, err) < 0)
        return -1;
    if (fill_serve(gen, err) < 0)
        return -1;
    return open_breakers(gen, err) < 0 ? -1 : open_constraint(gen, err);
}

/* True if the prompt cache matches this run; a mismatch is not an error. */
static bool cache_fits(const struct gen *gen)
{
    if (snapshot_fits(gen->session, gen->snapshot))
        return true;
    const size_t most = gen->model->config.rope->original;
    cli_say(stderr,
            "%s: %s: beyond %zu tokens this model's keys depend on the length of the sequence: the "
            "prompt cache is not used%s\n",
            gen->program->name, gen->options->prompt_cache, most,
            snapshot_fits(gen->session, NULL) ? "" : ", nor written (-c sets the length)");
    return false;
}

void gen_reuse(const struct gen *gen, struct gen_request *request)
{
    if (!cache_fits(gen) || !gen->snapshot)
        return;
    if (!resume_prefix(gen->session, gen->snapshot, request) && request->ids->len)
        cli_say(stderr, "%s: %s: has no prefix of the prompt, all of which is computed\n",
                gen->program->name, gen->snapshot->path);
}

int gen_begin_save(struct gen *gen, struct err *err)
{
    const char *path = gen->options->save_kv ? gen->options->save_kv : gen->options->prompt_cache;
    if (gen->options->prompt_cache && !snapshot_fits(gen->session, NULL))
        return 0; /* gen_reuse() has warned */
    return path ? snapshot_create(&gen->save, path, gen->session, err) : 0;
}

int gen_save(void *arg, size_t seq, const struct gen_result *result, const char *id, struct err *err)
{
    struct gen *gen = arg;
    const struct gen_request *request = result->request;
    struct sampler_options sampling =
        request->sampling ? *request->sampling : gen->serve.options.sampling;
    if (sampling.mirostat)
        sampling.mirostat_mu = result->mirostat_mu;
    const struct saved_seq saved = {
        .token = result->ids - result->n_prompt,
        .n_tokens = result->n_prompt + result->n_ids,
        .n_prompt = result->n_prompt,
        .seed = request->seed,
        .stream = request->stream,
        .sampling = &sampling,
        .id = id,
    };
    if (!gen->save)
        return 0;
    if (!gen->warned_same_id && kvwriter_has(gen->save, id)) {
        gen->warned_same_id = true;
        cli_say(stderr,
                "%s: %s: several sequences have %s id%s%s; only the first that ended can be resumed\n",
                gen->program->name, gen->options->save_kv, id ? "the" : "no", id ? " " : "",
                id ? excerpt_of(id, strlen(id)).text : "");
    }
    const double start = clock_ms();
    const int rc = snapshot_add(gen->save, gen->session, seq, &saved, err);
    gen->save_ms += clock_ms() - start;
    return rc;
}

int gen_end_save(struct gen *gen, struct err *err)
{
    struct kvwriter *writer = gen->save;
    gen->save = NULL;
    if (!writer)
        return 0;
    const double start = clock_ms();
    const int rc = kvwriter_commit(writer, err);
    gen->save_ms += clock_ms() - start;
    return rc;
}

/* ---- the model and its adapters ---- */

/* The time for templates that write the date: SOURCE_DATE_EPOCH (UTC) if set, so that prompts can be
 * reproduced, else now (local time). */
static int find_time(struct tm *now, time_t *at, struct err *err)
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    size_t seconds;
    *at = time(NULL);
    if (!fixed || !*fixed)
        return localtime_r(at, now) ? 0 : err_errno(err, "cannot read the time");
    *at = parse_size(fixed, &seconds) && seconds < (size_t)1 << 40 ? (time_t)seconds : -1;
    return *at >= 0 && gmtime_r(at, now)
               ? 0
               : err_set(err, "SOURCE_DATE_EPOCH is \"%.60s\", a number of seconds is expected", fixed);
}

static int read_kwargs(struct gen *gen, struct err *err)
{
    const char *text = gen->options->template_kwargs;
    if (!text)
        return 0;
    if (json_parse_unique(text, strlen(text), "--chat-template-kwargs", &gen->template_variables, err) <
        0)
        return bad_value(err);
    return json_is_object(gen->template_variables)
               ? 0
               : err_code(err, ERR_INVALID, "--chat-template-kwargs is %s, an object is expected",
                          json_type_name(gen->template_variables));
}

/* Reads --tools: a list of tools, or a request's object that has one. */
static int read_tools(struct gen *gen, struct err *err)
{
    const char *path = gen->options->tools;
    struct file_map map;
    json_t *root = NULL;
    if (!path)
        return 0;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = json_parse_unique((const char *)map.data, map.size, path, &root, err);
    file_unmap(&map);
    if (rc < 0)
        return -1;
    gen->tools = json_is_object(root) ? json_incref(json_object_get(root, "tools")) : json_incref(root);
    json_decref(root);
    if (!json_array_size(gen->tools))
        return err_set(
            err,
            "%s: a list of tools is expected, with one at least, as \"tools\" of OpenAI's requests",
            path);
    for (size_t i = 0; i < json_array_size(gen->tools); i++) {
        json_t *tool = json_array_get(gen->tools, i);
        if (!gen->options->run_tools)
            json_object_del(tool, "command"); /* which is not for the model */
        if (!tool_name(tool))
            return err_set(err,
                           "%s: tool %zu has no name; {\"type\": \"function\", \"function\": "
                           "{\"name\": .., \"parameters\": {..}}} is expected",
                           path, i);
    }
    return 0;
}

/* Sets the chat template; formats given by name are files, opened when needed. */
static int set_chat(struct gen *gen, struct err *err)
{
    static char models_dir[8192];
    const struct gen_options *o = gen->options;
    if (read_kwargs(gen, err) < 0 || read_tools(gen, err) < 0)
        return -1;
    if (serve_open(&gen->serve, gen->model, gen_say_note, gen, err) < 0)
        return -1;
    struct chat_options *to = &gen->serve.chat.options;
    to->format = o->chat_format;
    to->models_dir = models_dir;
    to->system = o->system;
    to->variables = gen->template_variables;
    gen->serve.options.tools = gen->tools;
    if (find_time(&to->now, &gen->now, err) < 0)
        return -1;
    if (cli_models_dir(models_dir, sizeof models_dir, err) < 0) {
        if (o->chat_format)
            return -1;
        to->models_dir = NULL; /* only formats of tool calls are missing */
    }
    return o->chat ? chat_prompts_open(&gen->serve.chat, err) : 0;
}

int gen_use_pages(const struct gen *gen, const struct model *model, struct err *err)
{
    const struct gen_options *o = gen->options;
    if ((o->hugepages || o->numa) && gen_is_model_parallel(gen))
        return err_set(err,
                       "%s copies whole models, of which ranks of tensor and pipeline "
                       "parallelism have shards: leave it out",
                       o->numa ? "--numa" : "--hugepages");
    return cli_use_pages(gen->program->name, model,
                         &(struct pages_options){o->hugepages, o->numa,
                                                 o->threads ? (int)o->threads : threads_allowed()},
                         err);
}

static int open_model(struct gen *gen, struct err *err)
{
    const double start = clock_ms();
    if (opt_cores_use(gen->options->cpu_mask, gen->options->cores, err) < 0)
        return -1;
    gen_hint_threads(gen);
    if (gen_await_rank_0(gen, err) < 0 ||
        cli_open_model(gen->program, "-m", gen->options->model, "BMC_MODEL", "grimm", &gen->model,
                       err) < 0 ||
        gen_let_ranks_open(gen, err) < 0)
        return -1;
    if (gen_use_pages(gen, gen->model, err) < 0)
        return -1;
    gen->load_ms = clock_ms() - start;
    if (set_chat(gen, err) < 0)
        return -1;
    return gen->options->mlock && !gen_is_model_parallel(gen) ? model_lock(gen->model, err) : 0;
}

static int open_lora(struct gen *gen, struct err *err)
{
    const struct opt_list *list = &gen->options->lora;
    if (list->n && gen_is_model_parallel(gen))
        return err_set(err, "--lora needs the whole model in each process: use --parallelism data");
    return cli_open_adapters(gen->model, list->text, list->n, err);
}

static int open_experts(struct gen *gen, struct err *err)
{
    struct expert_store_options options;
    if (!gen->options->experts)
        return 0;
    if (expert_store_parse(&options, gen->options->experts, err) < 0)
        return -1;
    const struct backend *backend = gen_backend(gen, err);
    return backend ? expert_store_open(gen->model, &options, backend->memory, err) : -1;
}

static int open_heads(struct gen *gen, struct err *err)
{
    if (!gen->options->heads)
        return 0;
    if (gen_is_model_parallel(gen))
        return err_set(
            err, "--retrieval-heads needs the whole model in each process: use --parallelism data");
    return cli_open_heads(&gen->heads, gen->options->heads, &gen->model->config, err);
}

/* ---- the session ---- */

enum { MAX_SLOTS = 256 };

/* Number of sequence slots under --memory: as many as fit if every request has the least KV
 * entries. Longer requests are limited later by admission control. */
static int count_slots(const struct gen *gen, const struct session_options *s, size_t *slots,
                       struct err *err)
{
    const struct shard_shapes most = shard_shapes_max(gen->model, s->context, &s->kv_types);
    const size_t width = size_max(1, gen->options->beams);
    struct kv_spec spec = s->kv;
    struct kv *kv;
    spec.memory = backends[0]->memory;
    spec.state.shape = most.state;
    spec.state.kept = s->kept_states;
    if (kv_open(&kv, &spec, &most.kv, width, err) < 0)
        return -1;
    const size_t fit = kv_footprint_fits(kv, kv_footprint(kv, 1, 1, width), s->memory_bytes);
    *slots = size_max(1, size_min(fit, MAX_SLOTS));
    kv_close(kv);
    return 0;
}

static int open_beams(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const struct beam_options options = {
        .width = o->beams,
        .length_penalty = isnan(o->length_penalty) ? 1 : o->length_penalty,
        .stopping = o->early_stopping < 0 ? BEAM_STOP_NO : (enum beam_stopping)o->early_stopping,
    };
    const size_t n_best = o->n_best ? o->n_best : o->jsonl ? o->beams : 1;
    if (!o->beams)
        return 0;
    if (step_beam_open(&gen->beam, gen->session, &options, n_best, err) < 0)
        return -1;
    gen->strategy = step_beam_strategy(gen->beam);
    return 0;
}

/* Says which steps of --kv-pressure are not possible. */
static int bind_pressure(struct gen *gen, struct err *err)
{
    AUTO(buf_release) struct buf notes = {0};
    if (!gen->pressure)
        return 0;
    if (pressure_bind(gen->pressure, gen->session, gen->strategy, &notes, err) < 0)
        return -1;
    for (const char *at = buf_text(&notes), *end; *at && !gen->options->quiet; at = end + 1) {
        end = strchr(at, '\n');
        cli_say(stderr, "%.*s\n", (int)(end - at), at);
    }
    return 0;
}

int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err)
{
    const struct gen_options *o = gen->options;
    const size_t limit = gen->model->config.context;
    struct session_options s;
    if ((!o->embed && !o->rerank && !gen->embeds_only && model_need_head(gen->model, err) < 0) ||
        open_prefix_cache(gen, err) < 0 ||
        ((o->pressure.steps || o->pressure.replay) &&
         pressure_open(&gen->pressure, &o->pressure, err) < 0) ||
        gen_session_options(gen, &s, err) < 0)
        return -1;
    s.context = (size_t)o->context;
    if (o->context < 0)
        s.context =
            size_min(limit, size_max(DEFAULT_CONTEXT, prompt_tokens + (o->request.n == GENERATE_NO_LIMIT
                                                                           ? UNLIMITED_TOKENS
                                                                           : o->request.n)));
    else if (o->context == 0)
        s.context = limit;
    else if (s.context > limit)
        return err_set(err,
                       "-c %zu exceeds the model's context of %zu tokens: give -c %zu or less, or -c 0 "
                       "for all of it",
                       s.context, limit, limit);
    s.chunk = size_min(s.chunk, size_max(s.context, 1));
    if (batch == GEN_AS_FIT && count_slots(gen, &s, &batch, err) < 0)
        return -1;
    s.batch = batch * size_max(1, o->beams);
    s.recompute = o->shift;
    s.keep = o->keep;
    if (s.keep && s.keep + 2 > s.context)
        return err_set(err, "--keep %zu: of a context of %zu tokens at most %zu can be kept", s.keep,
                       s.context, s.context - size_min(2, s.context));
    if (gen_spec_session(gen, &s, err) < 0 || session_open(&gen->session, gen->model, &s, err) < 0 ||
        open_beams(gen, err) < 0 || gen_spec_open(gen, err) < 0 || bind_pressure(gen, err) < 0)
        return -1;
    if (gen_open_pipe(gen, err) < 0)
        return -1;
    gen_hint_window(gen);
    gen_hint_greedy(gen);
    if (!gen_is_silent(gen))
        gen_print_sampling(gen);
    bind_prefix_cache(gen);
    gen->serve.session = gen->session;
    gen->serve.strategy = gen->strategy;
    return gen_begin_receipts(gen, err);
}

/* ---- the run ---- */

static int choose_seed(struct gen *gen, struct err *err)
{
    gen->seed = gen->options->seed.value;
    return gen->options->seed.draw ? seed_draw(&gen->seed, err) : 0;
}

/* With -i: checks, before the model is opened, that there is a terminal and a single process. */
static int check_terminal(const struct gen *gen, struct err *err)
{
    const bool input = isatty(STDIN_FILENO);
    if (!gen->options->interactive)
        return 0;
    if (gen->ranks)
        return err_set(err, "-i is for a single process: leave mpirun out");
    if (input && isatty(STDOUT_FILENO))
        return 0;
    return err_set(
        err,
        "-i is a conversation at a terminal, but standard %s is not one: give the message with -p, "
        "or requests with --jsonl",
        input ? "output" : "input");
}

static int open_run(struct gen *gen, struct gen_options *o, struct err *err)
{
    return gen_open_ranks(gen, o, err) < 0 || choose_seed(gen, err) < 0 ||
                   opt_files_check(gen->program, o, err) < 0 || check_terminal(gen, err) < 0 ||
                   open_model(gen, err) < 0 || (gen->hooks && gen->hooks->model(gen, err) < 0) ||
                   gen_agree(gen, err) < 0 || gen_shard_model(gen, err) < 0 ||
                   open_experts(gen, err) < 0 || open_lora(gen, err) < 0 || open_kv(gen, err) < 0 ||
                   open_heads(gen, err) < 0
               ? -1
               : 0;
}

static void close_run(struct gen *gen)
{
    gen_spec_close(gen);
    if (gen->hooks)
        gen->hooks->close(gen);
    gen_close_receipts(gen);
    step_beam_close(gen->beam);
    session_close(gen->session);
    prefix_store_close(gen->prefix_store);
    pressure_close(gen->pressure);
    kvwriter_abort(gen->save);
    snapshot_close(gen->snapshot);
    free((void *)(uintptr_t)gen->stored_breakers);
    serve_close(&gen->serve);
    json_decref(gen->template_variables);
    json_decref(gen->tools);
    json_decref(gen->turns);
    kv_streaming_release(&gen->heads);
    kv_scales_release(&gen->kv_scales);
    kv_chosen_types_release(&gen->kv_chosen);
    tuned_close(&gen->tuned);
    model_close(gen->model);
}

/* A single operand is the prompt, unless that is given otherwise. */
static void take_prompt(const struct program *program, void *options, struct operands *operands)
{
    const struct opt *opt = opt_find_exact(program, "prompt", strlen("prompt"), true);
    bool *given = opt ? &operands->given[opt - program->opts] : NULL;
    for (size_t i = 0; i < operands->n; i++) {
        const enum file_kind kind = file_detect(operands->text[i]);
        if (kind == KIND_MODEL || kind == KIND_GGUF)
            opt_usage_error(program, "unexpected \"%s\": a model is given with -m", operands->text[i]);
    }
    if (operands->n != 1 || !given || *given)
        return;
    *(const char **)((char *)options + opt->at) = operands->text[0];
    *given = true;
    operands->n = 0;
}

void gen_begin(const struct program *program, int argc, char **argv, void *options,
               struct operands *operands)
{
    cli_begin(program->name);
    if (line_editor_version())
        cli_uses("libedit", line_editor_version);
    ranks_mute_errors();
    opt_parse(program, argc, argv, options, operands);
    take_prompt(program, options, operands);
}

int gen_main(struct gen *gen, struct gen_options *o, int (*job)(struct gen *gen, struct err *err))
{
    const char *program = gen->program->name;
    struct err err;
    int rc = open_run(gen, o, &err);
    if (rc == 0)
        rc = (gen_is_replica(gen) ? gen_replicate : job)(gen, &err);
    rc = gen_end_model_parallel(gen, rc, &err);
    gen_close_ranks(gen, rc, &err);
    close_run(gen);
    gen_release_options(o);
    return cli_end(program, rc < 0 ? cli_fail(program, &err) : CLI_OK);
}

void gen_warn_of_reranker(const struct gen *gen, const struct reranker *reranker)
{
    if (!reranker->asks || strcasestr(gen->model->name, "rerank") || gen->options->quiet)
        return;
    cli_say(stderr,
            "%s: %s has no classifier's head: scores are its answers to the prompt of "
            "Qwen3-Reranker, of use only if it is such a reranker\n",
            gen->program->name, gen->model->name);
}
