/* Resumes sequences of snapshots. */
#include "serve/resume.h"

#include <math.h>
#include <string.h>

#include "base/text_util.h"

struct given_settings settings_not_given(void)
{
    return (struct given_settings){.sampling = {.temp = NAN,
                                                .top_k = SIZE_MAX,
                                                .top_p = NAN,
                                                .min_p = NAN,
                                                .top_n_sigma = NAN,
                                                .typical_p = NAN,
                                                .xtc_probability = NAN,
                                                .xtc_threshold = NAN,
                                                .dynatemp_range = NAN,
                                                .dynatemp_exponent = NAN,
                                                .dry_multiplier = NAN,
                                                .dry_base = NAN,
                                                .dry_allowed_length = SIZE_MAX,
                                                .dry_last_n = SIZE_MAX,
                                                .mirostat = SIZE_MAX,
                                                .mirostat_tau = NAN,
                                                .mirostat_eta = NAN,
                                                .repeat_penalty = NAN,
                                                .presence_penalty = NAN,
                                                .frequency_penalty = NAN}};
}

/* Settings of a snapshot, which has only those in its format. */
static void take_stored(const struct snapshot *snapshot, size_t index, struct sampler_options *s)
{
    const struct sampler_options stored = snapshot_sampling(snapshot, index);
    s->temp = stored.temp;
    s->top_k = stored.top_k;
    s->top_p = stored.top_p;
    s->min_p = stored.min_p;
    s->repeat_penalty = stored.repeat_penalty;
    s->repeat_last_n = stored.repeat_last_n;
    s->presence_penalty = stored.presence_penalty;
    s->frequency_penalty = stored.frequency_penalty;
}

static double override(double given, double value) { return isnan(given) ? value : given; }

struct sampler_options resume_sampling(const struct given_settings *given,
                                       const struct sampler_options *defaults,
                                       const struct snapshot *snapshot, size_t index)
{
    const struct sampler_options *g = &given->sampling;
    struct sampler_options s = *defaults;
    if (snapshot)
        take_stored(snapshot, index, &s);
    s.temp = override(g->temp, s.temp);
    s.top_k = g->top_k == SIZE_MAX ? s.top_k : g->top_k;
    s.top_p = override(g->top_p, s.top_p);
    s.min_p = override(g->min_p, s.min_p);
    s.top_n_sigma = override(g->top_n_sigma, s.top_n_sigma);
    s.typical_p = override(g->typical_p, s.typical_p);
    s.xtc_probability = override(g->xtc_probability, s.xtc_probability);
    s.xtc_threshold = override(g->xtc_threshold, s.xtc_threshold);
    s.dynatemp_range = override(g->dynatemp_range, s.dynatemp_range);
    s.dynatemp_exponent = override(g->dynatemp_exponent, s.dynatemp_exponent);
    s.dry_multiplier = override(g->dry_multiplier, s.dry_multiplier);
    s.dry_base = override(g->dry_base, s.dry_base);
    s.dry_allowed_length =
        g->dry_allowed_length == SIZE_MAX ? s.dry_allowed_length : g->dry_allowed_length;
    s.dry_last_n = g->dry_last_n;
    s.dry_breaker = g->dry_breaker;
    s.mirostat = g->mirostat == SIZE_MAX ? s.mirostat : g->mirostat;
    s.mirostat_tau = override(g->mirostat_tau, s.mirostat_tau);
    s.mirostat_eta = override(g->mirostat_eta, s.mirostat_eta);
    s.order = g->order;
    s.repeat_penalty = override(g->repeat_penalty, s.repeat_penalty);
    s.presence_penalty = override(g->presence_penalty, s.presence_penalty);
    s.frequency_penalty = override(g->frequency_penalty, s.frequency_penalty);
    s.bias = g->bias;
    s.n_biases = g->n_biases;
    s.repeat_last_n = given->repeat_last_n ? g->repeat_last_n : s.repeat_last_n;
    return s;
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
