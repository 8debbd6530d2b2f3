/* Statistics of a bmc-gen run. Field names are listed in the man page and do not change. */
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "quant/cache_types.h"
#include "base/file.h"
#include "cli.h"
#include "gen/gen_ranks.h"
#include "model/experts/expert_store.h"
#include "opt/opt_config.h"
#include "serve/rank_counts.h"

static double per_second(size_t n, double ms) { return ms > 0 ? (double)n * 1e3 / ms : 0; }

static double per_token(size_t n, double ms) { return n ? ms / (double)n : 0; }

static struct kv_stats cache_stats(const struct gen *gen)
{
    return gen->counts ? gen->counts->kv : kv_stats(session_kv(gen->session));
}

static double hit_rate(const struct gen_stats *s)
{
    return s->store_lookup_tokens ? (double)s->store_hit_tokens / (double)s->store_lookup_tokens : 0;
}

void gen_print_sampling(const struct gen *gen)
{
    const struct gen_options *o = gen->options;
    const struct sampler_options *s =
        o->chat ? &gen->serve.options.sampling : &gen->serve.options.chat_defaults;
    AUTO(buf_release) struct buf text = {0};
    struct err ignored;
    if (chat_sampling_describe(&gen->model_sampling, &text, &ignored) == 0 &&
        (text.len || gen->chat_temp)) {
        fprintf(stderr, "sampling         = temp %g, top_k %zu, top_p %g, min_p %g", s->temp, s->top_k,
                s->top_p, s->min_p);
        if (s->repeat_penalty != 1)
            fprintf(stderr, ", repeat_penalty %g", s->repeat_penalty);
        fprintf(stderr, "%s%s%s%s\n", o->chat ? "" : " for messages",
                gen->chat_temp ? "; temperature and repeat_penalty are the defaults of --chat" : "",
                text.len ? "; the model's defaults: " : "", buf_text(&text));
    }
}

/* ---- experts that are read from the model file ---- */

/* Statistics of the store; zeros without one. */
static struct expert_stats expert_stats_of(const struct gen *gen)
{
    return gen->model->store ? *expert_store_stats(gen->model->store) : (struct expert_stats){0};
}

static double share(uint64_t part, uint64_t all) { return all ? (double)part / (double)all : 0; }

static void print_experts(const struct gen *gen)
{
    const struct expert_stats s = expert_stats_of(gen);
    if (gen->options->experts && !s.ram)
        fprintf(stderr, "experts          = all fit in memory\n");
    if (!s.ram)
        return;
    fprintf(stderr,
            "experts          = %.2f of %.2f MiB in memory: %.1f %% of %llu uses hit, %.2f MiB read, "
            "%.2f ms waited; %llu prefetched, %.1f %% of them needed\n",
            (double)s.ram / 1048576, (double)s.total / 1048576, 100 * share(s.hits, s.uses),
            (unsigned long long)s.uses, (double)s.read_bytes / 1048576, s.wait_ms,
            (unsigned long long)s.prefetched, 100 * share(s.prefetch_hits, s.prefetched));
}

/* ---- communication of ranks ---- */

static double sent_per_token(const struct gen *gen, size_t tokens)
{
    return tokens ? (double)gen->sent.sent_bytes / (double)tokens : 0;
}

static void print_traffic(const struct gen *gen, size_t tokens)
{
    const struct leader_stats *sent = &gen->sent;
    if (gen->leads)
        fprintf(stderr,
                "sent by ranks    = %10.0f bytes per token, %.2f MiB in all; each waited %.2f ms; the "
                "largest had %.2f MiB\n",
                sent_per_token(gen, tokens), (double)sent->sent_bytes / 1048576, sent->wait_ms,
                (double)sent->peak_bytes / 1048576);
}

/* ---- on standard error ---- */

