/* The fields of each subcommand's rows, of which --columns chooses. They are known before anything is measured: so is a
 * name that is none of them. */
#include <stdlib.h>
#include <string.h>

#include "prof.h"

#define COMMON                                                                                         \
    "shape model_id layers N weight_type kv_type attn isa precision threads repeat warmup seed cpu "   \
    "version commit timestamp "
#define CACHE "attended alloc lockstep "
#define BLOCK                                                                                          \
    "policy T T_from r batch alloc_ms copy_ms append_ms sdpa_ms scores_ms softmax_ms values_ms "       \
    "total_ms total_ms_min total_ms_max minor_faults major_faults dtlb_misses cycles instructions "    \
    "kv_allocations kv_copied_bytes kv_padded_rows rows_computed kv_peak_bytes " COMMON CACHE          \
    "samples error"

static const char *const fields[PROF_COMMANDS] = {
    [PROF_POLICIES] = BLOCK,
    [PROF_SWEEP] = BLOCK,
    [PROF_LATENCY] = "n batch " COMMON CACHE "samples policy error",
    [PROF_BENCH] =
        "test policy batch n_prompt n_gen depth tok_s tok_s_sd tok_s_end_to_end tok_s_end_to_end_sd "
        "step_ms roof_share roof_kind first_token_ms roof_gb_s roof_gflop_s latency_p50_ms "
        "latency_p95_ms latency_p99_ms attention_ms projections_ms mlp_ms head_ms other_ms "
        "sampling_ms T T_from r peak_resident_bytes " COMMON CACHE "samples error",
    [PROF_USECASES] = "n_prompt n_gen batch policy tok_s_end_to_end over_paged T T_from r " COMMON CACHE
                      "samples error",
    [PROF_MEMORY] = "policy batch beams n_prompt n_gen token_bytes kv_bytes over_standard fits "
                    "least_bytes T r run_layers run_batch run_bytes run_over " COMMON CACHE "error",
    [PROF_INSTANCES] = "batch ranks rank_threads policy n_prompt n_gen tok_s_end_to_end step_ms "
                       "against_first pss_bytes " COMMON "samples error",
    [PROF_RANKS] = "batch ranks split network depth n_gen compute_ms network_ms step_ms tok_s "
                   "against_one sent_bytes sent_calls " COMMON CACHE "samples",
    [PROF_ROOF] = "read_gb_s copy_gb_s f32_gflop_s f32_isa bf16_gflop_s bf16_isa int8_gop_s int8_isa "
                  "page_fault_ns threads repeat cpu version commit timestamp",
    [PROF_HEADS] = "tokens sink recent layer head beyond sparse " COMMON,
    [PROF_COMPARE] = "test policy n batch n_prompt n_gen depth shape layers N weight_type kv_type attn "
                     "isa precision attended alloc lockstep threads seed ranks rank_threads split "
                     "network figure a b ratio ratio_lo ratio_hi rounds_a rounds_b verdict",
};

/* The length of the field that the list begins with, or 0. */
static size_t known_field(const char *list, const char *names)
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

/* Fields of latency that are named after a policy: those have commas in them. */
static size_t policy_field(const char *list, const struct prof *prof)
{
    static const char *const ends[] = {"_ms", "_p95_ms", "_max_ms"};
    size_t found = 0;
    for (size_t i = 0; prof && i < prof->n_contenders; i++)
        for (size_t k = 0; k < ARRAY_LEN(ends); k++) {
            char name[PROF_FIELD_BYTES];
            snprintf(name, sizeof name, "%s%s", prof->contender[i].text, ends[k]);
            found = size_max(found, known_field(list, name));
        }
    return found;
}

__attribute__((noreturn)) static void refuse(const char *at, enum prof_command command)
{
    struct buf names = {0};
    struct err err;
    for (const char *field = fields[command]; *field; field += strspn(field, " ")) {
        const size_t len = strcspn(field, " ");
        (void)!buf_addf(&names, &err, ", %.*s", (int)len,
                        field); /* a list without its end is better than none */
        field += len;
    }
    opt_usage_error(&prof_program, "--columns: \"%.*s\" is no field of %s; there are all%s%s",
                    (int)strcspn(at, ","), at, prof_command_names[command], buf_text(&names),
                    command == PROF_LATENCY ? ", and for each policy POLICY_ms, POLICY_p95_ms and "
                                              "POLICY_max_ms"
                                            : "");
}

void prof_check_columns(const struct prof_options *o, const struct prof *prof)
{
    if (!o->columns)
        return;
    if (o->format == TABLE_JSON || o->format == TABLE_JSONL)
        opt_usage_error(&prof_program, "--columns: JSON has all fields: choose table, md or csv");
    for (const char *at = o->columns;; at++) {
        const size_t len = size_max(known_field(at, fields[o->command]), policy_field(at, prof));
        /* Names of policies are known once those are. */
        if (!len && strcmp(o->columns, "all") != 0 && (prof || o->command != PROF_LATENCY))
            refuse(at, o->command);
        at += len ? len : strcspn(at, ",");
        if (!*at)
            return;
    }
}

/* The fields that --columns names, or all of the rows, else the usual ones; `text` is filled with blanks between them. */
int prof_choose_columns(const struct prof *prof, const struct prof_options *o, const json_t *rows,
                        const char *usual, struct buf *text, struct err *err)
{
    size_t len;
    if (!o->columns)
        return buf_addf(text, err, "%s", usual);
    if (strcmp(o->columns, "all") == 0) {
        json_t *row = json_array_get(rows, 0), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            if (buf_addf(text, err, "%s%s", text->len ? " " : "", key) < 0)
                return -1;
        }
        return 0;
    }
    for (const char *at = o->columns; *at; at += len + (at[len] == ',')) {
        len = size_max(known_field(at, fields[o->command]), policy_field(at, prof));
        if (buf_addf(text, err, "%s%.*s", text->len ? " " : "", (int)len, at) < 0)
            return -1;
    }
    return 0;
}

void prof_all_fields(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "all");
    for (size_t c = 0; c < PROF_COMMANDS; c++)
        for (const char *at = fields[c]; *at; at += strspn(at, " ")) {
            const size_t len = strcspn(at, " ");
            bool before = false;
            for (size_t k = 0; k < c; k++) {
                char name[64];
                snprintf(name, sizeof name, "%.*s", (int)len, at);
                before = before || known_field(name, fields[k]);
            }
            if (!before && used < size)
                used += (size_t)snprintf(text + used, size - used, "|%.*s", (int)len, at);
            at += len;
        }
}
