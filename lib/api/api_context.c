/* The public API: contexts and their options. */
#include <time.h>

#include "api/api_draft.h"
#include "base/text_util.h"
#include "base/threads.h"
#include "decode/prefix_store.h"
#include "quant/cache_types.h"

/* Members of the first version of the library, which every program has. */
#define FIRST_OPTIONS offsetof(struct bmc_options, hidden_states)

static int read_stopping(const char *name, enum beam_stopping *stopping, struct err *err)
{
    const size_t index = name ? text_choice(BEAM_STOPPINGS, name) : BEAM_STOP_NO;
    if (index == SIZE_MAX)
        return text_no_choice("early_stopping", name, BEAM_STOPPINGS, err);
    *stopping = (enum beam_stopping)index;
    return 0;
}

/* Reads and checks the options of beam search, and sets the default of `sequences` for it. Without the option
 * `beams` the width is 0. */
static int read_beams(struct beam_options *beam, struct bmc_options *o, struct err *err)
{
    *beam = (struct beam_options){.width = o->beams,
                                  .length_penalty = o->length_penalty ? *o->length_penalty : 1};
    if (!o->beams)
        return o->n_best || o->length_penalty || o->early_stopping
                   ? err_set(err, "n_best, length_penalty and early_stopping go with `beams`")
                   : 0;
    if (!o->sequences)
        o->sequences = o->beams;
    if (o->sequences < o->beams)
        return err_set(err, "%zu `beams` of a request need as many `sequences`: the context has %zu",
                       o->beams, o->sequences);
    if (o->n_best > o->beams)
        return err_set(err, "n_best is %zu of %zu `beams`: a search has no more results than beams",
                       o->n_best, o->beams);
    if (!isfinite(beam->length_penalty))
        return err_set(err, "length_penalty is not a finite number");
    if (o->draft || o->drafter)
        return err_set(err, "`beams` excludes speculative decoding: leave `draft` and `drafter` out");
    return read_stopping(o->early_stopping, &beam->stopping, err);
}

static int read_options(struct bmc_options *o, struct beam_options *beam,
                        const struct bmc_options *given, const struct bmc_model *m, struct err *err)
{
    const struct config *c = &m->model->config;
    *o = (struct bmc_options){0};
    if (given && api_read(o, sizeof *o, given, FIRST_OPTIONS, "bmc_options", err) < 0)
        return -1;
    if (read_beams(beam, o, err) < 0)
        return -1;
    if (!o->context)
        o->context = size_min(c->context, DEFAULT_CONTEXT);
    if (!o->sequences)
        o->sequences = 1;
    if (!o->chunk)
        o->chunk = DEFAULT_CHUNK;
    if (o->context > c->context)
        return err_set(err, "a context of %zu is beyond the model's %zu", o->context, c->context);
    if (o->sequences > MOST_SEQUENCES || o->chunk > 1 << 20)
        return err_set(err, "%zu sequences and %zu tokens of a pass: at most %d and %d", o->sequences,
                       o->chunk, MOST_SEQUENCES, 1 << 20);
    if (o->threads < 0 || o->threads > THREADS_MOST || o->threads_batch < 0 ||
        o->threads_batch > THREADS_MOST)
        return err_set(err, "%d and %d threads: from 1 to %d are possible", o->threads,
                       o->threads_batch, THREADS_MOST);
    if (m->pages.numa && !o->threads)
        o->threads = m->pages.threads;
    if (m->pages.numa &&
        (o->threads != m->pages.threads || (o->threads_batch && o->threads_batch != o->threads)))
        return err_set(err, "%d and %d threads: the model was opened with `numa` for %d `threads`",
                       o->threads, o->threads_batch ? o->threads_batch : o->threads, m->pages.threads);
    return 0;
}

static int set_alloc(struct session_options *s, const char *name, struct err *err)
{
    const size_t index = name ? text_choice(VM_ALLOCS, name) : VM_POOL;
    if (index == SIZE_MAX)
        return text_no_choice("alloc", name, VM_ALLOCS, err);
    s->kv.alloc = (enum vm_alloc)index;
    return 0;
}