static void print_cache(const struct gen *gen, const struct gen_stats *s)
{
    const struct session_options *o = session_options(gen->session);
    const struct kv_setup *setup = kv_setup(session_kv(gen->session));
    const struct kv_stats stats = cache_stats(gen);
    const struct kv_streaming *heads = &gen->heads;
    const size_t n_heads = heads->layers * heads->kv_heads;
    fprintf(stderr,
            "KV cache         = %s (%s), %s, T %zu (%s), r %zu, N %zu: %zu growth%s, %.2f MiB copied, "
            "%.2f MiB at most\n",
            setup->policy, gen->policy_from, cache_types_format(&o->kv_types).text, setup->T,
            kv_T_from_name(setup->T_from), setup->r, o->context, stats.allocations,
            stats.allocations == 1 ? "" : "s", (double)stats.copied_bytes / 1048576,
            (double)stats.peak_bytes / 1048576);
    if (heads->is)
        fprintf(stderr,
                "streaming heads  = %10zu of %zu KV heads: %zu attention sinks and a window of %zu "
                "tokens\n",
                heads->n, n_heads, heads->sink, heads->recent);
    if (o->memory_bytes)
        fprintf(stderr,
                "memory           = %.2f MiB for the cache: at most %zu request%s at a time, %.2f MiB "
                "used\n",
                (double)o->memory_bytes / 1048576, s->max_in_flight, s->max_in_flight == 1 ? "" : "s",
                (double)stats.peak_bytes / 1048576);
}

/* Instruction set and attention are the CPU's. */
static void print_run(const struct gen *gen, const struct session_options *o, const char *hash)
{
    fprintf(stderr, "run              = batch %zu, %d threads (%d for prompts), ", o->batch, o->threads,
            o->threads_prefill);
    char device[160] = "";
    if (o->backend->describe)
        o->backend->describe(device, sizeof device);
    if (*device)
        fprintf(stderr, "backend %s (%s), precision f32, ", o->backend->name, device);
    else
        fprintf(stderr, "isa %s (%s), precision %s, attn %s, ", o->cpu.kernels->isa, gen->isa_from,
                precision_name(o->cpu.precision), o->cpu.attn->name);
    fprintf(stderr, "attend %s, seed %llu, logits %s\n", o->kv.attend_valid ? "valid" : "padded",
            (unsigned long long)gen->seed, hash);
}

/* Names a file that the run has written; NULL: none. */
static void print_saved(const char *path)
{
    struct stat st;
    if (path && stat(path, &st) == 0)
        cli_say(stderr, "saved            = %s, %.2f MiB\n", path, (double)st.st_size / 1048576);
}

/* Prints statistics in llama.cpp's format. */
static void print_stats(const struct gen *gen, const struct gen_stats *s)
{
    const struct session_options *o = session_options(gen->session);
    const struct kv_stats stats = cache_stats(gen);
    char hash[17];
    hash_hex(&s->logits_hash, 8, hash);
    fprintf(stderr, "\nload time        = %10.2f ms\n", gen->load_ms);
    fprintf(
        stderr,
        "prompt eval time = %10.2f ms / %6zu tokens (%8.2f ms per token, %8.2f tokens per second)\n",
        s->prefill_ms, s->prefill_tokens, per_token(s->prefill_tokens, s->prefill_ms),
        per_second(s->prefill_tokens, s->prefill_ms));
    fprintf(
        stderr,
        "eval time        = %10.2f ms / %6zu tokens (%8.2f ms per token, %8.2f tokens per second)\n",
        s->decode_ms, s->decode_tokens, per_token(s->decode_tokens, s->decode_ms),
        per_second(s->decode_tokens, s->decode_ms));
    gen_roofline_print(gen, s);
    fprintf(stderr, "sampling time    = %10.2f ms / %6zu tokens\n", s->sample_ms, s->sampled_tokens);
    if (s->finished[FINISHED_REPETITION])
        fprintf(stderr, "repetition       = %10zu answer%s ended for repeating a phrase\n",
                s->finished[FINISHED_REPETITION], s->finished[FINISHED_REPETITION] == 1 ? "" : "s");
    if (s->shared_rows)
        fprintf(stderr,
                "shared prefixes  = %10zu prompt tokens not computed again, %.2f MiB of KV entries "
                "shared\n",
                s->shared_rows, (double)s->saved_bytes / 1048576);
    if (gen->options->prefix_cache)
        fprintf(stderr,
                "prefix cache     = %10zu of %zu prompt tokens found (%.1f %%), %zu tokens stored, %zu "
                "damaged block%s\n",
                s->store_hit_tokens, s->store_lookup_tokens, 100 * hit_rate(s), s->stored_tokens,
                s->store_dropped_blocks, s->store_dropped_blocks == 1 ? "" : "s");
    if (s->loaded_tokens)
        fprintf(stderr, "snapshot         = %10.2f ms / %6zu tokens, %.2f MiB in place\n",
                gen->open_kv_ms + s->load_kv_ms, s->loaded_tokens,
                (double)stats.attached_bytes / 1048576);
    print_cache(gen, s);
    print_run(gen, o, hash);
    if (o->cpu.attn->counts)
        fprintf(stderr, "primitives       = %10.2f ms / %6zu created for products\n",
                attn_counts(o->cpu.attn).primitive_ms, attn_counts(o->cpu.attn).primitives);
    if (opt_config_file())
        cli_say(stderr, "configuration    = %s: %s\n", opt_config_file(), opt_config_entries());
    print_experts(gen);
    print_saved(gen->options->save_kv);
    print_saved(gen->options->save_imatrix);
    if (gen->ranks)
        fprintf(stderr, "ranks            = %d, --parallelism %s\n", gen->ranks->size,
                gen_parallelism_name(gen->parallelism));
}

