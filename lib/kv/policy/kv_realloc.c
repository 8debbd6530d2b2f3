/* Policies that grow by allocating a larger block and copying (BMC paper). They differ in r, the
 * rows that a growth event adds (T events fill the context of N rows), and in whether attention
 * computes the padding.
 *
 *   iterative  r = 1, T = N: the dynamic cache of Hugging Face transformers (II-B)
 *   upfront    r = N, T = 1: a static cache, attention computes all N rows (II-C)
 *   bmc        in between: balances memory allocation, copying and redundant computation (V) */
#include "kv/kv_rows.h"
#include "kv/policy/kv_grow.h"

#define GROWS_BY_COPYING                                                                               \
    .lockstep = true, .open = kv_grow_open, .ensure = kv_grow_ensure, .row_at = kv_grow_row_at,        \
    .append = kv_rows_append, .view = kv_grow_view, .accept = kv_grow_accept, .fork = kv_grow_fork

const struct kv_policy kv_policy_bmc = {
    .name = "bmc",
    .growth = &kv_grow_in_steps,
    .attend = KV_ATTEND_PADDED,
    .attach = kv_grow_attach,
    GROWS_BY_COPYING,
};

const struct kv_policy kv_policy_iterative = {
    .name = "iterative",
    .growth = &kv_grow_every_row,
    .attend = KV_ATTEND_VALID,
    GROWS_BY_COPYING,
};

const struct kv_policy kv_policy_upfront = {
    .name = "upfront",
    .growth = &kv_grow_once,
    .attend = KV_ATTEND_PADDED,
    GROWS_BY_COPYING,
};
