/* The one table of fields: of each subcommand's rows, which member of a record a field is, how it is computed from the
 * rounds, and when it is shown. */
#include "prof/prof_fields.h"

#include "prof/roofline.h"

const char *const prof_command_names[PROF_COMMANDS] = {
    "policies", "sweep", "latency",      "bench",       "memory",  "ranks",        "predict",
    "roof",     "heads", "cache-scales", "cache-types", "quality", "prefix-cache", "compare"};

enum {
    MAIN = FIELD_MAIN,
    SETUP = FIELD_SETUP,
    TEST = FIELD_TEST,
    AXIS = FIELD_AXIS | FIELD_TEST | FIELD_SETUP | FIELD_MAIN,
    WHAT = FIELD_IDENTITY,
    SAMPLES = FIELD_SAMPLES
};

#define OF(record, kind, name, member, stat, flags)                                                    \
    {                                                                                                  \
        name, FIELD_##kind, offsetof(struct record, member), flags, FIELD_##stat                       \
    }
#define FIGURE(kind, name, member, stat, flags) OF(figures, kind, name, member, stat, flags)
#define END                                                                                            \
    {                                                                                                  \
        .name = NULL                                                                                   \
    }

/* clang-format off */
#define GROWTH FIGURE(SIZE, "T", T, LAST, 0), FIGURE(TEXT, "T_from", T_from, LAST, 0), FIGURE(SIZE, "r", r, LAST, 0)
#define POLICY FIGURE(TEXT, "policy", policy, LAST, MAIN | TEST)
#define BATCH FIGURE(SIZE, "batch", test.batch, LAST, AXIS)
#define N_PROMPT FIGURE(SIZE, "n_prompt", test.n_prompt, LAST, AXIS)
#define N_GEN FIGURE(SIZE, "n_gen", test.n_gen, LAST, AXIS)
#define PHASES \
    FIGURE(REAL, "attention_ms", part_ms[PHASE_ATTENTION], MEAN, 0), \
    FIGURE(REAL, "projections_ms", part_ms[PHASE_PROJECTION], MEAN, 0), \
    FIGURE(REAL, "mlp_ms", part_ms[PHASE_MLP], MEAN, 0), \
    FIGURE(REAL, "head_ms", part_ms[PHASE_HEAD], MEAN, 0), \
    FIGURE(REAL, "other_ms", part_ms[PHASE_OTHER], MEAN, 0)

static const struct row_field block_fields[] = {
    POLICY,
    FIGURE(SIZE, "T", T, LAST, MAIN),
    FIGURE(TEXT, "T_from", T_from, LAST, 0),
    FIGURE(SIZE, "r", r, LAST, MAIN),
    BATCH,
    FIGURE(REAL, "alloc_ms", block.kv.alloc_ms, MEDIAN, MAIN),
    FIGURE(REAL, "copy_ms", block.kv.copy_ms, MEDIAN, MAIN),
    FIGURE(REAL, "append_ms", block.append_ms, MEDIAN, 0),
    FIGURE(REAL, "sdpa_ms", block.sdpa_ms, MEDIAN, MAIN),
    FIGURE(REAL, "scores_ms", block.scores_ms, MEDIAN, 0),
    FIGURE(REAL, "softmax_ms", block.softmax_ms, MEDIAN, 0),
    FIGURE(REAL, "values_ms", block.values_ms, MEDIAN, 0),
    FIGURE(SIZE, "primitives", block.attn.primitives, LAST, 0),
    FIGURE(REAL, "primitive_ms", block.attn.primitive_ms, MEDIAN, 0),
    FIGURE(REAL, "total_ms", block.total_ms, MEDIAN, MAIN | SAMPLES),
    FIGURE(REAL, "total_ms_min", block.total_ms, MIN, MAIN),
    FIGURE(REAL, "total_ms_max", block.total_ms, MAX, MAIN),
    /* Counts hardly differ between rounds: the last one's are reported. */
    FIGURE(COUNT, "minor_faults", block.counters.minor_faults, LAST, 0),
    FIGURE(COUNT, "major_faults", block.counters.major_faults, LAST, 0),
    FIGURE(COUNT, "dtlb_misses", block.counters.dtlb_misses, LAST, 0),
    FIGURE(COUNT, "cycles", block.counters.cycles, LAST, 0),
    FIGURE(COUNT, "instructions", block.counters.instructions, LAST, 0),
    FIGURE(SIZE, "kv_allocations", block.kv.allocations, LAST, 0),
    FIGURE(SIZE, "kv_copied_bytes", block.kv.copied_bytes, LAST, 0),
    FIGURE(SIZE, "kv_padded_rows", block.kv.padded_rows, LAST, 0),
    FIGURE(SIZE, "rows_computed", block.kv.rows_computed, LAST, 0),
    FIGURE(SIZE, "kv_peak_bytes", block.kv.peak_bytes, LAST, MAIN),
    END,
};

