/* Snapshots of bmc-gen and bmc-spec: --load-kv, --save-kv and --prompt-cache. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "quant/cache_types.h"
#include "base/clock.h"
#include "base/text_util.h"
#include "gen/gen.h"
#include "gen/gen_parallel.h"

static int open_snapshot(struct gen *gen, const char *path, struct err *err)
{
    const struct gen_options *o = gen->options;
    const double start = clock_ms();
    if (snapshot_open(&gen->snapshot, path, gen->model, err) < 0)
        return -1;
    gen->open_kv_ms = clock_ms() - start;
    const enum dtype type = snapshot_type(gen->snapshot);
    if (o->kv_type < 0)
        gen->kv_type = type;
    if (gen->kv_type != type)
        cli_say(stderr, "%s: %s: KV entries are converted from %s to %s\n", gen->program->name, path,
                cache_type_name(type), cache_type_name(gen->kv_type));
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

static int fill_serve(struct gen *gen, struct err *err)
{
    const struct sampler_options defaults = sampling_defaults(),
                                 chat_defaults = chat_sampling_defaults(&gen->model_sampling);
    const struct gen_options *o = gen->options;
    const struct snapshot *snapshot = o->load_kv ? gen->snapshot : NULL;
    const struct given_settings given = {.sampling = o->sampling, .seed = o->seed.given};
    if (resume_sampling(&given, o->chat ? &chat_defaults : &defaults, snapshot, 0, &gen->sampling,
                        err) < 0)
        return -1;
    gen->seed = resume_seed(&given, gen->seed, snapshot, 0);
    gen->serve = (struct serve){
        .options = {.request = o->request,
                    .chat = o->chat,
                    .parse_special = !o->no_parse_special,
                    .parse_special_in_chat = o->parse_special,
                    .lenient = o->lenient,
                    .given = given,
                    .sampling = gen->sampling,
                    .defaults = defaults,
                    .chat_defaults = chat_defaults},
        .model = gen->model,
        .chat = &gen->chat,
        .snapshot = snapshot,
        .interrupted = &cli_interrupted,
        .save = o->save_kv || o->prompt_cache ? gen_save : NULL,
        .save_arg = gen,
        .created = gen->now,
        .ignored = &gen->ignored,
    };
    gen->serve.options.request.seed = gen->seed;
    gen->serve.options.request.stop = (struct stop_strings){o->stop.text, o->stop.n};
    gen->serve.options.request.hold_partial_utf8 = o->save_kv && !o->chat;
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
    const struct kv_shape shape = config_kv_shape(&gen->model->config, 1, gen->kv_type);
    if (!gen->options->kv_scales)
        return 0;
    if (gen_is_model_parallel(gen))
        return err_set(err,
                       "shared scales need the whole model in each process: use --parallelism data");
    return kv_scales_open(&gen->kv_scales, gen->options->kv_scales, &shape, &gen->model->file.model_id,
                          err);
}

/* A snapshot with other scales cannot be loaded; a prompt cache with others is not used. */
static int check_scales(struct gen *gen, struct err *err)
{
    if (!gen->snapshot ||
        snapshot_check_scales(gen->snapshot, gen->kv_type, &gen->kv_scales.id, err) == 0)
        return 0;
    if (gen->options->load_kv)
        return -1;
    cli_say(stderr, "%s: %s: the prompt cache is not used\n", gen->program->name, err->text);
    snapshot_close(gen->snapshot);
    gen->snapshot = NULL;
    return 0;
}

int gen_open_kv(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const char *path = o->load_kv ? o->load_kv : o->prompt_cache;
    gen->kv_type = o->kv_type < 0 ? DTYPE_F32 : cache_types[o->kv_type].type;
    if ((path && !is_first_run(o, path) && open_snapshot(gen, path, err) < 0) ||
        open_scales(gen, err) < 0 || check_scales(gen, err) < 0)
        return -1;
    if (read_model_sampling(gen, err) < 0)
        return -1;
    if (fill_serve(gen, err) < 0)
        return -1;
    return gen_open_breakers(gen, err) < 0 ? -1 : gen_open_constraint(gen, err);
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
    struct sampler_options sampling = request->sampling ? *request->sampling : gen->sampling;
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

void gen_close_kv(struct gen *gen)
{
    kvwriter_abort(gen->save);
    snapshot_close(gen->snapshot);
    gen->save = NULL;
    gen->snapshot = NULL;
}
