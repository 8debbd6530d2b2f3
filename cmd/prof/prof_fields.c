/* Names of the subcommands, and the fields of their rows. */
#include <stdio.h>
#include <string.h>

#include "prof/prof.h"

const char *const prof_command_names[PROF_COMMANDS] = {
    "policies", "sweep", "latency", "bench",        "usecases",     "memory", "instances",
    "ranks",    "roof",  "heads",   "cache-scales", "prefix-cache", "compare"};

#define COMMON                                                                                         \
    "shape model_id layers N weight_type kv_type attn isa precision threads repeat warmup seed cpu "   \
    "version commit timestamp "
#define CACHE "attended alloc lockstep "
#define BLOCK                                                                                          \
    "policy T T_from r batch alloc_ms copy_ms append_ms sdpa_ms scores_ms softmax_ms values_ms "       \
    "total_ms total_ms_min total_ms_max minor_faults major_faults dtlb_misses cycles instructions "    \
    "kv_allocations kv_copied_bytes kv_padded_rows rows_computed kv_peak_bytes " COMMON CACHE          \
    "samples error"

const char *const prof_fields[PROF_COMMANDS] = {
    [PROF_POLICIES] = BLOCK,
    [PROF_SWEEP] = BLOCK,
    [PROF_LATENCY] = "n batch " COMMON CACHE "samples policy error",
    [PROF_BENCH] =
        "test policy batch n_prompt n_gen depth tok_s tok_s_sd tok_s_end_to_end tok_s_end_to_end_sd "
        "step_ms roof_share roof_kind first_token_ms roof_gb_s roof_gflop_s step_bytes "
        "experts_per_layer latency_p50_ms "
        "latency_p95_ms latency_p99_ms attention_ms projections_ms mlp_ms head_ms other_ms sampling_ms "
        "T T_from r peak_resident_bytes " COMMON CACHE "samples error",
    [PROF_USECASES] = "n_prompt n_gen batch policy tok_s_end_to_end over_paged T T_from r " COMMON CACHE
                      "samples error",
    [PROF_MEMORY] = "policy batch beams n_prompt n_gen token_bytes full_token_bytes kv_bytes "
                    "over_standard fits "
                    "weight_bytes active_weight_bytes expert_bytes activation_bytes peak_bytes "
                    "least_bytes T r run_layers run_batch run_bytes run_over " COMMON CACHE "error",
    [PROF_INSTANCES] = "batch ranks rank_threads policy n_prompt n_gen tok_s_end_to_end step_ms "
                       "against_first pss_bytes " COMMON "samples error",
    [PROF_RANKS] = "batch ranks parallelism network depth n_gen compute_ms network_ms step_ms tok_s "
                   "against_one sent_bytes sent_calls " COMMON CACHE "samples",
    [PROF_ROOF] = "read_gb_s copy_gb_s f32_gflop_s f32_isa bf16_gflop_s bf16_isa int8_gop_s int8_isa "
                  "page_fault_ns threads repeat cpu version commit timestamp",
    [PROF_HEADS] = "tokens sink recent layer head beyond sparse " COMMON,
    [PROF_SCALES] = "tokens layer head k_low k_high v_low v_high " COMMON,
    [PROF_PREFIX_CACHE] =
        "folder blocks block_bytes lookups lookup_tokens hit_tokens hit_rate stored_blocks "
        "evicted_blocks dropped_blocks",
    [PROF_COMPARE] = "test policy n batch n_prompt n_gen depth shape layers N weight_type kv_type attn "
                     "isa precision attended alloc lockstep threads seed ranks rank_threads "
                     "parallelism network figure a b ratio ratio_lo ratio_hi rounds_a rounds_b verdict",
};

size_t prof_known_field(const char *list, const char *names)
{
    size_t found = 0;
    for (const char *at = names; *at; at += strspn(at, " ")) {
        const size_t len = strcspn(at, " ");
        if (strncmp(list, at, len) == 0 && (!list[len] || list[len] == ','))
            found = len;
        at += len;
    }
    return found;
}

void prof_all_fields(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "all");
    for (size_t c = 0; c < PROF_COMMANDS; c++)
        for (const char *at = prof_fields[c]; *at; at += strspn(at, " ")) {
            const size_t len = strcspn(at, " ");
            bool before = false;
            for (size_t k = 0; k < c; k++) {
                char name[64];
                snprintf(name, sizeof name, "%.*s", (int)len, at);
                before = before || prof_known_field(name, prof_fields[k]);
            }
            if (!before && used < size)
                used += (size_t)snprintf(text + used, size - used, "|%.*s", (int)len, at);
            at += len;
        }
}