/* Sets the cache policy, by default that of the tuned profile, and its T from the profile. */
static int set_policy(struct bmc_context *c, struct session_options *s, const struct bmc_options *o,
                      struct err *err)
{
    const struct model *model = c->model->model;
    enum vm_alloc alloc;
    struct machine here;
    bool exists;
    if (set_alloc(s, o->alloc, err) < 0)
        return -1;
    alloc = s->kv.alloc;
    if (o->profile) {
        machine_of(&here, s->backend, s->cpu.kernels->isa, alloc, s->threads);
        if (tuned_read(&c->tuned, o->profile, &here, &exists, err) < 0)
            return -1;
        if (!exists)
            return err_set(err, "%s: there is no such profile; bmc-tune makes it", o->profile);
        tuned_select(&c->tuned, &model->file.model_id);
    }
    const char *tuned = tuned_policy(&c->tuned);
    if (kv_spec_parse(&s->kv, o->kv ? o->kv : tuned ? tuned : DEFAULT_POLICY, err) < 0)
        return -1;
    s->kv.alloc = alloc;
    s->kv.attend_valid = o->attend_valid;
    s->kv.scales = c->kv_scales.range ? &c->kv_scales : NULL;
    s->kv.tuner = tuned_for(&c->tuned, tune_attn_name(s->backend, s->cpu.attn), model->config.heads);
    return 0;
}

static int read_cache_type(struct bmc_context *c, struct session_options *s, const char *text,
                           struct err *err)
{
    const struct model *model = c->model->model;
    const char *path;
    if (cache_types_parse(&s->kv_types, text, &path, err) < 0)
        return -1;
    const struct kv_shape shape = config_kv_shape(&model->config, 1, &s->kv_types);
    return path ? kv_scales_open(&c->kv_scales, path, &shape, &model->file.model_id,
                                 model->key_gains != NULL, err)
                : 0;
}

/* Chooses types within the budget of the option `cache_kld`. */
static int choose_cache_types(struct bmc_context *c, struct session_options *s, const char *text,
                              struct err *err)
{
    const struct model *model = c->model->model;
    const struct kv_shape shape = config_kv_shape(&model->config, 1, &s->kv_types);
    if (kv_chosen_types_open(&c->kv_chosen, text, NULL, &shape, &model->file.model_id, err) < 0)
        return -1;
    s->kv_types = kv_chosen_types_of(&c->kv_chosen);
    return 0;
}

static int session_options_of(struct bmc_context *c, struct session_options *s,
                              const struct bmc_options *o, struct err *err)
{
    const struct model *model = c->model->model;
    *s = (struct session_options){.context = o->context,
                                  .batch = o->sequences,
                                  .chunk = size_min(o->chunk, size_max(o->context, 1)),
                                  .kept_states = DEFAULT_KEPT_STATES,
                                  .prefix_cache_bytes = SIZE_MAX};
    if (o->cache_kld && o->cache_type)
        return err_set(err, "--cache-kld chooses the types of --cache-type: give one of them");
    if ((o->cache_type && read_cache_type(c, s, o->cache_type, err) < 0) ||
        (o->cache_kld && choose_cache_types(c, s, o->cache_kld, err) < 0))
        return -1;
    if (!(s->backend = backend_find(o->backend, NULL, err)))
        return -1;
    if (s->backend->only_f32 && o->precision && strcmp(o->precision, "f32") != 0)
        return err_set(err, "backend %s computes in f32: leave precision %s out", s->backend->name,
                       o->precision);
    if (tune_on_device(s->backend) && o->attn)
        return err_set(err, "attn %s is of the CPU: leave backend %s out", o->attn, s->backend->name);
    if (s->backend != backends[0] && model->store)
        return err_set(err, "experts are kept in the memory of the CPU: leave backend %s out",
                       s->backend->name);
    if (!(s->cpu.attn = attn_find(o->attn, err)) ||
        !(s->cpu.kernels = kernels_select(o->kernels, err)) ||
        precision_parse(&s->cpu.precision, o->precision, s->cpu.kernels, model_weights_class(model),
                        &s->kv_types, err) < 0)
        return -1;
    s->threads = o->threads ? o->threads : threads_allowed();
    s->threads_prefill = o->threads_batch ? o->threads_batch : s->threads;
    return set_policy(c, s, o, err);
}