static const struct row_field latency_fields[] = {
    FIGURE(NAME, "n", test, LAST, WHAT),
    BATCH,
    FIGURE(TEXT, "policy", policy, LAST, TEST),
    END,
};

static const struct row_field bench_fields[] = {
    FIGURE(TEXT, "test", kind, LAST, MAIN | TEST),
    POLICY,
    BATCH,
    N_PROMPT,
    N_GEN,
    FIGURE(SIZE, "depth", test.depth, LAST, AXIS),
    FIGURE(REAL, "tok_s", tok_s, MEAN, MAIN | SAMPLES),
    FIGURE(REAL, "tok_s_sd", tok_s, SD, 0),
    FIGURE(REAL, "tok_s_end_to_end", tok_s_end_to_end, MEAN, MAIN | SAMPLES),
    FIGURE(REAL, "tok_s_end_to_end_sd", tok_s_end_to_end, SD, 0),
    FIGURE(REAL, "step_ms", step_ms, MEDIAN, MAIN),
    FIGURE(REAL, "roof_share", roof_share, MEDIAN, MAIN),
    FIGURE(TEXT, "roof_kind", roof_kind, LAST, 0),
    FIGURE(REAL, "first_token_ms", first_token_ms, MEDIAN, 0),
    FIGURE(REAL, "roof_gb_s", roof_gb_s, MEDIAN, 0),
    FIGURE(REAL, "roof_gflop_s", roof_gflop_s, MEDIAN, 0),
    FIGURE(REAL, "latency_p50_ms", latency_ms[0], LAST, 0),
    FIGURE(REAL, "latency_p95_ms", latency_ms[1], LAST, 0),
    FIGURE(REAL, "latency_p99_ms", latency_ms[2], LAST, 0),
    PHASES,
    FIGURE(REAL, "sampling_ms", sampling_ms, MEAN, 0),
    FIGURE(REAL, "conversion_ms", conversion_ms, MEAN, 0),
    FIGURE(REAL, "wait_ms", wait_ms, MEAN, 0),
    GROWTH,
    FIGURE(SIZE, "peak_resident_bytes", peak_resident_bytes, MAX, 0),
    FIGURE(SIZE, "device_peak_bytes", device_peak_bytes, MAX, 0),
    FIGURE(REAL, "step_bytes", step_bytes, LAST, 0),
    FIGURE(REAL, "macs_quantised", step_macs[WEIGHTS_QUANTISED], LAST, 0),
    FIGURE(REAL, "macs_bf16", step_macs[WEIGHTS_BF16], LAST, 0),
    FIGURE(REAL, "macs_f32", step_macs[WEIGHTS_F32], LAST, 0),
    FIGURE(REAL, "macs_attention", attention_macs, LAST, 0),
    FIGURE(REAL, "experts_per_layer", experts_per_layer, MEAN, 0),
    END,
};

static const struct row_field predict_fields[] = {
    FIGURE(TEXT, "test", kind, LAST, MAIN | TEST),
    POLICY,
    BATCH,
    N_PROMPT,
    N_GEN,
    FIGURE(SIZE, "depth", test.depth, LAST, AXIS),
    FIGURE(REAL, "tok_s", tok_s, MEDIAN, MAIN | SAMPLES),
    FIGURE(REAL, "step_ms", step_ms, MEDIAN, MAIN),
    FIGURE(REAL, "first_token_ms", first_token_ms, MEDIAN, 0),
    PHASES,
    FIGURE(SIZE, "run_layers", memory.run_layers, LAST, SETUP),
    END,
};