/* ---- --stats FILE ---- */

/* A field of --stats; reals that are not finite become null. */
struct field {
    const char *name;
    enum { WORD, COUNT, REAL } kind;
    const char *word; /* NULL becomes null */
    uint64_t count;
    double real;
};

/* clang-format off */
#define WORD(name, value)  {name, WORD, value, 0, 0}
#define COUNT(name, value) {name, COUNT, NULL, (uint64_t)(value), 0}
#define REAL(name, value)  {name, REAL, NULL, 0, value}
/* clang-format on */

static json_t *field_value(const struct field *field)
{
    switch (field->kind) {
    case WORD: return field->word ? json_string(field->word) : json_null();
    case COUNT: return json_whole(field->count);
    case REAL: break;
    }
    return isfinite(field->real) ? json_real(field->real) : json_null();
}

static int put_fields(json_t *object, const struct field *field, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (json_put(object, field[i].name, field_value(&field[i]), err) < 0)
            return -1;
    return 0;
}

static int put_run(json_t *object, const struct gen *gen, const struct gen_stats *s, struct err *err)
{
    const struct session_options *o = session_options(gen->session);
    const struct kv_setup *setup = kv_setup(session_kv(gen->session));
    char model_id[2 * HASH_BYTES + 1], types[MODEL_TYPES_SIZE], hash[17];
    struct rusage usage;
    AUTO(buf_release) struct buf layers = {0};
    if (cache_types_add(&layers, &o->kv_types, err) < 0)
        return -1;
    getrusage(RUSAGE_SELF, &usage);
    hash_hex(&s->logits_hash, 8, hash);
    hash_hex(&gen->model->file.model_id, HASH_BYTES, model_id);
    model_weight_types(gen->model, types);
    const struct field fields[] = {
        WORD("version", BMC_RELEASE),
        WORD("model_id", model_id),
        WORD("kv_policy", setup->policy),
        COUNT("T", setup->T),
        COUNT("r", setup->r),
        COUNT("N", o->context),
        COUNT("ranks", gen->ranks ? gen->ranks->size : 1),
        WORD("parallelism", gen->ranks ? gen_parallelism_name(gen->parallelism) : NULL),
        COUNT("batch", o->batch),
        COUNT("threads", o->threads),
        COUNT("threads_batch", o->threads_prefill),
        COUNT("chunk", o->chunk),
        COUNT("seed", gen->seed),
        WORD("sampling_from", chat_sampling_any(&gen->model_sampling) ? "model"
                              : gen->chat_temp                        ? "chat"
                                                                      : "default"),
        WORD("backend", o->backend->name),
        COUNT("device_layers", session_device_layers(gen->session)),
        COUNT("boundary_bytes", session_pass(gen->session)->boundary_bytes),
        COUNT("device_peak_bytes", o->backend->peak_bytes ? o->backend->peak_bytes(false) : 0),
        WORD("isa", o->cpu.kernels->isa),
        WORD("isa_from", gen->isa_from),
        WORD("precision", precision_name(o->cpu.precision)),
        WORD("attn", o->cpu.attn->name),
        WORD("attended", o->kv.attend_valid ? "valid" : "padded"),
        WORD("weight_type", types),
        WORD("kv_type", cache_types_format(&o->kv_types).text),
        WORD("kv_types_by_layer", gen->kv_chosen.layer ? buf_text(&layers) : NULL),
        REAL("cache_kld_predicted", gen->kv_chosen.layer ? gen->kv_chosen.kld : NAN),
        WORD("kv_policy_from", gen->policy_from),
        WORD("T_from", kv_T_from_name(setup->T_from)),
        COUNT("prefix_cache_state_distance", o->stored_every),
        WORD("prefix_cache_state_distance_from", session_stored_from(gen->session)),
        COUNT("streaming_heads", gen->heads.n),
        COUNT("memory_bytes", gen->options->memory_bytes),
        COUNT("peak_resident_bytes", usage.ru_maxrss * 1024),
        WORD("logits_hash", hash),
        WORD("config", opt_config_file()),
        WORD("config_options", opt_config_file() ? opt_config_entries() : NULL),
    };
    AUTO(json_auto) json_t *sampling = sampling_json(&gen->serve.options.sampling, err);
    int rc = sampling ? put_fields(object, fields, ARRAY_LEN(fields), err) : -1;
    if (rc == 0 && json_object_update(object, sampling) < 0)
        rc = err_no_memory(err, "statistics");
    return rc;
}