static void warn(void *arg, const char *sentence)
{
    api_log(arg, BMC_LOG_WARNING, "prefix cache: %s", sentence);
}

/* Without the prefix cache on disk everything works as well. */
static void open_prefix_cache(struct bmc_context *c, const struct bmc_options *o)
{
    const size_t bytes = o->prefix_cache_bytes ? o->prefix_cache_bytes : DEFAULT_STORE_BYTES;
    struct err why;
    if (o->prefix_cache && prefix_store_open(&c->prefix_store, o->prefix_cache, bytes, BMC_RELEASE,
                                             (struct kvblock_warn){warn, c}, &why) < 0)
        warn(c, why.text);
}

static int open_session(struct bmc_context *c, const struct bmc_options *o,
                        const struct beam_options *beam, const struct session_options *s,
                        struct err *err)
{
    static const size_t final = HIDDEN_FINAL;
    struct err why;
    if (session_open(&c->session, c->model->model, s, err) < 0 ||
        (o->hidden_states && session_tap(c->session, &final, 1, err) < 0) ||
        (c->draft && api_draft_begin(c->draft, o, c->session, err) < 0) ||
        (beam->width &&
         step_beam_open(&c->beam, c->session, beam, o->n_best ? o->n_best : beam->width, err) < 0))
        return -1;
    if (c->prefix_store && prefix_store_bind(c->prefix_store, c->session, &why) < 0)
        warn(c, why.text);
    c->hidden_states = o->hidden_states;
    c->tokens = mem_zalloc(s->batch, sizeof *c->tokens);
    c->expected = mem_zalloc(s->batch, sizeof *c->expected);
    c->part = mem_alloc(s->batch, sizeof *c->part);
    c->seen = mem_alloc(s->batch, sizeof *c->seen);
    c->row = mem_alloc(session_max_tokens(c->session), sizeof *c->row);
    return c->tokens && c->expected && c->part && c->seen && c->row
               ? 0
               : err_no_memory(err, "a context of %zu sequences", s->batch);
}

/* ---- what requests share ---- */

static int copy_text(char **to, const char *text, struct err *err)
{
    return !text || (*to = strdup(text)) ? 0 : err_no_memory(err, "an option");
}

static void say_note(void *arg, const char *sentence) { api_log(arg, BMC_LOG_WARNING, "%s", sentence); }

static int open_serve(struct bmc_context *c, const struct bmc_options *o, struct err *err)
{
    const time_t now = time(NULL);
    struct chat_options *to = &c->serve.chat.options;
    struct chat chat;
    if (serve_open(&c->serve, c->model->model, say_note, c, err) < 0 ||
        copy_text(&c->chat_template, o->chat_template, err) < 0 ||
        copy_text(&c->models_dir, o->models_dir ? o->models_dir : ".", err) < 0 ||
        model_chat(c->model->model, &chat, err) < 0)
        return -1;
    c->serve.options.chat_defaults = c->serve.options.chat_at_temp =
        chat_sampling_defaults(&chat.sampling);
    chat_release(&chat);
    c->serve.options.lenient = o->lenient;
    c->serve.session = c->session;
    to->format = c->chat_template;
    to->models_dir = c->models_dir;
    return gmtime_r(&now, &to->now) ? 0 : err_errno(err, "cannot read the time");
}

void api_log_ignored(struct bmc_context *c)
{
    AUTO(buf_release) struct buf note = {0};
    struct err ignored;
    if ((c->ignored & ~c->told) && foreign_note(c->ignored & ~c->told, &note, &ignored) == 0)
        api_log(c, BMC_LOG_WARNING, "%s", buf_text(&note));
    c->told = c->ignored;
}

/* ---- contexts ---- */