static const struct row_field memory_fields[] = {
    POLICY,
    FIGURE(SIZE, "T", T, LAST, 0),
    FIGURE(SIZE, "r", r, LAST, MAIN),
    BATCH,
    FIGURE(SIZE, "beams", test.beams, LAST, AXIS),
    N_PROMPT,
    N_GEN,
    FIGURE(BYTES, "token_bytes", token_bytes, LAST, 0),
    FIGURE(BYTES, "full_token_bytes", full_token_bytes, LAST, 0),
    FIGURE(BYTES, "kv_bytes", kv_bytes, LAST, MAIN),
    FIGURE(REAL, "over_standard", over_standard, LAST, MAIN),
    FIGURE(SIZE, "least_bytes", memory.least, LAST, MAIN),
    FIGURE(SIZE, "fits", memory.fits, LAST, MAIN),
    FIGURE(SIZE, "activation_bytes", memory.activations, LAST, 0),
    FIGURE(SIZE, "peak_bytes", peak_bytes, LAST, MAIN),
    FIGURE(SIZE, "run_layers", memory.run_layers, LAST, 0),
    FIGURE(SIZE, "run_batch", memory.run_batch, LAST, 0),
    FIGURE(SIZE, "run_bytes", memory.run_bytes, LAST, 0),
    FIGURE(REAL, "run_over", run_over, LAST, 0),
    FIGURE(SIZE, "weight_bytes", weights.all, LAST, 0),
    FIGURE(SIZE, "active_weight_bytes", active_weight_bytes, LAST, 0),
    FIGURE(SIZE, "expert_bytes", weights.experts, LAST, 0),
    END,
};

static const struct row_field ranks_fields[] = {
    BATCH,
    FIGURE(SIZE, "ranks", test.ranks, LAST, MAIN | TEST),
    FIGURE(TEXT, "parallelism", parallelism, LAST, MAIN | TEST),
    FIGURE(TEXT, "network", network, LAST, TEST),
    FIGURE(SIZE, "depth", test.depth, LAST, TEST | SETUP),
    FIGURE(SIZE, "n_gen", test.n_gen, LAST, TEST | SETUP),
    FIGURE(REAL, "step_ms", step_ms, MEDIAN, MAIN | SAMPLES),
    FIGURE(REAL, "compute_ms", compute_ms, LAST, MAIN),
    FIGURE(REAL, "network_ms", network_ms, LAST, MAIN),
    FIGURE(REAL, "tok_s", tok_s, LAST, MAIN),
    FIGURE(REAL, "against_one", relative, LAST, MAIN),
    FIGURE(SIZE, "sent_bytes", sent_bytes, LAST, MAIN),
    FIGURE(SIZE, "sent_calls", sent_calls, LAST, MAIN),
    END,
};

static const struct row_field roof_fields[] = {
    OF(roof, REAL, "read_gb_s", read_gb_s, LAST, MAIN),
    OF(roof, REAL, "copy_gb_s", copy_gb_s, LAST, MAIN),
    OF(roof, REAL, "f32_gflop_s", peak[PEAK_F32].gop_s, LAST, MAIN),
    OF(roof, TEXT, "f32_isa", peak[PEAK_F32].isa, LAST, 0),
    OF(roof, REAL, "bf16_gflop_s", peak[PEAK_BF16].gop_s, LAST, MAIN),
    OF(roof, TEXT, "bf16_isa", peak[PEAK_BF16].isa, LAST, 0),
    OF(roof, REAL, "int8_gop_s", peak[PEAK_INT8].gop_s, LAST, MAIN),
    OF(roof, TEXT, "int8_isa", peak[PEAK_INT8].isa, LAST, 0),
    OF(roof, REAL, "page_fault_ns", page_fault_ns, LAST, MAIN),
    END,
};

static const struct row_field heads_fields[] = {
    OF(prof_head, SIZE, "tokens", tokens, LAST, 0),
    OF(prof_head, SIZE, "sink", sink, LAST, 0),
    OF(prof_head, SIZE, "recent", recent, LAST, 0),
    OF(prof_head, SIZE, "repeats", repeats, LAST, 0),
    OF(prof_head, SIZE, "streaming_heads", streaming, LAST, SETUP),
    OF(prof_head, REAL, "streaming_share", share, LAST, SETUP),
    OF(prof_head, SIZE, "layer", head.layer, LAST, MAIN),
    OF(prof_head, SIZE, "head", head.head, LAST, MAIN),
    OF(prof_head, REAL, "score", head.score, LAST, MAIN),
    OF(prof_head, BOOL, "sparse", head.sparse, LAST, MAIN),
    END,
};