/* Counts of the run, and what follows from them. `finish` is that of the only sequence. */
static int put_counts(json_t *object, const struct gen *gen, const struct rank_counts *counts,
                      struct err *err)
{
    const struct gen_stats *s = &counts->gen;
    const struct score_stats *score = &gen->score;
    const char *only = s->sequences == 1 && s->interrupted ? err_interrupted.text : NULL;
    for (enum gen_finish end = FINISHED_LENGTH; end <= FINISHED_ERROR; end++)
        if (s->sequences == 1 && s->finished[end])
            only = gen_finish_name(end);
    int rc = 0;
    for (size_t i = 0; i < RANK_COUNTS && rc == 0; i++) {
        const void *at = (const char *)counts + rank_count[i].at;
        if (rank_count[i].name)
            rc = json_put(object, rank_count[i].name,
                          rank_count[i].is_time ? json_real(*(const double *)at)
                                                : json_whole(*(const size_t *)at),
                          err);
    }
    const struct field fields[] = {
        COUNT("sequences_at_once", s->max_in_flight),
        WORD("finish", only),
        REAL("load_ms", gen->load_ms),
        REAL("load_kv_ms", gen->open_kv_ms + s->load_kv_ms),
        REAL("save_kv_ms", gen->save_ms),
        REAL("prefix_cache_hit_rate", hit_rate(s)),
        REAL("prefill_tok_s", per_second(s->prefill_tokens, s->prefill_ms)),
        REAL("decode_tok_s", per_second(s->decode_tokens, s->decode_ms)),
        COUNT("scored_tokens", score->tokens),
        REAL("mean_logprob", score_mean(score->tokens, score->sum_logprob)),
        REAL("perplexity", score_perplexity(score->tokens, score->sum_logprob)),
    };
    return rc == 0 ? put_fields(object, fields, ARRAY_LEN(fields), err) : rc;
}

static int put_experts(json_t *object, const struct gen *gen, struct err *err)
{
    const struct expert_stats s = expert_stats_of(gen);
    const struct field fields[] = {
        COUNT("experts_memory_bytes", s.ram),
        COUNT("experts_total_bytes", s.total),
        COUNT("experts_uses", s.uses),
        COUNT("experts_hits", s.hits),
        COUNT("experts_needed_bytes", s.needed_bytes),
        COUNT("experts_read_bytes", s.read_bytes),
        COUNT("experts_prefetched", s.prefetched),
        COUNT("experts_prefetch_hits", s.prefetch_hits),
        REAL("experts_wait_ms", s.wait_ms),
    };
    return put_fields(object, fields, ARRAY_LEN(fields), err);
}