static int open_context(struct bmc_context *c, const struct bmc_options *o,
                        const struct beam_options *beam, struct session_options *s, struct err *err)
{
    AUTO(buf_release) struct buf types = {0};
    c->progress = o->progress;
    c->log = o->log;
    c->arg = o->arg;
    if (api_draft_open(&c->draft, o, c->model, s, err) < 0)
        return -1;
    open_prefix_cache(c, o);
    s->prefix_store = c->prefix_store;
    s->stored_bytes = prefix_store_size(c->prefix_store);
    if (open_session(c, o, beam, s, err) < 0 || open_serve(c, o, err) < 0)
        return -1;
    if (cache_types_add(&types, &s->kv_types, err) < 0)
        return -1;
    api_log(c, BMC_LOG_INFO,
            "backend %s, kernel set %s, precision %s, %d threads, KV cache %s of type %s, drafter %s",
            s->backend->name, s->cpu.kernels->isa, precision_name(s->cpu.precision), s->threads,
            kv_spec_name(&s->kv), buf_text(&types), c->draft ? c->draft->drafter->name : "none");
    return 0;
}

static void free_context(struct api_object *object)
{
    AUTO(free_auto) struct bmc_context *c = (struct bmc_context *)object;
    for (size_t i = 0; c->tokens && i < bmc_context_sequences(c); i++)
        ids_release(&c->tokens[i]);
    serve_close(&c->serve);
    free(c->chat_template);
    free(c->models_dir);
    api_draft_close(c->draft);
    step_beam_close(c->beam);
    session_close(c->session);
    prefix_store_close(c->prefix_store);
    tuned_close(&c->tuned);
    kv_scales_release(&c->kv_scales);
    kv_chosen_types_release(&c->kv_chosen);
    free(c->tokens);
    free(c->expected);
    free(c->part);
    free(c->seen);
    free(c->row);
    buf_release(&c->gathered);
}

/* Opens a context while no other of a model with experts on disk runs, with which it shares their store. */
static int open_of(struct bmc_context **context, const struct bmc_model *model,
                   const struct bmc_options *options, struct err *err)
{
    struct bmc_options o;
    struct beam_options beam;
    struct session_options s;
    if (read_options(&o, &beam, options, model, err) < 0)
        return -1;
    struct bmc_context *opened = mem_zalloc(1, sizeof *opened);
    if (!opened)
        return err_no_memory(err, "a context");
    api_object_open(&opened->object, API_OBJECT(model), model->model->store != NULL, free_context);
    opened->model = model;
    if (session_options_of(opened, &s, &o, err) == 0 && open_context(opened, &o, &beam, &s, err) == 0) {
        *context = opened;
        return 0;
    }
    bmc_context_close(opened);
    return -1;
}

int bmc_context_open(struct bmc_context **context, const struct bmc_model *model,
                     const struct bmc_options *options, struct bmc_error *error)
{
    if (context)
        *context = NULL;
    API_CALL("model", model,
             api_given(context, "context", &err) < 0 ? -1 : open_of(context, model, options, &err),
             BMC_INVALID, error);
}

void bmc_context_close(struct bmc_context *c) { api_object_drop(API_OBJECT(c)); }

size_t bmc_context_size(const struct bmc_context *c)
{
    return c ? session_options(c->session)->context : 0;
}

size_t bmc_context_sequences(const struct bmc_context *c)
{
    return c && c->session ? session_options(c->session)->batch : 0;
}

static int read_stats(const struct bmc_context *c, struct bmc_stats *stats, struct err *err)
{
    if (api_given(stats, "stats", err) < 0)
        return -1;
    const struct kv_stats kv = kv_stats(session_kv(c->session));
    const size_t size = stats->size;
    struct bmc_stats now = c->stats;
    if (size < sizeof size)
        return err_set(
            err, "the member `size` of struct bmc_stats is %zu: set it to sizeof(struct bmc_stats)",
            size);
    if (c->draft) {
        const struct spec_stats *spec = spec_stats(c->draft->spec);
        now.draft_steps = spec->steps;
        now.draft_step_tokens = spec->tokens;
        now.draft_tokens = spec->drafted;
        now.draft_accepted = spec->accepted;
        now.draft_pauses = spec->pauses;
    }
    now.kv_bytes = kv.resident_bytes;
    now.kv_allocations = kv.allocations;
    api_write(stats, size, &now, sizeof now);
    return 0;
}

int bmc_context_stats(const struct bmc_context *c, struct bmc_stats *stats, struct bmc_error *error)
{
    API_CALL("context", c, read_stats(c, stats, &err), BMC_INVALID, error);
}
