/* Opens models and sessions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "opt/opt.h"
#include "base/number.h"
#include "base/threads.h"
#include "decode/prefix_store.h"
#include "decode/step_beam.h"
#include "gen/gen.h"
#include "gen/gen_parallel.h"
#include "kv/kv_footprint.h"
#include "pages.h"

enum { MAX_SLOTS = 256 };

/* Number of sequence slots under --memory: as many as fit if every request has the least KV
 * entries. Longer requests are limited later by admission control. */
static int count_slots(const struct gen *gen, const struct session_options *s, size_t *slots,
                       struct err *err)
{
    const struct shard_shapes most = shard_shapes_max(gen->model, s->context, s->kv_type);
    const size_t width = size_max(1, gen->options->beams);
    struct kv_spec spec = s->kv;
    struct kv *kv;
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

int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err)
{
    const struct gen_options *o = gen->options;
    const size_t limit = gen->model->config.context;
    struct session_options s;
    if ((!o->embed && model_need_head(gen->model, err) < 0) || gen_open_prefix_cache(gen, err) < 0 ||
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
    if (gen->hooks && gen->hooks->session(gen, &s, err) < 0)
        return -1;
    if (session_open(&gen->session, gen->model, &s, err) < 0 || open_beams(gen, err) < 0 ||
        (gen->hooks && gen->hooks->opened(gen, err) < 0))
        return -1;
    if (gen_open_pipe(gen, err) < 0)
        return -1;
    gen_hint_window(gen);
    gen_bind_prefix_cache(gen);
    gen->serve.session = gen->session;
    gen->serve.strategy = gen->strategy;
    return 0;
}

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
        return -1;
    return json_is_object(gen->template_variables)
               ? 0
               : err_set(err, "--chat-template-kwargs is %s, an object is expected",
                         json_type_name(gen->template_variables));
}

/* Sets the chat template; formats given by name are files, opened when needed. */
static int set_chat(struct gen *gen, struct err *err)
{
    static char models_dir[8192];
    const struct gen_options *o = gen->options;
    if (read_kwargs(gen, err) < 0)
        return -1;
    gen->chat_notes = (struct chat_notes){gen_say_note, gen, 0};
    gen->chat = (struct chat_prompts){.model = gen->model,
                                      .options = {.format = o->chat_format,
                                                  .models_dir = models_dir,
                                                  .system = o->system,
                                                  .notes = &gen->chat_notes,
                                                  .variables = gen->template_variables}};
    if (find_time(&gen->chat.options.now, &gen->now, err) < 0 ||
        (o->chat_format && cli_models_dir(models_dir, sizeof models_dir, err) < 0))
        return -1;
    return o->chat ? chat_prompts_open(&gen->chat, err) : 0;
}

int gen_use_pages(const struct gen *gen, const struct model *model, struct err *err)
{
    const struct gen_options *o = gen->options;
    if ((o->hugepages || o->numa) && gen_is_model_parallel(gen))
        return err_set(err,
                       "%s copies whole models, of which ranks of tensor and pipeline "
                       "parallelism have shards: leave it out",
                       o->numa ? "--numa" : "--hugepages");
    return pages_use(gen->program->name, model,
                     &(struct pages_options){o->hugepages, o->numa,
                                             o->threads ? (int)o->threads : threads_allowed()},
                     err);
}

int gen_open_model(struct gen *gen, struct err *err)
{
    char path[16384];
    const double start = clock_ms();
    if (opt_cores_use(gen->options->cpu_mask, gen->options->cores, err) < 0)
        return -1;
    gen_hint_threads(gen);
    if (!gen->options->model && cli_default_model("grimm", "-m", path, sizeof path, err) < 0)
        return -1;
    if (model_open(&gen->model, gen->options->model ? gen->options->model : path, err) < 0)
        return -1;
    if (gen_use_pages(gen, gen->model, err) < 0)
        return -1;
    gen->load_ms = clock_ms() - start;
    if (set_chat(gen, err) < 0)
        return -1;
    return gen->options->mlock && !gen_is_model_parallel(gen) ? model_lock(gen->model, err) : 0;
}

int gen_open_heads(struct gen *gen, struct err *err)
{
    const struct config *c = &gen->model->config;
    if (!gen->options->heads)
        return 0;
    if (config_kv_layers(c, 0, c->layers, KV_MAIN) < c->layers)
        return err_set(err, "--retrieval-heads needs a model whose layers all have KV entries of their "
                            "own, and heads of one size");
    if (gen_is_model_parallel(gen))
        return err_set(
            err, "--retrieval-heads needs the whole model in each process: use --parallelism data");
    return kv_streaming_open(&gen->heads, gen->options->heads, c->layers, c->kv_heads, err);
}

int gen_choose_seed(struct gen *gen, struct err *err)
{
    gen->seed = gen->options->seed.value;
    return gen->options->seed.draw ? seed_draw(&gen->seed, err) : 0;
}

void gen_close(struct gen *gen)
{
    step_beam_close(gen->beam);
    session_close(gen->session);
    prefix_store_close(gen->prefix_store);
    gen_close_kv(gen);
    constraint_cache_close(gen->constraints);
    dry_breakers_release(&gen->breakers);
    free((void *)(uintptr_t)gen->stored_breakers);
    chat_prompts_close(&gen->chat);
    json_decref(gen->template_variables);
    json_decref(gen->turns);
    kv_streaming_release(&gen->heads);
    kv_scales_release(&gen->kv_scales);
    tuned_close(&gen->tuned);
    model_close(gen->model);
}
