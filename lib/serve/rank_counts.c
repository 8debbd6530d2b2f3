/* Sums the counts of ranks. */
#include "serve/rank_counts.h"

#include "base/file_head.h"

#define GEN(field) offsetof(struct rank_counts, gen.field)
#define KV(field)  offsetof(struct rank_counts, kv.field)

static const size_t counts[] = {
    GEN(sequences),
    GEN(context_full),
    GEN(interrupted),
    GEN(loaded_tokens),
    GEN(shared_rows),
    GEN(saved_bytes),
    GEN(prefill_tokens),
    GEN(prefill_steps),
    GEN(decode_tokens),
    GEN(decode_steps),
    GEN(sampled_tokens),
    KV(allocations),
    KV(copied_rows),
    KV(copied_bytes),
    KV(padded_rows),
    KV(rows_computed),
    KV(attached_rows),
    KV(attached_bytes),
    KV(resident_bytes),
    KV(peak_bytes),
    GEN(store_lookup_tokens),
    GEN(store_hit_tokens),
    GEN(stored_tokens),
    GEN(store_dropped_blocks),
    offsetof(struct rank_counts, pss_bytes),
};

static const size_t times[] = {
    GEN(store_wait_ms), GEN(load_kv_ms), GEN(prefill_ms), GEN(decode_ms),
    GEN(sample_ms),     KV(alloc_ms),    KV(copy_ms),
};

struct rank_counts rank_counts_now(const struct session *session, const struct gen_stats *stats)
{
    return (struct rank_counts){*stats, kv_stats(session_kv(session)),
                                file_proc_bytes("/proc/self/smaps_rollup", "Pss")};
}

void rank_counts_add(struct rank_counts *sum, const struct rank_counts *one)
{
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        *(size_t *)((char *)sum + counts[i]) += *(const size_t *)((const char *)one + counts[i]);
    for (size_t i = 0; i < ARRAY_LEN(sum->gen.finished); i++)
        sum->gen.finished[i] += one->gen.finished[i];
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        double *max = (double *)((char *)sum + times[i]);
        const double ms = *(const double *)((const char *)one + times[i]);
        *max = ms > *max ? ms : *max;
    }
}
