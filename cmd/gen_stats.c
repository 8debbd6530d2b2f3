/* Statistics of a bmc-gen run. Field names are listed in the man page and do not change. */
#include <stdio.h>
#include <sys/resource.h>

#include "base/file.h"
#include "cli.h"
#include "gen.h"

static double per_second(size_t n, double ms) { return ms > 0 ? (double)n * 1e3 / ms : 0; }

static double per_token(size_t n, double ms) { return n ? ms / (double)n : 0; }

/* For people, in the field's words. */
static void print_stats(const struct gen *gen, const struct gen_stats *s)
{
    const struct session_options *o = &gen->session.options;
    const struct kv *kv = gen->session.kv;
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
    fprintf(stderr, "sampling time    = %10.2f ms / %6zu tokens\n", s->sample_ms, s->sampled_tokens);
    if (s->loaded_tokens)
        fprintf(stderr, "snapshot         = %10.2f ms / %6zu tokens, %.2f MiB in place\n",
                gen->open_kv_ms + s->load_kv_ms, s->loaded_tokens,
                (double)kv->stats.adopted_bytes / 1048576);
    fprintf(stderr,
            "KV cache         = %s (%s), T %zu (%s), r %zu, N %zu: %zu growth%s, %.2f MiB copied, %.2f "
            "MiB at most\n",
            kv->policy->name, gen->policy_from, kv->T, kv_T_from_name(kv->T_from), kv->r, o->context,
            kv->stats.allocations, kv->stats.allocations == 1 ? "" : "s",
            (double)kv->stats.copied_bytes / 1048576, (double)kv->stats.peak_bytes / 1048576);
    fprintf(stderr,
            "run              = batch %zu, %d threads (%d for prompts), isa %s, precision %s, attn %s, "
            "rows %s, "
            "seed %llu, logits %s\n",
            o->batch, o->threads, o->threads_prefill, o->kernels->isa, precision_name(o->precision),
            o->attn->name, o->kv.valid_rows_only ? "valid" : "policy", (unsigned long long)gen->seed,
            hash);
}

static json_t *stats_json(const struct gen *gen, const struct gen_stats *s)
{
    const struct session_options *o = &gen->session.options;
    const struct kv *kv = gen->session.kv;
    const struct kv_stats *k = &kv->stats;
    struct rusage usage;
    char model_id[2 * HASH_BYTES + 1], hash[17];
    hash_hex(&gen->model->file.model_id, HASH_BYTES, model_id);
    hash_hex(&s->logits_hash, 8, hash);
    getrusage(RUSAGE_SELF, &usage);
    json_t *run = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s}",
        "version", BMC_RELEASE, "model_id", model_id, "kv_policy", kv->policy->name, "T",
        (json_int_t)kv->T, "r", (json_int_t)kv->r, "N", (json_int_t)o->context, "batch",
        (json_int_t)o->batch, "threads", o->threads, "threads_batch", o->threads_prefill, "chunk",
        (json_int_t)o->chunk, "seed", (json_int_t)gen->seed, "isa", o->kernels->isa, "precision",
        precision_name(o->precision), "attn", o->attn->name, "rows",
        o->kv.valid_rows_only ? "valid" : "policy", "weight_type",
        dtype_name(model_weight_type(gen->model)), "kv_type", dtype_name(o->kv_type));
    json_t *times = json_pack(
        "{s:f, s:I, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:f}", "load_ms",
        gen->load_ms, "loaded_tokens", (json_int_t)s->loaded_tokens, "load_kv_ms",
        gen->open_kv_ms + s->load_kv_ms, "save_kv_ms", gen->save_ms, "sequences",
        (json_int_t)s->sequences, "prefill_tokens", (json_int_t)s->prefill_tokens, "prefill_ms",
        s->prefill_ms, "prefill_tok_s", per_second(s->prefill_tokens, s->prefill_ms), "decode_tokens",
        (json_int_t)s->decode_tokens, "decode_steps", (json_int_t)s->decode_steps, "decode_ms",
        s->decode_ms, "decode_tok_s", per_second(s->decode_tokens, s->decode_ms), "sampled_tokens",
        (json_int_t)s->sampled_tokens, "sample_ms", s->sample_ms);
    json_t *cache = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:s}", "kv_policy_from",
        gen->policy_from, "T_from", kv_T_from_name(kv->T_from), "kv_adopted_bytes",
        (json_int_t)k->adopted_bytes, "kv_allocations", (json_int_t)k->allocations, "kv_copied_rows",
        (json_int_t)k->copied_rows, "kv_copied_bytes", (json_int_t)k->copied_bytes, "kv_resident_bytes",
        (json_int_t)k->peak_bytes, "kv_padded_rows", (json_int_t)k->padded_rows, "kv_rows_computed",
        (json_int_t)k->rows_computed, "kv_alloc_ms", k->alloc_ms, "kv_copy_ms", k->copy_ms,
        "peak_resident_bytes", (json_int_t)usage.ru_maxrss * 1024, "logits_hash", hash);
    if (run && times && cache) {
        json_object_update(run, times);
        json_object_update(run, cache);
    }
    json_decref(times);
    json_decref(cache);
    return run;
}

static int write_stats(const struct gen *gen, const struct gen_stats *stats, struct err *err)
{
    struct outfile out;
    struct buf text = {0};
    json_t *object = stats_json(gen, stats);
    int rc = object ? 0 : err_set(err, "out of memory for statistics");
    if (rc == 0 && gen->hooks)
        rc = gen->hooks->fields(gen, stats, object, err);
    if (rc == 0)
        rc = json_write_line(object, &text, err);
    if (rc == 0 && (rc = outfile_open(&out, gen->options->stats, err)) == 0) {
        fflush(stdout);
        rc = outfile_write(&out, text.data, text.len, err);
        if (rc == 0)
            rc = outfile_commit(&out, err);
        outfile_abort(&out);
    }
    json_decref(object);
    buf_release(&text);
    return rc;
}

int gen_report(const struct gen *gen, const struct gen_stats *stats, struct err *err)
{
    if (!gen->options->quiet) {
        print_stats(gen, stats);
        if (gen->hooks)
            gen->hooks->print(gen);
    }
    return gen->options->stats ? write_stats(gen, stats, err) : 0;
}
