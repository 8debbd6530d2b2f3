/* upfront: what a static cache does (BMC paper II-C). N rows are allocated with the first token and all
 * of them are multiplied: the end T = 1 of the line. */
#include "kv/kv_grow.h"
#include "kv/kv_rows.h"

const struct kv_policy kv_policy_upfront = {
    .name = "upfront",
    .summary = "N rows at once",
    .growth = &kv_grow_once,
    .rows = KV_ROWS_CAP,
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
