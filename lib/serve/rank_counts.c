/* The table of counts of ranks, and their sums. */
#include "serve/rank_counts.h"

#include "base/file_head.h"

#define COUNT(field, name)                                                                             \
    {                                                                                                  \
        name, false, offsetof(struct rank_counts, field)                                               \
    }
#define TIME(field, name)                                                                              \
    {                                                                                                  \
        name, true, offsetof(struct rank_counts, field)                                                \
    }

/* Work of a phase, and its times. */
#define WORK(phase)                                                                                    \
    COUNT(gen.phase.weight_bytes, #phase "_weight_bytes"),                                             \
        COUNT(gen.phase.kv_read_bytes, #phase "_kv_read_bytes"),                                       \
        COUNT(gen.phase.kv_write_bytes, #phase "_kv_write_bytes"),                                     \
        COUNT(gen.phase.macs[WEIGHTS_QUANTISED], #phase "_macs_quantised"),                            \
        COUNT(gen.phase.macs[WEIGHTS_BF16], #phase "_macs_bf16"),                                      \
        COUNT(gen.phase.macs[WEIGHTS_F32], #phase "_macs_f32"),                                        \
        COUNT(gen.phase.attention_macs, #phase "_macs_attention"),                                     \
        TIME(gen.phase.times.ms[PHASE_ATTENTION], #phase "_attention_ms"),                             \
        TIME(gen.phase.times.ms[PHASE_PROJECTION], #phase "_projections_ms"),                          \
        TIME(gen.phase.times.ms[PHASE_MLP], #phase "_mlp_ms"),                                         \
        TIME(gen.phase.times.ms[PHASE_HEAD], #phase "_head_ms"),                                       \
        TIME(gen.phase.times.ms[PHASE_OTHER], #phase "_other_ms"),                                     \
        TIME(gen.phase.times.convert_ms, #phase "_conversion_ms"),                                     \
        TIME(gen.phase.times.wait_ms, #phase "_wait_ms")

const struct rank_count rank_count[RANK_COUNTS] = {
    COUNT(gen.sequences, "sequences"),
    COUNT(gen.finished[FINISHED_LENGTH], "finished_length"),
    COUNT(gen.finished[FINISHED_EOS], "finished_eos"),
    COUNT(gen.finished[FINISHED_STOP], "finished_stop"),
    COUNT(gen.finished[FINISHED_REPETITION], "finished_repetition"),
    COUNT(gen.finished[FINISHED_CANCELLED], "finished_cancelled"),
    COUNT(gen.finished[FINISHED_ERROR], "finished_error"),
    COUNT(gen.interrupted, "finished_interrupted"),
    COUNT(gen.context_full, "context_full"),
    COUNT(gen.loaded_tokens, "loaded_tokens"),
    TIME(gen.load_kv_ms, NULL),
    COUNT(gen.store_lookup_tokens, "prefix_cache_lookup_tokens"),
    COUNT(gen.store_hit_tokens, "prefix_cache_hit_tokens"),
    COUNT(gen.stored_tokens, "prefix_cache_stored_tokens"),
    COUNT(gen.store_dropped_blocks, "prefix_cache_dropped_blocks"),
    TIME(gen.store_wait_ms, "prefix_cache_wait_ms"),
    COUNT(gen.shared_rows, "shared_rows"),
    COUNT(gen.saved_bytes, "kv_saved_bytes"),
    COUNT(gen.converted, "kv_converted"),
    COUNT(gen.suspended, "kv_suspended"),
    COUNT(gen.prefill_tokens, "prefill_tokens"),
    COUNT(gen.prefill_steps, NULL),
    TIME(gen.prefill_ms, "prefill_ms"),
    WORK(prefill),
    COUNT(gen.decode_tokens, "decode_tokens"),
    COUNT(gen.decode_steps, "decode_steps"),
    TIME(gen.decode_ms, "decode_ms"),
    WORK(decode),
    COUNT(gen.sampled_tokens, "sampled_tokens"),
    TIME(gen.sample_ms, "sample_ms"),
    COUNT(kv.attached_bytes, "kv_adopted_bytes"),
    COUNT(kv.attached_rows, NULL),
    COUNT(kv.allocations, "kv_allocations"),
    COUNT(kv.copied_rows, "kv_copied_rows"),
    COUNT(kv.copied_bytes, "kv_copied_bytes"),
    COUNT(kv.resident_bytes, NULL),
    COUNT(kv.peak_bytes, "kv_resident_bytes"),
    COUNT(kv.padded_rows, "kv_padded_rows"),
    COUNT(kv.rows_computed, "kv_rows_computed"),
    TIME(kv.alloc_ms, "kv_alloc_ms"),
    TIME(kv.copy_ms, "kv_copy_ms"),
    COUNT(attn.primitives, "attn_primitives"),
    TIME(attn.primitive_ms, "attn_primitive_ms"),
    COUNT(pss_bytes, "pss_bytes"),
};

struct rank_counts rank_counts_now(const struct session *session, const struct gen_stats *stats)
{
    return (struct rank_counts){*stats, kv_stats(session_kv(session)),
                                attn_counts(session_options(session)->cpu.attn),
                                file_proc_bytes("/proc/self/smaps_rollup", "Pss")};
}

void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one)
{
    for (size_t i = 0; i < RANK_COUNTS; i++) {
        void *to = (char *)sum + rank_count[i].at;
        const void *from = (const char *)one + rank_count[i].at;
        if (!rank_count[i].is_time)
            *(size_t *)to += *(const size_t *)from;
        else if (*(const double *)from > *(double *)to)
            *(double *)to = *(const double *)from;
    }
}
