/* The subcommands of bmc-prof, and the fields of their rows. */
#pragma once

#include "format/kvblock/kvblock_folder.h"
#include "format/kvblock/kvblock_stats.h"
#include "prof/quality.h"
#include "prof/report.h"
#include "prof/text_measure.h"

enum prof_command {
    PROF_POLICIES,
    PROF_SWEEP,
    PROF_LATENCY,
    PROF_BENCH,
    PROF_MEMORY,
    PROF_RANKS,
    PROF_PREDICT,
    PROF_ROOF,
    PROF_HEADS,
    PROF_SCALES,
    PROF_CACHE_TYPES,
    PROF_QUALITY,
    PROF_PREFIX_CACHE,
    PROF_COMPARE,
    PROF_COMMANDS /* number of subcommands */
};

extern const char *const prof_command_names[PROF_COMMANDS];
extern const struct row_kind prof_rows[PROF_COMMANDS];

/* The i-th field of the subcommand's rows; NULL behind the last one. */
const struct row_field *prof_field(enum prof_command command, size_t i);

/* The field name[0..len) of any subcommand; NULL: there is none. */
const struct row_field *prof_find_field(const char *name, size_t len);

/* Records of rows that are no measurements: of a KV head, of the ranges of one, of divergence, of a folder of the prefix cache, and of
 * two measurements of one figure. */
struct prof_head {
    size_t tokens, sink, recent, repeats, streaming; /* of all heads, how many stream .. */
    double share;                                    /* .. and their share */
    struct retrieval_head head;
};

struct prof_range {
    size_t tokens, layer, head;
    double low[2], high[2]; /* of K, and of V; NaN: V is a part of K */
};

/* Mean divergence that K, and V, of a type cause: of all layers, or of one. */
struct prof_cost {
    size_t tokens;
    const char *type, *layer;
    double kld[2];
};

/* Of the tokens at some positions, with what changes the tested side (NULL, and no streaming heads: nothing), and the
 * reference that it is compared with. */
struct prof_quality {
    struct quality q;
    const char *policy, *heads, *scales, *adapters;
    size_t streaming;
    double share;
    const char *reference, *reference_model_id, *reference_precision, *reference_kv_type;
};

struct prof_folder {
    const char *folder;
    struct kvblock_usage usage;
    struct kvblock_counts counts;
    double hit_rate;
};

struct comparison {
    const char *figure, *verdict;
    double a, b, ratio, lo, hi;
    size_t rounds[2];
};

/* True if the field `name` is one of what was measured, in which rows of one measurement agree; so are all unknown
 * ones, so that rows with unknown fields never match by mistake. */
bool prof_field_identifies(const char *name);

/* Lists the fields of all subcommands without duplicates, separated by '|'. */
void prof_all_fields(char *text, size_t size);
