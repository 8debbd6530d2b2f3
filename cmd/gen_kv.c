/* Snapshots of bmc-gen and bmc-spec: --load-kv, --save-kv and --prompt-cache. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cache_types.h"
#include "base/clock.h"
#include "base/words.h"
#include "cli.h"
#include "gen.h"

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
        cli_say(stderr, "%s: %s: its rows are %s, they are converted to %s\n", gen->program->name, path,
                cache_type_name(type), cache_type_name(gen->kv_type));
    return 0;
}

int gen_open_kv(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const char *path = o->load_kv ? o->load_kv : o->prompt_cache;
    struct stat st;
    gen->kv_type = o->kv_type < 0 ? DTYPE_F32 : cache_types[o->kv_type].type;
    /* A prompt cache that is not there yet, or empty, is made. */
    if (path && (o->load_kv || (stat(path, &st) == 0 && st.st_size > 0)) &&
        open_snapshot(gen, path, err) < 0)
        return -1;
    gen->sampling = gen_sampling(gen, 0);
    gen->seed = gen_seed(gen, 0);
    return 0;
}

static double given(double option, double otherwise) { return isnan(option) ? otherwise : option; }

struct sampler_options gen_sampling(const struct gen *gen, size_t index)
{
    const struct gen_options *o = gen->options;
    const struct sampler_options *given_by = &o->sampling;
    struct sampler_options s = {
        .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1, .repeat_last_n = 64};
    if (o->load_kv && gen->snapshot)
        s = snapshot_sampling(gen->snapshot, index);
    s.temp = given(given_by->temp, s.temp);
    s.top_k = given_by->top_k == SIZE_MAX ? s.top_k : given_by->top_k;
    s.top_p = given(given_by->top_p, s.top_p);
    s.min_p = given(given_by->min_p, s.min_p);
    s.repeat_penalty = given(given_by->repeat_penalty, s.repeat_penalty);
    s.presence_penalty = given(given_by->presence_penalty, s.presence_penalty);
    s.frequency_penalty = given(given_by->frequency_penalty, s.frequency_penalty);
    s.bias = given_by->bias;
    s.n_biases = given_by->n_biases;
    if (o->repeat_last_n != GEN_NOT_GIVEN)
        s.repeat_last_n = o->repeat_last_n < 0 ? SIZE_MAX : (size_t)o->repeat_last_n;
    return s;
}

uint64_t gen_seed(const struct gen *gen, size_t index)
{
    const bool stored = gen->options->seed == GEN_NOT_GIVEN && gen->options->load_kv && gen->snapshot;
    return stored ? snapshot_seq(gen->snapshot, index)->seed : gen->seed;
}

int gen_continue(const struct gen *gen, size_t index, struct gen_request *request, struct err *err)
{
    const struct kvfile_seq *seq = snapshot_seq(gen->snapshot, index);
    const uint32_t *token = snapshot_tokens(gen->snapshot, index);
    for (size_t i = 0; i < seq->n_tokens; i++)
        if (ids_add(request->ids, token[i], err) < 0)
            return -1;
    request->from = gen->snapshot;
    request->from_seq = index;
    request->from_rows = (size_t)(seq->first + seq->n_rows);
    request->seed = gen_seed(gen, index);
    request->stream = seq->stream;
    return 0;
}

/* A prompt cache is a help only: where it cannot be one, the prompt is computed as without it. */
static bool cache_fits(const struct gen *gen)
{
    if (snapshot_fits(&gen->session, gen->snapshot))
        return true;
    const size_t most = gen->model->config.rope_original;
    cli_say(
        stderr,
        "%s: %s: keys of this model differ with the length of the text beyond %zu tokens: the prompt "
        "is computed anew%s\n",
        gen->program->name, gen->options->prompt_cache, most,
        snapshot_fits(&gen->session, NULL) ? "" : ", and nothing is stored (-c sets the length)");
    return false;
}

void gen_reuse(const struct gen *gen, struct gen_request *request)
{
    const struct ids *prompt = request->ids;
    size_t best = 0;
    if (!cache_fits(gen) || !gen->snapshot)
        return;
    for (size_t i = 0; i < gen->snapshot->file.n_seqs; i++) {
        const size_t common =
            snapshot_tokens_of_rows(&gen->session, gen->snapshot, i,
                                    snapshot_common(gen->snapshot, i, prompt->id, prompt->len));
        if (common <= best)
            continue;
        best = common;
        request->from = gen->snapshot;
        request->from_seq = i;
        request->from_rows = common;
    }
    if (!best && prompt->len)
        cli_say(stderr, "%s: %s: has no rows of the prompt's beginning, which is computed anew\n",
                gen->program->name, gen->snapshot->path);
}

int gen_begin_save(struct gen *gen, struct err *err)
{
    const char *path = gen->options->save_kv ? gen->options->save_kv : gen->options->prompt_cache;
    if (gen->options->prompt_cache && !snapshot_fits(&gen->session, NULL))
        return 0; /* gen_reuse() said so */
    return path ? snapshot_create(&gen->save, path, &gen->session, err) : 0;
}

int gen_save(struct gen *gen, size_t seq, const struct gen_result *result, const char *id,
             struct err *err)
{
    const struct gen_request *request = result->request;
    const struct saved_seq saved = {
        .token = result->ids - result->n_prompt,
        .n_tokens = result->n_prompt + result->n_ids,
        .n_prompt = result->n_prompt,
        .seed = request->seed,
        .stream = request->stream,
        .sampling = request->sampling ? request->sampling : &gen->sampling,
        .id = id,
    };
    if (!gen->save)
        return 0;
    if (!gen->told_same && kvwriter_has(gen->save, id)) {
        gen->told_same = true;
        cli_say(stderr,
                "%s: %s: several sequences have %s id%s%s; the first that ended can be continued\n",
                gen->program->name, gen->options->save_kv, id ? "the" : "no", id ? " " : "",
                id ? excerpt_of(id, strlen(id)).text : "");
    }
    const double start = clock_ms();
    const int rc = snapshot_add(gen->save, &gen->session, seq, &saved, err);
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

void gen_check_kv_usage(const struct program *program, const struct gen_options *o)
{
    const bool any = o->load_kv || o->save_kv || o->prompt_cache;
    if (any && (o->score || o->tokenize || o->detokenize))
        opt_usage_error(program, "--load-kv, --save-kv and --prompt-cache go with generation only");
    if (o->prompt_cache && (o->load_kv || o->save_kv))
        opt_usage_error(program, "--prompt-cache excludes --load-kv and --save-kv");
    if (o->prompt_cache && o->jsonl)
        opt_usage_error(program, "--prompt-cache goes with plain generation only");
}
