/* The table of cache policies, which tests iterate over. A new policy needs a declaration and an
 * entry here. */
#include "kv/kv_policy.h"

extern const struct kv_policy kv_policy_iterative, kv_policy_upfront, kv_policy_bmc, kv_policy_paged,
    kv_policy_reserve, kv_policy_segment, kv_policy_shift, kv_policy_headwise;

const struct kv_policy *const kv_policies[] = {
    &kv_policy_bmc,   &kv_policy_iterative, &kv_policy_upfront,
    &kv_policy_paged, &kv_policy_reserve,   &kv_policy_segment,
    &kv_policy_shift, &kv_policy_headwise,  NULL};
