/* bmc: balancing memory and compute (BMC paper V). Every r tokens the cache grows by r rows, padded
 * with zeros that attention multiplies under a bias mask; in between, new rows are written in place. */
#include "kv/kv_grow.h"
#include "kv/kv_rows.h"

const struct kv_policy kv_policy_bmc = {
    .name = "bmc",
    .summary = "r more rows every r tokens (bmc:T=16, bmc:r=64)",
    .growth = &kv_grow_in_steps,
    .rows = KV_ROWS_CAP,
    .lockstep = true,
    .open = kv_grow_open,
    .room = kv_grow_room,
    .row_at = kv_grow_row_at,
    .append = kv_rows_append,
    .view = kv_grow_view,
    .keep = kv_grow_keep,
    .fork = kv_grow_fork,
    .adopt = kv_grow_adopt,
    .close = kv_grow_close,
};
