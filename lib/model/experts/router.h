/* The choice of experts for a token. */
#ifndef BMC_ROUTER_H
#define BMC_ROUTER_H

#include "model/config.h"

/* Chooses config->moe->used experts for a token by their logits[experts]: chosen[] in ascending
 * order, and the weight[] of each. `select_bias` and `gain` [experts] may be NULL; scratch[2 * experts] is
 * overwritten. Of equal scores the lower index wins. */
void router_choose(const struct config *config, const float *logits, const float *select_bias,
                   const float *gain, float *scratch, uint32_t *chosen, float *weight);

#endif
