/* iterative: what the Hugging Face dynamic cache does (BMC paper II-B). Every token allocates n + 1
 * rows and copies n: the end T = N of the line. */
#include "kv/kv_grow.h"
#include "kv/kv_rows.h"

const struct kv_policy kv_policy_iterative = {
    .name = "iterative",
    .summary = "exactly n rows, reallocated and copied every token",
    .growth = &kv_grow_every_row,
    .rows = KV_ROWS_VALID,
    .lockstep = true,
    .open = kv_grow_open,
    .room = kv_grow_room,
    .row_at = kv_grow_row_at,
    .append = kv_rows_append,
    .view = kv_grow_view,
    .keep = kv_grow_keep,
    .fork = kv_grow_fork,
    .adopt = NULL,
    .close = kv_grow_close,
};