/* Null unless ranks share a model. */
static int put_traffic(json_t *object, const struct gen *gen, size_t tokens, struct err *err)
{
    const struct leader_stats *sent = &gen->sent;
    struct field fields[] = {
        COUNT("sent_bytes", sent->sent_bytes),
        REAL("sent_bytes_per_token", sent_per_token(gen, tokens)),
        COUNT("sent_calls", sent->calls),
        REAL("rank_wait_ms", sent->wait_ms),
        COUNT("rank_peak_bytes", sent->peak_bytes),
    };
    for (size_t i = 0; i < ARRAY_LEN(fields) && !gen->leads; i++)
        fields[i] = (struct field)WORD(fields[i].name, NULL);
    return put_fields(object, fields, ARRAY_LEN(fields), err);
}

static int put_stats(json_t *object, const struct gen *gen, const struct gen_stats *s, struct err *err)
{
    const struct rank_counts counts = gen->counts ? *gen->counts : rank_counts_now(gen->session, s);
    if (put_run(object, gen, s, err) < 0 || put_counts(object, gen, &counts, err) < 0 ||
        put_experts(object, gen, err) < 0 ||
        put_traffic(object, gen, s->prefill_tokens + s->decode_tokens, err) < 0 ||
        gen_roofline_fields(object, gen, &counts.gen, err) < 0 ||
        gen_spec_fields(object, gen, err) < 0 ||
        (gen->turns && json_put(object, "turns", json_incref(gen->turns), err) < 0))
        return -1;
    return gen->hooks ? gen->hooks->fields(gen, s, object, err) : 0;
}

static int write_stats(const struct gen *gen, const struct gen_stats *stats, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    AUTO(json_auto) json_t *object = json_object();
    int rc = object ? put_stats(object, gen, stats, err) : err_no_memory(err, "statistics");
    if (rc == 0)
        rc = json_write_line(object, &text, err);
    fflush(stdout);
    return rc < 0 ? -1 : outfile_save(gen->options->stats, text.data, text.len, err);
}

static int check_hash(const struct gen *gen, const struct gen_stats *stats, struct err *err)
{
    const char *expected = gen->options->check_hash;
    char found[17];
    hash_hex(&stats->logits_hash, 8, found);
    if (strcasecmp(found, expected) != 0)
        return err_set(
            err,
            "logits_hash is %s, expected %s: the model, the tokens, --precision, --cache-type or the "
            "program's version differ",
            found, expected);
    if (!gen->options->quiet)
        cli_say(stderr, "%s: logits_hash is %s, as expected\n", gen->program->name, found);
    return 0;
}

/* Says that a log of memory pressure is of other requests. */
static void say_missed(const struct gen *gen, const struct gen_stats *stats)
{
    const size_t n = pressure_to_replay(gen->pressure);
    if (stats->converted < n)
        cli_say(stderr,
                "%s: %s: %zu of its %zu conversions did not happen: these requests, or their number of "
                "tokens, are not those of the log\n",
                gen->program->name, gen->options->pressure.replay, n - stats->converted, n);
}

int gen_report(struct gen *gen, const struct gen_stats *stats, struct err *err)
{
    if (gen_count_traffic(gen, err) < 0 || gen_roofline_find(gen, err) < 0 ||
        pressure_end(gen->pressure, err) < 0)
        return -1;
    if (!gen->options->quiet) {
        say_missed(gen, stats);
        print_stats(gen, stats);
        print_traffic(gen, stats->prefill_tokens + stats->decode_tokens);
        gen_spec_print(gen);
        if (gen->hooks)
            gen->hooks->print(gen);
    }
    if (gen->options->stats && write_stats(gen, stats, err) < 0)
        return -1;
    return gen->options->check_hash ? check_hash(gen, stats, err) : 0;
}