static const struct row_field scales_fields[] = {
    OF(prof_range, SIZE, "tokens", tokens, LAST, 0),
    OF(prof_range, SIZE, "layer", layer, LAST, MAIN),
    OF(prof_range, SIZE, "head", head, LAST, MAIN),
    OF(prof_range, REAL, "k_low", low[0], LAST, MAIN),
    OF(prof_range, REAL, "k_high", high[0], LAST, MAIN),
    OF(prof_range, REAL, "v_low", low[1], LAST, MAIN),
    OF(prof_range, REAL, "v_high", high[1], LAST, MAIN),
    END,
};

static const struct row_field costs_fields[] = {
    OF(prof_cost, SIZE, "tokens", tokens, LAST, 0),
    OF(prof_cost, TEXT, "type", type, LAST, MAIN),
    OF(prof_cost, TEXT, "layer", layer, LAST, MAIN),
    OF(prof_cost, REAL, "k_kld", kld[0], LAST, MAIN),
    OF(prof_cost, REAL, "v_kld", kld[1], LAST, MAIN),
    END,
};

static const struct row_field quality_fields[] = {
    OF(prof_quality, TEXT, "positions", q.positions, LAST, MAIN),
    OF(prof_quality, SIZE, "tokens", q.tokens, LAST, MAIN),
    OF(prof_quality, REAL, "kld_mean", q.kld_mean, LAST, MAIN),
    OF(prof_quality, REAL, "kld_median", q.kld_median, LAST, MAIN),
    OF(prof_quality, REAL, "kld_p99", q.kld_p99, LAST, MAIN),
    OF(prof_quality, REAL, "kld_p999", q.kld_p999, LAST, MAIN),
    OF(prof_quality, REAL, "kld_max", q.kld_max, LAST, MAIN),
    OF(prof_quality, REAL, "same_top", q.same_top, LAST, MAIN),
    OF(prof_quality, REAL, "ppl", q.ppl, LAST, MAIN),
    OF(prof_quality, REAL, "ppl_reference", q.ppl_reference, LAST, 0),
    OF(prof_quality, REAL, "ppl_ratio", q.ppl_ratio, LAST, MAIN),
    OF(prof_quality, REAL, "ppl_ratio_se", q.ppl_ratio_se, LAST, MAIN),
    OF(prof_quality, TEXT, "policy", policy, LAST, SETUP | TEST),
    OF(prof_quality, TEXT, "retrieval_heads", heads, LAST, SETUP | WHAT),
    OF(prof_quality, SIZE, "streaming_heads", streaming, LAST, SETUP | WHAT),
    OF(prof_quality, REAL, "streaming_share", share, LAST, SETUP | WHAT),
    OF(prof_quality, TEXT, "kv_scales", scales, LAST, SETUP | WHAT),
    OF(prof_quality, TEXT, "lora", adapters, LAST, SETUP | WHAT),
    OF(prof_quality, TEXT, "reference", reference, LAST, SETUP | WHAT),
    OF(prof_quality, TEXT, "reference_model_id", reference_model_id, LAST, 0),
    OF(prof_quality, TEXT, "reference_precision", reference_precision, LAST, SETUP | WHAT),
    OF(prof_quality, TEXT, "reference_kv_type", reference_kv_type, LAST, SETUP | WHAT),
    END,
};

static const struct row_field prefix_cache_fields[] = {
    OF(prof_folder, TEXT, "folder", folder, LAST, SETUP),
    OF(prof_folder, WHOLE, "blocks", usage.blocks, LAST, MAIN),
    OF(prof_folder, WHOLE, "states", usage.states, LAST, MAIN),
    OF(prof_folder, WHOLE, "block_bytes", usage.bytes, LAST, MAIN),
    OF(prof_folder, WHOLE, "lookups", counts.lookups, LAST, MAIN),
    OF(prof_folder, WHOLE, "lookup_tokens", counts.lookup_tokens, LAST, MAIN),
    OF(prof_folder, WHOLE, "hit_tokens", counts.hit_tokens, LAST, MAIN),
    OF(prof_folder, REAL, "hit_rate", hit_rate, LAST, MAIN),
    OF(prof_folder, WHOLE, "stored_blocks", counts.stored_blocks, LAST, MAIN),
    OF(prof_folder, WHOLE, "evicted_blocks", counts.evicted_blocks, LAST, MAIN),
    OF(prof_folder, WHOLE, "dropped_blocks", counts.dropped_blocks, LAST, MAIN),
    END,
};

/* Its rows also have the fields that identify what was measured. */
static const struct row_field compare_fields[] = {
    OF(comparison, TEXT, "figure", figure, LAST, MAIN),
    OF(comparison, REAL, "a", a, LAST, MAIN),
    OF(comparison, REAL, "b", b, LAST, MAIN),
    OF(comparison, REAL, "ratio", ratio, LAST, MAIN),
    OF(comparison, REAL, "ratio_lo", lo, LAST, MAIN),
    OF(comparison, REAL, "ratio_hi", hi, LAST, MAIN),
    OF(comparison, SIZE, "rounds_a", rounds[0], LAST, 0),
    OF(comparison, SIZE, "rounds_b", rounds[1], LAST, 0),
    OF(comparison, TEXT, "verdict", verdict, LAST, MAIN),
    END,
};
/* clang-format on */

/* Fields that the runner adds itself. */
static const struct row_field samples_field[] = {{.name = "samples", .kind = FIELD_NAME}, END};
static const struct row_field error_field[] = {{.name = "error", .kind = FIELD_NAME}, END};

const struct row_kind prof_rows[PROF_COMMANDS] = {
    [PROF_POLICIES] = {block_fields, FIELD_ALL, true, true, true},
    [PROF_SWEEP] = {block_fields, FIELD_ALL, true, true, true},
    [PROF_LATENCY] = {latency_fields, FIELD_ALL, true, true, true},
    [PROF_BENCH] = {bench_fields, FIELD_ALL, true, true, true},
    [PROF_MEMORY] = {memory_fields, FIELD_ALL, true, false, true},
    [PROF_RANKS] = {ranks_fields, FIELD_ALL, true, true, false},
    [PROF_PREDICT] = {predict_fields, FIELD_ALL, true, true, true},
    [PROF_ROOF] = {roof_fields, FIELD_MACHINE, false, false, false},
    [PROF_HEADS] = {heads_fields, FIELD_ALL, false, false, false},
    [PROF_SCALES] = {scales_fields, FIELD_ALL, false, false, false},
    [PROF_CACHE_TYPES] = {costs_fields, FIELD_ALL, false, false, false},
    [PROF_QUALITY] = {quality_fields, FIELD_ALL, false, false, false},
    [PROF_PREFIX_CACHE] = {prefix_cache_fields, 0, false, false, false},
    [PROF_COMPARE] = {compare_fields, 0, false, false, false},
};

const struct row_field *prof_field(enum prof_command command, size_t i)
{
    const struct row_kind *kind = &prof_rows[command];
    const struct row_field *parts[] = {
        kind->fields, kind->setup ? setup_fields : NULL, kind->cache ? cache_fields : NULL,
        kind->samples ? samples_field : NULL, kind->error ? error_field : NULL};
    for (size_t p = 0; p < ARRAY_LEN(parts); p++)
        for (const struct row_field *f = parts[p]; f && f->name; f++)
            if ((kind->setup != FIELD_MACHINE || parts[p] != setup_fields ||
                 f->flags & FIELD_MACHINE) &&
                i-- == 0)
                return f;
    return NULL;
}

const struct row_field *prof_find_field(const char *name, size_t len)
{
    for (size_t c = 0; c < PROF_COMMANDS; c++) {
        const struct row_field *f;
        for (size_t i = 0; (f = prof_field((enum prof_command)c, i)); i++)
            if (strncmp(f->name, name, len) == 0 && !f->name[len])
                return f;
    }
    return NULL;
}

bool prof_field_identifies(const char *name)
{
    const struct row_field *f = prof_find_field(name, strlen(name));
    return !f || f->flags & (FIELD_TEST | FIELD_IDENTITY) ||
           field_find(compare_fields, name, strlen(name)) == f;
}

static bool is_listed(const char *names, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = names; (at = strchr(at, '|')); at++)
        if (strncmp(at + 1, name, len) == 0 && (!at[1 + len] || at[1 + len] == '|'))
            return true;
    return false;
}

void prof_all_fields(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "all");
    for (size_t c = 0; c < PROF_COMMANDS; c++) {
        const struct row_field *f;
        for (size_t i = 0; (f = prof_field((enum prof_command)c, i)); i++)
            if (!is_listed(text, f->name) && used < size)
                used += (size_t)snprintf(text + used, size - used, "|%s", f->name);
    }
}
